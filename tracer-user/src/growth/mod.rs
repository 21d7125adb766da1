//! From figures to a verdict. A verdict is only as good as the books: whatever was lost makes
//! it inconclusive, and the losses must be handed over to get one.

mod budget;
mod kendall;
mod losses;
mod reason;
mod slope;

use crate::batches::{Batches, Change};
use crate::ledger::Purpose;

pub use self::budget::Budget;
pub use self::losses::{LossCounts, Losses};
pub use self::reason::{Notice, Reason};
pub use self::slope::{Interval, Point, Slope, theil_sen};

/// Measured batches that a verdict needs.
pub const FEWEST_MEASURED: u32 = 3;

/// How outstanding memory changed over the measured batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// Outstanding at the end of the last measured batch minus at the baseline.
    pub net: Change,
    /// Bytes that stacks gained, over all stacks that gained.
    pub grown_bytes: u64,
    /// Bytes that stacks lost, over all stacks that lost. `grown - shrunk` is the net.
    pub shrunk_bytes: u64,
    /// Growth per batch; `None` before the first measured batch.
    pub slope: Option<Slope>,
    /// Number of measured batches.
    pub measured: u32,
    /// Was any call of an allocator seen, in any batch?
    pub saw_calls: bool,
    /// Did the target replace its image in a measured batch? Then nothing can be compared.
    pub replaced: bool,
}

impl Growth {
    /// The growth over the measured batches.
    pub fn over(batches: &Batches) -> Self {
        let (mut grown_bytes, mut shrunk_bytes) = (0_u64, 0_u64);
        for (_, change) in batches.changed_stacks() {
            let sum = if 0 < change.bytes { &mut grown_bytes } else { &mut shrunk_bytes };
            *sum = sum.saturating_add(change.bytes.unsigned_abs());
        }
        let every_batch = || batches.all().iter().map(|batch| &batch.totals);
        let saw_calls = every_batch().chain([batches.before()]).any(|totals| {
            0 < totals.allocated.blocks + totals.freed.blocks + totals.unmatched_frees
        });
        Self {
            net: Change::between(batches.baseline(), batches.last()),
            grown_bytes,
            shrunk_bytes,
            slope: theil_sen(&points(batches)),
            measured: u32::try_from(batches.measured().len()).unwrap_or(u32::MAX),
            saw_calls,
            replaced: batches.measured().iter().any(|batch| 0 < batch.totals.execs),
        }
    }
}

/// The baseline and the end of each measured batch.
fn points(batches: &Batches) -> Vec<Point> {
    let point = |batch, bytes| Point { batch, bytes: i64::try_from(bytes).unwrap_or(i64::MAX) };
    let measured = batches.measured().iter().map(|batch| batch.outstanding.bytes);
    let baseline = batches.baseline().bytes;
    (0_u32..)
        .zip(std::iter::once(baseline).chain(measured))
        .map(|(at, bytes)| point(at, bytes))
        .collect()
}

/// What is said of the growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Within the budget.
    Pass,
    /// Over the budget.
    Growth,
    /// It cannot be said.
    Inconclusive,
}

/// An outcome and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What is said.
    pub outcome: Outcome,
    /// Why; at least one reason.
    pub reasons: Vec<Reason>,
}

impl Verdict {
    /// The reasons as a session file has them: `name: sentence`.
    pub fn lines(&self) -> Vec<String> {
        self.reasons.iter().map(|reason| format!("{}: {reason}", reason.name())).collect()
    }
}

/// Holds the growth against the budget: over it when even the lower end of the interval is,
/// within it when even the upper end is, and undecided in between, when there are too few
/// batches, or when anything was lost.
pub fn judge(growth: &Growth, budget: Budget, losses: &Losses) -> Verdict {
    let mut doubts: Vec<Reason> =
        losses.lost().map(|(key, count)| Reason::Lost { key, count }).collect();
    if !growth.saw_calls {
        doubts.push(Reason::NoCalls);
    }
    if growth.replaced {
        doubts.push(Reason::Replaced);
    }
    let interval = growth.slope.and_then(|slope| slope.interval);
    match interval {
        Some(interval) if FEWEST_MEASURED <= growth.measured => {
            if doubts.is_empty() {
                return against(interval, budget);
            }
        }
        Some(_) | None => doubts.push(Reason::TooFewBatches { measured: growth.measured }),
    }
    Verdict { outcome: Outcome::Inconclusive, reasons: doubts }
}

fn against(interval: Interval, budget: Budget) -> Verdict {
    let (outcome, reason) = if interval.high <= budget.bytes() {
        (Outcome::Pass, Reason::WithinBudget { interval, budget })
    } else if budget.bytes() < interval.low {
        (Outcome::Growth, Reason::OverBudget { interval, budget })
    } else {
        (Outcome::Inconclusive, Reason::AcrossBudget { interval, budget })
    };
    Verdict { outcome, reasons: vec![reason] }
}

/// What should be known beside the verdict.
pub fn notices(growth: &Growth, batches: &Batches) -> Vec<Notice> {
    let Growth { grown_bytes, shrunk_bytes, .. } = *growth;
    let mapped = batches.mapped_growth(Purpose::Own).bytes;
    let frees = batches.all().iter().map(|batch| batch.totals.unmatched_frees).sum();
    [
        (batches.warmup() == 0 && 0 < growth.measured).then_some(Notice::NoWarmUp),
        (0 < frees).then_some(Notice::OlderBlocks { frees }),
        // What shrank hides at least half of what grew.
        (0 < grown_bytes && grown_bytes / 2 <= shrunk_bytes && 0 < shrunk_bytes)
            .then_some(Notice::Traded { grown_bytes, shrunk_bytes }),
        (0 < mapped && growth.net.bytes <= 0).then_some(Notice::MappedGrowth {
            bytes: mapped.unsigned_abs(),
            measured: growth.measured,
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests;
