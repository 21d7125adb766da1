//! Reading the ring: into the books, and up to a mark.

use std::{
    ops::ControlFlow,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::bail;
use tokio::io::{Interest, unix::AsyncFd};
use tracer_common::{
    decode::{Change, Event},
    event::StackEnd,
};

use super::{Tracer, interpreted, turns::Turn};
use crate::{
    intake::Paused,
    interpreters::Seen,
    ledger::{Booked, Closed},
    probes::{ProbeError, Probes},
    stacks::LOST,
    symbols::Bound,
    unwind::{Covered, NewTable, Unnamed},
};

/// Of `mmap` and `mprotect`: what lies there may be executed.
const PROT_EXEC: u32 = 4;
/// Records read before others get their turn.
const TURN: usize = 1 << 16;
/// Shortest and longest pause between two looks into an empty ring. The ring holds what a
/// busy target does in half a second.
pub(super) const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(16);
/// Longest that reading up to a mark may take without progress.
const STALLED: Duration = Duration::from_secs(20);
/// Time after which a mark that has not come is asked for again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What reading the ring came to.
pub(super) struct Read {
    pub(super) n_records: usize,
    pub(super) paused: Paused,
}

/// Tells the kernel side how frames are left. What it is not told it asks for, so an error costs time
/// and nothing else.
pub(super) fn tell(probes: &mut Probes, covered: Covered) {
    let told = || -> Result<(), ProbeError> {
        for (space, start, end) in covered.void {
            probes.take_region(space, start, end)?;
            probes.take_rules(space, start, end)?;
        }
        probes.take_guesses(&covered.guesses)?;
        for NewTable { table, rows } in covered.tables {
            probes.give_table(table, &rows)?;
        }
        for (space, start, end, region) in covered.regions {
            probes.give_region(space, start, end, &region)?;
        }
        Ok(())
    };
    if let Err(error) = told() {
        log::debug!("{error}");
    }
}

impl Tracer {
    /// Does `work` while the ring is read.
    pub async fn pump<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = pin!(work);
        // Wakes for what cannot wait; everything else is looked for. Without it, those who wait
        // do so for the length of a pause.
        // SAFETY: the descriptor is ours alone, and nothing closes or replaces it while the runtime
        // watches it.
        let register = |fd| unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        let waker = self.intake.wakes().ok().and_then(|fd| register(fd).ok());
        loop {
            self.read();
            let wake = async {
                match &waker {
                    Some(waker) => {
                        if let Ok(mut ready) = waker.readable().await {
                            ready.clear_ready();
                        }
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                output = &mut work => return output,
                () = wake => {}
                () = tokio::time::sleep(self.pause) => {}
            }
        }
    }

    /// Reads what is there, up to one turn.
    fn read(&mut self) {
        self.look_at_arrivals();
        self.cover_compiled();
        let asked = self.others.are_asked_for();
        let unborn = asked && self.probes.n_unborn() > 0;
        let read = self.read_until(None);
        self.pause = match read.paused {
            Paused::Full => Duration::ZERO,
            _ if read.n_records > 0 => SHORT,
            _ => (self.pause * 2).clamp(SHORT, LONG),
        };
        if asked && read.paused != Paused::Full {
            self.look_for_others(unborn);
        }
        self.look_for_ends();
    }

    /// Reads up to one turn, or up to the mark of this number. What happens to processes is
    /// answered on the way, in its place between what was before and what comes after.
    pub(super) fn read_until(&mut self, mark: Option<u64>) -> Read {
        let mut n_records = 0;
        loop {
            let (n_read, paused, turn) = self.read_to_turn(mark, TURN);
            n_records += n_read;
            match turn {
                Some(turn) => self.take(turn),
                None => {
                    for hash in self.ledger.take_forgotten() {
                        self.bound.remove(&hash);
                        self.scripts.forget(hash);
                    }
                    self.release_paused();
                    return Read { n_records, paused };
                }
            }
        }
    }

    fn read_to_turn(&mut self, mark: Option<u64>, limit: usize) -> (usize, Paused, Option<Turn>) {
        let Self { probes, unwinder, ledger, binder, bound, burial, tree, intake, scripts, .. } =
            self;
        let mut turn = None;
        let (n_read, paused) = intake.read(limit, |event| {
            let walked;
            // A stack's name in its record, which may stand for its hash only.
            let sent = if let Event::Stack { hash, .. } = *event { hash } else { LOST };
            let event = &match *event {
                Event::Functions(ref functions) => {
                    scripts.keep(functions);
                    return ControlFlow::Continue(());
                }
                Event::Piece(ref piece) => {
                    unwinder.keep(piece);
                    return ControlFlow::Continue(());
                }
                Event::Stack { tid, hash, frames, end: StackEnd::Unfinished } => {
                    let space = ledger.space_of_thread(tid);
                    let process = tree.process_in(space);
                    let process = process.as_deref();
                    let name = Unnamed { token: hash, run: scripts.word(tid, hash) };
                    walked = unwinder.finish(tid, name, frames, space.0, process, binder);
                    if let Err(error) = probes.give_rules(&walked.rules) {
                        log::debug!("{error}");
                    }
                    if walked.met_new_code
                        && let Some(process) = process
                    {
                        tell(probes, unwinder.cover(space.0, process, binder));
                    }
                    let (hash, frames, end) = (walked.hash, walked.frames(), walked.end);
                    Event::Stack { tid, hash, frames, end }
                }
                ref other => unwinder.named(other),
            };
            if let Event::Range(range) = event
                && range.protection & PROT_EXEC != 0
                && matches!(range.change, Change::Map | Change::Protect)
            {
                let space = ledger.space_of_thread(range.tid).0;
                let end = range.addr.saturating_add(range.len);
                tell(probes, unwinder.forget_range(space, range.addr, end));
            }
            match ledger.apply(event) {
                Booked::Learned { hash, space } => {
                    if let Event::Stack { tid, frames, end, .. } = event {
                        let process = tree.process_in(space);
                        let bind = |addr| match &process {
                            Some(process) => binder.bind(space.0, process, addr),
                            None => Bound::nowhere(space.0, addr),
                        };
                        let stack: Box<[Bound]> = frames.iter().map(bind).collect();
                        if let Some(process) = &process {
                            let seen = Seen {
                                space: space.0,
                                process,
                                tid: *tid,
                                hash: sent,
                                stack: &stack,
                                is_whole: *end == StackEnd::Whole,
                            };
                            interpreted::tell(probes, &scripts.learn(hash, &seen, binder));
                        }
                        bound.insert(hash, stack);
                    }
                }
                Booked::Mark { number } if Some(number) == mark => return ControlFlow::Break(()),
                Booked::Mark { number } => Self::reach(burial, number),
                Booked::Discarded(held) => log::info!("an image was replaced: {held:?} gone"),
                _ => {}
            }
            turn = Turn::of(event);
            if turn.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (n_read, paused, turn)
    }

    /// Ends the batch: reads everything that the target did so far and closes the books on it.
    pub(super) async fn close(&mut self) -> anyhow::Result<Closed> {
        self.n_marks += 1;
        let number = self.n_marks;
        self.notice_ends();
        let mut since = Instant::now();
        let mut asked: Option<Instant> = None;
        loop {
            // The ring may have no room for the mark, and the kernel may leave a program out
            // that is asked to run: what does not come is asked for again. A mark that comes
            // twice ends one batch.
            if asked.is_none_or(|at| at.elapsed() > ASK_AGAIN) && self.probes.mark(number)? {
                asked = Some(Instant::now());
            }
            let read = self.read_until(Some(number));
            match (read.n_records, read.paused) {
                (_, Paused::Stopped) => break,
                (0, _) if since.elapsed() > STALLED => {
                    bail!(
                        "the ring buffer cannot be read up to a mark; a thread of the target \
                           stands in a probe, or this machine is very busy"
                    )
                }
                // A record before the mark is still being written.
                (0, _) => tokio::time::sleep(SHORT).await,
                _ => {
                    since = Instant::now();
                    tokio::task::yield_now().await;
                }
            }
        }
        self.look_again();
        self.bury();
        let closed = self.ledger.close_batch();
        self.bury_first();
        self.look_for_removed();
        Ok(closed)
    }

    /// Looks for what came into the target meanwhile. That it has gone is found elsewhere.
    fn look_again(&mut self) {
        let pids: Vec<u32> = self.tree.living().map(|member| member.pid).collect();
        for pid in pids {
            self.attach_late(pid, |tracer| tracer.attach_in(pid));
        }
    }

    /// Looks into objects as soon as the first process has mapped them, where it is not held for
    /// that. One that has gone already is probed for its return.
    fn look_at_arrivals(&mut self) {
        let Some(space) = self.ledger.space_of(self.process.pid) else { return };
        let mut arrived = self.binder.arrived(space.0, &self.process);
        // Who generates code maps the same file again and again.
        arrived.retain(|mapping| !self.allocators.has_tried(mapping.file));
        if arrived.is_empty() {
            return;
        }
        // A new program is not told from a library before its exec is done.
        let program = self.process.executes();
        if arrived.iter().any(|mapping| program.as_ref().is_some_and(|at| **at == *mapping.path)) {
            return;
        }
        let pid = self.process.pid;
        self.attach_late(pid, |tracer| {
            tracer.attach_in(pid);
            // In this order: what goes between the two looks is found by the second, and what comes
            // again announces itself again.
            arrived.retain(|mapping| !tracer.allocators.has_tried(mapping.file));
            match tracer.allocators.look_at_gone(&tracer.process, &arrived) {
                Ok(gone) => tracer.attach_objects(pid, gone.into_iter().collect()),
                Err(error) => log::info!("no look for allocators: {error}"),
            }
        });
    }

    /// Attaches to what came meanwhile, and keeps in mind that it came late.
    fn attach_late(&mut self, pid: u32, attach: impl FnOnce(&mut Self)) {
        let attached = |tracer: &Self| {
            tracer.tree.get(pid).map(|member| member.attached.clone()).unwrap_or_default()
        };
        let known = attached(self);
        attach(self);
        let came = attached(self);
        let came = came.difference(&known).map(|index| &self.allocators.objects()[*index]);
        let came = came.filter(|object| object.hands_out());
        self.late.extend(came.map(|object| object.path.to_string_lossy().into_owned()));
    }
}
