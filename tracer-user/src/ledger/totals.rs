//! Running sums: of everything, of each stack, of the open batch.

use super::blocks::Block;
use super::regions::{Mapped, Origin};
use super::space::SpaceId;
use crate::stacks::StackId;

/// Bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Requested bytes.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

impl Held {
    // The sum of what is outstanding is checked before a block is booked, and what is taken
    // away was added before; only what was allocated or freed over a whole batch may reach
    // the end of the range, and stays there.
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.blocks = self.blocks.saturating_add(1);
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.blocks = self.blocks.saturating_sub(1);
    }
}

/// What happened in one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks that were made.
    pub allocated: Held,
    /// Blocks of the books that were released.
    pub freed: Held,
    /// Releases of addresses that the books do not have: blocks older than the attach.
    pub unmatched_frees: u64,
    /// The same in an address space that began as a copy of another: blocks that were inherited.
    pub inherited_frees: u64,
    /// Times that the first process replaced its image.
    pub execs: u64,
    /// Blocks that went with an old image.
    pub discarded: Held,
    /// Blocks that went with the end of a process.
    pub ended: Held,
    /// Blocks struck off without a release that was seen: `healed` and `undecided`.
    pub struck_off: Held,
    /// A loss: blocks whose address was handed out again, so that a release was missed.
    pub healed: u64,
    /// A loss: `realloc` calls whose end was never seen.
    pub undecided: u64,
    /// A loss: records that cannot be true.
    pub malformed: u64,
}

/// A batch that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// What happened in it.
    pub totals: Totals,
    /// What is outstanding at its end.
    pub outstanding: Held,
    /// What each stack has outstanding at its end; only stacks that have another figure than
    /// at the end before, in ascending order.
    pub changed: Vec<(StackId, Held)>,
    /// What is mapped at its end.
    pub mapped: Mapped,
    /// What each origin of each address space has mapped at its end; only those that have another
    /// figure than at the end before, in ascending order.
    pub changed_mappings: Vec<(SpaceId, Origin, Held)>,
    /// Every address space that there is, and those that have ended in this batch, in ascending
    /// order.
    pub spaces: Vec<ClosedSpace>,
}

/// One address space at the end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedSpace {
    /// Which.
    pub id: SpaceId,
    /// What is outstanding in it; when it has ended, what was then.
    pub outstanding: Held,
    /// What is mapped in it; when it has ended, what was then.
    pub mapped: Mapped,
    /// How it ended, if it did in this batch.
    pub end: Option<SpaceEnd>,
}

/// How an address space ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceEnd {
    /// With the last process that lived in it.
    Process,
    /// Its process replaced its image.
    Exec,
}

/// How a block goes out of the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was released.
    Freed,
    /// Its address was handed out again.
    Healed,
    /// It was given to a `realloc` whose end was never seen.
    Undecided,
    /// Its address space was replaced.
    Discarded,
    /// Its address space came to an end.
    Ended,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfStack {
    now: Held,
    at_close: Held,
    /// Is it in the list of touched stacks?
    touched: bool,
    /// Was it ever among the changed stacks of a batch?
    reported: bool,
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    outstanding: Held,
    stacks: Vec<OfStack>,
    /// Stacks that a block came to or went from since the last close.
    touched: Vec<StackId>,
    open: Totals,
}

impl Sums {
    /// May a block of this size be booked? Every sum stays within `i64`, so that a difference
    /// of two sums is exact; no address space is that large.
    pub(super) fn has_room_for(&self, size: u64) -> bool {
        self.outstanding.bytes.checked_add(size).is_some_and(|sum| i64::try_from(sum).is_ok())
    }

    pub(super) fn allocate(&mut self, block: &Block) {
        self.outstanding.add(block.size);
        self.open.allocated.add(block.size);
        self.stack(block.stack).add(block.size);
    }

    pub(super) fn remove(&mut self, block: &Block, how: Outcome) {
        let open = &mut self.open;
        open.healed += u64::from(how == Outcome::Healed);
        let sum = match how {
            Outcome::Freed => &mut open.freed,
            Outcome::Healed | Outcome::Undecided => &mut open.struck_off,
            Outcome::Discarded => &mut open.discarded,
            Outcome::Ended => &mut open.ended,
        };
        sum.add(block.size);
        self.outstanding.take(block.size);
        self.stack(block.stack).take(block.size);
    }

    /// A `realloc` whose end was never seen.
    pub(super) fn undecided(&mut self) {
        self.open.undecided += 1;
    }

    pub(super) fn unmatched(&mut self, is_inherited: bool) {
        match is_inherited {
            true => self.open.inherited_frees += 1,
            false => self.open.unmatched_frees += 1,
        }
    }

    /// The first process replaced its image.
    pub(super) fn replaced(&mut self) {
        self.open.execs += 1;
    }

    pub(super) fn malformed(&mut self) {
        self.open.malformed += 1;
    }

    pub(super) fn close(&mut self) -> Closed {
        let mut changed = Vec::new();
        for id in self.touched.drain(..) {
            let stack = &mut self.stacks[id.index()];
            stack.touched = false;
            if stack.now != stack.at_close {
                stack.at_close = stack.now;
                stack.reported = true;
                changed.push((id, stack.now));
            }
        }
        changed.sort_unstable_by_key(|(id, _)| *id);
        let totals = std::mem::take(&mut self.open);
        Closed { totals, outstanding: self.outstanding, changed, ..Closed::default() }
    }

    pub(super) const fn outstanding(&self) -> Held {
        self.outstanding
    }

    pub(super) fn of(&self, stack: StackId) -> Held {
        self.stacks.get(stack.index()).map_or(Held::default(), |stack| stack.now)
    }

    /// Does a batch have this stack in its figures?
    pub(super) fn was_reported(&self, id: StackId) -> bool {
        self.stacks.get(id.index()).is_some_and(|stack| stack.reported)
    }

    /// The stack's sum, noted as touched.
    fn stack(&mut self, id: StackId) -> &mut Held {
        if self.stacks.len() <= id.index() {
            self.stacks.resize(id.index() + 1, OfStack::default());
        }
        let stack = &mut self.stacks[id.index()];
        if !std::mem::replace(&mut stack.touched, true) {
            self.touched.push(id);
        }
        &mut stack.now
    }
}
