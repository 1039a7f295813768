//! Flows: what is to be sent, from where to where, and how.

use std::sync::Arc;

use ccplane_transport::{Config, Failure, Native, Rc3Arrivals, Rc3Stats};
use ccplane_units::{Duration, Time};

use crate::app::AppId;
use crate::end::End;
use crate::network::NodeId;
use crate::steer::AgentId;

/// A flow, numbered from 0 in the order in which flows were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

impl FlowId {
    /// Its number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What decides a flow's window.
#[derive(Clone, Debug)]
pub enum Congestion {
    /// A control built into the transport.
    Native(Native),
    /// An algorithm of an agent of this simulation, by its name; an empty name is the agent's
    /// first.
    Steered(AgentId, Arc<str>),
}

/// A direction of a flow's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the host that asked for the connection.
    Forward,
    /// To it.
    Backward,
}

/// A flow to come.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// The host that sends.
    pub from: NodeId,
    /// The host that receives.
    pub to: NodeId,
    /// When the connection is asked for.
    pub start: Time,
    /// Bytes to send; `None`: without end.
    pub bytes: Option<u64>,
    /// The connection closes after them. One that does not may be [written](crate::World::write) to
    /// again.
    pub finish: bool,
    /// What decides the window.
    pub congestion: Congestion,
    /// The transport's settings, shared by flows that have the same.
    pub transport: Arc<Config>,
    /// The band of strict-priority queues, also of the host's own link, that the sender's packets
    /// of class 0 go in; those of lower classes go in bands below it, and in 7 where there is none.
    /// 0 is the highest, 7 the lowest. What comes back goes in band 0.
    ///
    /// In 7 a second loop would stand beside class 0: it stops as where the path does not keep the
    /// marking. Above that, classes that share 7 count as remarked.
    pub band: u8,
}

impl FlowSpec {
    /// A flow without end from the beginning, under native Cubic with the transport's usual
    /// settings.
    pub fn new(from: NodeId, to: NodeId) -> FlowSpec {
        FlowSpec {
            from,
            to,
            start: Time::ZERO,
            bytes: None,
            finish: true,
            congestion: Congestion::Native(Native::cubic()),
            transport: settings(),
            band: 0,
        }
    }

    /// The same from this time on.
    #[must_use]
    pub fn at(self, start: Time) -> FlowSpec {
        FlowSpec { start, ..self }
    }

    /// The same with so many bytes.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> FlowSpec {
        FlowSpec {
            bytes: Some(bytes),
            ..self
        }
    }

    /// The same under this control.
    #[must_use]
    pub fn under(self, congestion: Congestion) -> FlowSpec {
        FlowSpec { congestion, ..self }
    }

    /// The same in this band.
    #[must_use]
    pub fn in_band(self, band: u8) -> FlowSpec {
        FlowSpec { band, ..self }
    }

    /// The same with these settings of the transport.
    #[must_use]
    pub fn with(self, transport: Arc<Config>) -> FlowSpec {
        FlowSpec { transport, ..self }
    }
}

/// The transport's usual settings, for an application that takes every byte at once.
pub fn settings() -> Arc<Config> {
    Arc::new(Config {
        discard: true,
        ..Config::default()
    })
}

/// What a flow did so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowView {
    /// The host that sends.
    pub from: NodeId,
    /// The host that receives.
    pub to: NodeId,
    /// When the connection was, or will be, asked for.
    pub started: Time,
    /// When the receiver had the last byte: the completion time counts from `started` to here.
    pub finished: Option<Time>,
    /// Why it ended early.
    pub failure: Option<Failure>,
    /// Bytes to send; `None`: without end.
    pub bytes: Option<u64>,
    /// The application that it belongs to.
    pub app: Option<AppId>,
    /// Bytes that arrived in order.
    pub received: u64,
    /// Bytes acknowledged.
    pub acked: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments taken for lost.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// The window, bytes.
    pub cwnd: u64,
    /// The slow-start threshold, bytes; `u64::MAX` before the first reduction.
    pub ssthresh: u64,
    /// Smoothed RTT; zero before the first sample.
    pub srtt: Duration,
    /// Least RTT.
    pub min_rtt: Duration,
    /// The pacing rate, bytes/s; 0 when not paced.
    pub rate: u64,
    /// Packets on their way, as far as the sender knows.
    pub in_flight: u32,
    /// It runs on the datapath's fallback, because its agent is silent.
    pub in_fallback: bool,
}

/// A flow as the simulation keeps it, before, during and after its life.
#[derive(Debug)]
pub(crate) struct Flow {
    pub start: Time,
    pub finished: Time,
    /// `u64::MAX` without end.
    pub bytes: u64,
    pub transport: Arc<Config>,
    pub rest: Option<Box<Rest>>,
    pub from: u32,
    pub to: u32,
    /// Where its two ends are while it lives.
    pub ends: u32,
    /// What is told of its end.
    pub app: u32,
    pub finish: bool,
    pub band: u8,
}

/// What an open flow under a native control takes in memory, both ends of it, without what its
/// connections have on the [heap](crate::World::connection_heap_bytes), bytes.
pub const FLOW_BYTES: usize = 2 * size_of::<End>() + size_of::<Native>() + size_of::<Flow>();

/// What is known of a flow only before or after its life.
#[derive(Debug)]
pub(crate) enum Rest {
    Waiting(Wanted),
    /// With what its second loop did, if it had one.
    Over(FlowView, Option<Box<(Rc3Stats, Rc3Arrivals)>>),
}

/// What a flow that has not begun is to be controlled by.
#[derive(Debug)]
pub(crate) enum Wanted {
    Native(Native),
    Steered { agent: u32, algorithm: Arc<str> },
}
