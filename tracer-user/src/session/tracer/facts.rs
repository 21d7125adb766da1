//! What a tracer can be asked: what was lost, what stacks are called, whom it traces.

use std::{rc::Rc, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    batches::Batches,
    growth::{LossCounts, Losses},
    ledger::Ledger,
    probes::Runs,
    report::{
        model::{BreakReason, Frame},
        names,
    },
    stacks::{self, StackId},
    symbols::{self, Bound, ObjectKind, symbolize},
    target::{
        allocators::{AllocatorObject, Unreadable},
        process::{self, Process},
    },
    unwind::Site,
};
use tracer_common::{
    count::Count,
    event::StackEnd,
    unwind::{Rule, RuleKind},
};

use super::{Holds, Member, Others, Tracer};

/// What counts against the batches, as it stood when the last one ended. What comes later, such as a
/// process that is made while the probes are taken out, is no part of the figures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubts {
    losses: LossCounts,
    /// How many of the allocators that came late, of the objects without probes, and of all objects.
    n_late: usize,
    n_unprobed: usize,
    n_objects: usize,
}

impl Tracer {
    /// What the tracing cost the target inside the programs, for who wants to know.
    pub(super) fn tell_run_times(&self) {
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

    /// Everything that was lost up to the end of the last batch, by kind; up to now when there is none.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn losses(&self) -> anyhow::Result<Losses> {
        Ok(Losses::new(&self.doubts()?.losses))
    }

    fn doubts(&self) -> anyhow::Result<Doubts> {
        self.doubts.map_or_else(|| self.doubts_now(), Ok)
    }

    /// What counts against a batch that ends now.
    pub(super) fn doubts_now(&self) -> anyhow::Result<Doubts> {
        let mut kernel = [0; Count::N];
        for (count, value) in self.probes.counts()? {
            kernel[count as usize] = value;
        }
        let totals = self.batches.all().iter().map(|batch| &batch.totals);
        let totals: Vec<_> = totals.chain([self.batches.before()]).collect();
        let losses = LossCounts {
            kernel,
            skipped: self.probes.skipped()?,
            malformed: self.intake.malformed()
                + totals.iter().map(|totals| totals.malformed).sum::<u64>(),
            healed: totals.iter().map(|totals| totals.healed).sum(),
            undecided: totals.iter().map(|totals| totals.undecided).sum(),
            late_probes: self.late_probes,
            removed_probes: self.removed_probes,
        };
        Ok(Doubts {
            losses,
            n_late: self.late.len(),
            n_unprobed: self.unprobed.len(),
            n_objects: self.objects().len(),
        })
    }

    /// Unwind tables and mappings that the kernel side had no room for.
    pub fn tables_left_out(&self) -> u64 {
        self.probes.n_left_out()
    }

    /// Calls of the allocator that returned no memory.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn failed_calls(&self) -> anyhow::Result<u64> {
        self.count(Count::FailedCalls)
    }

    fn count(&self, wanted: Count) -> anyhow::Result<u64> {
        let counts = self.probes.counts()?;
        let found = counts.iter().find(|(count, _)| *count == wanted);
        Ok(found.map_or(0, |(_, value)| *value))
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

    /// The objects that are probed, in any process.
    pub fn objects(&self) -> &[AllocatorObject] {
        self.allocators.objects()
    }

    /// Every process that is or was traced, the first one first.
    pub fn members(&self) -> Vec<&Member> {
        self.tree.all()
    }

    /// Processes that were traced and of which only their number is kept.
    pub fn omitted_members(&self) -> u64 {
        self.tree.omitted()
    }

    /// Whether processes other than the first go on, kept up to date while the tracer reads.
    pub fn others(&self) -> Rc<Others> {
        self.others.clone()
    }

    /// How often and how long processes were stopped for their probes.
    pub fn holds(&self) -> Holds {
        self.holds
    }

    /// How often and how long processes were stopped because the ring was too full.
    pub fn pauses(&self) -> Holds {
        self.pauses
    }

    /// Processes that the target made and that were not traced, because nobody asked for it.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn not_followed(&self) -> anyhow::Result<u64> {
        Ok(self.n_older + self.count(Count::NotFollowed)?)
    }

    /// Counts the descendants that the kernel side did not see made.
    pub(super) fn count_older(&mut self) -> anyhow::Result<()> {
        let there = process::descendants(self.process.pid)?.len() as u64;
        self.n_older = there.saturating_sub(self.count(Count::NotFollowed)?);
        Ok(())
    }

    /// Tells which described functions the target does not have.
    pub fn warn_of_missing(&self) {
        let pid = self.process.pid;
        for custom in self.allocators.custom() {
            let objects = self.objects().iter().filter(|object| object.family_name == custom.name);
            let found: Vec<&str> = objects.flat_map(AllocatorObject::names).collect();
            let missing = custom.missing(&found);
            if found.is_empty() {
                log::warn!(
                    "no function of the description {} is in process {pid}: {}; check the names, \
                     and let the warm-up load its library",
                    custom.name,
                    missing.join(", ")
                );
            } else if !missing.is_empty() {
                log::warn!(
                    "the description {} names functions that process {pid} does not have: {}",
                    custom.name,
                    missing.join(", ")
                );
            }
        }
    }

    /// Mapped objects that could not be searched for allocators.
    pub fn unsearched(&self) -> &[Unreadable] {
        self.allocators.unreadable()
    }

    /// That an allocator is probed.
    ///
    /// # Errors
    /// When there is none, naming the objects that were searched.
    pub fn has_allocator(&self) -> anyhow::Result<()> {
        let has_one = self.objects().iter().any(AllocatorObject::hands_out);
        if has_one { Ok(()) } else { Err(self.allocators.not_found().into()) }
    }

    /// The frames of each stack, with names, from the allocator's caller outwards.
    pub fn named(&self, ids: &[StackId]) -> Vec<Vec<Arc<Frame>>> {
        let hash = |id: &StackId| self.ledger.stacks().hash(*id).unwrap_or(stacks::LOST);
        self.named_by_hash(&ids.iter().map(hash).collect::<Vec<_>>())
    }

    /// The frames of stacks by their hashes, with names, outwards. Empty for a lost stack.
    pub fn named_by_hash(&self, hashes: &[u64]) -> Vec<Vec<Arc<Frame>>> {
        let bound = |hash| self.bound.get(hash).map_or(&[][..], |bound| bound);
        let stacks: Vec<&[Bound]> = hashes.iter().map(bound).collect();
        let found = symbolize(&self.binder, stacks.iter().flat_map(|stack| stack.iter().copied()));
        let mut shared: FxHashMap<Bound, Vec<Arc<Frame>>> = FxHashMap::default();
        let make = |bound: &Bound| {
            let mut frames: Vec<Frame> = found.frames(*bound).iter().map(frame).collect();
            // The address is the function's first, so that what lies before it is another's.
            if let (Site::Said(Rule { kind: RuleKind::Signal, .. }), Some(frame)) =
                (self.unwinder.known(bound, &self.binder), frames.first_mut())
            {
                frame.function = Some(names::SIGNAL.to_owned());
            }
            frames.into_iter().map(Arc::new).collect()
        };
        let mut named = |bound: &Bound| shared.entry(*bound).or_insert_with(|| make(bound)).clone();
        let mut ran = FxHashSet::default();
        let merged = |(hash, stack): (&u64, &[Bound])| {
            self.scripts.merged(*hash, stack.iter().map(&mut named).collect(), &mut ran)
        };
        hashes.iter().zip(stacks).map(merged).collect()
    }

    /// Where this stack ends, and why before the start of its thread.
    pub fn why_broken(&self, id: StackId) -> (Option<String>, BreakReason) {
        let stacks = self.ledger.stacks();
        let bound = stacks.hash(id).and_then(|hash| self.bound.get(&hash));
        let Some(last) = bound.and_then(|bound| bound.last()) else {
            return (None, BreakReason::Lost);
        };
        let object = last.object.and_then(|id| self.binder.object(id));
        let reason = match self.unwinder.known(last, &self.binder) {
            _ if stacks.trace(id).is_some_and(|trace| trace.end == StackEnd::Unsent) => {
                BreakReason::Busy
            }
            _ if object.is_some_and(|object| matches!(object.kind, ObjectKind::File(None))) => {
                BreakReason::Unopened
            }
            Site::NoCode => BreakReason::NoCode,
            Site::Guessed => BreakReason::NoTable,
            Site::Said(Rule { kind: RuleKind::Unknown | RuleKind::Interrupted, .. }) => {
                BreakReason::NotFollowed
            }
            Site::Said(_) => BreakReason::Unreadable,
        };
        (object.map(|object| object.name.clone()).filter(|name| !name.is_empty()), reason)
    }

    /// Why objects that came into the target could not be probed, once for each reason.
    pub fn unprobed(&self) -> Vec<&str> {
        let n_unprobed = self.doubts.map_or(usize::MAX, |doubts| doubts.n_unprobed);
        let mut reasons: Vec<&str> =
            self.unprobed.iter().take(n_unprobed).map(String::as_str).collect();
        reasons.dedup();
        reasons
    }

    /// Allocators that appeared while batches ran: their blocks were missed until then.
    pub fn late_allocators(&self) -> &[String] {
        let n_late = self.doubts.map_or(usize::MAX, |doubts| doubts.n_late);
        &self.late[..n_late.min(self.late.len())]
    }

    /// Functions of allocators that batches may have called and that cannot be probed.
    pub fn blind_spots(&self) -> Vec<String> {
        let n_objects = self.doubts.map_or(usize::MAX, |doubts| doubts.n_objects);
        self.objects().iter().take(n_objects).flat_map(AllocatorObject::blind_spots).collect()
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
        interpreted: false,
        sampled: false,
    }
}
