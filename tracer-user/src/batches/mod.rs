//! Batches and the marks between them: what each stack had outstanding at which mark.
//!
//! Mark 0 is the start, before the first batch; mark `i + 1` is the end of batch `i`. A stack's
//! figures are kept only where they change, so that hours of short batches stay small.
//!
//! Later the blocks' births come in here too: of what batch b made, how much is left at mark m.

use std::collections::BTreeMap;

use crate::ledger::{
    Closed, ClosedSpace, Held, Mapped, Origin, Purpose, SpaceEnd, SpaceId, Totals,
};
use crate::stacks::StackId;

/// Does a batch count?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Caches fill and pools grow: not compared.
    Warmup,
    /// Compared.
    Measured,
}

/// What the books do not know of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Name for people.
    pub label: String,
    /// Work done, by unit: `sessions`, `tokens`.
    pub units: BTreeMap<String, f64>,
    /// Seconds from the mark before to this batch's mark.
    pub duration_s: f64,
    /// What was resident at the end.
    pub resident: Resident,
}

/// Resident memory of a target, in bytes; `None` for what could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Shared pages in full.
    pub rss: Option<u64>,
    /// Shared pages divided by the number of their users.
    pub pss: Option<u64>,
    /// Pages of no file.
    pub anonymous: Option<u64>,
    /// Pages that were swapped out.
    pub swap: Option<u64>,
}

/// One batch that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Place in the sequence, from zero, warm-up included.
    pub index: u32,
    /// Does it count?
    pub kind: Kind,
    /// What the books do not know of it.
    pub facts: Facts,
    /// What happened in it.
    pub totals: Totals,
    /// What is outstanding at its end.
    pub outstanding: Held,
    /// What is mapped at its end.
    pub mapped: Mapped,
}

/// A difference of two figures: negative when memory was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Requested bytes.
    pub bytes: i64,
    /// Blocks.
    pub blocks: i64,
}

impl Change {
    /// What lies between the two figures.
    pub fn between(before: Held, after: Held) -> Self {
        Self {
            bytes: difference(before.bytes, after.bytes),
            blocks: difference(before.blocks, after.blocks),
        }
    }

    /// Is there none, in bytes and in blocks?
    pub const fn is_zero(self) -> bool {
        self.bytes == 0 && self.blocks == 0
    }
}

/// `after - before`. Exact: the ledger keeps every sum within `i64`.
fn difference(before: u64, after: u64) -> i64 {
    let difference = i128::from(after) - i128::from(before);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

/// What one stack had outstanding, where it changed: (mark, figure), ascending.
type Steps = Vec<(u32, Held)>;

fn held_in(steps: &[(u32, Held)], mark: u32) -> Held {
    let after = steps.partition_point(|(at, _)| *at <= mark);
    after.checked_sub(1).map_or(Held::default(), |index| steps[index].1)
}

/// Every batch so far.
#[derive(Debug)]
pub struct Batches {
    warmup: u32,
    start: Held,
    /// What happened before the first batch.
    before: Totals,
    start_mapped: Mapped,
    batches: Vec<Batch>,
    stacks: Vec<Steps>,
    mappings: BTreeMap<(SpaceId, Origin), Steps>,
    spaces: BTreeMap<SpaceId, OfSpace>,
}

/// The figures of one address space at the marks.
#[derive(Clone, Debug, Default)]
struct OfSpace {
    heap: Steps,
    /// Private memory that the program itself has mapped.
    own: Steps,
    discarded: Held,
}

/// How one address space changed over the measured batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceGrowth {
    /// What is outstanding at the end of the last measured batch minus at the baseline. Of one
    /// that has ended with its process, what was outstanding then instead of at the last end.
    pub heap: Change,
    /// The same of the private memory that the program itself has mapped.
    pub own: Change,
    /// What was outstanding in it when its process replaced its image.
    pub discarded: Held,
}

impl Batches {
    /// No batch yet; the first `warmup` of them will not be compared.
    pub fn new(warmup: u32) -> Self {
        Self {
            warmup,
            start: Held::default(),
            before: Totals::default(),
            start_mapped: Mapped::default(),
            batches: Vec::new(),
            stacks: Vec::new(),
            mappings: BTreeMap::new(),
            spaces: BTreeMap::new(),
        }
    }

    /// What was booked before the first batch is the start to compare with when there is no
    /// warm-up. Without this call the start is "nothing outstanding".
    pub fn start(&mut self, closed: Closed) {
        self.start = closed.outstanding;
        self.before = closed.totals;
        self.record(0, closed.changed);
        self.start_mapped = closed.mapped;
        self.record_mappings(0, closed.changed_mappings);
        self.record_spaces(0, &closed.spaces);
    }

    /// Appends the batch that the ledger has just closed.
    pub fn push(&mut self, facts: Facts, closed: Closed) -> &Batch {
        let index = u32::try_from(self.batches.len()).unwrap_or(u32::MAX);
        let kind = if index < self.warmup { Kind::Warmup } else { Kind::Measured };
        let Closed { totals, outstanding, changed, mapped, changed_mappings, spaces } = closed;
        let mark = index.saturating_add(1);
        self.record(mark, changed);
        self.record_mappings(mark, changed_mappings);
        self.record_spaces(mark, &spaces);
        self.batches.push(Batch { index, kind, facts, totals, outstanding, mapped });
        &self.batches[self.batches.len() - 1]
    }

    /// The batches, in order.
    pub fn all(&self) -> &[Batch] {
        &self.batches
    }

    /// The batches that are compared.
    pub fn measured(&self) -> &[Batch] {
        self.batches.get(self.warmup as usize..).unwrap_or(&[])
    }

    /// Batches of warm-up that were asked for.
    pub const fn warmup(&self) -> u32 {
        self.warmup
    }

    /// What happened before the first batch.
    pub const fn before(&self) -> &Totals {
        &self.before
    }

    /// What was outstanding at the end of the warm-up; at the start when there is none.
    pub fn baseline(&self) -> Held {
        self.outstanding_at(self.baseline_mark())
    }

    /// What was outstanding at the end of the last measured batch; the baseline when there is
    /// none.
    pub fn last(&self) -> Held {
        self.outstanding_at(self.last_mark())
    }

    /// How much more is mapped for `purpose` at the end of the last measured batch than at the
    /// baseline.
    pub fn mapped_growth(&self, purpose: Purpose) -> Change {
        let at = |mark| self.mapped_at(mark).held(purpose);
        Change::between(at(self.baseline_mark()), at(self.last_mark()))
    }

    /// Every origin of mappings that grew or shrank, most bytes gained first; equal ones in the
    /// order of origins. With each, what each measured batch added; the sum is the change.
    pub fn changed_mappings(&self) -> Vec<(Origin, Change, Vec<Change>)> {
        let mut changed: Vec<_> = self
            .mappings
            .iter()
            .map(|((_, origin), steps)| {
                let (before, after) = (self.baseline_mark(), self.last_mark());
                let change = Change::between(held_in(steps, before), held_in(steps, after));
                (*origin, change, self.changes_in(steps))
            })
            .filter(|(_, change, _)| !change.is_zero())
            .collect();
        changed.sort_by_key(|(origin, change, _)| {
            (std::cmp::Reverse((change.bytes, change.blocks)), *origin)
        });
        changed
    }

    /// How this address space changed over the measured batches. One that was never seen did not.
    pub fn growth_in(&self, space: SpaceId) -> SpaceGrowth {
        let Some(of_space) = self.spaces.get(&space) else { return SpaceGrowth::default() };
        let between = |steps: &Steps| {
            let (before, after) = (self.baseline_mark(), self.last_mark());
            Change::between(held_in(steps, before), held_in(steps, after))
        };
        SpaceGrowth {
            heap: between(&of_space.heap),
            own: between(&of_space.own),
            discarded: of_space.discarded,
        }
    }

    /// What was outstanding in processes when they ended, of those that ended in a measured batch.
    pub fn ended(&self) -> Held {
        self.measured().iter().map(|batch| batch.totals.ended).fold(
            Held::default(),
            |sum, ended| Held {
                bytes: sum.bytes.saturating_add(ended.bytes),
                blocks: sum.blocks.saturating_add(ended.blocks),
            },
        )
    }

    /// What `stack` had outstanding at the end of batch `batch`.
    pub fn held_by(&self, stack: StackId, batch: u32) -> Held {
        self.held_at(stack, batch.saturating_add(1))
    }

    /// What `stack` has more at the end of the last measured batch than at the baseline.
    pub fn growth_of(&self, stack: StackId) -> Change {
        Change::between(
            self.held_at(stack, self.baseline_mark()),
            self.held_at(stack, self.last_mark()),
        )
    }

    /// What each measured batch added to `stack`; the sum is [`Batches::growth_of`].
    pub fn changes_of(&self, stack: StackId) -> Vec<Change> {
        self.changes_in(self.stacks.get(stack.index()).map_or(&[], |steps| steps))
    }

    /// Every stack that grew or shrank, most bytes gained first; equal ones by number.
    pub fn changed_stacks(&self) -> Vec<(StackId, Change)> {
        let ids = (0..self.stacks.len()).map_while(|index| u32::try_from(index).ok().map(StackId));
        let mut changed: Vec<_> = ids
            .map(|id| (id, self.growth_of(id)))
            .filter(|(_, change)| !change.is_zero())
            .collect();
        changed.sort_by_key(|(id, change)| (std::cmp::Reverse((change.bytes, change.blocks)), *id));
        changed
    }

    fn record(&mut self, mark: u32, changed: Vec<(StackId, Held)>) {
        for (id, held) in changed {
            if self.stacks.len() <= id.index() {
                self.stacks.resize(id.index() + 1, Steps::new());
            }
            self.stacks[id.index()].push((mark, held));
        }
    }

    fn record_mappings(&mut self, mark: u32, changed: Vec<(SpaceId, Origin, Held)>) {
        for (space, origin, held) in changed {
            self.mappings.entry((space, origin)).or_default().push((mark, held));
        }
    }

    fn record_spaces(&mut self, mark: u32, spaces: &[ClosedSpace]) {
        let record = |steps: &mut Steps, held: Held| {
            if held_in(steps, mark) != held {
                steps.push((mark, held));
            }
        };
        for space in spaces {
            let of_space = self.spaces.entry(space.id).or_default();
            let (mut heap, mut own) = (space.outstanding, space.mapped.held(Purpose::Own));
            if space.end == Some(SpaceEnd::Exec) {
                of_space.discarded = std::mem::take(&mut heap);
                own = Held::default();
            }
            record(&mut of_space.heap, heap);
            record(&mut of_space.own, own);
        }
    }

    fn held_at(&self, stack: StackId, mark: u32) -> Held {
        self.stacks.get(stack.index()).map_or(Held::default(), |steps| held_in(steps, mark))
    }

    fn changes_in(&self, steps: &[(u32, Held)]) -> Vec<Change> {
        let mut before = held_in(steps, self.baseline_mark());
        let change = |mark| {
            let after = held_in(steps, mark);
            Change::between(std::mem::replace(&mut before, after), after)
        };
        (self.baseline_mark() + 1..self.last_mark() + 1).map(change).collect()
    }

    fn mapped_at(&self, mark: u32) -> Mapped {
        match mark.checked_sub(1) {
            Some(batch) => {
                self.batches.get(batch as usize).map_or(self.start_mapped, |batch| batch.mapped)
            }
            None => self.start_mapped,
        }
    }

    fn outstanding_at(&self, mark: u32) -> Held {
        match mark.checked_sub(1) {
            Some(batch) => {
                self.batches.get(batch as usize).map_or(self.start, |batch| batch.outstanding)
            }
            None => self.start,
        }
    }

    /// The mark that ends the warm-up, or the newest while the warm-up lasts.
    fn baseline_mark(&self) -> u32 {
        self.warmup.min(self.last_mark())
    }

    fn last_mark(&self) -> u32 {
        u32::try_from(self.batches.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
