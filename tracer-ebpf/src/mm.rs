//! System calls that change mappings.
//!
//! A range is given up at the entry of `munmap` or `mremap`, while the caller still owns it, and
//! taken back when the call fails; what the kernel gives is booked at the return. Any other
//! order loses the range that another thread gets at the same place in between.
//!
//! These two programs run for every system call of the machine, so each first asks what is
//! cheapest to know: the number at entry, the process at return.

use aya_ebpf::{
    EbpfContext as _,
    bindings::pt_regs,
    helpers::bpf_probe_read_kernel,
    programs::{RawTracePointContext, TracePointContext},
};
use tracer_common::{
    count::Count,
    event::{FLAG_INSIDE, Head, Kind, RangeRecord},
};

use crate::{arch, call::slot, emit, hold, stack, target::target, task};

const PROT_EXEC: u32 = 4;
const MAP_ANONYMOUS: u32 = 0x20;
/// `MREMAP_DONTUNMAP`: the old range stays mapped.
const DONT_UNMAP: u64 = 4;

/// A system call of this number begins; `regs` reads what the thread entered the kernel with.
///
/// # Errors
/// The loss that keeps it from being booked.
#[inline(always)]
pub fn enter(number: u64, regs: impl Fn() -> Result<pt_regs, Count>) -> Result<(), Count> {
    if number != arch::MUNMAP && number != arch::MREMAP {
        return Ok(());
    }
    let Some(target) = target() else { return Ok(()) };
    let regs = regs()?;
    let args = arch::SyscallArgs::of(&regs);
    if number == arch::MREMAP && args.fourth & DONT_UNMAP != 0 {
        return Ok(());
    }
    let record = RangeRecord {
        head: Head { kind: Kind::Unmap as u8, flags: 0, family: 0, tid: target.tid },
        addr: args.first,
        len: args.second,
        from: 0,
        from_len: 0,
        stack: 0,
        protection: 0,
        flags: 0,
    };
    emit::range(record)
}

/// A system call ends with this result.
///
/// # Errors
/// The loss that keeps it from being booked.
#[inline(always)]
pub fn leave(returned: u64, regs: impl Fn() -> Result<pt_regs, Count>) -> Result<(), Count> {
    let Some(target) = target() else { return task::born() };
    let tid = target.tid;
    let regs = regs()?;
    let number = arch::syscall_number(&regs);
    let args = arch::SyscallArgs::of(&regs);
    let has_failed = returned >= -4095_i64 as u64;
    let mut record = RangeRecord {
        head: Head { kind: Kind::UnmapFailed as u8, flags: 0, family: 0, tid },
        addr: args.first,
        len: args.second,
        from: 0,
        from_len: 0,
        stack: 0,
        protection: args.third as u32,
        flags: args.fourth as u32,
    };
    match number {
        arch::MMAP if !has_failed => {
            record.head.kind = Kind::Map as u8;
            record.addr = returned;
        }
        arch::MUNMAP => {
            if !has_failed {
                record.head.kind = Kind::Unmapped as u8;
            }
            return emit::range(record);
        }
        arch::MREMAP if has_failed => return emit::range(record),
        arch::MREMAP => {
            record.head.kind = Kind::Remap as u8;
            record.from = args.first;
            record.from_len = args.second;
            record.addr = returned;
            record.len = args.third;
        }
        arch::MPROTECT | arch::PKEY_MPROTECT if !has_failed => {
            record.head.kind = Kind::Protect as u8;
        }
        // Fails by answering the break as it is.
        arch::BRK => {
            record.head.kind = Kind::Break as u8;
            record.addr = returned;
        }
        _ => return Ok(()),
    }
    let slot = slot(&target)?;
    let sp = arch::stack_pointer(&regs);
    record.stack = if slot.call.sp != 0 && sp < slot.call.sp {
        record.head.flags = FLAG_INSIDE;
        slot.call.stack
    } else {
        stack::capture_in_syscall(slot, tid, &regs)
    };
    let is_code = number == arch::MMAP
        && record.protection & PROT_EXEC != 0
        && record.flags & MAP_ANONYMOUS == 0;
    if !is_code {
        return emit::range(record);
    }
    // There may be an allocator in it, which must not be called before it is probed.
    emit::announce(|| RangeRecord { from: hold::begin(&target), ..record })
}

/// The thread's registers as it entered the kernel with them: the return changes none but the
/// one for the result, and none has been changed yet.
///
/// # Errors
/// When they cannot be read.
#[inline(always)]
pub fn registers_in(ctx: &RawTracePointContext) -> Result<pt_regs, Count> {
    // SAFETY: the first word of the context of both tracepoints is the address of the saved
    // registers; the helper checks it.
    unsafe { bpf_probe_read_kernel((*ctx.as_ptr().cast::<u64>()) as *const pt_regs) }
        .map_err(|_| Count::ReadFailed)
}

/// The number of the call that begins: the first field after the common ones, by the events'
/// format (`events/raw_syscalls/sys_enter/format` of tracefs).
#[inline(always)]
pub fn number_in(ctx: &TracePointContext) -> u64 {
    // SAFETY: the record of the event is longer than that.
    unsafe { ctx.as_ptr().add(8).cast::<u64>().read() }
}

/// The result of the call that ends: the field after the number.
#[inline(always)]
pub fn returned_in(ctx: &TracePointContext) -> u64 {
    // SAFETY: the record of the event ends with it.
    unsafe { ctx.as_ptr().add(16).cast::<u64>().read() }
}
