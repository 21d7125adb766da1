use std::collections::BTreeMap;

use tracer_common::count::Count;

use super::*;
use crate::batches::{Facts, Resident};
use crate::ledger::{Closed, Held, Totals};
use crate::stacks::StackId;

const NONE: LossCounts = LossCounts {
    kernel: [0; Count::N],
    skipped: 0,
    malformed: 0,
    healed: 0,
    undecided: 0,
    late_probes: 0,
    removed_probes: 0,
};

fn facts() -> Facts {
    Facts {
        label: String::new(),
        units: BTreeMap::new(),
        duration_s: 1.0,
        resident: Resident::default(),
    }
}

/// The growth of one stack that has `series` bytes outstanding, first at the baseline.
fn growth(series: &[u64]) -> Growth {
    let mut batches = Batches::new(1);
    let mut before = 0;
    for bytes in series {
        let held = Held { bytes: *bytes, blocks: *bytes };
        let changed = if *bytes == before { vec![] } else { vec![(StackId(0), held)] };
        before = *bytes;
        let totals = Totals { allocated: Held { bytes: 1, blocks: 1 }, ..Totals::default() };
        batches.push(facts(), Closed { totals, outstanding: held, changed, ..Closed::default() });
    }
    Growth::over(&batches)
}

fn verdict(series: &[u64], budget: u64) -> Verdict {
    judge(&growth(series), Budget { heap_bytes_per_batch: budget }, &Losses::new(&NONE))
}

fn check(series: &[u64], budget: u64, outcome: Outcome, reason: &str) {
    let verdict = verdict(series, budget);
    assert_eq!(verdict.outcome, outcome, "{series:?} against {budget}");
    let names: Vec<_> = verdict.reasons.iter().map(Reason::name).collect();
    assert_eq!(names, [reason], "{series:?} against {budget}");
}

#[test]
fn constant_growth_is_growth_with_no_budget() {
    check(&[0, 64, 128, 192], 0, Outcome::Growth, "over-budget");
    check(&[500, 501, 502, 503, 504, 505], 0, Outcome::Growth, "over-budget");
}

#[test]
fn a_flat_line_passes() {
    check(&[0, 0, 0, 0], 0, Outcome::Pass, "within-budget");
    check(&[700; 11], 0, Outcome::Pass, "within-budget");
}

#[test]
fn growth_within_the_budget_passes() {
    check(&[0, 64, 128, 192, 256], 64, Outcome::Pass, "within-budget");
    check(&[0, 64, 128, 192, 256], 63, Outcome::Growth, "over-budget");
}

#[test]
fn shrinking_passes() {
    check(&[900, 800, 700, 600, 500], 0, Outcome::Pass, "within-budget");
}

#[test]
fn what_rises_and_falls_is_undecided() {
    check(&[0, 100, 0, 100, 0, 100], 0, Outcome::Inconclusive, "across-budget");
}

#[test]
fn one_step_and_then_constant_is_never_growth() {
    for len in 4..80 {
        for step in 1..len {
            let series: Vec<u64> = (0..len).map(|at| if at < step { 0 } else { 1000 }).collect();
            let outcome = verdict(&series, 0).outcome;
            assert_ne!(outcome, Outcome::Growth, "{len} points, step at {step}");
        }
    }
}

#[test]
fn a_step_in_the_first_of_eight_batches_passes() {
    check(&[0, 9, 9, 9, 9, 9, 9, 9, 9], 0, Outcome::Pass, "within-budget");
}

#[test]
fn fewer_than_three_measured_batches_are_too_few() {
    for series in [&[][..], &[0], &[0, 64], &[0, 64, 128], &[0, 0, 0]] {
        let growth = Growth { saw_calls: true, ..growth(series) };
        let verdict = judge(&growth, Budget::default(), &Losses::new(&NONE));
        assert_eq!(verdict.outcome, Outcome::Inconclusive);
        assert_eq!(verdict.reasons, [Reason::TooFewBatches { measured: growth.measured }]);
    }
}

#[test]
fn nothing_seen_is_not_a_pass() {
    let growth = Growth { saw_calls: false, ..growth(&[0, 0, 0, 0, 0]) };
    let verdict = judge(&growth, Budget::default(), &Losses::new(&NONE));
    assert_eq!((verdict.outcome, verdict.reasons), (Outcome::Inconclusive, vec![Reason::NoCalls]));
}

#[test]
fn a_target_that_replaced_itself_cannot_be_compared() {
    let mut batches = Batches::new(1);
    for batch in 0..5 {
        let allocated = Held { bytes: 1, blocks: 1 };
        let totals = Totals { allocated, execs: u64::from(batch == 3), ..Totals::default() };
        batches.push(
            facts(),
            Closed { totals, outstanding: Held::default(), changed: vec![], ..Closed::default() },
        );
    }
    let growth = Growth::over(&batches);
    let verdict = judge(&growth, Budget::default(), &Losses::new(&NONE));
    assert_eq!((verdict.outcome, verdict.reasons), (Outcome::Inconclusive, vec![Reason::Replaced]));
}

#[test]
fn any_loss_makes_a_clear_case_undecided_and_is_named() {
    for (key, _) in Losses::new(&NONE).entries() {
        let mut counts = NONE;
        match key {
            "skipped" => counts.skipped = 7,
            "malformed" => counts.malformed = 7,
            "healed" => counts.healed = 7,
            "undecided" => counts.undecided = 7,
            "late_probes" => counts.late_probes = 7,
            "removed_probes" => counts.removed_probes = 7,
            _ => {
                let count = Count::ALL.iter().find(|count| count.key() == key);
                counts.kernel[*count.expect("a kernel counter") as usize] = 7;
            }
        }
        for series in [[0, 64, 128, 192, 256], [5; 5]] {
            let verdict = judge(&growth(&series), Budget::default(), &Losses::new(&counts));
            assert_eq!(verdict.outcome, Outcome::Inconclusive, "{key}");
            assert_eq!(verdict.reasons, [Reason::Lost { key, count: 7 }]);
            assert!(verdict.reasons[0].to_string().starts_with("7 "));
        }
    }
}

#[test]
fn what_grew_and_what_shrank_are_kept_apart() {
    let mut batches = Batches::new(1);
    for figures in [[0, 150, 0], [100, 0, 200]] {
        let changed = (0..).zip(figures).map(|(s, bytes)| (StackId(s), Held { bytes, blocks: 1 }));
        let outstanding = Held { bytes: figures.iter().sum(), blocks: 3 };
        let closed = Closed {
            totals: Totals::default(),
            outstanding,
            changed: changed.collect(),
            ..Closed::default()
        };
        batches.push(facts(), closed);
    }
    let growth = Growth::over(&batches);
    assert_eq!((growth.net.bytes, growth.grown_bytes, growth.shrunk_bytes), (150, 300, 150));
    assert!(!growth.saw_calls);
}

#[test]
fn reasons_say_what_to_do() {
    let words = |series: &[u64], budget| verdict(series, budget).reasons[0].to_string();
    assert_eq!(
        words(&[0, 6400, 12_800, 19_200], 1024),
        "growth is at least 6.25 KiB per batch, over the budget of 1.00 KiB per batch; \
         the widest frames of the growth flamegraph show where"
    );
    assert_eq!(
        words(&[9; 6], 0),
        "growth is at most 0 B per batch, within the budget of 0 B per batch"
    );
    assert_eq!(
        words(&[0, 100, 0, 100, 0, 100], 0),
        "growth is between -100 B and 100 B per batch, and the budget of 0 B per batch lies \
         between; measure more batches"
    );
    assert_eq!(
        Reason::TooFewBatches { measured: 1 }.to_string(),
        "1 measured batch, at least 3 are needed; measure more batches"
    );
}

#[test]
fn notices_say_what_they_count() {
    let all = [
        (Notice::NoWarmUp, "no-warm-up", "no warm-up"),
        (Notice::OlderBlocks { frees: 12 }, "older-blocks", "12 frees"),
        (Notice::Traded { grown_bytes: 300, shrunk_bytes: 150 }, "traded", "300 B"),
    ];
    for (notice, name, words) in all {
        assert_eq!(notice.name(), name);
        assert!(notice.to_string().contains(words), "{notice}");
    }
}

#[test]
fn notices_come_when_their_condition_holds() {
    let growth = |grown_bytes, shrunk_bytes| Growth {
        net: Change::default(),
        grown_bytes,
        shrunk_bytes,
        slope: None,
        measured: 3,
        saw_calls: true,
        replaced: false,
    };
    let names = |growth: &Growth, batches: &Batches| {
        let notices = notices(growth, batches);
        notices.iter().map(Notice::name).collect::<Vec<_>>()
    };
    let mut warmed = Batches::new(1);
    assert_eq!(names(&growth(300, 149), &warmed), Vec::<&str>::new());
    assert_eq!(names(&growth(300, 150), &warmed), ["traded"]);
    assert_eq!(names(&growth(0, 0), &Batches::new(0)), ["no-warm-up"]);
    let totals = Totals { unmatched_frees: 2, ..Totals::default() };
    let closed =
        Closed { totals, outstanding: Held::default(), changed: vec![], ..Closed::default() };
    warmed.push(facts(), closed);
    assert_eq!(names(&growth(0, 0), &warmed), ["older-blocks"]);
}

#[test]
fn a_verdicts_lines_begin_with_the_stable_name() {
    assert_eq!(
        verdict(&[9; 6], 0).lines(),
        ["within-budget: growth is at most 0 B per batch, within the budget of 0 B per batch"]
    );
}
