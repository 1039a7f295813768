//! Discrete-event simulator: networks of queues and links, hosts that run the transport, and agents
//! that control it, in virtual time.
//!
//! A [`Network`] describes hosts, switches and links; [`topology`] builds the usual ones. A
//! [`Simulation`] runs a network with [flows](FlowSpec), [agents](World::host_agent) that control
//! them, scheduled [changes](Change), and [applications](App) that add flows at run time.
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
mod check;
mod datagram;
mod digest;
mod end;
mod error;
mod event;
mod flow;
mod host;
mod life;
mod link;
mod offer;
mod packet;
pub mod parallel;
mod pcap;
mod probe;
mod receipt;
mod simulation;
mod stamps;
mod steer;
mod trace;
mod travel;
mod view;
mod workload;
mod world;

pub use app::{App, AppId, Cause};
pub use bundle::{BundleId, BundleSpec, BundleWay};
pub use ccplane_network::{
    LinkId, LinkSpec, Network, NetworkChange, NetworkError, NetworkPath, NodeId, Remark, Spread,
    topology,
};
pub use ccplane_transport::{
    Config, Connection, Failure, MAX_CLASSES, Native, Rc3, Rc3Arrivals, Rc3Stats, Rc3Stop,
};
pub use ccplane_workload::{
    Arrivals, Carrier, Duty, Exchange, Message, Pairs, Pause, Pick, SizeTable, SizeTableError,
    TraceFlow, Workload, WorkloadError, WorkloadSpec,
};
pub use datagram::DatagramStats;
pub use digest::Digest;
pub use error::SimError;
pub use flow::{Congestion, Direction, FLOW_BYTES, FlowId, FlowSpec, FlowView, settings};
pub use link::{Crossing, LinkView};
pub use packet::PACKET_BYTES;
pub use pcap::{PacketLog, PacketLogError};
pub use probe::{FlowSeries, Followed, LinkSeries, Probe, ProbeSpec, Sojourns};
pub use simulation::Simulation;
pub use stamps::{JitterShape, StampClock, StampModel};
pub use steer::{AgentId, HeardReport, STEERED_FLOW_EXTRA_BYTES, SteerOptions};
pub use trace::{Seen, Step, Tracer};
pub use view::Counters;
pub use workload::WorkloadApp;
pub use world::{SimOptions, World};
