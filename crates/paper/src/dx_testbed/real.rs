//! DX, slides 27 to 29, on real packets: kernel TCP through the emulator. Its simulations are
//! `papers/dx/testbed.toml`. The peers are the kernel's own, and DCTCP: ours, which steers kernel
//! TCP as DX does, and the kernel's where it has one.

use ccplane_algorithms::Registry;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::result::ContenderResult;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Progress, ProgressStep, RunOptions, run};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_report::TargetRange;
use ccplane_testbed::traffic;
use ccplane_testbed::{RealPackets, TransportKind};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use crate::page::Findings;
use crate::{Coded, Datapath, Options};

pub(crate) const CODED: Coded = Coded {
    name: "dx-testbed",
    on: Datapath::Linux,
    everywhere: &[Datapath::Sim, Datapath::Linux],
    run: real,
};

/// An emulated link.
struct Link {
    rate: Rate,
    rtt: Duration,
    /// What its figures end in.
    key: &'static str,
    /// A run in which the emulator was late has no ratio.
    only_sound: bool,
}

const LINKS: [Link; 2] = [
    // Eight packets, as the slides' 1 Gbit/s and 100 µs. A packet takes 120 µs, and the emulator's
    // thread is late by as much or less.
    Link {
        rate: Rate::from_bits_per_sec(100_000_000),
        rtt: Duration::from_millis(1),
        key: "",
        only_sound: false,
    },
    // The slides' rate. A packet takes 12 µs, so that a late emulator is what would be measured.
    // Seventeen packets; a shorter path is less than what the host takes itself.
    Link {
        rate: Rate::from_bits_per_sec(1_000_000_000),
        rtt: Duration::from_micros(200),
        key: "_1g",
        only_sound: true,
    },
];
/// Loss-based peers fill it.
const FILLED: Size = Size::Packets(250);
const SENDERS: u32 = 2;
/// Where the queue marks for DCTCP: the value in use at 1 Gbit/s. The slides have none.
const MARKING: Size = Size::Packets(20);
/// The slides' ratio of median queueing delays at 1 Gbit/s.
const SLIDE: f64 = 5.33;

/// What one of them did.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Real {
    label: String,
    /// Of the link.
    mbit: u64,
    queue: String,
    goodput_mbit: f64,
    /// Time at the link, the packet's own transmission included, as in the simulations.
    queueing_p50_us: f64,
    queueing_p99_us: f64,
    drops: u64,
    /// The emulator kept to its link.
    sound: bool,
    /// What the machine did.
    disturbed: Vec<String>,
}

fn real(
    findings: &mut Findings,
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<(), Error> {
    write(findings, &measure(options, registry, progress)?);
    Ok(())
}

/// Runs each, and keeps what it did; one that the machine disturbed is run again.
fn measure(
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Vec<Real>, Error> {
    let length = Duration::from_secs(if options.quick { 3 } else { 20 });
    let droptail = QueueSpec::DropTail(FILLED);
    let marking = QueueSpec::Ecn {
        threshold: MARKING,
        limit: FILLED,
    };
    let mut each = vec![
        (Contender::ccplane("dx"), droptail),
        (Contender::native("cubic"), droptail),
        (Contender::native("reno"), droptail),
        (Contender::ccplane("dctcp"), marking),
    ];
    if traffic::exists("dctcp") {
        each.push((Contender::native("dctcp"), marking));
    }
    let runs = LINKS
        .iter()
        .flat_map(|link| each.iter().map(move |run| (link, run)));
    let of = LINKS.len() * each.len();
    let one = |(index, (link, (contender, queue))): (usize, (&Link, &(Contender, QueueSpec)))| {
        let mbit = link.mbit();
        let name = format!(
            "real-{mbit}-{}.json",
            contender.to_string().replace(':', "-")
        );
        let key = format!("{contender} {mbit} Mbit/s {} {queue} {length}", link.rtt);
        let run = || {
            let contenders = vec![contender.clone()];
            let scenario = Scenario::dumbbell(contenders, link.rate, link.rtt, *queue, length)
                .with_flows(SENDERS);
            let step = ProgressStep::begin(progress, index, of, &contender.to_string());
            let once = RunOptions::single(1, "ccplane paper dx-testbed --datapath linux");
            let result = run(
                &RealPackets::new(TransportKind::Tcp),
                &scenario,
                registry,
                &once,
                &step,
            )?;
            let contender = result
                .contenders
                .into_iter()
                .next()
                .ok_or(Error::NoContender)?;
            Ok(Real::of(contender, *queue, link))
        };
        options.parts().part(
            &name,
            &key,
            |real: &Real| Disturbed::from(&real.disturbed),
            run,
        )
    };
    runs.enumerate().map(one).collect()
}

impl Link {
    fn mbit(&self) -> u64 {
        self.rate.bits_per_sec() / 1_000_000
    }
}

impl Real {
    fn of(result: ContenderResult, queue: QueueSpec, link: &Link) -> Real {
        let figures = &result.metrics;
        Real {
            label: result.label,
            mbit: link.mbit(),
            queue: queue.to_string(),
            goodput_mbit: figures.goodput_mbit,
            queueing_p50_us: figures.delay_p50_ms * 1e3,
            queueing_p99_us: figures.delay_p99_ms * 1e3,
            drops: figures.queue_drops,
            sound: result.audit.sound,
            disturbed: result.audit.disturbed,
        }
    }
}

fn write(findings: &mut Findings, all: &[Real]) {
    for link in &LINKS {
        let of = |label: &str| {
            all.iter()
                .find(|real| (real.label.as_str(), real.mbit) == (label, link.mbit()))
        };
        let Some(dx) = of("dx") else { continue };
        let key = link.key;
        for peer in ["dx", "dctcp", "native:cubic", "native:reno"] {
            let name = peer.trim_start_matches("native:");
            findings.figure(
                format!("real_goodput_{name}_mbit{key}"),
                of(peer).map(|real| real.goodput_mbit),
            );
        }
        findings.figure(format!("real_queue_p50_us{key}"), Some(dx.queueing_p50_us));
        if let Some(cubic) = of("native:cubic") {
            findings.figure(
                format!("real_goodput_ratio{key}"),
                Some(dx.goodput_mbit / cubic.goodput_mbit),
            );
            findings.figure(
                format!("real_queue_cubic_p50_us{key}"),
                Some(cubic.queueing_p50_us),
            );
        }
        if let Some(dctcp) = of("dctcp") {
            findings.figure(
                format!("real_queue_dctcp_p50_us{key}"),
                Some(dctcp.queueing_p50_us),
            );
            let what = format!(
                "Real packets, {}: DCTCP's median queueing delay over DX's",
                link.rate
            );
            let asked = !link.only_sound || dx.sound && dctcp.sound;
            let ratio = Some(dctcp.queueing_p50_us / dx.queueing_p50_us).filter(|_| asked);
            let aim = asked.then_some(TargetRange::AtLeast(SLIDE));
            let slide = format!("{SLIDE} at 1 Gbit/s (slides 28, 32)");
            findings.compare(
                &format!("queue_ratio_dctcp{key}"),
                &what,
                ratio,
                &slide,
                aim,
            );
        }
    }
    let rows = all.iter().map(|real| {
        vec![
            real.mbit.to_string(),
            real.label.clone(),
            real.queue.clone(),
            format!("{:.2}", real.goodput_mbit),
            format!("{:.0}", real.queueing_p50_us),
            format!("{:.0}", real.queueing_p99_us),
            real.drops.to_string(),
            if real.sound { "yes" } else { "no" }.to_owned(),
        ]
    });
    findings.disturbed(all.iter().filter(|real| !real.sound).count(), all.len());
    let links = LINKS
        .map(|link| format!("{} with {}", link.rate, link.rtt))
        .join(", ");
    findings.table(
        format!("Real packets: {SENDERS} senders of kernel TCP, {links}, through the emulator"),
        &[
            "link\nMbit/s",
            "under",
            "queue",
            "goodput\nMbit/s",
            "queueing\np50 µs",
            "queueing\np99 µs",
            "drops",
            "emulator\non time",
        ],
        rows.collect(),
    );
    findings.deviation(
        "DCTCP's threshold is 20 packets on both real links, the value in use at 1 Gbit/s. Where the emulator was late at 1 Gbit/s, the ratio is left out.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(label: &str, mbit: u64, queueing_p50_us: f64, sound: bool) -> Real {
        Real {
            label: label.to_owned(),
            mbit,
            queue: String::new(),
            goodput_mbit: 1.0,
            queueing_p50_us,
            queueing_p99_us: 0.0,
            drops: 0,
            sound,
            disturbed: Vec::new(),
        }
    }

    #[test]
    fn a_late_emulator_leaves_no_ratio_at_1_gbit() {
        let told = |sound| {
            let mut findings = Findings::default();
            let all = [
                real("dx", 100, 100.0, sound),
                real("dctcp", 100, 600.0, sound),
                real("dx", 1_000, 10.0, sound),
                real("dctcp", 1_000, 70.0, sound),
            ];
            write(&mut findings, &all);
            let figures = findings.figures();
            (
                figures["queue_ratio_dctcp"].as_f64(),
                figures["queue_ratio_dctcp_1g"].as_f64(),
            )
        };
        assert_eq!(told(true), (Some(6.0), Some(7.0)));
        assert_eq!(told(false), (Some(6.0), None));
    }
}
