//! Combination of several runs of a contender into one result: means with intervals, and pooled
//! distributions.
//!
//! Runs are the seeds of a simulation or repeats on real packets. Usually there are few, so the
//! interval of their mean uses Student's t.

use ccplane_sim::Digest;
use ccplane_units::Bytes;

use crate::record::completions;
use crate::result::{
    AlgorithmMetrics, Audit, BundleMetrics, Columns, Completion, ContenderMetrics, ContenderResult,
    EachRun, EmulatorAudit, HostMetrics, MeanInterval, SimulationAudit, Spread, TotalsColumns,
    WorkloadMetrics, WorkloadTotals,
};
use crate::stats;

/// Kind of several runs of one contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// Simulations with different seeds.
    Seeds,
    /// Repeats on real packets.
    Repeats,
}

impl Runs {
    fn word(self) -> &'static str {
        match self {
            Runs::Seeds => "seeds",
            Runs::Repeats => "repeats",
        }
    }
}

/// Combines one contender's results, in the order of their seeds or repeats. The first result keeps
/// its time series; the others contribute only bins and completions. `bounds` are the upper bounds
/// of the size classes.
pub(crate) fn together(
    runs: Vec<(u64, ContenderResult)>,
    of: Runs,
    bounds: &[Bytes],
) -> Option<ContenderResult> {
    let (seeds, mut all): (Vec<u64>, Vec<ContenderResult>) = runs.into_iter().unzip();
    if all.len() < 2 {
        return all.pop();
    }
    let interval = interval(&all, of);
    let (means, spread) = metrics(&all, interval, bounds)?;
    let workloads = workloads(&all, interval, bounds);
    let algorithms = algorithms(&all, interval);
    let (host, audit) = (host(&all), audit(&all, &seeds, of));
    let each = seeds.iter().zip(&all).map(|(seed, c)| EachRun {
        seed: *seed,
        metrics: columns(&|value| value(&c.metrics).unwrap_or(0.0)),
    });
    let each: Vec<EachRun> = each.collect();
    let pooled = (
        all.iter().flat_map(|c| c.series.throughputs()).collect(),
        all.iter().flat_map(|c| c.series.delays()).collect(),
    );
    let completed: Vec<Completion> = all
        .iter()
        .flat_map(|c| c.series.completed.iter().copied())
        .collect();
    let by_workload: Vec<Vec<Completion>> = (0..workloads.len())
        .map(|at| completed_of(&all, at))
        .collect();
    let mut one = all.swap_remove(0);
    one.series.pooled = Some(pooled);
    one.series.completed = completed;
    for (workload, completed) in one.series.workloads.iter_mut().zip(by_workload) {
        workload.completed = completed;
    }
    one.series.each = each;
    Some(ContenderResult {
        metrics: means,
        workloads,
        algorithms,
        host,
        audit,
        spread: Some(spread),
        ..one
    })
}

/// Returns the explanation of results that combine several runs; empty for one run. `first` is the
/// seed or number of the first run.
pub(crate) fn note(contenders: &[ContenderResult], of: Runs, first: u64) -> String {
    let Some(runs) = contenders
        .iter()
        .filter_map(|c| Some(c.spread?.seeds))
        .max()
    else {
        return String::new();
    };
    let word = of.word();
    let same = |c: &&ContenderResult| {
        c.spread
            .is_some_and(|spread| spread.interval == MeanInterval::Same)
    };
    let alike: Vec<&str> = contenders
        .iter()
        .filter(same)
        .map(|c| c.label.as_str())
        .collect();
    if alike.len() == contenders.len() {
        return match contenders.iter().all(nothing_random) {
            true => {
                format!("The scenario has no randomness: all {runs} {word} gave the same results.")
            }
            false => format!("All {runs} {word} gave the same results."),
        };
    }
    let mut kinds = contenders.iter().filter_map(|c| Some(c.spread?.interval));
    let kind = kinds
        .find(|kind| *kind != MeanInterval::Same)
        .unwrap_or_default();
    let how = match kind {
        MeanInterval::StudentT => {
            format!("Means over {runs} {word} with their 95 % confidence intervals (Student's t).")
        }
        MeanInterval::Range | MeanInterval::Same => {
            format!(
                "Means over {runs} {word}, with both values in brackets: two runs are too few for \
                 an interval."
            )
        }
    };
    let exceptions = match alike.as_slice() {
        [] => String::new(),
        alike => format!(
            " All {word} gave the same results for {}.",
            alike.join(", ")
        ),
    };
    let one = match of {
        Runs::Seeds => "seed",
        Runs::Repeats => "repeat",
    };
    format!(
        "{how}{exceptions} The distributions include all {word}; time series, flows and links are \
         from {one} {first}."
    )
}

/// Returns true if its runs were identical to the last event.
fn nothing_random(contender: &ContenderResult) -> bool {
    let simulation = contender.audit.simulation.as_ref();
    simulation.is_some_and(|simulation| simulation.alike)
}

/// Selects the interval for the means of these runs.
fn interval(all: &[ContenderResult], of: Runs) -> MeanInterval {
    let first = all.first();
    let same = |c: &ContenderResult| {
        first.is_some_and(|first| (&first.metrics, &first.workloads) == (&c.metrics, &c.workloads))
    };
    match of {
        Runs::Seeds if all.iter().all(same) => MeanInterval::Same,
        _ if all.len() == 2 => MeanInterval::Range,
        Runs::Seeds | Runs::Repeats => MeanInterval::StudentT,
    }
}

/// Returns the statistic of a column. Runs without a value are left out.
type Pick<'p, T> = &'p dyn Fn(fn(&T) -> Option<f64>) -> f64;

fn columns(pick: Pick<'_, ContenderMetrics>) -> Columns {
    Columns {
        goodput_mbit: pick(|f| Some(f.goodput_mbit)),
        utilisation: pick(|f| Some(f.utilisation)),
        delay_mean_ms: pick(|f| Some(f.delay_mean_ms)),
        delay_p50_ms: pick(|f| Some(f.delay_p50_ms)),
        delay_p95_ms: pick(|f| Some(f.delay_p95_ms)),
        delay_p99_ms: pick(|f| Some(f.delay_p99_ms)),
        retransmissions: pick(|f| Some(f.retransmissions as f64)),
        queue_drops: pick(|f| Some(f.queue_drops as f64)),
        jain: pick(|f| f.jain),
    }
}

fn totals_columns(pick: Pick<'_, WorkloadTotals>) -> TotalsColumns {
    TotalsColumns {
        count: pick(|t| Some(t.count as f64)),
        goodput_mbit: pick(|t| Some(t.goodput_mbit)),
        share: pick(|t| Some(t.share)),
        retransmissions: pick(|t| t.retransmissions.map(|n| n as f64)),
        jain: pick(|t| t.jain),
    }
}

/// Computes the means of all columns and their intervals.
fn spread<T, C>(
    runs: &[&T],
    interval: MeanInterval,
    columns: fn(Pick<'_, T>) -> C,
) -> (C, Spread<C>) {
    let of =
        |value: fn(&T) -> Option<f64>| estimate(runs.iter().filter_map(|run| value(run)), interval);
    let both = interval == MeanInterval::Range;
    let spread = Spread {
        seeds: runs.len() as u64,
        interval,
        half: columns(&|value| of(value).half),
        low: both.then(|| columns(&|value| of(value).low)),
        high: both.then(|| columns(&|value| of(value).high)),
    };
    (columns(&|value| of(value).mean), spread)
}

fn metrics(
    all: &[ContenderResult],
    interval: MeanInterval,
    bounds: &[Bytes],
) -> Option<(ContenderMetrics, Spread)> {
    let runs: Vec<&ContenderMetrics> = all.iter().map(|c| &c.metrics).collect();
    let (mean, spread) = spread(&runs, interval, columns);
    let losses = estimate(runs.iter().map(|f| f.random_losses as f64), interval);
    let completed: Vec<Completion> = all
        .iter()
        .flat_map(|c| c.series.completed.iter().copied())
        .collect();
    let ended = || runs.iter().filter_map(|f| f.completions.as_ref());
    let unfinished = ended().map(|c| c.unfinished).sum();
    let first = runs.first()?;
    let one = ContenderMetrics {
        goodput_mbit: mean.goodput_mbit,
        utilisation: mean.utilisation,
        delay_mean_ms: mean.delay_mean_ms,
        delay_p50_ms: mean.delay_p50_ms,
        delay_p95_ms: mean.delay_p95_ms,
        delay_p99_ms: mean.delay_p99_ms,
        retransmissions: mean.retransmissions.round() as u64,
        queue_drops: mean.queue_drops.round() as u64,
        random_losses: losses.mean.round() as u64,
        jain: first.jain.map(|_| mean.jain),
        completions: ended()
            .next()
            .map(|_| completions(&completed, unfinished, bounds)),
        flows: first.flows.clone(),
        links: first.links.clone(),
        one_way: first.one_way.clone(),
        second_loop: runs.iter().map(|f| f.second_loop.as_ref()).sum(),
        bundles: bundles(&runs),
    };
    Some((one, spread))
}

/// Combines the metrics of the same bundles of all runs.
fn bundles(metrics: &[&ContenderMetrics]) -> Vec<BundleMetrics> {
    let count = metrics.first().map_or(0, |first| first.bundles.len());
    let one = |at| {
        let runs: Vec<&BundleMetrics> = metrics.iter().filter_map(|f| f.bundles.get(at)).collect();
        BundleMetrics::mean_of(&runs)
    };
    (0..count).map(one).collect()
}

/// Combines the totals of the same workloads of all runs.
fn totals(runs: &[&WorkloadTotals], interval: MeanInterval) -> WorkloadTotals {
    let (mean, spread) = spread(runs, interval, totals_columns);
    let any = |known: fn(&WorkloadTotals) -> bool| runs.iter().any(|run| known(run));
    WorkloadTotals {
        count: mean.count.round() as u64,
        goodput_mbit: mean.goodput_mbit,
        share: mean.share,
        retransmissions: any(|t| t.retransmissions.is_some())
            .then(|| mean.retransmissions.round() as u64),
        jain: any(|t| t.jain.is_some()).then_some(mean.jain),
        spread: Some(spread),
    }
}

/// Returns the completed flows of a workload in all runs.
fn completed_of(all: &[ContenderResult], at: usize) -> Vec<Completion> {
    let series = all.iter().filter_map(|c| c.series.workloads.get(at));
    series
        .flat_map(|workload| workload.completed.iter().copied())
        .collect()
}

/// Combines the workloads. The flows are taken from the first run.
fn workloads(
    all: &[ContenderResult],
    interval: MeanInterval,
    bounds: &[Bytes],
) -> Vec<WorkloadMetrics> {
    let first = all.first().map_or(&[][..], |first| &first.workloads);
    let one = |(at, first): (usize, &WorkloadMetrics)| {
        let runs: Vec<&WorkloadMetrics> = all.iter().filter_map(|c| c.workloads.get(at)).collect();
        let each: Vec<&WorkloadTotals> = runs.iter().map(|w| &w.totals).collect();
        let ended = || runs.iter().filter_map(|w| w.completions.as_ref());
        let unfinished = ended().map(|c| c.unfinished).sum();
        WorkloadMetrics {
            totals: totals(&each, interval),
            completions: ended()
                .next()
                .map(|_| completions(&completed_of(all, at), unfinished, bounds)),
            fell_back: runs.iter().map(|w| w.fell_back).sum(),
            failed: runs.iter().map(|w| w.failed).sum(),
            false_receipts: runs.iter().map(|w| w.false_receipts).sum(),
            ..first.clone()
        }
    };
    first.iter().enumerate().map(one).collect()
}

fn algorithms(all: &[ContenderResult], interval: MeanInterval) -> Vec<AlgorithmMetrics> {
    let first = all.first().map_or(&[][..], |first| &first.algorithms);
    let one = |(at, first): (usize, &AlgorithmMetrics)| {
        let each: Vec<&WorkloadTotals> = all
            .iter()
            .filter_map(|c| Some(&c.algorithms.get(at)?.totals))
            .collect();
        AlgorithmMetrics {
            totals: totals(&each, interval),
            ..first.clone()
        }
    };
    first.iter().enumerate().map(one).collect()
}

/// Combines the costs: means, and the sum of the wall times.
fn host(all: &[ContenderResult]) -> HostMetrics {
    let sum = |value: fn(&HostMetrics) -> Option<f64>| {
        all.iter().map(|c| value(&c.host)).sum::<Option<f64>>()
    };
    let mean =
        |value: fn(&HostMetrics) -> Option<f64>| sum(value).map(|sum| sum / all.len() as f64);
    HostMetrics {
        reports_per_s: mean(|h| h.reports_per_s),
        agent_cpu_percent: mean(|h| h.agent_cpu_percent),
        process_cpu_percent: mean(|h| h.process_cpu_percent),
        machine_cpu_percent: mean(|h| h.machine_cpu_percent),
        cpu_s_per_gb: mean(|h| h.cpu_s_per_gb),
        wall_s: sum(|h| h.wall_s),
    }
}

/// Combines the audits, with the worst values of the emulators.
fn audit(all: &[ContenderResult], seeds: &[u64], of: Runs) -> Audit {
    let each = |what: fn(&Audit) -> &Vec<String>| -> Vec<String> {
        let runs = seeds.iter().zip(all);
        let said = runs.flat_map(|(seed, c)| what(&c.audit).iter().map(move |text| (seed, text)));
        let told = |(seed, text): (&u64, &String)| match of {
            Runs::Seeds => text.clone(),
            Runs::Repeats => format!("repeat {seed}: {text}"),
        };
        said.map(told).collect()
    };
    let simulations: Vec<_> = all
        .iter()
        .filter_map(|c| c.audit.simulation.as_ref())
        .collect();
    let emulators: Vec<_> = all
        .iter()
        .filter_map(|c| c.audit.emulator.as_ref())
        .collect();
    let worst =
        |value: fn(&EmulatorAudit) -> f64| emulators.iter().map(|a| value(a)).fold(0.0, f64::max);
    let complaints = each(|audit| &audit.complaints);
    Audit {
        emulator: emulators.first().map(|first| EmulatorAudit {
            timing: first.timing.clone(),
            lateness_p50_us: worst(|a| a.lateness_p50_us),
            lateness_p99_us: worst(|a| a.lateness_p99_us),
            lateness_max_us: worst(|a| a.lateness_max_us),
            own_drops: emulators.iter().map(|a| a.own_drops).sum(),
        }),
        simulation: simulations.first().map(|first| SimulationAudit {
            events: simulations.iter().map(|a| a.events).sum(),
            hops: simulations.iter().map(|a| a.hops).sum(),
            digest: digest(&simulations),
            alike: simulations.iter().all(|other| other.digest == first.digest),
        }),
        sound: complaints.is_empty(),
        complaints,
        disturbed: each(|audit| &audit.disturbed),
        own: each(|audit| &audit.own),
    }
}

fn digest(audits: &[&SimulationAudit]) -> String {
    let mut all = Digest::default();
    audits
        .iter()
        .for_each(|audit| all.add(u64::from_str_radix(&audit.digest, 16).unwrap_or(0)));
    format!("{:016x}", all.value())
}

/// Mean with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct MeanEstimate {
    mean: f64,
    /// Half of the distance from `low` to `high`.
    half: f64,
    low: f64,
    high: f64,
}

fn estimate(values: impl Iterator<Item = f64>, interval: MeanInterval) -> MeanEstimate {
    let values: Vec<f64> = values.collect();
    let n = values.len();
    let Some(mean) = ccplane_units::stats::mean(values.iter().copied()) else {
        return MeanEstimate::default();
    };
    let within = |half| MeanEstimate {
        mean,
        half,
        low: mean - half,
        high: mean + half,
    };
    if n == 1 {
        return within(0.0);
    }
    match interval {
        MeanInterval::Same => within(0.0),
        MeanInterval::StudentT => {
            within(stats::mean_interval(&values).map_or(0.0, |(_, high)| high - mean))
        }
        // Both values are at the same distance from their mean.
        MeanInterval::Range => within(
            values
                .iter()
                .map(|value| (value - mean).abs())
                .fold(0.0, f64::max),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Completions, WorkloadSeries};

    #[test]
    fn one_value_has_no_interval_two_a_range_and_more_students() {
        let two = estimate([4.0, 1.0].into_iter(), MeanInterval::Range);
        assert_eq!(
            (two.mean, two.half, two.low, two.high),
            (2.5, 1.5, 1.0, 4.0)
        );
        let many = estimate(
            [8.0, 9.0, 10.0, 11.0, 12.0].into_iter(),
            MeanInterval::StudentT,
        );
        assert_eq!(many.mean, 10.0);
        assert!((many.half - 1.963).abs() < 0.001, "{many:?}");
        let one = estimate([3.0].into_iter(), MeanInterval::StudentT);
        assert_eq!((one.mean, one.half), (3.0, 0.0));
    }

    fn run(goodput: f64, digest: &str) -> ContenderResult {
        let totals = |share: f64| WorkloadTotals {
            count: 2,
            goodput_mbit: goodput * share,
            share,
            retransmissions: (share > 0.5).then_some(goodput as u64),
            ..WorkloadTotals::default()
        };
        let workload = |name: &str, share: f64| WorkloadMetrics {
            name: name.to_owned(),
            totals: totals(share),
            completions: (share < 0.5).then(Completions::default),
            ..WorkloadMetrics::default()
        };
        let mut run = ContenderResult {
            label: "copa".to_owned(),
            metrics: ContenderMetrics {
                goodput_mbit: goodput,
                ..ContenderMetrics::default()
            },
            workloads: vec![workload("bulk", 0.75), workload("web", 0.25)],
            ..ContenderResult::default()
        };
        run.series.workloads = vec![
            WorkloadSeries::default(),
            WorkloadSeries {
                completed: vec![Completion::default(); 3],
                ..WorkloadSeries::default()
            },
        ];
        run.audit.simulation = Some(SimulationAudit {
            digest: digest.to_owned(),
            ..SimulationAudit::default()
        });
        run
    }

    fn joined(runs: &[(f64, &str)], of: Runs) -> ContenderResult {
        let runs = runs
            .iter()
            .zip(1..)
            .map(|((goodput, digest), seed)| (seed, run(*goodput, digest)));
        together(runs.collect(), of, &[]).unwrap()
    }

    #[test]
    fn results_without_randomness_say_so() {
        let same = joined(&[(90.0, "a"); 3], Runs::Seeds);
        let spread = same.spread.unwrap();
        assert_eq!(
            (spread.interval, spread.seeds, spread.half.goodput_mbit),
            (MeanInterval::Same, 3, 0.0)
        );
        let told = note(std::slice::from_ref(&same), Runs::Seeds, 1);
        assert_eq!(
            told,
            "The scenario has no randomness: all 3 seeds gave the same results."
        );
        // The runs differ although their metrics are equal.
        let lucky = joined(&[(90.0, "a"), (90.0, "b")], Runs::Seeds);
        assert_eq!(
            note(&[lucky], Runs::Seeds, 1),
            "All 2 seeds gave the same results."
        );
        let random = joined(&[(90.0, "a"), (91.0, "b"), (92.0, "c")], Runs::Seeds);
        let told = note(&[same, random], Runs::Seeds, 1);
        assert!(
            told.starts_with(
                "Means over 3 seeds with their 95 % confidence intervals (Student's t)."
            ),
            "{told}"
        );
        assert!(
            told.contains("All seeds gave the same results for copa."),
            "{told}"
        );
    }

    #[test]
    fn two_runs_have_no_interval_and_repeats_have_students() {
        let two = joined(&[(90.0, "a"), (94.0, "b")], Runs::Seeds);
        let spread = two.spread.unwrap();
        assert_eq!(
            (spread.interval, two.metrics.goodput_mbit),
            (MeanInterval::Range, 92.0)
        );
        let ends = (
            spread.low.unwrap().goodput_mbit,
            spread.high.unwrap().goodput_mbit,
        );
        assert_eq!(ends, (90.0, 94.0));
        assert!(note(&[two], Runs::Seeds, 1).contains("two runs are too few for an interval"));
        let many = joined(&[(90.0, ""), (94.0, ""), (92.0, "")], Runs::Repeats);
        let spread = many.spread.unwrap();
        assert_eq!(spread.interval, MeanInterval::StudentT);
        // A standard deviation of 2 over three runs: 4.303 × 2 / √3.
        assert!(
            (spread.half.goodput_mbit - 4.969).abs() < 0.001,
            "{spread:?}"
        );
        let told = note(&[many], Runs::Repeats, 1);
        assert!(
            told.contains("3 repeats with their 95 % confidence intervals")
                && told.contains("from repeat 1"),
            "{told}"
        );
    }

    #[test]
    fn workloads_have_means_too_and_runs_are_kept_apart_for_pictures() {
        let one = joined(&[(80.0, "a"), (90.0, "b"), (100.0, "c")], Runs::Seeds);
        let [bulk, web] = one.workloads.as_slice() else {
            panic!("two workloads")
        };
        assert_eq!((bulk.totals.goodput_mbit, bulk.totals.share), (67.5, 0.75));
        assert_eq!(
            (bulk.totals.retransmissions, web.totals.retransmissions),
            (Some(90), None)
        );
        let spread = bulk.totals.spread.unwrap();
        assert!(
            spread.interval == MeanInterval::StudentT && spread.half.goodput_mbit > 10.0,
            "{spread:?}"
        );
        assert_eq!(web.completions.as_ref().unwrap().classes[0].flows, 9);
        assert_eq!(one.series.workloads[1].completed.len(), 9);
        let each: Vec<(u64, f64)> = one
            .series
            .each
            .iter()
            .map(|r| (r.seed, r.metrics.goodput_mbit))
            .collect();
        assert_eq!(each, [(1, 80.0), (2, 90.0), (3, 100.0)]);
        assert_eq!(joined(&[(80.0, "a")], Runs::Seeds).spread, None);
    }
}
