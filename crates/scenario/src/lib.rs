//! Scenarios: a network, its workloads, the events of a run, and the content of the report, read
//! from a TOML file.
//!
//! [`Scenario::read`] returns a scenario whose quantities are each valid, or the first [`Problem`]
//! with its file, line and fix. [`plan::Plan`] builds the network, resolves the names of hosts and
//! links, and reports problems of the same kind. docs/scenarios.md is the reference.
//!
//! This crate runs nothing. Runs are made by the simulator and the testbed.
#![forbid(unsafe_code)]

mod bundle;
mod cellular;
mod check;
mod contender;
mod context;
mod dumbbell;
mod file;
pub mod plan;
mod seeds;
mod shipped;
mod single_link;
mod stamps;
mod sweep;
mod toml_file;
mod toml_tree;
mod topology;
mod transport;
mod workloads;

use std::fmt;
use std::io::Read;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ccplane_qdisc::{LineSpec, LossModel, QueueSpec};
use ccplane_units::{Bytes, Duration, Rate, Time};

pub use bundle::{BundleClass, BundleSettings};
pub use cellular::Cellular;
pub use contender::{AGENT_ADDRESS_STARTS, BadContender, Contender};
pub use seeds::{BadSeeds, Seeds};
pub use shipped::{GOLDEN_DIGESTS, shipped};
pub use single_link::{Capacity, SingleLink};
pub use stamps::{JitterShape, StampErrors};
pub use sweep::{AxisQuantity, AxisValue, SWEEP_RUNS_MAX, Sweep, SweepAxis, SweepPoint, SweepSize};
pub use toml_file::{
    FileError, ParsedValue, Problem, SourceText, SpannedValue, ToSpan, ValueOrList, suggestions,
    toml_list, toml_string,
};
pub use toml_tree::{ComposedText, SourceLocation, TomlNode, TomlTree, TreeSource};

/// Scenario. docs/scenarios.md describes each part.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of the file, as given by the user.
    pub file: String,
    /// Text of the file. The spans of problems refer to it.
    pub text: String,
    /// Title of the report; `None`: the contenders' names.
    pub title: Option<String>,
    /// Congestion controls of the workloads that name no algorithm; each has a run of its own.
    /// Empty if every workload names its algorithm.
    pub contenders: Vec<Contender>,
    /// Length of a run.
    pub duration: Duration,
    /// Condition under which the run ends before its duration.
    pub stop_time: StopTime,
    /// Warm-up, which goodput, utilisation and queueing delay exclude.
    pub warm_up: Duration,
    /// Seeds of the runs.
    pub seeds: Seeds,
    /// Interval between two samples of a flow.
    pub sample_every: Duration,
    /// Network topology.
    pub topology: Topology,
    /// Bytes of the topology in the file.
    pub topology_span: Range<usize>,
    /// True to choose among equal-cost paths per packet instead of per flow.
    pub per_packet: bool,
    /// Next hops that replace the shortest path.
    pub routes: Vec<StaticRoute>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Bundles: sites whose traffic a sendbox paces.
    pub bundles: Vec<BundleSettings>,
    /// Changes of the network during the run.
    pub events: Vec<ScenarioEvent>,
    /// Transport of every host.
    pub transport: TransportOptions,
    /// Hosts, or patterns, whose receivers conceal losses: they acknowledge data that they did not
    /// receive.
    pub conceal_losses: Vec<Name>,
    /// Age of a report at its algorithm, and of an answer at its flow; `None` selects the
    /// simulator's default.
    pub staleness: Option<Duration>,
    /// Errors of the hosts' time stamps; `None`: exact time stamps.
    pub stamps: Option<StampErrors>,
    /// Content of the report.
    pub report: ReportOptions,
    /// BLAKE3 hash of the text and of every file that it refers to, as parsed. Contenders, seeds
    /// and other settings that the command line replaces keep it. Zero for a scenario without text.
    pub content_hash: [u8; 32],
    /// Paths of the files that the text refers to; none for a shipped scenario.
    pub referenced_files: Vec<PathBuf>,
}

/// End of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopTime {
    /// After its duration.
    #[default]
    Duration,
    /// After the last finite flow, request and message of the compared workloads, once no more are
    /// due; at the latest after the duration.
    FlowsDone,
}

/// Name with its span in the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Bytes of the name in the file.
    pub span: Range<usize>,
}

/// Without the span, which says nothing about the network.
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Network topology.
#[derive(Clone, Debug)]
pub enum Topology {
    /// Pairs of hosts, one host at each end of a bottleneck.
    Dumbbell {
        /// Number of senders, and of receivers.
        pairs: u32,
        /// Bottleneck; its `delay` is the one-way delay.
        bottleneck: LinkSettings,
        /// Reverse direction; a wire by default.
        reverse: LinkSettings,
        /// Rate of each host's own link; `None`: unlimited.
        access_rate: Option<Rate>,
    },
    /// Chain of bottlenecks. One pair of hosts uses all of them; each bottleneck has one more pair
    /// of its own.
    ParkingLot {
        /// Number of bottlenecks.
        bottlenecks: u32,
        /// Settings of each bottleneck.
        link: LinkSettings,
    },
    /// Many senders and one receiver at one switch.
    Incast {
        /// Number of senders.
        senders: u32,
        /// Settings of every link. Its delay is a quarter of the RTT.
        link: LinkSettings,
    },
    /// Leaf-spine fabric.
    LeafSpine {
        /// Number of leaf switches.
        leaves: u32,
        /// Number of spine switches.
        spines: u32,
        /// Hosts per leaf.
        hosts_per_leaf: u32,
        /// Link between a host and its leaf.
        host: LinkSettings,
        /// Link between a leaf and a spine.
        fabric: LinkSettings,
    },
    /// Fat tree: three tiers of switches with `k` ports, `k³/4` hosts.
    FatTree {
        /// Ports per switch; even.
        k: u32,
        /// Settings of every link.
        link: LinkSettings,
    },
    /// Tree of 192 hosts and 56 switches of DX's simulations.
    Tree192 {
        /// Queue of every switch port; `None`: the topology's default.
        queue: Option<QueueSpec>,
        /// One-way delay of a host's own link; `None`: the topology's default.
        host_delay: Option<Duration>,
        /// One-way delay of a link between switches; `None`: the topology's default.
        fabric_delay: Option<Duration>,
    },
    /// Internet-2 backbone of RC3's simulations.
    Internet2 {
        /// Queue of every router; `None`: the topology's default.
        queue: Option<QueueSpec>,
    },
    /// Explicit nodes and links.
    Graph {
        /// Hosts and switches.
        nodes: Vec<NodeSettings>,
        /// Links, one direction each.
        links: Vec<GraphLink>,
    },
}

/// Properties of one direction of a link.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// Line that serves the queue.
    pub line: LineSpec,
    /// Line as written in the file: `96mbit`, or the name of a trace file.
    pub line_name: String,
    /// One-way propagation delay; with jitter, its mean.
    pub delay: Duration,
    /// Half-width of the uniform distribution of the delay.
    pub jitter: Duration,
    /// True if jitter may reorder packets.
    pub reorder: bool,
    /// Queue in front of the line.
    pub queue: QueueSpec,
    /// Queue as written in the file.
    pub queue_name: String,
    /// Random loss, applied before the queue.
    pub loss: LossModel,
    /// True if the class marking is cleared before the queue.
    pub strip_classes: bool,
    /// Burst of the kernel's token bucket (TBF), which is the link on kernel TCP if there is a
    /// burst. The simulator does not support it.
    pub tbf_burst: Option<Bytes>,
}

impl LinkSettings {
    /// Returns a link with a delay and no rate limit.
    pub fn wire(delay: Duration) -> LinkSettings {
        LinkSettings {
            line: LineSpec::Unlimited,
            line_name: "unlimited".to_owned(),
            delay,
            jitter: Duration::ZERO,
            reorder: false,
            queue: QueueSpec::UNLIMITED,
            queue_name: QueueSpec::UNLIMITED.to_string(),
            loss: LossModel::NONE,
            strip_classes: false,
            tbf_burst: None,
        }
    }
}

/// Host or switch of a [`Topology::Graph`].
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Name of the node.
    pub name: Name,
    /// True for a switch, which only forwards.
    pub switch: bool,
}

/// One direction of a link of a [`Topology::Graph`].
#[derive(Clone, Debug)]
pub struct GraphLink {
    /// Name; `from->to` if the file gives none.
    pub name: String,
    /// Source node.
    pub from: Name,
    /// Destination node.
    pub to: Name,
    /// Properties of the link.
    pub link: LinkSettings,
}

/// Explicit next hop.
#[derive(Clone, Debug)]
pub struct StaticRoute {
    /// Node of the route.
    pub at: Name,
    /// Destination host.
    pub to: Name,
    /// Neighbour that receives the packets.
    pub next: Name,
}

/// Workload: its hosts, times and traffic.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name in the results.
    pub name: String,
    /// Sending hosts or patterns (`left*`); empty for the topology's default senders.
    pub from: Vec<Name>,
    /// Receiving hosts or patterns; empty for the topology's default receivers.
    pub to: Vec<Name>,
    /// Pairing of senders and receivers.
    pub pairing: Pairing,
    /// Congestion control; `None`: the contender of the run.
    pub algorithm: Option<Contender>,
    /// Priority band of its packets in priority queues; 0 is the highest. The reverse direction
    /// uses band 0.
    pub band: u8,
    /// Earliest start of a flow.
    pub start: Duration,
    /// Time after which no new data is sent.
    pub stop: Option<Duration>,
    /// Traffic.
    pub kind: WorkloadKind,
    /// Bytes of the workload's table in the file.
    pub span: Range<usize>,
}

/// Termination of a workload's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// No flow ends by itself.
    Never,
    /// Each flow ends, and new flows start until the end of the run.
    Each,
    /// All flows end, and their number is finite.
    All,
}

impl Scenario {
    /// Returns the congestion control of workloads without an algorithm if contenders steer
    /// bundles; `None` if the contenders control these workloads themselves.
    pub fn bundle_host_algorithm(&self) -> Option<&Contender> {
        let steered = self
            .bundles
            .iter()
            .find(|bundle| bundle.algorithm.is_none())?;
        Some(&steered.host_algorithm)
    }
}

impl Scenario {
    /// Returns the size of a full packet of the hosts' transport, bytes, including headers.
    pub fn mtu(&self) -> u32 {
        let transport = &self.transport;
        let mss = transport.mss.unwrap_or(TransportOptions::MSS_BYTES_DEFAULT);
        let header_bytes = transport
            .header_bytes
            .unwrap_or(TransportOptions::HEADER_BYTES_DEFAULT);
        u32::from(mss) + u32::from(header_bytes)
    }

    /// Returns the name of a run in which every workload has its own algorithm.
    pub fn mixture(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for algorithm in self.workloads.iter().filter_map(|w| w.algorithm.as_ref()) {
            let name = algorithm.to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(" and ")
    }

    /// Returns every congestion control that the scenario names: of contenders, workloads, bundles
    /// and the bundles' hosts.
    pub fn controls(&self) -> impl Iterator<Item = &Contender> {
        let bundles = self.bundles.iter().filter_map(|b| b.algorithm.as_ref());
        self.contenders
            .iter()
            .chain(self.workload_controls())
            .chain(bundles)
            .chain(self.bundle_host_algorithm())
    }

    /// Returns the congestion controls that workloads name for their own flows.
    pub fn workload_controls(&self) -> impl Iterator<Item = &Contender> {
        self.workloads
            .iter()
            .filter_map(|workload| workload.algorithm.as_ref())
    }
}

impl Workload {
    /// Returns true if the workload counts towards the contenders' results. `contenders` are the
    /// scenario's.
    pub fn is_compared(&self, contenders: &[Contender]) -> bool {
        (self.algorithm.is_none() || contenders.is_empty()) && !self.is_uncontrolled()
    }

    /// Returns how its flows end.
    pub fn flow_end(&self) -> FlowEnd {
        use ccplane_workload::{Arrivals, Workload as Sends};
        let counted = match &self.kind {
            WorkloadKind::Generated(Sends::Bulk { bytes: None, .. } | Sends::Paced { .. }) => {
                return FlowEnd::Never;
            }
            WorkloadKind::Generated(
                Sends::Bulk { .. } | Sends::List { .. } | Sends::Trace { .. },
            )
            | WorkloadKind::Trace { .. } => true,
            WorkloadKind::Generated(Sends::Poisson { flows, .. }) => flows.is_some(),
            WorkloadKind::Generated(Sends::Bursts { bursts, .. }) => bursts.is_some(),
            WorkloadKind::Generated(Sends::Messages {
                messages, arrivals, ..
            }) => messages.is_some() || matches!(arrivals, Arrivals::Once { .. }),
            WorkloadKind::Generated(Sends::Requests { .. }) => false,
        };
        if counted || self.stop.is_some() {
            FlowEnd::All
        } else {
            FlowEnd::Each
        }
    }

    /// Returns the scheduled start of its `n`-th flow without end, counted from 0, and the time at
    /// which the flow is stopped if that is before the end of the run. The random part of the start
    /// (`spread`) is not included.
    pub fn planned_times(&self, n: u64) -> Option<(Duration, Option<Duration>)> {
        let WorkloadKind::Generated(sends) = &self.kind else {
            return None;
        };
        let at = |after: Duration| Time::ZERO + after;
        let (starts, leaves) = sends.planned_times(n, at(self.start), self.stop.map(at))?;
        let after = |at: Time| at.since(Time::ZERO);
        Some((after(starts), leaves.map(after)))
    }

    /// Returns true if its receivers also send data.
    pub fn is_bidirectional(&self) -> bool {
        matches!(
            self.kind,
            WorkloadKind::Generated(ccplane_workload::Workload::Requests { .. })
        )
    }

    /// Returns true if its packets are subject to no congestion control.
    pub fn is_uncontrolled(&self) -> bool {
        let carrier = match &self.kind {
            WorkloadKind::Generated(ccplane_workload::Workload::Paced { carrier, .. }) => {
                Some(carrier)
            }
            _ => None,
        };
        matches!(carrier, Some(ccplane_workload::Carrier::Datagrams { .. }))
    }
}

/// Traffic of a workload.
#[derive(Clone, Debug)]
pub enum WorkloadKind {
    /// Generated traffic.
    Generated(ccplane_workload::Workload),
    /// Flows listed in a file, between named hosts.
    Trace {
        /// Flows, in the order of the file.
        flows: Vec<TraceFlow>,
    },
}

/// Flow of a trace.
#[derive(Clone, Debug)]
pub struct TraceFlow {
    /// Start time.
    pub at: Duration,
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Size of the flow.
    pub bytes: Bytes,
    /// Line in the trace file, counted from 1.
    pub line: usize,
}

/// Pairing of senders and receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// First with first, second with second, and so on; a single host on either side is paired with
    /// all hosts of the other.
    #[default]
    Each,
    /// Every sender with every receiver.
    All,
    /// Random permutation without fixed points: each host sends to one other host and receives from
    /// one.
    Permutation,
}

/// Change of the network during the run.
#[derive(Clone, Debug)]
pub struct ScenarioEvent {
    /// Time of the change.
    pub at: Duration,
    /// Link that changes.
    pub link: Name,
    /// Change.
    pub change: EventChange,
}

/// Change made by a [`ScenarioEvent`].
#[derive(Clone, Debug, PartialEq)]
pub enum EventChange {
    /// New rate of the link.
    Rate(Rate),
    /// New propagation delay.
    Delay(Duration),
    /// New random loss.
    Loss(LossModel),
    /// True to bring the link up, false to take it down.
    Up(bool),
    /// Routes packets for this host over the link, at the link's source node.
    Route(Name),
}

/// Options of every host's transport. `None` selects the transport's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportOptions {
    /// Payload of a full segment, bytes.
    pub mss: Option<u16>,
    /// Headers of a segment on the wire, bytes.
    pub header_bytes: Option<u16>,
    /// Receivers acknowledge at least every `ack_every` segments; 1 acknowledges each segment.
    pub ack_every: Option<u8>,
    /// Maximum delay of an acknowledgement.
    pub ack_delay: Option<Duration>,
    /// Number of initial segments of a stream that are acknowledged immediately.
    pub quick_acks: Option<u8>,
    /// Maximum number of packets per ACK by which slow start grows; 0: no limit (RFC 3465's L).
    pub growth_limit: Option<u8>,
    /// Explicit congestion notification.
    pub ecn: Option<bool>,
    /// True to pace segments at the congestion control's rate.
    pub pacing: Option<bool>,
    /// Segments due within this time leave as one burst. Linux sends bursts of about 1 ms.
    pub pacing_quantum: Option<Duration>,
    /// Segments sent before the first acknowledgement.
    pub initial_window: Option<u16>,
    /// True to send all data written so far in the first window (JumpStart).
    pub jump_start: Option<bool>,
    /// True to halve the window per RTO of idle time.
    pub restart_after_idle: Option<bool>,
    /// Retransmission timeout before the first RTT sample, also of the handshake.
    pub initial_rto: Option<Duration>,
    /// Smallest retransmission timeout.
    pub min_rto: Option<Duration>,
    /// RC3's second loop.
    pub rc3: Option<Rc3>,
    /// True if receivers prove the receipt of the data that they acknowledge.
    pub proof_of_receipt: Option<bool>,
}

impl TransportOptions {
    /// Default payload of a full segment, bytes.
    pub const MSS_BYTES_DEFAULT: u16 = 1448;
    /// Default headers of a segment, bytes.
    pub const HEADER_BYTES_DEFAULT: u16 = 52;
}

/// RC3's second loop (Mittal et al., NSDI 2014).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rc3 {
    /// Priority levels of the second loop, 1 to [`MAX_LEVELS`](Rc3::LEVELS_MAX). `None`: all of
    /// them.
    pub levels: Option<u8>,
    /// True to stop the second loop if the path does not keep the priority, or if the second loop
    /// delays the first.
    pub verify: bool,
}

impl Rc3 {
    /// Number of levels in the transport (section 2 of the paper). More would need more classes in
    /// every packet.
    pub const LEVELS_MAX: u8 = 4;
}

/// Content of the results.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// Link whose throughput and delay are drawn.
    pub link: Option<Name>,
    /// Links with a row in `links.csv`.
    pub links: Vec<Name>,
    /// Upper bounds of the size classes of finished flows, ascending.
    pub size_classes: Vec<Bytes>,
}

/// Returns the size classes with these ascending upper bounds: up to each bound, above the last
/// one, and all. Each has its label and its range of sizes in bytes.
pub fn size_classes(bounds: &[Bytes]) -> Vec<(String, RangeInclusive<u64>)> {
    let mut classes = Vec::with_capacity(bounds.len() + 2);
    let mut least = 1;
    for bound in bounds {
        classes.push((format!("<= {bound}"), least..=bound.get()));
        least = bound.get().saturating_add(1);
    }
    classes.extend(
        bounds
            .last()
            .map(|last| (format!("> {last}"), least..=u64::MAX)),
    );
    classes.push(("all".to_owned(), 0..=u64::MAX));
    classes
}

impl FromStr for Pairing {
    type Err = String;

    fn from_str(text: &str) -> Result<Pairing, String> {
        match text {
            "each" => Ok(Pairing::Each),
            "all" => Ok(Pairing::All),
            "permutation" => Ok(Pairing::Permutation),
            _ => Err(format!(
                "unknown pairing `{}`; use `each`, `all` or `permutation`",
                text.escape_debug()
            )),
        }
    }
}

/// Reason that a scenario cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("the scenario {file} cannot be read: {source}")]
    File {
        /// Name of the file.
        file: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// There is neither a file nor a shipped scenario of this name.
    #[error(
        "there is no file and no built-in scenario `{name}`; {}",
        if .near.is_empty() {
            format!("available: `{}`", shipped().collect::<Vec<_>>().join("`, `"))
        } else {
            format!("did you mean `{}`?", .near.join("` or `"))
        }
    )]
    Unknown {
        /// Name that was requested.
        name: String,
        /// Similar names of shipped scenarios.
        near: Vec<&'static str>,
    },
    /// The content of the file is invalid.
    #[error(transparent)]
    Problem(Problem),
}

/// Maximum size of a scenario file, and of a file that it refers to. A larger file is probably the
/// wrong one.
const SCENARIO_BYTES_MAX: u64 = 16 << 20;

impl Scenario {
    /// Reads a file. Relative paths in it are resolved in its folder.
    pub fn read(path: &Path) -> Result<Scenario, ReadError> {
        let file = path.display().to_string();
        let text = read_file(path).map_err(|source| ReadError::File {
            file: file.clone(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Scenario::parse(&file, &text, folder).map_err(ReadError::Problem)
    }

    /// Reads standard input. Relative paths in it are resolved in the working directory.
    pub fn read_standard_input() -> Result<Scenario, ReadError> {
        let file = "standard input".to_owned();
        let text = read_text(std::io::stdin().lock()).map_err(|source| ReadError::File {
            file: file.clone(),
            source,
        })?;
        Scenario::parse(&file, &text, Path::new("")).map_err(ReadError::Problem)
    }

    /// Returns the shipped scenario of this name, such as `02-fairness`. [`shipped`] lists all
    /// names.
    pub fn shipped(name: &str) -> Result<Scenario, ReadError> {
        let text = shipped::text(name).ok_or_else(|| ReadError::Unknown {
            name: name.to_owned(),
            near: shipped::near(name),
        })?;
        check::scenario(SourceText { file: name, text }, FileLookup::Shipped)
            .map_err(ReadError::Problem)
    }

    /// Reads the file of this name, or else returns the shipped scenario of this name. A path with
    /// a folder or an extension is always a file; `-` is standard input.
    pub fn find(path: &Path) -> Result<Scenario, ReadError> {
        match path.to_str() {
            Some("-") => Scenario::read_standard_input(),
            Some(name)
                if !path.exists()
                    && path.extension().is_none()
                    && path.components().count() == 1 =>
            {
                Scenario::shipped(name)
            }
            _ => Scenario::read(path),
        }
    }

    /// Parses a text. `file` is its name in problems; relative paths are resolved in `folder`.
    pub fn parse(file: &str, text: &str, folder: &Path) -> Result<Scenario, Problem> {
        check::scenario(SourceText { file, text }, FileLookup::Folder(folder))
    }

    /// Returns the source text, for problems that appear only when the network is built.
    pub fn source(&self) -> SourceText<'_> {
        SourceText {
            file: &self.file,
            text: &self.text,
        }
    }
}

/// Location of the files that a scenario refers to.
#[derive(Clone, Copy, Debug)]
enum FileLookup<'t> {
    /// Folder of the scenario's file.
    Folder(&'t Path),
    /// Embedded in the program, like the shipped scenarios.
    Shipped,
}

/// Reads a text file of at most [`SCENARIO_BYTES_MAX`] bytes.
fn read_file(path: &Path) -> std::io::Result<String> {
    read_text(std::fs::File::open(path)?)
}

/// Reads a text of at most [`SCENARIO_BYTES_MAX`] bytes.
fn read_text(input: impl Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    // Pipes and devices have no length in advance.
    input.take(SCENARIO_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SCENARIO_BYTES_MAX {
        return Err(std::io::Error::other(format!(
            "it has more than the maximum of {SCENARIO_BYTES_MAX} bytes"
        )));
    }
    String::from_utf8(bytes).map_err(|why| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            why.utf8_error().to_string(),
        )
    })
}
