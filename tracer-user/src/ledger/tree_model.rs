//! The books of a whole tree against the obvious way to keep them: a map of blocks for each
//! address space, copied by nobody, shared by `vfork`, emptied by the last one who leaves.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use tracer_common::decode::{Change, Event, Range, Space as SpaceEvent, Turn};

use super::{Booked, Held, Ledger, Purpose, SpaceEnd, SpaceId};

const FIRST: u32 = 1;
const PAGE: u64 = 4096;

/// `who` is an index into the processes that live, taken modulo their number.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc { who: usize, thread: u32, slot: u64, size: u64, stack: u64 },
    Free { who: usize, thread: u32, slot: u64 },
    Map { who: usize, slot: u64 },
    Fork { who: usize },
    Vfork { who: usize },
    Exec { who: usize },
    Exit { who: usize },
    Mark,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, thread, slot) = (0_usize..9, 0_u32..3, 1_u64..12);
    let step = prop_oneof![
        8 => (who.clone(), thread.clone(), slot.clone(), 0_u64..1000, 1_u64..5).prop_map(
            |(who, thread, slot, size, stack)| Step::Alloc { who, thread, slot, size, stack }
        ),
        6 => (who.clone(), thread, slot.clone())
            .prop_map(|(who, thread, slot)| Step::Free { who, thread, slot }),
        2 => (who.clone(), slot).prop_map(|(who, slot)| Step::Map { who, slot }),
        2 => who.clone().prop_map(|who| Step::Fork { who }),
        2 => who.clone().prop_map(|who| Step::Vfork { who }),
        1 => who.clone().prop_map(|who| Step::Exec { who }),
        2 => who.prop_map(|who| Step::Exit { who }),
        1 => Just(Step::Mark),
    ];
    proptest::collection::vec(step, 0..300)
}

/// What an address space really holds.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// Size of each block.
    blocks: HashMap<u64, u64>,
    /// Pages that were mapped.
    mapped: BTreeMap<u64, u64>,
    /// Is it a copy, whose first blocks are another's?
    is_copy: bool,
}

impl Memory {
    fn held(&self) -> Held {
        Held { bytes: self.blocks.values().sum(), blocks: self.blocks.len() as u64 }
    }
}

/// The truth, and the books that are told of it as the kernel side would.
struct World {
    ledger: Ledger,
    memory: BTreeMap<u64, Memory>,
    /// Each process that lives, and its address space.
    processes: Vec<(u32, u64)>,
    /// Threads that were announced, with the address space that they were announced in.
    announced: HashMap<u32, u64>,
    n_spaces: u64,
    n_pids: u32,
    /// What has to be found at the next mark.
    ended: Vec<(u64, Held, SpaceEnd)>,
    inherited_frees: u64,
    unmatched_frees: u64,
    /// Names of stacks: that made a block, that a batch has in its figures, that were dropped.
    made: BTreeSet<u64>,
    reported: BTreeSet<u64>,
    forgotten: BTreeSet<u64>,
}

impl World {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(FIRST),
            memory: BTreeMap::from([(1, Memory::default())]),
            processes: vec![(FIRST, 1)],
            announced: HashMap::new(),
            n_spaces: 1,
            n_pids: FIRST,
            ended: Vec::new(),
            inherited_frees: 0,
            unmatched_frees: 0,
            made: BTreeSet::new(),
            reported: BTreeSet::new(),
            forgotten: BTreeSet::new(),
        }
    }

    fn who(&self, who: usize) -> Option<(u32, u64)> {
        let n = self.processes.len();
        if n == 0 { None } else { self.processes.get(who % n).copied() }
    }

    /// The thread of a process, announced as the kernel side does before its first record.
    fn tid(&mut self, (pid, space): (u32, u64), thread: u32) -> u32 {
        let tid = pid * 10 + thread;
        if self.announced.insert(tid, space) != Some(space) {
            self.tell(Turn::Thread, tid, 0, space, 0, false);
        }
        tid
    }

    fn tell(
        &mut self,
        turn: Turn,
        tid: u32,
        pid: u32,
        space: u64,
        from: u64,
        shares: bool,
    ) -> Booked {
        self.ledger.apply(&Event::Space(SpaceEvent {
            turn,
            tid,
            space,
            from,
            stack: 0,
            pid,
            parent: 0,
            hold: None,
            shares,
            by_other_thread: false,
        }))
    }

    fn leave(&mut self, space: u64, end: SpaceEnd) {
        if self.processes.iter().all(|(_, other)| *other != space)
            && let Some(memory) = self.memory.remove(&space)
        {
            self.ended.push((space, memory.held(), end));
        }
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Alloc { who, thread, slot, size, stack } => {
                let Some(process) = self.who(who) else { return Ok(()) };
                let tid = self.tid(process, thread);
                let Some(memory) = self.memory.get_mut(&process.1) else { return Ok(()) };
                if memory.blocks.contains_key(&slot) {
                    return Ok(());
                }
                memory.blocks.insert(slot, size);
                // The kernel side names a stack by its address space too.
                let stack = process.1 << 8 | stack;
                self.made.insert(stack);
                let event =
                    Event::Alloc { tid, family: 0, addr: slot, size, stack, resized: false };
                let is_new = matches!(self.ledger.apply(&event), Booked::New { .. });
                prop_assert!(is_new);
            }
            Step::Free { who, thread, slot } => {
                let Some(process) = self.who(who) else { return Ok(()) };
                let tid = self.tid(process, thread);
                let Some(memory) = self.memory.get_mut(&process.1) else { return Ok(()) };
                let gone = memory.blocks.remove(&slot);
                let is_copy = memory.is_copy;
                let booked = self.ledger.apply(&Event::Free { tid, addr: slot, repeat: false });
                match (gone, booked) {
                    (Some(bytes), Booked::Gone { bytes: booked, .. }) => {
                        prop_assert_eq!(bytes, booked);
                    }
                    (None, Booked::Unmatched { .. }) if is_copy => self.inherited_frees += 1,
                    (None, Booked::Unmatched { .. }) => self.unmatched_frees += 1,
                    other => return Err(TestCaseError::fail(format!("{other:?}"))),
                }
            }
            Step::Map { who, slot } => {
                let Some(process) = self.who(who) else { return Ok(()) };
                let tid = self.tid(process, 0);
                let Some(memory) = self.memory.get_mut(&process.1) else { return Ok(()) };
                memory.mapped.insert(slot, PAGE);
                self.ledger.apply(&Event::Range(Range {
                    change: Change::Map,
                    tid,
                    addr: (slot + 100) * PAGE,
                    len: PAGE,
                    from: 0,
                    from_len: 0,
                    stack: process.1 << 8,
                    protection: 3,
                    flags: 0x22,
                    inside: false,
                    hold: None,
                }));
            }
            Step::Fork { who } => {
                let Some((pid, from)) = self.who(who) else { return Ok(()) };
                let tid = self.tid((pid, from), 0);
                let child = self.born();
                self.n_spaces += 1;
                let space = self.n_spaces;
                self.memory.insert(space, Memory { is_copy: true, ..Memory::default() });
                self.tell(Turn::Fork, tid, 0, space, from, false);
                self.tell(Turn::Born, child * 10, child, space, from, false);
                self.processes.push((child, space));
            }
            Step::Vfork { who } => {
                let Some((_, space)) = self.who(who) else { return Ok(()) };
                let child = self.born();
                self.tell(Turn::Born, child * 10, child, space, space, true);
                self.processes.push((child, space));
            }
            Step::Exec { who } => {
                let Some((pid, from)) = self.who(who) else { return Ok(()) };
                self.n_spaces += 1;
                let space = self.n_spaces;
                let held = self.memory.get(&from).map(Memory::held).unwrap_or_default();
                for process in self.processes.iter_mut().filter(|process| process.0 == pid) {
                    process.1 = space;
                }
                self.memory.insert(space, Memory::default());
                let n_ended = self.ended.len();
                self.leave(from, SpaceEnd::Exec);
                let gone = if self.ended.len() > n_ended { held } else { Held::default() };
                let booked = self.tell(Turn::Exec, pid * 10, pid, space, from, false);
                prop_assert_eq!(booked, Booked::Discarded(gone));
            }
            Step::Exit { who } => {
                let Some((pid, space)) = self.who(who) else { return Ok(()) };
                self.processes.retain(|(other, _)| *other != pid);
                self.leave(space, SpaceEnd::Process);
                self.ledger.end(pid);
            }
            Step::Mark => self.mark()?,
        }
        self.agrees()
    }

    fn born(&mut self) -> u32 {
        self.n_pids += 1;
        self.n_pids
    }

    fn agrees(&self) -> Result<(), TestCaseError> {
        let mut sum = Held::default();
        for (space, memory) in &self.memory {
            let held = memory.held();
            prop_assert_eq!(self.ledger.outstanding_in(SpaceId(*space)), held);
            sum.bytes += held.bytes;
            sum.blocks += held.blocks;
        }
        prop_assert_eq!(self.ledger.outstanding(), sum);
        let over_stacks: u64 = {
            let ids = self.ledger.stacks().ids();
            ids.map(|id| self.ledger.outstanding_of(id).bytes).sum()
        };
        prop_assert_eq!(over_stacks, sum.bytes);
        for (pid, space) in &self.processes {
            prop_assert_eq!(self.ledger.space_of(*pid), Some(SpaceId(*space)));
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<(), TestCaseError> {
        let closed = self.ledger.close_batch();
        let mut ended: Vec<_> = closed
            .spaces
            .iter()
            .filter_map(|space| Some((space.id.0, space.outstanding, space.end?)))
            .collect();
        let mut expected = std::mem::take(&mut self.ended);
        ended.sort_unstable_by_key(|(id, ..)| *id);
        expected.sort_unstable_by_key(|(id, ..)| *id);
        prop_assert_eq!(&ended, &expected);
        let sum = |end| -> u64 {
            expected.iter().filter(|(.., how)| *how == end).map(|(_, held, _)| held.bytes).sum()
        };
        prop_assert_eq!(closed.totals.ended.bytes, sum(SpaceEnd::Process));
        prop_assert_eq!(closed.totals.discarded.bytes, sum(SpaceEnd::Exec));
        let frees = (closed.totals.inherited_frees, closed.totals.unmatched_frees);
        prop_assert_eq!(frees, (self.inherited_frees, self.unmatched_frees));
        (self.inherited_frees, self.unmatched_frees) = (0, 0);
        let stacks = self.ledger.stacks();
        self.reported.extend(closed.changed.iter().filter_map(|(id, _)| stacks.hash(*id)));
        self.forgotten.extend(self.ledger.take_forgotten());
        let of_ended = |stack: &&u64| !self.memory.contains_key(&(**stack >> 8));
        let expected: BTreeSet<u64> = self.made.iter().filter(of_ended).copied().collect();
        let expected: BTreeSet<u64> = expected.difference(&self.reported).copied().collect();
        prop_assert_eq!(&self.forgotten, &expected);
        let mapped: u64 = self.memory.values().flat_map(|memory| memory.mapped.values()).sum();
        prop_assert_eq!(closed.mapped.held(Purpose::Own).bytes, mapped);
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_tree_is_booked_to_the_byte(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step)?;
        }
        world.mark()?;
    }
}
