//! Discrete-event simulator: networks of queues and links, hosts that run the transport, and agents
//! that control it, in virtual time.
//!
//! A [`Network`] describes hosts, switches and links; [`topology`] builds the usual ones. A
//! [`Simulation`] runs a network with [flows](FlowSpec), [agents](World::host_agent) that control
//! them, scheduled [changes](NetworkChange), and [applications](App) that add flows at run time.
//! [`run_until`](Simulation::run_until) advances the time. The same network, flows and seed give
//! bit-identical results on every platform.
//!
//! Queues and links are from `ccplane-qdisc`, connections from `ccplane-transport` and workloads
//! from `ccplane-workload`: the simulator runs the code that also runs on real packets.
#![forbid(unsafe_code)]

mod address;
mod app;
mod bundle;
mod change;
mod datagram;
mod digest;
mod endpoint;
mod error;
mod event;
mod flow;
mod forwarding;
mod host;
mod invariants;
mod lifecycle;
mod link;
mod packet;
pub mod parallel;
mod pcap;
mod probe;
mod rcp_header;
mod receipt;
mod simulation;
mod stamps;
mod steer;
mod trace;
mod view;
mod workload;
mod world;

pub use app::{App, AppId, WakeReason};
pub use bundle::{BundleBaseDelays, BundleId, BundleSpec};
pub use ccplane_network::{
    LinkId, LinkSpec, Network, NetworkChange, NetworkError, NetworkPath, NodeId, Remark, Spread,
    topology,
};
pub use ccplane_transport::{
    CLASS_COUNT, Connection, ConnectionError, Native, Rc3, Rc3Arrivals, Rc3Stats, Rc3Stop,
    TransportConfig,
};
pub use ccplane_workload::{
    Arrivals, Carrier, ConnectionPolicy, DeliveredMessage, DurationDistribution, Duty, Exchange,
    Pairs, SizeTable, SizeTableError, TraceFlow, Workload, WorkloadError, WorkloadSpec,
};
pub use datagram::DatagramStats;
pub use digest::Digest;
pub use error::SimError;
pub use flow::{
    DataDirection, FLOW_BYTES, FlowControl, FlowId, FlowSpec, FlowView, default_transport,
};
pub use link::{Crossing, LinkView};
pub use packet::PACKET_BYTES;
pub use pcap::{PacketLog, PacketLogError};
pub use probe::{FlowSeries, LinkSeries, Probe, ProbeSpec, ProbeTarget, Sojourns};
pub use simulation::Simulation;
pub use stamps::{JitterShape, StampClock, StampModel};
pub use steer::{AgentId, RecordedReport, STEERED_FLOW_EXTRA_BYTES, SteerOptions};
pub use trace::{LinkStep, PacketEvent, Tracer};
pub use view::SimCounters;
pub use workload::WorkloadApp;
pub use world::{SimOptions, World};
