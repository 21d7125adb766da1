//! A part of the thread's stack, copied.
//!
//! Reading a word costs about 50 ns and copying a page about 100, so a walk copies a window once
//! and follows the frames with plain loads; a frame beyond the window moves it.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;

use crate::maps::{Scratch, WINDOW};

const PAGE: u64 = 4096;
const N_WORDS: usize = WINDOW / 8;
/// Bytes below what is asked for that a window begins with: a frame's words lie close together.
const BELOW: u64 = 64;

/// What lies in the scratch buffer.
#[derive(Clone, Copy)]
pub struct Window {
    pub start: u64,
    pub len: u64,
}

impl Window {
    /// Of nothing.
    pub const EMPTY: Self = Self { start: 0, len: 0 };
}

/// The word at this address, from the window or after moving it. `lowest` is where the part of
/// the stack begins that is in use.
#[inline(always)]
pub fn word(
    scratch: &mut Scratch,
    window: &mut Window,
    top: &mut u64,
    lowest: u64,
    addr: u64,
) -> Option<u64> {
    if addr & 7 != 0 {
        return None;
    }
    if addr.wrapping_sub(window.start).wrapping_add(8) > window.len {
        let start =
            if addr.wrapping_sub(BELOW) >= lowest && addr > BELOW { addr - BELOW } else { addr };
        *window = match fill(scratch, top, start) {
            Some(moved) if addr - start + 8 <= moved.len => moved,
            _ => fill(scratch, top, addr)?,
        };
        if window.len < 8 {
            return None;
        }
    }
    let index = (addr.wrapping_sub(window.start) >> 3) as usize;
    if index >= N_WORDS {
        return None;
    }
    Some(scratch.window[index])
}

/// Copies the stack from `addr` on. A copy that meets an unmapped page fails whole: then as
/// much as is left of the first page, which is remembered as the end of this stack.
#[inline(always)]
pub fn fill(scratch: &mut Scratch, top: &mut u64, addr: u64) -> Option<Window> {
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
