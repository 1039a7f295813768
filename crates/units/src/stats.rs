//! Plain statistics of measured values, with the definitions that the workspace uses.
//!
//! Functions of *sorted* values expect ascending order and do not check it. Histograms, which know
//! their values only by bucket, have quantiles of their own.

/// Sorts numbers in the order of [`f64::total_cmp`]. As a function that is not generic, it is
/// compiled, and optimised, in this crate, even for callers built without optimisation.
pub fn sort_floats(values: &mut [f64]) {
    values.sort_unstable_by(f64::total_cmp);
}

/// Returns the arithmetic mean, summed in the given order; `None` without values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    // As in the standard library's sum of floats, the start does not change the sign of -0.
    let (sum, count) = values
        .into_iter()
        .fold((-0.0, 0_u64), |(sum, count), value| {
            (sum + value, count + 1)
        });
    (count > 0).then(|| sum / count as f64)
}

/// Returns the sum of squared differences from `mean`. Divided by the number of values it is the
/// variance of these values. Divided by one less it estimates the variance of their population.
pub fn squared_deviations(values: impl IntoIterator<Item = f64>, mean: f64) -> f64 {
    values
        .into_iter()
        .map(|value| (value - mean) * (value - mean))
        .sum()
}

/// Returns the mean and the variance (divided by the number of values); `None` without values.
pub fn mean_and_variance(values: &[f64]) -> Option<(f64, f64)> {
    let mean = mean(values.iter().copied())?;
    let squares = squared_deviations(values.iter().copied(), mean);
    Some((mean, squares / values.len() as f64))
}

/// Returns the median of sorted values: of an even number of values, the mean of the middle two.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = if sorted.len().is_multiple_of(2) {
        *sorted.get(sorted.len() / 2 - 1)?
    } else {
        upper
    };
    Some((lower + upper) / 2.0)
}

/// Returns the `p`-quantile of sorted values by nearest rank (definition 1 of Hyndman and Fan
/// 1996): the smallest value `v` such that at least the share `p` (0 to 1) of the values are at
/// most `v`. It never interpolates, so values need no arithmetic.
pub fn nearest_rank<T: Copy>(sorted: &[T], p: f64) -> Option<T> {
    let rank = p.clamp(0.0, 1.0) * sorted.len() as f64;
    let below = rank as usize;
    let rank = below + usize::from(rank > below as f64);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns the value at index `p`·n of n sorted values, rounded down and at most the last: the
/// largest value with at most the share `p` of the values before it. For 0 < `p` < 1 it is one rank
/// above [`nearest_rank`] if `p`·n is whole, so the upper one of two middle values is the median.
pub fn upper_rank<T: Copy>(sorted: &[T], p: f64) -> Option<T> {
    let index = (p.clamp(0.0, 1.0) * sorted.len() as f64) as usize;
    sorted.get(index).or(sorted.last()).copied()
}

/// Returns the `p`-quantile of sorted values with linear interpolation (definition 7 of Hyndman and
/// Fan, the default of R): the value at index `p`·(n − 1), counted from 0.
pub fn interpolated_quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let index = interpolation_index(sorted.len(), p);
    let below = index as usize;
    let low = *sorted.get(below)?;
    let part = index - below as f64;
    let high = if part > 0.0 {
        *sorted.get(below + 1)?
    } else {
        low
    };
    Some(low + (high - low) * part)
}

/// Returns the value nearest to the index of [`interpolated_quantile`].
pub fn nearest_index<T: Copy>(sorted: &[T], p: f64) -> Option<T> {
    let index = interpolation_index(sorted.len(), p);
    let below = index as usize;
    let nearest = below + usize::from(index - below as f64 >= 0.5);
    sorted.get(nearest).copied()
}

fn interpolation_index(count: usize, p: f64) -> f64 {
    p.clamp(0.0, 1.0) * count.saturating_sub(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mean_and_variance_of_a_sample() {
        assert_eq!(mean([]), None);
        assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(
            mean_and_variance(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]),
            Some((5.0, 4.0))
        );
    }

    #[test]
    fn quantiles_follow_their_definitions() {
        // The textbook example of the nearest-rank method.
        let sorted = [15, 20, 35, 40, 50];
        for (p, value) in [
            (0.0, 15),
            (0.05, 15),
            (0.3, 20),
            (0.4, 20),
            (0.5, 35),
            (1.0, 50),
        ] {
            assert_eq!(nearest_rank(&sorted, p), Some(value), "{p}");
        }
        for (p, value) in [(0.0, 15), (0.12, 15), (0.125, 20), (0.5, 35), (1.0, 50)] {
            assert_eq!(nearest_index(&sorted, p), Some(value), "{p}");
        }
        for (p, value) in [(0.0, 15), (0.19, 15), (0.2, 20), (0.5, 35), (1.0, 50)] {
            assert_eq!(upper_rank(&sorted, p), Some(value), "{p}");
        }
        assert_eq!(upper_rank(&sorted[..4], 0.5), Some(35));
        assert_eq!(nearest_rank(&sorted[..4], 0.5), Some(20));
        // R: quantile(c(1:9, 30)).
        let sorted = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 30.0];
        for (p, value) in [
            (0.0, 1.0),
            (0.25, 3.25),
            (0.5, 5.5),
            (0.75, 7.75),
            (1.0, 30.0),
        ] {
            assert_eq!(interpolated_quantile(&sorted, p), Some(value), "{p}");
        }
        assert_eq!(median(&sorted), Some(5.5));
        assert_eq!(median(&sorted[..3]), Some(2.0));
        assert_eq!((median(&[]), nearest_rank::<u64>(&[], 0.5)), (None, None));
        assert_eq!(interpolated_quantile(&[], 0.5), None);
        assert_eq!(nearest_index::<u64>(&[], 0.5), None);
        assert_eq!(upper_rank::<u64>(&[], 0.5), None);
        let mut values = [2.0, f64::NAN, -0.0, 0.0, f64::NEG_INFINITY];
        sort_floats(&mut values);
        assert_eq!(values[..4], [f64::NEG_INFINITY, -0.0, 0.0, 2.0]);
        assert!(values[1].is_sign_negative() && values[4].is_nan());
    }

    proptest! {
        #[test]
        fn indices_are_those_of_the_rounding_functions(n in 1usize..300, p in 0.0f64..=1.0) {
            let sorted: Vec<usize> = (0..n).collect();
            let rank = ((p * n as f64).ceil() as usize).saturating_sub(1);
            prop_assert_eq!(nearest_rank(&sorted, p), Some(rank));
            prop_assert_eq!(upper_rank(&sorted, p), Some(((p * n as f64) as usize).min(n - 1)));
            prop_assert_eq!(nearest_index(&sorted, p), Some((p * (n - 1) as f64).round() as usize));
        }
    }
}
