//! One target under trace: what is attached, what was read, what was booked.

mod facts;
mod placement;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    os::fd::OwnedFd,
    path::PathBuf,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustc_hash::FxHashMap;
use tracer_common::decode::Event;

use crate::{
    batches::{Batch, Batches, Facts, Resident},
    intake::{Intake, Paused},
    ledger::{Booked, Closed, Ledger},
    probes::{AttachSite, LoadPlan, ProbeError, Probes, hazard, measure_runs},
    residency,
    symbols::{Binder, Bound},
    target::{
        access::Access,
        allocators::{AllocatorObject, Allocators, Custom},
        process::Process,
    },
};

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
    /// Libraries that are probed before the target loads them.
    pub libraries: Vec<PathBuf>,
}

/// A target under trace.
pub struct Tracer {
    // Fields drop from top to bottom: the breakpoints go first.
    probes: Probes,
    intake: Intake,
    process: Process,
    allocators: Allocators,
    objects: Vec<AllocatorObject>,
    binder: Binder,
    /// Where the frames of each stack belong, bound when the stack was first seen.
    bound: FxHashMap<u64, Box<[Bound]>>,
    ledger: Ledger,
    batches: Batches,
    n_marks: u64,
    last_mark: Instant,
    pause: Duration,
    late: Vec<String>,
    /// Why objects that came later could not be probed.
    unprobed: Vec<String>,
    found_trampoline: bool,
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
        let plan = LoadPlan {
            pid: process.pid,
            ring_bytes: options.ring_bytes,
            max_threads: FEWEST_THREADS.max(n_threads.saturating_mul(4)),
            min_size: options.min_size,
        };
        let mut probes = Probes::load(&plan)?;
        let intake = Intake::new(probes.take_ring()?);
        let mut tracer = Self {
            binder: Binder::new(&process),
            bound: FxHashMap::default(),
            probes,
            intake,
            process,
            allocators: Allocators::with(options.custom.clone()),
            objects: Vec::new(),
            ledger: Ledger::default(),
            batches: Batches::new(options.warmup),
            n_marks: 0,
            last_mark: Instant::now(),
            pause: SHORT,
            late: Vec::new(),
            unprobed: Vec::new(),
            found_trampoline: false,
            counts_every_size: options.min_size == 0,
            sees_whole_heap: false,
            run_times: log::log_enabled!(log::Level::Info).then(measure_runs).transpose()?,
        };
        for library in &options.libraries {
            let found = tracer.allocators.find_ahead(&tracer.process, library)?;
            tracer.attach_to(found)?;
        }
        Ok(tracer)
    }

    /// Attaches to the allocators that the process maps now.
    ///
    /// # Errors
    /// When there is none, or the kernel sets no probe.
    pub fn attach(&mut self) -> anyhow::Result<()> {
        let found = self.allocators.find_new(&self.process)?;
        self.attach_to(found)?;
        // Perhaps one that was named ahead and is mapped already.
        self.has_allocator()?;
        self.warn_of_missing();
        let mappings = self.process.mappings()?;
        if let Some(heap) = mappings.list.iter().find(|mapping| mapping.path == "[heap]") {
            self.ledger.set_break(heap.end);
        }
        placement::warn_of_debugger(&self.process)?;
        Ok(())
    }

    /// The target has executed nothing of its own so far.
    pub fn begins_now(&mut self) {
        self.sees_whole_heap = self.counts_every_size;
    }

    /// Is every block of the target in the books, and everything that allocators mapped?
    pub fn sees_whole_heap(&self) -> bool {
        self.sees_whole_heap
    }

    /// Attaches to allocators that came since.
    ///
    /// # Errors
    /// When the kernel sets no probe.
    pub fn attach_new(&mut self) -> anyhow::Result<()> {
        let found = self.allocators.find_new(&self.process)?;
        self.attach_to(found)?;
        self.binder.refresh(&self.process);
        Ok(())
    }

    fn attach_to(&mut self, found: Vec<AllocatorObject>) -> anyhow::Result<()> {
        for object in found {
            let sites: Vec<AttachSite> = object
                .functions
                .iter()
                .flat_map(|function| {
                    let site =
                        |offset, is_end| AttachSite { offset, cookie: function.cookie, is_end };
                    let ends = function.returns.iter().map(move |offset| site(offset.0, true));
                    ends.chain([site(function.site.offset.0, false)])
                })
                .collect();
            let path = object.path.to_string_lossy();
            log::info!("{} probes in {path}", sites.len());
            placement::check_before(&self.process, &object)?;
            if let Err(error) = self.probes.attach(&path, &object.file, &sites) {
                // That a process ends meanwhile is no fault of the machine.
                self.process.check_alive()?;
                return Err(error.into());
            }
            placement::check_after(&self.process, &object)?;
            self.objects.push(object);
        }
        Ok(())
    }

    /// Does `work` while the ring is read.
    pub async fn pump<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = pin!(work);
        loop {
            self.read();
            tokio::select! {
                biased;
                output = &mut work => return output,
                () = tokio::time::sleep(self.pause) => {}
            }
        }
    }

    /// Reads what is there, up to one turn.
    fn read(&mut self) {
        self.look_at_arrivals();
        let (n_read, paused) = self.read_until(None);
        self.pause = match paused {
            Paused::Full => Duration::ZERO,
            _ if n_read > 0 => SHORT,
            _ => (self.pause * 2).clamp(SHORT, LONG),
        };
    }

    /// Reads up to one turn, or up to the mark of this number.
    fn read_until(&mut self, mark: Option<u64>) -> (usize, Paused) {
        let Self { ledger, binder, bound, process, intake, .. } = self;
        let mut has_memory_changed = false;
        let outcome = intake.read(TURN, |event| {
            match ledger.apply(event) {
                Booked::Learned { hash } => {
                    if let Event::Stack { frames, .. } = event {
                        let frames = frames.iter().map(|addr| binder.bind(process, addr));
                        bound.insert(hash, frames.collect());
                    }
                }
                Booked::Mark { number } if Some(number) == mark => return ControlFlow::Break(()),
                Booked::Discarded(held) => {
                    log::info!("process {} replaced its image: {held:?} gone", process.pid);
                    binder.refresh(process);
                    has_memory_changed = true;
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        if has_memory_changed {
            self.found_trampoline = false;
            // The new program may have rights that the tool's user has not.
            if let Err(error) = self.process.check_access(Access::Started) {
                log::warn!("no further tracing: {error}");
                self.probes.detach();
            }
        }
        outcome
    }

    /// Ends the batch: reads everything that the target did so far and closes the books on it.
    async fn close(&mut self) -> anyhow::Result<Closed> {
        self.n_marks += 1;
        let number = self.n_marks;
        let mut since = Instant::now();
        let mut asked: Option<Instant> = None;
        loop {
            // The ring may have no room for the mark, and the kernel may leave a program out
            // that is asked to run: what does not come is asked for again. A mark that comes
            // twice ends one batch.
            if asked.is_none_or(|at| at.elapsed() > ASK_AGAIN) && self.probes.mark(number)? {
                asked = Some(Instant::now());
            }
            match self.read_until(Some(number)) {
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
        Ok(self.ledger.close_batch())
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
        self.attach_late(Self::attach_new);
    }

    /// Looks into objects as soon as the target has mapped them. One that has gone already is
    /// probed for its return.
    fn look_at_arrivals(&mut self) {
        let arrived = self.binder.arrived(&self.process);
        if arrived.is_empty() {
            return;
        }
        // A new program is not told from a library before its exec is done.
        let program = self.process.executes();
        if arrived.iter().any(|mapping| program.as_ref().is_some_and(|at| **at == *mapping.path)) {
            return;
        }
        self.attach_late(|tracer| {
            let gone = tracer.allocators.find_gone(&tracer.process, &arrived)?;
            tracer.attach_to(gone)?;
            tracer.attach_new()
        });
    }

    /// Attaches to what came meanwhile, and keeps in mind that it came late.
    fn attach_late(&mut self, attach: impl FnOnce(&mut Self) -> anyhow::Result<()>) {
        let n_known = self.objects.len();
        let attached = attach(self);
        let came = self.objects[n_known..].iter().filter(|object| object.hands_out());
        self.late.extend(came.map(|object| object.path.to_string_lossy().into_owned()));
        match attached {
            Err(error) if self.process.has_ended() => {
                log::info!("no look for new objects: {error:#}");
            }
            Err(error) => self.unprobed.push(format!("{error:#}")),
            Ok(()) => {}
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

    fn resident(&self) -> Resident {
        residency::read(self.process.pid).map_or(Resident::default(), |read| Resident {
            rss: Some(read.rss),
            pss: read.pss,
            anonymous: read.anonymous,
            swap: read.swap,
        })
    }

    /// Takes every probe out of the target and reads what is left in the ring.
    pub fn detach(&mut self) {
        self.probes.detach();
        if self.run_times.take().is_some() {
            self.tell_run_times();
        }
        while matches!(self.read_until(None), (_, Paused::Full)) {}
    }
}
