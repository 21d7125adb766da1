//! One target under trace: what is attached, what was read, what was booked.

mod facts;
mod tree;
mod turns;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    os::fd::OwnedFd,
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustc_hash::FxHashMap;
use tokio::io::{Interest, unix::AsyncFd};
use tracer_common::{decode::Event, event::FIRST_SPACE};

use crate::{
    batches::{Batch, Batches, Facts, Resident},
    intake::{Intake, Paused},
    ledger::{Booked, Closed, Ledger, SpaceId},
    probes::{AttachSite, LoadPlan, ProbeError, Probes, hazard, measure_runs, rights},
    residency,
    symbols::{Binder, Bound},
    target::{
        allocators::{AllocatorObject, Allocators, Custom, ObjectIndex},
        process::Process,
    },
};

pub use self::tree::Member;
pub use self::turns::Holds;
use self::{tree::Tree, turns::Turn};

/// Records read before others get their turn.
const TURN: usize = 1 << 16;
/// Shortest and longest pause between two looks into an empty ring. The ring holds what a
/// busy target does in half a second.
const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(16);
/// Longest that reading up to a mark may take without progress.
const STALLED: Duration = Duration::from_secs(20);
/// Time after which a mark that has not come is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Threads that are followed at the least; each costs some 150 bytes of kernel memory.
const FEWEST_THREADS: u32 = 16_384;

/// What the tracer is asked for.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Bytes of the ring buffer.
    pub ring_bytes: u32,
    /// Requested bytes below which a block is not counted.
    pub min_size: u64,
    /// Batches of warm-up.
    pub warmup: u32,
    /// What is traced beside the known allocators.
    pub custom: Vec<Custom>,
    /// Are the processes that the target makes traced as well?
    pub follow: bool,
    /// May a process be stopped until its probes are in place?
    pub hold: bool,
}

/// A target under trace.
pub struct Tracer {
    // Fields drop from top to bottom: the breakpoints go first.
    probes: Probes,
    intake: Intake,
    process: Rc<Process>,
    tree: Tree,
    allocators: Allocators,
    binder: Binder,
    /// Where the frames of each stack belong, bound when the stack was first seen.
    bound: FxHashMap<u64, Box<[Bound]>>,
    ledger: Ledger,
    batches: Batches,
    n_marks: u64,
    last_mark: Instant,
    pause: Duration,
    late: Vec<String>,
    /// Processes that were gone before they could be looked at.
    ended_early: Vec<u32>,
    /// Processes other than the first that live.
    others: Rc<Cell<usize>>,
    /// Is the first process out of the books, while others go on?
    has_left: bool,
    last_look: Instant,
    n_adopted: u64,
    holds: Holds,
    late_probes: u64,
    follows: bool,
    may_hold: bool,
    /// Is the first process held by other means, until its first own instruction?
    is_starting: bool,
    found_trampoline: bool,
    counts_every_size: bool,
    /// Was the target traced from its first own instruction, with blocks of every size?
    sees_whole_heap: bool,
    /// Held while the kernel is to measure the programs.
    run_times: Option<OwnedFd>,
}

impl Tracer {
    /// Loads the programs for this process. Nothing is attached yet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load(process: Process, options: &TraceOptions) -> anyhow::Result<Self> {
        let status = process.status()?;
        let n_threads = status.n_threads;
        if status.seccomp != 0 && !hazard::filtered_processes_survive()? {
            return Err(ProbeError::Filtered { pid: process.pid }.into());
        }
        let may_hold = options.hold && rights::may_signal()?;
        if options.hold && !may_hold {
            log::warn!(
                "processes are not held until their probes are in place: that needs cap_kill"
            );
        }
        let plan = LoadPlan {
            pid: process.pid,
            ring_bytes: options.ring_bytes,
            max_threads: FEWEST_THREADS.max(n_threads.saturating_mul(4)),
            min_size: options.min_size,
            follow: options.follow,
            hold: may_hold,
        };
        let mut probes = Probes::load(&plan)?;
        let intake = Intake::new(probes.take_ring()?);
        let pid = process.pid;
        let space = SpaceId(FIRST_SPACE);
        let member = Member::of(process, status.parent);
        let tree = Tree::new(member, space);
        let process = tree.process_in(space).context("the target is not in its own tree")?;
        let mut binder = Binder::default();
        binder.refresh(space.0, &process);
        Ok(Self {
            binder,
            bound: FxHashMap::default(),
            probes,
            intake,
            process,
            tree,
            allocators: Allocators::with(options.custom.clone()),
            ledger: Ledger::new(pid),
            batches: Batches::new(options.warmup),
            n_marks: 0,
            last_mark: Instant::now(),
            pause: SHORT,
            late: Vec::new(),
            ended_early: Vec::new(),
            others: Rc::new(Cell::new(0)),
            has_left: false,
            last_look: Instant::now(),
            n_adopted: 0,
            holds: Holds::default(),
            late_probes: 0,
            follows: options.follow,
            may_hold,
            is_starting: false,
            found_trampoline: false,
            counts_every_size: options.min_size == 0,
            sees_whole_heap: false,
            run_times: log::log_enabled!(log::Level::Info).then(measure_runs).transpose()?,
        })
    }

    /// Attaches to the allocators that the process maps now, and to its descendants when those are
    /// followed.
    ///
    /// # Errors
    /// When there is none, or the kernel sets no probe.
    pub fn attach(&mut self) -> anyhow::Result<()> {
        let pid = self.process.pid;
        let found = self.allocators.find(&self.process)?;
        self.attach_to(pid, found.into_iter().collect())?;
        for custom in self.allocators.custom() {
            let is_it = |object: &AllocatorObject| object.family_name == custom.name;
            if !self.allocators.objects().iter().any(is_it) {
                log::warn!("process {pid} has no function of {}", custom.name);
            }
        }
        let mappings = self.process.mappings()?;
        if let Some(heap) = mappings.list.iter().find(|mapping| mapping.path == "[heap]") {
            self.ledger.set_break(heap.end);
        }
        if self.follows {
            self.adopt_descendants()?;
            self.hold_first()?;
        }
        Ok(())
    }

    /// From here on the first process is stopped too when it has mapped code, until that is
    /// probed.
    fn hold_first(&mut self) -> anyhow::Result<()> {
        if self.may_hold {
            self.probes.hold_first()?;
        }
        Ok(())
    }

    /// The target is being started, stands still and has executed nothing of its own so far.
    /// Attaches to what came since the last call.
    ///
    /// # Errors
    /// When the kernel sets no probe.
    pub fn attach_at_start(&mut self) -> anyhow::Result<()> {
        self.is_starting = true;
        self.attach_new()?;
        while self.read_until(None).paused == Paused::Full {}
        Ok(())
    }

    /// The target's next instruction is its first own one.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn begins_now(&mut self) -> anyhow::Result<()> {
        self.is_starting = false;
        self.sees_whole_heap = self.counts_every_size;
        if self.follows { self.hold_first() } else { Ok(()) }
    }

    /// Is every block of the target in the books, and everything that allocators mapped?
    pub fn sees_whole_heap(&self) -> bool {
        self.sees_whole_heap
    }

    /// Attaches to allocators that came since into the first process.
    ///
    /// # Errors
    /// When the kernel sets no probe.
    pub fn attach_new(&mut self) -> anyhow::Result<()> {
        let found = self.allocators.look(&self.process)?;
        self.attach_to(self.process.pid, found.into_iter().collect())?;
        if let Some(space) = self.ledger.space_of(self.process.pid) {
            self.binder.refresh(space.0, &self.process);
        }
        Ok(())
    }

    /// Attaches to these objects in one process, unless they are probed there.
    fn attach_to(&mut self, pid: u32, wanted: BTreeSet<ObjectIndex>) -> anyhow::Result<()> {
        let Some(member) = self.tree.get_mut(pid) else { return Ok(()) };
        for index in wanted {
            if !member.attached.insert(index) {
                continue;
            }
            let object = &self.allocators.objects()[index];
            let path = object.path.to_string_lossy();
            let sites = sites(object);
            log::info!("{} probes in {path} of process {pid}", sites.len());
            if let Err(error) = self.probes.attach(pid, &path, &object.file, &sites) {
                // That a process ends meanwhile is no fault of the machine.
                if let Some(process) = &member.process {
                    process.check_alive()?;
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

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
        let read = self.read_until(None);
        self.pause = match read.paused {
            Paused::Full => Duration::ZERO,
            _ if read.n_records > 0 => SHORT,
            _ => (self.pause * 2).clamp(SHORT, LONG),
        };
        self.notice_ends_sometimes();
    }

    /// Reads up to one turn, or up to the mark of this number. What happens to processes is
    /// answered on the way, in its place between what was before and what comes after.
    fn read_until(&mut self, mark: Option<u64>) -> Read {
        let mut n_records = 0;
        loop {
            let (n_read, paused, turn) = self.read_to_turn(mark, TURN);
            n_records += n_read;
            match turn {
                Some(turn) => self.take(turn),
                None => return Read { n_records, paused },
            }
        }
    }

    fn read_to_turn(&mut self, mark: Option<u64>, limit: usize) -> (usize, Paused, Option<Turn>) {
        let Self { ledger, binder, bound, tree, intake, .. } = self;
        let mut turn = None;
        let (n_read, paused) = intake.read(limit, |event| {
            match ledger.apply(event) {
                Booked::Learned { hash, space } => {
                    if let Event::Stack { frames, .. } = event {
                        let bind = |addr| match tree.process_in(space) {
                            Some(process) => binder.bind(space.0, &process, addr),
                            None => Bound::nowhere(space.0, addr),
                        };
                        bound.insert(hash, frames.iter().map(bind).collect());
                    }
                }
                Booked::Mark { number } if Some(number) == mark => return ControlFlow::Break(()),
                Booked::Discarded(held) => log::info!("an image was replaced: {held:?} gone"),
                _ => {}
            }
            turn = Turn::of(event);
            if turn.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (n_read, paused, turn)
    }

    /// Ends the batch: reads everything that the target did so far and closes the books on it.
    async fn close(&mut self) -> anyhow::Result<Closed> {
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
        Ok(closed)
    }

    /// Looks for what came into the target meanwhile. That it has gone is found elsewhere.
    fn look_again(&mut self) {
        if !self.found_trampoline
            && let Ok(mappings) = self.process.mappings()
            && let Some(page) = mappings.list.iter().find(|mapping| mapping.path == "[uprobes]")
        {
            self.found_trampoline = true;
            if let Err(error) = self.probes.set_trampoline(page.start) {
                log::warn!("{error}");
            }
        }
        let pids: Vec<u32> = self.tree.living().map(|member| member.pid).collect();
        for pid in pids {
            let attached = |tracer: &Self| {
                tracer.tree.get(pid).map(|member| member.attached.clone()).unwrap_or_default()
            };
            let known = attached(self);
            self.attach_in(pid);
            let came = attached(self);
            let came = came.difference(&known).map(|index| &self.allocators.objects()[*index]);
            let came = came.filter(|object| object.hands_out());
            self.late.extend(came.map(|object| object.path.to_string_lossy().into_owned()));
        }
    }

    /// Sets the start that the first batch is compared with.
    ///
    /// # Errors
    /// When the ring cannot be read up to here.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        let closed = self.close().await.context("cannot close the books before the first batch")?;
        // What came before the first batch was looked for and found in time.
        self.late.clear();
        self.batches.start(closed);
        self.last_mark = Instant::now();
        Ok(())
    }

    /// Ends a batch.
    ///
    /// # Errors
    /// When the ring cannot be read up to here.
    pub async fn end_batch(
        &mut self,
        label: String,
        units: BTreeMap<String, f64>,
    ) -> anyhow::Result<&Batch> {
        let duration = self.last_mark.elapsed();
        self.last_mark = Instant::now();
        let closed = self.close().await?;
        let facts =
            Facts { label, units, duration_s: duration.as_secs_f64(), resident: self.resident() };
        Ok(self.batches.push(facts, closed))
    }

    /// Of all processes together; `None` where one of them does not say.
    fn resident(&self) -> Resident {
        let read = |member: &Member| residency::read(member.pid).ok();
        let each: Vec<_> = self.tree.living().filter_map(read).collect();
        let sum = |of: fn(&residency::Residency) -> Option<u64>| -> Option<u64> {
            if each.is_empty() { None } else { each.iter().map(of).sum() }
        };
        Resident {
            rss: sum(|read| Some(read.rss)),
            pss: sum(|read| read.pss),
            anonymous: sum(|read| read.anonymous),
            swap: sum(|read| read.swap),
        }
    }

    /// Takes every probe out of every target and reads what is left in the ring. Who waits to be
    /// continued is.
    pub fn detach(&mut self) {
        self.probes.detach();
        if self.run_times.take().is_some() {
            self.tell_run_times();
        }
        while self.read_until(None).paused == Paused::Full {}
        self.notice_ends();
    }
}

/// What reading the ring came to.
struct Read {
    n_records: usize,
    paused: Paused,
}

/// Where to probe an object, and what for.
fn sites(object: &AllocatorObject) -> Vec<AttachSite> {
    let of_function = |function: &crate::target::allocators::Function| {
        let site = |offset, is_end| AttachSite { offset, cookie: function.cookie, is_end };
        let ends = function.returns.iter().map(|offset| site(offset.0, true));
        ends.chain([site(function.site.offset.0, false)]).collect::<Vec<_>>()
    };
    object.functions.iter().flat_map(of_function).collect()
}
