//! CCP, SIGCOMM 2018, section 7.1.2, figure 11: how long flows of a web's sizes take under Reno in
//! and outside of the kernel.
//!
//! Fifty persistent connections to one client share 192 Mbit/s with 100 ms and one BDP of queue.
//! 100,000 flows arrive as a Poisson process at half of the link's rate. The list of them, when, on
//! which connection, how large, is drawn from a seed and replayed by everybody, so that figures are
//! compared pair by pair: each seed gives the ratio of two quantiles, and Student's t over seeds
//! tells how much of it is luck.

mod draw;
mod kernel;
mod simulated;

use ccplane_algorithms::Registry;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_units::{Duration, Rate};

use super::page::Findings;
use super::replay::Message;
use super::stats::{Ratio, paired_ratio};
use super::{Datapath, Experiment, Options, Outcome, simulations};
use ccplane_lab::Error;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::{Progress, ProgressStep};
use draw::{Composition, FLOWS, LARGE, SEEDS, SMALL};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp-fct",
    title: "Flow completion times of 100,000 flows under Reno",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.1.2, figure 11",
    takes: "50 minutes (half a minute of it simulated); under two minutes with --quick",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
    run: super::Run::Code(fct),
};

const LINK: Rate = Rate::from_bits_per_sec(192_000_000);
const RTT: Duration = Duration::from_millis(100);
/// Seeds replayed on kernel TCP: each takes ten minutes.
const KERNEL_SEEDS: usize = 5;
/// Flows of `--quick`: 9 s of arrivals in the simulator, 5 s on kernel TCP. Large ones are too few
/// to say anything.
const QUICK_FLOWS: (usize, usize) = (6_000, 3_000);

/// How often the algorithm hears of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Every {
    /// The algorithms' usual; the paper names no interval here.
    Rtt,
    /// The longer one of its two in section 7.2.
    TenMs,
}

impl Every {
    /// As a parameter.
    fn name(self) -> &'static str {
        match self {
            Every::Rtt => "rtt",
            Every::TenMs => "10ms",
        }
    }
}

/// Who decides the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The datapath's own Reno.
    Native,
    /// ccplane's.
    Ccplane(Every),
    /// All of it outside, as the paper's; in the simulator only.
    Outside(Every),
    /// The datapath's own once more: how far it is from itself. On kernel TCP only, where no two
    /// runs are alike.
    NativeAgain,
}

impl Who {
    const KERNEL: [Who; 4] = [
        Who::Native,
        Who::Ccplane(Every::Rtt),
        Who::Ccplane(Every::TenMs),
        Who::NativeAgain,
    ];
    const SIMULATED: [Who; 5] = [
        Who::Native,
        Who::Ccplane(Every::Rtt),
        Who::Ccplane(Every::TenMs),
        Who::Outside(Every::Rtt),
        Who::Outside(Every::TenMs),
    ];

    fn name(self) -> &'static str {
        match self {
            Who::Native => "native",
            Who::Ccplane(Every::Rtt) => "ccplane-rtt",
            Who::Ccplane(Every::TenMs) => "ccplane-10ms",
            Who::Outside(Every::Rtt) => "outside-rtt",
            Who::Outside(Every::TenMs) => "outside-10ms",
            Who::NativeAgain => "native-again",
        }
    }
}

/// One list under everybody: the µs that each flow took.
struct Replayed {
    list: Vec<Message>,
    took: Vec<(Who, Vec<u64>)>,
}

fn fct(options: &Options, registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    let mut findings = Findings::default();
    let simulated = match options.on(Datapath::Sim) {
        true => Some(simulate(options, progress)?),
        false => None,
    };
    let real = match options.on(Datapath::Linux) {
        true => Some(replay(options, registry, progress)?),
        false => None,
    };
    compositions(
        &mut findings,
        simulated.as_ref().or(real.as_ref().map(|(all, ..)| all)),
    );
    // Without a name before them are the figures of real packets where there are such.
    let kernel = real
        .as_ref()
        .map(|(all, ..)| compare(&mut findings, all, "kernel", "", &Who::KERNEL));
    let prefix = if real.is_some() { "sim_" } else { "" };
    let sim = simulated
        .as_ref()
        .map(|all| compare(&mut findings, all, "simulator", prefix, &Who::SIMULATED));
    findings.fact(
        "fct_from",
        if real.is_some() {
            "kernel"
        } else {
            "simulator"
        },
    );
    if let (Some(kernel), Some(sim)) = (&kernel, &sim) {
        findings.fact("fct_signs_agree", signs_agree(kernel, sim));
    }
    for (all, place) in [
        (real.as_ref().map(|(all, ..)| all), "kernel TCP"),
        (simulated.as_ref(), "the simulator"),
    ] {
        if let Some(all) = all {
            findings.picture(
                format!("Flow completion times on {place}, all seeds"),
                &pictures(all),
            );
        }
    }
    if let Some((all, unsound, fallbacks)) = &real {
        findings.fact("fct_fallbacks", *fallbacks);
        findings.disturbed(
            *unsound,
            all.iter().map(|replayed| replayed.took.len()).sum(),
        );
    }
    words(&mut findings, options, kernel.is_some());
    findings.finish(&EXPERIMENT, options)
}

fn simulate(options: &Options, progress: &dyn Progress) -> Result<Vec<Replayed>, Error> {
    let (seeds, flows) = if options.quick {
        (4, QUICK_FLOWS.0)
    } else {
        (SEEDS.len(), FLOWS)
    };
    let seeds = SEEDS.get(..seeds).unwrap_or_default();
    let runs: Vec<simulated::Run> = seeds
        .iter()
        .flat_map(|seed| {
            Who::SIMULATED.map(|who| simulated::Run {
                seed: *seed,
                flows,
                who,
            })
        })
        .collect();
    let mut took =
        simulations::run(&runs, options.threads, &options.parts(), progress)?.into_iter();
    let replayed = |seed: &u64| Replayed {
        list: draw::list(*seed, flows, LINK),
        took: Who::SIMULATED.iter().copied().zip(took.by_ref()).collect(),
    };
    Ok(seeds.iter().map(replayed).collect())
}

/// The lists on kernel TCP, how many runs the machine disturbed, and how often a flow fell back.
/// Who comes first changes from list to list.
fn replay(
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<(Vec<Replayed>, usize, u64), Error> {
    let (seeds, flows) = if options.quick {
        (2, QUICK_FLOWS.1)
    } else {
        (KERNEL_SEEDS, FLOWS)
    };
    let (mut all, mut unsound, mut fallbacks, mut done) = (Vec::new(), 0, 0, 0);
    for (round, seed) in SEEDS.iter().take(seeds).enumerate() {
        let list = draw::list(*seed, flows, LINK);
        let mut order = Who::KERNEL;
        order.rotate_left(round % Who::KERNEL.len());
        let mut took = Vec::new();
        for who in order {
            let name = format!("kernel-{seed}-{}.json", who.name());
            let key = format!("{flows} flows, {LINK}, {RTT}");
            let step = ProgressStep::begin(
                progress,
                done,
                seeds * order.len(),
                &format!("seed {seed}, {}", who.name()),
            );
            let run = || kernel::run(&list, who, registry, &step);
            let judge = |(_, disturbed, _): &kernel::Run| Disturbed::from(disturbed);
            let (times, disturbed, fell_back) = options.parts().part(&name, &key, judge, run)?;
            done += 1;
            unsound += usize::from(!disturbed.is_empty());
            fallbacks += fell_back;
            took.push((who, times));
        }
        all.push(Replayed { list, took });
    }
    Ok((all, unsound, fallbacks))
}

/// A figure of the paper: which flows, which of their quantiles.
struct Statement {
    key: &'static str,
    what: &'static str,
    quantile: f64,
    within: fn(u64) -> bool,
    paper: &'static str,
    aim: TargetRange,
}

const STATEMENTS: [Statement; 6] = [
    statement(
        "fct_p50",
        "all flows, median",
        0.5,
        |_| true,
        "0.9998",
        0.03,
    ),
    statement("fct_p75", "all flows, p75", 0.75, |_| true, "1.03", 0.03),
    statement("fct_p95", "all flows, p95", 0.95, |_| true, "1.30", 0.03),
    statement(
        "fct_small_p50",
        "at most 10 KB, median",
        0.5,
        |b| b <= SMALL,
        "essentially unaffected",
        0.03,
    ),
    statement(
        "fct_medium_p50",
        "10 KB to 1 MB, median",
        0.5,
        |b| b > SMALL && b <= LARGE,
        "0.93",
        0.03,
    ),
    statement(
        "fct_large_p50",
        "above 1 MB, median",
        0.5,
        |b| b > LARGE,
        "1.22",
        0.05,
    ),
];

const fn statement(
    key: &'static str,
    what: &'static str,
    quantile: f64,
    within: fn(u64) -> bool,
    paper: &'static str,
    off: f64,
) -> Statement {
    Statement {
        key,
        what,
        quantile,
        within,
        paper,
        aim: TargetRange::Within(1.0 - off, 1.0 + off),
    }
}

impl Replayed {
    /// The quantile of a statement under one of them.
    fn quantile(&self, statement: &Statement, who: Who) -> Option<f64> {
        let (_, took) = self.took.iter().find(|(other, _)| *other == who)?;
        let members = self
            .list
            .iter()
            .zip(took)
            .filter(|(message, _)| (statement.within)(message.bytes));
        Distribution::new(members.map(|(_, us)| *us as f64)).quantile(statement.quantile)
    }
}

/// The statement's ratio to native over all lists.
fn ratio(all: &[Replayed], statement: &Statement, who: Who) -> Option<Ratio> {
    let pair = |one: &Replayed| {
        Some((
            one.quantile(statement, who)?,
            one.quantile(statement, Who::Native)?,
        ))
    };
    paired_ratio(&all.iter().filter_map(pair).collect::<Vec<_>>())
}

/// Puts the ratios of everybody in their place; those of ccplane once a round trip, statement by
/// statement.
fn compare(
    findings: &mut Findings,
    all: &[Replayed],
    place: &str,
    prefix: &str,
    whose: &[Who],
) -> Vec<Option<f64>> {
    let mut main = Vec::new();
    for who in whose.iter().filter(|who| **who != Who::Native) {
        let (suffix, label) = match who {
            Who::Ccplane(Every::Rtt) | Who::Native => ("", "each RTT"),
            Who::Ccplane(Every::TenMs) => ("_10ms", "every 10 ms"),
            Who::Outside(Every::Rtt) => ("_outside", "all outside, each RTT"),
            Who::Outside(Every::TenMs) => ("_outside_10ms", "all outside, 10 ms"),
            Who::NativeAgain => ("_native", "native once more"),
        };
        for statement in &STATEMENTS {
            let ratio = ratio(all, statement, *who);
            if *who == Who::Ccplane(Every::Rtt) {
                main.push(ratio.map(|ratio| ratio.value));
            }
            // What the paper did is not what we aim at, nor is luck.
            let (paper, aim) = match who {
                Who::NativeAgain => ("", None),
                Who::Outside(_) => (statement.paper, None),
                _ => (statement.paper, Some(statement.aim)),
            };
            findings.compare_ratio(
                &format!("{prefix}{}_ratio{suffix}", statement.key),
                &format!("{place}, {label}: {}", statement.what),
                ratio,
                paper,
                aim,
            );
        }
    }
    main
}

/// Whether every difference of more than 3 % on one datapath has the same sign on the other.
fn signs_agree(kernel: &[Option<f64>], simulator: &[Option<f64>]) -> bool {
    let pairs = kernel
        .iter()
        .zip(simulator)
        .filter_map(|(a, b)| Some(((*a)? - 1.0, (*b)? - 1.0)));
    let mut larger = pairs.filter(|(a, b)| a.abs().max(b.abs()) > 0.03);
    larger.all(|(a, b)| (a > 0.0) == (b > 0.0))
}

fn compositions(findings: &mut Findings, all: Option<&Vec<Replayed>>) {
    let row = |name: &str, c: &Composition| {
        vec![
            name.to_owned(),
            c.small.0.to_string(),
            format!("{:.0}", c.small.1),
            c.large.0.to_string(),
            format!("{:.0}", c.large.1),
            format!("{:.0}", c.all),
            format!("{:.1}", c.off() * 100.0),
        ]
    };
    let mut rows = vec![row("the paper", &Composition::PAPER)];
    for (seed, one) in SEEDS.iter().zip(all.into_iter().flatten()) {
        rows.push(row(&format!("seed {seed}"), &Composition::of(&one.list)));
    }
    let headings = [
        "the list",
        "≤ 10 KB\nflows",
        "\nMB",
        "> 1 MB\nflows",
        "\nMB",
        "all\nMB",
        "off by\n% at most",
    ];
    findings.table("What was sent", &headings, rows);
}

/// The paper's three panels.
fn pictures(all: &[Replayed]) -> Vec<Chart> {
    let panel = |title: &str, statement: &Statement, until_s: f64| {
        let line = |(n, who): (usize, &Who)| {
            let of = |one: &Replayed| -> Vec<f64> {
                let took = one
                    .took
                    .iter()
                    .find(|(other, _)| other == who)
                    .map_or(&[][..], |(_, took)| took);
                let members = one
                    .list
                    .iter()
                    .zip(took)
                    .filter(|(message, _)| (statement.within)(message.bytes));
                members.map(|(_, us)| *us as f64 / 1e6).collect()
            };
            let line = ChartSeries::new(
                who.name(),
                n,
                cdf(&Distribution::new(all.iter().flat_map(of))),
            );
            if matches!(who, Who::Native | Who::NativeAgain) {
                line.dashed()
            } else {
                line
            }
        };
        let whose: Vec<Who> = all.first().map_or(Vec::new(), |one| {
            one.took.iter().map(|(who, _)| *who).collect()
        });
        let whose: Vec<Who> = Who::SIMULATED
            .into_iter()
            .chain([Who::NativeAgain])
            .filter(|who| whose.contains(who))
            .collect();
        Chart {
            title: title.to_owned(),
            x: Axis::linear("s").with_range(0.0, until_s),
            y: Axis::linear("").with_range(0.0, 1.0),
            lines: whose.iter().enumerate().map(line).collect(),
            guides: Vec::new(),
        }
    };
    let [.., small, medium, large] = &STATEMENTS;
    vec![
        panel("0–10 KB", small, 0.5),
        panel("10 KB–1 MB", medium, 2.0),
        panel("1 MB+", large, 10.0),
    ]
}

/// A distribution's curve in a few hundred points.
pub(super) fn cdf(values: &Distribution) -> Vec<(f64, f64)> {
    (0..=400)
        .filter_map(|i| Some((values.quantile(f64::from(i) / 400.0)?, f64::from(i) / 400.0)))
        .collect()
}

fn words(findings: &mut Findings, options: &Options, kernel: bool) {
    findings.remark(
        "Ratios of completion times, ccplane over native, each quantile seed by seed: their geometric mean, and its 95 % \
         confidence interval over the seeds, by Student's t. `all outside` leaves the window altogether to the agent, as the paper's \
         CCP did.",
    );
    if options.quick {
        findings.remark(
            "With --quick the first few thousand flows of a few lists: to see that it works.",
        );
    }
    findings.deviation(
        "The CAIDA curve is the one that Bundler's evaluation published; of its draws those are taken that are composed as \
         the paper's. A flow's time counts from its arrival: one that comes while another is under way on its connection \
         waits for it, as in the generator that the authors used.",
    );
    findings.deviation(
        "The servers need no request: what travels to them from the client is left out, half a round trip of each flow.",
    );
    if kernel {
        findings.deviation(
            "ccplane's emulator instead of Mahimahi, both ends on this machine, this host's kernel instead of Linux 4.14.",
        );
    } else {
        findings
            .deviation("The simulator's transport stands for the kernel's TCP; `--datapath linux` runs the kernel's.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: u64) -> Message {
        Message {
            at: Duration::ZERO,
            connection: 0,
            bytes,
        }
    }

    #[test]
    fn classes_and_quantiles_are_compared_pair_by_pair() {
        let list: Vec<Message> = [1_000, 10_000, 10_001, 1_000_000, 1_000_001, 9_000_000]
            .map(message)
            .into();
        let one = |scale: u64| Replayed {
            list: list.clone(),
            took: vec![
                (
                    Who::Native,
                    vec![100, 100, 200, 200, 1_000, 1_000]
                        .into_iter()
                        .map(|us| us * scale)
                        .collect(),
                ),
                (
                    Who::Ccplane(Every::Rtt),
                    vec![100, 100, 186, 186, 1_220, 1_220]
                        .into_iter()
                        .map(|us| us * scale)
                        .collect(),
                ),
            ],
        };
        // A list under which everything took three times as long counts as much as another.
        let all = [one(1), one(3)];
        let mut findings = Findings::default();
        let main = compare(&mut findings, &all, "kernel", "", &Who::KERNEL);
        let figures = findings.figures();
        for (key, value) in [("small", 1.0), ("medium", 0.93), ("large", 1.22)] {
            let found = figures[&format!("fct_{key}_p50_ratio")].as_f64().unwrap();
            assert!((found - value).abs() < 1e-4, "{key}: {found}");
        }
        assert!(figures["fct_p95_ratio_low"].as_f64().is_some());
        assert!(figures["fct_p50_ratio_10ms"].is_null());
        assert_eq!(main.len(), STATEMENTS.len());
    }

    #[test]
    fn signs_of_small_differences_do_not_matter() {
        assert!(signs_agree(
            &[Some(1.01), Some(1.2), None],
            &[Some(0.98), Some(1.04), Some(0.5)]
        ));
        assert!(!signs_agree(
            &[Some(1.01), Some(1.2)],
            &[Some(0.98), Some(0.9)]
        ));
    }
}
