//! The kernel side of outlive: entry points only. Each makes one call and turns its error
//! into a counter; an error means that the books are incomplete from here on.
#![no_std]
#![no_main]
#![expect(internal_features, reason = "see atomic.rs")]
#![feature(core_intrinsics)]

mod alloc;
mod arch;
mod atomic;
mod call;
mod config;
mod count;
mod emit;
mod hold;
mod maps;
mod mm;
mod returns;
mod stack;
mod target;
mod task;
mod thread_stack;

use aya_ebpf::{
    macros::{raw_tracepoint, tracepoint, uprobe, uretprobe},
    programs::{ProbeContext, RawTracePointContext, RetProbeContext, TracePointContext},
};

/// An allocator function that returns memory was entered.
#[uprobe]
pub fn alloc_enter(ctx: ProbeContext) -> u32 {
    thread_stack::keep(&ctx);
    count::lost(alloc::enter(&ctx))
}

/// An allocator function that returns memory returns.
#[uretprobe]
pub fn alloc_return(ctx: RetProbeContext) -> u32 {
    thread_stack::keep(&ctx);
    count::lost(alloc::leave(&ctx))
}

/// An allocator function that returns memory is at its return instruction.
#[uprobe]
pub fn alloc_end(ctx: ProbeContext) -> u32 {
    thread_stack::keep(&ctx);
    count::lost(alloc::leave_here(&ctx))
}

/// A deallocator was entered.
#[uprobe]
pub fn free_enter(ctx: ProbeContext) -> u32 {
    thread_stack::keep(&ctx);
    count::lost(alloc::free(&ctx))
}

/// A thread ends: nothing is in flight for it any more.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn task_exit(_ctx: RawTracePointContext) -> i32 {
    task::exit();
    0
}

/// A system call begins, of any process.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn mm_enter(ctx: RawTracePointContext) -> i32 {
    count::lost(mm::enter(ctx.arg(1), || mm::registers_in(&ctx))) as i32
}

/// A system call ends, of any process.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn mm_exit(ctx: RawTracePointContext) -> i32 {
    count::lost(mm::leave(ctx.arg(1), || mm::registers_in(&ctx))) as i32
}

/// As [`mm_enter`], where a thread can be preempted in that one: the kernel then leaves it out
/// for every other thread of the CPU.
#[tracepoint(category = "raw_syscalls", name = "sys_enter")]
pub fn mm_enter_event(ctx: TracePointContext) -> u32 {
    count::lost(mm::enter(mm::number_in(&ctx), task::registers))
}

/// As [`mm_exit`], in the same place.
#[tracepoint(category = "raw_syscalls", name = "sys_exit")]
pub fn mm_exit_event(ctx: TracePointContext) -> u32 {
    count::lost(mm::leave(mm::returned_in(&ctx), task::registers))
}

/// A process replaced its image.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn task_exec(ctx: RawTracePointContext) -> i32 {
    count::lost(task::exec(&ctx)) as i32
}

/// A process or a thread was made and has not run yet.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn task_fork(ctx: RawTracePointContext) -> i32 {
    count::lost(task::fork(&ctx)) as i32
}

/// Never attached: the user side runs it to write a mark into the ring. Answers 1 when it was
/// written, so that a run that the kernel leaves out is not taken for one.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn mark(ctx: RawTracePointContext) -> i32 {
    i32::from(emit::mark(ctx.arg(0)).is_ok())
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses an endless loop, so a panic that could be reached does not load.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
