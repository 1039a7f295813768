//! What flows received over time.

use ccplane_lab::metrics::{self, Distribution};
use ccplane_lab::result::Sample;
use ccplane_units::Duration;

use super::seen::Run;

/// The standard deviation of a flow's rates over their mean.
pub(super) fn variation(rates: &[f64]) -> Option<f64> {
    let mean = Distribution::new(rates.iter().copied())
        .mean()
        .filter(|mean| *mean > 0.0)?;
    let square =
        Distribution::new(rates.iter().map(|rate| (rate - mean) * (rate - mean))).mean()?;
    Some(square.sqrt() / mean)
}

/// Of each flow that was looked at, what it received between two looks, Mbit/s, from the run's
/// beginning.
pub(super) fn rates(run: &Run<'_>) -> Vec<Vec<f64>> {
    let look = run.scenario.sample_every.as_nanos().max(1);
    let looks = (run.scenario.duration.as_nanos() / look) as usize;
    let flow = |samples: &Vec<Sample>| {
        let mut rates = vec![0.0; looks];
        let mut before = 0;
        for sample in samples.iter().filter(|sample| sample.at_ns > 0) {
            let at = (sample.at_ns / look) as usize;
            if let Some(rate) = at.checked_sub(1).and_then(|at| rates.get_mut(at)) {
                *rate = metrics::mbits(sample.received.saturating_sub(before), look);
            }
            before = sample.received;
        }
        rates
    };
    run.result.series.flows.iter().map(flow).collect()
}

/// What these flows are called, by their workloads, where there are several of them.
pub(super) fn names(run: &Run<'_>) -> Vec<String> {
    let series = &run.result.series;
    if series.workloads.is_empty() {
        return Vec::new();
    }
    let mut names = vec![String::new(); series.flows.len()];
    for (workload, own) in run.scenario.workloads.iter().zip(&series.workloads) {
        for (place, n) in own.flows.iter().zip(1..) {
            let Some(name) = names.get_mut(*place) else {
                continue;
            };
            *name = match own.flows.len() {
                1 => workload.name.clone(),
                _ => format!("{} {n}", workload.name),
            };
        }
    }
    names
}

/// The same over spans of this length, once the run is warm.
pub(super) fn rates_over(run: &Run<'_>, span: Duration) -> Vec<Vec<f64>> {
    let look = run.scenario.sample_every.as_nanos().max(1);
    let (warm, looks) = (
        (run.scenario.warm_up.as_nanos() / look) as usize,
        (span.as_nanos() / look).max(1) as usize,
    );
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len().max(1) as f64;
    let flow = |rates: &Vec<f64>| {
        let counted = rates.get(warm..).unwrap_or_default();
        counted.chunks_exact(looks).map(mean).collect()
    };
    rates(run).iter().map(flow).collect()
}

#[cfg(test)]
mod tests {
    use ccplane_lab::result::{ContenderResult, Series};
    use ccplane_lab::scenario::Scenario;
    use ccplane_qdisc::QueueSpec;
    use ccplane_units::Rate;

    use super::super::measure::Measure;
    use super::*;

    /// Two flows that take turns.
    #[test]
    fn what_is_unfair_for_a_moment_may_be_fair_for_longer() {
        let ms = Duration::from_millis;
        let turns = |flow: u64| {
            let sample = |look: u64| Sample {
                at_ns: ms(look).as_nanos(),
                received: (look + flow) / 2 * 1_000,
                ..Sample::default()
            };
            (0..=300).map(sample).collect()
        };
        let result = ContenderResult {
            series: Series {
                flows: vec![turns(0), turns(1)],
                ..Series::default()
            },
            ..ContenderResult::default()
        };
        let rate = Rate::from_bits_per_sec(10_000_000_000);
        let mut scenario =
            Scenario::dumbbell(Vec::new(), rate, ms(1), QueueSpec::UNLIMITED, ms(300))
                .with_sample_interval(ms(1));
        scenario.warm_up = ms(100);
        let run = Run {
            scenario: &scenario,
            packet_us: 1.2,
            result: &result,
        };
        let of = |name: &str| Measure::read(name).unwrap().of(&run);
        assert_eq!((of("jain(1ms)"), of("jain(10ms)")), (Some(0.5), Some(1.0)));
        assert_eq!(
            (of("variation(1ms)"), of("variation(10ms)")),
            (Some(1.0), Some(0.0))
        );
        assert_eq!(rates(&run)[1][..4], [8.0, 0.0, 8.0, 0.0]);
    }
}
