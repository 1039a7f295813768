//! One run of kernel TCP as fast as the machine goes, memory to memory: what benchmarks and
//! experiments on throughput and CPU are made of.

use ccplane_algorithms::{Parameters, Registry};
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::metrics;
use ccplane_units::Duration;
use serde::{Deserialize, Serialize};

use crate::burner::Burner;
use crate::cpu::Reading;
use crate::diag::Diag;
use crate::ends::TrafficEnds;
use crate::error::BackendError;
use crate::machine::MachineWatch;
use crate::steer::SteeredAlgorithm;
use crate::traffic::{self, TrafficPlan};

/// One run's figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoopbackRun {
    /// Of all flows, Gbit/s.
    pub goodput_gbit: f64,
    /// The same in each interval between two looks.
    pub goodputs_gbit: Vec<f64>,
    /// Of this process: senders, receivers and the agent, with the kernel's work on their behalf.
    pub cpu_s_per_gb: f64,
    /// Of everything on the machine, kernel threads and other people's work included.
    pub machine_cpu_s_per_gb: f64,
    /// CPU of everything on the machine, in percent of one CPU.
    pub machine_cpu_percent: f64,
    /// Reports that the agent heard.
    pub reports_per_s: f64,
    /// CPU of other processes, in percent of one CPU.
    pub others_cpu_percent: f64,
    /// Reports that found the ring full: their values went out with a later one.
    pub ring_lost: u64,
    /// Flows that fell back to the datapath's own NewReno: what the contender did, and no reason to
    /// run again.
    pub fallbacks: u64,
    /// CPU of the agent's thread, in percent of one CPU.
    #[serde(default)]
    pub agent_cpu_percent: f64,
    /// What the machine did, a sentence each.
    #[serde(default)]
    pub disturbed: Vec<String>,
}

impl LoopbackRun {
    /// Whether the machine let it measure. It does not depend on how the contender fared.
    pub fn sound(&self) -> bool {
        self.disturbed.is_empty()
    }
}

/// How to run once.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections.
    pub flows: usize,
    /// For how long they send.
    pub length: Duration,
    /// Between two looks at all flows. Hundreds of sockets a hundred times a second would be work
    /// of its own.
    pub look_every: Duration,
    /// Whether the agent's thread lets ordinary threads, the senders', go before it.
    pub behind: bool,
    /// A thread that computes beside the run, in percent of one CPU, as the agent of another run
    /// did; behind as well.
    pub burn_percent: Option<f64>,
}

impl Load {
    /// By itself, as fast as may be.
    pub fn plain(flows: usize, length: Duration, look_every: Duration) -> Load {
        Load {
            flows,
            length,
            look_every,
            behind: false,
            burn_percent: None,
        }
    }
}

/// Bytes that must wait before a receiver is woken, under every condition. With one flow and two
/// CPUs the sender's CPU is the bottleneck by a hair: when it falls behind, the receiver goes to
/// sleep between segments, and to wake a halted virtual CPU is where 14 to 18 % of the sender's
/// samples were (`_raw_spin_unlock_irqrestore`). A ratio taken there says on which side of the hair
/// a run fell (40 to 60 Gbit/s natively), not what the datapath costs. Too small brings that back;
/// too large (the receive buffer is 32 MB) makes the sender wait for the receiver, so that it is at
/// most an eighth of what the kernel lets a receiver hold.
const RECEIVE_LOW_WATER_BYTES: usize = 1 << 20;

/// iperf3's and the paper's window, 16 MB.
const WINDOW_BYTES_MAX: usize = 16 << 20;

/// The buffer of each of so many flows on this host.
pub fn buffer(flows: usize) -> usize {
    buffer_each(
        flows,
        &std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default(),
    )
}

/// The kernel lets each socket hold twice its buffer, and both ends of all flows together hold no
/// more than TCP may without pressure, the first of `limits` (`tcp_mem`, pages: without pressure,
/// under pressure, at most). Beyond the last, receivers drop what comes: 256 flows with 16 MB each
/// then stood at two segments and a timeout for a whole run, the kernel's own as ccplane's.
fn buffer_each(flows: usize, limits: &str) -> usize {
    /// Where pages are larger, buffers are smaller than they could be.
    const PAGE_BYTES: usize = 4096;
    let without_pressure = limits
        .split_whitespace()
        .next()
        .and_then(|pages| pages.parse::<usize>().ok());
    let all = without_pressure.map_or(usize::MAX, |pages| pages.saturating_mul(PAGE_BYTES / 4));
    WINDOW_BYTES_MAX.min(all / flows.max(1))
}

/// Largest share of a run for which the machine may stand still at once. A larger one moves a
/// figure by more than the differences of interest. There is no queue here that a shorter pause
/// could overflow, and interrupts of a saturated CPU take some milliseconds.
const STALL_DIVISOR: u64 = 50;

/// One run: everybody sends as fast as may be.
pub fn one(
    ends: &TrafficEnds,
    contender: &Contender,
    load: Load,
    registry: &Registry,
) -> Result<LoopbackRun, Error> {
    let steered = match contender {
        Contender::Ccplane { name, parameters } => {
            let parameters = parameters
                .iter()
                .fold(Parameters::new(), |all, (name, value)| {
                    all.with(name, value)
                });
            Some(SteeredAlgorithm::start_at(
                registry,
                name,
                &parameters,
                0,
                load.behind,
            )?)
        }
        Contender::Native { .. } => None,
    };
    let congestion = steered
        .as_ref()
        .map_or(contender.algorithm(), SteeredAlgorithm::kernel_name);
    let buffer = buffer(load.flows);
    let listener = ends
        .receiver
        .run(|| traffic::listen(ends.address, buffer))
        .map_err(|error| BackendError::from_host(error, true))?
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
        .map_err(|error| BackendError::from_host(error, true))?
        .map_err(Error::traffic("open connections", ""))?;
    let receivers = traffic::accept(&listener, &senders)
        .map_err(Error::traffic("accept the connections", ""))?;

    for receiver in &receivers {
        ccplane_linux::wake_reader_at(receiver, RECEIVE_LOW_WATER_BYTES.min(buffer / 4) as i32)
            .map_err(Error::traffic("set SO_RCVLOWAT", ""))?;
    }

    let reports = || steered.as_ref().map_or(0, SteeredAlgorithm::reports);
    let burner = load.burn_percent.map(Burner::start).transpose()?;
    let thread = steered.as_ref().map(SteeredAlgorithm::thread);
    let (before, reports_before, watch) = (Reading::now(thread), reports(), MachineWatch::start());
    let plan = TrafficPlan {
        duration: load.length,
        sample_every: load.look_every,
    };
    let transfer =
        traffic::transfer(senders, receivers, diag, &plan, |_, _| true).map_err(Error::traffic(
            "observe the connections",
            "is the kernel built with inet_diag (CONFIG_INET_DIAG)?",
        ))?;
    let (after, machine) = (Reading::now(thread), watch.finish());
    drop(burner);
    let reports = reports() - reports_before;
    let counters = steered
        .map(SteeredAlgorithm::finish)
        .transpose()?
        .unwrap_or_default()
        .counters;

    let looks = transfer.flows.iter().map(Vec::len).min().unwrap_or(0);
    let received: Vec<(u64, u64)> = (0..looks)
        .map(|look| {
            let samples = transfer
                .flows
                .iter()
                .filter_map(|samples| samples.get(look));
            samples.fold((0, 0), |(at, sum), s| (at.max(s.at_ns), sum + s.received))
        })
        .collect();
    let total = received.last().map_or(0, |(_, sum)| *sum);
    let (_, machine_cpu, agent) = after.percent_since(&before);
    let gb = total.max(1) as f64 / 1e9;
    Ok(LoopbackRun {
        goodput_gbit: metrics::mbits(total, transfer.elapsed_ns) / 1e3,
        goodputs_gbit: received
            .windows(2)
            .filter_map(|w| match w {
                [(from, before), (to, after)] => {
                    Some(metrics::mbits(after - before, to - from) / 1e3)
                }
                _ => None,
            })
            .collect(),
        cpu_s_per_gb: after.process_s_since(&before) / gb,
        machine_cpu_s_per_gb: after.machine_s_since(&before) / gb,
        machine_cpu_percent: machine_cpu,
        reports_per_s: reports as f64 * 1e9 / transfer.elapsed_ns.max(1) as f64,
        others_cpu_percent: after.others_percent_since(&before),
        ring_lost: counters.ring_lost,
        fallbacks: counters.fallbacks,
        agent_cpu_percent: agent,
        disturbed: machine.disturbed(load.length / STALL_DIVISOR),
    })
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
    fn who_fell_back_is_not_asked_again() {
        let mut run = LoopbackRun {
            fallbacks: 7,
            ..LoopbackRun::default()
        };
        assert!(run.sound(), "its own result");
        run.disturbed = vec!["the machine once stood still for 90.0 ms".to_owned()];
        assert!(!run.sound());
    }
}
