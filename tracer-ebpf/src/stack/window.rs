//! A part of the thread's stack, copied.
//!
//! Reading a word costs about 50 ns and copying a page about 100, so a walk copies a window once
//! and follows the frames with plain loads; a frame beyond the window moves it.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_user};

use super::walk::Walk;
use crate::{
    maps::WINDOW,
    returns::{self, Return, is_replaced},
};

const PAGE: u64 = 4096;
const N_WORDS: usize = WINDOW / 8;
/// Bytes below what is asked for that a window begins with: a frame's words lie close together.
const BELOW: u64 = 64;

/// The word at this address, from the window or after moving it.
#[inline(always)]
pub fn word(walk: &mut Walk<'_>, addr: u64) -> Option<u64> {
    let state = &mut walk.scratch.walk;
    if addr & 7 != 0 {
        return None;
    }
    // Windows begin and end at words, so the word is inside when its first byte is.
    if addr.wrapping_sub(state.window_start) >= state.window_len && !reach(walk, addr) {
        return None;
    }
    let state = &mut walk.scratch.walk;
    state.index = addr.wrapping_sub(state.window_start) >> 3;
    let index = forgotten(&raw const state.index) as usize;
    if index >= N_WORDS {
        return None;
    }
    Some(walk.scratch.window[index])
}

struct Replacing<'w, 'a> {
    walk: &'w mut Walk<'a>,
    next: Option<Return>,
}

/// Puts the return addresses that calls left in the place of those that the kernel has put there, as far as
/// the window reaches.
#[inline(always)]
pub fn put_right(walk: &mut Walk<'_>) {
    let Some(latest) = Return::latest() else { return };
    let mut replacing = Replacing { walk, next: Some(latest) };
    // SAFETY: the callback takes what is passed to it, and the helper calls it only while
    // `replacing` lives.
    unsafe {
        let replacing = (&raw mut replacing).cast();
        bpf_loop(returns::MOST, replace_next as *mut c_void, replacing, 0);
    }
}

extern "C" fn replace_next(_round: u32, replacing: *mut c_void) -> i64 {
    // SAFETY: the pointer is what `put_right` passed, which lives while the helper runs.
    let replacing = unsafe { &mut *replacing.cast::<Replacing<'_, '_>>() };
    let Some(one) = replacing.next else { return 1 };
    if let (Some(place), Some(addr)) = (one.place(), one.addr()) {
        replace(replacing.walk, place, addr);
    }
    replacing.next = one.next();
    0
}

/// Puts a return address in the place of the kernel's, if that is in the window.
#[inline(always)]
fn replace(walk: &mut Walk<'_>, addr: u64, return_addr: u64) {
    let state = &mut walk.scratch.walk;
    let distance = addr.wrapping_sub(state.window_start);
    if addr & 7 != 0 || distance >= state.window_len {
        return;
    }
    state.index = distance >> 3;
    let index = forgotten(&raw const state.index) as usize;
    // Of a call that never returned, something else lies there by now.
    if index < N_WORDS && is_replaced(walk.scratch.window[index]) {
        walk.scratch.window[index] = return_addr;
    }
}

/// Moves the window to where this word is in it.
#[inline(never)]
fn reach(walk: &mut Walk<'_>, addr: u64) -> bool {
    let lowest = walk.scratch.walk.sp;
    let is_inside = addr > BELOW && addr - BELOW >= lowest;
    let start = if is_inside { addr - BELOW } else { addr };
    if fill(walk, start) && addr - start + 8 <= walk.scratch.walk.window_len {
        return true;
    }
    start != addr && fill(walk, addr) && walk.scratch.walk.window_len >= 8
}

/// Copies the stack from `addr` on. A copy that meets an unmapped page fails whole: then as
/// much as is left of the first page, which is remembered as the end of this stack.
#[inline(never)]
pub fn fill(walk: &mut Walk<'_>, addr: u64) -> bool {
    let top = *walk.top;
    let len = if addr < top && top - addr < WINDOW as u64 { top - addr } else { WINDOW as u64 };
    if read(walk, addr, len) {
        return true;
    }
    let to_page_end = next_page(addr) - addr;
    if !read(walk, addr, to_page_end) {
        return false;
    }
    *walk.top = addr + to_page_end;
    true
}

/// Where the page behind that of this address begins.
#[inline(always)]
pub fn next_page(addr: u64) -> u64 {
    (addr & !(PAGE - 1)) + PAGE
}

#[inline(always)]
fn read(walk: &mut Walk<'_>, addr: u64, len: u64) -> bool {
    let scratch = &mut *walk.scratch;
    scratch.walk.window_start = addr;
    scratch.walk.window_len = len;
    let len = forgotten(&raw const scratch.walk.window_len);
    // One comparison: of two that become one the verifier of 6.1 does not learn a bound.
    let is_read = len <= WINDOW as u64 && {
        let window = scratch.window.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is `WINDOW` bytes long, `len` at the most that; the helper checks the
        // address.
        unsafe { bpf_probe_read_user(window, len as u32, addr as *const c_void) == 0 }
    };
    if !is_read {
        scratch.walk.window_len = 0;
    }
    is_read
}

/// A word of a map, read anew: the verifier keeps track of how a value came to be where it is used
/// as an index, and goes through what follows once for every way there is, unless it comes from
/// memory that others may write.
#[inline(always)]
fn forgotten(word: *const u64) -> u64 {
    // SAFETY: the caller has a reference to it.
    unsafe { word.read_volatile() }
}
