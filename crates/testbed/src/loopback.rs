//! One run of kernel TCP over loopback at full speed, memory to memory, for benchmarks and
//! experiments on throughput and CPU cost.

use ccplane_algorithms::Registry;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::metrics;
use ccplane_units::Duration;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::burner::Burner;
use crate::cpu::{Reading, other_process_ns};
use crate::diag::Diag;
use crate::ends::TrafficEnds;
use crate::error::BackendError;
use crate::machine::MachineWatch;
use crate::steer::{AlgorithmRecord, SteeredAlgorithm};
use crate::traffic::{self, TrafficPlan};

/// Results of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoopbackRun {
    /// Goodput of all flows together, Gbit/s.
    pub goodput_gbit: f64,
    /// Goodput of all flows together in each sampling interval, Gbit/s.
    pub goodputs_gbit: Vec<f64>,
    /// CPU seconds per GB of this process and of an agent's own process: senders, receivers and the
    /// agent, with the kernel's work on their behalf.
    pub cpu_s_per_gb: f64,
    /// CPU seconds per GB of the whole machine, including kernel threads and unrelated processes.
    pub machine_cpu_s_per_gb: f64,
    /// CPU use of the whole machine, in percent of one CPU.
    pub machine_cpu_percent: f64,
    /// The same in each sampling interval.
    pub machine_cpu_percents: Vec<f64>,
    /// Reports received by the agent, per second.
    pub reports_per_s: f64,
    /// CPU use of other processes, in percent of one CPU.
    pub others_cpu_percent: f64,
    /// Reports that found the ring full. Their values were sent with a later report.
    pub ring_lost: u64,
    /// Flows that fell back to the datapath's own NewReno. They are part of the contender's result
    /// and no reason to repeat the run.
    pub fallbacks: u64,
    /// CPU use of the agent's thread, in percent of one CPU.
    #[serde(default)]
    pub agent_cpu_percent: f64,
    /// Time during which bytes were counted, seconds.
    #[serde(default)]
    pub length_s: f64,
    /// Calls of the datapath's program that handles ACKs. 0 unless the kernel counts the calls of
    /// BPF programs.
    #[serde(default)]
    pub acks: u64,
    /// Mean run time of such a call by the kernel's statistics, ns, with their overhead.
    #[serde(default)]
    pub ns_per_ack: f64,
    /// Disturbances by the machine, a sentence each.
    #[serde(default)]
    pub disturbed: Vec<String>,
}

impl LoopbackRun {
    /// Returns true if the machine did not disturb the run. The contender's result has no
    /// influence.
    pub fn is_undisturbed(&self) -> bool {
        self.disturbed.is_empty()
    }
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of connections.
    pub flows: usize,
    /// Time for which they send.
    pub length: Duration,
    /// Sampling interval of all flows. Sampling hundreds of sockets a hundred times per second
    /// would be a load of its own.
    pub sample_interval: Duration,
    /// Runs the agent's thread at a lower priority than ordinary threads such as the senders.
    pub low_priority_agent: bool,
    /// CPU use of an extra thread, in percent of one CPU, to match the agent of another run. It has
    /// low priority too.
    pub burn_percent: Option<f64>,
    /// Process of the contender's agent, if it is not this one. Its CPU time counts as this one's.
    pub agent_process: Option<Pid>,
}

impl Load {
    /// Returns a load without a burner and with the agent at normal priority.
    pub fn new(flows: usize, length: Duration, look_every: Duration) -> Load {
        Load {
            flows,
            length,
            sample_interval: look_every,
            low_priority_agent: false,
            burn_percent: None,
            agent_process: None,
        }
    }
}

/// Bytes that must be queued before a receiver is woken, for every contender. With one flow and two
/// CPUs the sender's CPU is only just the bottleneck: when it falls behind, the receiver sleeps
/// between segments, and waking a halted virtual CPU took 14 to 18 % of the sender's samples
/// (`_raw_spin_unlock_irqrestore`). Results then depend on which side of this threshold a run falls
/// (40 to 60 Gbit/s with the kernel's own algorithms), not on the cost of the datapath. A smaller
/// value brings the effect back. With a larger one (the receive buffer is 32 MB) the sender waits
/// for the receiver; the caller therefore limits it to an eighth of what the kernel lets a receiver
/// hold.
const RECEIVE_LOW_WATER_BYTES: usize = 1 << 20;

/// Window of iperf3 and of the paper, 16 MB.
const WINDOW_BYTES_MAX: usize = 16 << 20;

/// Returns the buffer size of each of `flows` flows on this host.
pub fn buffer(flows: usize) -> usize {
    buffer_each(
        flows,
        &std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default(),
    )
}

/// The kernel lets each socket hold twice its buffer. Both ends of all flows together must not
/// exceed what TCP may hold without memory pressure, the first value of `limits` (`tcp_mem` in
/// pages: low, pressure, high). Above the last one receivers drop packets: 256 flows with 16 MB
/// each then stayed at two segments and a timeout for a whole run, with the kernel's algorithm and
/// with ccplane's.
fn buffer_each(flows: usize, limits: &str) -> usize {
    /// With larger pages, buffers are smaller than they could be.
    const PAGE_BYTES: usize = 4096;
    let without_pressure = limits
        .split_whitespace()
        .next()
        .and_then(|pages| pages.parse::<usize>().ok());
    let all = without_pressure.map_or(usize::MAX, |pages| pages.saturating_mul(PAGE_BYTES / 4));
    WINDOW_BYTES_MAX.min(all / flows.max(1))
}

/// Begin of the names of the BPF programs that handle ACKs, one per signature of `cong_control`.
const ACK_PROGRAM: &str = "cong_control";

/// A stall of more than this fraction of a run (1/50) changes a result by more than the differences
/// of interest. There is no queue that a shorter stall could overflow, and interrupts of a
/// saturated CPU take some milliseconds.
const STALL_DIVISOR: u64 = 50;

/// Runs once, with all flows sending as fast as they can.
pub fn one(
    ends: &TrafficEnds,
    contender: &Contender,
    load: Load,
    registry: &Registry,
) -> Result<LoopbackRun, Error> {
    let low_priority = load.low_priority_agent;
    let steered = SteeredAlgorithm::start(contender, registry, None, 0, low_priority)?;
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
    let agent_ns = || load.agent_process.map_or(0, other_process_ns);
    let (before, agent_before, reports_before, watch) = (
        Reading::now(thread),
        agent_ns(),
        reports(),
        MachineWatch::start(),
    );
    let plan = TrafficPlan {
        duration: load.length,
        sample_every: load.sample_interval,
    };
    let mut readings = Vec::new();
    let transfer = traffic::transfer(senders, receivers, diag, &plan, |_, _| {
        readings.push(Reading::now(None));
        true
    })
    .map_err(Error::traffic(
        "observe the connections",
        "is the kernel built with inet_diag (CONFIG_INET_DIAG)?",
    ))?;
    let (after, machine) = (Reading::now(thread), watch.finish());
    let agent_s = agent_ns().saturating_sub(agent_before) as f64 / 1e9;
    drop(burner);
    let reports = reports() - reports_before;
    let AlgorithmRecord {
        counters, costs, ..
    } = steered
        .map(SteeredAlgorithm::finish)
        .transpose()?
        .unwrap_or_default();
    let (acks, acks_ns) = costs
        .iter()
        .filter(|cost| cost.program.starts_with(ACK_PROGRAM))
        .fold((0, 0), |(calls, ns), cost| {
            (calls + cost.calls, ns + cost.ns)
        });

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
    let (_, machine_cpu, agent_cpu_percent) = after.percent_since(&before);
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
        cpu_s_per_gb: (after.process_s_since(&before) + agent_s) / gb,
        machine_cpu_s_per_gb: after.machine_s_since(&before) / gb,
        machine_cpu_percent: machine_cpu,
        machine_cpu_percents: readings
            .iter()
            .zip(readings.iter().skip(1))
            .map(|(earlier, later)| later.percent_since(earlier).1)
            .collect(),
        reports_per_s: reports as f64 * 1e9 / transfer.elapsed_ns.max(1) as f64,
        others_cpu_percent: after.others_percent_since(&before),
        ring_lost: counters.ring_lost,
        fallbacks: counters.fallbacks,
        agent_cpu_percent,
        length_s: transfer.elapsed_ns as f64 / 1e9,
        acks,
        ns_per_ack: acks_ns as f64 / acks.max(1) as f64,
        disturbed: machine.disturbances(load.length / STALL_DIVISOR),
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
    fn flows_that_fell_back_are_not_queried_again() {
        let mut run = LoopbackRun {
            fallbacks: 7,
            ..LoopbackRun::default()
        };
        assert!(run.is_undisturbed(), "its own result");
        run.disturbed = vec!["the host paused for 90.0 ms".to_owned()];
        assert!(!run.is_undisturbed());
    }
}
