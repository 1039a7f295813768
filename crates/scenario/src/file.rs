//! Serde types of a scenario file, before any cross-checks.
//!
//! Every table rejects unknown settings. Values that a later check may reject are `Spanned`, so
//! that the error can point to them. Alternatives are tables named after their kind
//! (`[topology.dumbbell]`) or one of several settings (`bulk = …`, `poisson = …`). There is no
//! `kind = "…"` on which the valid settings of a table would depend.

use ccplane_qdisc::LossModel;
use ccplane_units::{Bytes, Duration, Rate};
use serde::Deserialize;
use toml::Spanned;

use crate::Contender;
use crate::Seeds;
pub(crate) use crate::SpannedValue as Q;
use crate::ValueOrList;
use crate::stamps::Drift;

/// Word with its span in the file.
pub(crate) type Word = Spanned<String>;

/// Returns the value of an optional setting.
pub(crate) fn value_or<T: Copy>(setting: &Option<Q<T>>, default: T) -> T {
    setting.as_ref().map_or(default, |value| value.get_ref().0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScenarioFile {
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) contenders: Vec<Q<Contender>>,
    pub(crate) duration: Q<Duration>,
    /// Condition that ends the run before its duration.
    pub(crate) until: Option<Word>,
    pub(crate) warm: Option<Q<Duration>>,
    pub(crate) seeds: Option<Q<Seeds>>,
    pub(crate) sample: Option<Q<Duration>>,
    pub(crate) topology: Option<Spanned<Topology>>,
    #[serde(default)]
    pub(crate) node: Vec<NodeEntry>,
    #[serde(default)]
    pub(crate) link: Vec<Spanned<LinkEntry>>,
    #[serde(default)]
    pub(crate) workload: Vec<Spanned<WorkloadEntry>>,
    #[serde(default)]
    pub(crate) bundle: Vec<Spanned<BundleEntry>>,
    #[serde(default)]
    pub(crate) event: Vec<Spanned<EventEntry>>,
    #[serde(default)]
    pub(crate) routing: Routing,
    #[serde(default)]
    pub(crate) transport: Transport,
    pub(crate) stamps: Option<Spanned<StampsEntry>>,
    #[serde(default)]
    pub(crate) steering: SteeringEntry,
    #[serde(default)]
    pub(crate) report: ReportEntry,
}

/// Named topologies with their settings.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Topology {
    Dumbbell(Box<Dumbbell>),
    ParkingLot(ParkingLot),
    Incast(Incast),
    LeafSpine(LeafSpine),
    FatTree(FatTree),
    #[serde(rename = "tree_192")]
    Tree192(Tree),
    #[serde(rename = "internet2")]
    Internet2(FixedTopology),
    Graph(Graph),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dumbbell {
    pub(crate) pairs: Option<Spanned<u32>>,
    pub(crate) rate: Option<Q<Rate>>,
    pub(crate) trace: Option<Word>,
    pub(crate) piecewise: Option<Spanned<Vec<RateStepEntry>>>,
    pub(crate) cellular: Option<Spanned<Cellular>>,
    pub(crate) rtt: Q<Duration>,
    pub(crate) queue: Option<Word>,
    pub(crate) loss: Option<Q<LossModel>>,
    pub(crate) jitter: Option<Q<Duration>>,
    #[serde(default)]
    pub(crate) reorder: bool,
    pub(crate) access_rate: Option<Q<Rate>>,
    pub(crate) tbf_burst: Option<Q<Bytes>>,
    pub(crate) reverse: Option<Spanned<ReverseEntry>>,
}

/// Rate and queue of a dumbbell's reverse direction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReverseEntry {
    pub(crate) rate: Option<Q<Rate>>,
    pub(crate) trace: Option<Word>,
    pub(crate) piecewise: Option<Spanned<Vec<RateStepEntry>>>,
    pub(crate) cellular: Option<Spanned<Cellular>>,
    pub(crate) queue: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParkingLot {
    pub(crate) bottlenecks: Spanned<u32>,
    pub(crate) rate: Q<Rate>,
    pub(crate) delay: Q<Duration>,
    pub(crate) queue: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Incast {
    pub(crate) senders: Spanned<u32>,
    pub(crate) rate: Q<Rate>,
    pub(crate) rtt: Q<Duration>,
    pub(crate) queue: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeafSpine {
    pub(crate) leaves: Spanned<u32>,
    pub(crate) spines: Spanned<u32>,
    pub(crate) hosts_per_leaf: Spanned<u32>,
    pub(crate) host_rate: Q<Rate>,
    pub(crate) fabric_rate: Q<Rate>,
    pub(crate) delay: Q<Duration>,
    pub(crate) queue: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FatTree {
    pub(crate) k: Spanned<u32>,
    pub(crate) rate: Q<Rate>,
    pub(crate) delay: Q<Duration>,
    pub(crate) queue: Option<Word>,
}

/// Topology whose queue is the only setting.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixedTopology {
    pub(crate) queue: Option<Word>,
}

/// The 192-host tree, whose queue and delays can be set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tree {
    pub(crate) queue: Option<Word>,
    /// Delay of a host's own link. `fabric_delay`: delay of a link between switches.
    pub(crate) host_delay: Option<Q<Duration>>,
    pub(crate) fabric_delay: Option<Q<Duration>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Graph {
    pub(crate) file: Word,
    pub(crate) queue: Option<Word>,
}

/// Step of a piecewise rate: start time and rate.
#[derive(Deserialize)]
pub(crate) struct RateStepEntry(pub(crate) Q<Duration>, pub(crate) Q<Rate>);

/// Synthetic cellular rate, drawn from a seed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cellular {
    pub(crate) mean: Q<Rate>,
    /// Length of the trace, which is repeated.
    pub(crate) length: Option<Q<Duration>>,
    pub(crate) seed: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeEntry {
    pub(crate) name: Word,
    #[serde(default)]
    pub(crate) switch: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkEntry {
    pub(crate) name: Option<Word>,
    pub(crate) from: Word,
    pub(crate) to: Word,
    pub(crate) rate: Option<Q<Rate>>,
    pub(crate) trace: Option<Word>,
    pub(crate) piecewise: Option<Spanned<Vec<RateStepEntry>>>,
    pub(crate) cellular: Option<Spanned<Cellular>>,
    pub(crate) delay: Option<Q<Duration>>,
    pub(crate) jitter: Option<Q<Duration>>,
    #[serde(default)]
    pub(crate) reorder: bool,
    pub(crate) queue: Option<Word>,
    pub(crate) loss: Option<Q<LossModel>>,
    #[serde(default)]
    pub(crate) strip_classes: bool,
    /// True for a link from `from` to `to` only; otherwise the reverse direction is the same.
    #[serde(default)]
    pub(crate) one_way: bool,
    /// Number of parallel links that share the rate.
    pub(crate) paths: Option<Spanned<u32>>,
    /// Delay of the last parallel link; the delays of the others are interpolated linearly.
    pub(crate) slowest: Option<Q<Duration>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkloadEntry {
    pub(crate) name: Option<Word>,
    pub(crate) from: Option<Spanned<ValueOrList<String>>>,
    pub(crate) to: Option<Spanned<ValueOrList<String>>>,
    pub(crate) pairs: Option<Q<crate::Pairing>>,
    /// Congestion control; without it, each contender runs the workload.
    pub(crate) algorithm: Option<Q<Contender>>,
    /// Priority band of the packets; 0 is the highest.
    pub(crate) band: Option<Spanned<u8>>,
    pub(crate) start: Option<Q<Duration>>,
    pub(crate) stop: Option<Q<Duration>>,
    pub(crate) bulk: Option<Spanned<Bulk>>,
    pub(crate) paced: Option<Spanned<PacedEntry>>,
    pub(crate) datagrams: Option<Spanned<DatagramsEntry>>,
    pub(crate) poisson: Option<Spanned<Poisson>>,
    pub(crate) requests: Option<Spanned<Requests>>,
    pub(crate) messages: Option<Spanned<MessagesEntry>>,
    pub(crate) bursts: Option<Spanned<Bursts>>,
    pub(crate) list: Option<Spanned<Vec<ListedEntry>>>,
    pub(crate) trace: Option<Word>,
}

/// Bundle between two switches.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BundleEntry {
    pub(crate) from: Word,
    pub(crate) to: Word,
    /// Algorithm; without it, each contender steers the bundle.
    pub(crate) algorithm: Option<Q<Contender>>,
    pub(crate) hosts: Option<Q<Contender>>,
    pub(crate) queue: Option<Word>,
    #[serde(default)]
    pub(crate) class: Vec<Spanned<BundleClass>>,
    pub(crate) overhead: Option<Q<Bytes>>,
    pub(crate) min: Option<Q<Rate>>,
    pub(crate) max: Option<Q<Rate>>,
    #[serde(default)]
    pub(crate) observe: bool,
    #[serde(default)]
    pub(crate) by_hash: bool,
}

/// Class of a bundle's queue.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BundleClass {
    #[serde(default)]
    pub(crate) level: u8,
    pub(crate) weight: Option<Spanned<u32>>,
    pub(crate) queue: Option<Word>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bulk {
    pub(crate) flows: Option<Spanned<u32>>,
    pub(crate) bytes: Option<Q<Bytes>>,
    /// Time between the starts of consecutive flows.
    pub(crate) stagger: Option<Q<Duration>>,
    /// Maximum of the random delay of each flow's start, drawn with the run's seed.
    pub(crate) spread: Option<Q<Duration>>,
    /// Lifetime of a flow without end, from its scheduled start.
    pub(crate) lasts: Option<Q<Duration>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PacedEntry {
    pub(crate) rate: Q<Rate>,
    pub(crate) on: Option<Q<Duration>>,
    pub(crate) off: Option<Q<Duration>>,
    #[serde(default)]
    pub(crate) exponential: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatagramsEntry {
    pub(crate) rate: Q<Rate>,
    pub(crate) bytes: Option<Spanned<u32>>,
    #[serde(default)]
    pub(crate) poisson: bool,
    pub(crate) on: Option<Q<Duration>>,
    pub(crate) off: Option<Q<Duration>>,
    #[serde(default)]
    pub(crate) exponential: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Poisson {
    pub(crate) rate: Option<Q<Rate>>,
    pub(crate) per_second: Option<Spanned<f64>>,
    pub(crate) sizes: Spanned<Sizes>,
    pub(crate) flows: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requests {
    pub(crate) connections: Option<Spanned<u32>>,
    pub(crate) request: Option<Spanned<Sizes>>,
    pub(crate) response: Spanned<Sizes>,
    pub(crate) think: Option<Q<Duration>>,
    #[serde(default)]
    pub(crate) exponential: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessagesEntry {
    /// Number per pair of hosts.
    pub(crate) connections: Option<Spanned<Connections>>,
    pub(crate) rate: Option<Q<Rate>>,
    pub(crate) per_second: Option<Spanned<f64>>,
    pub(crate) sizes: Spanned<Sizes>,
    /// Time of the only message of each pair, and the maximum of its random offset.
    pub(crate) at: Option<Q<Duration>>,
    pub(crate) spread: Option<Q<Duration>>,
    pub(crate) count: Option<Spanned<u64>>,
    #[serde(default)]
    pub(crate) requested: bool,
    /// Size of a request that is sent as a packet.
    pub(crate) request: Option<Q<Bytes>>,
    /// Seed of the messages in place of the run's.
    pub(crate) seed: Option<u64>,
}

/// Connections per pair of hosts: a number, or a table.
pub(crate) enum Connections {
    Number(u32),
    Table(ConnectionTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectionTable {
    pub(crate) pick: Word,
    pub(crate) servers: Spanned<u32>,
}

impl<'de> Deserialize<'de> for Connections {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Connections, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = Connections;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number or a table such as `{ pick = \"random\", servers = 200 }`")
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Connections, E> {
                let number = u32::try_from(number);
                number
                    .map(Connections::Number)
                    .map_err(|_| E::custom("give 1 to 1000000 connections"))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                table: A,
            ) -> Result<Connections, A::Error> {
                let table = serde::de::value::MapAccessDeserializer::new(table);
                Ok(Connections::Table(ConnectionTable::deserialize(table)?))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Flow of a list: start time and size.
#[derive(Deserialize)]
pub(crate) struct ListedEntry(pub(crate) Q<Duration>, pub(crate) Q<Bytes>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bursts {
    pub(crate) sizes: Spanned<Sizes>,
    pub(crate) every: Q<Duration>,
    pub(crate) bursts: Option<Spanned<u64>>,
}

/// Distribution of sizes.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sizes {
    /// Built-in table of this name.
    Table(Word),
    /// File with lines `bytes probability`.
    File(Word),
    /// Constant size.
    Fixed(Q<Bytes>),
    /// Points of a cumulative distribution: size, and probability of sizes up to it.
    Points(Vec<Point>),
}

#[derive(Deserialize)]
pub(crate) struct Point(pub(crate) Q<Bytes>, pub(crate) Spanned<f64>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventEntry {
    pub(crate) at: Q<Duration>,
    pub(crate) link: Word,
    pub(crate) rate: Option<Q<Rate>>,
    pub(crate) delay: Option<Q<Duration>>,
    pub(crate) loss: Option<Q<LossModel>>,
    pub(crate) up: Option<Spanned<bool>>,
    pub(crate) route: Option<Word>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Routing {
    /// True to choose among equal-cost paths per packet instead of per flow.
    #[serde(default)]
    pub(crate) per_packet: bool,
    /// Explicit next hops.
    #[serde(default)]
    pub(crate) fixed: Vec<Spanned<RouteEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteEntry {
    pub(crate) at: Word,
    pub(crate) to: Word,
    pub(crate) next: Word,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transport {
    pub(crate) mss: Option<Spanned<u32>>,
    pub(crate) header_bytes: Option<Spanned<u32>>,
    pub(crate) delayed_acks: Option<Spanned<bool>>,
    pub(crate) ack_every: Option<Spanned<u32>>,
    pub(crate) ack_delay: Option<Q<Duration>>,
    pub(crate) quick_acks: Option<Spanned<u32>>,
    pub(crate) growth_limit: Option<Spanned<u32>>,
    pub(crate) ecn: Option<bool>,
    pub(crate) pacing: Option<bool>,
    pub(crate) pacing_quantum: Option<Q<Duration>>,
    pub(crate) initial_window: Option<Spanned<u32>>,
    pub(crate) jump_start: Option<bool>,
    pub(crate) restart_after_idle: Option<bool>,
    pub(crate) initial_rto: Option<Q<Duration>>,
    pub(crate) min_rto: Option<Q<Duration>>,
    #[serde(default)]
    pub(crate) rc3: bool,
    pub(crate) rc3_levels: Option<Spanned<u32>>,
    pub(crate) rc3_verify: Option<Spanned<bool>>,
    pub(crate) proof_of_receipt: Option<bool>,
    /// Hosts whose receivers acknowledge data that they did not receive.
    pub(crate) conceal_losses: Option<Spanned<ValueOrList<String>>>,
}

/// Errors of the hosts' time stamps.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StampsEntry {
    pub(crate) hosts: Option<Spanned<ValueOrList<String>>>,
    pub(crate) preset: Option<Word>,
    pub(crate) jitter: Option<Q<Duration>>,
    pub(crate) shape: Option<Word>,
    pub(crate) batch: Option<Q<Duration>>,
    pub(crate) offset: Option<Q<Duration>>,
    pub(crate) drift: Option<Q<Drift>>,
    pub(crate) calibrate: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SteeringEntry {
    /// Delay of a report to the algorithm, and delay of its answer to the datapath.
    pub(crate) staleness: Option<Q<Duration>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportEntry {
    /// Link whose throughput and delay are drawn.
    pub(crate) link: Option<Word>,
    /// Links with a row in `links.csv`; without it, only the drawn link.
    #[serde(default)]
    pub(crate) links: Vec<Word>,
    /// Upper bounds of the size classes of finished flows.
    pub(crate) size_classes: Option<Spanned<Vec<Q<Bytes>>>>,
}
