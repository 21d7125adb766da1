//! The books of mappings: which ranges of pages the target has, what for, and which stack asked
//! for each.
//!
//! Invariants, held after every event: ranges do not overlap; every sum is the sum over the ranges
//! and over what is given up and not yet gone; no sum is ever negative.
//!
//! What was mapped before the tracing began is not here, and giving it back is nobody's error.

mod pieces;
mod sums;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;
use tracer_common::decode::{Change, Range};

pub use self::sums::{Mapped, Origin, Purpose};
use self::{
    pieces::{ADDRESSES, Attributes, Piece, Pieces, Use, pages_up, span},
    sums::Sums,
};
use super::Held;

const MAP_SHARED: u32 = 1;
const MAP_ANONYMOUS: u32 = 0x20;
const MAP_NORESERVE: u32 = 0x4000;
const MAP_STACK: u32 = 0x2_0000;
const MAP_HUGETLB: u32 = 0x4_0000;
/// Where the logarithm of a huge page's size lies in the flags, and what none there means.
const HUGE_SHIFT: u32 = 26;
const USUAL_HUGE_PAGE: u32 = 21;
const MREMAP_DONTUNMAP: u32 = 4;

/// Every mapping of one address space that was made since the tracing began.
#[derive(Debug, Default)]
pub(super) struct Regions {
    pieces: Pieces,
    /// What each thread gave up to a call that has not ended; still counted.
    limbo: FxHashMap<u32, Vec<Piece>>,
    /// Where the program's break is; `None` while it is not known.
    program_break: Option<u64>,
    sums: Sums,
    /// Numbers the mappings.
    serial: u64,
}

impl Regions {
    /// Books one system call.
    pub(super) fn apply(&mut self, call: &Range) {
        match call.change {
            Change::Map => self.map(call),
            Change::Unmap => self.give_up(call),
            Change::Unmapped => drop(self.settle(call.tid)),
            Change::UnmapFailed => self.take_back(call.tid),
            Change::Remap => self.remap(call),
            Change::Protect => self.protect(call),
            Change::Break => self.move_break(call),
        }
    }

    /// Tells where the program's break is, unless a call has told before.
    pub(super) fn set_break(&mut self, program_break: u64) {
        self.program_break.get_or_insert(program_break);
    }

    /// Everything went with the old image.
    pub(super) fn discard(&mut self) {
        self.pieces = Pieces::default();
        self.limbo.clear();
        self.program_break = None;
        self.sums.discard();
    }

    /// What a copy of the address space begins with: ranges that are not its own, and the same
    /// break.
    pub(super) fn copy(&self) -> Self {
        Self { program_break: self.program_break, ..Self::default() }
    }

    /// What is mapped now.
    pub(super) const fn mapped(&self) -> Mapped {
        self.sums.mapped()
    }

    /// What each origin has mapped; only those that have another figure than at the last close, in
    /// ascending order.
    pub(super) fn close(&mut self) -> Vec<(Origin, Held)> {
        self.sums.close()
    }

    fn map(&mut self, call: &Range) {
        let len = match call.flags & MAP_HUGETLB {
            0 => call.len,
            _ => huge_pages_up(call.len, call.flags),
        };
        let Some(range) = span(call.addr, len) else { return };
        let replaced = self.take(range.clone());
        let is_arena = |piece: &Piece| piece.attributes.used_for == Use::Arena;
        let used_for = match call.flags {
            // Nobody but the allocator maps over an allocator's memory, in whichever thread.
            _ if call.inside || replaced.first().is_some_and(is_arena) => Use::Arena,
            flags if flags & MAP_STACK != 0 => Use::ThreadStack,
            flags if flags & MAP_ANONYMOUS == 0 => Use::File,
            flags if flags & MAP_SHARED != 0 => Use::Shared,
            _ => Use::Private,
        };
        let reserved = call.protection == 0 || call.flags & MAP_NORESERVE != 0;
        let attributes = Attributes { used_for, reserved, stack: call.stack, serial: self.next() };
        self.put(Piece { range, attributes });
    }

    fn give_up(&mut self, call: &Range) {
        // A range that no call can succeed on gives up nothing.
        let given = span(call.addr, call.len).map_or(Vec::new(), |range| self.take(range));
        for piece in &given {
            self.sums.add(piece);
        }
        let earlier = self.limbo.insert(call.tid, given).unwrap_or_default();
        for piece in &earlier {
            self.sums.remove(piece);
        }
    }

    /// What the thread gave up is no longer counted where it was.
    fn settle(&mut self, tid: u32) -> Vec<Piece> {
        let given = self.limbo.remove(&tid).unwrap_or_default();
        for piece in &given {
            self.sums.remove(piece);
        }
        given
    }

    fn take_back(&mut self, tid: u32) {
        for piece in self.settle(tid) {
            // Whoever mapped something here meanwhile, mapped it over this.
            for range in self.pieces.holes(&piece.range) {
                self.put(Piece { range, ..piece });
            }
        }
    }

    fn remap(&mut self, call: &Range) {
        let moved = self.settle(call.tid);
        let Some(new) = span(call.addr, call.len) else { return };
        let source = moved.last().cloned().or_else(|| self.pieces.at(call.from));
        drop(self.take(new.clone()));
        let unknown = if call.inside { Use::Arena } else { Use::Private };
        let attributes = Attributes {
            used_for: source.as_ref().map_or(unknown, |source| source.attributes.used_for),
            reserved: source.as_ref().is_some_and(|source| source.attributes.reserved),
            stack: call.stack,
            serial: self.next(),
        };
        if call.from_len == 0 || call.flags & MREMAP_DONTUNMAP != 0 {
            // A second mapping beside the first.
            self.put(Piece { range: new, attributes });
            return;
        }
        for piece in moved {
            let place =
                |addr: u64| addr.saturating_sub(call.from).saturating_add(new.start).min(new.end);
            let range = place(piece.range.start)..place(piece.range.end);
            self.put(Piece { range, ..piece });
        }
        // What was there before keeps the stack that asked for it; an old place that is not in
        // the books stays out of them.
        let grown = new.start.saturating_add(pages_up(call.from_len)).min(new.end)..new.end;
        for range in self.pieces.holes(&grown) {
            self.put(Piece { range, attributes });
        }
    }

    fn protect(&mut self, call: &Range) {
        let Some(range) = span(call.addr, call.len) else { return };
        let reserved = call.protection == 0;
        for mut piece in self.take(range) {
            // Memory begins where a reservation can be used: that stack is to blame.
            if piece.attributes.reserved && !reserved {
                piece.attributes.stack = call.stack;
            }
            piece.attributes.reserved = reserved;
            self.put(piece);
        }
    }

    fn move_break(&mut self, call: &Range) {
        let new = pages_up(call.addr);
        if ADDRESSES < new {
            return;
        }
        let Some(old) = self.program_break.replace(call.addr).map(pages_up) else { return };
        if new < old {
            drop(self.take(new..old));
            return;
        }
        let used_for = if call.inside { Use::Arena } else { Use::Private };
        let attributes =
            Attributes { used_for, reserved: false, stack: call.stack, serial: self.next() };
        drop(self.take(old..new));
        self.put(Piece { range: old..new, attributes });
    }

    /// Takes a range out of the books and answers what was there.
    fn take(&mut self, range: std::ops::Range<u64>) -> Vec<Piece> {
        self.pieces.take(range, &mut self.sums)
    }

    /// Puts a piece where nothing is.
    fn put(&mut self, piece: Piece) {
        self.pieces.put(piece, &mut self.sums);
    }

    fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

fn huge_pages_up(len: u64, flags: u32) -> u64 {
    let shift = match flags >> HUGE_SHIFT {
        0 => USUAL_HUGE_PAGE,
        shift => shift,
    };
    len.checked_next_multiple_of(1_u64 << shift.min(40)).unwrap_or(u64::MAX)
}
