//! How processes go out of the books.
//!
//! That a process has ended is seen from outside, while records of its may still be in the ring. So
//! it is noticed first, and its memory is gone once the ring was read up to a mark that was asked
//! for after that.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use jiff::Zoned;

use super::{Tracer, reading::ASK_AGAIN};

/// Pause between two looks whether processes have ended.
const LOOK: Duration = Duration::from_millis(50);

/// Processes whose end was noticed, and the mark behind everything that they did.
#[derive(Debug)]
pub(super) struct Burial {
    pids: Vec<u32>,
    mark: u64,
    asked: Instant,
    /// Was the ring read up to the mark?
    is_due: bool,
}

impl Tracer {
    /// Notices who has ended.
    pub(super) fn notice_ends(&mut self) {
        let first = self.process.pid;
        let others = self.tree.living().filter(|member| {
            member.pid != first && member.process.as_ref().is_some_and(|it| it.has_ended())
        });
        let ended: Vec<u32> = others.map(|member| member.pid).collect();
        for pid in ended {
            if let Some(member) = self.tree.get_mut(pid) {
                member.ended.get_or_insert_with(Zoned::now);
            }
            self.probes.forget(pid);
            self.leave_sharers(pid);
        }
    }

    /// Looks whether others than the first go on, for who wants to know. `unborn`: some were still
    /// being made before the ring was read, to its end.
    pub(super) fn look_for_others(&mut self, unborn: bool) {
        self.notice_ends();
        self.others.looked(unborn || self.tree.n_others() > 0);
    }

    /// Notices it now and then, and takes those who have ended out of the books, so that a target
    /// that makes processes without end does not grow them.
    pub(super) fn look_for_ends(&mut self) {
        if !self.follows {
            return;
        }
        if self.last_look.elapsed() > LOOK {
            self.last_look = Instant::now();
            self.notice_ends();
            self.ask_for_burial();
        }
        // Of those who end last, what they had outstanding is the result. The close decides.
        let others_go_on = self.tree.n_others() > 0 || !self.process.has_ended();
        if others_go_on && let Some(burial) = self.burial.take_if(|burial| burial.is_due) {
            for pid in burial.pids {
                self.bury_one(pid, true);
            }
        }
    }

    fn ask_for_burial(&mut self) {
        if self.burial.as_ref().is_some_and(|it| it.is_due || it.asked.elapsed() < ASK_AGAIN) {
            return;
        }
        let pids = self.take_noticed();
        if pids.is_empty() {
            return;
        }
        self.n_marks += 1;
        let mark = self.n_marks;
        // One that could not be written is asked for again, as one that was lost is.
        if let Err(error) = self.probes.mark(mark) {
            log::info!("{error}");
        }
        self.burial = Some(Burial { pids, mark, asked: Instant::now(), is_due: false });
    }

    /// The ring was read up to this mark.
    pub(super) fn reach(burial: &mut Option<Burial>, mark: u64) {
        if let Some(burial) = burial.as_mut().filter(|burial| burial.mark == mark) {
            burial.is_due = true;
        }
    }

    /// Takes all of them out of the books whose end was noticed. The ring must have been read up to
    /// a mark that came after that.
    pub(super) fn bury(&mut self) {
        let ended = self.take_noticed();
        // What the last one had outstanding at its end is the result.
        let is_last = self.has_left && self.tree.n_others() == 0;
        let n_gone = ended.len() - usize::from(is_last).min(ended.len());
        for (index, pid) in ended.into_iter().enumerate() {
            self.bury_one(pid, index < n_gone);
        }
    }

    /// Those whose end was noticed and who are in the books still, in the order of their ends.
    fn take_noticed(&mut self) -> Vec<u32> {
        let mut pids = self.burial.take().map(|burial| burial.pids).unwrap_or_default();
        pids.append(&mut self.ended_early);
        let ended = self.tree.living().filter(|member| member.ended.is_some());
        pids.extend(ended.map(|member| member.pid));
        let end = |pid: &u32| self.tree.get(*pid).and_then(|member| member.ended.clone());
        pids.sort_by_cached_key(|pid| (end(pid), *pid));
        pids.dedup();
        pids
    }

    fn bury_one(&mut self, pid: u32, with_its_memory: bool) {
        // The number may be another process's by now.
        if self.tree.get(pid).is_some_and(|member| member.ended.is_none()) {
            return;
        }
        let own = self.tree.get(pid).map(|member| member.spaces.clone()).unwrap_or_default();
        if with_its_memory {
            self.ledger.end(pid);
        }
        for space in own {
            for (space, start, end) in self.unwinder.close(space.0).void {
                // Rules that nothing asks for go out by themselves.
                if let Err(error) = self.probes.take_region(space, start, end) {
                    log::debug!("{error}");
                }
            }
            self.binder.close(space.0);
            self.scripts.close(space.0);
        }
        self.tree.end(pid);
    }

    /// How the first process ended, which has. Asked early and kept: its number may be another
    /// process's later. `None` when the kernel does not say.
    pub(in crate::session) fn how_it_ended(&mut self) -> Option<ExitStatus> {
        self.end = self.end.or_else(|| self.probes.end_of_first());
        self.end
    }

    /// The first process has ended and others go on: from the next batch on its memory is gone.
    pub(super) fn bury_first(&mut self) {
        if !self.has_left && self.process.has_ended() && self.tree.n_others() > 0 {
            self.has_left = true;
            self.how_it_ended();
            self.ledger.end(self.process.pid);
            self.leave_sharers(self.process.pid);
        }
    }

    /// The process has left its address space, and its probes went with it: who lives there too
    /// gets some, where it had none of its own.
    pub(super) fn leave_sharers(&mut self, pid: u32) {
        if self.probes.has_multi_links() {
            return;
        }
        let sharers = self.tree.living().filter(|member| {
            member.parent == pid && member.spaces.is_empty() && member.attached.is_empty()
        });
        for sharer in sharers.map(|member| member.pid).collect::<Vec<_>>() {
            self.attach_in(sharer);
            self.is_late(sharer, "the probes of its parent are gone");
        }
    }
}
