//! Result of a run: the set-up, each contender's metrics and time series, and the datapath's audit.
//! It is the same on every datapath; values that a datapath does not have are absent.
//!
//! `summary.json`, the CSV files, the table and the page are all made from it. [`HostMetrics`]
//! contains the values that depend on the host's speed.

mod bundles;
mod second_loop;
mod spread;
mod tcp_info;
mod workloads;

use ccplane_qdisc::Limit;
use ccplane_units::{Duration, Rate};
use ccplane_workload::{Carrier, Workload};
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
pub use crate::report_log::{LoggedReport, ReportLog, Reporting};
use crate::scenario::Scenario;
use crate::scenario::plan::{Plan, PlannedWorkload};
pub use bundles::{BundleChange, BundleMetrics, BundleSample};
pub use second_loop::SecondLoop;
pub use spread::{Columns, EachRun, MeanInterval, Spread, TotalsColumns};
pub use tcp_info::TcpInfo;
pub use workloads::{AlgorithmMetrics, WorkloadMetrics, WorkloadSeries, WorkloadTotals};

/// Result of a run: every contender on the same kind of link with the same seed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunResult {
    /// Version of ccplane.
    pub version: String,
    /// Command line that reproduces the run.
    pub command: String,
    /// Title of the page; `None`: the contenders' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Warnings and explanations for the reader; often empty.
    pub note: String,
    /// Reason for missing runs: an interrupt, or the failure of a contender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Parameters of the experiment.
    pub setup: Setup,
    /// Hash of everything that a simulation computed; equal for the same scenario and seed on every
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Contenders, in the order of their runs.
    pub contenders: Vec<ContenderResult>,
}

/// Parameters of the experiment, as text for the reader and as numbers in the unit of their name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Setup {
    /// Name of the backend.
    pub datapath: String,
    /// Name and size of the network; `None` for a single link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Link whose rate, queue, throughput and delay are shown, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Bottleneck: `96mbit`, or the name of a trace.
    pub rate: String,
    /// Rate of the bottleneck, or mean rate of its trace, Mbit/s.
    pub rate_mbit: f64,
    /// RTT without queueing, ms.
    pub rtt_ms: f64,
    /// Queue of the bottleneck: `droptail:1bdp`.
    pub queue: String,
    /// Capacity of the queue in bytes, if it has a limit.
    pub queue_bytes: Option<u64>,
    /// Bandwidth-delay product, bytes.
    pub bdp_bytes: u64,
    /// Random loss on the forward path.
    pub loss: String,
    /// Number of flows without end per contender.
    pub flows: usize,
    /// Duration of a contender's run, s.
    pub duration_s: f64,
    /// Number of repeats per contender on real packets, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u64>,
    /// Seed of everything random; the first one if there are several.
    pub seed: u64,
    /// All seeds, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<String>,
    /// Width of the bins of throughput and delay: one RTT, at least 10 ms on real packets and at
    /// least the sample interval in a simulation.
    pub bin_ms: f64,
    /// Interval between two samples of a socket, ms.
    pub sample_ms: f64,
    /// Size of the socket buffers, bytes (see `ccplane_testbed::traffic::buffer_for`); `None` in a
    /// simulation, where buffers are unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_buffer_bytes: Option<usize>,
}

impl Setup {
    /// Returns the set-up of a scenario, without its seeds.
    pub fn new(scenario: &Scenario, plan: &Plan, datapath: &str, bin: Duration) -> Setup {
        let main = plan.network.spec(plan.main_link);
        let line = main.map(|spec| spec.line.clone());
        let rate = line
            .and_then(|line| line.mean_rate())
            .unwrap_or(Rate::from_bytes_per_sec(0));
        let rtt = plan.rtt;
        let limit = main.and_then(|spec| spec.queue.limit(Some(rate), spec.rtt, spec.mtu).ok());
        let lasting = |workload: &PlannedWorkload| match workload.traffic {
            Workload::Bulk {
                flows, bytes: None, ..
            } => Some(flows as usize),
            Workload::Paced {
                carrier: Carrier::Stream { .. },
                ..
            } => Some(1),
            _ => None,
        };
        let compared = plan.workloads.iter().filter(|workload| workload.compared);
        Setup {
            datapath: datapath.to_owned(),
            network: plan.name.clone(),
            link: plan
                .name
                .as_ref()
                .map(|_| plan.network.link_name(plan.main_link)),
            rate: plan.line_name.clone().unwrap_or_else(|| rate.to_string()),
            rate_mbit: rate.bytes_per_sec() as f64 * 8.0 / 1e6,
            rtt_ms: rtt.as_secs_f64() * 1e3,
            queue: main.map_or(String::new(), |spec| spec.queue.to_string()),
            queue_bytes: limit.and_then(|limit| match limit {
                Limit::Bytes(bytes) => Some(bytes),
                Limit::Packets(packets) => {
                    Some(packets.saturating_mul(u64::from(main.map_or(1500, |spec| spec.mtu))))
                }
                Limit::Unlimited => None,
            }),
            bdp_bytes: rate.bytes_in(rtt).get(),
            loss: main.map_or(String::new(), |spec| spec.loss.to_string()),
            flows: compared
                .filter_map(|workload| Some(lasting(workload)? * workload.pairs.count()))
                .sum(),
            duration_s: scenario.duration.as_secs_f64(),
            bin_ms: bin.as_nanos() as f64 / 1e6,
            sample_ms: scenario.sample_every.as_nanos() as f64 / 1e6,
            ..Setup::default()
        }
    }

    /// Returns the set-up in one line: `96 Mbit/s · 20 ms round trip · droptail:1bdp, 240 kB · 2
    /// flows · 15 s · kernel TCP`.
    pub fn line(&self) -> String {
        let number = |value: f64| format!("{}", (value * 1e3).round() / 1e3);
        let flows = match self.flows {
            // All flows are finite.
            0 => String::new(),
            1 => " · 1 flow".to_owned(),
            n => format!(" · {n} flows"),
        };
        let network = self
            .network
            .as_ref()
            .map_or(String::new(), |network| format!("{network} · "));
        let link = self
            .link
            .as_ref()
            .map_or(String::new(), |link| format!("{link}, "));
        let mbit = number(self.rate_mbit);
        let rate = match self.rate.parse::<Rate>() {
            Ok(_) => format!("{mbit} Mbit/s"),
            Err(_) => format!("{}, {mbit} Mbit/s on average", self.rate),
        };
        let holds = self.queue_bytes.map_or(String::new(), |bytes| {
            format!(", {} kB", number(bytes as f64 / 1e3))
        });
        let loss = match self.loss.as_str() {
            "" | "0" | "0%" => String::new(),
            loss => format!(" · loss {loss}"),
        };
        let repeats = self.repeats.map(|repeats| format!(" · {repeats} repeats"));
        let seeds = self.seeds.as_ref().map(|seeds| format!(" · seeds {seeds}"));
        let runs = repeats.or(seeds).unwrap_or_default();
        format!(
            "{network}{link}{rate} · {} ms round trip · {}{holds}{loss}{flows} · {} s{runs} · {}",
            number(self.rtt_ms),
            self.queue,
            number(self.duration_s),
            self.datapath
        )
    }
}

/// Result of one contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContenderResult {
    /// Label: `reno`, `native:reno`, `cubic(report=acks)`.
    pub label: String,
    /// Algorithm without its parameters. Contenders with the same algorithm are compared with each
    /// other.
    pub algorithm: String,
    /// True for a congestion control of the datapath itself.
    pub native: bool,
    /// Congestion control of the sockets, as named by the datapath.
    pub kernel_name: String,
    /// Algorithm whose agent in another process was not in control at the end, so that NewReno
    /// controlled its flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_gone: Option<String>,
    /// Metrics of the compared workloads and of the link.
    #[serde(rename = "figures")]
    pub metrics: ContenderMetrics,
    /// All workloads in the scenario's order, including those that are not compared; empty if there
    /// is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadMetrics>,
    /// Metrics per algorithm, in the order of the workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub algorithms: Vec<AlgorithmMetrics>,
    /// Cost on this host.
    #[serde(default)]
    pub host: HostMetrics,
    /// The datapath's audit of the contender's run.
    pub audit: Audit,
    /// Confidence intervals or ranges, if the metrics are means over several seeds or repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Time series for charts and CSV files; not in `summary.json`.
    #[serde(skip)]
    pub series: Series,
}

/// Metrics of a contender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContenderMetrics {
    /// Goodput of all flows: bytes read by the receiving applications, Mbit/s.
    pub goodput_mbit: f64,
    /// Utilisation of the link, 0 to 1: bytes delivered, including headers, over bytes that it
    /// could have delivered.
    pub utilisation: f64,
    /// Mean sojourn time of delivered packets in the bottleneck's queue, ms, from the link's log.
    pub delay_mean_ms: f64,
    /// Median.
    pub delay_p50_ms: f64,
    /// 95th percentile.
    pub delay_p95_ms: f64,
    /// 99th percentile.
    pub delay_p99_ms: f64,
    /// Retransmitted segments.
    #[serde(rename = "retransmitted_segments")]
    pub retransmissions: u64,
    /// Packets dropped by a full queue.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub random_losses: u64,
    /// Jain's fairness index of the flows' goodputs; absent for one flow.
    pub jain: Option<f64>,
    /// Flows without end; finite flows are in `completions`.
    pub flows: Vec<FlowMetrics>,
    /// Completion times by flow size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<Completions>,
    /// Links that the scenario's report lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkMetrics>,
    /// One-way queueing delay from time stamps of both ends, and from the link's log, if the
    /// contender uses time stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way: Option<OneWayMetrics>,
    /// Statistics of RC3's second loop, if the transport has one; summed over all seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_loop: Option<SecondLoop>,
    /// Metrics of the scenario's bundles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<BundleMetrics>,
}

/// Queueing delay of full packets from two sources: the two time stamps of each packet, and the
/// link's log. Both are relative to their minimum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OneWayMetrics {
    /// Number of packets in both records.
    pub packets: u64,
    /// Median from time stamps.
    pub queue_p50_us: f64,
    /// 99th percentile from time stamps.
    pub queue_p99_us: f64,
    /// Median from the link's log.
    pub link_p50_us: f64,
    /// 99th percentile from the link's log.
    pub link_p99_us: f64,
    /// Median of the per-packet difference between the two.
    pub queue_error_p50_us: f64,
    /// 99th percentile of the per-packet difference.
    pub queue_error_p99_us: f64,
    /// Number of time stamp exchanges received by the senders.
    pub samples: u64,
    /// Segments whose other options left no room for time stamps.
    pub no_room: u64,
    /// Malformed time stamp options.
    pub malformed: u64,
}

/// Full packet in both records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampedPacket {
    /// Departure from the sender, ns since the start of the transfer.
    pub at_ns: u64,
    /// Queueing delay from its time stamps.
    pub measured_ns: u64,
    /// Queueing delay from the link's log.
    pub link_ns: u64,
}

/// Completion times by flow size, from the first to the last byte at the receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Completions {
    /// Size classes, then the class of all flows.
    pub classes: Vec<SizeClass>,
    /// Flows that started and did not complete.
    pub unfinished: u64,
}

/// Completed flows of similar size. The slowdown of a flow is its completion time divided by that
/// on an idle path: its bytes at the path's lowest rate, and one RTT.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Label: `<= 10kB`.
    pub label: String,
    /// Number of flows.
    pub flows: u64,
    /// Mean completion time.
    pub mean_ms: f64,
    /// Median completion time.
    pub p50_ms: f64,
    /// 99th percentile of the completion time.
    pub p99_ms: f64,
    /// Mean slowdown.
    pub slowdown_mean: f64,
    /// Median slowdown.
    pub slowdown_p50: f64,
    /// 99th percentile of the slowdown.
    pub slowdown_p99: f64,
}

/// Metrics of one link of a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkMetrics {
    /// Name of the link.
    pub name: String,
    /// Utilisation, 0 to 1; absent for a link without a rate.
    pub utilisation: Option<f64>,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Packets dropped by the queue.
    pub drops: u64,
    /// Packets marked by the queue.
    pub marks: u64,
    /// Mean sojourn time, queueing and transmission, ms.
    pub delay_mean_ms: f64,
}

/// Metrics of one flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowMetrics {
    /// Bytes read by the receiving application.
    pub received_bytes: u64,
    /// Goodput, Mbit/s.
    pub goodput_mbit: f64,
    /// Retransmitted segments.
    #[serde(rename = "retransmitted_segments")]
    pub retransmissions: u64,
    /// Retransmitted bytes.
    pub retransmitted_bytes: u64,
    /// Mean congestion window over the samples, segments.
    #[serde(rename = "cwnd_mean_segments")]
    pub cwnd_mean: f64,
    /// Mean smoothed RTT over the samples, ms.
    pub srtt_mean_ms: f64,
    /// Minimum RTT measured by the sender, ms.
    pub min_rtt_ms: f64,
    /// Share of the time in which the receiver's window, and not the congestion window, limited the
    /// flow.
    pub rwnd_limited: f64,
    /// Share of the time in which the sender's socket buffer limited the flow.
    pub sndbuf_limited: f64,
}

/// Cost of a contender on this host, not reproducible.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostMetrics {
    /// Reports received by the algorithm per second; absent for a native contender.
    pub reports_per_s: Option<f64>,
    /// CPU of the algorithm's thread, in percent of one CPU; absent for a native contender.
    pub agent_cpu_percent: Option<f64>,
    /// CPU of the whole process (emulator, sender, receiver, sampler and algorithm), in percent of
    /// one CPU.
    pub process_cpu_percent: Option<f64>,
    /// CPU of everything on the machine, in percent of one CPU.
    pub machine_cpu_percent: Option<f64>,
    /// CPU seconds of the process per GB (10^9 bytes) received.
    pub cpu_s_per_gb: Option<f64>,
    /// Wall time of a simulation in s, summed over its seeds.
    #[serde(default)]
    pub wall_s: Option<f64>,
}

/// The datapath's audit of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Audit {
    /// Audit of the emulated link.
    #[serde(flatten)]
    pub emulator: Option<EmulatorAudit>,
    /// Audit of the simulation.
    #[serde(flatten)]
    pub simulation: Option<SimulationAudit>,
    /// True if the results are reliable; otherwise `complaints` has the reasons.
    pub sound: bool,
    /// Problems, one sentence each.
    pub complaints: Vec<String>,
    /// Disturbances by the machine, a subset of `complaints`. They are judged alike for every
    /// contender, and only they justify a repetition of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
    /// Failures of the contender itself. They are results, so the metrics remain valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
}

/// The emulator's audit of its own errors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EmulatorAudit {
    /// Timing mode: `balanced` or `precise`.
    #[serde(default)]
    pub timing: String,
    /// Lateness of departures relative to the link's schedule: median.
    pub lateness_p50_us: f64,
    /// 99th percentile.
    pub lateness_p99_us: f64,
    /// Maximum.
    pub lateness_max_us: f64,
    /// Packets dropped by the emulator itself, which a real link would not drop.
    pub own_drops: u64,
}

/// Statistics of a simulation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SimulationAudit {
    /// Events processed.
    pub events: u64,
    /// Links traversed by all packets together.
    pub hops: u64,
    /// Hash of the counters of every link and flow at the end.
    pub digest: String,
    /// True if all of several seeds were identical to the last event.
    #[serde(skip)]
    pub alike: bool,
}

/// Sample of one flow, from both ends.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the start of the transfer, ns.
    pub at_ns: u64,
    /// Bytes read by the receiving application.
    pub received: u64,
    /// State of the sender's socket, in the terms of Linux TCP. Values that another transport does
    /// not have are 0.
    pub tcp: TcpInfo,
}

/// Time series of a contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    /// Width of a bin, ns.
    pub bin_ns: u64,
    /// Throughput of the link per bin.
    pub throughput_mbit: Vec<f64>,
    /// Capacity of the link per bin, Mbit/s; empty if it is constant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_mbit: Vec<f64>,
    /// Mean queueing delay of packets delivered in each bin; `None` for a bin without packets.
    pub delay_ms: Vec<Option<f64>>,
    /// Samples of the compared flows, one list per flow.
    pub flows: Vec<Vec<Sample>>,
    /// Samples of other workloads' flows, which follow `flows` in combined lists.
    #[serde(default)]
    pub others: Vec<Vec<Sample>>,
    /// Time series of each of [`ContenderResult::workloads`].
    #[serde(default)]
    pub workloads: Vec<WorkloadSeries>,
    /// Samples of each of [`ContenderMetrics::bundles`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<Vec<BundleSample>>,
    /// The combined runs, if there are several.
    #[serde(default)]
    pub each: Vec<EachRun>,
    /// Time of the first write, `CLOCK_MONOTONIC` in ns; 0 in virtual time.
    pub started_ns: u64,
    /// Reports received by the algorithm; empty for a native contender.
    #[serde(skip)]
    pub heard: ReportLog,
    /// Bins of all combined runs (throughput, delay), for distributions.
    pub pooled: Option<(Vec<f64>, Vec<f64>)>,
    /// Permilles of the sojourn time in the bottleneck's queue, ms, from the minimum to the
    /// maximum.
    #[serde(default)]
    pub delay_thousandths_ms: Vec<f64>,
    /// Mean waiting time at the bottleneck before a packet's transmission, µs; for simulated links
    /// with a constant rate.
    #[serde(default)]
    pub waited_mean_us: Option<f64>,
    /// Packets dropped by all links of a simulated network together.
    #[serde(default)]
    pub dropped_anywhere: Option<u64>,
    /// Retransmission timeouts of the compared flows in a simulation.
    #[serde(default)]
    pub timeouts: Option<u64>,
    /// Completed flows of the compared workloads.
    #[serde(default)]
    pub completed: Vec<Completion>,
    /// Packets with time stamps, in the order of departure.
    #[serde(default)]
    pub stamped: Vec<StampedPacket>,
}

/// Completed flow.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Completion {
    /// Seed of its run.
    pub seed: u64,
    /// Start, ns since the start of the run.
    pub started_ns: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Completion time, ns: from the start to the last byte at the receiver. For a message, from
    /// the time at which the sender had it.
    pub took_ns: u64,
    /// Part of the completion time in which a message waited for a connection; 0 for everything
    /// else.
    #[serde(default)]
    pub waited_ns: u64,
    /// Completion time on an idle path, ns.
    pub alone_ns: u64,
}

impl Completion {
    /// Returns the completion time divided by that on an idle path.
    pub fn slowdown(&self) -> f64 {
        self.took_ns as f64 / self.alone_ns.max(1) as f64
    }
}

impl Series {
    /// Returns the samples of a flow by its index among the flows of all workloads.
    pub fn flow(&self, place: usize) -> &[Sample] {
        let mut all = self.flows.iter().chain(&self.others);
        all.nth(place).map_or(&[], Vec::as_slice)
    }

    /// Returns the part that distributions need, without time series.
    #[must_use]
    pub(crate) fn without_courses(self) -> Series {
        let workloads = self.workloads.iter().map(|workload| WorkloadSeries {
            completed: workload.completed.clone(),
            ..WorkloadSeries::default()
        });
        Series {
            pooled: Some((self.throughputs(), self.delays())),
            workloads: workloads.collect(),
            completed: self.completed,
            ..Series::default()
        }
    }

    /// Returns the throughput of every bin after the warm-up, Mbit/s.
    pub fn throughputs(&self) -> Vec<f64> {
        self.pooled.as_ref().map_or_else(
            || self.throughput_mbit.clone(),
            |(throughput, _)| throughput.clone(),
        )
    }

    /// Returns the mean queueing delay of every bin with packets after the warm-up, ms.
    pub fn delays(&self) -> Vec<f64> {
        self.pooled.as_ref().map_or_else(
            || self.delay_ms.iter().flatten().copied().collect(),
            |(_, delay)| delay.clone(),
        )
    }
}

impl ContenderResult {
    /// Replaces the name of a contender whose agent was gone by the congestion control that
    /// replaced it.
    pub fn name_fallback(&mut self, contender: &Contender) {
        let name = contender.to_string();
        let steered = format!("NewReno (agent of {name} gone)");
        if self.label == name {
            self.label.clone_from(&steered);
            "newreno".clone_into(&mut self.algorithm);
        }
        let workloads = self
            .workloads
            .iter_mut()
            .map(|workload| &mut workload.algorithm);
        let algorithms = self
            .algorithms
            .iter_mut()
            .map(|algorithm| &mut algorithm.algorithm);
        for known in workloads.chain(algorithms).flatten() {
            if *known == name {
                known.clone_from(&steered);
            }
        }
        self.agent_gone = Some(name);
    }
}

impl RunResult {
    /// Returns true if the run was simulated.
    pub(crate) fn simulated(&self) -> bool {
        self.contenders.iter().any(|c| c.audit.simulation.is_some())
    }

    /// Returns true if the rate of the link varies, as that of a trace does. Then the BDP and the
    /// delay of a full queue are not one number.
    pub(crate) fn has_varying_rate(&self) -> bool {
        let course = |c: &ContenderResult| !c.series.capacity_mbit.is_empty();
        self.contenders.iter().any(course) || self.setup.rate.parse::<Rate>().is_err()
    }

    /// Returns true if there are several workloads.
    pub(crate) fn several_workloads(&self) -> bool {
        self.contenders.iter().any(|c| !c.workloads.is_empty())
    }

    /// Returns every complaint of every audit, with the name of the contender.
    pub fn complaints(&self) -> impl Iterator<Item = (&str, &str)> {
        self.contenders.iter().flat_map(|c| {
            c.audit
                .complaints
                .iter()
                .chain(&c.audit.own)
                .map(move |text| (c.label.as_str(), text.as_str()))
        })
    }
}
