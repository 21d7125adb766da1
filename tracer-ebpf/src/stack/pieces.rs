//! Sending the stack itself, from the frame on that cannot be left.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use tracer_common::event::{Head, Kind, PieceHead};

use super::{
    walk::{State, Walk},
    window,
};
use crate::{count, emit, maps::WINDOW};

/// Pieces of one stack at the most: 128 KiB. What lies beyond is taken another time, when the call
/// sites of these have their rules.
const MAX_PIECES: u32 = 32;
/// Pages without memory that are passed over: a function's array that was not written to yet. What
/// lies behind more of them is another thread's.
const MAX_HOLES: u32 = 64;

struct Sending<'w, 'a> {
    walk: &'w mut Walk<'a>,
    tid: u32,
    /// Where the next piece begins.
    addr: u64,
    n_pieces: u64,
    is_lost: u64,
}

/// Sends it. Answers `false`, and counts the stack as lost, when there is no room.
#[inline(always)]
pub fn send(walk: &mut Walk<'_>, tid: u32) -> bool {
    let addr = walk.scratch.walk.sp;
    let mut sending = Sending { walk, tid, addr, n_pieces: 0, is_lost: 0 };
    // SAFETY: the callback takes what is passed to it, and the helper calls it only while
    // `sending` lives.
    unsafe {
        bpf_loop(
            MAX_PIECES + MAX_HOLES,
            piece as *mut c_void,
            (&raw mut sending).cast::<c_void>(),
            0,
        );
    }
    sending.is_lost == 0
}

extern "C" fn piece(_round: u32, sending: *mut c_void) -> i64 {
    // SAFETY: the pointer is what `send` passed, which lives while the helper runs.
    let sending = unsafe { &mut *sending.cast::<Sending<'_, '_>>() };
    let walk = &mut *sending.walk;
    if !window::fill(walk, sending.addr) {
        sending.addr = window::next_page(sending.addr);
        return 0;
    }
    window::put_right(walk);
    let State { return_addr, sp, fp, window_start, window_len, .. } = walk.scratch.walk;
    walk.scratch.piece = PieceHead {
        head: Head { kind: Kind::Piece as u8, flags: 0, family: 0, tid: sending.tid },
        hash: walk.scratch.head.hash,
        return_addr,
        sp,
        fp,
        addr: window_start,
        len: window_len,
    };
    // SAFETY: reads a field of a valid reference; volatile, so that the verifier sees a value
    // that is bounded below.
    let n_bytes = unsafe { (&raw const walk.scratch.piece.len).read_volatile() } as usize;
    if n_bytes > WINDOW {
        return 1;
    }
    let len = size_of::<PieceHead>() + n_bytes;
    // SAFETY: `window` follows `piece` in a `repr(C)` struct without a gap, and `len` ends
    // within it.
    let record =
        unsafe { core::slice::from_raw_parts((&raw const walk.scratch.piece).cast(), len) };
    if let Err(lost) = emit::stack(record, false) {
        count::bump(lost);
        sending.is_lost = 1;
        return 1;
    }
    sending.addr = window_start + window_len;
    sending.n_pieces += 1;
    (sending.n_pieces >= MAX_PIECES as u64) as i64
}
