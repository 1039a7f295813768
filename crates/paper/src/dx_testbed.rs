//! DX, slides 27 to 29: two senders share a bottleneck of 1 or 10 Gbit/s; how long is its queue under DX and under DCTCP?
//!
//! The slides give two ratios of median queueing delays and nothing else: neither the path's round trip nor the marking
//! threshold nor a queue in packets. Ours are said; other round trips are in the table.

mod real;

use ccplane_algorithms::Registry;
use ccplane_report::Aim;
use ccplane_report::chart::{Axis, Chart, Line};
use ccplane_units::Duration;

use super::many_to_one::{ManyToOne, Seen, Senders};
use super::page::Findings;
use super::who::{Who, marking_threshold};
use super::{Datapath, Experiment, Options, Outcome, page, simulations};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "dx-testbed",
    title: "The queue of two senders at 1 and 10 Gbit/s, DX and DCTCP",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slides 27 to 29 and 32",
    takes: "3 minutes on two cores; 30 seconds with --quick",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
    run: super::Run::Code(testbed),
};

/// Round trips without a queue, µs; the first is the one whose figures stand beside the slides'. A network of a few
/// switches and hosts without the kernel's stack has about so much.
const ROUND_TRIPS: [u64; 4] = [100, 20, 50, 200];
/// Nothing is measured before: slow start and the first meeting of the two flows are over.
const WARM: Duration = Duration::from_millis(100);

/// Who is compared at which rate.
fn contenders(gbit: u64) -> Vec<Who> {
    let mut all = vec![Who::Dx];
    if gbit == 10 {
        all.extend([Who::DxHardware, Who::DxSoftware]);
    }
    all.extend([Who::Dctcp, Who::Steered]);
    all
}

fn testbed(options: &Options, registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    let mut findings = Findings::default();
    if options.on(Datapath::Sim) {
        simulated(&mut findings, options, registry, progress)?;
    }
    if options.on(Datapath::Linux) {
        real::write(&mut findings, &real::measure(options, registry, progress)?);
    }
    findings.finish(&EXPERIMENT, options)
}

fn simulated(
    findings: &mut Findings,
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let (seeds, measured, round_trips) = if options.quick {
        (2, Duration::from_millis(200), &ROUND_TRIPS[..1])
    } else {
        (10, Duration::from_millis(500), &ROUND_TRIPS[..])
    };
    let mut jobs = Vec::new();
    for (gbit, rtt) in RATES
        .iter()
        .flat_map(|gbit| round_trips.iter().map(|rtt| (*gbit, *rtt)))
    {
        for who in contenders(gbit) {
            jobs.extend((1..=seeds).map(|seed| ManyToOne {
                who,
                gbit,
                rtt: Duration::from_micros(rtt),
                senders: Senders::Always(2),
                warm: WARM,
                until: WARM + measured,
                seed,
                ..ManyToOne::of(registry, EXPERIMENT.name)
            }));
        }
    }
    let seen = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let results = Results(jobs.iter().zip(&seen).collect());
    tell(findings, &results, round_trips, options.quick);
    Ok(())
}

const RATES: [u64; 2] = [1, 10];

struct Results<'a, 'r>(Vec<(&'a ManyToOne<'r>, &'a Seen)>);

impl Results<'_, '_> {
    /// The mean of a figure over the seeds of a point.
    fn mean(&self, gbit: u64, rtt: u64, who: Who, figure: impl Fn(&Seen) -> f64) -> Option<f64> {
        let meant = |job: &ManyToOne| (job.gbit, job.rtt.as_micros(), job.who) == (gbit, rtt, who);
        simulations::mean(&self.0, meant, |seen| Some(figure(seen)))
    }

    /// Median queueing delays, that of DCTCP over that of DX.
    fn ratio(&self, gbit: u64, rtt: u64, who: Who) -> Option<f64> {
        let median = |who| self.mean(gbit, rtt, who, |seen| seen.delay(0.5));
        Some(median(Who::Dctcp)? / median(who)?)
    }
}

fn tell(findings: &mut Findings, results: &Results, round_trips: &[u64], quick: bool) {
    let rtt = ROUND_TRIPS[0];
    let ten = "1.6 (slide 32; the abstract: 1.57), of which stamps is not said";
    for (key, what, gbit, who, paper, least) in [
        ("ratio_1g", "exact stamps", 1, Who::Dx, "5.33 (slides 28, 32)", 5.33),
        ("ratio_10g", "exact stamps", 10, Who::Dx, ten, 1.6),
        ("ratio_10g_hw", "hardware-like stamps", 10, Who::DxHardware, ten, 1.0),
        ("ratio_10g_sw", "software-like stamps", 10, Who::DxSoftware, ten, 1.0),
    ] {
        findings.compare(
            key,
            &format!("DCTCP's median queueing delay over DX's, {gbit} Gbit/s, {what}"),
            results.ratio(gbit, rtt, who),
            paper,
            Aim::AtLeast(least),
        );
    }
    // Slide 29 has no stamps without noise.
    let median = |who| results.mean(10, rtt, who, |seen| seen.delay(0.5));
    if let (Some(hardware), Some(software)) = (median(Who::DxHardware), median(Who::DxSoftware)) {
        let ordered = hardware < software;
        findings.fact("ordered_10g", ordered);
        findings.remark(format!(
            "At 10 Gbit/s the median under hardware-like stamps is {} than under software-like ones; slide 29 has it shorter.",
            if ordered { "shorter" } else { "no shorter" }
        ));
    }
    for (gbit, who, key) in [
        (1, Who::Dx, "util_1g"),
        (10, Who::Dx, "util_10g"),
        (10, Who::DxHardware, "util_10g_hw"),
        (10, Who::DxSoftware, "util_10g_sw"),
    ] {
        findings.compare(
            key,
            &format!("use of the link, {gbit} Gbit/s, {}", who.label()),
            results.mean(gbit, rtt, who, |seen| seen.utilisation),
            "",
            Aim::AtLeast(0.98),
        );
    }
    for gbit in RATES {
        let queue = |who| results.mean(gbit, rtt, who, |seen| seen.waited(0.5));
        findings.figure(format!("queue_p50_{gbit}g_dx_us"), queue(Who::Dx));
        findings.figure(format!("queue_p50_{gbit}g_dctcp_us"), queue(Who::Dctcp));
    }
    findings.picture(
        format!("Share of packets up to a queueing delay, their own transmission included; round trip {rtt} µs"),
        &RATES.map(|gbit| picture(results, gbit, rtt)),
    );
    table(findings, results, round_trips);
    words(findings, quick);
}

fn picture(results: &Results, gbit: u64, rtt: u64) -> Chart {
    let lines = contenders(gbit).into_iter().enumerate().filter_map(|(n, who)| {
        let is = |job: &ManyToOne| (job.gbit, job.rtt.as_micros(), job.who, job.seed) == (gbit, rtt, who, 1);
        let (_, seen) = results.0.iter().find(|(job, _)| is(job))?;
        Some(Line::new(who.label(), n, seen.curve()))
    });
    Chart {
        title: format!("{gbit} Gbit/s"),
        x: Axis::log("queueing delay, µs"),
        y: Axis::linear("").from_to(0.0, 1.0),
        lines: lines.collect(),
        guides: Vec::new(),
    }
}

fn table(findings: &mut Findings, results: &Results, round_trips: &[u64]) {
    let mut rows = Vec::new();
    for (gbit, rtt) in RATES
        .iter()
        .flat_map(|gbit| round_trips.iter().map(|rtt| (*gbit, *rtt)))
    {
        for who in contenders(gbit) {
            let cell = |figure: &dyn Fn(&Seen) -> f64, digits: usize| {
                let mean = results.mean(gbit, rtt, who, figure);
                page::cell(mean, digits)
            };
            rows.push(vec![
                gbit.to_string(),
                rtt.to_string(),
                who.label().to_owned(),
                cell(&|seen| seen.waited(0.5), 2),
                cell(&|seen| seen.delay(0.5), 2),
                cell(&|seen| seen.mean_us, 2),
                cell(&|seen| seen.waited(0.99), 2),
                results
                    .ratio(gbit, rtt, who)
                    .map_or("–".into(), |ratio| format!("{ratio:.2}")),
                cell(&|seen| seen.utilisation * 100.0, 2),
                cell(&|seen| seen.drops as f64, 0),
            ]);
        }
    }
    findings.table(
        "Queueing at the bottleneck, µs, and its use; means over seeds",
        &[
            "Gbit/s",
            "RTT\nµs",
            "under",
            "waiting\np50",
            "with own\ntransmission",
            "waiting\nmean",
            "waiting\np99",
            "ratio to\nDCTCP",
            "use\n%",
            "drops",
        ],
        rows,
    );
}

fn words(findings: &mut Findings, quick: bool) {
    findings.remark(
        "A packet's queueing delay counts here from its coming to the end of its own transmission: the length of the queue in \
         time, which is never 0, so that a ratio exists. Without their own transmission half of DX's packets wait nearly \
         nothing, and the ratio would be larger without bound; the table has both.",
    );
    if quick {
        findings.remark("With --quick one round trip, two seeds, a fifth of a second: to see that it works.");
    }
    findings.deviation(format!(
        "The slides name no round trip, threshold or buffer. Ours: {} µs and packets' own transmission; K = {} packets at 1 \
         Gbit/s and {} at 10, g = 1/16, the values in use for DCTCP; 250 packets of buffer.",
        ROUND_TRIPS[0],
        marking_threshold(1),
        marking_threshold(10)
    ));
    findings.deviation(
        "The simulator instead of a testbed: our transport instead of Linux 3.13, each packet acknowledged at once. Exact \
         stamps have no noise at all; what the testbed's had at 10 Gbit/s is not in the slides, so that its ratio may be \
         that of either noise, or of neither.",
    );
}

#[cfg(test)]
mod tests {
    use super::simulations::Job;
    use super::*;

    fn run(gbit: u64, who: Who) -> Seen {
        let registry = Registry::builtin();
        let job = ManyToOne {
            who,
            gbit,
            senders: Senders::Always(2),
            warm: Duration::from_millis(20),
            until: Duration::from_millis(70),
            ..ManyToOne::of(&registry, EXPERIMENT.name)
        };
        job.run().unwrap()
    }

    /// The ratios of slides 28 and 32 are the least here; the use of the link is ours.
    #[test]
    fn queues_are_shorter_than_under_dctcp_by_what_the_slides_have_and_the_link_is_full() {
        for (gbit, ratio) in [(1, 5.33), (10, 1.6)] {
            let (dx, dctcp) = (run(gbit, Who::Dx), run(gbit, Who::Dctcp));
            assert!(
                dctcp.delay(0.5) / dx.delay(0.5) >= ratio,
                "{gbit} Gbit/s: {}",
                dx.delay(0.5)
            );
            assert!(dx.utilisation >= 0.97, "{gbit} Gbit/s: {}", dx.utilisation);
            assert_eq!((dx.drops, dx.retransmissions), (0, 0), "{gbit} Gbit/s");
        }
    }

    /// Slide 29 has two lines, of stamps by hardware and by software; exact ones are no third.
    #[test]
    fn the_order_is_of_hardware_and_software_stamps_alone() {
        let registry = Registry::builtin();
        let seen = |waited: f64| -> Seen {
            let seen = serde_json::json!({
                "waited_us": vec![waited; 1_001], "mean_us": waited, "packet_us": 1.2, "utilisation": 1.0,
                "drops": 0, "retransmissions": 0, "rates": [],
            });
            serde_json::from_value(seen).unwrap()
        };
        let ordered = |waited: [f64; 3]| {
            let job = |who| ManyToOne {
                who,
                gbit: 10,
                ..ManyToOne::of(&registry, EXPERIMENT.name)
            };
            let jobs = [Who::Dx, Who::DxHardware, Who::DxSoftware].map(job);
            let seen = waited.map(seen);
            let mut findings = Findings::default();
            tell(
                &mut findings,
                &Results(jobs.iter().zip(&seen).collect()),
                &ROUND_TRIPS[..1],
                true,
            );
            findings.figures()["ordered_10g"].clone()
        };
        assert_eq!(ordered([5.0, 2.0, 3.0]), true);
        assert_eq!(ordered([1.0, 3.0, 2.0]), false);
    }
}
