//! Walking by frame pointers, inside a copy of the stack.
//!
//! Reading a frame costs about 50 ns and copying a page about 100, so the walk copies a
//! window once and follows the chain with plain loads; a frame beyond the window moves it.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_user};
use tracer_common::{
    event::{MAX_FRAMES, StackEnd},
    hash::StackHash,
};

use crate::maps::{Scratch, WINDOW};

const PAGE: u64 = 4096;
const N_WORDS: usize = WINDOW / 8;

/// A window of the stack that lies in the scratch buffer.
#[derive(Clone, Copy)]
struct Window {
    start: u64,
    len: u64,
}

/// Collects the return addresses of a function that was just entered: the one at `sp`, then
/// along the chain that starts at `fp`. `top` remembers where the thread's stack ends.
///
/// The hash begins with the address space: another process has another code at the same place.
///
/// Frames, their number, their hash and the reason for the end are left in the scratch buffer.
#[inline(always)]
pub fn walk(scratch: &mut Scratch, space: u64, top: &mut u64, sp: u64, fp: u64) {
    scratch.head.n_frames = 0;
    scratch.head.end = StackEnd::Broken as u32;
    let hash = StackHash::new().with(space);
    scratch.head.hash = hash.finish();
    let Some(window) = fill(scratch, top, sp) else { return };
    let first = scratch.window[0];
    scratch.frames[0] = first;
    let mut walk =
        Walk { scratch, top, window, fp, below: sp, hash: hash.with(first), n_frames: 1 };
    // A helper's loop and not our own: the verifier goes through its body once, where it
    // would go through ours once for each frame and each way to get there.
    // SAFETY: the callback takes what is passed to it, and the helper calls it only while
    // `walk` lives.
    unsafe {
        bpf_loop(MAX_FRAMES as u32, step as *mut c_void, (&raw mut walk).cast::<c_void>(), 0);
    }
    let (hash, n_frames) = (walk.hash.finish(), walk.n_frames);
    walk.scratch.head.hash = hash;
    walk.scratch.head.n_frames = n_frames;
}

/// A walk under way.
struct Walk<'a> {
    scratch: &'a mut Scratch,
    top: &'a mut u64,
    window: Window,
    /// The frame pointer to follow next.
    fp: u64,
    /// The one that led there: the next has to lie above it.
    below: u64,
    hash: StackHash,
    n_frames: u32,
}

/// What tells the helper to go on, and to stop.
const NEXT: i64 = 0;
const STOP: i64 = 1;

/// Takes one frame. The round after the last that fits only finds out that there is another.
extern "C" fn step(round: u32, walk: *mut c_void) -> i64 {
    // SAFETY: the pointer is what `walk` passed, which lives while the helper runs.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    if walk.fp == 0 {
        walk.scratch.head.end = StackEnd::Whole as u32;
        return STOP;
    }
    // The chain leads outwards, in steps of words.
    if walk.fp <= walk.below || walk.fp & 7 != 0 {
        return STOP;
    }
    if walk.fp.wrapping_sub(walk.window.start).wrapping_add(16) > walk.window.len {
        match fill(walk.scratch, walk.top, walk.fp) {
            Some(moved) if moved.len >= 16 => walk.window = moved,
            _ => return STOP,
        }
    }
    let word = (walk.fp.wrapping_sub(walk.window.start) >> 3) as usize;
    if word >= N_WORDS - 1 {
        return STOP;
    }
    let return_addr = walk.scratch.window[word + 1];
    if return_addr == 0 {
        walk.scratch.head.end = StackEnd::Whole as u32;
        return STOP;
    }
    let index = round as usize + 1;
    if index >= MAX_FRAMES {
        walk.scratch.head.end = StackEnd::DepthLimit as u32;
        return STOP;
    }
    walk.below = walk.fp;
    walk.fp = walk.scratch.window[word];
    walk.scratch.frames[index] = return_addr;
    walk.hash = walk.hash.with(return_addr);
    walk.n_frames = index as u32 + 1;
    NEXT
}

/// Copies the stack from `addr` on. A copy that meets an unmapped page fails whole: then as
/// much as is left of the first page, which is remembered as the end of this stack.
#[inline(always)]
fn fill(scratch: &mut Scratch, top: &mut u64, addr: u64) -> Option<Window> {
    let to_page_end = PAGE - (addr & (PAGE - 1));
    let len = if addr < *top && *top - addr < WINDOW as u64 { *top - addr } else { WINDOW as u64 };
    if read(scratch, addr, len) {
        return Some(Window { start: addr, len });
    }
    if !read(scratch, addr, to_page_end) {
        return None;
    }
    *top = addr + to_page_end;
    Some(Window { start: addr, len: to_page_end })
}

#[inline(always)]
fn read(scratch: &mut Scratch, addr: u64, len: u64) -> bool {
    if len == 0 || len > WINDOW as u64 {
        return false;
    }
    let window = scratch.window.as_mut_ptr().cast::<c_void>();
    // SAFETY: the buffer is `WINDOW` bytes long, `len` at the most that; the helper checks the
    // address.
    unsafe { bpf_probe_read_user(window, len as u32, addr as *const c_void) == 0 }
}
