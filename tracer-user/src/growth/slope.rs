//! Growth per batch as a slope that a few odd batches do not move: the median of the slopes
//! of all pairs of points (Theil 1950; Sen, JASA 63, 1968), with a confidence interval from the
//! ordered slopes themselves.
//!
//! Up to [`kendall::EXACT_POINTS`] points the interval comes from the exact distribution of
//! Kendall's statistic, which for equal figures errs on the side of a wider interval; beyond,
//! from Sen's normal approximation.

use super::kendall;

/// Points that are compared pair by pair; of a longer series, so many evenly spaced ones.
/// Half a million slopes took 17 ms (development profile, one run); a day of ten-second batches is 8,640 points.
const MOST_POINTS: usize = 1024;

/// A figure at the end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Number of the batch; points are in ascending order of it.
    pub batch: u32,
    /// Outstanding bytes.
    pub bytes: i64,
}

/// Where the true slope lies, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Bytes per batch.
    pub low: f64,
    /// Bytes per batch.
    pub high: f64,
    /// Probability that the true slope is within: 0.95 or more, but 11/12 for four points.
    pub confidence: f64,
}

/// Estimate of the growth per batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Bytes per batch.
    pub bytes_per_batch: f64,
    /// `None` for fewer than four points.
    pub interval: Option<Interval>,
}

/// The slope through `points`; `None` when no two of them have different batches.
pub fn theil_sen(points: &[Point]) -> Option<Slope> {
    let points = thinned(points);
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (place, from) in points.iter().enumerate() {
        for to in &points[place + 1..] {
            if from.batch < to.batch {
                let rise = i128::from(to.bytes) - i128::from(from.bytes);
                slopes.push(rise as f64 / f64::from(to.batch - from.batch));
            }
        }
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let bytes_per_batch = median(&slopes)?;
    Some(Slope { bytes_per_batch, interval: interval(&points, &slopes) })
}

fn interval(points: &[Point], slopes: &[f64]) -> Option<Interval> {
    if points.len() < 4 {
        return None;
    }
    let rank = kendall::exact_rank(points.len())
        .unwrap_or_else(|| kendall::normal_rank(points.len(), &ties(points)));
    // When all figures are equal nothing is left to either side of the middle.
    let outside = rank.outside.min(slopes.len().checked_sub(1)? / 2);
    Some(Interval {
        low: slopes[outside],
        high: slopes[slopes.len() - 1 - outside],
        confidence: rank.confidence,
    })
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => Some(sorted[middle]),
        _ => Some((sorted.get(middle.checked_sub(1)?)? + sorted[middle]) / 2.0),
    }
}

/// Sizes of the groups of equal figures.
fn ties(points: &[Point]) -> Vec<usize> {
    let mut bytes: Vec<i64> = points.iter().map(|point| point.bytes).collect();
    bytes.sort_unstable();
    bytes.chunk_by(|a, b| a == b).map(<[i64]>::len).filter(|len| 1 < *len).collect()
}

fn thinned(points: &[Point]) -> Vec<Point> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let last = points.len() - 1;
    (0..MOST_POINTS).map(|place| points[place * last / (MOST_POINTS - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn series(bytes: &[i64]) -> Vec<Point> {
        (0..).zip(bytes).map(|(batch, bytes)| Point { batch, bytes: *bytes }).collect()
    }

    fn check(bytes: &[i64], slope: f64, ends: Option<(f64, f64)>) {
        let found = theil_sen(&series(bytes)).expect("at least two points");
        assert_eq!(found.bytes_per_batch, slope, "slope of {bytes:?}");
        assert_eq!(found.interval.map(|at| (at.low, at.high)), ends, "interval of {bytes:?}");
    }

    #[test]
    fn a_line_is_exact_and_its_interval_a_point() {
        check(&[0, 6400, 12_800, 19_200, 25_600], 6400.0, Some((6400.0, 6400.0)));
        check(&[7; 9], 0.0, Some((0.0, 0.0)));
    }

    #[test]
    fn one_odd_batch_does_not_move_the_slope() {
        check(&[0, 10, 20, 9000, 40, 50, 60], 10.0, Some((10.0, 10.0)));
    }

    #[test]
    fn few_points_have_no_interval() {
        assert_eq!(theil_sen(&[]), None);
        assert_eq!(theil_sen(&series(&[5])), None);
        check(&[0, 10], 10.0, None);
        check(&[0, 10, 40], 20.0, None);
        check(&[0, 10, 40, 40], 40.0 / 3.0 + (15.0 - 40.0 / 3.0) / 2.0, Some((0.0, 30.0)));
    }

    /// Hundredths of the cloud seeding ratios of five years, example 9.1 of Hollander and
    /// Wolfe, "Nonparametric Statistical Methods", with the slope they find.
    #[test]
    fn five_points_take_the_full_range() {
        let found = theil_sen(&series(&[126, 127, 112, 116, 103])).expect("five points");
        assert!((found.bytes_per_batch - -5.625).abs() < 1e-12);
        let ends = found.interval.expect("five points");
        assert_eq!((ends.low, ends.high), (-15.0, 4.0));
        assert!((ends.confidence - (1.0 - 2.0 / 120.0)).abs() < 1e-12);
    }

    #[test]
    fn huge_figures_do_not_overflow() {
        check(
            &[i64::MIN, i64::MAX, i64::MIN, i64::MAX],
            2_f64.powi(64) / 6.0,
            Some((-(2_f64.powi(64)), 2_f64.powi(64))),
        );
        check(&[0, 1 << 62, 1 << 62, 1 << 62], 2_f64.powi(62) / 6.0, Some((0.0, 2_f64.powi(62))));
    }

    #[test]
    fn a_day_of_short_batches_is_still_a_line() {
        let bytes: Vec<i64> = (0..8640).map(|batch| batch * 24).collect();
        check(&bytes, 24.0, Some((24.0, 24.0)));
    }

    proptest! {
        #[test]
        fn turning_the_series_over_turns_the_answer_over(
            bytes in proptest::collection::vec(-1_000_000_i64..1_000_000, 4..80),
        ) {
            let there = theil_sen(&series(&bytes)).expect("points");
            let turned: Vec<i64> = bytes.iter().map(|bytes| -bytes).collect();
            let back = theil_sen(&series(&turned)).expect("points");
            prop_assert_eq!(there.bytes_per_batch, -back.bytes_per_batch);
            let (there_in, back_in) =
                (there.interval.expect("points"), back.interval.expect("points"));
            prop_assert_eq!(there_in.low, -back_in.high);
            prop_assert!(there_in.low <= there.bytes_per_batch);
            prop_assert!(there.bytes_per_batch <= there_in.high);
        }

        #[test]
        fn what_is_added_per_batch_is_added_to_the_answer(
            bytes in proptest::collection::vec(-1_000_000_i64..1_000_000, 4..40),
            step in -1000_i64..1000,
        ) {
            let plain = theil_sen(&series(&bytes)).expect("points");
            let tilted: Vec<i64> = (0..).zip(&bytes).map(|(at, bytes)| bytes + at * step).collect();
            let tilted = theil_sen(&series(&tilted)).expect("points");
            let moved = plain.bytes_per_batch + step as f64;
            prop_assert!((moved - tilted.bytes_per_batch).abs() < 1e-6);
        }
    }
}
