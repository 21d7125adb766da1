//! The blocks of one address space.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Booked, Held,
    blocks::{Block, Given},
    regions::Regions,
    totals::{Outcome, Sums},
};
use crate::stacks::{LOST, StackId, Stacks};

/// Number of an address space. Given by the kernel side, and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u64);

/// What all address spaces share: one table of stacks, one sum.
#[derive(Debug, Default)]
pub(super) struct Common {
    pub(super) stacks: Stacks,
    pub(super) sums: Sums,
    pub(super) batch: u32,
}

/// Every outstanding block and mapping of one address space.
#[derive(Debug, Default)]
pub(super) struct Space {
    blocks: FxHashMap<u64, Block>,
    /// What each thread gave up to a `realloc` that has not ended.
    limbo: FxHashMap<u32, Given>,
    outstanding: Held,
    /// Stacks that were first seen here. No other address space has them: the kernel side's names
    /// of stacks differ between spaces.
    stacks: Vec<StackId>,
    pub(super) regions: Regions,
    /// Processes that live in it.
    pub(super) n_processes: u32,
    /// Did it begin with a copy of another's memory? Then it may release what it never made.
    is_copy: bool,
}

impl Space {
    /// One that begins as a copy of this one: its blocks are there, and are not its own.
    pub(super) fn copy(&self) -> Self {
        Self { regions: self.regions.copy(), is_copy: true, ..Self::default() }
    }

    /// What is outstanding in it.
    pub(super) const fn outstanding(&self) -> Held {
        self.outstanding
    }

    pub(super) fn allocate(
        &mut self,
        common: &mut Common,
        family: u16,
        addr: u64,
        size: u64,
        hash: u64,
    ) -> Booked {
        if addr == 0 {
            return malformed(common);
        }
        // The target owns this address, so whatever was there went without our seeing it.
        if let Some(old) = self.blocks.remove(&addr) {
            self.remove(common, &old, Outcome::Healed);
        }
        let n_stacks = common.stacks.len();
        let stack = common.stacks.id(family, hash);
        if hash != LOST && common.stacks.len() > n_stacks {
            self.stacks.extend(stack);
        }
        match stack {
            Some(stack) if common.sums.has_room_for(size) => {
                let block = Block { size, stack, born: common.batch };
                self.blocks.insert(addr, block);
                common.sums.allocate(&block);
                self.outstanding.add(size);
                Booked::New { stack }
            }
            Some(_) | None => malformed(common),
        }
    }

    pub(super) fn free(&mut self, common: &mut Common, addr: u64, repeat: bool) -> Booked {
        match self.blocks.remove(&addr) {
            Some(block) => self.gone(common, &block),
            None if repeat => Booked::Repeated,
            None => self.unmatched(common, addr),
        }
    }

    pub(super) fn give_up(
        &mut self,
        common: &mut Common,
        tid: u32,
        addr: u64,
        repeat: bool,
    ) -> Booked {
        let given = match self.blocks.remove(&addr) {
            Some(block) => Given::Known { addr, block },
            // The thread names again what it has given up, or has freed: there is nothing new.
            None if repeat && self.limbo.get(&tid).is_some_and(|given| given.addr() == addr) => {
                return Booked::Repeated;
            }
            None if repeat => Given::Repeated { addr },
            None => Given::Unknown { addr },
        };
        if let Some(earlier) = self.limbo.insert(tid, given) {
            common.sums.undecided();
            if let Some(block) = earlier.block() {
                self.remove(common, block, Outcome::Undecided);
            }
        }
        Booked::GivenUp
    }

    pub(super) fn take_back(&mut self, common: &mut Common, tid: u32) -> Booked {
        if let Some(Given::Known { addr, block }) = self.limbo.remove(&tid)
            && let Some(other) = self.blocks.insert(addr, block)
        {
            // Whoever was given this address meanwhile released it without our seeing it.
            self.remove(common, &other, Outcome::Healed);
        }
        Booked::TakenBack
    }

    /// The block that `tid` gave up is gone for good.
    pub(super) fn settle(&mut self, common: &mut Common, tid: u32) -> Booked {
        match self.limbo.remove(&tid) {
            Some(Given::Known { block, .. }) => self.gone(common, &block),
            Some(Given::Unknown { addr }) => self.unmatched(common, addr),
            // No give-up was seen: the call began before the attach.
            Some(Given::Repeated { .. }) | None => Booked::Repeated,
        }
    }

    /// The memory is no more. Answers what was outstanding.
    pub(super) fn end(&mut self, common: &mut Common, how: Outcome) -> Held {
        let held = self.outstanding;
        for block in std::mem::take(&mut self.blocks).values() {
            self.remove(common, block, how);
        }
        for given in std::mem::take(&mut self.limbo).values() {
            if let Some(block) = given.block() {
                self.remove(common, block, how);
            }
        }
        self.regions.discard();
        held
    }

    /// Drops the stacks that no batch has in its figures, once the space has ended, so that a tree
    /// that makes processes without end does not grow the books. Answers their names.
    pub(super) fn forget_stacks(&mut self, common: &mut Common) -> Vec<u64> {
        let (kept, forgotten): (Vec<StackId>, Vec<StackId>) =
            self.stacks.drain(..).partition(|stack| common.sums.was_reported(*stack));
        let hash = |stack: &StackId| common.stacks.hash(*stack);
        let kept: FxHashSet<u64> = kept.iter().filter_map(hash).collect();
        let is_kept = |stack: &StackId| hash(stack).is_some_and(|hash| kept.contains(&hash));
        let forgotten: Vec<StackId> =
            forgotten.into_iter().filter(|stack| !is_kept(stack)).collect();
        let hashes = forgotten.iter().filter_map(hash).collect();
        common.stacks.forget(&forgotten);
        hashes
    }

    fn gone(&mut self, common: &mut Common, block: &Block) -> Booked {
        self.remove(common, block, Outcome::Freed);
        Booked::Gone { born: block.born, bytes: block.size }
    }

    fn remove(&mut self, common: &mut Common, block: &Block, how: Outcome) {
        common.sums.remove(block, how);
        self.outstanding.take(block.size);
    }

    fn unmatched(&self, common: &mut Common, addr: u64) -> Booked {
        common.sums.unmatched(self.is_copy);
        Booked::Unmatched { addr }
    }
}

fn malformed(common: &mut Common) -> Booked {
    common.sums.malformed();
    Booked::Malformed
}
