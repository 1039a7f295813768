//! Workloads: who sends what to whom, and when, as state machines.
//!
//! A [`WorkloadSpec`] says what is wanted. [`Running`], the machine made of it, is told the time
//! and what arrived. It answers with flows to open, bytes to write and datagrams to send
//! ([`Action`]). It knows no clock, socket or simulation: the simulator and real packets drive the
//! same machines. Random numbers are its own: the same seed and the same place among the workloads
//! give the same flows, times and sizes, whatever else happens.
#![forbid(unsafe_code)]

mod draw;
mod messages;
mod open;
mod paced;
mod pairs;
mod planned;
mod requests;
mod sizes;
mod tables;
#[cfg(test)]
mod tests;

use ccplane_units::{Bytes, Duration, Rate, Time};

pub use messages::{Message, Pick};
pub use pairs::Pairs;
pub use requests::Exchange;
pub use sizes::{SizeTable, SizeTableError};

/// A host, by the number that its network gives it.
///
/// A workload does not look at it: it names hosts as its pairs do, and who drives it knows which
/// hosts these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Nodes are numbered from 0 in the order in which they were added to their network.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A workload: a kind of demand, for some pairs of hosts, over some time.
#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// What it is called in results and errors.
    pub name: String,
    /// Who sends to whom. A [`Workload::Trace`] has its own hosts; its pairs are not looked at.
    pub pairs: Pairs,
    /// What they send.
    pub kind: Workload,
    /// Nothing before this.
    pub start: Time,
    /// No new flow, request or byte of a paced source from this time on; what was written before is
    /// still delivered. Flows without end are given up at this time.
    pub stop: Option<Time>,
}

/// What a workload sends.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Each pair: flows that send as fast as they may.
    Bulk {
        /// Flows a pair.
        flows: u32,
        /// Bytes of each; `None`: without end.
        bytes: Option<Bytes>,
        /// From the start of one flow to that of the next, over all pairs: the first flow of every
        /// pair, then the second of every pair, and so on.
        stagger: Duration,
        /// Each flow starts up to so much later than that, evenly distributed.
        spread: Duration,
        /// Each flow without end is given up so long after its start, `spread` not counted; `None`:
        /// none before the stop.
        lasts: Option<Duration>,
    },
    /// Each pair: an application that produces data at a rate of its own, or packets that heed no
    /// congestion.
    Paced {
        /// While it is on: bytes of the application, or bytes of packets on the wire.
        rate: Rate,
        /// When it is on.
        duty: Duty,
        /// What carries the data.
        carrier: Carrier,
    },
    /// Over all pairs: flows that arrive as a Poisson process, each between a pair drawn at random.
    Poisson {
        /// How many there are.
        arrivals: Arrivals,
        /// How large they are.
        sizes: SizeTable,
        /// No more than so many.
        flows: Option<u64>,
    },
    /// Each pair: connections that persist; on each of them a request, its response, a pause, and
    /// again.
    Requests {
        /// Connections a pair.
        connections: u32,
        /// Sizes of requests.
        request: SizeTable,
        /// Sizes of responses.
        response: SizeTable,
        /// The pause between a response and the next request.
        think: Pause,
    },
    /// Over all pairs: messages that arrive as a Poisson process, each for a pair drawn at random,
    /// over persistent connections.
    Messages {
        /// Connections per pair.
        connections: u32,
        /// Choice of the connection among those of the pair.
        pick: Pick,
        /// How many messages there are.
        arrivals: Arrivals,
        /// How large they are.
        sizes: SizeTable,
        /// No more than so many.
        messages: Option<u64>,
        /// Each answers a request of its receiver's, whose way belongs to its time. The request is
        /// no packet: who drives the workload knows the way and adds it.
        requested: bool,
    },
    /// Incast: at one moment every pair starts a flow, and some time later again.
    Bursts {
        /// How large the flows are.
        sizes: SizeTable,
        /// From one burst to the next.
        every: Duration,
        /// No more than so many bursts.
        bursts: Option<u64>,
    },
    /// Each pair: flows of these sizes at these times.
    List {
        /// When, from the workload's start on, and how large; in the order of their times.
        flows: Vec<(Duration, Bytes)>,
    },
    /// Flows one by one, in the order of their times.
    Trace {
        /// All of them.
        flows: Vec<TraceFlow>,
    },
}

/// A length of time that is always the same, or exponentially distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Always this one.
    Fixed(Duration),
    /// Exponentially distributed with this mean.
    Exponential(Duration),
}

/// When a paced source produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Always.
    Always,
    /// By turns; it begins on.
    OnOff {
        /// How long it is on.
        on: Pause,
        /// How long it is off.
        off: Pause,
    },
}

/// What carries the data of a paced source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A connection of the transport, with its congestion control; so many bytes are written at a
    /// time. One segment's payload makes the smoothest flow at one more event a segment.
    Stream {
        /// Bytes a write.
        write: u32,
    },
    /// Packets of this size without a connection, which nothing slows down: cross traffic as of
    /// UDP.
    Datagrams {
        /// Bytes of a packet on the wire, headers included.
        bytes: u32,
        /// Whether they leave as a Poisson process of that rate; else they are evenly spaced.
        poisson: bool,
    },
}

/// How often flows arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// So many a second on average.
    PerSecond(f64),
    /// So many that their bytes make this rate on average. Headers and retransmissions come on top.
    Rate(Rate),
    /// So many that their bytes make this share of a link's rate on average.
    Load {
        /// From 0; 1 is all of it.
        share: f64,
        /// The link's rate.
        of: Rate,
    },
}

/// A flow of a [`Workload::Trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFlow {
    /// When it starts, from the workload's start on.
    pub at: Duration,
    /// Its sender.
    pub from: NodeId,
    /// Its receiver.
    pub to: NodeId,
    /// Its size.
    pub bytes: Bytes,
}

/// Why a workload cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Nobody to send.
    #[error("the workload `{0}` has no pair of two different hosts; name senders and receivers")]
    NoPairs(String),
    /// It would never send anything.
    #[error("the workload `{name}` sends nothing: {why}")]
    Nothing {
        /// The workload.
        name: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// More than can be kept apart.
    #[error("the workload `{name}` has {count} {what}, and {limit} are the most; make it smaller")]
    TooMany {
        /// The workload.
        name: String,
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A trace or list that is not in order.
    #[error(
        "the workload `{name}`: flow {index} of the {what} starts before the one above it; sort the {what} by time"
    )]
    Backwards {
        /// The workload.
        name: String,
        /// `trace` or `list`.
        what: &'static str,
        /// The flow, from 0.
        index: usize,
    },
}

/// Flows that a workload keeps open at one time: each is some hundred bytes of state here and in
/// the transport.
const MOST_CONNECTIONS: u64 = 1 << 24;

/// Exchanges or messages of which a record is kept: 40 bytes each, 670 MB in all. Later ones
/// happen, without a record.
const MOST_RECORDS: usize = 1 << 24;

/// What a workload wants done.
///
/// A flow is named by its slot: the number of flows that were opened with `follow` before it. Flows
/// without `follow` have none; nobody refers to them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a connection and write so many bytes, or without end.
    Open {
        /// Who opens it and sends.
        from: NodeId,
        /// Who accepts it and receives.
        to: NodeId,
        /// Bytes to write at once, perhaps 0; `None`: as many as the connection takes, without end.
        bytes: Option<u64>,
        /// Nothing is written after these: the sender ends its stream.
        finish: bool,
        /// The flow gets the next slot: the workload wants to hear of it or to write more.
        follow: bool,
    },
    /// Write to a flow, from its opener or back to it.
    Write {
        /// Which flow.
        slot: u32,
        /// From the host that accepted it to the one that opened it.
        back: bool,
        /// How many bytes; 0 only where it finishes.
        bytes: u64,
        /// These are the last of this direction.
        finish: bool,
    },
    /// Give a flow up, whatever is under way.
    Abandon {
        /// Which flow.
        slot: u32,
    },
    /// Send a packet without a connection.
    Datagram {
        /// From here.
        from: NodeId,
        /// To there.
        to: NodeId,
        /// Bytes on the wire, headers included.
        bytes: u32,
    },
}

/// A workload at work.
///
/// Who drives it (a simulation, threads with sockets) keeps to these verbs, with a time that never
/// goes back:
///
/// 1. [`new`](Running::new), and then wait for [`next_time`](Running::next_time).
/// 2. When that has come, and after each `received`: [`poll`](Running::poll) with the time until it
///    gives nothing more, and do each [`Action`] in this order. Then ask for `next_time` again. A
///    driver that is late loses nothing: actions come as they were due.
/// 3. [`received`](Running::received) for a flow with a slot, once for each `Open` and `Write` with
///    bytes, in their order, when the other end has read the last of these bytes. A flow that fails
///    is not reported, and a write to it is dropped.
///
/// [`exchanges`](Running::exchanges) and [`messages`](Running::messages) have the results that the
/// workload itself accounts for. Of all other flows the driver knows size, start and end. A run
/// that lasts until all is done is over when the workload has [`ended`](Running::ended) and each of
/// its flows with a `finish` has arrived or failed.
#[derive(Debug)]
pub struct Running {
    pairs: Pairs,
    machine: Machine,
}

#[derive(Debug)]
enum Machine {
    Open(open::OpenLoop),
    Paced(paced::Paced),
    Requests(requests::Requests),
    Messages(messages::Messages),
}

impl Running {
    /// The `which`-th workload of a run with this seed, counted from 0. Seed and place decide all
    /// random numbers.
    pub fn new(spec: WorkloadSpec, seed: u64, which: u32) -> Result<Running, WorkloadError> {
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
        let span = Span { start, stop };
        let random = draw::random(seed, which);
        let nothing = |why| WorkloadError::Nothing {
            name: name.clone(),
            why,
        };
        let machine = match kind {
            Workload::Paced {
                rate,
                duty,
                carrier,
            } => {
                room(&name, "sources", pairs.places() as u64)?;
                Machine::Paced(
                    paced::Paced::new(rate, duty, carrier, &pairs, span, random)
                        .map_err(nothing)?,
                )
            }
            Workload::Requests {
                connections,
                request,
                response,
                think,
            } => {
                let places = pairs.places() as u64;
                room(
                    &name,
                    "connections",
                    places.saturating_mul(u64::from(connections)),
                )?;
                if connections == 0 {
                    return Err(nothing("it has no connections; give at least one"));
                }
                Machine::Requests(requests::Requests::new(
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
                pick,
                arrivals,
                sizes,
                messages,
                requested: _,
            } => {
                let places = pairs.places() as u64;
                room(
                    &name,
                    "connections",
                    places.saturating_mul(u64::from(connections)),
                )?;
                if connections == 0 {
                    return Err(nothing("it has no connections; give at least one"));
                }
                if messages == Some(0) {
                    return Err(nothing("it has no messages; give at least one"));
                }
                let gap = open::gap(arrivals, &sizes).map_err(nothing)?;
                let demand = messages::Demand {
                    connections,
                    pick,
                    gap,
                    sizes,
                    most: messages,
                };
                let servers = draw::servers(seed, which);
                Machine::Messages(messages::Messages::new(
                    demand, &pairs, span, random, servers,
                ))
            }
            kind => {
                if let Some((what, index)) = backwards(&kind) {
                    return Err(WorkloadError::Backwards { name, what, index });
                }
                if let Workload::Bulk { flows, .. } = &kind {
                    room(
                        &name,
                        "flows",
                        (pairs.places() as u64).saturating_mul(u64::from(*flows)),
                    )?;
                }
                let late = draw::late(seed, which);
                Machine::Open(
                    open::OpenLoop::new(kind, &pairs, span, random, late).map_err(nothing)?,
                )
            }
        };
        Ok(Running { pairs, machine })
    }

    /// The next action that is due. Ask until it returns none, at each
    /// [`next_time`](Running::next_time) and after each [`received`](Running::received).
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        match &mut self.machine {
            Machine::Open(open) => open.poll(now, &self.pairs),
            Machine::Paced(paced) => paced.poll(now, &self.pairs),
            Machine::Requests(requests) => requests.poll(now, &self.pairs),
            Machine::Messages(messages) => messages.poll(now, &self.pairs),
        }
    }

    /// When there is something to be done next, if nothing arrives before; it may have passed.
    /// `None`: never, unless something arrives.
    pub fn next_time(&self) -> Option<Time> {
        match &self.machine {
            Machine::Open(open) => open.next_time(),
            Machine::Paced(paced) => paced.next_time(),
            Machine::Requests(requests) => requests.next_time(),
            Machine::Messages(messages) => messages.next_time(),
        }
    }

    /// Records that the oldest write in one direction of a flow has been read; `back` is the
    /// direction to its opener. Flows that the workload does not follow, and unknown slots, are
    /// ignored.
    pub fn received(&mut self, now: Time, slot: u32, back: bool) {
        match &mut self.machine {
            Machine::Requests(requests) => requests.received(now, slot, back),
            Machine::Messages(messages) => messages.received(now, slot, back),
            Machine::Open(_) | Machine::Paced(_) => {}
        }
    }

    /// The exchanges that were completed, in the order of their ends.
    pub fn exchanges(&self) -> &[Exchange] {
        match &self.machine {
            Machine::Requests(requests) => requests.done(),
            _ => &[],
        }
    }

    /// The messages that have arrived, in the order of their ends.
    pub fn messages(&self) -> &[Message] {
        match &self.machine {
            Machine::Messages(messages) => messages.done(),
            _ => &[],
        }
    }

    /// Requests without their responses, and messages that wait or are under way.
    pub fn unfinished(&self) -> u64 {
        match &self.machine {
            Machine::Requests(requests) => requests.unfinished(),
            Machine::Messages(messages) => messages.unfinished(),
            Machine::Open(_) | Machine::Paced(_) => 0,
        }
    }

    /// Whether it opens no flow with an end any more, and nothing of which it keeps account is
    /// under way. One that sends without end, as a paced source, has none: it ended before it
    /// began.
    pub fn ended(&self) -> bool {
        match &self.machine {
            Machine::Open(open) => open.ended(),
            Machine::Paced(_) => true,
            Machine::Requests(requests) => requests.ended(),
            Machine::Messages(messages) => messages.ended(),
        }
    }
}

/// From when to when.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Time,
    stop: Option<Time>,
}

impl Span {
    /// Whether something at this time is too late.
    fn over(self, at: Time) -> bool {
        self.stop.is_some_and(|stop| at >= stop)
    }
}

/// The first flow of a trace or list that starts before the one above it, and which of the two it
/// is.
fn backwards(kind: &Workload) -> Option<(&'static str, usize)> {
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

fn room(name: &str, what: &'static str, count: u64) -> Result<(), WorkloadError> {
    if count > MOST_CONNECTIONS {
        return Err(WorkloadError::TooMany {
            name: name.into(),
            what,
            count,
            limit: MOST_CONNECTIONS,
        });
    }
    Ok(())
}

impl Pause {
    /// The longest or mean length.
    fn length(self) -> Duration {
        match self {
            Pause::Fixed(length) | Pause::Exponential(length) => length,
        }
    }

    /// The next one.
    fn draw(self, random: &mut rand_pcg::Pcg64) -> Duration {
        match self {
            Pause::Fixed(length) => length,
            Pause::Exponential(mean) => draw::exponential(random, mean.as_nanos() as f64),
        }
    }
}
