//! The caller's stack: frames, their hash, and sending the frames once.

mod functions;
mod pieces;
mod recent;
mod table;
mod walk;
mod window;

use aya_ebpf::{bindings::pt_regs, helpers::bpf_ktime_get_ns};
use tracer_common::{
    count::Count,
    event::{Head, Kind, MAX_FRAMES, StackEnd, StackHead},
    hash::StackHash,
};

use self::walk::{Start, Walk};
pub use self::{
    functions::{Following, inherit},
    recent::{N_RECENT, Recent},
    walk::State,
};

use crate::{
    arch, atomic,
    call::Slot,
    config, count, emit,
    maps::{N_SCRATCH, SCRATCH, SENT_STACKS, Scratch},
};

/// The stack of a call that was just entered: its caller comes first. Answers its hash; zero, and
/// counted, when it could not be collected.
#[inline(always)]
pub fn capture(slot: &mut Slot, tid: u32, regs: &pt_regs) -> u64 {
    take(slot, tid, Start::Entered, regs)
}

/// The stack of a thread that is in a system call: the caller of the function that made the call
/// comes first.
#[inline(always)]
pub fn capture_in_syscall(slot: &mut Slot, tid: u32, regs: &pt_regs) -> u64 {
    take(slot, tid, Start::At(arch::instruction_pointer(regs)), regs)
}

#[inline(always)]
fn take(slot: &mut Slot, tid: u32, start: Start, regs: &pt_regs) -> u64 {
    let Some(scratch) = claim() else {
        count::bump(Count::StackLost);
        return 0;
    };
    let (sp, fp) = (arch::stack_pointer(regs), arch::frame_pointer(regs));
    let space = slot.space;
    let mut walk = Walk { scratch, top: &mut slot.top };
    walk::walk(&mut walk, space, start, sp, fp);
    let run = functions::collect(walk.scratch, tid, space);
    if run != 0 {
        walk.scratch.head.hash = walk.scratch.walk.with(run);
    }
    let mut hash = walk.scratch.head.hash;
    if walk.scratch.head.end == StackEnd::Unfinished as u32
        && emit::waiting() > config::full_at() / 4
    {
        // What is lost of stacks must not be lost of figures.
        walk.scratch.head.end = StackEnd::Unsent as u32;
    }
    if walk.scratch.head.end == StackEnd::Unfinished as u32 {
        // The user side finishes it, and takes this for its name until then.
        // SAFETY: the helper has no conditions.
        let now = unsafe { bpf_ktime_get_ns() };
        hash = StackHash::new().with(hash).with(now).with(tid as u64).finish();
        walk.scratch.head.hash = hash;
        let is_sent = functions::send(walk.scratch, tid, hash) && pieces::send(&mut walk, tid);
        if !is_sent || !send_frames(walk.scratch, tid, true) {
            hash = 0;
        }
        release(walk.scratch);
        return hash;
    }
    let scratch = walk.scratch;
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
    if !functions::send(scratch, tid, hash) || !send_frames(scratch, tid, false) {
        return false;
    }
    if SENT_STACKS.insert(hash, 1, 0).is_err() {
        count::bump(Count::StackResent);
    }
    true
}

/// Sends the frames, and has them read at once where somebody waits for an answer.
#[inline(always)]
fn send_frames(scratch: &mut Scratch, tid: u32, at_once: bool) -> bool {
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
    if let Err(lost) = emit::stack(record, at_once) {
        count::bump(lost);
        return false;
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
