//! What the tracer does when processes begin, change and end.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use tracer_common::decode::{Event, Hold, Range, Space, Turn as Kind};

use super::{Tracer, reading::tell, tree::Member};
use crate::{
    ledger::SpaceId,
    probes::Continued,
    target::process::{self, Process, ProcessError},
};

/// Numbers of the address spaces that were there before they were followed begin here, far above
/// those that the kernel side gives.
const ADOPTED: u64 = 1 << 32;
/// Longest wait for a process to stop that is about to.
const STOPPING: Duration = Duration::from_millis(50);

/// Something that asks for an answer outside the books.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// A process was made.
    Born(Space),
    /// A process replaced its image.
    Exec(Space),
    /// A process that waits has mapped code.
    Code(Hold),
    /// A process waits until the ring is read up to here.
    Pause(Hold),
}

impl Turn {
    /// The turn that this event is, if it is one.
    pub(super) fn of(event: &Event<'_>) -> Option<Self> {
        match *event {
            Event::Space(space) if space.turn == Kind::Born => Some(Self::Born(space)),
            Event::Space(space) if space.turn == Kind::Exec => Some(Self::Exec(space)),
            Event::Space(space) if space.turn == Kind::Pause => space.hold.map(Self::Pause),
            Event::Range(Range { hold, .. }) => hold.map(Self::Code),
            _ => None,
        }
    }
}

/// How often and how long processes were stopped, for their probes or for want of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Number of times.
    pub count: u64,
    /// The longest.
    pub longest: Duration,
    /// All together.
    pub total: Duration,
}

impl Holds {
    fn add(&mut self, waited: Duration) {
        self.count += 1;
        self.total += waited;
        self.longest = self.longest.max(waited);
    }
}

impl Tracer {
    pub(super) fn take(&mut self, turn: Turn) {
        match turn {
            _ if self.is_detached => self.let_go(turn),
            Turn::Born(space) => self.born(&space),
            Turn::Exec(space) => self.exec(&space),
            Turn::Pause(hold) => self.paused.entry(hold.process()).or_default().push(hold),
            Turn::Code(hold) => {
                self.attach_in(hold.process());
                self.release(hold);
            }
        }
    }

    /// Lets a process go on that waits for probes that it will not get.
    fn let_go(&mut self, turn: Turn) {
        let hold = match turn {
            Turn::Born(space) | Turn::Exec(space) => space.hold,
            Turn::Code(hold) | Turn::Pause(hold) => Some(hold),
        };
        // Mostly the guard was faster.
        if let Some(hold) = hold
            && let Err(error) = self.probes.release(hold.process(), &[hold])
        {
            log::warn!("{error}");
        }
    }

    fn born(&mut self, space: &Space) {
        let id = SpaceId(space.space);
        let own = (!space.shares).then_some(id);
        let parent = self.tree.get(space.parent);
        let exe = parent.map(|parent| parent.exe.clone()).unwrap_or_default();
        let attached = parent.map(|parent| parent.attached.clone()).unwrap_or_default();
        let mut member = match Process::open_started(space.pid) {
            Ok(process) => Member::of(process, space.parent),
            Err(error) => {
                log::info!("{error}");
                Member::gone(space.pid, space.parent, exe)
            }
        };
        member.made_by = space.stack;
        let is_there = member.process.is_some();
        self.tree.add(member, own);
        if is_there {
            if let Some(process) = own.and_then(|own| self.tree.process_in(own)) {
                tell(&mut self.probes, self.unwinder.cover(id.0, &process, &mut self.binder));
            }
            // Where probes belong to an address space, its own serve everyone in there: a second
            // set would see each call twice.
            if !space.shares || self.probes.has_multi_links() {
                self.attach_objects(space.pid, attached);
            }
        } else {
            self.ended_early.push(space.pid);
        }
        self.settle(space);
    }

    fn exec(&mut self, space: &Space) {
        let id = SpaceId(space.space);
        if space.by_other_thread {
            // The breakpoints belong to the thread that was the first, which is no more: the new
            // image gets none by itself, and would run into its own for both.
            self.probes.clear(space.pid);
        }
        self.tree.moves(space.pid, id);
        self.leave_sharers(space.pid);
        if let Some(member) = self.tree.get_mut(space.pid) {
            member.disturbed.clear();
            if space.by_other_thread {
                member.attached.clear();
            }
            match Process::open_started(space.pid) {
                Ok(process) => {
                    member.exe = process.exe.clone();
                    member.process = Some(process.into());
                }
                // The new program may have rights that the tool's user has not.
                Err(error @ ProcessError::Denied { .. }) => {
                    log::warn!("no further tracing: {error}");
                    self.unprobed.push(error.to_string());
                    member.is_denied = true;
                    self.probes.abandon(space.pid);
                }
                Err(error) => log::info!("{error}"),
            }
        }
        self.attach_in(space.pid);
        self.settle(space);
    }

    /// Lets a process go on that waits, and counts one that did not.
    fn settle(&mut self, space: &Space) {
        if let Some(hold) = space.hold {
            self.release(hold);
        } else if self.follows && !self.is_starting {
            self.is_late(space.pid, "it was not held");
        }
    }

    /// Attaches to the allocators that this process maps now, and binds what it executes.
    pub(super) fn attach_in(&mut self, pid: u32) {
        let member = self.tree.get(pid).filter(|member| !member.is_denied);
        let Some(process) = member.and_then(|member| member.process.clone()) else { return };
        self.cover(pid, &process);
        match self.allocators.look(&process) {
            Ok(found) => self.attach_objects(pid, found.into_iter().collect()),
            Err(error) => log::info!("no look for allocators: {error}"),
        }
    }

    /// Has stacks walked through what this process executes now.
    fn cover(&mut self, pid: u32, process: &Process) {
        if let Some(space) = self.ledger.space_of(pid) {
            tell(&mut self.probes, self.unwinder.cover(space.0, process, &mut self.binder));
        }
    }

    /// The same before there is anything to read, or while there is not.
    pub(super) fn cover_at_once(&mut self, pid: u32, process: &Process) {
        if let Some(space) = self.ledger.space_of(pid) {
            let covered = self.unwinder.cover_at_once(space.0, process, &mut self.binder);
            tell(&mut self.probes, covered);
        }
    }

    /// Has stacks walked through code whose table was compiled meanwhile.
    pub(super) fn cover_compiled(&mut self) {
        for space in self.unwinder.compiled() {
            if let Some(process) = self.tree.process_in(SpaceId(space)) {
                tell(&mut self.probes, self.unwinder.cover(space, &process, &mut self.binder));
            }
        }
    }

    pub(super) fn attach_objects(&mut self, pid: u32, wanted: BTreeSet<usize>) {
        if let Err(error) = self.attach_to(pid, wanted) {
            // That it is gone is no loss; the next look finds out.
            let is_gone = self
                .tree
                .get(pid)
                .and_then(|member| member.process.as_ref())
                .is_none_or(|process| process.has_ended());
            if !is_gone {
                self.unprobed.push(format!("{error:#}"));
            }
        }
    }

    /// Lets those go on for whom the ring was too full, now that it is read. What was lost
    /// meanwhile has its own counter.
    pub(super) fn release_paused(&mut self) {
        for (pid, holds) in std::mem::take(&mut self.paused) {
            stands_still(pid);
            match self.probes.release(pid, &holds) {
                Ok(Continued::InTime { waited }) => self.pauses.add(waited),
                Ok(Continued::TooLate) => log::info!("process {pid} went on by itself"),
                Err(error) => log::warn!("{error}"),
            }
        }
    }

    fn release(&mut self, hold: Hold) {
        let pid = hold.process();
        let stood = stands_still(pid);
        match self.probes.release(pid, &[hold]) {
            Ok(Continued::InTime { waited }) if stood => {
                self.holds.add(waited);
                if let Some(member) = self.tree.get_mut(pid) {
                    member.held += waited;
                }
            }
            Ok(Continued::InTime { .. }) => self.is_late(pid, "it did not stand still"),
            Ok(Continued::TooLate) => self.is_late(pid, "it was held no longer"),
            Err(error) => {
                log::warn!("{error}");
                self.is_late(pid, "nothing is known of its hold");
            }
        }
    }

    pub(super) fn is_late(&mut self, pid: u32, why: &str) {
        if self.is_detached {
            return;
        }
        log::info!("process {pid} runs without all its probes: {why}");
        self.late_probes += 1;
    }

    /// Takes up the descendants that the first process had before it was traced.
    pub(super) fn adopt_descendants(&mut self) -> anyhow::Result<()> {
        loop {
            // Who was made meanwhile announces itself.
            self.read_until(None);
            let known: BTreeSet<u32> = self.tree.living().map(|member| member.pid).collect();
            let new = process::descendants(self.process.pid)?;
            let new: Vec<_> = new.into_iter().filter(|(pid, _)| !known.contains(pid)).collect();
            let mut has_come = false;
            for (pid, parent) in new {
                has_come |= self.adopt(pid, parent)?;
            }
            if !has_come {
                return Ok(());
            }
        }
    }

    fn adopt(&mut self, pid: u32, parent: u32) -> anyhow::Result<bool> {
        // A process that cannot be a target, or is no more, is not taken up.
        let Ok(process) = Process::open(pid) else { return Ok(false) };
        self.n_adopted += 1;
        let space = SpaceId(ADOPTED + self.n_adopted);
        if !self.probes.adopt(pid, space.0)? {
            return Ok(false);
        }
        let mappings = process.mappings()?;
        let heap = mappings.list.iter().find(|mapping| mapping.path == "[heap]");
        self.ledger.adopt(pid, space, heap.map(|heap| heap.end));
        self.tree.add(Member::of(process, parent), Some(space));
        if let Some(process) = self.tree.process_in(space) {
            self.survey(space.0, &process);
        }
        self.attach_in(pid);
        Ok(true)
    }
}

/// Waits until a process that is to be stopped stands still: the signal that stops it is on its way
/// and must not come after the one that continues. Answers whether it does. If not, somebody else
/// has continued it, and it may have come to its end since.
fn stands_still(pid: u32) -> bool {
    let until = Instant::now() + STOPPING;
    loop {
        let Ok(now) = process::Status::read(pid) else { return false };
        // One thread may be long in coming to a stop while the one that matters stands still.
        if now.stop_pending || now.is_stopped() || process::has_stopped_thread(pid) {
            return true;
        }
        if now.is_over() || until <= Instant::now() {
            return false;
        }
        thread::sleep(Duration::from_micros(50));
    }
}
