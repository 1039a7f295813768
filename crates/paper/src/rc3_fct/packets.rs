//! Figure 15 on real packets: the kernel's TCP and our transport through the emulated path; 15(b)
//! as it is, and both with time stretched as those who repeated them did it, 100 Mbit/s and a round
//! trip that is longer by as much as the rate is lower.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::parts::Disturbed;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_testbed::longest_stall;
use ccplane_testbed::machine::MachineWatch;
use ccplane_testbed::traffic::{monotonic_ns, wait_until};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use super::super::Options;
use super::super::page::{Findings, cell};
use super::super::rc3_theory::reduction;
use super::flow::{Testbed, Way, Who};
use super::{Bars, FIGURES};

/// One set-up.
struct Setup {
    name: &'static str,
    key: &'static str,
    way: Way,
    /// Time runs slower by this much.
    stretch: u32,
    /// Which it repeats.
    bars: &'static [Bars; 7],
}

const SETUPS: [Setup; 3] = [
    Setup {
        name: "15(b): 1 Gbit/s, 20 ms",
        key: "1g",
        way: Way {
            rate: Rate::from_bits_per_sec(1_000_000_000),
            delay: Duration::from_millis(10),
        },
        stretch: 1,
        bars: &FIGURES[1].bars,
    },
    Setup {
        name: "15(b), time stretched by 10: 100 Mbit/s, 200 ms",
        key: "1g_by10",
        way: Way {
            rate: Rate::from_bits_per_sec(100_000_000),
            delay: Duration::from_millis(100),
        },
        stretch: 10,
        bars: &FIGURES[1].bars,
    },
    Setup {
        name: "15(a), time stretched by 100: 100 Mbit/s, 2 s",
        key: "10g_by100",
        way: Way {
            rate: Rate::from_bits_per_sec(100_000_000),
            delay: Duration::from_secs(1),
        },
        stretch: 100,
        bars: &FIGURES[0].bars,
    },
];

/// Flows of each size, in full and quick.
const FLOWS: (usize, usize) = (10, 3);

/// ms of every flow, and whether the emulator was on time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Took {
    ms: Vec<Vec<f64>>,
    sound: bool,
    /// What the machine did.
    #[serde(default)]
    disturbed: Vec<String>,
}

/// Runs all of it, and adds what was found.
pub(super) fn complete(
    options: &Options,
    findings: &mut Findings,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let mut charts = Vec::new();
    for (n, setup) in SETUPS.iter().enumerate() {
        progress.on_progress(n as f64 / SETUPS.len() as f64, setup.name);
        let all = run(setup, options, progress)?;
        report(findings, setup, &all);
        charts.push(chart(setup, &all));
    }
    findings.picture(
        "Real packets: completion times by size; published bars digitised",
        &charts,
    );
    findings.remark(
        "Real packets: from the first byte written on an open connection to the answer of one byte, plus half a round trip, as those who \
         repeated the testbed measured it (CS244, Stanford 2015); error bars are the extremes. Stretched figures are divided by their \
         factor. Packets carry 1,460 bytes of payload, as theirs: 1,500 bytes in the kernel's TCP, without its time stamps, and 1,531 in ours.",
    );
    findings.deviation(
        "Real packets: kernel TCP and our transport cross the emulator one after the other and not on 10 Gbit/s cards, which this cannot carry; \
         our transport asks again after 5 s, not 1 s, where no round trip was measured yet.",
    );
    Ok(())
}

/// Between two looks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

fn run(
    setup: &Setup,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<(Who, Took)>, Error> {
    let stop = AtomicBool::new(false);
    let one = |who: Who| measured(setup, who, options, &stop).map(|took| (who, took));
    thread::scope(|scope| {
        // Where time is stretched nothing is busy, and everybody runs at once; at full speed one
        // after the other.
        let together: &[&[Who]] = if setup.stretch == 1 {
            &[&Who::ALL]
        } else {
            &Who::ALL.each_ref().map(std::slice::from_ref)
        };
        let start = |all: &'static [Who]| {
            scope.spawn(move || all.iter().map(|who| one(*who)).collect::<Vec<_>>())
        };
        let running: Vec<_> = together.iter().map(|all| start(all)).collect();
        while running.iter().any(|thread| !thread.is_finished()) {
            if progress.is_cancelled() {
                stop.store(true, Ordering::Relaxed);
            }
            wait_until(monotonic_ns() + LOOK.as_nanos());
        }
        let done = running.into_iter().flat_map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.collect()
    })
}

fn measured(setup: &Setup, who: Who, options: &Options, stop: &AtomicBool) -> Result<Took, Error> {
    let count = match (options.quick, setup.stretch) {
        (true, 100) => 1,
        (true, _) => FLOWS.1,
        (false, _) => FLOWS.0,
    };
    let name = format!("rc3-fct-packets-{}-{}.json", setup.key, who.key());
    let key = format!("{count} flows");
    let half_ms = setup.way.delay.as_secs_f64() * 1e3;
    let ms = |took: Duration| (took.as_secs_f64() * 1e3 + half_ms) / f64::from(setup.stretch);
    let run = || {
        let testbed = Testbed::start(setup.way, who)?;
        let watch = MachineWatch::start();
        // The first flow of all finds nothing warm.
        testbed.flows(1_460, 1, stop)?;
        let flows = setup.bars.iter().map(|bar| {
            let took = testbed.flows(bar.bytes, count, stop)?;
            Ok(took.into_iter().map(ms).collect())
        });
        let ms = flows.collect::<Result<_, Error>>()?;
        let disturbed = watch.finish().disturbances(longest_stall(2.0 * half_ms));
        let on_time = testbed.finish()?;
        Ok(Took {
            ms,
            sound: on_time && disturbed.is_empty(),
            disturbed,
        })
    };
    options.parts().part(
        &name,
        &key,
        |took: &Took| Disturbed::from(&took.disturbed),
        run,
    )
}

fn median(values: &[f64]) -> Option<f64> {
    Distribution::new(values.iter().copied()).median()
}

fn of(all: &[(Who, Took)], who: Who, size: usize) -> &[f64] {
    let took = all.iter().find(|(of, _)| *of == who);
    took.and_then(|(_, took)| took.ms.get(size))
        .map_or(&[], Vec::as_slice)
}

fn report(findings: &mut Findings, setup: &Setup, all: &[(Who, Took)]) {
    let (cubic, rc3) = (Who::Kernel("cubic"), Who::Transport { rc3: true });
    let mut rows = Vec::new();
    let mut worst: Option<f64> = None;
    for (size, bar) in setup.bars.iter().enumerate() {
        let mut row = vec![bar.bytes.to_string()];
        for who in Who::ALL {
            let ms = of(all, who, size);
            let value = median(ms);
            findings.figure(
                format!("fct_{}_{}_{}_ms", bar.bytes, setup.key, who.key()),
                value,
            );
            let spread = ms.iter().fold((f64::MAX, f64::MIN), |(low, high), ms| {
                (low.min(*ms), high.max(*ms))
            });
            row.push(value.map_or("–".into(), |value| {
                format!("{value:.1} ({:.1}–{:.1})", spread.0, spread.1)
            }));
        }
        let ours = median(of(all, cubic, size)).zip(median(of(all, rc3, size)));
        let saved = |(tcp, rc3): (f64, f64)| reduction(tcp, rc3);
        let ours = ours.map(saved);
        let (simulated, real) = (saved(bar.simulated), saved(bar.real));
        if let Some(ours) = ours {
            // As good as the simulated bars, and no worse than the real ones, where those are
            // lower.
            let short = simulated.min(real) - ours;
            worst = Some(worst.map_or(short, |worst| worst.max(short)));
        }
        row.push(cell(ours, 1));
        row.push(format!("{simulated:.1}"));
        row.push(format!("{real:.1}"));
        rows.push(row);
    }
    findings.compare(
        &format!("fct_{}_packets_reduction_shortfall_pp", setup.key),
        &format!(
            "{}, real packets: by how much the time saved is below the published bars at most, points",
            setup.name
        ),
        worst,
        "bars digitised",
        TargetRange::AtMost(5.0),
    );
    let apart = (0..setup.bars.len()).filter_map(|size| {
        let ms = |who| median(of(all, Who::Kernel(who), size));
        Some((ms("cubic")? / ms("reno")? - 1.0).abs() * 100.0)
    });
    findings.compare(
        &format!("cubic_reno_{}_max_difference_pct", setup.key),
        &format!(
            "{}, the kernel's Cubic beside its NewReno, largest difference, %",
            setup.name
        ),
        apart.max_by(f64::total_cmp),
        "practically identical",
        None,
    );
    findings.disturbed(
        all.iter().filter(|(_, took)| !took.sound).count(),
        all.len(),
    );
    let mut headings = vec!["bytes"];
    headings.extend(Who::ALL.map(Who::label));
    headings.extend(["saved\n%", "published\nsimulated", "published\nreal"]);
    findings.table(
        format!(
            "Figure {}, real packets: median ms (least to most), and percent saved beside the kernel's Cubic",
            setup.name
        ),
        &headings,
        rows,
    );
}

fn chart(setup: &Setup, all: &[(Who, Took)]) -> Chart {
    let kb = |bar: &Bars| bar.bytes as f64 / 1e3;
    let mut lines: Vec<ChartSeries> = Who::ALL
        .into_iter()
        .enumerate()
        .map(|(n, who)| {
            let points = setup.bars.iter().enumerate();
            let medians = points
                .clone()
                .filter_map(|(size, bar)| Some((kb(bar), median(of(all, who, size))?)));
            let errors = points.filter_map(|(size, bar)| {
                let ms = of(all, who, size);
                let low = ms.iter().copied().reduce(f64::min)?;
                Some((kb(bar), low, ms.iter().copied().reduce(f64::max)?))
            });
            ChartSeries::new(who.label().replace('\n', " "), n, medians)
                .dots()
                .errors(errors.collect())
        })
        .collect();
    for (label, pick) in [
        (
            "TCP, published, simulated",
            (|bar: &Bars| bar.simulated.0) as fn(&Bars) -> f64,
        ),
        ("RC3, published, simulated", |bar| bar.simulated.1),
    ] {
        let points = setup.bars.iter().map(|bar| (kb(bar), pick(bar)));
        lines.push(ChartSeries::new(label, lines.len(), points).dashed());
    }
    Chart {
        title: format!("{}: completion time, ms", setup.name),
        x: Axis::log("size, KB"),
        y: Axis::linear(""),
        lines,
        guides: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_flow_of_several_does_not_move_the_figure() {
        let took = Took {
            ms: vec![vec![29.0, 30.0, 400.0]; 7],
            ..Took::default()
        };
        let mut findings = Findings::default();
        report(&mut findings, &SETUPS[0], &[(Who::Kernel("cubic"), took)]);
        let cubic = Who::Kernel("cubic").key();
        assert_eq!(findings.figures()[&format!("fct_1460_1g_{cubic}_ms")], 30.0);
    }
}
