//! Workload generators as state machines.
//!
//! A [`WorkloadSpec`] describes the traffic. [`WorkloadGenerator`], the machine built from it, is
//! driven with times and deliveries and returns [`Action`]s: flows to open, bytes to write and
//! datagrams to send. It has no clock or sockets, so the simulator and real packets drive the same
//! machines. Each workload has its own random numbers: the same seed and index give the same flows,
//! times and sizes, independent of the rest of the run.
#![forbid(unsafe_code)]

mod draw;
mod flow_times;
mod messages;
mod open;
mod paced;
mod pairs;
mod requests;
mod sizes;
mod tables;
#[cfg(test)]
mod tests;

use ccplane_units::{Bytes, Duration, Rate, Time};

pub use messages::{ConnectionPolicy, DeliveredMessage};
pub use pairs::Pairs;
pub use requests::Exchange;
pub use sizes::{SizeTable, SizeTableError};

/// Host identifier, assigned by the network.
///
/// Workloads only pass it through; the driver maps it to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the index: nodes are numbered from 0 in the order in which they were added to their
    /// network.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Workload: a traffic pattern for some pairs of hosts over an interval of time.
#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// Name in results and errors.
    pub name: String,
    /// Sender and receiver pairs. Ignored by [`Workload::Trace`], whose flows name their hosts.
    pub pairs: Pairs,
    /// Traffic pattern.
    pub kind: Workload,
    /// Start time.
    pub start: Time,
    /// Time after which no flow, request or byte of a paced source starts. Data written before is
    /// still delivered; flows without a size are aborted.
    pub stop: Option<Time>,
}

/// Traffic pattern.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Bulk transfers of each pair, sent as fast as the transport allows.
    Bulk {
        /// Flows per pair.
        flows: u32,
        /// Size of each flow; `None` for flows without end.
        bytes: Option<Bytes>,
        /// Interval between the starts of successive flows over all pairs: the first flow of every
        /// pair, then the second of every pair, and so on.
        stagger: Duration,
        /// Maximum of a uniform random offset added to each start.
        spread: Duration,
        /// Duration after which a flow without a size is aborted, not counting `spread`; `None` for
        /// no limit before `stop`.
        lifetime: Option<Duration>,
    },
    /// Application of each pair that produces data at its own rate, or datagrams without congestion
    /// control.
    Paced {
        /// Rate while on: application bytes, or bytes on the wire for datagrams.
        rate: Rate,
        /// On and off times.
        duty: Duty,
        /// Stream or datagrams.
        carrier: Carrier,
    },
    /// Flows that arrive as a Poisson process, each for a random pair.
    Poisson {
        /// Arrival rate.
        arrivals: Arrivals,
        /// Distribution of flow sizes.
        sizes: SizeTable,
        /// Maximum number of flows.
        flows: Option<u64>,
    },
    /// Closed loop on persistent connections of each pair: request, response, think time, and
    /// again.
    Requests {
        /// Connections per pair.
        connections: u32,
        /// Distribution of request sizes.
        request: SizeTable,
        /// Distribution of response sizes.
        response: SizeTable,
        /// Think time between a response and the next request.
        think_time: DurationDistribution,
    },
    /// Messages over persistent connections; they arrive as a Poisson process, each for a random
    /// pair, or one for each pair.
    Messages {
        /// Connections per pair.
        connections: u32,
        /// Policy that chooses one of the pair's connections.
        policy: ConnectionPolicy,
        /// Arrival rate.
        arrivals: Arrivals,
        /// Distribution of message sizes.
        sizes: SizeTable,
        /// Maximum number of messages.
        messages: Option<u64>,
        /// Each message answers a request of its receiver, whose one-way delay counts towards the
        /// completion time. The request is not sent as a packet: the driver, which knows the path,
        /// adds the delay.
        requested: bool,
        /// Size of a request that the receiver sends on the message's connection. The sender writes
        /// the message when it has received the request. `None`: no requests are sent.
        request: Option<Bytes>,
        /// Seed of the messages in place of the run's.
        seed: Option<u64>,
    },
    /// Incast: every pair starts a flow at the same time, periodically.
    Bursts {
        /// Distribution of flow sizes.
        sizes: SizeTable,
        /// Interval between bursts.
        interval: Duration,
        /// Maximum number of bursts.
        bursts: Option<u64>,
    },
    /// Listed flows, started by each pair.
    List {
        /// Start times, relative to the workload's start, and sizes; sorted by time.
        flows: Vec<(Duration, Bytes)>,
    },
    /// Listed flows, each with its own hosts.
    Trace {
        /// The flows, sorted by time.
        flows: Vec<TraceFlow>,
    },
}

/// Fixed or exponentially distributed duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationDistribution {
    /// Fixed duration.
    Fixed(Duration),
    /// Exponential distribution with this mean.
    Exponential(Duration),
}

/// Duty cycle of a paced source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Always on.
    Always,
    /// Alternates between on and off, starting with on.
    OnOff {
        /// On time.
        on: DurationDistribution,
        /// Off time.
        off: DurationDistribution,
    },
}

/// Transport of a paced source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Connection with congestion control. The application writes `write` bytes at a time: one
    /// segment gives the smoothest flow, at the cost of one event per segment.
    Stream {
        /// Bytes per write.
        write: u32,
    },
    /// Datagrams of this size without a connection or congestion control: UDP cross traffic.
    Datagrams {
        /// Size of a packet on the wire, including headers.
        bytes: u32,
        /// Sends at Poisson times of the same mean rate; otherwise packets are evenly spaced.
        poisson: bool,
    },
}

/// Arrival rate of flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Mean number of arrivals per second.
    PerSecond(f64),
    /// Mean rate of the flows' bytes, without headers and retransmissions.
    Rate(Rate),
    /// Mean rate of the flows' bytes as a share of a link rate.
    Load {
        /// Share between 0 and 1.
        share: f64,
        /// Link rate.
        link_rate: Rate,
    },
    /// One arrival per pair at a random time. Only for messages.
    Once {
        /// Earliest time, relative to the workload's start.
        at: Duration,
        /// Maximum of a uniform random offset added to it.
        spread: Duration,
    },
}

/// Flow of a [`Workload::Trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFlow {
    /// Start time, relative to the workload's start.
    pub at: Duration,
    /// Sender.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    /// Size.
    pub bytes: Bytes,
}

/// Invalid workload specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// There is no pair of two different hosts.
    #[error("the workload `{0}` has no pair of two different hosts; name senders and receivers")]
    NoPairs(String),
    /// The workload would never send anything.
    #[error("the workload `{name}` sends nothing: {why}")]
    Nothing {
        /// Name of the workload.
        name: String,
        /// Reason and fix.
        why: &'static str,
    },
    /// The workload exceeds a limit.
    #[error("the workload `{name}` has {count} {what}, but the limit is {limit}; make it smaller")]
    TooMany {
        /// Name of the workload.
        name: String,
        /// Kind of object that there are too many of.
        what: &'static str,
        /// Number in the specification.
        count: u64,
        /// Maximum.
        limit: u64,
    },
    /// A trace or list is not sorted by time.
    #[error(
        "the workload `{name}`: flow {index} of the {what} starts before the previous one; sort \
         the {what} by time"
    )]
    Backwards {
        /// Name of the workload.
        name: String,
        /// `trace` or `list`.
        what: &'static str,
        /// Index of the flow, from 0.
        index: usize,
    },
}

/// Maximum number of open flows of a workload. Each has some hundred bytes of state here and in the
/// transport.
const CONNECTIONS_MAX: u64 = 1 << 24;

/// Maximum number of recorded exchanges or messages: 40 bytes each, 670 MB in all. Later ones run
/// without a record.
const RECORDS_MAX: usize = 1 << 24;

/// Action requested by a workload.
///
/// A slot identifies a flow: the first flow opened with `follow` gets slot 0, the next slot 1.
/// Flows opened without `follow` have no slot and are never referred to again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a connection and write to it.
    Open {
        /// Host that opens the connection and sends.
        from: NodeId,
        /// Host that accepts the connection and receives.
        to: NodeId,
        /// Bytes to write at once, possibly 0; `None` to send without end.
        bytes: Option<u64>,
        /// End the stream after these bytes.
        finish: bool,
        /// Assign the next slot: the workload needs notifications of this flow or will write more.
        follow: bool,
    },
    /// Write to a flow, in either direction.
    Write {
        /// Slot of the flow.
        slot: u32,
        /// Write from the accepting host to the opening host.
        backward: bool,
        /// Number of bytes; 0 only together with `finish`.
        bytes: u64,
        /// End this direction of the stream after these bytes.
        finish: bool,
    },
    /// Abort a flow, even with data in flight.
    Abort {
        /// Slot of the flow.
        slot: u32,
    },
    /// Send a datagram.
    Datagram {
        /// Sender.
        from: NodeId,
        /// Receiver.
        to: NodeId,
        /// Size on the wire, including headers.
        bytes: u32,
    },
}

/// Workload generator.
///
/// A driver (a simulation, or threads with sockets) uses it as follows, with times that never
/// decrease:
///
/// 1. Create it with [`new`](WorkloadGenerator::new) and wait for
///    [`next_time`](WorkloadGenerator::next_time).
/// 2. At that time, and after each `on_received`, call [`poll`](WorkloadGenerator::poll) with the
///    current time until it returns `None`, and execute each [`Action`] in order. Then call
///    `next_time` again. A late driver gets all actions in the order in which they were due.
/// 3. For a flow with a slot, call [`on_received`](WorkloadGenerator::on_received) once per `Open`
///    and `Write` with bytes, in order, when the other end has read the last of those bytes. Failed
///    flows are not reported, and the driver drops writes to them.
///
/// [`exchanges`](WorkloadGenerator::exchanges) and [`messages`](WorkloadGenerator::messages) return
/// the results that the workload records itself. For all other flows the driver knows size, start
/// and end. A run until completion is over when the workload has
/// [`has_ended`](WorkloadGenerator::has_ended) and each of its flows with `finish` has arrived or
/// failed.
#[derive(Debug)]
pub struct WorkloadGenerator {
    pairs: Pairs,
    machine: WorkloadMachine,
}

#[derive(Debug)]
enum WorkloadMachine {
    Open(open::OpenLoop),
    Paced(paced::PacedWorkload),
    Requests(requests::Requests),
    Messages(messages::MessageWorkload),
}

impl WorkloadGenerator {
    /// Creates the workload with index `which` (from 0) of a run with this seed. Seed and index
    /// determine all random numbers.
    pub fn new(
        spec: WorkloadSpec,
        seed: u64,
        which: u32,
    ) -> Result<WorkloadGenerator, WorkloadError> {
        let WorkloadSpec {
            name,
            pairs,
            kind,
            start,
            stop,
        } = spec;
        if pairs.is_empty() && !matches!(kind, Workload::Trace { .. }) {
            return Err(WorkloadError::NoPairs(name));
        }
        let span = ActiveTime { start, stop };
        let random = draw::workload_rng(seed, which);
        let nothing = |why| WorkloadError::Nothing {
            name: name.clone(),
            why,
        };
        let check_connections = |connections: u32| {
            let places = pairs.position_count() as u64;
            let count = places.saturating_mul(u64::from(connections));
            check_count(&name, "connections", count)?;
            match connections {
                0 => Err(nothing("it has no connections; give at least one")),
                _ => Ok(()),
            }
        };
        let machine = match kind {
            Workload::Paced {
                rate,
                duty,
                carrier,
            } => {
                check_count(&name, "sources", pairs.position_count() as u64)?;
                WorkloadMachine::Paced(
                    paced::PacedWorkload::new(rate, duty, carrier, &pairs, span, random)
                        .map_err(nothing)?,
                )
            }
            Workload::Requests {
                connections,
                request,
                response,
                think_time: think,
            } => {
                check_connections(connections)?;
                WorkloadMachine::Requests(requests::Requests::new(
                    connections,
                    request,
                    response,
                    think,
                    span,
                    random,
                ))
            }
            Workload::Messages {
                connections,
                policy: pick,
                arrivals,
                sizes,
                messages,
                requested: _,
                request,
                seed: own_seed,
            } => {
                check_connections(connections)?;
                if messages == Some(0) {
                    return Err(nothing("it has no messages; give at least one"));
                }
                let seed = own_seed.unwrap_or(seed);
                let random = draw::workload_rng(seed, which);
                let arrivals = match arrivals {
                    Arrivals::Once { at, spread } => {
                        let offsets = draw::start_offset_rng(seed, which);
                        messages::MessageArrivals::once(&pairs, start + at, spread, offsets)
                    }
                    rate => messages::MessageArrivals::Poisson {
                        mean_interval_ns: open::gap(rate, &sizes).map_err(nothing)?,
                    },
                };
                let demand = messages::Demand {
                    connections,
                    policy: pick,
                    arrivals,
                    sizes,
                    request,
                    messages_max: messages,
                };
                let servers = draw::connection_rng(seed, which);
                WorkloadMachine::Messages(messages::MessageWorkload::new(
                    demand, &pairs, span, random, servers,
                ))
            }
            kind => {
                if let Some((what, index)) = first_unsorted_flow(&kind) {
                    return Err(WorkloadError::Backwards { name, what, index });
                }
                if let Workload::Bulk { flows, .. } = &kind {
                    check_count(
                        &name,
                        "flows",
                        (pairs.position_count() as u64).saturating_mul(u64::from(*flows)),
                    )?;
                }
                let late = draw::start_offset_rng(seed, which);
                WorkloadMachine::Open(
                    open::OpenLoop::new(kind, &pairs, span, random, late).map_err(nothing)?,
                )
            }
        };
        Ok(WorkloadGenerator { pairs, machine })
    }

    /// Returns the next due action. Call it until it returns `None`, at each
    /// [`next_time`](WorkloadGenerator::next_time) and after each
    /// [`on_received`](WorkloadGenerator::on_received).
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        match &mut self.machine {
            WorkloadMachine::Open(open) => open.poll(now, &self.pairs),
            WorkloadMachine::Paced(paced) => paced.poll(now, &self.pairs),
            WorkloadMachine::Requests(requests) => requests.poll(now, &self.pairs),
            WorkloadMachine::Messages(messages) => messages.poll(now, &self.pairs),
        }
    }

    /// Returns the time of the next action, possibly in the past. `None` if there is none until
    /// something is received.
    pub fn next_time(&self) -> Option<Time> {
        match &self.machine {
            WorkloadMachine::Open(open) => open.next_time(),
            WorkloadMachine::Paced(paced) => paced.next_time(),
            WorkloadMachine::Requests(requests) => requests.next_time(),
            WorkloadMachine::Messages(messages) => messages.next_time(),
        }
    }

    /// Records that the oldest write in one direction of a flow has been read; `back` is the
    /// direction to its opener. Flows that the workload does not follow, and unknown slots, are
    /// ignored.
    pub fn on_received(&mut self, now: Time, slot: u32, back: bool) {
        match &mut self.machine {
            WorkloadMachine::Requests(requests) => requests.on_received(now, slot, back),
            WorkloadMachine::Messages(messages) => messages.on_received(now, slot, back),
            WorkloadMachine::Open(_) | WorkloadMachine::Paced(_) => {}
        }
    }

    /// Returns the completed exchanges, ordered by completion time.
    pub fn exchanges(&self) -> &[Exchange] {
        match &self.machine {
            WorkloadMachine::Requests(requests) => requests.completed(),
            _ => &[],
        }
    }

    /// Returns the received messages, ordered by completion time.
    pub fn messages(&self) -> &[DeliveredMessage] {
        match &self.machine {
            WorkloadMachine::Messages(messages) => messages.delivered(),
            _ => &[],
        }
    }

    /// Returns the number of requests without a response and of messages not yet received.
    pub fn unfinished(&self) -> u64 {
        match &self.machine {
            WorkloadMachine::Requests(requests) => requests.unfinished(),
            WorkloadMachine::Messages(messages) => messages.unfinished(),
            WorkloadMachine::Open(_) | WorkloadMachine::Paced(_) => 0,
        }
    }

    /// Returns true if the workload will open no more finite flows and has no recorded exchange or
    /// message outstanding. Always true for workloads without end, such as paced sources.
    pub fn has_ended(&self) -> bool {
        match &self.machine {
            WorkloadMachine::Open(open) => open.has_ended(),
            WorkloadMachine::Paced(_) => true,
            WorkloadMachine::Requests(requests) => requests.has_ended(),
            WorkloadMachine::Messages(messages) => messages.has_ended(),
        }
    }
}

/// Interval in which a workload is active.
#[derive(Clone, Copy, Debug)]
struct ActiveTime {
    start: Time,
    stop: Option<Time>,
}

impl ActiveTime {
    /// Returns true if `at` is at or after the stop time.
    fn is_over(self, at: Time) -> bool {
        self.stop.is_some_and(|stop| at >= stop)
    }
}

/// Returns the first flow that starts before its predecessor, and whether it is in a trace or a
/// list.
fn first_unsorted_flow(kind: &Workload) -> Option<(&'static str, usize)> {
    let (what, index) = match kind {
        Workload::Trace { flows } => (
            "trace",
            flows.windows(2).position(|pair| pair[1].at < pair[0].at),
        ),
        Workload::List { flows } => (
            "list",
            flows.windows(2).position(|pair| pair[1].0 < pair[0].0),
        ),
        _ => return None,
    };
    Some((what, index? + 1))
}

fn check_count(name: &str, what: &'static str, count: u64) -> Result<(), WorkloadError> {
    if count > CONNECTIONS_MAX {
        return Err(WorkloadError::TooMany {
            name: name.into(),
            what,
            count,
            limit: CONNECTIONS_MAX,
        });
    }
    Ok(())
}

impl DurationDistribution {
    /// Returns the fixed or mean duration.
    fn mean_length(self) -> Duration {
        match self {
            DurationDistribution::Fixed(length) | DurationDistribution::Exponential(length) => {
                length
            }
        }
    }

    fn draw(self, random: &mut rand_pcg::Pcg64) -> Duration {
        match self {
            DurationDistribution::Fixed(length) => length,
            DurationDistribution::Exponential(mean) => {
                draw::draw_exponential(random, mean.as_nanos() as f64)
            }
        }
    }
}
