//! DX, slide 26 (title only): fairness, and how stable the throughput of a flow is.

use ccplane_algorithms::Registry;
use ccplane_report::Aim;
use ccplane_report::chart::{Axis, Chart, Line};
use ccplane_units::Duration;

use super::many_to_one::{ManyToOne, RTT, Seen, Senders};
use super::page::{Findings, cell};
use super::who::Who;
use super::{Datapath, Experiment, Options, Outcome, pool};
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::{self, Distribution};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "dx-fairness",
    title: "Fairness, and stability of throughput, of 2 to 30 flows at 10 Gbit/s",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slide 26 (title only)",
    takes: "1 minute on two cores; 10 seconds with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: fairness,
};

const SENDERS: [u32; 4] = [2, 5, 10, 30];
const CONTENDERS: [Who; 3] = [Who::Dx, Who::Dctcp, Who::Swift];
/// A look at throughputs: ten round trips, 28 packets of each of 30 flows.
const BIN: Duration = Duration::from_millis(1);
/// Over so many looks together as well: what is unfair for a moment may be fair for longer.
const SPANS: [usize; 3] = [1, 10, 100];
const WARM: Duration = Duration::from_millis(100);

fn fairness(options: &Options, registry: &Registry, progress: &mut dyn Progress) -> Result<Outcome, Error> {
    let (seeds, measured) = if options.quick {
        (1, Duration::from_millis(100))
    } else {
        (10, Duration::from_millis(500))
    };
    let one = ManyToOne {
        warm: WARM,
        until: WARM + measured,
        bin: BIN,
        ..ManyToOne::of(registry, EXPERIMENT.name)
    };
    let jobs = one.crossed(&SENDERS, &CONTENDERS, seeds);
    let seen = pool::run(&jobs, options.threads, &options.parts(), progress)?;
    let results: Vec<(&ManyToOne, &Seen)> = jobs.iter().zip(&seen).collect();
    findings(&results).finish(&EXPERIMENT, options)
}

/// Of each flow, its throughput over so many looks together, Mbit/s, once the run is warm.
fn over(seen: &Seen, looks: usize) -> Vec<Vec<f64>> {
    let warm = (WARM.as_nanos() / BIN.as_nanos().max(1)) as usize;
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len().max(1) as f64;
    let flow = |rates: &Vec<f64>| {
        let rates = rates.get(warm..).unwrap_or_default();
        rates.chunks_exact(looks).map(mean).collect()
    };
    seen.rates.iter().map(flow).collect()
}

/// Jain's index, its mean over the spans.
fn index(seen: &Seen, looks: usize) -> Option<f64> {
    let flows = over(seen, looks);
    let spans = flows.first().map_or(0, Vec::len);
    let shares = |span: usize| -> Vec<f64> { flows.iter().filter_map(|rates| rates.get(span).copied()).collect() };
    Distribution::new((0..spans).filter_map(|span| metrics::jain(&shares(span)))).mean()
}

/// The standard deviation of a flow's throughput over its mean, the mean over the flows.
fn variation(seen: &Seen, looks: usize) -> Option<f64> {
    let flows = over(seen, looks);
    let one = |rates: &Vec<f64>| {
        let mean = Distribution::new(rates.iter().copied())
            .mean()
            .filter(|mean| *mean > 0.0)?;
        let square = Distribution::new(rates.iter().map(|rate| (rate - mean) * (rate - mean))).mean()?;
        Some(square.sqrt() / mean)
    };
    Distribution::new(flows.iter().filter_map(one)).mean()
}

fn findings(results: &[(&ManyToOne, &Seen)]) -> Findings {
    let mut findings = Findings::default();
    let mean = |count: u32, who: Who, figure: &dyn Fn(&Seen) -> Option<f64>| {
        let meant = |job: &ManyToOne| (job.senders, job.who) == (Senders::Always(count), who);
        pool::mean(results, meant, figure)
    };
    for count in SENDERS {
        findings.compare(
            &format!("jain_{count}_flows"),
            &format!("Jain's index over 10 ms, {count} flows under DX"),
            mean(count, Who::Dx, &|seen| index(seen, 10)),
            "",
            Aim::AtLeast(0.95),
        );
    }
    let rows = SENDERS.iter().flat_map(|count| CONTENDERS.map(|who| (*count, who)));
    let rows = rows.map(|(count, who)| {
        let mut row = vec![count.to_string(), who.label().to_owned()];
        row.extend(SPANS.map(|looks| cell(mean(count, who, &|seen| index(seen, looks)), 3)));
        row.extend(SPANS.map(|looks| cell(mean(count, who, &|seen| variation(seen, looks)), 3)));
        row
    });
    findings.table(
        "Jain's index, and a flow's standard deviation over its mean, of throughputs over 1, 10 and 100 ms",
        &[
            "flows",
            "under",
            "index\n1 ms",
            "10 ms",
            "100 ms",
            "variation\n1 ms",
            "10 ms",
            "100 ms",
        ],
        rows.collect(),
    );
    let line = |n: usize, who: Who, figure: fn(&Seen, usize) -> Option<f64>| {
        let points = SENDERS
            .iter()
            .filter_map(|count| Some((f64::from(*count), mean(*count, who, &|seen| figure(seen, 10))?)));
        Line::new(who.label(), n, points).dots()
    };
    let lines = |figure| {
        CONTENDERS
            .iter()
            .enumerate()
            .map(|(n, who)| line(n, *who, figure))
            .collect()
    };
    let x = || Axis::linear("flows");
    findings.picture(
        "Fairness and stability over 10 ms",
        &[
            Chart {
                title: "Jain's index".to_owned(),
                x: x(),
                y: Axis::linear("").from_to(0.5, 1.0),
                lines: lines(index),
                guides: Vec::new(),
            },
            Chart {
                title: "standard deviation of a flow's throughput over its mean".to_owned(),
                x: x(),
                y: Axis::linear(""),
                lines: lines(variation),
                guides: Vec::new(),
            },
        ],
    );
    findings.deviation(format!(
        "The slides have the title of this figure and nothing of its content. Ours: 10 Gbit/s, a round trip of {} µs that all \
         flows share, exact stamps, K = 65 packets for DCTCP.",
        RTT.as_micros()
    ));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unfair_for_a_moment_may_be_fair_for_longer() {
        let registry = Registry::builtin();
        let turns = |flow: usize| {
            (0..300)
                .map(move |look| if look % 2 == flow { 100.0 } else { 0.0 })
                .collect()
        };
        let job = ManyToOne {
            who: Who::Dctcp,
            gbit: 1,
            senders: Senders::Always(2),
            warm: Duration::ZERO,
            until: BIN,
            bin: BIN,
            ..ManyToOne::of(&registry, EXPERIMENT.name)
        };
        let mut seen = pool::Job::run(&job).unwrap();
        seen.rates = vec![turns(0), turns(1)];
        assert_eq!((index(&seen, 1), index(&seen, 10)), (Some(0.5), Some(1.0)));
        assert_eq!((variation(&seen, 1), variation(&seen, 10)), (Some(1.0), Some(0.0)));
        assert_eq!(over(&seen, 100)[1], [50.0, 50.0]);
    }
}
