//! What a run leaves: the set-up, each contender's figures and series, and the judgement of the
//! datapath's audit. The same on every datapath; what one of them cannot know is absent.
//!
//! Everything a person or a script reads (`summary.json`, the CSV files, the table, the page) is
//! made from these values. Figures that depend on the host's speed stand apart, in [`HostFigures`].

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
pub use crate::heard::{LoggedReport, ReportLog, Reporting};
use crate::scenario::Scenario;
use crate::scenario::plan::{Plan, PlannedWorkload};
pub use bundles::{BundleChange, BundleFigures, BundleSample};
pub use second_loop::SecondLoop;
pub use spread::{Columns, EachRun, MeanInterval, Spread, TotalsColumns};
pub use tcp_info::TcpInfo;
pub use workloads::{AlgorithmFigures, WorkloadFigures, WorkloadSeries, WorkloadTotals};

/// The result of one run: every contender on the same kind of link with the same seed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunResult {
    /// Version of ccplane that made it.
    pub version: String,
    /// The command line that makes it again.
    pub command: String,
    /// What the page is called; else the contenders' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What a reader has to know before the figures; often nothing.
    pub note: String,
    /// The reason that runs are missing: an interrupt, or the failure of a contender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The experiment.
    pub setup: Setup,
    /// Of a simulation: the hash of everything that it computed, which the same scenario and seed
    /// give everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// In the order in which they ran.
    pub contenders: Vec<ContenderResult>,
}

/// The experiment as it was run; text as a person writes it, numbers in the unit of their name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Setup {
    /// Where the packets ran.
    pub datapath: String,
    /// The network, where it is more than one link: its name and size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The link whose rate, queue, throughput and delay are shown, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The bottleneck: `96mbit`, or the name of the trace.
    pub rate: String,
    /// The bottleneck's rate, or the mean of its trace.
    pub rate_mbit: f64,
    /// Round-trip time without a queue.
    pub rtt_ms: f64,
    /// The queue: `droptail:1bdp`.
    pub queue: String,
    /// What it holds, where it has a limit.
    pub queue_bytes: Option<u64>,
    /// Bandwidth-delay product.
    pub bdp_bytes: u64,
    /// Random loss on the forward path.
    pub loss: String,
    /// Connections a contender; of those that come and go, none is counted.
    pub flows: usize,
    /// For how long each contender sent.
    pub duration_s: f64,
    /// How often each contender ran on real packets, where that was more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u64>,
    /// Seed of everything random, where there are several the first.
    pub seed: u64,
    /// All seeds, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<String>,
    /// Width of the bins of throughput and delay: one round-trip time, but 10 ms at least.
    pub bin_ms: f64,
    /// Between two looks at a socket.
    pub sample_ms: f64,
    /// Socket buffers, see `ccplane_testbed::traffic::buffer_for`; a simulated host has as much as
    /// it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_buffer_bytes: Option<usize>,
}

impl Setup {
    /// Returns the set-up of a scenario, without its seeds.
    pub fn new(scenario: &Scenario, plan: &Plan, datapath: &str, bin: Duration) -> Setup {
        let main = plan.network.spec(plan.main);
        let line = main.map(|spec| spec.line.clone());
        let rate = line
            .and_then(|line| line.mean_rate())
            .unwrap_or(Rate::from_bytes_per_sec(0));
        let rtt = plan.rtt;
        let limit = main.and_then(|spec| spec.queue.limit(Some(rate), spec.rtt, spec.mtu).ok());
        let lasting = |workload: &PlannedWorkload| match workload.sends {
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
                .map(|_| plan.network.link_name(plan.main)),
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

    /// The set-up on one line: `96 Mbit/s · 20 ms round trip · droptail:1bdp, 240 kB · 2 flows · 15
    /// s · kernel TCP`.
    pub fn line(&self) -> String {
        let number = |value: f64| format!("{}", (value * 1e3).round() / 1e3);
        let flows = match self.flows {
            // They come and go.
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

/// One contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContenderResult {
    /// `reno`, `native:reno`, `cubic(report=acks)`.
    pub label: String,
    /// The algorithm without its parameters; contenders that share it are compared with each other.
    pub algorithm: String,
    /// The datapath's own.
    pub native: bool,
    /// The congestion control that the sockets chose, as the datapath calls it.
    pub kernel_name: String,
    /// The algorithm whose agent in another process was gone or silent at the end, so that NewReno
    /// steered its flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_gone: Option<String>,
    /// What it achieved.
    pub figures: ContenderMetrics,
    /// Every workload in the scenario's order, also those that are not compared; nothing where
    /// there is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadFigures>,
    /// The same by algorithm, in the order of the workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub algorithms: Vec<AlgorithmFigures>,
    /// What it cost on this host.
    #[serde(default)]
    pub host: HostFigures,
    /// What the datapath says about itself during this contender's run.
    pub audit: Audit,
    /// How far the figures may be from the truth, where they are means over several seeds or
    /// repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// For pictures and CSV; not in `summary.json`.
    #[serde(skip)]
    pub series: Series,
}

/// What a contender achieved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContenderMetrics {
    /// Bytes that the receiving applications read, all flows.
    pub goodput_mbit: f64,
    /// What the link delivered of what it could have delivered, 0 to 1, headers included.
    pub utilisation: f64,
    /// Time in the bottleneck's queue, over delivered packets, from the link's own log.
    pub delay_mean_ms: f64,
    /// Median.
    pub delay_p50_ms: f64,
    /// 95th percentile.
    pub delay_p95_ms: f64,
    /// 99th percentile.
    pub delay_p99_ms: f64,
    /// Segments sent again.
    #[serde(rename = "retransmitted_segments")]
    pub retransmissions: u64,
    /// Packets that a full queue dropped.
    pub queue_drops: u64,
    /// Packets that the path lost at random.
    pub random_losses: u64,
    /// Jain's fairness index of the flows' goodputs; absent with one flow.
    pub jain: Option<f64>,
    /// Each flow that lasts; those that come and go are in `completions`.
    pub flows: Vec<FlowFigures>,
    /// How long flows of a given size took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<Completions>,
    /// Links that the scenario asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkFigures>,
    /// One-way queueing delay from time stamps of both ends, beside the link's own log; where the
    /// contender wants stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way: Option<OneWayFigures>,
    /// What RC3's second loop did, where the transport has one; where there are several seeds, in
    /// all of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_loop: Option<SecondLoop>,
    /// What the sites' boxes did, where the scenario has some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<BundleFigures>,
}

/// Queueing delay of full packets, twice: from the two time stamps of each, and from the link's own
/// log, each above its least.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OneWayFigures {
    /// Packets in both records.
    pub packets: u64,
    /// From their stamps: median.
    pub queue_p50_us: f64,
    /// 99th percentile.
    pub queue_p99_us: f64,
    /// From the link's log: median.
    pub link_p50_us: f64,
    /// 99th percentile.
    pub link_p99_us: f64,
    /// How far the two are apart, packet by packet: median.
    pub queue_error_p50_us: f64,
    /// 99th percentile.
    pub queue_error_p99_us: f64,
    /// Exchanges of stamps that reached the senders.
    pub samples: u64,
    /// Segments whose other options left no room for stamps.
    pub no_room: u64,
    /// Options that were not as they should be.
    pub malformed: u64,
}

/// A full packet in both records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampedPacket {
    /// When it left its sender, nanoseconds since the transfer began.
    pub at_ns: u64,
    /// Its queueing delay from its stamps.
    pub measured_ns: u64,
    /// The same from the link's log.
    pub link_ns: u64,
}

/// How long flows of a given size took, from their first to their last byte at the receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Completions {
    /// By size, then all of them.
    pub classes: Vec<SizeClass>,
    /// Flows that began and did not end in time.
    pub unfinished: u64,
}

/// Finished flows of similar size. A slowdown is the time a flow took over the time it would have
/// taken alone: its bytes at the path's lowest rate and one round-trip time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeClass {
    /// `<= 10kB`.
    pub label: String,
    /// How many.
    pub flows: u64,
    /// Mean time.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Mean slowdown.
    pub slowdown_mean: f64,
    /// Its median.
    pub slowdown_p50: f64,
    /// Its 99th percentile.
    pub slowdown_p99: f64,
}

/// One link of a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkFigures {
    /// Its name.
    pub name: String,
    /// What it delivered of what it could have, 0 to 1; absent where it has no rate.
    pub utilisation: Option<f64>,
    /// Bytes that left it.
    pub delivered_bytes: u64,
    /// Packets that its queue dropped.
    pub drops: u64,
    /// Packets that its queue marked.
    pub marks: u64,
    /// Mean time in it, waiting and transmission.
    pub delay_mean_ms: f64,
}

/// One flow of a contender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowFigures {
    /// Bytes that the receiving application read.
    pub received_bytes: u64,
    /// The same as a rate.
    pub goodput_mbit: f64,
    /// Segments sent again.
    #[serde(rename = "retransmitted_segments")]
    pub retransmissions: u64,
    /// Bytes sent again.
    pub retransmitted_bytes: u64,
    /// Mean congestion window over the samples, segments.
    #[serde(rename = "cwnd_mean_segments")]
    pub cwnd_mean: f64,
    /// Mean smoothed round-trip time over the samples.
    pub srtt_mean_ms: f64,
    /// Smallest round-trip time that the sender saw.
    pub min_rtt_ms: f64,
    /// Share of the time in which the receiver's window, not the congestion window, held the flow
    /// back.
    pub rwnd_limited: f64,
    /// Share of the time in which the sender's socket buffer held the flow back.
    pub sndbuf_limited: f64,
}

/// What a contender cost; true of this host at that time only.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostFigures {
    /// Reports that reached the algorithm, a second; absent for a native contender.
    pub reports_per_s: Option<f64>,
    /// CPU of the algorithm's thread, in percent of one CPU; absent for a native contender.
    pub agent_cpu_percent: Option<f64>,
    /// CPU of the whole process: emulator, sender, receiver, sampler and algorithm, in percent of
    /// one CPU.
    pub process_cpu_percent: Option<f64>,
    /// CPU of the whole machine, everything that ran on it, in percent of one CPU.
    pub machine_cpu_percent: Option<f64>,
    /// CPU seconds of the process for each GB (10^9 bytes) received.
    pub cpu_s_per_gb: Option<f64>,
    /// What a simulation took, all its seeds one after the other, seconds of this host.
    #[serde(default)]
    pub wall_s: Option<f64>,
}

/// The datapath's account of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Audit {
    /// Of an emulated link.
    #[serde(flatten)]
    pub emulator: Option<EmulatorAudit>,
    /// Of a simulation.
    #[serde(flatten)]
    pub simulation: Option<SimulationAudit>,
    /// Whether the figures can be trusted; else see `complaints`.
    pub sound: bool,
    /// What is wrong, one sentence each.
    pub complaints: Vec<String>,
    /// Of these, what the machine did, judged alike for every contender; only such a run is worth
    /// making again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
    /// What went wrong with the contender itself. It is a result of its own: figures beside it
    /// count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
}

/// The emulator's account of its own errors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EmulatorAudit {
    /// How it waits: `balanced` or `precise`.
    #[serde(default)]
    pub timing: String,
    /// How late packets left, against the instant the link says: median.
    pub lateness_p50_us: f64,
    /// 99th percentile.
    pub lateness_p99_us: f64,
    /// The worst.
    pub lateness_max_us: f64,
    /// Packets that the emulator itself dropped, which no real link would have.
    pub own_drops: u64,
}

/// What a simulation did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SimulationAudit {
    /// Events handled.
    pub events: u64,
    /// Links crossed, by all packets together.
    pub hops: u64,
    /// The hash of the counters of every link and flow at the end.
    pub digest: String,
    /// Of several seeds: every one did the same to the last event.
    #[serde(skip)]
    pub alike: bool,
}

/// One look at one flow from both ends.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Nanoseconds since the transfer began.
    pub at_ns: u64,
    /// Bytes that the receiving application has read.
    pub received: u64,
    /// The sender's socket, in the terms of Linux TCP; what another transport does not know is 0.
    pub tcp: TcpInfo,
}

/// A contender's records over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    /// Width of a bin.
    pub bin_ns: u64,
    /// Delivered by the link in each bin.
    pub throughput_mbit: Vec<f64>,
    /// What the link could have carried in each bin, Mbit/s; empty where that never changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_mbit: Vec<f64>,
    /// Mean queueing delay of the packets delivered in each bin; `None` when there was none.
    pub delay_ms: Vec<Option<f64>>,
    /// The samples of the flows that are compared, one list a flow.
    pub flows: Vec<Vec<Sample>>,
    /// The same of other workloads' flows, which follow them in lists of all.
    #[serde(default)]
    pub others: Vec<Vec<Sample>>,
    /// One for each of [`ContenderResult::workloads`].
    #[serde(default)]
    pub workloads: Vec<WorkloadSeries>,
    /// Looks at each of [`ContenderMetrics::bundles`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<Vec<BundleSample>>,
    /// The runs that this one stands for, where there are several.
    #[serde(default)]
    pub each: Vec<EachRun>,
    /// When the first byte was written, `CLOCK_MONOTONIC` nanoseconds; 0 where time is virtual.
    pub started_ns: u64,
    /// What the algorithm heard; nothing for a native contender.
    #[serde(skip)]
    pub heard: ReportLog,
    /// The bins of all runs (throughput, delay), where this one stands for several: the
    /// distributions are theirs.
    pub pooled: Option<(Vec<f64>, Vec<f64>)>,
    /// Time in the bottleneck's queue, ms: what each thousandth of the packets that left it did not
    /// exceed, from none to all.
    #[serde(default)]
    pub delay_thousandths_ms: Vec<f64>,
    /// Mean time that packets waited there before their own transmission began, µs; of a simulated
    /// link of a steady rate.
    #[serde(default)]
    pub waited_mean_us: Option<f64>,
    /// Packets that all links of a simulated network dropped together.
    #[serde(default)]
    pub dropped_anywhere: Option<u64>,
    /// Retransmission timeouts of the compared flows, in a simulation.
    #[serde(default)]
    pub timeouts: Option<u64>,
    /// Flows of the compared workloads that ended.
    #[serde(default)]
    pub completed: Vec<Completion>,
    /// Packets with time stamps, in the order in which they left.
    #[serde(default)]
    pub stamped: Vec<StampedPacket>,
}

/// A flow that ended.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Completion {
    /// The seed of its run.
    pub seed: u64,
    /// When it began, since the run did.
    pub started_ns: u64,
    /// Its size.
    pub bytes: u64,
    /// From the start to the last byte at the receiver; of a message, from when the sender had it.
    pub took_ns: u64,
    /// How long of that a message waited for a connection before it was written; 0 for everything
    /// else.
    #[serde(default)]
    pub waited_ns: u64,
    /// What it would have taken alone.
    pub alone_ns: u64,
}

impl Completion {
    /// How many times longer than alone.
    pub fn slowdown(&self) -> f64 {
        self.took_ns as f64 / self.alone_ns.max(1) as f64
    }
}

impl Series {
    /// The samples of a flow by its place among the flows of all workloads.
    pub fn flow(&self, place: usize) -> &[Sample] {
        let mut all = self.flows.iter().chain(&self.others);
        all.nth(place).map_or(&[], Vec::as_slice)
    }

    /// What distributions need; courses are left out.
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

    /// Throughput of every bin that counts, Mbit/s.
    pub fn throughputs(&self) -> Vec<f64> {
        self.pooled.as_ref().map_or_else(
            || self.throughput_mbit.clone(),
            |(throughput, _)| throughput.clone(),
        )
    }

    /// Mean queueing delay of every bin that counts and had packets, ms.
    pub fn delays(&self) -> Vec<f64> {
        self.pooled.as_ref().map_or_else(
            || self.delay_ms.iter().flatten().copied().collect(),
            |(_, delay)| delay.clone(),
        )
    }
}

impl ContenderResult {
    /// Replaces the name of a contender by the name of what steered its flows when its agent was
    /// gone.
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
    /// Whether it ran in virtual time.
    pub(crate) fn simulated(&self) -> bool {
        self.contenders.iter().any(|c| c.audit.simulation.is_some())
    }

    /// Whether there is more than one workload to show.
    pub(crate) fn several_workloads(&self) -> bool {
        self.contenders.iter().any(|c| !c.workloads.is_empty())
    }

    /// Every complaint of every audit, with its contender's name.
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
