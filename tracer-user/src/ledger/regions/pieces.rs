//! Ranges that do not overlap, each with what is known of it.

use std::{collections::BTreeMap, ops::Range};

use super::sums::{Origin, Purpose, Sums};

const PAGE: u64 = 4096;
/// End of every address space. Sums over ranges below it do not reach the end of their type.
pub(super) const ADDRESSES: u64 = 1 << 57;

/// What somebody mapped memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Private,
    Shared,
    ThreadStack,
    File,
    Arena,
}

/// What is known of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) used_for: Use,
    /// Address space that cannot be used yet.
    pub(super) reserved: bool,
    /// Hash of the stack that asked for it.
    pub(super) stack: u64,
    /// Number of the call that mapped it: neighbours of one call are one piece.
    pub(super) serial: u64,
}

/// A range of whole pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) range: Range<u64>,
    pub(super) attributes: Attributes,
}

impl Piece {
    /// Under which figure it counts.
    pub(super) fn origin(&self) -> Origin {
        let Attributes { used_for, reserved, stack, .. } = self.attributes;
        let purpose = match (used_for, reserved) {
            (Use::Private, false) => Purpose::Own,
            (Use::Private, true) => Purpose::Reserved,
            (Use::Arena, false) => Purpose::Arena,
            (Use::Arena, true) => Purpose::ArenaReserved,
            (Use::Shared, _) => Purpose::Shared,
            (Use::ThreadStack, _) => Purpose::ThreadStack,
            (Use::File, _) => Purpose::File,
        };
        Origin { purpose, stack }
    }

    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The pages that a system call means. `None` for what no call can succeed on.
pub(super) fn span(addr: u64, len: u64) -> Option<Range<u64>> {
    let end = addr.checked_add(len)?.checked_next_multiple_of(PAGE)?;
    (addr.is_multiple_of(PAGE) && len != 0 && end <= ADDRESSES).then_some(addr..end)
}

/// A length or an end, up to the end of its page.
pub(super) fn pages_up(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX - (PAGE - 1))
}

/// The pieces by where they begin.
#[derive(Debug, Default)]
pub(super) struct Pieces(BTreeMap<u64, (u64, Attributes)>);

impl Pieces {
    /// The piece that has this address.
    pub(super) fn at(&self, addr: u64) -> Option<Piece> {
        let (start, (end, attributes)) = self.0.range(..=addr).next_back()?;
        (addr < *end).then_some(Piece { range: *start..*end, attributes: *attributes })
    }

    /// Cuts a range out and answers what was there, in order.
    pub(super) fn take(&mut self, range: Range<u64>, sums: &mut Sums) -> Vec<Piece> {
        if range.is_empty() {
            return Vec::new();
        }
        let first = self.at(range.start).map_or(range.start, |piece| piece.range.start);
        let hit: Vec<Piece> = self
            .0
            .range(first..range.end)
            .map(|(start, (end, attributes))| Piece {
                range: *start..*end,
                attributes: *attributes,
            })
            .collect();
        let mut taken = Vec::with_capacity(hit.len());
        for piece in hit {
            self.0.remove(&piece.range.start);
            sums.remove(&piece);
            let Piece { range: Range { start, end }, attributes } = piece;
            let (from, to) = (start.max(range.start), end.min(range.end));
            for rest in [start..from, to..end] {
                self.insert(&Piece { range: rest, attributes }, sums);
            }
            taken.push(Piece { range: from..to, attributes });
        }
        taken
    }

    /// Puts a piece where nothing is; an empty one is none.
    pub(super) fn put(&mut self, mut piece: Piece, sums: &mut Sums) {
        if piece.range.is_empty() {
            return;
        }
        let before = piece.range.start.checked_sub(1).and_then(|addr| self.at(addr));
        for neighbour in before.into_iter().chain(self.at(piece.range.end)) {
            if neighbour.attributes == piece.attributes {
                self.0.remove(&neighbour.range.start);
                sums.remove(&neighbour);
                piece.range.start = piece.range.start.min(neighbour.range.start);
                piece.range.end = piece.range.end.max(neighbour.range.end);
            }
        }
        self.insert(&piece, sums);
    }

    /// The parts of a range where nothing is.
    pub(super) fn holes(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut free_from = self.at(range.start).map_or(range.start, |piece| piece.range.end);
        for (start, (end, _)) in self.0.range(range.clone()) {
            if free_from < *start {
                holes.push(free_from..*start);
            }
            free_from = free_from.max(*end);
        }
        if free_from < range.end {
            holes.push(free_from..range.end);
        }
        holes
    }

    fn insert(&mut self, piece: &Piece, sums: &mut Sums) {
        if !piece.range.is_empty() {
            sums.add(piece);
            self.0.insert(piece.range.start, (piece.range.end, piece.attributes));
        }
    }
}
