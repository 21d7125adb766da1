//! The allocator call in flight of a thread.
//!
//! The outermost call wins: `calloc` that calls `malloc`, or a preloaded `malloc` that calls
//! libc's, is one allocation. What tells nesting from a call that never returned (longjmp,
//! an exception) is the stack pointer: a nested call lies deeper.

use aya_ebpf::helpers::bpf_probe_read_user;
use tracer_common::count::Count;

use crate::{
    arch::USUAL_TRAMPOLINE,
    count,
    maps::{SLOTS, TRAMPOLINE},
};

/// What is kept of a thread between two probes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slot {
    /// Stack pointer at the entry of the call in flight; zero when there is none.
    pub sp: u64,
    /// Requested bytes of the call in flight.
    pub size: u64,
    /// Where the call stores its result, for a shape that does.
    pub out: u64,
    /// Hash of the caller's stack.
    pub stack: u64,
    /// The attach cookie of the call in flight.
    pub cookie: u64,
    /// Non-zero when the call in flight gave up a block.
    pub gave_up: u64,
    /// Address that this thread released last, zero once it allocated since.
    pub last_released: u64,
    /// A hash whose frames this thread knows to be sent.
    pub last_stack: u64,
    /// No stack is mapped at or above this address, as far as a failed read told; zero when
    /// none failed.
    pub top: u64,
}

const EMPTY: Slot = Slot {
    sp: 0,
    size: 0,
    out: 0,
    stack: 0,
    cookie: 0,
    gave_up: 0,
    last_released: 0,
    last_stack: 0,
    top: 0,
};

/// The thread's slot, made when it has none.
///
/// # Errors
/// [`Count::SlotsFull`] when there is no room for another thread.
#[inline(always)]
pub fn slot<'a>(tid: u32) -> Result<&'a mut Slot, Count> {
    let slot = match SLOTS.get_ptr_mut(tid) {
        Some(slot) => slot,
        None => {
            SLOTS.insert(tid, EMPTY, 0).map_err(|_| Count::SlotsFull)?;
            SLOTS.get_ptr_mut(tid).ok_or(Count::SlotsFull)?
        }
    };
    // SAFETY: a live map value, which no other thread reaches while this one runs: the key is
    // its own id.
    Ok(unsafe { &mut *slot })
}

/// Is a call that is entered with `sp` part of the call in flight? When it is not and one is
/// in flight, that one never returned: it is counted and forgotten.
#[inline(always)]
pub fn is_nested(slot: &mut Slot, sp: u64) -> bool {
    if slot.sp == 0 {
        return false;
    }
    if sp < slot.sp || (sp == slot.sp && returns_to_trampoline(sp)) {
        return true;
    }
    count::bump(Count::Abandoned);
    slot.sp = 0;
    false
}

/// A function that ends in a jump to another (`reallocarray` to `realloc`) enters it with
/// its own stack pointer. The return address there is already the trampoline's, which a
/// fresh call's never is.
#[inline(always)]
fn returns_to_trampoline(sp: u64) -> bool {
    // SAFETY: the helper checks the address; an unreadable one is an error.
    let Ok(return_addr) = (unsafe { bpf_probe_read_user(sp as *const u64) }) else {
        return false;
    };
    let page = return_addr & !0xfff;
    page == USUAL_TRAMPOLINE || TRAMPOLINE.get(0).is_some_and(|known| page == *known)
}
