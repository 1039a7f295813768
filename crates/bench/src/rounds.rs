//! What runs more than once: medians, and runs that take turns.

use ccplane_lab::metrics::Distribution;
use ccplane_lab::stats::{Ratio, median_ratio};

/// The median; no number where there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Distribution::new(values).median().unwrap_or(f64::NAN)
}

/// The median of each figure over so many runs.
pub fn medians<const N: usize, E>(
    runs: usize,
    mut run: impl FnMut() -> Result<[f64; N], E>,
) -> Result<[f64; N], E> {
    let all = (0..runs).map(|_| run()).collect::<Result<Vec<_>, E>>()?;
    Ok(std::array::from_fn(|figure| {
        median(all.iter().map(|run| run[figure]))
    }))
}

/// What came of runs that took turns.
pub struct Turns<W, T>(Vec<(W, Vec<T>)>);

impl<W: Copy + PartialEq, T> Turns<W, T> {
    /// So many rounds, in each of which everybody runs once: a disturbance of the machine meets all
    /// alike. `run` hears the round, from 0, and who.
    pub fn take<E>(
        rounds: usize,
        who: &[W],
        mut run: impl FnMut(usize, W) -> Result<T, E>,
    ) -> Result<Turns<W, T>, E> {
        let mut all = Turns(who.iter().map(|who| (*who, Vec::new())).collect());
        for round in 0..rounds {
            for (who, runs) in &mut all.0 {
                runs.push(run(round, *who)?);
            }
        }
        Ok(all)
    }

    /// Everybody's runs.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|(_, runs)| runs)
    }

    /// The runs of one, a round each; none of one who took no turns.
    pub fn of(&self, who: W) -> &[T] {
        let found = self.0.iter().find(|(one, _)| *one == who);
        found.map_or(&[], |(_, runs)| runs)
    }

    /// The median over rounds.
    pub fn median(&self, who: W, value: impl Fn(&T) -> f64) -> f64 {
        median(self.of(who).iter().map(value))
    }

    /// Of each round one's value over that of the other, who ran beside it.
    pub fn ratios(&self, who: W, base: W, value: impl Fn(&T) -> f64) -> Vec<f64> {
        let pairs = self.of(who).iter().zip(self.of(base));
        pairs.map(|(run, base)| value(run) / value(base)).collect()
    }

    /// Their median, with the 95 % interval of a bootstrap over rounds where there are rounds
    /// enough for one.
    pub fn ratio(&self, who: W, base: W, value: impl Fn(&T) -> f64) -> Option<Ratio> {
        let pairs = self.of(who).iter().zip(self.of(base));
        median_ratio(
            &pairs
                .map(|(run, base)| (value(run), value(base)))
                .collect::<Vec<_>>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_runs_once_a_round_and_is_compared_with_who_ran_beside() {
        let mut order = Vec::new();
        let turns = Turns::take(3, &['a', 'b'], |round, who| {
            order.push((round, who));
            Ok::<_, ()>(if who == 'a' { 2.0 } else { (round + 1) as f64 })
        })
        .unwrap();
        assert_eq!(
            order,
            [(0, 'a'), (0, 'b'), (1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')]
        );
        assert_eq!(turns.ratios('b', 'a', |v| *v), [0.5, 1.0, 1.5]);
        assert_eq!((turns.median('b', |v| *v), turns.of('c').len()), (2.0, 0));
        assert!((turns.ratio('b', 'a', |v| *v).unwrap().value - 1.0).abs() < 1e-12);
        assert_eq!(
            Turns::take(3, &['a'], |_, _| Err::<(), _>("no")).err(),
            Some("no")
        );
    }

    #[test]
    fn medians_are_of_each_figure() {
        let mut runs = [[3.0, 10.0], [1.0, 30.0], [2.0, 20.0]].into_iter();
        assert_eq!(medians(3, || runs.next().ok_or(())), Ok([2.0, 20.0]));
        assert!(median([]).is_nan());
    }
}
