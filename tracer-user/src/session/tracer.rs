//! One target under trace: what is attached, what was read, what was booked.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    os::fd::OwnedFd,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustc_hash::FxHashMap;
use tracer_common::{count::Count, decode::Event};

use crate::{
    batches::{Batch, Batches, Facts, Resident},
    growth::{LossCounts, Losses},
    intake::{Intake, Paused},
    ledger::{Booked, Closed, Ledger},
    probes::{AttachSite, LoadPlan, Probes, Runs, measure_runs},
    report::model::Frame,
    residency,
    stacks::{self, StackId},
    symbols::{self, Binder, Bound, symbolize},
    target::{
        allocators::{AllocatorObject, Allocators},
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
/// Threads that are followed at the least; each costs some 150 bytes of kernel memory.
const FEWEST_THREADS: u32 = 16_384;

/// What the tracer is asked for.
#[derive(Clone, Copy, Debug)]
pub struct TraceOptions {
    /// Bytes of the ring buffer.
    pub ring_bytes: u32,
    /// Requested bytes below which a block is not counted.
    pub min_size: u64,
    /// Batches of warm-up.
    pub warmup: u32,
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
    pub fn load(process: Process, options: TraceOptions) -> anyhow::Result<Self> {
        let n_threads = process.status()?.n_threads;
        let plan = LoadPlan {
            pid: process.pid,
            ring_bytes: options.ring_bytes,
            max_threads: FEWEST_THREADS.max(n_threads.saturating_mul(4)),
            min_size: options.min_size,
        };
        let mut probes = Probes::load(&plan)?;
        let intake = Intake::new(probes.take_ring()?);
        Ok(Self {
            binder: Binder::new(&process),
            bound: FxHashMap::default(),
            probes,
            intake,
            process,
            allocators: Allocators::default(),
            objects: Vec::new(),
            ledger: Ledger::default(),
            batches: Batches::new(options.warmup),
            n_marks: 0,
            last_mark: Instant::now(),
            pause: SHORT,
            late: Vec::new(),
            found_trampoline: false,
            counts_every_size: options.min_size == 0,
            sees_whole_heap: false,
            run_times: log::log_enabled!(log::Level::Info).then(measure_runs).transpose()?,
        })
    }

    /// Attaches to the allocators that the process maps now.
    ///
    /// # Errors
    /// When there is none, or the kernel sets no probe.
    pub fn attach(&mut self) -> anyhow::Result<()> {
        let found = self.allocators.find(&self.process)?;
        self.attach_to(found)?;
        let mappings = self.process.mappings()?;
        if let Some(heap) = mappings.list.iter().find(|mapping| mapping.path == "[heap]") {
            self.ledger.set_break(heap.end);
        }
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

    /// Attaches to allocators that came since, and answers how many there were.
    ///
    /// # Errors
    /// When the kernel sets no probe.
    pub fn attach_new(&mut self) -> anyhow::Result<usize> {
        let found = self.allocators.find_new(&self.process)?;
        let n_found = found.len();
        self.attach_to(found)?;
        Ok(n_found)
    }

    fn attach_to(&mut self, found: Vec<AllocatorObject>) -> anyhow::Result<()> {
        for object in found {
            let sites: Vec<AttachSite> = object
                .functions
                .iter()
                .map(|function| AttachSite {
                    offset: function.site.offset.0,
                    cookie: function.cookie,
                })
                .collect();
            let path = object.path.to_string_lossy();
            log::info!("{} probes in {path}", sites.len());
            self.probes.attach(&path, &object.file, &sites)?;
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
        }
        outcome
    }

    /// Ends the batch: reads everything that the target did so far and closes the books on it.
    async fn close(&mut self) -> anyhow::Result<Closed> {
        self.n_marks += 1;
        let number = self.n_marks;
        let mut since = Instant::now();
        while !self.probes.mark(number)? {
            // No room for the mark: the target fills the ring as fast as it is read.
            let (n_read, _) = self.read_until(None);
            if n_read > 0 {
                since = Instant::now();
            } else if since.elapsed() > STALLED {
                bail!("the ring buffer stays full; the tracer gets no processor time");
            }
            tokio::task::yield_now().await;
        }
        loop {
            match self.read_until(Some(number)) {
                (_, Paused::Stopped) => break,
                (0, _) if since.elapsed() > STALLED => {
                    bail!(
                        "a mark did not come through the ring buffer; a thread of the target \
                           stands in a probe"
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
        self.binder.refresh(&self.process);
        let n_known = self.objects.len();
        match self.attach_new() {
            Ok(_) => {
                let came = self.objects[n_known..].iter();
                self.late.extend(came.map(|object| object.path.to_string_lossy().into_owned()));
            }
            Err(error) => log::info!("no look for new objects: {error:#}"),
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

    /// What the tracing cost the target inside the programs, for who wants to know.
    fn tell_run_times(&self) {
        match self.probes.runs() {
            Ok(runs) => {
                for Runs { program, count, nanoseconds } in runs {
                    let each = nanoseconds.checked_div(count).unwrap_or(0);
                    log::info!("{program} ran {count} times, {each} ns each");
                }
            }
            Err(error) => log::warn!("{error}"),
        }
    }

    /// Everything that was lost, by kind.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn losses(&self) -> anyhow::Result<Losses> {
        let mut kernel = [0; Count::N];
        for (count, value) in self.probes.counts()? {
            kernel[count as usize] = value;
        }
        let totals = self.batches.all().iter().map(|batch| &batch.totals);
        let totals: Vec<_> = totals.chain([self.batches.before()]).collect();
        Ok(Losses::new(&LossCounts {
            kernel,
            skipped: self.probes.skipped()?,
            malformed: self.intake.malformed()
                + totals.iter().map(|totals| totals.malformed).sum::<u64>(),
            healed: totals.iter().map(|totals| totals.healed).sum(),
            undecided: totals.iter().map(|totals| totals.undecided).sum(),
        }))
    }

    /// The target.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The batches so far.
    pub fn batches(&self) -> &Batches {
        &self.batches
    }

    /// The books.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The objects that are probed.
    pub fn objects(&self) -> &[AllocatorObject] {
        &self.objects
    }

    /// That an allocator is probed.
    ///
    /// # Errors
    /// When there is none, naming the objects that were searched.
    pub fn has_allocator(&self) -> anyhow::Result<()> {
        if self.objects.is_empty() { Err(self.allocators.not_found().into()) } else { Ok(()) }
    }

    /// The frames of each stack, with names, from the allocator's caller outwards.
    pub fn named(&self, ids: &[StackId]) -> Vec<Vec<Frame>> {
        let hash = |id: &StackId| self.ledger.stacks().hash(*id).unwrap_or(stacks::LOST);
        self.named_by_hash(&ids.iter().map(hash).collect::<Vec<_>>())
    }

    /// The frames of stacks by their hashes, with names, outwards. Empty for a lost stack.
    pub fn named_by_hash(&self, hashes: &[u64]) -> Vec<Vec<Frame>> {
        let bound = |hash| self.bound.get(hash).map_or(&[][..], |bound| bound);
        let stacks: Vec<&[Bound]> = hashes.iter().map(bound).collect();
        let names = symbolize(&self.binder, stacks.iter().flat_map(|stack| stack.iter().copied()));
        let named = |bound: &Bound| names.frames(*bound).iter().map(frame).collect::<Vec<_>>();
        stacks.iter().map(|stack| stack.iter().flat_map(named).collect()).collect()
    }

    /// Allocators that appeared while batches ran: their blocks were missed until then.
    pub fn late_allocators(&self) -> &[String] {
        &self.late
    }
}

/// A frame as reports show it.
fn frame(frame: &symbols::Frame) -> Frame {
    Frame {
        function: frame.function.clone(),
        object: frame.object.clone(),
        offset: frame.object.is_some().then_some(frame.offset),
        address: format!("{:#x}", frame.address),
        file: frame.file.clone(),
        line: frame.line,
        inlined: frame.inlined,
    }
}
