//! Flows: description and state.

use std::sync::Arc;

use ccplane_network::NodeId;
use ccplane_transport::{ConnectionError, Native, Rc3Arrivals, Rc3Stats, TransportConfig};
use ccplane_units::{Duration, Time};

use crate::app::AppId;
use crate::endpoint::FlowEndpoint;
use crate::steer::AgentId;

/// Flow, numbered from 0 in the order of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

impl FlowId {
    /// Returns the number of the flow.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Congestion control of a flow.
#[derive(Clone, Debug)]
pub enum FlowControl {
    /// Native to the transport.
    Native(Native),
    /// Algorithm of an agent of this simulation, by name; an empty name selects the agent's first.
    Steered(AgentId, Arc<str>),
}

/// Direction of a flow's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataDirection {
    /// From the host that opened the connection.
    Forward,
    /// To the host that opened the connection.
    Backward,
}

/// Description of a flow.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Sending host.
    pub from: NodeId,
    /// Receiving host.
    pub to: NodeId,
    /// Time at which the connection is opened.
    pub start: Time,
    /// Bytes to send; `None` to send without end.
    pub bytes: Option<u64>,
    /// Closes the connection after these bytes. Otherwise more data may be
    /// [written](crate::World::write) later.
    pub finish: bool,
    /// Congestion control.
    pub congestion: FlowControl,
    /// Transport settings, shared between flows with equal ones.
    pub transport: Arc<TransportConfig>,
    /// Band in strict-priority queues, including the host's own, for the sender's packets of class
    /// 0; lower classes use the bands below it, at most 7. 0 is the highest band. The receiver's
    /// packets use band 0.
    ///
    /// In band 7, RC3's low-priority loop would share the band of class 0, so it stops as it does
    /// on paths that clear the marking. In higher bands, classes that share band 7 count as
    /// remarked.
    pub band: u8,
}

impl FlowSpec {
    /// Creates a flow without end from time 0, under native Cubic with the default transport
    /// settings.
    pub fn new(from: NodeId, to: NodeId) -> FlowSpec {
        FlowSpec {
            from,
            to,
            start: Time::ZERO,
            bytes: None,
            finish: true,
            congestion: FlowControl::Native(Native::cubic()),
            transport: default_transport(),
            band: 0,
        }
    }

    /// Sets the start time.
    #[must_use]
    pub fn starting_at(self, start: Time) -> FlowSpec {
        FlowSpec { start, ..self }
    }

    /// Sets the number of bytes.
    #[must_use]
    pub fn with_bytes(self, bytes: u64) -> FlowSpec {
        FlowSpec {
            bytes: Some(bytes),
            ..self
        }
    }

    /// Sets the congestion control.
    #[must_use]
    pub fn with_congestion(self, congestion: FlowControl) -> FlowSpec {
        FlowSpec { congestion, ..self }
    }

    /// Sets the band.
    #[must_use]
    pub fn with_band(self, band: u8) -> FlowSpec {
        FlowSpec { band, ..self }
    }

    /// Sets the transport settings.
    #[must_use]
    pub fn with_transport(self, transport: Arc<TransportConfig>) -> FlowSpec {
        FlowSpec { transport, ..self }
    }
}

/// Returns the default transport settings for an application that reads every byte immediately.
pub fn default_transport() -> Arc<TransportConfig> {
    Arc::new(TransportConfig {
        discard: true,
        ..TransportConfig::default()
    })
}

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowView {
    /// Sending host.
    pub from: NodeId,
    /// Receiving host.
    pub to: NodeId,
    /// Time at which the connection was or will be opened.
    pub started: Time,
    /// Time at which the receiver had the last byte. The flow completion time runs from `started`
    /// to `finished`.
    pub finished: Option<Time>,
    /// Reason of a premature end.
    pub failure: Option<ConnectionError>,
    /// Bytes to send; `None` without end.
    pub bytes: Option<u64>,
    /// Application that owns the flow.
    pub app: Option<AppId>,
    /// Bytes received in order.
    pub received: u64,
    /// Bytes acknowledged.
    pub acked: u64,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Segments declared lost.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Slow-start threshold, bytes; `u64::MAX` before the first reduction.
    pub ssthresh: u64,
    /// Smoothed RTT; zero before the first sample.
    pub srtt: Duration,
    /// Minimum RTT.
    pub min_rtt: Duration,
    /// Pacing rate, bytes/s; 0 without pacing.
    pub rate: u64,
    /// Packets in flight, by the sender's estimate.
    pub in_flight: u32,
    /// The datapath's fallback controls the flow, because the agent timed out.
    pub in_fallback: bool,
}

/// Record of a flow, before, during and after its lifetime.
#[derive(Debug)]
pub(crate) struct SimFlow {
    pub start: Time,
    pub finished: Time,
    /// `u64::MAX` without end.
    pub bytes: u64,
    pub transport: Arc<TransportConfig>,
    pub inactive: Option<Box<InactiveState>>,
    pub from: u32,
    pub to: u32,
    /// Index of the two endpoints while the flow is open.
    pub ends: u32,
    /// Application notified of the end.
    pub app: u32,
    pub finish: bool,
    pub band: u8,
}

/// Memory of an open flow under native control: both endpoints, without the
/// [heap](crate::World::connection_heap_bytes) of its connections, bytes.
pub const FLOW_BYTES: usize =
    2 * size_of::<FlowEndpoint>() + size_of::<Native>() + size_of::<SimFlow>();

/// Data of a flow that is only needed before or after its lifetime.
#[derive(Debug)]
pub(crate) enum InactiveState {
    Planned(PlannedControl),
    /// Final state, with the statistics of RC3's low-priority loop, if any.
    Finished(FlowView, Option<Box<(Rc3Stats, Rc3Arrivals)>>),
}

/// Requested congestion control of a flow that has not started.
#[derive(Debug)]
pub(crate) enum PlannedControl {
    Native(Native),
    Steered { agent: u32, algorithm: Arc<str> },
}
