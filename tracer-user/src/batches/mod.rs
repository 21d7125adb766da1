//! Batches and the marks between them: what each stack had outstanding at which mark.
//!
//! Mark 0 is the start, before the first batch; mark `i + 1` is the end of batch `i`. A stack's
//! figures are kept only where they change, so that hours of short batches stay small.
//!
//! Later the blocks' births come in here too: of what batch b made, how much is left at mark m.

use std::collections::BTreeMap;

use crate::ledger::{Closed, Held, Totals};
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
    /// Resident bytes of the target at the end; `None` when they could not be read.
    pub rss_bytes: Option<u64>,
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

/// Every batch so far.
#[derive(Debug)]
pub struct Batches {
    warmup: u32,
    start: Held,
    /// What happened before the first batch.
    before: Totals,
    batches: Vec<Batch>,
    stacks: Vec<Steps>,
}

impl Batches {
    /// No batch yet; the first `warmup` of them will not be compared.
    pub fn new(warmup: u32) -> Self {
        Self {
            warmup,
            start: Held::default(),
            before: Totals::default(),
            batches: Vec::new(),
            stacks: Vec::new(),
        }
    }

    /// What was booked before the first batch is the start to compare with when there is no
    /// warm-up. Without this call the start is "nothing outstanding".
    pub fn start(&mut self, closed: Closed) {
        self.start = closed.outstanding;
        self.before = closed.totals;
        self.record(0, closed.changed);
    }

    /// Appends the batch that the ledger has just closed.
    pub fn push(&mut self, facts: Facts, closed: Closed) -> &Batch {
        let index = u32::try_from(self.batches.len()).unwrap_or(u32::MAX);
        let kind = if index < self.warmup { Kind::Warmup } else { Kind::Measured };
        self.record(index.saturating_add(1), closed.changed);
        let Closed { totals, outstanding, changed: _ } = closed;
        self.batches.push(Batch { index, kind, facts, totals, outstanding });
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
        let mut before = self.held_at(stack, self.baseline_mark());
        let change = |mark| {
            let after = self.held_at(stack, mark);
            Change::between(std::mem::replace(&mut before, after), after)
        };
        (self.baseline_mark() + 1..self.last_mark() + 1).map(change).collect()
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

    fn held_at(&self, stack: StackId, mark: u32) -> Held {
        let Some(steps) = self.stacks.get(stack.index()) else { return Held::default() };
        let after = steps.partition_point(|(at, _)| *at <= mark);
        after.checked_sub(1).map_or(Held::default(), |index| steps[index].1)
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
