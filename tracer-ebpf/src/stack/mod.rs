//! The caller's stack: frames, their hash, and sending the frames once.

mod frame_pointer;

use tracer_common::{
    count::Count,
    event::{Head, Kind, MAX_FRAMES, StackHead},
};

use crate::{
    atomic,
    call::Slot,
    count, emit,
    maps::{N_SCRATCH, SCRATCH, SENT_STACKS, Scratch},
};

/// Walks the stack of a call that was just entered and answers its hash; zero, and counted,
/// when it could not be collected.
#[inline(always)]
pub fn capture(slot: &mut Slot, tid: u32, sp: u64, fp: u64) -> u64 {
    let Some(scratch) = claim() else {
        count::bump(Count::StackLost);
        return 0;
    };
    frame_pointer::walk(scratch, slot.space, &mut slot.top, sp, fp);
    let hash = scratch.head.hash;
    if hash != slot.last_stack && send(scratch, tid, hash) {
        slot.last_stack = hash;
    }
    release(scratch);
    hash
}

/// Sends the frames unless they were. Answers whether the user side has them for sure.
#[inline(always)]
fn send(scratch: &mut Scratch, tid: u32, hash: u64) -> bool {
    // SAFETY: the value is one byte that is never written after it is inserted.
    if unsafe { SENT_STACKS.get(hash) }.is_some() {
        return true;
    }
    scratch.head.head = Head { kind: Kind::Stack as u8, flags: 0, family: 0, tid };
    // SAFETY: reads a field of a valid reference; volatile, so that the verifier sees a value
    // that is bounded below and not one state for each number of frames.
    let n_frames = unsafe { (&raw const scratch.head.n_frames).read_volatile() } as usize;
    if n_frames > MAX_FRAMES {
        return false;
    }
    let len = size_of::<StackHead>() + n_frames * 8;
    // SAFETY: `frames` follows `head` in a `repr(C)` struct without a gap, and `len` ends
    // within it.
    let record = unsafe { core::slice::from_raw_parts((&raw const scratch.head).cast(), len) };
    if let Err(lost) = emit::stack(record) {
        count::bump(lost);
        return false;
    }
    if SENT_STACKS.insert(hash, 1, 0).is_err() {
        count::bump(Count::StackResent);
    }
    true
}

/// A scratch buffer that no other program on this CPU uses.
#[inline(always)]
fn claim<'a>() -> Option<&'a mut Scratch> {
    for index in 0..N_SCRATCH {
        let scratch = SCRATCH.get_ptr_mut(index)?;
        // SAFETY: the pointer is to a live map value; the flag is only used atomically.
        if atomic::swap(unsafe { &mut (*scratch).busy }, 1) == 0 {
            // SAFETY: the flag was clear, so nobody else holds this buffer until it is again.
            return Some(unsafe { &mut *scratch });
        }
    }
    None
}

#[inline(always)]
fn release(scratch: &mut Scratch) {
    // SAFETY: the pointer is to a live map value, aligned to eight. Volatile, so that nothing
    // is moved past it: the buffer is another program's from here on.
    unsafe { core::ptr::write_volatile(&raw mut scratch.busy, 0) };
}
