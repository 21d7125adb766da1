//! Running sums: of everything, of each stack, of the open batch.

use super::blocks::Block;
use super::regions::ClosedRegions;
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
    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.blocks = self.blocks.saturating_add(1);
    }

    fn take(&mut self, bytes: u64) {
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
    /// Times that the target replaced its image.
    pub execs: u64,
    /// Blocks that went with an old image.
    pub discarded: Held,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// What happened in it.
    pub totals: Totals,
    /// What is outstanding at its end.
    pub outstanding: Held,
    /// What each stack has outstanding at its end; only stacks that have another figure than
    /// at the end before, in ascending order.
    pub changed: Vec<(StackId, Held)>,
    /// The mappings at its end.
    pub regions: ClosedRegions,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfStack {
    now: Held,
    at_close: Held,
    /// Is it in the list of touched stacks?
    touched: bool,
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

    pub(super) fn free(&mut self, block: &Block) {
        self.open.freed.add(block.size);
        self.remove(block);
    }

    pub(super) fn heal(&mut self, block: &Block) {
        self.open.healed += 1;
        self.open.struck_off.add(block.size);
        self.remove(block);
    }

    pub(super) fn undecided(&mut self, block: Option<&Block>) {
        self.open.undecided += 1;
        if let Some(block) = block {
            self.open.struck_off.add(block.size);
            self.remove(block);
        }
    }

    pub(super) fn unmatched(&mut self) {
        self.open.unmatched_frees += 1;
    }

    pub(super) fn malformed(&mut self) {
        self.open.malformed += 1;
    }

    pub(super) fn discard(&mut self) -> Held {
        let gone = std::mem::take(&mut self.outstanding);
        self.open.execs += 1;
        self.open.discarded.bytes = self.open.discarded.bytes.saturating_add(gone.bytes);
        self.open.discarded.blocks = self.open.discarded.blocks.saturating_add(gone.blocks);
        for (index, stack) in (0_u32..).zip(&mut self.stacks) {
            if stack.now != Held::default() {
                stack.now = Held::default();
                if !std::mem::replace(&mut stack.touched, true) {
                    self.touched.push(StackId(index));
                }
            }
        }
        gone
    }

    pub(super) fn close(&mut self) -> Closed {
        let mut changed = Vec::new();
        for id in self.touched.drain(..) {
            let stack = &mut self.stacks[id.index()];
            stack.touched = false;
            if stack.now != stack.at_close {
                stack.at_close = stack.now;
                changed.push((id, stack.now));
            }
        }
        changed.sort_unstable_by_key(|(id, _)| *id);
        let totals = std::mem::take(&mut self.open);
        Closed { totals, outstanding: self.outstanding, changed, regions: ClosedRegions::default() }
    }

    pub(super) const fn outstanding(&self) -> Held {
        self.outstanding
    }

    pub(super) fn of(&self, stack: StackId) -> Held {
        self.stacks.get(stack.index()).map_or(Held::default(), |stack| stack.now)
    }

    fn remove(&mut self, block: &Block) {
        self.outstanding.take(block.size);
        self.stack(block.stack).take(block.size);
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
