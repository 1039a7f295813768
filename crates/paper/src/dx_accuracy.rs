//! DX, slides 7 to 20: how accurate is a delay that is measured? The stack's round trip; the ladder
//! from it to a calibrated one-way delay; and single packets through a queue whose length is known.

mod direct;
mod ladder;
mod probes;
mod stamped;

use ccplane_algorithms::Registry;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_units::Duration;

use self::direct::Direct;
use self::ladder::{Ladder, STEPS};
use self::probes::Probes;
use super::page::Findings;
use super::{Datapath, Experiment, Options, Outcome, simulations};
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::scenario::StampErrors;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "dx-accuracy",
    title: "How accurate a measured delay is: the stack's round trip, a ladder of cures, and a known queue",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slides 7 to 20",
    takes: "2 minutes; 20 seconds with --quick",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
    run: super::Run::Code(accuracy),
};

/// Slide 8: what the stack's round trip varies by, µs, and the packets of 1,500 bytes at 10 Gbit/s
/// that it says that is.
const SLIDE_SPREAD_US: f64 = 710.0;
/// A full packet at 10 Gbit/s, µs.
const PACKET_10G_US: f64 = 1.2;
const SEED: u64 = 1;

/// Everything that was measured; what did not run is absent.
#[derive(Default)]
struct Measured {
    ladder: Option<Ladder>,
    simulated: Vec<(&'static str, Probes)>,
    direct: Option<Direct>,
    emulated: Option<Probes>,
}

fn accuracy(
    options: &Options,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let (quick, parts) = (options.quick, options.parts());
    let mut measured = Measured::default();
    let step = |name: &str, index: u8| {
        progress.on_progress(f64::from(index) / 4.0, name);
        if progress.is_cancelled() {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    };
    if options.on(Datapath::Sim) {
        step("the ladder, simulated", 0)?;
        let length = Duration::from_millis(if quick { 50 } else { 200 });
        let broken = simulations::broken("stamps", SEED, EXPERIMENT.name);
        measured.ladder = Some(ladder::climb(SEED, length).map_err(&broken)?);
        step("a known queue, simulated", 1)?;
        let length = Duration::from_secs(if quick { 3 } else { 10 });
        for (name, stamps) in [
            ("exact", StampErrors::EXACT_TIMESTAMPS),
            ("hardware", StampErrors::HARDWARE_TIMESTAMPS),
            ("software", StampErrors::SOFTWARE_TIMESTAMPS),
        ] {
            let probes = probes::simulated(&stamps, SEED, length).map_err(&broken)?;
            measured.simulated.push((name, probes));
        }
    }
    if options.on(Datapath::Linux) {
        step("a connection without a bottleneck", 2)?;
        let length = Duration::from_secs(if quick { 2 } else { 20 });
        let key = length.to_string();
        let run = || direct::measure(length);
        measured.direct = Some(parts.part("direct.json", &key, |_| Disturbed::none(), run)?);
        step("a known queue, emulated", 3)?;
        let length = Duration::from_secs(if quick { 5 } else { 60 });
        let key = length.to_string();
        let run = || probes::emulated(length);
        let probes = parts.part(
            "emulated.json",
            &key,
            |probes: &Probes| Disturbed::from(&probes.disturbed),
            run,
        )?;
        measured.emulated = Some(probes);
    }
    findings(&measured).finish(&EXPERIMENT, options)
}

fn findings(measured: &Measured) -> Findings {
    let mut findings = Findings::default();
    if let Some(direct) = &measured.direct {
        stack(&mut findings, direct);
    }
    climbed(&mut findings, measured);
    known_queue(&mut findings, measured);
    words(&mut findings, measured);
    findings
}

/// Slides 7 and 8.
fn stack(findings: &mut Findings, direct: &Direct) {
    let trips = Distribution::new(direct.stack.iter().copied());
    let least = trips.quantile(0.0).unwrap_or(0.0);
    let above = |p| trips.quantile(p).map(|us| us - least);
    findings.compare(
        "stack_rtt_spread_us",
        "the stack's RTT, most above least, µs",
        above(1.0),
        &format!("{SLIDE_SPREAD_US} (slide 8)"),
        None,
    );
    findings.compare(
        "stack_rtt_spread_packets",
        "the same in packets at 10 Gbit/s",
        above(1.0).map(|us| us / PACKET_10G_US),
        "592 (slide 8)",
        None,
    );
    findings.compare(
        "stack_rtt_p99_us",
        "its 99th percentile above its least, µs",
        above(0.99),
        "",
        None,
    );
    findings.figure("stack_rtt_least_us", Some(least));
    findings.figure("stack_rtt_p50_us", above(0.5));
    let curve =
        (0..=1_000u32).filter_map(|n| Some((above(f64::from(n) / 1e3)?, f64::from(n) / 1e3)));
    findings.picture(
        "The stack's RTT above its least, one TCP connection straight to the other end",
        &[Chart {
            title: "share of writes".to_owned(),
            x: Axis::log("µs"),
            y: Axis::linear("").with_range(0.0, 1.0),
            lines: vec![ChartSeries::new("a pair of virtual devices", 0, curve)],
            guides: Vec::new(),
        }],
    );
}

/// Slides 9 to 17.
fn climbed(findings: &mut Findings, measured: &Measured) {
    let cell = |pair: Option<(f64, f64)>| match pair {
        Some((p50, p99)) => [format!("{p50:.2}"), format!("{p99:.2}")],
        None => ["–".to_owned(), "–".to_owned()],
    };
    let modelled = |n: usize| {
        // The first is what the model's noise was fitted to: no result.
        let ladder = measured.ladder.as_ref().filter(|_| n > 0)?;
        ladder.steps.get(n).map(|step| (step.p50, step.p99))
    };
    let real = |n: usize| {
        measured
            .direct
            .as_ref()
            .and_then(|direct| direct.steps.get(n).copied()?)
    };
    let mut rows = Vec::new();
    for (n, step) in STEPS.iter().enumerate() {
        let mut row = vec![(*step).to_owned()];
        row.extend(cell(modelled(n)));
        row.extend(cell(real(n)));
        rows.push(row);
        for (place, pair) in [("sim", modelled(n)), ("real", real(n))] {
            if let Some((p50, p99)) = pair {
                findings.figure(format!("ladder_{place}_{}_p50_us", n + 1), Some(p50));
                findings.figure(format!("ladder_{place}_{}_p99_us", n + 1), Some(p99));
            }
        }
    }
    findings.table(
        "How far each measure spreads above its least, µs",
        &[
            "measured",
            "modelled\np50",
            "p99",
            "real packets\np50",
            "p99",
        ],
        rows,
    );
    let line = |label: &str, colour: usize, of: &dyn Fn(usize) -> Option<f64>| {
        let points = (0..STEPS.len()).filter_map(|n| Some((n as f64 + 1.0, of(n)?.max(1e-3))));
        ChartSeries::new(label, colour, points.collect::<Vec<_>>()).dots()
    };
    findings.picture(
        "The ladder: 1 the stack's RTT; 2 stamped below the sender's stack; 3 the receiver's delay subtracted; 4 paced, then stamped; 5 calibrated \
         by transmission time; 6 one way",
        &[Chart {
            title: "spread above the least, µs".to_owned(),
            x: Axis::linear("step").with_range(1.0, 6.0),
            y: Axis::log(""),
            lines: vec![
                line("modelled, p50", 0, &|n| modelled(n).map(|pair| pair.0)).dashed(),
                line("modelled, p99", 0, &|n| modelled(n).map(|pair| pair.1)),
                line("real packets, p50", 1, &|n| real(n).map(|pair| pair.0)).dashed(),
                line("real packets, p99", 1, &|n| real(n).map(|pair| pair.1)),
            ],
            guides: vec![(PACKET_10G_US, "a packet at 10 Gbit/s".to_owned())],
        }],
    );
    if let Some(ladder) = &measured.ladder {
        let rows = ladder.causes.iter().map(|(name, rtt, there)| {
            let mut row = vec![(*name).to_owned()];
            row.extend(cell(Some((rtt.p50, rtt.p99))));
            row.extend(cell(Some((there.p50, there.p99))));
            row
        });
        findings.table(
            "What each cause makes alone, modelled, µs",
            &["cause", "four-stamp RTT\np50", "p99", "one way\np50", "p99"],
            rows.collect(),
        );
    }
}

/// Slides 18 to 20.
fn known_queue(findings: &mut Findings, measured: &Measured) {
    for (name, probes) in &measured.simulated {
        let aim = (*name == "exact").then_some(TargetRange::AtMost(0.0));
        findings.compare(
            &format!("accuracy_sim_{name}_p50_packets"),
            &format!(
                "error of the queueing delay, packets of 1 Gbit/s, median, simulated, {name} stamps"
            ),
            probes.error(0.5),
            "",
            aim,
        );
        findings.figure(
            format!("accuracy_sim_{name}_worst_packets"),
            probes.error(1.0),
        );
    }
    let simulated = measured.simulated.first().map(|(_, probes)| probes);
    match &measured.emulated {
        Some(probes) => {
            findings.compare(
                "accuracy_p50_packets",
                "the same on real packets, packets of 100 Mbit/s, by the kernel's stamps",
                probes.error(0.5),
                "matches packet by packet (slide 20)",
                TargetRange::AtMost(1.0),
            );
            findings.figure("accuracy_p99_packets", probes.error(0.99));
            findings.disturbed(usize::from(!probes.sound), 1);
        }
        // Where no real packets run, the simulator's exact stamps are all there is, and it is said.
        None => findings.figure(
            "accuracy_p50_packets",
            simulated.and_then(|probes| probes.error(0.5)),
        ),
    }
    let place = if measured.emulated.is_some() {
        "real packets"
    } else {
        "simulated"
    };
    findings.fact("accuracy_of", place);
    let chart = |title: &str, probes: &Probes| {
        let every = probes::EVERY.as_secs_f64();
        let line = |label: &str, colour: usize, of: fn(&probes::Probe) -> f64| {
            let points = probes.all.iter().enumerate();
            ChartSeries::new(
                label,
                colour,
                points.map(|(n, probe)| (n as f64 * every, of(probe) / 1e3)),
            )
        };
        Chart {
            title: format!("ms waited, {title}"),
            x: Axis::linear("s"),
            y: Axis::linear(""),
            lines: vec![
                line("the queue", 0, |probe| probe.truth),
                line("measured", 1, |probe| probe.measured).dashed(),
            ],
            guides: Vec::new(),
        }
    };
    let mut charts: Vec<Chart> = simulated
        .iter()
        .map(|probes| chart("simulated, 1 Gbit/s", probes))
        .collect();
    charts.extend(
        measured
            .emulated
            .iter()
            .map(|probes| chart("real packets, 100 Mbit/s", probes)),
    );
    if !charts.is_empty() {
        findings.picture(
            "A packet every 25 ms through a queue that another sender fills",
            &charts,
        );
    }
    let all = measured
        .simulated
        .iter()
        .map(|(name, probes)| (format!("simulated, {name} stamps"), probes));
    let all = all.chain(
        measured
            .emulated
            .iter()
            .map(|probes| ("real packets".to_owned(), probes)),
    );
    let rows = all.map(|(name, probes)| {
        let deepest = probes
            .all
            .iter()
            .map(|probe| probe.truth)
            .fold(0.0, f64::max);
        let mut row = vec![name, probes.all.len().to_string(), format!("{deepest:.0}")];
        row.extend([0.5, 0.99, 1.0].map(|p| {
            let error = probes.error(p);
            error.map_or("–".to_owned(), |packets| {
                format!("{:.2}", packets * probes.packet_us)
            })
        }));
        row.push(format!("{:.1}", probes.packet_us));
        row
    });
    findings.table(
        "Error of the queueing delay, packet by packet, µs",
        &[
            "where",
            "packets",
            "longest wait",
            "error\np50",
            "p99",
            "worst",
            "a packet takes",
        ],
        rows.collect(),
    );
}

fn words(findings: &mut Findings, measured: &Measured) {
    if let Some(direct) = &measured.direct {
        findings.remark(format!(
            "Real packets: a pair of virtual devices between two namespaces of this host, {} writes of 16 KB at 1 Gbit/s, each \
             from the moment that TCP gives it to the device until TCP hears its acknowledgement; for the ladder {} UDP packets \
             of full size and their answers beside that connection, in bursts of 16 up to the third step and one by one from \
             the fourth. Such devices take no time to transmit, so that there is nothing to calibrate by; both hosts have one clock.",
            direct.writes, direct.packets
        ));
        let hardware = direct::hardware_stamps();
        findings.fact("hardware_clocks", hardware.len());
        findings.remark(hardware_words(&hardware));
    }
    if measured.ladder.is_some() {
        findings.remark(
            "Modelled: the true times are those of one TCP connection over a simulated link of 10 Gbit/s, acknowledgements sharing their \
             way with 5 Gbit/s of other packets; each passage through a stack takes an exponential time with a mean of 71 µs, \
             chosen so that the 99th percentile of four together is the slide's 710 µs, so that the first step has no figure of its own; drivers give 20 µs of departures one stamp, that of the first, and 10 µs of arrivals one, that of their end. What \
             the last step leaves is batches whose last packet did not come at their end.",
        );
    }
    findings.deviation(
        "The slides' figures for single steps are pictures without numbers; only slide 8's 710 µs stands beside ours. Their host had one NIC of \
         10 Gbit/s and Linux 3.13; ours are the devices named above.",
    );
    findings.deviation(
        "Slides 18 to 20 have a switch whose queue is known and a sender that saturates 1 Gbit/s. Ours: the simulator's switch, where \
         the first sender's own link has 10 Gbit/s so that it is the switch that queues; and the emulator's queue at 100 Mbit/s, \
         whose log has every packet. One TCP connection keeps 250 packets of buffer busy; its sender, beside the probes, is this kernel's own.",
    );
}

/// Describes the interfaces that stamp in hardware, slide 10's second solution.
fn hardware_words(interfaces: &[(String, bool)]) -> String {
    if interfaces.is_empty() {
        return "No interface of this host stamps every packet in hardware: the ladder has no such step.".to_owned();
    }
    let described: Vec<String> = interfaces
        .iter()
        .map(|(name, on)| match on {
            true => format!("{name} stamps every packet in hardware"),
            false => format!(
                "{name} can stamp every packet in hardware (`hwstamp_ctl -i {name} -t 1 -r 1` switches that on)"
            ),
        })
        .collect();
    format!(
        "{}. This experiment stays within namespaces of its own and does not use it; `ccplane send --stamps hardware` to another \
         host does, and prints the one-way queueing delay.",
        described.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use probes::Probe;

    #[test]
    fn figures_say_where_they_are_from() {
        let probes = |error: f64| Probes {
            all: vec![
                Probe {
                    truth: 100.0,
                    measured: 100.0 + error
                };
                3
            ],
            packet_us: 120.0,
            sound: true,
            disturbed: Vec::new(),
        };
        let mut measured = Measured {
            simulated: vec![("exact", probes(0.0))],
            ..Measured::default()
        };
        let figures = findings(&measured);
        assert_eq!(figures.figures()["accuracy_p50_packets"], 0.0);
        assert_eq!(figures.figures()["accuracy_of"], "simulated");
        measured.emulated = Some(probes(-60.0));
        measured.direct = Some(Direct {
            stack: (0..=1_000).map(|n| 50.0 + f64::from(n)).collect(),
            steps: [Some((1.0, 2.0)); 6],
            writes: 1_001,
            packets: 10,
        });
        let figures = findings(&measured);
        assert_eq!(figures.figures()["accuracy_p50_packets"], 0.5);
        assert_eq!(figures.figures()["accuracy_of"], "real packets");
        assert_eq!(figures.figures()["stack_rtt_spread_us"], 1_000.0);
        assert_eq!(figures.figures()["ladder_real_6_p99_us"], 2.0);
    }

    #[test]
    fn interfaces_that_stamp_in_hardware_are_described() {
        assert!(hardware_words(&[]).contains("No interface"));
        let text = hardware_words(&[("eth0".to_owned(), true), ("eth1".to_owned(), false)]);
        assert!(
            text.contains("eth0 stamps every packet") && text.contains("-i eth1"),
            "{text}"
        );
        assert!(text.contains("send --stamps hardware"), "{text}");
    }

    #[test]
    fn what_the_model_was_fitted_to_is_no_result() {
        let spread = ladder::Spread {
            p50: 1.0,
            p99: 710.0,
        };
        let measured = Measured {
            ladder: Some(ladder::Ladder {
                steps: [spread; 6],
                causes: Vec::new(),
            }),
            ..Measured::default()
        };
        let findings = findings(&measured);
        let figures = findings.figures();
        assert!(!figures.contains_key("ladder_sim_1_p99_us"));
        assert_eq!(figures["ladder_sim_3_p99_us"], 710.0);
    }
}
