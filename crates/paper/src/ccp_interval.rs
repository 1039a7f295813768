//! CCP, SIGCOMM 2018, section 2.2, table 1: what a report for every ACK costs a single flow over
//! loopback, and one every 10 ms.

use ccplane_algorithms::Registry;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_testbed::ends::TrafficEnds;
use ccplane_units::Duration;

use super::loopback::{Measured, Turns};
use super::page::{Findings, cell};
use super::{Datapath, Experiment, Options, Outcome};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp-interval",
    title: "A single flow over loopback: native, a report for every ACK, a report every 10 ms",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 2.2, table 1",
    takes: "5 minutes; 15 seconds with --quick",
    on: &[Datapath::Linux],
    repeats: Some(ROUNDS),
    run: super::Run::Code(interval),
};

const ROUNDS: usize = 10;

fn contenders() -> [Contender; 3] {
    [
        Contender::native("reno"),
        Contender::ccplane_with("reno", "report", "ack"),
        Contender::ccplane_with("reno", "report", "10ms"),
    ]
}

fn interval(
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let contenders = contenders();
    let length = Duration::from_secs(if options.quick { 1 } else { 10 });
    let rounds = options.repeats(ROUNDS, 3);
    let turns = Turns {
        place: "loopback",
        flows: &[1],
        contenders: &contenders,
        rounds,
        length,
        behind: false,
        matched: None,
    };
    let measured = turns.run(&TrafficEnds::loopback()?, options, registry, progress)?;
    findings(&measured, rounds, length).finish(&EXPERIMENT, options)
}

fn findings(measured: &Measured, rounds: usize, length: Duration) -> Findings {
    let mut findings = Findings::default();
    let [base, per_ack, every_10ms] = &contenders();
    let ratio = |ours| measured.ratio(1, ours, base, |run| run.goodput_gbit);
    // The paper's table, Gbit/s: 43 native, 29 per ACK, 41 every 10 ms.
    for (key, what, who, paper, aim) in [
        (
            "interval_per_ack_ratio",
            "goodput per ACK ÷ native",
            per_ack,
            "0.67 (29 of 43 Gbit/s)",
            0.95,
        ),
        (
            "interval_10ms_ratio",
            "goodput every 10 ms ÷ native",
            every_10ms,
            "0.95 (41 of 43 Gbit/s)",
            0.95,
        ),
    ] {
        findings.compare_ratio(key, what, ratio(who), paper, TargetRange::AtLeast(aim));
    }
    let mut rows = Vec::new();
    let mut points = Vec::new();
    for (n, (who, key, paper)) in [
        (base, "native", 43),
        (per_ack, "per_ack", 29),
        (every_10ms, "10ms", 41),
    ]
    .into_iter()
    .enumerate()
    {
        let gbit = measured.mean_and_deviation(1, who, |run| vec![run.goodput_gbit]);
        findings.figure(format!("interval_{key}_gbit"), gbit.map(|(mean, _)| mean));
        let reports = measured.mean_and_deviation(1, who, |run| vec![run.reports_per_s]);
        rows.push(vec![
            who.to_string(),
            cell(gbit.map(|g| g.0), 1),
            cell(gbit.map(|g| g.1), 1),
            paper.to_string(),
            cell(reports.map(|r| r.0), 0),
        ]);
        points.extend(gbit.map(|(mean, deviation)| (n as f64 + 1.0, mean, deviation)));
    }
    let headings = [
        "who",
        "ours\nGbit/s",
        "±\ndeviation",
        "the paper's\nGbit/s",
        "reports\n1/s",
    ];
    findings.table("Throughput", &headings, rows);
    let errors = points.iter().map(|(x, y, d)| (*x, y - d, y + d)).collect();
    let ours = ChartSeries::new("ours", 0, points.iter().map(|(x, y, _)| (*x, *y)))
        .dots()
        .errors(errors);
    let theirs = ChartSeries::new("the paper's", 1, [(1.0, 43.0), (2.0, 29.0), (3.0, 41.0)])
        .dots()
        .dashed();
    findings.picture(
        "Throughput of a single flow over loopback",
        &[Chart {
            title: "Gbit/s".into(),
            x: Axis::linear("1 native, 2 a report for every ACK, 3 every 10 ms")
                .with_range(0.5, 3.5),
            y: Axis::linear(""),
            lines: vec![ours, theirs],
            guides: Vec::new(),
        }],
    );
    measured.judge(&mut findings);
    findings.remark(format!(
        "Reno; {rounds} rounds in turns with runs of {length}; ratios are medians over rounds of the run beside each."
    ));
    findings.deviation(
        "This machine and its kernel instead of the paper's four cores of 2.8 GHz and Linux 4.14; memory-to-memory senders and \
         receivers of our own instead of iperf; receivers are woken a megabyte at a time, under every condition.",
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::super::loopback::pretended;
    use super::*;

    #[test]
    fn ratios_stand_beside_the_papers() {
        let [base, per_ack, every_10ms] = contenders();
        let measured = pretended(&[
            (1, base, &[43.0]),
            (1, per_ack, &[29.0]),
            (1, every_10ms, &[41.0]),
        ]);
        let findings = findings(&measured, 1, Duration::from_secs(1));
        let figures = findings.figures();
        assert_eq!(figures["interval_per_ack_ratio"], 0.6744);
        assert_eq!(figures["interval_10ms_ratio"], 0.9535);
        assert_eq!(figures["interval_native_gbit"], 43.0);
    }
}
