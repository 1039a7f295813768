//! RC3, figure 15: how long a flow takes between two hosts, 10 and 1 Gbit/s, 20 ms; simulated.
//!
//! The published bars are not numbers in the paper; those who repeated its testbed digitised them
//! (Crognale and Wilson, CS244 2015), to about 0.4 ms.

mod flow;
mod packets;

use ccplane_algorithms::Registry;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_units::{Duration, Rate};

use super::page::{Findings, cell};
use super::rc3_lone::{Acks, Lone, Took};
use super::rc3_theory::{PAYLOAD, Path, WIRE, reduction};
use super::rc3_who::{Control, Start};
use super::{Datapath, Experiment, Options, Outcome, simulations};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rc3-fct",
    title: "Completion times between two hosts at 10 and 1 Gbit/s, 20 ms",
    source: "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014, section 5.3 and figure 15, as digitised by those who repeated it",
    takes: "15 minutes on real packets, two with --quick; a second of it simulated",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
    run: super::Run::Code(fct),
};

const RTT: Duration = Duration::from_millis(20);
/// Linux' initial window.
const WINDOW: u16 = 10;
const STARTS: [Start; 2] = [Start::Tcp, Start::Rc3];
/// Packets that a receiver takes together and acknowledges once.
const STRETCHES: [u8; 4] = [2, 4, 8, 16];
/// The figures that stand for the experiment are of this size, the largest.
const LARGEST: u64 = 1_460_000;
/// By how much the digitised bars may be off, ms.
const RESOLUTION: f64 = 0.4;

/// A digitised row: bytes; simulated and real times of TCP and of RC3, ms.
pub(super) struct Bars {
    pub bytes: u64,
    pub simulated: (f64, f64),
    pub real: (f64, f64),
}

/// One of the two figures.
pub(super) struct Figure {
    name: &'static str,
    /// In names of figures.
    key: &'static str,
    gbit: u64,
    pub bars: [Bars; 7],
}

const fn bars(bytes: u64, simulated: (f64, f64), real: (f64, f64)) -> Bars {
    Bars {
        bytes,
        simulated,
        real,
    }
}

pub(super) const FIGURES: [Figure; 2] = [
    Figure {
        name: "15(a), 10 Gbit/s",
        key: "10g",
        gbit: 10,
        bars: [
            bars(1_460, (29.6, 29.6), (29.6, 29.6)),
            bars(7_300, (29.6, 29.6), (29.6, 29.6)),
            bars(14_600, (29.6, 29.6), (30.0, 30.0)),
            bars(73_000, (69.8, 29.8), (70.2, 30.2)),
            bars(146_000, (89.7, 29.8), (90.9, 30.7)),
            bars(730_000, (130.6, 30.2), (174.6, 35.6)),
            bars(LARGEST, (151.3, 30.7), (218.4, 45.3)),
        ],
    },
    Figure {
        name: "15(b), 1 Gbit/s",
        key: "1g",
        gbit: 1,
        bars: [
            bars(1_460, (29.6, 29.6), (29.6, 29.6)),
            bars(7_300, (29.6, 29.6), (29.6, 29.6)),
            bars(14_600, (29.6, 29.6), (30.0, 30.0)),
            bars(73_000, (70.0, 30.0), (70.4, 30.4)),
            bars(146_000, (90.4, 30.7), (90.7, 31.2)),
            bars(730_000, (133.0, 35.6), (135.3, 39.2)),
            bars(LARGEST, (155.4, 41.5), (160.8, 60.0)),
        ],
    },
];

/// How a flow is sent and acknowledged.
type Way = (Start, Control, Acks);

fn fct(options: &Options, _registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    let mut findings = match options.on(Datapath::Sim) {
        true => simulate(options, progress)?,
        false => Findings::default(),
    };
    if options.on(Datapath::Linux) {
        packets::complete(options, &mut findings, progress)?;
    }
    findings.finish(&EXPERIMENT, options)
}

fn simulate(options: &Options, progress: &dyn Progress) -> Result<Findings, Error> {
    let jobs: Vec<Lone> = FIGURES
        .iter()
        .flat_map(|figure| {
            figure
                .bars
                .iter()
                .map(move |bars| (figure.gbit, bars.bytes))
        })
        .flat_map(|(gbit, bytes)| ways().into_iter().map(move |way| lone(gbit, bytes, way)))
        .collect();
    let took = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let results = Results(jobs.iter().zip(&took).collect());
    Ok(findings(&results))
}

fn ways() -> Vec<Way> {
    let acks = || {
        [Acks::Each]
            .into_iter()
            .chain(STRETCHES.map(Acks::Stretched))
    };
    let controls = acks().flat_map(|acks| Control::ALL.map(|control| (control, acks)));
    controls
        .flat_map(|(control, acks)| STARTS.map(|start| (start, control, acks)))
        .collect()
}

fn lone(gbit: u64, bytes: u64, (start, control, acks): Way) -> Lone {
    Lone {
        experiment: EXPERIMENT.name,
        start,
        control,
        rate: Rate::from_bits_per_sec(gbit * 1_000_000_000),
        rtt: RTT,
        bytes,
        window: Some(WINDOW),
        acks,
    }
}

struct Results<'a>(Vec<(&'a Lone, &'a Took)>);

impl Results<'_> {
    fn ms(&self, gbit: u64, bytes: u64, (start, control, acks): Way) -> Option<f64> {
        let rate = Rate::from_bits_per_sec(gbit * 1_000_000_000);
        let of = |job: &Lone| {
            (job.rate, job.bytes, job.start, job.control, job.acks)
                == (rate, bytes, start, control, acks)
        };
        self.0
            .iter()
            .find(|(job, _)| of(job))
            .map(|(_, took)| took.seconds * 1e3)
    }

    fn saved(&self, gbit: u64, bytes: u64, control: Control, acks: Acks) -> Option<f64> {
        let ms = |start| self.ms(gbit, bytes, (start, control, acks));
        Some(reduction(ms(Start::Tcp)?, ms(Start::Rc3)?))
    }
}

/// The bar of one that begins like this.
fn bar(pair: (f64, f64), start: Start) -> f64 {
    if start == Start::Tcp { pair.0 } else { pair.1 }
}

fn findings(results: &Results) -> Findings {
    let mut findings = Findings::default();
    for figure in &FIGURES {
        for start in STARTS {
            let name = if start == Start::Tcp { "_tcp" } else { "" };
            let margin = if start == Start::Tcp { 3.0 } else { 1.0 };
            for bars in &figure.bars {
                let value =
                    results.ms(figure.gbit, bars.bytes, (start, Control::Cubic, Acks::Each));
                let key = format!("fct_{}_{}_sim{name}_ms", bars.bytes, figure.key);
                if bars.bytes == LARGEST {
                    let published = bar(bars.simulated, start);
                    findings.compare(
                        &key,
                        &format!("figure {}, 1.46 MB, {}, ms", figure.name, start.label()),
                        value,
                        &format!("{published} (digitised)"),
                        TargetRange::Within(published - margin, published + margin),
                    );
                } else {
                    findings.figure(key, value);
                }
            }
        }
    }
    for packets in STRETCHES {
        findings.compare(
            &format!("fct_{LARGEST}_10g_sim_tcp_per{packets}_ms"),
            &format!("figure 15(a), 1.46 MB, TCP, one ACK for {packets} packets, growth by two of them, ms"),
            results.ms(10, LARGEST, (Start::Tcp, Control::Cubic, Acks::Stretched(packets))),
            "218.4 real, 151.3 simulated (digitised)",
            TargetRange::AtLeast(151.3),
        );
    }
    let apart = FIGURES.iter().flat_map(|figure| {
        figure.bars.iter().flat_map(|bars| {
            STARTS.map(|start| {
                let ms =
                    |control| results.ms(figure.gbit, bars.bytes, (start, control, Acks::Each));
                Some((ms(Control::Cubic)? / ms(Control::Reno)? - 1.0).abs() * 100.0)
            })
        })
    });
    findings.compare(
        "cubic_reno_max_difference_pct",
        "Cubic beside NewReno, simulated, largest difference over both figures, %: nothing is lost, so that both are in slow start",
        apart.flatten().max_by(f64::total_cmp),
        "practically identical",
        None,
    );
    let worst = FIGURES.iter().flat_map(|figure| {
        figure.bars.iter().map(|bars| {
            let saved = results.saved(figure.gbit, bars.bytes, Control::Cubic, Acks::Each)?;
            Some((saved - reduction(bars.simulated.0, bars.simulated.1)).abs())
        })
    });
    findings.compare(
        "fct_sim_reduction_max_error_pp",
        "time saved beside that of the published simulated bars, largest difference, percentage points",
        worst.flatten().max_by(f64::total_cmp),
        "bars digitised",
        TargetRange::AtMost(5.0),
    );
    for figure in &FIGURES {
        table(&mut findings, results, figure);
    }
    stretched(&mut findings, results);
    let charts: Vec<Chart> = FIGURES
        .iter()
        .map(|figure| chart(results, figure))
        .collect();
    findings.picture(
        "Completion times by size; published bars digitised",
        &charts,
    );
    words(&mut findings);
    findings
}

fn table(findings: &mut Findings, results: &Results, figure: &Figure) {
    let path = Path {
        spare: figure.gbit as f64 * 1e9 / 8.0,
        rtt: RTT.as_secs_f64(),
    };
    let rows = figure.bars.iter().map(|bars| {
        let packets = bars.bytes / PAYLOAD;
        let ms = |start, control| {
            cell(
                results.ms(figure.gbit, bars.bytes, (start, control, Acks::Each)),
                2,
            )
        };
        vec![
            bars.bytes.to_string(),
            ms(Start::Tcp, Control::Cubic),
            ms(Start::Tcp, Control::Reno),
            format!("{:.2}", path.tcp(packets, WINDOW.into()) * 1e3),
            bars.simulated.0.to_string(),
            bars.real.0.to_string(),
            ms(Start::Rc3, Control::Cubic),
            ms(Start::Rc3, Control::Reno),
            format!("{:.2}", path.rc3(packets) * 1e3),
            bars.simulated.1.to_string(),
            bars.real.1.to_string(),
            cell(
                results.saved(figure.gbit, bars.bytes, Control::Cubic, Acks::Each),
                1,
            ),
            format!("{:.1}", reduction(bars.simulated.0, bars.simulated.1)),
            format!("{:.1}", reduction(bars.real.0, bars.real.1)),
        ]
    });
    findings.table(
        format!(
            "Figure {}: ms, and percent saved; published bars digitised",
            figure.name
        ),
        &[
            "bytes",
            "TCP\nCubic",
            "TCP\nNewReno",
            "TCP\nmodel",
            "published\nsimulated",
            "published\nreal",
            "RC3\nCubic",
            "RC3\nNewReno",
            "RC3\nmodel",
            "published\nsimulated",
            "published\nreal",
            "saved\n%",
            "published\nsimulated",
            "published\nreal",
        ],
        rows.collect(),
    );
}

fn stretched(findings: &mut Findings, results: &Results) {
    let acks = [Acks::Each]
        .into_iter()
        .chain(STRETCHES.map(Acks::Stretched));
    let rows = acks.map(|acks| {
        let mut row = vec![match acks {
            Acks::Each => "1".to_owned(),
            Acks::Stretched(packets) => packets.to_string(),
        }];
        for figure in &FIGURES {
            for start in STARTS {
                row.push(cell(
                    results.ms(figure.gbit, LARGEST, (start, Control::Cubic, acks)),
                    1,
                ));
            }
            row.push(cell(
                results.saved(figure.gbit, LARGEST, Control::Cubic, acks),
                1,
            ));
        }
        row
    });
    findings.table(
        "1.46 MB where one ACK covers several packets and two of them count, ms",
        &[
            "packets\nan ACK",
            "10 Gbit/s\nTCP",
            "10 Gbit/s\nRC3",
            "saved\n%",
            "1 Gbit/s\nTCP",
            "1 Gbit/s\nRC3",
            "saved\n%",
        ],
        rows.collect(),
    );
}

fn chart(results: &Results, figure: &Figure) -> Chart {
    let lines = STARTS.into_iter().enumerate().flat_map(|(n, start)| {
        let kb = |bars: &Bars| bars.bytes as f64 / 1e3;
        let ours = figure.bars.iter().filter_map(|bars| {
            Some((
                kb(bars),
                results.ms(figure.gbit, bars.bytes, (start, Control::Cubic, Acks::Each))?,
            ))
        });
        let simulated = figure
            .bars
            .iter()
            .map(|bars| (kb(bars), bar(bars.simulated, start)));
        let real = figure
            .bars
            .iter()
            .map(|bars| (kb(bars), bar(bars.real, start)));
        [
            ChartSeries::new(start.label(), n, ours).dots(),
            ChartSeries::new(
                format!("{}, published, simulated", start.label()),
                n,
                simulated,
            )
            .dashed(),
            ChartSeries::new(format!("{}, published, real", start.label()), n + 2, real).dashed(),
        ]
    });
    Chart {
        title: format!("{}: completion time, ms", figure.name),
        x: Axis::log("size, KB"),
        y: Axis::linear(""),
        lines: lines.collect(),
        guides: Vec::new(),
    }
}

fn words(findings: &mut Findings) {
    findings.remark(format!(
        "The published bars are read off the paper's figure by those who repeated the testbed, to about {RESOLUTION} ms: the \
         shortest possible time is 30.0 ms and their bar 29.6. A time counts from asking for the connection to the last \
         byte's arrival, 1.5 round trips and the flow's own transmission at least, as in the paper's simulations.",
    ));
    findings.remark(
        "Stretched ACKs: the receiver takes packets together that come at line rate and acknowledges them once, and the \
         sender counts two of them. It is the paper's explanation for its TCP's being slower on real hardware at 10 Gbit/s; \
         how many packets came together there is not said. RC3 hardly needs the window and hardly changes.",
    );
    findings.deviation(format!(
        "A link between two hosts with packets of {PAYLOAD} in {WIRE} bytes, initial window {WINDOW} (the paper: Linux 3.2, \
         whose initial window is {WINDOW}), and no other host, card or switch. One run of each: nothing in it is random.",
    ));
    findings.deviation(
        "Cubic without HyStart: slow start ends at a loss, which does not happen here. The paper does not mention HyStart.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulations::Job;

    fn ms(gbit: u64, way: Way) -> f64 {
        lone(gbit, LARGEST, way).run().unwrap().seconds * 1e3
    }

    #[test]
    fn the_largest_flow_takes_what_the_published_bars_say() {
        for figure in &FIGURES {
            let published = figure.bars.last().unwrap();
            for control in Control::ALL {
                let tcp = ms(figure.gbit, (Start::Tcp, control, Acks::Each));
                let rc3 = ms(figure.gbit, (Start::Rc3, control, Acks::Each));
                assert!(
                    (tcp - published.simulated.0).abs() < 3.0,
                    "{}: TCP {tcp} ms",
                    figure.name
                );
                assert!(
                    (rc3 - published.simulated.1).abs() < 1.0,
                    "{}: RC3 {rc3} ms",
                    figure.name
                );
            }
        }
    }

    /// One ACK for two packets, both counted, is as good as two ACKs; more packets an ACK, and slow
    /// start takes longer.
    #[test]
    fn stretched_acks_slow_tcp_down() {
        let tcp = |acks| ms(10, (Start::Tcp, Control::Reno, acks));
        let [each, two, four, many] = [
            tcp(Acks::Each),
            tcp(Acks::Stretched(2)),
            tcp(Acks::Stretched(4)),
            tcp(Acks::Stretched(16)),
        ];
        assert!((two - each).abs() < 2.0, "{each} ms, {two} ms");
        assert!(
            four > two + 40.0 && many > four + 40.0,
            "{two} ms, {four} ms, {many} ms"
        );
        let rc3 = ms(10, (Start::Rc3, Control::Reno, Acks::Stretched(4)));
        assert!(rc3 < 32.0, "{rc3} ms");
    }
}
