//! Running sums: by purpose, and of each stack.

use std::collections::{BTreeSet, HashMap};

use rustc_hash::FxBuildHasher;

use super::pieces::Piece;
use crate::ledger::Held;

/// What mapped memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Private memory that the program itself asked for.
    Own,
    /// Memory that is shared with child processes, of no file.
    Shared,
    /// The stack of a thread, its guard included.
    ThreadStack,
    /// A file's content, or the pages of a device.
    File,
    /// What an allocator cuts its blocks from.
    Arena,
    /// Address space of the program that cannot be used yet.
    Reserved,
    /// Address space of an allocator that cannot be used yet.
    ArenaReserved,
}

impl Purpose {
    /// Every purpose, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Own,
        Self::Shared,
        Self::ThreadStack,
        Self::File,
        Self::Arena,
        Self::Reserved,
        Self::ArenaReserved,
    ];

    /// Stable name, as session files spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
            Self::ThreadStack => "thread_stack",
            Self::File => "file",
            Self::Arena => "arena",
            Self::Reserved => "reserved",
            Self::ArenaReserved => "arena_reserved",
        }
    }
}

/// A stack that mapped memory, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// What for.
    pub purpose: Purpose,
    /// The stack's hash; zero when it was lost.
    pub stack: u64,
}

/// Mapped memory by purpose: bytes in whole pages, and pieces that differ from their neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped([Held; Purpose::ALL.len()]);

impl Mapped {
    /// What is mapped for this.
    pub const fn held(&self, purpose: Purpose) -> Held {
        self.0[purpose as usize]
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        for (sum, other) in sum.0.iter_mut().zip(&other.0) {
            sum.bytes = sum.bytes.saturating_add(other.bytes);
            sum.blocks = sum.blocks.saturating_add(other.blocks);
        }
        sum
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct OfOrigin {
    now: Held,
    at_close: Held,
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    outstanding: Mapped,
    origins: HashMap<Origin, OfOrigin, FxBuildHasher>,
    touched: BTreeSet<Origin>,
}

impl Sums {
    pub(super) fn add(&mut self, piece: &Piece) {
        self.change(piece, |held, bytes| Held {
            bytes: held.bytes.saturating_add(bytes),
            blocks: held.blocks + 1,
        });
    }

    // What is taken away was added before: ranges of one address space do not sum up to more
    // than the type holds, however often they are given up.
    pub(super) fn remove(&mut self, piece: &Piece) {
        self.change(piece, |held, bytes| Held {
            bytes: held.bytes.saturating_sub(bytes),
            blocks: held.blocks.saturating_sub(1),
        });
    }

    fn change(&mut self, piece: &Piece, new: impl Fn(Held, u64) -> Held) {
        let origin = piece.origin();
        let of_purpose = &mut self.outstanding.0[origin.purpose as usize];
        *of_purpose = new(*of_purpose, piece.len());
        let of_origin = self.origins.entry(origin).or_default();
        of_origin.now = new(of_origin.now, piece.len());
        self.touched.insert(origin);
    }

    pub(super) fn discard(&mut self) {
        self.outstanding = Mapped::default();
        for (origin, of_origin) in &mut self.origins {
            of_origin.now = Held::default();
            self.touched.insert(*origin);
        }
    }

    pub(super) const fn mapped(&self) -> Mapped {
        self.outstanding
    }

    pub(super) fn close(&mut self) -> Vec<(Origin, Held)> {
        let mut changed = Vec::new();
        for origin in std::mem::take(&mut self.touched) {
            let of_origin = self.origins.entry(origin).or_default();
            if of_origin.now != of_origin.at_close {
                of_origin.at_close = of_origin.now;
                changed.push((origin, of_origin.now));
            }
        }
        changed
    }

    #[cfg(test)]
    pub(super) fn outstanding(&self) -> (Mapped, Vec<(Origin, Held)>) {
        let mut origins: Vec<_> = self
            .origins
            .iter()
            .filter(|(_, of)| of.now != Held::default())
            .map(|(origin, of)| (*origin, of.now))
            .collect();
        origins.sort_unstable_by_key(|(origin, _)| *origin);
        (self.outstanding, origins)
    }
}
