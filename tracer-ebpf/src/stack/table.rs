//! Looking a call site up in the unwind table of its object, the first time that it is met.

use core::ffi::c_void;

use aya_ebpf::{helpers::generated::bpf_loop, maps::lpm_trie::Key};
use tracer_common::unwind::{CHUNK_ROWS, CallSite, ChunkKey, Row, region_key};

use super::walk::Walk;
use crate::maps::{REGIONS, RULES, TABLES};

/// Steps of a search among four billion rows, which is more than there can be.
const MAX_STEPS: u32 = 32;

/// The packed rule of the walk's call site, which is kept from here on. Zero where no table is, or
/// none that says something.
#[inline(never)]
pub fn rule(walk: &mut Walk<'_>) -> u32 {
    let state = &mut walk.scratch.walk;
    let site = CallSite { space: state.space, addr: state.return_addr };
    // The address of the call and not the one behind it, which may be another function's.
    let key = Key::new(128, region_key(site.space, site.addr.wrapping_sub(1)));
    let Some(region) = REGIONS.get(key) else { return 0 };
    state.region = *region;
    state.low = 0;
    state.high = region.n_rows as u64;
    state.row = 0;
    // SAFETY: the callback takes what is passed to it, and the helper calls it only while `walk`
    // lives.
    unsafe {
        bpf_loop(MAX_STEPS, step as *mut c_void, (&raw mut *walk).cast(), 0);
    }
    let rule = Row(walk.scratch.walk.row).rule();
    if rule != 0 {
        // Without room it is looked up each time: slower, nothing lost.
        let _ = RULES.insert(site, rule, 0);
    }
    rule
}

/// One step of a binary search.
extern "C" fn step(_round: u32, walk: *mut c_void) -> i64 {
    // SAFETY: the pointer is what `rule` passed, which lives while the helper runs.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let state = &mut walk.scratch.walk;
    if state.low >= state.high {
        return 1;
    }
    let middle = (state.low + state.high) / 2;
    let key = ChunkKey { table: state.region.table, chunk: (middle / CHUNK_ROWS as u64) as u32 };
    // SAFETY: a chunk is written once, before there is a region that names its table.
    let Some(chunk) = (unsafe { TABLES.get(key) }) else { return 1 };
    let row = Row(chunk[middle as usize % CHUNK_ROWS]);
    let addr = state.return_addr.wrapping_sub(1);
    if row.offset() as u64 <= addr.wrapping_sub(state.region.bias) {
        state.row = row.0;
        state.low = middle + 1;
    } else {
        state.high = middle;
    }
    0
}
