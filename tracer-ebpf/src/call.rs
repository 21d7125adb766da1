//! The allocator call in flight of a thread.
//!
//! The outermost call wins: `calloc` that calls `malloc`, or a preloaded `malloc` that calls
//! libc's, is one allocation. What tells nesting from a call that never returned (longjmp,
//! an exception) is the stack pointer: a nested call lies a little deeper. A call far away is
//! on another stack: the thread switched in the middle, and may come back.

use aya_ebpf::helpers::bpf_probe_read_user;
use tracer_common::{
    cookie::{Cookie, Shape},
    count::Count,
    event::{Head, Kind, SpaceRecord},
};

use crate::{
    config, count, emit,
    maps::{PARKED, SLOTS},
    returns,
    target::{Caller, space_of},
};

/// A call in flight.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Call {
    /// Stack pointer at its entry; zero when there is none.
    pub sp: u64,
    /// Requested bytes.
    pub size: u64,
    /// The pointer argument: a block, or where the call stores its result.
    pub out: u64,
    /// Hash of the caller's stack.
    pub stack: u64,
    /// The attach cookie.
    pub cookie: u64,
    /// Non-zero when the call gave up a block.
    pub gave_up: u64,
}

impl Call {
    /// May it end by an exception?
    #[inline(always)]
    pub fn throws(&self) -> bool {
        Cookie::unpack(self.cookie).is_some_and(|cookie| cookie.throws)
    }

    /// Does it give a block back, and nothing else?
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.cookie as u8 == Shape::FreeCall as u8
    }
}

/// What is kept of a thread between two probes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slot {
    /// The call in flight.
    pub call: Call,
    /// Number of calls that were in flight on other stacks when the thread left those.
    pub n_parked: u64,
    /// Address that this thread released last, zero once it allocated since.
    pub last_released: u64,
    /// A hash whose frames this thread knows to be sent.
    pub last_stack: u64,
    /// The address space that the thread lives in.
    pub space: u64,
    /// No stack is mapped at or above this address, as far as a failed read told; zero when
    /// none failed.
    pub top: u64,
}

impl Slot {
    #[inline(always)]
    fn empty(space: u64) -> Self {
        Self {
            call: Call { sp: 0, size: 0, out: 0, stack: 0, cookie: 0, gave_up: 0 },
            n_parked: 0,
            last_released: 0,
            last_stack: 0,
            space,
            top: 0,
        }
    }
}

/// Calls of one thread that can wait on other stacks.
const MAX_PARKED: u32 = 4;

/// How much deeper a nested call lies at the most. One allocator function that calls another
/// does so within a page or two; a coroutine's stack is further off. A nested call that does
/// lie deeper is booked twice at one address, which the books notice.
const NEAR: u64 = 6 * 1024;

/// The thread's slot, made when it has none. With the slot, the user side is told where the
/// thread lives, so that no other record has to say it.
///
/// # Errors
/// [`Count::SlotsFull`] when there is no room for another thread, [`Count::RingFull`] when it
/// could not be told.
#[inline(always)]
pub fn slot<'a>(target: &Caller) -> Result<&'a mut Slot, Count> {
    let slot = match SLOTS.get_ptr_mut(target.tid) {
        Some(slot) => slot,
        None => {
            let space = space_of(target);
            if config::follow() != 0 {
                let head = Head { kind: Kind::Thread as u8, flags: 0, family: 0, tid: target.tid };
                let record =
                    SpaceRecord { head, space, from: 0, stack: 0, hold: 0, pid: 0, parent: 0 };
                emit::space(record)?;
            }
            SLOTS.insert(target.tid, Slot::empty(space), 0).map_err(|_| Count::SlotsFull)?;
            SLOTS.get_ptr_mut(target.tid).ok_or(Count::SlotsFull)?
        }
    };
    // SAFETY: a live map value, which no other thread reaches while this one runs: the key is
    // its own id.
    Ok(unsafe { &mut *slot })
}

/// Is a call that is entered with `sp` part of a call in flight, which is then in the slot?
/// When it is not and one is in flight, that one was left for another stack, or never
/// returned: it is counted until it returns after all.
#[inline(always)]
pub fn is_nested(slot: &mut Slot, tid: u32, sp: u64) -> bool {
    if slot.call.sp != 0 {
        if is_within(slot.call.sp, sp) {
            return true;
        }
        set_aside(slot, tid, sp);
    }
    slot.n_parked != 0 && take_up(slot, tid, sp, false)
}

/// Is the call in the slot the one that was entered with `sp` and ends now?
#[inline(always)]
pub fn is_ending(slot: &mut Slot, tid: u32, sp: u64) -> bool {
    (slot.call.sp != 0 && slot.call.sp == sp)
        || (slot.n_parked != 0 && take_up(slot, tid, sp, true))
}

/// Forgets everything about a thread.
#[inline(always)]
pub fn forget(tid: u32) {
    let n_parked = SLOTS.get_ptr(tid).map_or(0, |slot| {
        // SAFETY: a live map value, read once.
        unsafe { (*slot).n_parked }
    });
    if n_parked != 0 {
        for index in 0..MAX_PARKED {
            // The error says that there was none.
            let _ = PARKED.remove(parking(tid, index));
        }
    }
    let _ = SLOTS.remove(tid);
}

#[inline(always)]
fn is_within(outer: u64, sp: u64) -> bool {
    (sp < outer && outer - sp <= NEAR) || (sp == outer && returns_to_trampoline(sp))
}

/// Takes the call out of the slot, since one at `sp` is not part of it.
#[inline(always)]
fn set_aside(slot: &mut Slot, tid: u32, sp: u64) {
    let throws = slot.call.throws();
    let outer = slot.call.sp;
    // Of a call that frees, everything is booked already.
    let is_free = slot.call.is_free();
    if !throws && !is_free {
        count::bump(Count::Abandoned);
    }
    let is_same_stack = sp >= outer && sp - outer <= NEAR;
    if !is_same_stack {
        for index in 0..MAX_PARKED {
            let key = parking(tid, index);
            if PARKED.get_ptr(key).is_none() {
                if PARKED.insert(key, slot.call, 0).is_ok() {
                    slot.n_parked += 1;
                }
                break;
            }
        }
    }
    slot.call.sp = 0;
}

/// Puts the waiting call into the slot that a call at `sp` belongs to, or, when one returns,
/// that was entered with `sp`.
#[inline(always)]
fn take_up(slot: &mut Slot, tid: u32, sp: u64, returns: bool) -> bool {
    for index in 0..MAX_PARKED {
        let key = parking(tid, index);
        let Some(call) = PARKED.get_ptr(key) else { continue };
        // SAFETY: a live map value, which only this thread writes: its id is in the key.
        let call = unsafe { &*call };
        let is_it = if returns { call.sp == sp } else { is_within(call.sp, sp) };
        if is_it {
            let call = *call;
            if slot.call.sp != 0 {
                // The thread left a call on another stack to end this one.
                if !slot.call.throws() && !slot.call.is_free() {
                    count::bump(Count::Abandoned);
                }
                let _ = PARKED.insert(key, slot.call, 0);
            } else {
                let _ = PARKED.remove(key);
                slot.n_parked -= 1;
            }
            slot.call = call;
            if !call.throws() && !call.is_free() {
                count::lower(Count::Abandoned);
            }
            return true;
        }
        if !returns && sp >= call.sp && sp - call.sp <= NEAR {
            // Its stack is in use above it: it never returned.
            let _ = PARKED.remove(key);
            slot.n_parked -= 1;
        }
    }
    false
}

#[inline(always)]
fn parking(tid: u32, index: u32) -> u64 {
    (tid as u64) << 32 | index as u64
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
    returns::is_replaced(return_addr)
}
