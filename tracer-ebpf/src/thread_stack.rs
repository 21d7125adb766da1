//! Keeps the programs on the stack of the thread that they run for.
//!
//! From kernel 6.13 on, x86-64 gives a tracing program with a large stack a private one per
//! CPU and relies on a guard that keeps the program from running twice on a CPU. Programs on
//! user-space probes have no such guard and can be preempted: a second thread then writes over
//! the pointers of the first, and the kernel faults (seen on 7.2). A program that contains a tail
//! call gets no private stack.

use aya_ebpf::{EbpfContext, macros::map, maps::ProgramArray};

use crate::config;

/// Always empty: the tail call that names it is never made.
#[map]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// To be called by every program on a user-space probe. Costs nothing: the verifier knows the
/// constant and removes the call after it has drawn its conclusion from it.
#[inline(always)]
pub fn keep(ctx: &impl EbpfContext) {
    if config::never() != 0 {
        // SAFETY: the array is empty; a tail call into nothing returns.
        unsafe { NO_PROGRAMS.tail_call(ctx, 0) };
    }
}
