use proptest::prelude::*;

use super::*;

fn facts() -> Facts {
    Facts {
        label: String::new(),
        units: BTreeMap::new(),
        duration_s: 1.0,
        resident: Resident::default(),
    }
}

fn held(bytes: u64) -> Held {
    Held { bytes, blocks: bytes / 10 }
}

/// Batches where stack `s` has `series[mark][s]` bytes outstanding at each mark.
fn batches(warmup: u32, series: &[&[u64]]) -> Batches {
    let mut batches = Batches::new(warmup);
    let mut before: Vec<u64> = Vec::new();
    for (mark, figures) in series.iter().enumerate() {
        let changed = (0_u32..)
            .zip(*figures)
            .filter(|(s, bytes)| before.get(*s as usize).copied().unwrap_or(0) != **bytes)
            .map(|(s, bytes)| (StackId(s), held(*bytes)))
            .collect();
        let outstanding = Held {
            bytes: figures.iter().sum(),
            blocks: figures.iter().map(|bytes| bytes / 10).sum(),
        };
        let closed = Closed { outstanding, changed, ..Closed::default() };
        match mark {
            0 => batches.start(closed),
            _ => {
                batches.push(facts(), closed);
            }
        }
        before = figures.to_vec();
    }
    batches
}

#[test]
fn growth_is_the_last_measured_end_minus_the_end_of_the_warm_up() {
    let batches = batches(2, &[&[0], &[500], &[600], &[700], &[800], &[900]]);
    assert_eq!(batches.growth_of(StackId(0)), Change { bytes: 300, blocks: 30 });
    assert_eq!((batches.baseline(), batches.last()), (held(600), held(900)));
    let kinds: Vec<_> = batches.all().iter().map(|batch| batch.kind).collect();
    assert_eq!(kinds[..3], [Kind::Warmup, Kind::Warmup, Kind::Measured]);
    assert_eq!(batches.measured().len(), 3);
}

#[test]
fn without_warm_up_the_start_is_the_baseline() {
    let batches = batches(0, &[&[100], &[150]]);
    assert_eq!(batches.growth_of(StackId(0)).bytes, 50);
    assert_eq!(batches.baseline(), held(100));
}

#[test]
fn while_the_warm_up_lasts_nothing_grows() {
    let batches = batches(3, &[&[0], &[100], &[200]]);
    assert_eq!(batches.growth_of(StackId(0)), Change::default());
    assert_eq!((batches.measured(), batches.changes_of(StackId(0))), (&[][..], vec![]));
}

#[test]
fn what_shrank_is_negative_and_listed_last() {
    let batches = batches(1, &[&[0, 0, 0], &[10, 150, 30], &[110, 0, 230]]);
    let changed: Vec<_> =
        batches.changed_stacks().into_iter().map(|(id, change)| (id.0, change.bytes)).collect();
    assert_eq!(changed, [(2, 200), (0, 100), (1, -150)]);
}

#[test]
fn a_stack_that_never_changes_again_keeps_its_figure() {
    let batches = batches(0, &[&[0, 0], &[70, 0], &[70, 5], &[70, 0]]);
    for batch in 0..3 {
        assert_eq!(batches.held_by(StackId(0), batch), held(70));
    }
    assert_eq!(batches.held_by(StackId(1), 1), held(5));
    assert_eq!(batches.held_by(StackId(1), 2), held(0));
    assert_eq!(batches.held_by(StackId(9), 2), held(0));
}

proptest! {
    #[test]
    fn changes_sum_up_to_the_growth_and_stacks_to_the_total(
        warmup in 0_u32..4,
        series in proptest::collection::vec(proptest::collection::vec(0_u64..1000, 5), 1..9),
    ) {
        let series: Vec<&[u64]> = series.iter().map(Vec::as_slice).collect();
        let batches = batches(warmup, &series);
        let mut total = Change::default();
        for stack in (0..5).map(StackId) {
            let growth = batches.growth_of(stack);
            let changes = batches.changes_of(stack);
            prop_assert_eq!(changes.iter().map(|change| change.bytes).sum::<i64>(), growth.bytes);
            prop_assert_eq!(changes.len(), batches.measured().len());
            total.bytes += growth.bytes;
            total.blocks += growth.blocks;
        }
        prop_assert_eq!(total, Change::between(batches.baseline(), batches.last()));
    }
}
