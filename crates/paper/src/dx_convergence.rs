//! DX, slide 26 (title only): flows join one after the other, and leave; how soon does each have its share?

use ccplane_algorithms::Registry;
use ccplane_report::chart::{Axis, Chart, Line};
use ccplane_units::Duration;

use super::many_to_one::{ManyToOne, RTT, Seen, Senders};
use super::page::{Findings, cell};
use super::who::Who;
use super::{Datapath, Experiment, Options, Outcome, simulations};
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::{self, Distribution};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "dx-convergence",
    title: "Five flows join and leave a link of 10 Gbit/s",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slide 26 (title only)",
    takes: "1 minute on two cores; 10 seconds with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: super::Run::Code(convergence),
};

const FLOWS: u32 = 5;
const CONTENDERS: [Who; 3] = [Who::Dx, Who::Dctcp, Who::Swift];
/// A look at throughputs: ten round trips.
const BIN: Duration = Duration::from_millis(1);
/// Flows have converged when Jain's index of their throughputs is at least this in so many looks in a row. 0.95 is what
/// two flows at 61 and 39 % of the link have, and five of which each is within a fifth of its share.
const FAIR: f64 = 0.95;
const LOOKS: usize = 5;

fn convergence(options: &Options, registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    let (seeds, apart) = if options.quick {
        (1, Duration::from_millis(30))
    } else {
        (10, Duration::from_millis(100))
    };
    let jobs: Vec<ManyToOne> = CONTENDERS
        .iter()
        .flat_map(|who| (1..=seeds).map(|seed| (*who, seed)))
        .map(|(who, seed)| ManyToOne {
            who,
            senders: Senders::JoinAndLeave(FLOWS, apart),
            warm: Duration::ZERO,
            until: apart * u64::from(2 * FLOWS - 1),
            bin: BIN,
            seed,
            ..ManyToOne::of(registry, EXPERIMENT.name)
        })
        .collect();
    let seen = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let results: Vec<(&ManyToOne, &Seen)> = jobs.iter().zip(&seen).collect();
    findings(&results, apart).finish(&EXPERIMENT, options)
}

/// After each change of who sends, ms until those that send have converged; the length of the phase where they do not.
/// The first flow and the last one are alone.
fn times(seen: &Seen, apart: Duration) -> Vec<f64> {
    let looks = (apart.as_nanos() / BIN.as_nanos().max(1)) as usize;
    let phases = 1..(2 * FLOWS as usize - 2);
    let time = |phase: usize| {
        let active = phase.saturating_sub(FLOWS as usize - 1)..(phase + 1).min(FLOWS as usize);
        let flows = seen.rates.get(active).unwrap_or_default();
        let fair = |look: usize| {
            let shares: Vec<f64> = flows.iter().filter_map(|rates| rates.get(look).copied()).collect();
            metrics::jain(&shares).is_some_and(|index| index >= FAIR)
        };
        let begin = phase * looks;
        let converged = (begin..begin + looks).find(|look| (*look..*look + LOOKS).all(fair));
        converged.map_or(looks, |look| look - begin) as f64 * BIN.as_secs_f64() * 1e3
    };
    phases.map(time).collect()
}

fn findings(results: &[(&ManyToOne, &Seen)], apart: Duration) -> Findings {
    let mut findings = Findings::default();
    let mut rows = Vec::new();
    for who in CONTENDERS {
        let of = || results.iter().filter(|(job, _)| job.who == who).map(|(_, seen)| *seen);
        let all = Distribution::new(of().flat_map(|seen| times(seen, apart)));
        let mean = |figure: &dyn Fn(&Seen) -> f64| Distribution::new(of().map(figure)).mean();
        let key = who.key();
        findings.compare(
            &format!("convergence_p50_ms_{key}"),
            &format!("ms until the index is {FAIR} after a change, median, {}", who.label()),
            all.quantile(0.5),
            "",
            None,
        );
        rows.push(vec![
            who.label().to_owned(),
            cell(all.quantile(0.5), 1),
            cell(all.quantile(1.0), 1),
            cell(mean(&|seen| seen.utilisation * 100.0), 2),
            cell(mean(&|seen| seen.waited(0.5)), 2),
            cell(mean(&|seen| seen.waited(0.99)), 2),
            cell(mean(&|seen| seen.drops as f64), 0),
        ]);
    }
    findings.table(
        "After each join and leave; the whole run, its slow starts included",
        &[
            "under",
            "converged\np50, ms",
            "worst\nms",
            "use\n%",
            "waiting\np50, µs",
            "p99\nµs",
            "drops",
        ],
        rows,
    );
    let charts: Vec<Chart> = CONTENDERS
        .iter()
        .filter_map(|who| {
            let (_, seen) = results.iter().find(|(job, _)| job.who == *who && job.seed == 1)?;
            Some(picture(*who, seen))
        })
        .collect();
    findings.picture("Throughput of each flow over time", &charts);
    findings.remark(format!(
        "Converged: Jain's index of the throughputs of {} ms is at least {FAIR} in {LOOKS} looks in a row. A flow that leaves \
         does so at once; a change every {} ms.",
        BIN.as_millis(),
        apart.as_millis()
    ));
    findings.deviation(format!(
        "The slides have the title of this figure and nothing of its content. Ours: five flows, 10 Gbit/s, a round trip of {} \
         µs, exact stamps, K = 65 packets for DCTCP.",
        RTT.as_micros()
    ));
    findings
}

fn picture(who: Who, seen: &Seen) -> Chart {
    let line = |(n, rates): (usize, &Vec<f64>)| {
        let at = |look: usize| (look as f64 + 0.5) * BIN.as_secs_f64() * 1e3;
        let points = rates.iter().enumerate().map(|(look, mbit)| (at(look), mbit / 1e3));
        Line::new(format!("flow {}", n + 1), n, points)
    };
    Chart {
        title: format!("Gbit/s, {}", who.label()),
        x: Axis::linear("ms"),
        y: Axis::linear("").from_to(0.0, 10.0),
        lines: seen.rates.iter().enumerate().map(line).collect(),
        guides: Vec::new(),
    }
}
