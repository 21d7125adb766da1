//! One target under trace: what is attached, what was read, what was booked.

mod ends;
mod facts;
mod interpreted;
mod others;
mod placement;
mod reading;
mod tree;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::OwnedFd,
    path::PathBuf,
    process::ExitStatus,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustc_hash::FxHashMap;
use tracer_common::{decode::Hold, event::FIRST_SPACE};

use crate::{
    batches::{Batch, Batches, Facts, Resident},
    intake::{Intake, Paused},
    ledger::{Ledger, SpaceId},
    probes::{AttachSite, LoadPlan, ProbeError, Probes, can_follow, hazard, measure_runs, rights},
    residency,
    symbols::{Binder, Bound},
    target::{
        allocators::{AllocatorObject, Allocators, Custom, ObjectIndex},
        process::Process,
    },
    unwind::Unwinder,
};

pub(super) use self::others::Others;
pub use self::tree::Member;
pub use self::turns::Holds;
use self::{ends::Burial, facts::Doubts, interpreted::Scripts, reading::SHORT, tree::Tree};

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
    /// Is a process stopped rather than that events are lost?
    pub pause: bool,
    /// Libraries that are probed before the target loads them.
    pub libraries: Vec<PathBuf>,
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
    scripts: Scripts,
    unwinder: Unwinder,
    ledger: Ledger,
    batches: Batches,
    n_marks: u64,
    last_mark: Instant,
    pause: Duration,
    late: Vec<String>,
    /// Why objects that came later could not be probed.
    unprobed: Vec<String>,
    /// What counts against the batches. `None` before the first has ended.
    doubts: Option<Doubts>,
    /// Processes that were gone before they could be looked at.
    ended_early: Vec<u32>,
    others: Rc<Others>,
    burial: Option<Burial>,
    /// Is the first process out of the books, while others go on?
    has_left: bool,
    /// How the first process ended, once that was asked.
    end: Option<ExitStatus>,
    last_look: Instant,
    n_adopted: u64,
    /// Descendants that were there before the trace and are not followed.
    n_older: u64,
    holds: Holds,
    pauses: Holds,
    /// Processes that wait until the ring is read.
    paused: FxHashMap<u32, Vec<Hold>>,
    late_probes: u64,
    removed_probes: u64,
    /// Are the probes gone for good?
    is_detached: bool,
    follows: bool,
    may_hold: bool,
    /// Is the first process held by other means, until its first own instruction?
    is_starting: bool,
    counts_every_size: bool,
    /// Was the target traced from its first own instruction, with blocks of every size?
    sees_whole_heap: bool,
    /// Held while the kernel is to measure the programs.
    run_times: Option<OwnedFd>,
}

impl Tracer {
    /// Loads the programs for this process. Nothing is attached yet but what it is to load later.
    ///
    /// # Errors
    /// When the kernel refuses, or a library that was named cannot be probed.
    pub fn load(process: Process, options: &TraceOptions) -> anyhow::Result<Self> {
        let status = process.status()?;
        let n_threads = status.n_threads;
        if status.seccomp != 0 && !hazard::filtered_processes_survive()? {
            return Err(ProbeError::Filtered { pid: process.pid }.into());
        }
        let follows = options.follow && can_follow(process.pid)?;
        if options.follow && !follows {
            log::warn!(
                "process {} lives in a pid namespace below outlive's own, so its children are not \
                 followed; run outlive on the host, or in that namespace",
                process.pid
            );
        }
        let may_hold = follows && options.hold && rights::may_signal()?;
        if follows && options.hold && !may_hold {
            log::warn!(
                "processes are not held until their probes are in place: that needs cap_kill"
            );
        }
        if options.pause && !(rights::may_signal()? && can_follow(process.pid)?) {
            bail!(
                "--on-overflow pause needs cap_kill, and the target's pid namespace: outlive could \
                 not let process {} go on",
                process.pid
            );
        }
        let plan = LoadPlan {
            pid: process.pid,
            ring_bytes: options.ring_bytes,
            max_threads: FEWEST_THREADS.max(n_threads.saturating_mul(4)),
            min_size: options.min_size,
            follow: follows,
            hold: may_hold,
            pause: options.pause,
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
        if !may_hold {
            binder.watch(space.0, &process);
        }
        let mut tracer = Self {
            binder,
            bound: FxHashMap::default(),
            scripts: Scripts::default(),
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
            unprobed: Vec::new(),
            doubts: None,
            ended_early: Vec::new(),
            others: Rc::default(),
            burial: None,
            unwinder: Unwinder::default(),
            has_left: false,
            end: None,
            last_look: Instant::now(),
            n_adopted: 0,
            n_older: 0,
            holds: Holds::default(),
            pauses: Holds::default(),
            paused: FxHashMap::default(),
            late_probes: 0,
            removed_probes: 0,
            is_detached: false,
            follows,
            may_hold,
            is_starting: false,
            counts_every_size: options.min_size == 0,
            sees_whole_heap: false,
            run_times: log::log_enabled!(log::Level::Info).then(measure_runs).transpose()?,
        };
        for library in &options.libraries {
            let found = tracer.allocators.look_ahead(&tracer.process, library)?;
            tracer.attach_to(pid, found.into_iter().collect())?;
        }
        Ok(tracer)
    }

    /// Attaches to the allocators that the process maps now, and to its descendants when those are
    /// followed.
    ///
    /// # Errors
    /// When there is none, or the kernel sets no probe.
    pub fn attach(&mut self) -> anyhow::Result<()> {
        let pid = self.process.pid;
        self.cover_at_once(pid, &self.process.clone());
        self.survey(FIRST_SPACE, &self.process.clone());
        let found = self.allocators.look(&self.process)?;
        self.attach_to(pid, found.into_iter().collect())?;
        // Perhaps one that was named ahead and is mapped already.
        self.has_allocator()?;
        self.warn_of_missing();
        let mappings = self.process.mappings()?;
        if let Some(heap) = mappings.list.iter().find(|mapping| mapping.path == "[heap]") {
            self.ledger.set_break(heap.end);
        }
        placement::warn_of_debugger(&self.process)?;
        if self.follows {
            self.adopt_descendants()?;
            self.hold_first()?;
        } else {
            self.count_older()?;
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
        let pid = self.process.pid;
        self.cover_at_once(pid, &self.process.clone());
        let found = self.allocators.look(&self.process)?;
        self.attach_to(pid, found.into_iter().collect())
    }

    /// Attaches to these objects in one process, unless they are probed there.
    fn attach_to(&mut self, pid: u32, wanted: BTreeSet<ObjectIndex>) -> anyhow::Result<()> {
        let Some(member) = self.tree.get_mut(pid).filter(|_| !self.is_detached) else {
            return Ok(());
        };
        for index in wanted {
            if !member.attached.insert(index) {
                continue;
            }
            let object = &self.allocators.objects()[index];
            let Some(process) = &member.process else { return Ok(()) };
            let path = object.path.to_string_lossy();
            let sites = sites(object);
            log::info!("{} probes in {path} of process {pid}", sites.len());
            placement::check_before(process, object)?;
            if let Err(error) = self.probes.attach(pid, &path, &object.file, &sites) {
                // That a process ends meanwhile is no fault of the machine.
                process.check_alive()?;
                return Err(error.into());
            }
            placement::check_after(process, object)?;
        }
        Ok(())
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
        self.batches.push(facts, closed);
        self.doubts = Some(self.doubts_now()?);
        self.batches.all().last().context("the batch is not among those that have ended")
    }

    /// Of all processes together; `None` where one of them does not say.
    fn resident(&self) -> Resident {
        let id = |member: &Member| member.process.as_ref().map_or(member.pid, |it| it.shown_as());
        let read = |member: &Member| residency::read(id(member)).ok();
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
    /// continued is. Whoever was made since is not probed any more: the batches are over.
    pub fn detach(&mut self) {
        self.is_detached = true;
        self.probes.detach();
        if self.run_times.take().is_some() {
            self.tell_run_times();
        }
        while self.read_until(None).paused == Paused::Full {}
        self.unwinder.settle();
        self.notice_ends();
    }
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
