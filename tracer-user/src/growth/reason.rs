//! Why a verdict is what it is, and what else should be known. Names never change: they are
//! in session files. Sentences may.

use std::fmt;

use super::FEWEST_MEASURED;
use super::budget::Budget;
use super::losses;
use super::slope::Interval;
use crate::units::{human_bytes, human_bytes_f64};

/// Why a verdict is what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Even the upper end of the interval is within the budget.
    WithinBudget {
        /// Where the growth lies.
        interval: Interval,
        /// What is accepted.
        budget: Budget,
    },
    /// Even the lower end of the interval is over the budget.
    OverBudget {
        /// Where the growth lies.
        interval: Interval,
        /// What is accepted.
        budget: Budget,
    },
    /// The budget lies within the interval.
    AcrossBudget {
        /// Where the growth lies.
        interval: Interval,
        /// What is accepted.
        budget: Budget,
    },
    /// There are not enough measured batches to compare.
    TooFewBatches {
        /// Number that was measured.
        measured: u32,
    },
    /// No call of an allocator was seen.
    NoCalls,
    /// The target replaced its image while it was measured.
    Replaced,
    /// Something was lost.
    Lost {
        /// Key of the loss.
        key: &'static str,
        /// How often.
        count: u64,
    },
}

impl Reason {
    /// Stable name; never changes.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WithinBudget { .. } => "within-budget",
            Self::OverBudget { .. } => "over-budget",
            Self::AcrossBudget { .. } => "across-budget",
            Self::TooFewBatches { .. } => "too-few-batches",
            Self::NoCalls => "no-allocator-call",
            Self::Replaced => "target-replaced",
            Self::Lost { .. } => "lost",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WithinBudget { interval, budget } => {
                let high = human_bytes_f64(interval.high);
                write!(out, "growth is at most {high} per batch, within the budget of ")?;
                budget_words(*budget, out)
            }
            Self::OverBudget { interval, budget } => {
                let low = human_bytes_f64(interval.low);
                write!(out, "growth is at least {low} per batch, over the budget of ")?;
                budget_words(*budget, out)?;
                write!(out, "; the widest frames of the growth flamegraph show where")
            }
            Self::AcrossBudget { interval, budget } => {
                let (low, high) = (human_bytes_f64(interval.low), human_bytes_f64(interval.high));
                write!(out, "growth is between {low} and {high} per batch, and the budget of ")?;
                budget_words(*budget, out)?;
                write!(out, " lies between; measure more batches")
            }
            Self::TooFewBatches { measured } => write!(
                out,
                "{measured} measured {}, at least {FEWEST_MEASURED} are needed; measure more batches",
                if *measured == 1 { "batch" } else { "batches" }
            ),
            Self::NoCalls => write!(
                out,
                "no allocator call of the target was seen, so nothing is known of its memory; \
                 check that the batches do work in this process, and what `outlive doctor -p PID` \
                 says of its allocator"
            ),
            Self::Replaced => write!(
                out,
                "the target replaced its program by exec while it was measured, so batches \
                 cannot be compared; attach after the last exec"
            ),
            Self::Lost { key, count } => write!(out, "{count} {}", losses::meaning(key)),
        }
    }
}

fn budget_words(budget: Budget, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(out, "{} per batch", human_bytes(budget.heap_bytes_per_batch))
}

/// What should be known beside the verdict; changes nothing of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Notice {
    /// There was no warm-up.
    NoWarmUp,
    /// The target freed blocks that are not booked, such as those it had before the attach.
    OlderBlocks {
        /// Frees of unknown addresses, over all batches.
        frees: u64,
    },
    /// Some stacks grew while others shrank by half as much or more.
    Traded {
        /// Bytes gained.
        grown_bytes: u64,
        /// Bytes lost.
        shrunk_bytes: u64,
    },
    /// The heap did not grow, what the program itself maps did.
    MappedGrowth {
        /// Bytes gained, in whole pages, over the measured batches.
        bytes: u64,
        /// Measured batches.
        measured: u32,
    },
}

impl Notice {
    /// Stable name; never changes.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoWarmUp => "no-warm-up",
            Self::OlderBlocks { .. } => "older-blocks",
            Self::Traded { .. } => "traded",
            Self::MappedGrowth { .. } => "mapped-growth",
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWarmUp => write!(
                out,
                "there was no warm-up, so what the first batch sets up counts as growth; \
                 give --warmup"
            ),
            Self::OlderBlocks { frees } => write!(
                out,
                "{frees} {} of blocks that are not in the figures: older than the attach, below \
                 --min-size, or made by an allocator for itself",
                if *frees == 1 { "free was" } else { "frees were" }
            ),
            Self::MappedGrowth { bytes, measured } => write!(
                out,
                "mappings of the program grew by {} per batch while its heap did not; they are \
                 not in the verdict",
                human_bytes(bytes / u64::from(*measured).max(1))
            ),
            Self::Traded { grown_bytes, shrunk_bytes } => write!(
                out,
                "some stacks grew by {} while others shrank by {}; look at both flamegraphs",
                human_bytes(*grown_bytes),
                human_bytes(*shrunk_bytes)
            ),
        }
    }
}
