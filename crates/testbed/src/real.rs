//! The workloads of a scenario as real traffic over one emulated bottleneck.
//!
//! The generators of `ccplane-workload` decide who sends what to whom, and when; the simulator uses
//! the same ones. With the same seed both have the same number of flows, of the same sizes, between
//! the same hosts. Here two threads carry them out with sockets: [`tcp`] with the kernel's TCP,
//! [`user`] with a transport in user space.
//!
//! **Definition of the completion time.** A flow starts when its workload opens it. Its connection
//! is opened then, so the round trip of the handshake is part of the completion time, as it is in
//! the simulator. A flow ends when the receiving application has read its last byte. No connection
//! is opened ahead of time: a long-lived flow that starts at time zero sends its first byte a round
//! trip later, in both backends.
//!
//! [`layout`] decides where hosts are. They are addresses ([`hosts`]), so that fair queues separate
//! flows by addresses and ports. Bundles connect [`sites`] behind gateways. [`events`] applies
//! changes of the link during a run. [`unsupported`] lists what cannot run, before any resource is
//! created.

mod accounting;
mod client;
mod controls;
mod events;
mod hosts;
mod layout;
mod mailbox;
mod path;
mod plan;
mod server;
mod sites;
mod socket;
pub(crate) mod tcp;
#[cfg(test)]
mod tests;
mod unsupported;
pub(crate) mod user;
mod write_marks;

use std::net::SocketAddr;

use ccplane_datapath::Capabilities;
use ccplane_units::Duration;
use ccplane_workload::WorkloadSpec;

use ccplane_lab::Contender;
use ccplane_lab::record::WorkloadRecord;

pub(crate) use controls::RegisteredControls;
pub(crate) use events::{LinkEvent, could_carry};
pub(crate) use hosts::Hosts;
pub(crate) use layout::{Layout, emulated_link};
pub(crate) use path::RealPath;
pub(crate) use sites::Sites;
pub(crate) use unsupported::{supported_layout, unreachable_pairs};

/// Plan of a run.
pub(crate) struct RealPlan {
    /// Addresses of the hosts that the workloads name.
    pub hosts: Hosts,
    /// Workloads in the scenario's order, which determines their random numbers.
    pub workloads: Vec<RealWorkload>,
    pub seed: u64,
    /// Upper limit of the run's duration.
    pub duration: Duration,
    /// Workloads whose completion ends the run early. If empty, the run takes its whole duration.
    pub awaited_workloads: Vec<usize>,
    /// Warm-up time before goodput counts.
    pub warm_up: Duration,
    /// Sampling interval of long-lived flows.
    pub sample_every: Duration,
    pub events: Vec<LinkEvent>,
    /// Size of a socket's buffers, see [`buffer_for`](crate::traffic::buffer_for).
    pub socket_buffer: usize,
}

/// A workload and the contender that controls its flows.
pub(crate) struct RealWorkload {
    pub spec: WorkloadSpec,
    /// `None` for datagrams.
    pub contender: Option<Contender>,
    /// See [`WorkloadRecord::compared`].
    pub compared: bool,
    /// DSCP of the packets that its senders send. Those of the receivers have DSCP 0.
    pub dscp: u8,
    /// Capabilities that the contender needs, such as ECN.
    pub capabilities: Capabilities,
}

/// Measurements of a run.
pub(crate) struct RealRecord {
    /// Time zero of the run, `CLOCK_MONOTONIC` nanoseconds.
    pub started_ns: u64,
    /// Time during which bytes were counted.
    pub elapsed_ns: u64,
    /// Records in the plan's order.
    pub workloads: Vec<WorkloadRecord>,
    /// Local addresses of the sampled flows, in the order of the result: compared flows by start
    /// time, then the others by workload.
    pub senders: Vec<SocketAddr>,
}
