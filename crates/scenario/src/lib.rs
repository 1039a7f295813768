//! Scenarios: a network, who sends what over it, what changes on the way, and what to look at; from
//! a TOML file.
//!
//! [`Scenario::read`] gives a scenario in which every quantity is sound by itself, or the first
//! [`Problem`], which names file, line and fix. [`plan::Plan`] builds the network and resolves the
//! names of hosts and links, with problems of the same kind. docs/scenarios.md is the reference.
//!
//! Nothing here runs anything: the simulator and the testbed do.
#![forbid(unsafe_code)]

mod bundle;
mod cellular;
mod check;
mod contender;
mod context;
mod file;
mod over;
pub mod plan;
mod problem;
mod seeds;
mod shipped;
mod stamps;
mod topology;
mod transport;
mod workloads;

use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::str::FromStr;

use ccplane_qdisc::{LineSpec, LossModel, QueueSpec};
use ccplane_units::{Bytes, Duration, Rate, Time};

pub use bundle::{BundleClass, BundleSettings};
pub use cellular::Cellular;
pub use contender::{BadContender, Contender};
pub use problem::{ParsedValue, Problem, SourceText, suggestions};
pub use seeds::{BadSeeds, Seeds};
pub use shipped::shipped;
pub use stamps::{JitterShape, StampErrors};

/// A scenario. See docs/scenarios.md for what each part means.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name, as it was given.
    pub file: String,
    /// The file's text, into which problems point.
    pub text: String,
    /// What the report is called; else the contenders' names.
    pub title: Option<String>,
    /// Who runs the workloads that name no algorithm, one after the other. Empty where every
    /// workload names its own.
    pub contenders: Vec<Contender>,
    /// Length of a run.
    pub duration: Duration,
    /// Whether it may end before.
    pub until: StopTime,
    /// Goodput, use of the link and queueing delay count from here on: what comes before is not
    /// what is asked about.
    pub warm: Duration,
    /// The seeds to run with.
    pub seeds: Seeds,
    /// Between two looks at each flow.
    pub sample_every: Duration,
    /// The network.
    pub topology: Topology,
    /// Where it stands in the file.
    pub topology_span: Range<usize>,
    /// Whether each packet, and not each flow, chooses among ways of equal length.
    pub per_packet: bool,
    /// Next hops that differ from the shortest way.
    pub routes: Vec<StaticRoute>,
    /// Who sends what.
    pub workloads: Vec<Workload>,
    /// Sites whose traffic is paced by a box of their own.
    pub bundles: Vec<BundleSettings>,
    /// What changes while it runs.
    pub events: Vec<ScenarioEvent>,
    /// The transport of every host.
    pub transport: TransportOptions,
    /// Hosts or patterns whose receivers conceal losses: they acknowledge what they did not get.
    pub conceal_losses: Vec<Name>,
    /// How old a report is when its algorithm hears it, and an answer when it reaches its flow;
    /// `None` for the simulator's own.
    pub staleness: Option<Duration>,
    /// What hosts' time stamps are like; `None`: true.
    pub stamps: Option<StampErrors>,
    /// What to look at.
    pub report: ReportOptions,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopTime {
    /// When its duration is over.
    #[default]
    Duration,
    /// When every flow, request and message of the compared workloads that has an end has ended,
    /// and no more will come; after the duration in any case.
    FlowsDone,
}

/// A name in the file, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Its bytes in the file.
    pub span: Range<usize>,
}

/// The network.
#[derive(Clone, Debug)]
pub enum Topology {
    /// Pairs of hosts on either side of one bottleneck.
    Dumbbell {
        /// Senders, and receivers.
        pairs: u32,
        /// The bottleneck; its `delay` is one way.
        bottleneck: LinkSettings,
        /// The way back: unlimited, the rest of the round trip.
        back: Duration,
        /// Rate of each host's own link; without one they are as fast as anything.
        access: Option<Rate>,
    },
    /// A chain of bottlenecks: one pair of hosts uses all of them, each is shared with a pair of
    /// its own.
    ParkingLot {
        /// How many.
        bottlenecks: u32,
        /// Each of them.
        link: LinkSettings,
    },
    /// Many hosts, one switch, one receiver.
    Incast {
        /// How many send.
        senders: u32,
        /// Every link: a quarter of the round trip.
        link: LinkSettings,
    },
    /// Two tiers.
    LeafSpine {
        /// Switches with hosts.
        leaves: u32,
        /// Switches between them.
        spines: u32,
        /// Hosts on each leaf.
        hosts_per_leaf: u32,
        /// From a host to its leaf.
        host: LinkSettings,
        /// From a leaf to a spine.
        fabric: LinkSettings,
    },
    /// Three tiers of switches with `k` ports, `k³/4` hosts.
    FatTree {
        /// Ports of a switch; even.
        k: u32,
        /// Every link.
        link: LinkSettings,
    },
    /// The 192 hosts and 56 switches of DX's simulations.
    Tree192 {
        /// Every switch port's queue, where it differs from that topology's own.
        queue: Option<QueueSpec>,
        /// One way over a host's own link, where it differs.
        host_delay: Option<Duration>,
        /// The same over a link between switches.
        fabric_delay: Option<Duration>,
    },
    /// The Internet-2 backbone of RC3's simulations.
    Internet2 {
        /// Every router's queue, where it differs.
        queue: Option<QueueSpec>,
    },
    /// Nodes and links one by one.
    Graph {
        /// Hosts and switches.
        nodes: Vec<NodeSettings>,
        /// One way each.
        links: Vec<GraphLink>,
    },
}

/// A link's properties, one way.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// What serves its queue.
    pub line: LineSpec,
    /// The line as the file has it: `96mbit`, or the trace's file.
    pub line_name: String,
    /// Propagation, one way; where it is spread, the mean.
    pub delay: Duration,
    /// Up to so much less or more, evenly distributed.
    pub jitter: Duration,
    /// Whether packets may overtake one another thereby.
    pub reorder: bool,
    /// The queue.
    pub queue: QueueSpec,
    /// The queue as the file has it.
    pub queue_name: String,
    /// Random loss.
    pub loss: LossModel,
    /// Packets lose the marking of their class before they come to its queue.
    pub strip_classes: bool,
}

/// A host or switch of a [`Topology::Graph`].
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Its name.
    pub name: Name,
    /// Whether it only forwards.
    pub switch: bool,
}

/// One direction of a link of a [`Topology::Graph`].
#[derive(Clone, Debug)]
pub struct GraphLink {
    /// `from->to` where the file names none.
    pub name: String,
    /// From here.
    pub from: Name,
    /// To there.
    pub to: Name,
    /// What it is like.
    pub link: LinkSettings,
}

/// At a node, towards a host, the next node.
#[derive(Clone, Debug)]
pub struct StaticRoute {
    /// Where it holds.
    pub at: Name,
    /// For packets to this host.
    pub to: Name,
    /// The neighbour that gets them.
    pub next: Name,
}

/// Who sends what, when.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name in results.
    pub name: String,
    /// Sending hosts or patterns (`left*`); empty for the topology's own senders.
    pub from: Vec<Name>,
    /// Receiving hosts or patterns; empty for the topology's own receivers.
    pub to: Vec<Name>,
    /// How they meet.
    pub pairing: Pairing,
    /// Its congestion control; `None` for the contender whose turn it is.
    pub algorithm: Option<Contender>,
    /// The band of its packets in queues that know priorities, from 0, the highest. What comes back
    /// goes in band 0.
    pub band: u8,
    /// The first flow at the earliest.
    pub start: Duration,
    /// No new data after this.
    pub stop: Option<Duration>,
    /// What is sent.
    pub kind: WorkloadKind,
    /// Where it stands in the file.
    pub span: Range<usize>,
}

/// How the flows of a workload end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// They do not: each sends until it is stopped.
    Never,
    /// Each does, but others come as long as the run lasts.
    Each,
    /// All do, some time.
    All,
}

impl Scenario {
    /// Who controls the workloads that name no algorithm, where contenders steer bundles; `None`:
    /// the contenders themselves.
    pub fn hosts_of_bundles(&self) -> Option<&Contender> {
        let steered = self
            .bundles
            .iter()
            .find(|bundle| bundle.algorithm.is_none())?;
        Some(&steered.hosts)
    }
}

impl Scenario {
    /// Bytes of a full packet of every host's transport, with its headers.
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

    /// Every congestion control that the scenario names: contenders, those of workloads, those of
    /// bundles and of the bundles' hosts.
    pub fn controls(&self) -> impl Iterator<Item = &Contender> {
        let workloads = self.workloads.iter().filter_map(|w| w.algorithm.as_ref());
        let bundles = self.bundles.iter().filter_map(|b| b.algorithm.as_ref());
        self.contenders
            .iter()
            .chain(workloads)
            .chain(bundles)
            .chain(self.hosts_of_bundles())
    }
}

impl Workload {
    /// Whether its figures are the contenders'; `contenders` are the scenario's.
    pub fn is_compared(&self, contenders: &[Contender]) -> bool {
        (self.algorithm.is_none() || contenders.is_empty()) && !self.heeds_nothing()
    }

    /// How its flows end.
    pub fn ends(&self) -> FlowEnd {
        use ccplane_workload::Workload as Sends;
        let counted = match &self.kind {
            WorkloadKind::Of(Sends::Bulk { bytes: None, .. } | Sends::Paced { .. }) => {
                return FlowEnd::Never;
            }
            WorkloadKind::Of(Sends::Bulk { .. } | Sends::List { .. } | Sends::Trace { .. })
            | WorkloadKind::Trace { .. } => true,
            WorkloadKind::Of(Sends::Poisson { flows, .. }) => flows.is_some(),
            WorkloadKind::Of(Sends::Bursts { bursts, .. }) => bursts.is_some(),
            WorkloadKind::Of(Sends::Messages { messages, .. }) => messages.is_some(),
            WorkloadKind::Of(Sends::Requests { .. }) => false,
        };
        if counted || self.stop.is_some() {
            FlowEnd::All
        } else {
            FlowEnd::Each
        }
    }

    /// When the `n`-th of its flows without end is to start, counted from 0, and when it is given
    /// up where that is before the run's end. By how much it starts later is drawn.
    pub fn planned(&self, n: u64) -> Option<(Duration, Option<Duration>)> {
        let WorkloadKind::Of(sends) = &self.kind else {
            return None;
        };
        let at = |after: Duration| Time::ZERO + after;
        let (starts, leaves) = sends.planned(n, at(self.start), self.stop.map(at))?;
        let after = |at: Time| at.since(Time::ZERO);
        Some((after(starts), leaves.map(after)))
    }

    /// Returns true if its receivers send data too.
    pub fn sends_back(&self) -> bool {
        matches!(
            self.kind,
            WorkloadKind::Of(ccplane_workload::Workload::Requests { .. })
        )
    }

    /// Whether it sends packets that no congestion control slows down.
    pub fn heeds_nothing(&self) -> bool {
        let carrier = match &self.kind {
            WorkloadKind::Of(ccplane_workload::Workload::Paced { carrier, .. }) => Some(carrier),
            _ => None,
        };
        matches!(carrier, Some(ccplane_workload::Carrier::Datagrams { .. }))
    }
}

/// What a workload sends.
#[derive(Clone, Debug)]
pub enum WorkloadKind {
    /// Anything but a trace.
    Of(ccplane_workload::Workload),
    /// Flows one by one, between hosts that are named.
    Trace {
        /// In the order of the file.
        flows: Vec<TraceFlow>,
    },
}

/// A flow of a trace.
#[derive(Clone, Debug)]
pub struct TraceFlow {
    /// When it starts.
    pub at: Duration,
    /// Its sender.
    pub from: String,
    /// Its receiver.
    pub to: String,
    /// Its size.
    pub bytes: Bytes,
    /// Its line in the trace's file, from 1.
    pub line: usize,
}

/// How senders and receivers meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// The first with the first, and so on; one on either side meets all of the other.
    #[default]
    Each,
    /// Everyone with everyone else.
    All,
    /// A random permutation without fixed points: each sends to one other and receives from one
    /// other.
    Permutation,
}

/// Something that changes while the scenario runs.
#[derive(Clone, Debug)]
pub struct ScenarioEvent {
    /// When.
    pub at: Duration,
    /// Which link.
    pub link: Name,
    /// What.
    pub change: EventChange,
}

/// What an [`ScenarioEvent`] changes.
#[derive(Clone, Debug, PartialEq)]
pub enum EventChange {
    /// The link's rate.
    Rate(Rate),
    /// Its propagation delay.
    Delay(Duration),
    /// Its random loss.
    Loss(LossModel),
    /// Whether it carries anything.
    Up(bool),
    /// Where the link begins, what is on its way to this host goes over the link.
    Route(Name),
}

/// Options of every host's transport. `None` is the transport's own choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportOptions {
    /// Payload of a full segment, bytes.
    pub mss: Option<u16>,
    /// What a segment costs on the wire beside its payload, bytes.
    pub header_bytes: Option<u16>,
    /// A receiver acknowledges every so many segments at least; 1: each.
    pub ack_every: Option<u8>,
    /// Longest that an acknowledgement waits.
    pub ack_delay: Option<Duration>,
    /// The first so many segments of a stream are acknowledged at once.
    pub quick_acks: Option<u8>,
    /// Packets of one acknowledgement that slow start counts at most; 0: all.
    pub growth_limit: Option<u8>,
    /// Explicit congestion notification.
    pub ecn: Option<bool>,
    /// Whether segments are spaced at the congestion control's rate.
    pub pacing: Option<bool>,
    /// Segments due within this time leave as one burst. Linux sends bursts of about 1 ms.
    pub pacing_quantum: Option<Duration>,
    /// Segments sent before the first acknowledgement.
    pub initial_window: Option<u16>,
    /// The first window holds all that was written until then (JumpStart).
    pub jump_start: Option<bool>,
    /// Whether the window halves for every timeout's time without data.
    pub restart_after_idle: Option<bool>,
    /// The timeout before any round trip was measured, of the handshake too.
    pub initial_rto: Option<Duration>,
    /// Smallest retransmission timeout.
    pub min_rto: Option<Duration>,
    /// RC3's second loop.
    pub rc3: Option<Rc3>,
    /// Receivers prove what they acknowledge.
    pub proof_of_receipt: Option<bool>,
}

impl TransportOptions {
    /// Payload of the transport's own segments, bytes.
    pub const MSS_BYTES_DEFAULT: u16 = 1448;
    /// Headers of the transport's own segments, bytes.
    pub const HEADER_BYTES_DEFAULT: u16 = 52;
}

/// RC3's second loop (Mittal et al., NSDI 2014).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rc3 {
    /// Priority levels of the second loop, 1 to [`MAX_LEVELS`](Rc3::LEVELS_MAX). `None`: all of
    /// them.
    pub levels: Option<u8>,
    /// Stops the second loop if the path does not keep the priority, or if it delays the first
    /// loop.
    pub verify: bool,
}

impl Rc3 {
    /// Levels of the transport (section 2 of the paper). More would need more classes in every
    /// packet.
    pub const LEVELS_MAX: u8 = 4;
}

/// What the results show.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The link that is drawn.
    pub link: Option<Name>,
    /// Links with a row each.
    pub links: Vec<Name>,
    /// Upper bounds of the size classes of finished flows, ascending.
    pub size_classes: Vec<Bytes>,
}

/// The size classes with these upper bounds, ascending, each with its name and the sizes in it,
/// bytes: up to each bound, above the last one, and all.
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
                "`{}` is no way to pair hosts; there are `each`, `all` and `permutation`",
                text.escape_debug()
            )),
        }
    }
}

/// Why a scenario could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("the scenario {file} cannot be read: {source}")]
    File {
        /// Its name.
        file: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Neither a file nor a scenario that comes with ccplane has this name.
    #[error(
        "there is no file `{name}`, and no scenario of this name comes with ccplane; {}",
        if .near.is_empty() {
            format!("there are `{}`", shipped().collect::<Vec<_>>().join("`, `"))
        } else {
            format!("did you mean `{}`?", .near.join("` or `"))
        }
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        near: Vec<&'static str>,
    },
    /// The file is wrong.
    #[error(transparent)]
    Problem(Problem),
}

/// A scenario larger than this is a mistake: it would be the wrong file.
const SCENARIO_BYTES_MAX: u64 = 16 << 20;

impl Scenario {
    /// Reads a file; what it refers to is looked for beside it.
    pub fn read(path: &Path) -> Result<Scenario, ReadError> {
        let file = path.display().to_string();
        let text = read_text(path).map_err(|source| ReadError::File {
            file: file.clone(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Scenario::parse(&file, &text, folder).map_err(ReadError::Problem)
    }

    /// The scenario of this name that comes with ccplane: `02-fairness`. [`shipped`] has the names
    /// of all.
    pub fn shipped(name: &str) -> Result<Scenario, ReadError> {
        let text = shipped::text(name).ok_or_else(|| ReadError::Unknown {
            name: name.to_owned(),
            near: shipped::near(name),
        })?;
        check::scenario(SourceText { file: name, text }, FileLookup::Shipped)
            .map_err(ReadError::Problem)
    }

    /// The scenario of this file, or else the one of this name that comes with ccplane. What has a
    /// folder or an ending is always a file.
    pub fn find(path: &Path) -> Result<Scenario, ReadError> {
        match path.to_str() {
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

    /// Reads a text; `file` is its name in problems, files it refers to are looked for in `folder`.
    pub fn parse(file: &str, text: &str, folder: &Path) -> Result<Scenario, Problem> {
        check::scenario(SourceText { file, text }, FileLookup::Folder(folder))
    }

    /// Where problems point into that show only when the network is built.
    pub fn source(&self) -> SourceText<'_> {
        SourceText {
            file: &self.file,
            text: &self.text,
        }
    }
}

/// Where the files are that a scenario refers to.
#[derive(Clone, Copy, Debug)]
enum FileLookup<'t> {
    /// In this folder.
    Folder(&'t Path),
    /// Embedded, as the scenario itself.
    Shipped,
}

/// The text of a file of sensible size.
fn read_text(path: &Path) -> std::io::Result<String> {
    let length = std::fs::metadata(path)?.len();
    if length > SCENARIO_BYTES_MAX {
        return Err(std::io::Error::other(format!(
            "it has {length} bytes, more than {SCENARIO_BYTES_MAX}"
        )));
    }
    std::fs::read_to_string(path)
}
