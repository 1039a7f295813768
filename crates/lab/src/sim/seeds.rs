//! From the results of several seeds to one: means, confidence intervals, pooled distributions.

use crate::metrics::Distribution;
use crate::result::{Completion, Completions, ContenderResult, Figures, SimulationAudit, SizeClass, Spread};

use ccplane_sim::Digest;
use ccplane_units::Bytes;

/// One contender's results, in the order of the seeds, as one. The first keeps its series; nothing else of the others
/// has to be there but their bins and completions.
pub(crate) fn together(mut all: Vec<ContenderResult>, bounds: &[Bytes]) -> Option<ContenderResult> {
    if all.len() < 2 {
        return all.pop();
    }
    let figures: Vec<&Figures> = all.iter().map(|c| &c.figures).collect();
    let of = |value: fn(&Figures) -> f64| -> Estimate { estimate(figures.iter().map(|f| value(f))) };
    let goodput = of(|f| f.goodput_mbit);
    let utilisation = of(|f| f.utilisation);
    let [mean, p50, p95, p99] = [
        of(|f| f.delay_mean_ms),
        of(|f| f.delay_p50_ms),
        of(|f| f.delay_p95_ms),
        of(|f| f.delay_p99_ms),
    ];
    let retransmissions = of(|f| f.retransmissions as f64);
    let (drops, losses) = (of(|f| f.queue_drops as f64), of(|f| f.random_losses as f64));
    let jain = estimate(figures.iter().filter_map(|f| f.jain));
    let completed: Vec<Completion> = all.iter().flat_map(|c| c.series.completed.iter().copied()).collect();
    let unfinished = figures
        .iter()
        .filter_map(|f| f.completions.as_ref())
        .map(|c| c.unfinished)
        .sum();
    let completions = figures
        .iter()
        .any(|f| f.completions.is_some())
        .then(|| completions(&completed, unfinished, bounds));
    let spread = Spread {
        seeds: all.len() as u64,
        goodput_mbit: goodput.half,
        utilisation: utilisation.half,
        delay_mean_ms: mean.half,
        delay_p50_ms: p50.half,
        delay_p95_ms: p95.half,
        delay_p99_ms: p99.half,
        retransmissions: retransmissions.half,
        queue_drops: drops.half,
        jain: jain.half,
    };
    let first = figures.first()?;
    let figures = Figures {
        goodput_mbit: goodput.mean,
        utilisation: utilisation.mean,
        delay_mean_ms: mean.mean,
        delay_p50_ms: p50.mean,
        delay_p95_ms: p95.mean,
        delay_p99_ms: p99.mean,
        retransmissions: retransmissions.mean.round() as u64,
        queue_drops: drops.mean.round() as u64,
        random_losses: losses.mean.round() as u64,
        jain: first.jain.map(|_| jain.mean),
        completions,
        flows: first.flows.clone(),
        links: first.links.clone(),
        one_way: first.one_way.clone(),
        second_loop: figures.iter().map(|f| f.second_loop.as_ref()).sum(),
    };
    let pooled = (
        all.iter().flat_map(|c| c.series.throughputs()).collect(),
        all.iter().flat_map(|c| c.series.delays()).collect(),
    );
    let sum = |value: fn(&ContenderResult) -> Option<f64>| all.iter().map(value).sum::<Option<f64>>();
    let wall_s = sum(|c| c.host.wall_s);
    let reports = sum(|c| c.host.reports_per_s).map(|sum| sum / all.len() as f64);
    let complaints: Vec<String> = all.iter().flat_map(|c| c.audit.complaints.iter().cloned()).collect();
    let audits: Vec<_> = all.iter().filter_map(|c| c.audit.simulation.clone()).collect();
    let mut one = all.swap_remove(0);
    one.figures = figures;
    one.spread = Some(spread);
    one.series.pooled = Some(pooled);
    one.series.completed = completed;
    one.host.wall_s = wall_s;
    one.host.reports_per_s = reports;
    one.audit.sound = complaints.is_empty();
    one.audit.complaints = complaints;
    one.audit.simulation = Some(SimulationAudit {
        events: audits.iter().map(|a| a.events).sum(),
        hops: audits.iter().map(|a| a.hops).sum(),
        digest: digest(&audits),
    });
    Some(one)
}

fn digest(audits: &[SimulationAudit]) -> String {
    let mut all = Digest::default();
    audits
        .iter()
        .for_each(|audit| all.add(u64::from_str_radix(&audit.digest, 16).unwrap_or(0)));
    format!("{:016x}", all.value())
}

/// A mean, and half the width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    mean: f64,
    half: f64,
}

fn estimate(values: impl Iterator<Item = f64>) -> Estimate {
    let values: Vec<f64> = values.collect();
    let n = values.len();
    if n == 0 {
        return Estimate { mean: 0.0, half: 0.0 };
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    if n == 1 {
        return Estimate { mean, half: 0.0 };
    }
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1) as f64;
    Estimate {
        mean,
        half: student(n - 1) * (variance / n as f64).sqrt(),
    }
}

/// The 97.5 % point of Student's t with `freedom` degrees of freedom: tabled to 30, then the first terms of its
/// expansion around the normal's (Abramowitz and Stegun 26.7.5), right to three digits.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let tabled = freedom.checked_sub(1).and_then(|i| TABLE.get(i));
    tabled.copied().unwrap_or_else(|| {
        let n = freedom.max(1) as f64;
        1.959_964 + 2.372_3 / n + 2.822_5 / (n * n)
    })
}

/// The statistics of flows that ended, by the upper bounds of size classes.
pub(super) fn completions(completed: &[Completion], unfinished: u64, bounds: &[Bytes]) -> Completions {
    let mut classes = Vec::new();
    let mut from = 0;
    for bound in bounds {
        let (low, high) = (from, bound.get());
        let members = completed.iter().filter(|c| c.bytes > low && c.bytes <= high);
        classes.push(class(format!("<= {bound}"), members));
        from = high;
    }
    if let Some(last) = bounds.last() {
        classes.push(class(format!("> {last}"), completed.iter().filter(|c| c.bytes > from)));
    }
    classes.push(class("all".to_owned(), completed.iter()));
    Completions { classes, unfinished }
}

fn class<'a>(label: String, members: impl Iterator<Item = &'a Completion> + Clone) -> SizeClass {
    let times = Distribution::new(members.clone().map(|c| c.took_ns as f64 / 1e6));
    let slowdowns = Distribution::new(members.map(Completion::slowdown));
    let at = |d: &Distribution, p| d.quantile(p).unwrap_or(0.0);
    SizeClass {
        label,
        flows: times.len() as u64,
        mean_ms: times.mean().unwrap_or(0.0),
        p50_ms: at(&times, 0.5),
        p99_ms: at(&times, 0.99),
        slowdown_mean: slowdowns.mean().unwrap_or(0.0),
        slowdown_p50: at(&slowdowns, 0.5),
        slowdown_p99: at(&slowdowns, 0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_students() {
        // Five values with mean 10 and standard deviation 1.581: 10 ± 2.776 × 1.581 / √5.
        let e = estimate([8.0, 9.0, 10.0, 11.0, 12.0].into_iter());
        assert_eq!(e.mean, 10.0);
        assert!((e.half - 1.963).abs() < 0.001, "{e:?}");
        assert_eq!(estimate([3.0].into_iter()), Estimate { mean: 3.0, half: 0.0 });
        // Tables: 2.040 for 31, 2.021 for 40, 1.984 for 100.
        for (freedom, t) in [(31, 2.040), (40, 2.021), (100, 1.984)] {
            assert!((student(freedom) - t).abs() < 0.001, "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn flows_are_sorted_into_classes_by_size() {
        let flow = |bytes, ms: u64| Completion {
            bytes,
            took_ns: ms * 1_000_000,
            alone_ns: 1_000_000,
            ..Completion::default()
        };
        let flows = [flow(10, 1), flow(1_000, 2), flow(1_001, 4), flow(9_999, 8)];
        let c = completions(&flows, 3, &[Bytes::new(1_000), Bytes::new(5_000)]);
        let counts: Vec<u64> = c.classes.iter().map(|class| class.flows).collect();
        assert_eq!((counts, c.unfinished), (vec![2, 1, 1, 4], 3));
        let labels: Vec<&str> = c.classes.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(labels, ["<= 1kB", "<= 5kB", "> 5kB", "all"]);
        assert_eq!((c.classes[0].mean_ms, c.classes[3].slowdown_p99), (1.5, 8.0));
    }
}
