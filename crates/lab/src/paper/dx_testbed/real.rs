//! The same on real packets: kernel TCP through the emulator, at a rate that it carries accurately. The peers are the kernel's own, and
//! DCTCP: ours, which steers kernel TCP as DX does, and the kernel's where it has one.

use ccplane_algorithms::Registry;
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use super::super::Options;
use super::super::link::Steps;
use super::super::page::Findings;
use crate::error::Error;
use crate::experiment::{Contender, Experiment};
use crate::result::ContenderResult;
use crate::run::{Progress, waited_us};
use crate::traffic;

/// A packet takes 600 µs. The emulator's thread is late by a tenth of a millisecond or so, which at more than some ten Mbit/s
/// would be a packet's time and more.
const RATE: Rate = Rate::from_bits_per_sec(20_000_000);
/// The path holds seven packets.
const RTT: Duration = Duration::from_millis(4);
/// Loss-based peers fill it.
const FILLED: Size = Size::Packets(250);
/// As much as the path holds: less and DCTCP, with windows of two packets each, would leave the link idle.
const MARKED: Size = Size::Packets(7);
const SENDERS: usize = 2;

/// What one of them did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Real {
    label: String,
    queue: String,
    goodput_mbit: f64,
    waited_p50_us: f64,
    waited_p99_us: f64,
    drops: u64,
    /// The emulator kept to its link.
    sound: bool,
}

/// Runs each, and keeps what it did; one that was disturbed is run again.
pub(super) fn measure(options: &Options, registry: &Registry, progress: &mut dyn Progress) -> Result<Vec<Real>, Error> {
    let length = Duration::from_secs(if options.quick { 3 } else { 20 });
    let droptail = QueueSpec::DropTail(FILLED);
    let marking = QueueSpec::Ecn {
        threshold: MARKED,
        limit: FILLED,
    };
    let mut runs = vec![
        (Contender::ccplane("dx"), droptail),
        (Contender::native("cubic"), droptail),
        (Contender::native("reno"), droptail),
        (Contender::ccplane("dctcp"), marking),
    ];
    if traffic::exists("dctcp") {
        runs.push((Contender::native("dctcp"), marking));
    }
    let of = runs.len();
    let one = |(index, (contender, queue)): (usize, (Contender, QueueSpec))| {
        let name = format!("real-{}.json", contender.to_string().replace(':', "-"));
        let key = format!("{contender} {queue} {length}");
        let run = || {
            let experiment = Experiment {
                flows: SENDERS,
                ..Experiment::over(vec![contender], RATE, RTT, queue, length)
            };
            let mut steps = Steps {
                inner: &mut *progress,
                index,
                of,
            };
            let result = crate::run::run(&experiment, registry, &mut steps)?;
            let contender = result.contenders.into_iter().next().ok_or(Error::NoContender)?;
            Ok(Real::of(contender, queue))
        };
        options.parts().part(&name, &key, |real: &Real| real.sound, run)
    };
    runs.into_iter().enumerate().map(one).collect()
}

impl Real {
    fn of(result: ContenderResult, queue: QueueSpec) -> Real {
        let figures = &result.figures;
        Real {
            label: result.label,
            queue: queue.to_string(),
            goodput_mbit: figures.goodput_mbit,
            waited_p50_us: waited_us(figures.delay_p50_ms, RATE),
            waited_p99_us: waited_us(figures.delay_p99_ms, RATE),
            drops: figures.queue_drops,
            sound: result.audit.sound,
        }
    }
}

pub(super) fn write(findings: &mut Findings, all: &[Real]) {
    let of = |label: &str| all.iter().find(|real| real.label == label);
    if let (Some(dx), Some(cubic)) = (of("dx"), of("native:cubic")) {
        findings.figure("real_goodput_ratio", Some(dx.goodput_mbit / cubic.goodput_mbit));
        findings.figure("real_queue_p50_us", Some(dx.waited_p50_us));
        findings.figure("real_queue_cubic_p50_us", Some(cubic.waited_p50_us));
    }
    if let Some(dctcp) = of("dctcp") {
        findings.figure("real_queue_dctcp_p50_us", Some(dctcp.waited_p50_us));
    }
    let rows = all.iter().map(|real| {
        vec![
            real.label.clone(),
            real.queue.clone(),
            format!("{:.2}", real.goodput_mbit),
            format!("{:.0}", real.waited_p50_us),
            format!("{:.0}", real.waited_p99_us),
            real.drops.to_string(),
            if real.sound { "yes" } else { "no" }.to_owned(),
        ]
    });
    findings.disturbed(all.iter().filter(|real| !real.sound).count(), all.len());
    findings.table(
        format!("Real packets: {SENDERS} senders of kernel TCP, {RATE}, {RTT}, through the emulator"),
        &[
            "under",
            "queue",
            "goodput\nMbit/s",
            "waiting\np50 µs",
            "waiting\np99 µs",
            "drops",
            "emulator\non time",
        ],
        rows.collect(),
    );
}
