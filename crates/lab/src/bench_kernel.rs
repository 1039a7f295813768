//! What steering from outside costs the kernel's datapath: TCP over loopback, as fast as the machine goes, under
//! `ccp_reno` and under the kernel's own Reno.
//!
//! The conditions alternate run by run, so that a disturbance of the machine meets all of them; each ratio is the median
//! over rounds of a run's figure over that of the native run beside it. The traffic is memory to memory through a
//! namespace of our own: what is compared is the CPU's work for a packet, not a network's.

use std::fmt::Write;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_units::Duration;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cpu::Reading;
use crate::diag::Diag;
use crate::ends::Ends;
use crate::error::Error;
use crate::experiment::Contender;
use crate::metrics;
use crate::steer::Steered;
use crate::traffic::Plan;
use crate::{table, traffic};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of flows.
    pub flows: Vec<usize>,
    /// Length of each run. Below a second, slow start and the start of threads weigh in.
    pub run: Duration,
    /// Runs of each condition at each number of flows. The median of one run is that run; five ride out a disturbance.
    pub rounds: usize,
}

impl Default for Options {
    /// What the paper's figure 13 has on its axis; 2 s and 5 rounds take four minutes.
    fn default() -> Options {
        Options {
            flows: vec![1, 2, 4, 8, 16, 32, 64],
            run: Duration::from_secs(2),
            rounds: 5,
        }
    }
}

/// Who decides the window, and how often it hears from the datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Native,
    PerAck,
    Every10Ms,
}

impl Condition {
    const ALL: [Condition; 3] = [Condition::Native, Condition::PerAck, Condition::Every10Ms];

    fn contender(self) -> Contender {
        match self {
            Condition::Native => Contender::native("reno"),
            Condition::PerAck => Contender::ccplane_with("reno", "report", "ack"),
            Condition::Every10Ms => Contender::ccplane_with("reno", "report", "10ms"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Condition::Native => "native",
            Condition::PerAck => "per_ack",
            Condition::Every10Ms => "10ms",
        }
    }
}

/// Bytes that must wait before a receiver is woken, under every condition. With one flow and two CPUs the sender's CPU is
/// the bottleneck by a hair: when it falls behind, the receiver goes to sleep between segments, and to wake a halted
/// virtual CPU is where 14 to 18 % of the sender's samples were (`_raw_spin_unlock_irqrestore`). A ratio taken there says
/// on which side of the hair a run fell (40 to 60 Gbit/s natively), not what the datapath costs. Too small brings that
/// back; too large (the receive buffer is 32 MB) makes the sender wait for the receiver, so that it is at most an eighth of
/// what the kernel lets a receiver hold.
const WAKE_AT: usize = 1 << 20;

/// iperf3's and the paper's window, 16 MB.
const BUFFER: usize = 16 << 20;

/// The buffer of each of so many flows on this host.
pub(crate) fn buffer(flows: usize) -> usize {
    buffer_each(
        flows,
        &std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default(),
    )
}

/// The kernel lets each socket hold twice its buffer, and both ends of all flows together hold no more than TCP may without
/// pressure, the first of `limits` (`tcp_mem`, pages: without pressure, under pressure, at most). Beyond the last, receivers
/// drop what comes: 256 flows with 16 MB each then stood at two segments and a timeout for a whole run, the kernel's own as
/// ccplane's.
fn buffer_each(flows: usize, limits: &str) -> usize {
    /// Where pages are larger, buffers are smaller than they could be.
    const PAGE: usize = 4096;
    let without_pressure = limits
        .split_whitespace()
        .next()
        .and_then(|pages| pages.parse::<usize>().ok());
    let all = without_pressure.map_or(usize::MAX, |pages| pages.saturating_mul(PAGE / 4));
    BUFFER.min(all / flows.max(1))
}

/// Each flow takes two threads.
const MOST_FLOWS: usize = 1024;

/// Work of other processes, in percent of one CPU, above which ratios say more about that work. Kernel threads, but for those
/// of interrupts, stay well below it.
const MOST_OTHERS: f64 = 20.0;

/// One run's figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub goodput_gbit: f64,
    /// The same in each interval between two looks.
    pub goodputs_gbit: Vec<f64>,
    /// Of this process: senders, receivers and the agent, with the kernel's work on their behalf.
    pub cpu_s_per_gb: f64,
    /// Of everything on the machine, kernel threads and other people's work included.
    pub machine_cpu_s_per_gb: f64,
    /// CPU of everything on the machine, in percent of one CPU.
    pub machine_cpu_percent: f64,
    pub reports_per_s: f64,
    /// CPU of other processes, in percent of one CPU.
    pub others_cpu_percent: f64,
    /// Reports that found the ring full: their values went out with a later one.
    pub ring_lost: u64,
    /// Flows that fell back to the datapath's own NewReno: such a run does not measure the algorithm.
    pub fallbacks: u64,
}

impl Run {
    /// Whether it measures what it is meant to: by itself on the machine, with the algorithm in charge.
    pub fn sound(&self) -> bool {
        self.fallbacks == 0 && self.others_cpu_percent <= MOST_OTHERS
    }
}

/// How to run once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub flows: usize,
    pub length: Duration,
    /// Between two looks at all flows. Hundreds of sockets a hundred times a second would be work of its own.
    pub look_every: Duration,
}

/// What came out: figures by name, and a table.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `goodput_ratio_per_ack_N`, `goodput_ratio_10ms_N`, `cpu_ratio_10ms_N` for each N, and what they are made of.
    pub figures: Map<String, Value>,
    /// For a person.
    pub text: String,
}

/// Measures. `step` hears the share that is done and what comes next, and says whether to go on.
pub fn run(options: &Options, registry: &Registry, mut step: impl FnMut(f64, &str) -> bool) -> Result<Outcome, Error> {
    check(options)?;
    let ends = Ends::loopback()?;
    let total = options.flows.len() * options.rounds * Condition::ALL.len();
    let mut done = 0;
    let mut figures = Map::new();
    let mut rows = Vec::new();
    for &flows in &options.flows {
        let mut runs: [Vec<Run>; 3] = Default::default();
        for round in 0..options.rounds {
            for (condition, runs) in Condition::ALL.iter().zip(&mut runs) {
                let next = format!(
                    "{flows} flows, round {} of {}, {}",
                    round + 1,
                    options.rounds,
                    condition.name()
                );
                if !step(done as f64 / total as f64, &next) {
                    return Err(Error::Interrupted);
                }
                let load = Load {
                    flows,
                    length: options.run,
                    look_every: options.run,
                };
                runs.push(one(&ends, &condition.contender(), load, registry)?);
                done += 1;
            }
        }
        rows.push(summarise(flows, &runs, &mut figures));
    }
    Ok(Outcome {
        text: text(&rows, options, &figures),
        figures,
    })
}

fn check(options: &Options) -> Result<(), Error> {
    let bad = |what, value: String, fix| Err(Error::Bad { what, value, fix });
    if options.flows.is_empty() || options.flows.iter().any(|n| *n == 0 || *n > MOST_FLOWS) {
        return bad(
            "the number of flows",
            format!("{:?}", options.flows),
            "give numbers from 1 to 1024",
        );
    }
    if options.rounds == 0 {
        return bad("the number of rounds", "0".into(), "give at least 1, better 5");
    }
    if options.run < Duration::from_millis(100) {
        return bad(
            "the length of a run",
            options.run.to_string(),
            "give at least 100ms, better 2s",
        );
    }
    Ok(())
}

/// One run: everybody sends as fast as may be.
pub(crate) fn one(ends: &Ends, contender: &Contender, load: Load, registry: &Registry) -> Result<Run, Error> {
    let steered = match contender {
        Contender::Ccplane { name, parameters } => {
            let parameters = parameters
                .iter()
                .fold(Parameters::new(), |all, (name, value)| all.with(name, value));
            Some(Steered::start(registry, name, &parameters, 0)?)
        }
        Contender::Native { .. } => None,
    };
    let congestion = steered.as_ref().map_or(contender.algorithm(), Steered::kernel_name);
    let buffer = buffer(load.flows);
    let listener = ends
        .receiver
        .run(|| traffic::listen(ends.address, buffer))
        .map_err(|error| Error::from_tun(error, true))?
        .map_err(Error::traffic("listen for connections", ""))?;
    let (senders, diag) = ends
        .sender
        .run(|| {
            let to = listener.local_addr()?;
            let senders = (0..load.flows)
                .map(|_| traffic::connect(to, congestion, buffer))
                .collect::<Result<Vec<_>, _>>()?;
            Ok((senders, Diag::open()?))
        })
        .map_err(|error| Error::from_tun(error, true))?
        .map_err(Error::traffic("open connections", ""))?;
    let receivers = traffic::accept(&listener, &senders).map_err(Error::traffic("accept the connections", ""))?;

    for receiver in &receivers {
        ccplane_linux::wake_reader_at(receiver, WAKE_AT.min(buffer / 4) as i32)
            .map_err(Error::traffic("set SO_RCVLOWAT", ""))?;
    }

    let reports = || steered.as_ref().map_or(0, Steered::reports);
    let (before, reports_before) = (Reading::now(None), reports());
    let plan = Plan {
        duration: load.length,
        sample_every: load.look_every,
        ahead: false,
    };
    let transfer = traffic::transfer(senders, receivers, diag, &plan, |_, _| true).map_err(Error::traffic(
        "observe the connections",
        "is the kernel built with inet_diag (CONFIG_INET_DIAG)?",
    ))?;
    let after = Reading::now(None);
    let reports = reports() - reports_before;
    let (counters, _) = steered.map(Steered::finish).transpose()?.unwrap_or_default();

    let looks = transfer.flows.iter().map(Vec::len).min().unwrap_or(0);
    let received: Vec<(u64, u64)> = (0..looks)
        .map(|look| {
            let samples = transfer.flows.iter().filter_map(|samples| samples.get(look));
            samples.fold((0, 0), |(at, sum), s| (at.max(s.at_ns), sum + s.received))
        })
        .collect();
    let total = received.last().map_or(0, |(_, sum)| *sum);
    let (_, machine, _) = after.percent_since(&before);
    let gb = total.max(1) as f64 / 1e9;
    Ok(Run {
        goodput_gbit: metrics::mbits(total, transfer.elapsed_ns) / 1e3,
        goodputs_gbit: received
            .windows(2)
            .filter_map(|w| match w {
                [(from, before), (to, after)] => Some(metrics::mbits(after - before, to - from) / 1e3),
                _ => None,
            })
            .collect(),
        cpu_s_per_gb: after.process_s_since(&before) / gb,
        machine_cpu_s_per_gb: after.machine_s_since(&before) / gb,
        machine_cpu_percent: machine,
        reports_per_s: reports as f64 * 1e9 / transfer.elapsed_ns.max(1) as f64,
        others_cpu_percent: after.others_percent_since(&before),
        ring_lost: counters.ring_lost,
        fallbacks: counters.fallbacks,
    })
}

/// Puts the figures for `flows` in their place and gives the table's row.
fn summarise(flows: usize, runs: &[Vec<Run>; 3], figures: &mut Map<String, Value>) -> Vec<String> {
    let [native, per_ack, every_10ms] = runs;
    let median = |runs: &[Run], value: fn(&Run) -> f64| {
        metrics::median(&runs.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let ratio = |runs: &[Run], value: fn(&Run) -> f64| {
        let beside = runs
            .iter()
            .zip(native)
            .map(|(run, native)| value(run) / value(native).max(f64::MIN_POSITIVE));
        metrics::median(&beside.collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let goodput = |r: &Run| r.goodput_gbit;
    let (cpu, machine) = (|r: &Run| r.cpu_s_per_gb, |r: &Run| r.machine_cpu_s_per_gb);
    let reports = |r: &Run| r.reports_per_s;
    let named = [
        ("goodput_ratio_per_ack", ratio(per_ack, goodput)),
        ("goodput_ratio_10ms", ratio(every_10ms, goodput)),
        ("cpu_ratio_per_ack", ratio(per_ack, cpu)),
        ("cpu_ratio_10ms", ratio(every_10ms, cpu)),
        ("machine_cpu_ratio_10ms", ratio(every_10ms, machine)),
        ("goodput_native_gbit", median(native, goodput)),
        ("cpu_native_s_per_gb", median(native, cpu)),
        ("reports_per_s_per_ack", median(per_ack, reports)),
        ("reports_per_s_10ms", median(every_10ms, reports)),
    ];
    for (name, value) in named {
        figures.insert(format!("{name}_{flows}"), json!((value * 1e4).round() / 1e4));
    }
    let all: Vec<Run> = runs.iter().flatten().cloned().collect();
    figures.insert(
        format!("others_cpu_percent_{flows}"),
        json!(median(&all, |r| r.others_cpu_percent).round()),
    );
    let sum = |value: fn(&Run) -> u64| all.iter().map(value).sum::<u64>();
    figures.insert(format!("ring_lost_{flows}"), json!(sum(|r| r.ring_lost)));
    figures.insert(format!("fallbacks_{flows}"), json!(sum(|r| r.fallbacks)));
    let mut row = vec![flows.to_string()];
    let shown = |digits: usize, value: f64| format!("{value:.digits$}");
    row.extend([
        shown(1, median(native, goodput)),
        shown(3, ratio(per_ack, goodput)),
        shown(3, ratio(every_10ms, goodput)),
        shown(3, median(native, cpu)),
        shown(3, ratio(per_ack, cpu)),
        shown(3, ratio(every_10ms, cpu)),
        shown(0, median(per_ack, reports)),
        shown(0, median(every_10ms, reports)),
    ]);
    row
}

fn text(rows: &[Vec<String>], options: &Options, figures: &Map<String, Value>) -> String {
    let headings = [
        "flows",
        "native\nGbit/s",
        "per ACK\n÷ native",
        "10 ms\n÷ native",
        "native\nCPU s/GB",
        "per ACK\n÷ native",
        "10 ms\n÷ native",
        "per ACK\nreports/s",
        "10 ms\nreports/s",
    ];
    let text = table::render(&headings, rows);
    let mut words = format!(
        "Reno, steered with a report for every ACK and every 10 ms, as a multiple of the native run beside it. Medians \
         of {} rounds with runs of {}; CPU of the whole process (senders, receivers, agent) for each GB received. Aims: goodput 0.95 per ACK \
         and 0.99 at 10 ms, CPU 1.05 at 10 ms. The paper (its host, Linux 4.14, 43 Gbit/s native): 29 per ACK in its \
         table (68 % in its text), 41 every 10 ms.\n",
        options.rounds, options.run
    );
    let figure = |name: &str| -> Vec<f64> {
        let of_name = figures.iter().filter(|(key, _)| key.starts_with(name));
        of_name.filter_map(|(_, value)| value.as_f64()).collect()
    };
    let others = figure("others_cpu_percent_").into_iter().fold(0.0, f64::max);
    if others > MOST_OTHERS {
        let _ = writeln!(
            words,
            "Not sound: up to {others:.0} % of a CPU went to work outside this process; run it on an idle machine."
        );
    }
    if figure("fallbacks_").iter().any(|n| *n > 0.0) {
        words +=
            "Not sound: flows fell back to the datapath's own NewReno, because the agent got no CPU for too long.\n";
    }
    text + "\n" + &table::wrap(&words, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_flows_share_what_tcp_may_hold() {
        let limits = "287901\t383868\t575802\n";
        assert_eq!(buffer_each(1, limits), 16 << 20);
        for flows in [64, 256, 1_024] {
            let held = 2 * 2 * flows * buffer_each(flows, limits);
            assert!(
                (1_170_000_000..=287_901 * 4_096).contains(&held),
                "{flows} flows: {held}"
            );
        }
        assert_eq!(buffer_each(1_024, ""), 16 << 20, "no limit is known");
    }

    #[test]
    fn a_ratio_is_the_median_over_rounds() {
        let run = |goodput_gbit, cpu_s_per_gb| Run {
            goodput_gbit,
            cpu_s_per_gb,
            ..Run::default()
        };
        let runs = [
            vec![run(40.0, 0.5), run(10.0, 9.0), run(40.0, 0.5)],
            vec![run(38.0, 0.6), run(38.0, 0.6), run(1.0, 7.0)],
            vec![run(39.6, 0.51), run(39.6, 0.51), run(39.6, 0.51)],
        ];
        let mut figures = Map::new();
        summarise(4, &runs, &mut figures);
        assert_eq!(figures["goodput_ratio_per_ack_4"], 0.95);
        assert_eq!(figures["goodput_ratio_10ms_4"], 0.99);
        assert_eq!(figures["cpu_ratio_10ms_4"], 1.02);
    }

    #[test]
    fn nonsense_is_refused_before_anything_is_made() {
        let base = Options::default();
        for options in [
            Options {
                flows: vec![],
                ..base.clone()
            },
            Options {
                flows: vec![0],
                ..base.clone()
            },
            Options {
                rounds: 0,
                ..base.clone()
            },
            Options {
                run: Duration::ZERO,
                ..base
            },
        ] {
            assert!(matches!(
                run(&options, &Registry::builtin(), |_, _| true),
                Err(Error::Bad { .. })
            ));
        }
    }
}
