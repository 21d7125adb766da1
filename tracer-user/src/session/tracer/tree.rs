//! The processes that are traced: who made whom, where each lives, what is probed in it.

use std::{collections::BTreeSet, path::PathBuf, rc::Rc, time::Duration};

use jiff::Zoned;
use rustc_hash::FxHashMap;

use crate::{
    ledger::SpaceId,
    stacks,
    target::{allocators::ObjectIndex, process::Process},
};

/// One process, also after its end.
#[derive(Debug)]
pub struct Member {
    /// Its id.
    pub pid: u32,
    /// Id of its parent when it was first seen.
    pub parent: u32,
    /// The program that it runs, or ran last.
    pub exe: PathBuf,
    /// When it was first traced.
    pub started: Zoned,
    /// When it was found to have ended.
    pub ended: Option<Zoned>,
    /// The address spaces that were its own, in their order. Empty of one that lived in its
    /// parent's.
    pub spaces: Vec<SpaceId>,
    /// Hash of the stack that made it; [`stacks::LOST`] when there is none.
    pub made_by: u64,
    /// How long it was stopped for its probes, in all.
    pub held: Duration,
    /// A handle on it while it lives.
    pub process: Option<Rc<Process>>,
    /// Has it gained rights that the tool's user has not? Then it is traced no more.
    pub is_denied: bool,
    /// The allocators that are probed in it.
    pub attached: BTreeSet<ObjectIndex>,
    /// Those of them whose probes were found to be taken out.
    pub disturbed: BTreeSet<ObjectIndex>,
}

impl Member {
    /// A process that is there.
    pub fn of(process: Process, parent: u32) -> Self {
        Self {
            pid: process.pid,
            parent,
            exe: process.exe.clone(),
            started: Zoned::now(),
            ended: None,
            spaces: Vec::new(),
            made_by: stacks::LOST,
            held: Duration::ZERO,
            process: Some(Rc::new(process)),
            is_denied: false,
            attached: BTreeSet::new(),
            disturbed: BTreeSet::new(),
        }
    }

    /// One that had ended before it could be looked at.
    pub fn gone(pid: u32, parent: u32, exe: PathBuf) -> Self {
        let now = Zoned::now();
        Self {
            pid,
            parent,
            exe,
            started: now.clone(),
            ended: Some(now),
            spaces: Vec::new(),
            made_by: stacks::LOST,
            held: Duration::ZERO,
            process: None,
            is_denied: false,
            attached: BTreeSet::new(),
            disturbed: BTreeSet::new(),
        }
    }
}

/// Rows of processes that have ended are kept up to this number: a build may start a million.
const MOST_ENDED: usize = 10_000;

/// Every process of a session.
#[derive(Debug)]
pub(super) struct Tree {
    first: u32,
    living: FxHashMap<u32, Member>,
    ended: Vec<Member>,
    omitted: u64,
    /// Which process answers for an address space.
    by_space: FxHashMap<SpaceId, u32>,
}

impl Tree {
    /// A tree of one.
    pub(super) fn new(first: Member, space: SpaceId) -> Self {
        let mut tree = Self {
            first: first.pid,
            living: FxHashMap::default(),
            ended: Vec::new(),
            omitted: 0,
            by_space: FxHashMap::default(),
        };
        tree.add(first, Some(space));
        tree
    }

    /// Takes a process in, with the address space that is its own.
    pub(super) fn add(&mut self, mut member: Member, own: Option<SpaceId>) {
        // A number that is given out again means that its first owner has ended.
        self.end(member.pid);
        if let Some(own) = own {
            self.by_space.insert(own, member.pid);
            member.spaces.push(own);
        }
        match member.process {
            Some(_) => drop(self.living.insert(member.pid, member)),
            None => self.keep(member),
        }
    }

    /// The process begins another address space.
    pub(super) fn moves(&mut self, pid: u32, space: SpaceId) {
        if let Some(member) = self.living.get_mut(&pid) {
            member.spaces.push(space);
            self.by_space.insert(space, pid);
        }
    }

    /// The process has ended.
    pub(super) fn end(&mut self, pid: u32) {
        if let Some(mut member) = self.living.remove(&pid) {
            member.ended.get_or_insert_with(Zoned::now);
            member.process = None;
            self.by_space.retain(|_, owner| *owner != pid);
            self.keep(member);
        }
    }

    /// This process, if it lives.
    pub(super) fn get(&self, pid: u32) -> Option<&Member> {
        self.living.get(&pid)
    }

    /// This process, if it lives, to be changed.
    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut Member> {
        self.living.get_mut(&pid)
    }

    /// The process whose address space this is.
    pub(super) fn process_in(&self, space: SpaceId) -> Option<Rc<Process>> {
        self.living.get(self.by_space.get(&space)?)?.process.clone()
    }

    /// Those that live.
    pub(super) fn living(&self) -> impl Iterator<Item = &Member> {
        self.living.values()
    }

    /// Those that live and whose end was not yet noticed, without the first.
    pub(super) fn n_others(&self) -> usize {
        let is_other = |member: &&Member| member.pid != self.first && member.ended.is_none();
        self.living.values().filter(is_other).count()
    }

    /// All of them, in the order in which they were first seen.
    pub(super) fn all(&self) -> Vec<&Member> {
        let mut all: Vec<&Member> = self.living.values().chain(&self.ended).collect();
        all.sort_by(|a, b| {
            (a.pid != self.first, &a.started, a.pid).cmp(&(b.pid != self.first, &b.started, b.pid))
        });
        all
    }

    /// Processes whose rows were not kept.
    pub(super) fn omitted(&self) -> u64 {
        self.omitted
    }

    fn keep(&mut self, member: Member) {
        if self.ended.len() < MOST_ENDED || member.pid == self.first {
            self.ended.push(member);
        } else {
            self.omitted += 1;
        }
    }
}
