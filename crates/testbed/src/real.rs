//! The workloads of a scenario as real traffic over one emulated bottleneck.
//!
//! The machines of `ccplane-workload` decide who sends what to whom, and when; the simulator drives
//! the same ones. With the same seed both have the same flows: as many, of the same sizes, between
//! the same hosts. Here two threads do what the machines want, with sockets: [`tcp`] with those of
//! the kernel's TCP, [`user`] with those of a transport in user space.
//!
//! **What a completion time counts.** A flow begins when its workload says so: that is when its
//! connection is asked for, so that the handshake's round trip is part of its time. It is the same
//! in the simulator, whose connections have a handshake of one round trip too. A flow ends when the
//! receiving application has read its last byte. Nothing is connected ahead: a flow without end
//! that begins at time zero sends its first byte a round trip later, here as there.
//!
//! Where hosts are is in [`layout`]; they are addresses ([`hosts`]), so that fair queues tell flows
//! apart by addresses and ports. Bundles have [`sites`] behind gateways. What changes on the link
//! while a run goes on is in [`events`]. [`unsupported`] names what cannot run before
//! anything is made.

mod accepters;
mod controls;
mod drive;
mod events;
mod hosts;
mod layout;
mod mail;
mod marks;
mod openers;
mod plan;
mod sites;
mod socket;
pub(crate) mod tcp;
#[cfg(test)]
mod tests;
mod unsupported;
pub(crate) mod user;

use std::net::SocketAddr;

use ccplane_datapath::Capabilities;
use ccplane_units::Duration;
use ccplane_workload::WorkloadSpec;

use ccplane_lab::Contender;
use ccplane_lab::record::WorkloadRecord;

pub(crate) use controls::RegisteredControls;
pub(crate) use events::{LinkEvent, could_carry};
pub(crate) use hosts::Hosts;
pub(crate) use layout::Layout;
pub(crate) use sites::Sites;
pub(crate) use unsupported::{supported_layout, unreachable_pairs};

/// What is to run.
pub(crate) struct RealPlan {
    /// Where the hosts are that the workloads name.
    pub hosts: Hosts,
    /// In the scenario's order, which decides their random numbers.
    pub workloads: Vec<RealWorkload>,
    pub seed: u64,
    /// For how long, at most.
    pub duration: Duration,
    /// Workloads that the run waits for: it is over once all their flows have ended. None: it takes
    /// its whole duration.
    pub until: Vec<usize>,
    /// From when on goodput counts.
    pub warm: Duration,
    /// Between two looks at the flows that last.
    pub sample_every: Duration,
    pub events: Vec<LinkEvent>,
    /// Bytes of a socket's buffers, see [`buffer_for`](crate::traffic::buffer_for).
    pub buffer: usize,
}

/// A workload and who controls its flows.
pub(crate) struct RealWorkload {
    pub spec: WorkloadSpec,
    /// `None` for datagrams.
    pub contender: Option<Contender>,
    /// See [`WorkloadRecord::compared`].
    pub compared: bool,
    /// What has to be switched on for it.
    pub wants: Capabilities,
}

/// What became of it.
pub(crate) struct RealRecord {
    /// Time zero of the run, `CLOCK_MONOTONIC` nanoseconds.
    pub started_ns: u64,
    /// For how long bytes were counted.
    pub elapsed_ns: u64,
    /// In the plan's order.
    pub workloads: Vec<WorkloadRecord>,
    /// The senders of the flows that were sampled, in the order of the result: compared ones as
    /// they began, then those of the others by workload.
    pub senders: Vec<SocketAddr>,
}
