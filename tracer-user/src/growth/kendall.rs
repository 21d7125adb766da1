//! The null distribution of Kendall's statistic: how many of the n(n-1)/2 pairs of a random
//! order are in order. Kendall, "A New Measure of Rank Correlation", Biometrika 30 (1938);
//! table A.30 of Hollander and Wolfe, "Nonparametric Statistical Methods", has its values.

/// Points up to which the distribution is counted exactly; the normal approximation is better
/// than a rank beyond.
pub(super) const EXACT_POINTS: usize = 60;

/// 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// A rank from both ends of the ordered pairwise slopes, and how sure the slopes between are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rank {
    /// Slopes that lie outside on each side, from zero.
    pub(super) outside: usize,
    /// Probability that the true slope is within.
    pub(super) confidence: f64,
}

/// The largest rank whose confidence is at least 95 %, counted exactly; rank 0 with what it has
/// when there is none. `None` below two points or above [`EXACT_POINTS`].
pub(super) fn exact_rank(n_points: usize) -> Option<Rank> {
    if !(2..=EXACT_POINTS).contains(&n_points) {
        return None;
    }
    let probabilities = distribution(n_points);
    let mut rank = Rank { outside: 0, confidence: 1.0 - 2.0 * probabilities[0] };
    let mut tail = probabilities[0];
    for (outside, probability) in probabilities.iter().enumerate().skip(1) {
        tail += probability;
        let confidence = 1.0 - 2.0 * tail;
        if confidence < 0.95 {
            break;
        }
        rank = Rank { outside, confidence };
    }
    Some(rank)
}

/// Sen's interval by the normal approximation: Sen, "Estimates of the Regression Coefficient
/// Based on Kendall's Tau", JASA 63 (1968), with the variance of Kendall's statistic corrected
/// for equal figures (formula 2.8 there). `ties` are the sizes of the groups of equal figures.
pub(super) fn normal_rank(n_points: usize, ties: &[usize]) -> Rank {
    let term = |count: usize| {
        let count = count as f64;
        count * (count - 1.0) * (2.0 * count + 5.0)
    };
    let variance =
        (term(n_points) - ties.iter().map(|count| term(*count)).sum::<f64>()).max(0.0) / 18.0;
    let n_slopes = (n_points * n_points.saturating_sub(1) / 2) as f64;
    let outside = ((n_slopes - Z * variance.sqrt()) / 2.0).floor().max(0.0);
    Rank { outside: outside as usize, confidence: 0.95 }
}

/// Probability of k pairs in order, for each k: insert the points one after the other, each in
/// any place with the same chance.
fn distribution(n_points: usize) -> Vec<f64> {
    let mut probabilities = vec![1.0];
    for n in 2..=n_points {
        let mut next = vec![0.0; probabilities.len() + n - 1];
        for (pairs, probability) in probabilities.iter().enumerate() {
            for place in 0..n {
                next[pairs + place] += probability / n as f64;
            }
        }
        probabilities = next;
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper tail P(K >= k) of table A.30, with K = pairs in order minus pairs out of order.
    #[test]
    fn tails_are_those_of_the_printed_table() {
        for (n, k, tail) in [
            (4, 6, 0.042),
            (4, 4, 0.167),
            (5, 10, 0.008),
            (5, 8, 0.042),
            (6, 15, 0.001),
            (6, 11, 0.028),
            (7, 15, 0.015),
            (8, 16, 0.031),
            (8, 18, 0.016),
            (9, 18, 0.038),
            (9, 20, 0.022),
            (10, 21, 0.036),
            (10, 23, 0.023),
        ] {
            let n_pairs = n * (n - 1) / 2;
            let at_least: f64 = distribution(n)[(n_pairs + k).div_ceil(2)..].iter().sum();
            assert!((at_least - tail).abs() < 0.0006, "n {n}, K >= {k}: {at_least}, not {tail}");
        }
    }

    #[test]
    fn probabilities_sum_up_to_one() {
        for n in 2..=EXACT_POINTS {
            let sum: f64 = distribution(n).iter().sum();
            assert!((sum - 1.0).abs() < 1e-9, "{n} points: {sum}");
        }
    }

    #[test]
    fn four_points_take_the_full_range_at_eleven_twelfths() {
        let rank = exact_rank(4).expect("four points");
        assert_eq!(rank.outside, 0);
        assert!((rank.confidence - 11.0 / 12.0).abs() < 1e-12);
    }

    /// Of the 24 orders of 4, ... ranks follow from the tails: 5 points leave none outside
    /// (1/120 on each side), 6 leave one (6/720), 9 leave eight, 10 leave eleven.
    #[test]
    fn ranks_of_few_points_are_exact() {
        for (n, outside) in [(2, 0), (3, 0), (5, 0), (6, 1), (9, 8), (10, 11)] {
            let rank = exact_rank(n).expect("few points");
            assert_eq!(rank.outside, outside, "{n} points");
            assert!(n < 5 || 0.95 <= rank.confidence);
        }
        assert_eq!(exact_rank(1), None);
    }

    #[test]
    fn approximation_and_count_agree_where_they_meet() {
        let exact = exact_rank(EXACT_POINTS).expect("as many as are counted");
        let normal = normal_rank(EXACT_POINTS, &[]);
        assert!(exact.outside.abs_diff(normal.outside) <= 2, "{exact:?} {normal:?}");
    }

    #[test]
    fn equal_figures_narrow_the_interval() {
        assert!(normal_rank(20, &[]).outside < normal_rank(20, &[5, 5]).outside);
        assert_eq!(normal_rank(20, &[20]).outside, 95);
    }
}
