//! The books: which blocks are outstanding, which ranges are mapped, and which stack made each
//! of them.
//!
//! Invariants, held after every event: the total is the sum over the stacks and the sum over
//! the blocks; what is outstanding is what was outstanding before the batch, plus allocated,
//! minus freed, minus what was struck off.
//!
//! Events in, facts out: no clock, no file, no log. What is odd is answered and counted, and
//! the counts that make a figure inexact are handed to the verdict as losses.

mod blocks;
mod regions;
mod totals;

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod wire;

use rustc_hash::FxHashMap;
use tracer_common::decode::Event;

use self::blocks::{Block, Given};
pub use self::regions::{ClosedRegions, Mapped, Origin, Purpose};
pub use self::totals::{Closed, Held, Totals};
use crate::stacks::{StackId, Stacks};

/// What one event did to the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Booked {
    /// A block is outstanding that was not before.
    New {
        /// The stack that made it.
        stack: StackId,
    },
    /// A block is gone.
    Gone {
        /// Number of the batch it was born in.
        born: u32,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A release of an address that no known block has: the block is older than the attach.
    Unmatched {
        /// The address.
        addr: u64,
    },
    /// A `realloc` began; its block stays outstanding until the call's end is known.
    GivenUp,
    /// A `realloc` failed; its block stays what it was.
    TakenBack,
    /// A second release by the same thread of what is already released: one deallocator
    /// that calls another.
    Repeated,
    /// Frames arrived that were not known before; their mappings should be looked up now,
    /// while the target still has them.
    Learned {
        /// The stack's hash.
        hash: u64,
    },
    /// Frames that were known.
    Known,
    /// A batch ends here: the caller closes it with [`Ledger::close_batch`].
    Mark {
        /// The number that was asked for.
        number: u64,
    },
    /// The target replaced its memory: everything outstanding went.
    Discarded(Held),
    /// A mapping came, went or changed.
    Mapping,
    /// A record that cannot be true: a null address, or more memory than an address space.
    Malformed,
}

/// Every outstanding block of one address space.
#[derive(Debug, Default)]
pub struct Ledger {
    stacks: Stacks,
    blocks: FxHashMap<u64, Block>,
    /// What each thread gave up to a `realloc` that has not ended.
    limbo: FxHashMap<u32, Given>,
    sums: totals::Sums,
    regions: regions::Regions,
    batch: u32,
}

impl Ledger {
    /// Books one event.
    pub fn apply(&mut self, event: &Event<'_>) -> Booked {
        match *event {
            Event::Alloc { tid, family, addr, size, stack, resized } => {
                if resized {
                    self.settle(tid);
                }
                self.allocate(family, addr, size, stack)
            }
            Event::Free { addr, repeat, .. } => self.free(addr, repeat),
            Event::GiveUp { tid, addr, repeat } => self.give_up(tid, addr, repeat),
            Event::TakeBack { tid } => self.take_back(tid),
            Event::Release { tid } => self.settle(tid),
            Event::Stack { hash, frames, end } => match self.stacks.learn(hash, frames, end) {
                true => Booked::Learned { hash },
                false => Booked::Known,
            },
            Event::Mark { number } => Booked::Mark { number },
            Event::Exec => self.discard(),
            Event::Range(ref call) => {
                self.regions.apply(call);
                Booked::Mapping
            }
        }
    }

    /// Ends the batch: its totals, and what each stack that changed since the last close holds
    /// now. Blocks that are born from here on belong to the next batch.
    pub fn close_batch(&mut self) -> Closed {
        self.batch = self.batch.saturating_add(1);
        Closed { regions: self.regions.close(), ..self.sums.close() }
    }

    /// Tells where the program's break is; known best is what a call of `brk` told before.
    pub fn set_break(&mut self, program_break: u64) {
        self.regions.set_break(program_break);
    }

    /// Number of the batch that is open, from zero; it grows with each close.
    pub const fn batch(&self) -> u32 {
        self.batch
    }

    /// What is outstanding now.
    pub const fn outstanding(&self) -> Held {
        self.sums.outstanding()
    }

    /// What this stack has outstanding now.
    pub fn outstanding_of(&self, stack: StackId) -> Held {
        self.sums.of(stack)
    }

    /// The stacks that blocks are booked under.
    pub const fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    fn allocate(&mut self, family: u16, addr: u64, size: u64, hash: u64) -> Booked {
        if addr == 0 {
            return self.malformed();
        }
        // The target owns this address, so whatever was there went without our seeing it.
        if let Some(old) = self.blocks.remove(&addr) {
            self.sums.heal(&old);
        }
        match self.stacks.id(family, hash) {
            Some(stack) if self.sums.has_room_for(size) => {
                let block = Block { size, stack, born: self.batch };
                self.blocks.insert(addr, block);
                self.sums.allocate(&block);
                Booked::New { stack }
            }
            Some(_) | None => self.malformed(),
        }
    }

    fn free(&mut self, addr: u64, repeat: bool) -> Booked {
        match self.blocks.remove(&addr) {
            Some(block) => self.gone(&block),
            None if repeat => Booked::Repeated,
            None => self.unmatched(addr),
        }
    }

    fn give_up(&mut self, tid: u32, addr: u64, repeat: bool) -> Booked {
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
            self.sums.undecided(earlier.block());
        }
        Booked::GivenUp
    }

    fn take_back(&mut self, tid: u32) -> Booked {
        if let Some(Given::Known { addr, block }) = self.limbo.remove(&tid)
            && let Some(other) = self.blocks.insert(addr, block)
        {
            // Whoever was given this address meanwhile released it without our seeing it.
            self.sums.heal(&other);
        }
        Booked::TakenBack
    }

    /// The block that `tid` gave up is gone for good.
    fn settle(&mut self, tid: u32) -> Booked {
        match self.limbo.remove(&tid) {
            Some(Given::Known { block, .. }) => self.gone(&block),
            Some(Given::Unknown { addr }) => self.unmatched(addr),
            // No give-up was seen: the call began before the attach.
            Some(Given::Repeated { .. }) | None => Booked::Repeated,
        }
    }

    fn discard(&mut self) -> Booked {
        self.blocks.clear();
        self.limbo.clear();
        self.regions.discard();
        Booked::Discarded(self.sums.discard())
    }

    fn gone(&mut self, block: &Block) -> Booked {
        self.sums.free(block);
        Booked::Gone { born: block.born, bytes: block.size }
    }

    fn unmatched(&mut self, addr: u64) -> Booked {
        self.sums.unmatched();
        Booked::Unmatched { addr }
    }

    fn malformed(&mut self) -> Booked {
        self.sums.malformed();
        Booked::Malformed
    }
}

#[cfg(test)]
mod tests;
