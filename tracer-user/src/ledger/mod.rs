//! The books: which blocks are outstanding, which ranges are mapped, and which stack made each
//! of them, in every address space of a tree of processes.
//!
//! Invariants, held after every event: the total is the sum over the stacks, over the address
//! spaces and over the blocks; what is outstanding is what was outstanding before the batch, plus
//! allocated, minus freed, minus what was struck off or went with its address space.
//!
//! Memory belongs to an address space, not to a process: a child of `vfork` lives in its parent's,
//! `exec` begins another, and one ends with the last process that lives in it.
//!
//! Events in, facts out: no clock, no file, no log. What is odd is answered and counted, and
//! the counts that make a figure inexact are handed to the verdict as losses.

mod blocks;
mod regions;
mod space;
mod totals;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tree_model;
#[cfg(test)]
pub(crate) mod wire;

use rustc_hash::FxHashMap;
use tracer_common::{
    decode::{Event, Space as SpaceEvent, Turn},
    event::FIRST_SPACE,
};

pub use self::regions::{Mapped, Origin, Purpose};
pub use self::space::SpaceId;
use self::space::{Common, Space};
use self::totals::Outcome;
pub use self::totals::{Closed, ClosedSpace, Held, SpaceEnd, Totals};
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
    /// A release of an address that no known block has: the block is older than the attach, or was
    /// inherited with a copied address space.
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
        /// Where it was seen.
        space: SpaceId,
    },
    /// Frames that were known.
    Known,
    /// A batch ends here: the caller closes it with [`Ledger::close_batch`].
    Mark {
        /// The number that was asked for.
        number: u64,
    },
    /// A process replaced its image, and this much went with the address space that it had to
    /// itself.
    Discarded(Held),
    /// A process or a thread is known from here on.
    Life,
    /// A mapping came, went or changed.
    Mapping,
    /// A record that cannot be true: a null address, or more memory than an address space.
    Malformed,
}

/// Every outstanding block of a tree of processes.
#[derive(Debug)]
pub struct Ledger {
    common: Common,
    spaces: FxHashMap<SpaceId, Space>,
    /// Where each thread lives that is not in the first process's address space.
    threads: FxHashMap<u32, SpaceId>,
    /// Where each process lives.
    processes: FxHashMap<u32, SpaceId>,
    /// The process that the tracing began with.
    first: u32,
    /// Address spaces that have ended since the last close, and what was left in them.
    ended: Vec<(Vec<(Origin, Held)>, ClosedSpace)>,
    /// Stacks that went with their address spaces, by the kernel side's names.
    forgotten: Vec<u64>,
}

impl Ledger {
    /// The books of this process and of those that it makes.
    pub fn new(first: u32) -> Self {
        let mut ledger = Self {
            common: Common::default(),
            spaces: FxHashMap::default(),
            threads: FxHashMap::default(),
            processes: FxHashMap::default(),
            first,
            ended: Vec::new(),
            forgotten: Vec::new(),
        };
        ledger.enter(first, SpaceId(FIRST_SPACE));
        ledger
    }

    /// Books one event.
    pub fn apply(&mut self, event: &Event<'_>) -> Booked {
        match *event {
            Event::Alloc { tid, family, addr, size, stack, resized } => {
                let (space, common) = self.of_thread(tid);
                if resized {
                    space.settle(common, tid);
                }
                space.allocate(common, family, addr, size, stack)
            }
            Event::Free { tid, addr, repeat } => {
                let (space, common) = self.of_thread(tid);
                space.free(common, addr, repeat)
            }
            Event::GiveUp { tid, addr, repeat } => {
                let (space, common) = self.of_thread(tid);
                space.give_up(common, tid, addr, repeat)
            }
            Event::TakeBack { tid } => {
                let (space, common) = self.of_thread(tid);
                space.take_back(common, tid)
            }
            Event::Release { tid } => {
                let (space, common) = self.of_thread(tid);
                space.settle(common, tid)
            }
            Event::Stack { tid, hash, frames, end } => {
                match self.common.stacks.learn(hash, frames, end) {
                    true => Booked::Learned { hash, space: self.space_of_thread(tid) },
                    false => Booked::Known,
                }
            }
            // Whoever walks stacks makes whole ones of them.
            Event::Piece(_) => Booked::Known,
            Event::Mark { number } => Booked::Mark { number },
            Event::Space(ref turn) => self.turn(turn),
            Event::Range(ref call) => {
                let (space, _) = self.of_thread(call.tid);
                space.regions.apply(call);
                Booked::Mapping
            }
        }
    }

    /// Ends the batch: its totals, and what each stack that changed since the last close holds
    /// now. Blocks that are born from here on belong to the next batch.
    pub fn close_batch(&mut self) -> Closed {
        self.common.batch = self.common.batch.saturating_add(1);
        let mut closed = self.common.sums.close();
        let mut close = |changed: Vec<(Origin, Held)>, figures: ClosedSpace| {
            let changed = changed.into_iter().map(|(at, held)| (figures.id, at, held));
            closed.changed_mappings.extend(changed);
            closed.spaces.push(figures);
        };
        for (id, space) in &mut self.spaces {
            let (outstanding, mapped) = (space.outstanding(), space.regions.mapped());
            let figures = ClosedSpace { id: *id, outstanding, mapped, end: None };
            close(space.regions.close(), figures);
        }
        for (changed, figures) in self.ended.drain(..) {
            close(changed, figures);
        }
        closed.spaces.sort_unstable_by_key(|space| space.id);
        closed.changed_mappings.sort_unstable_by_key(|(space, origin, _)| (*space, *origin));
        let living = closed.spaces.iter().filter(|space| space.end.is_none());
        closed.mapped = living.fold(Mapped::default(), |sum, space| sum.plus(&space.mapped));
        if closed.spaces.iter().any(|space| space.end.is_some()) {
            let Self { threads, spaces, .. } = self;
            threads.retain(|_, space| spaces.contains_key(space));
        }
        closed
    }

    /// Tells where the break of the first process is; known best is what a call of `brk` told
    /// before.
    pub fn set_break(&mut self, program_break: u64) {
        let space = self.first_space();
        self.spaces.entry(space).or_default().regions.set_break(program_break);
    }

    /// Takes up a process that ran before it was followed.
    pub fn adopt(&mut self, process: u32, space: SpaceId, program_break: Option<u64>) {
        self.enter(process, space);
        if let (Some(at), Some(space)) = (program_break, self.spaces.get_mut(&space)) {
            space.regions.set_break(at);
        }
    }

    /// A process has ended. Its address space ends with the last process in it, and what was
    /// outstanding there is gone.
    pub fn end(&mut self, process: u32) {
        if let Some(id) = self.processes.remove(&process) {
            self.leave(id, SpaceEnd::Process);
        }
    }

    /// Stacks that have gone with their address spaces since the last call and that no batch has in
    /// its figures, by the kernel side's names: what is kept for them can be dropped.
    pub fn take_forgotten(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.forgotten)
    }

    /// Where this process lives. `None` when it is not known, or has ended.
    pub fn space_of(&self, process: u32) -> Option<SpaceId> {
        self.processes.get(&process).copied()
    }

    /// Number of the batch that is open, from zero; it grows with each close.
    pub const fn batch(&self) -> u32 {
        self.common.batch
    }

    /// What is outstanding now.
    pub const fn outstanding(&self) -> Held {
        self.common.sums.outstanding()
    }

    /// What this stack has outstanding now.
    pub fn outstanding_of(&self, stack: StackId) -> Held {
        self.common.sums.of(stack)
    }

    /// What is outstanding in this address space now.
    pub fn outstanding_in(&self, space: SpaceId) -> Held {
        self.spaces.get(&space).map_or(Held::default(), Space::outstanding)
    }

    /// The stacks that blocks are booked under.
    pub const fn stacks(&self) -> &Stacks {
        &self.common.stacks
    }

    fn turn(&mut self, turn: &SpaceEvent) -> Booked {
        let id = SpaceId(turn.space);
        match turn.turn {
            Turn::Pause => {}
            Turn::Thread => {
                self.threads.insert(turn.tid, id);
            }
            Turn::Fork => {
                let copied = self.spaces.get(&SpaceId(turn.from)).map(Space::copy);
                self.spaces.insert(id, copied.unwrap_or_default());
            }
            Turn::Born => {
                // Its number was another process's, whose end was not told.
                self.end(turn.pid);
                self.enter(turn.pid, id);
            }
            Turn::Exec => {
                let left = self.processes.remove(&turn.pid);
                let gone = left.map(|left| self.leave(left, SpaceEnd::Exec));
                self.enter(turn.pid, id);
                self.threads.insert(turn.tid, id);
                if turn.pid == self.first {
                    self.common.sums.replaced();
                }
                return Booked::Discarded(gone.unwrap_or_default());
            }
        }
        Booked::Life
    }

    fn enter(&mut self, process: u32, id: SpaceId) {
        self.processes.insert(process, id);
        self.spaces.entry(id).or_default().n_processes += 1;
    }

    /// One process less lives there. Answers what went with the address space.
    fn leave(&mut self, id: SpaceId, how: SpaceEnd) -> Held {
        let Some(space) = self.spaces.get_mut(&id) else { return Held::default() };
        space.n_processes = space.n_processes.saturating_sub(1);
        if space.n_processes > 0 {
            return Held::default();
        }
        let Some(mut space) = self.spaces.remove(&id) else { return Held::default() };
        let mapped = space.regions.mapped();
        let outcome = match how {
            SpaceEnd::Process => Outcome::Ended,
            SpaceEnd::Exec => Outcome::Discarded,
        };
        let outstanding = space.end(&mut self.common, outcome);
        self.forgotten.extend(space.forget_stacks(&mut self.common));
        let figures = ClosedSpace { id, outstanding, mapped, end: Some(how) };
        self.ended.push((space.regions.close(), figures));
        outstanding
    }

    fn first_space(&self) -> SpaceId {
        self.processes.get(&self.first).copied().unwrap_or(SpaceId(FIRST_SPACE))
    }

    /// Where this thread lives.
    pub fn space_of_thread(&self, tid: u32) -> SpaceId {
        self.threads.get(&tid).copied().unwrap_or_else(|| self.first_space())
    }

    fn of_thread(&mut self, tid: u32) -> (&mut Space, &mut Common) {
        let id = self.space_of_thread(tid);
        (self.spaces.entry(id).or_default(), &mut self.common)
    }
}

#[cfg(test)]
mod tests;
