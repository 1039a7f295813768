//! A flow that has a path for itself, in the simulator: how long it takes.

use ccplane_sim::{FlowSpec, LinkSpec, Network, SimError, SimOptions, Simulation, TransportConfig};
use ccplane_units::{Duration, Rate, Time};
use serde::{Deserialize, Serialize};

use super::rc3_who::{Control, Start, shared};
use super::simulations::{self, Job};
use ccplane_lab::Error;

/// One flow on one link.
#[derive(Clone, Debug)]
pub(super) struct Lone {
    /// The experiment, for whoever repeats it.
    pub experiment: &'static str,
    pub start: Start,
    pub control: Control,
    pub rate: Rate,
    /// Round trip without the time that packets take to be sent.
    pub rtt: Duration,
    pub bytes: u64,
    /// Packets of the initial window, where `start` does not say it.
    pub window: Option<u16>,
    pub acks: Acks,
}

/// How the receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acks {
    /// Every packet at once.
    Each,
    /// One acknowledgement for so many packets that arrive together, as a receiver with segment
    /// coalescing sends. The sender counts at most two packets of each (RFC 3465 with L = 2, and
    /// the paper's explanation of Linux' slower TCP).
    Stretched(u8),
}

/// Packets that a receiver takes together come within so much: the interrupt of a network card does
/// not wait longer. Longer, and the last packets of a window would wait for it visibly.
const COALESCED: Duration = Duration::from_micros(50);
/// Packets of an ACK that the window grows by, where ACKs are stretched.
const COUNTED: u8 = 2;
/// No flow takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Took {
    /// From asking for the connection to the receiver's having the last byte, s.
    pub seconds: f64,
    /// Packets that were sent again in class 0, and that the host sent in all.
    pub retransmitted: u64,
    pub sent: u64,
}

impl Lone {
    fn config(&self) -> TransportConfig {
        let own = self.start.transport();
        let own = TransportConfig {
            initial_window: self.window.unwrap_or(own.initial_window),
            ..own
        };
        match self.acks {
            Acks::Each => own,
            Acks::Stretched(packets) => TransportConfig {
                ack_every: packets,
                ack_delay: COALESCED,
                quick_acks: 0,
                growth_limit: COUNTED,
                ..own
            },
        }
    }
}

impl Job for Lone {
    type Result = Took;

    fn name(&self) -> String {
        let (start, control, rate) = (
            self.start.key(),
            self.control.key(),
            self.rate.bits_per_sec() / 1_000_000,
        );
        let acks = match self.acks {
            Acks::Each => String::new(),
            Acks::Stretched(packets) => format!("-per{packets}"),
        };
        let window = self
            .window
            .map_or(String::new(), |packets| format!("-iw{packets}"));
        format!(
            "{start}-{control}-{rate}m-{}us-{}{window}{acks}",
            self.rtt.as_micros(),
            self.bytes
        )
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn run(&self) -> Result<Took, Error> {
        let broken = simulations::broken(&self.name(), 1, self.experiment);
        let link = LinkSpec::new(self.rate, self.rtt / 2);
        let mut network = Network::new();
        let (from, to) = (network.add_host("from"), network.add_host("to"));
        network.add_duplex_link(from, to, link.clone(), link);
        let mut sim = Simulation::new(network, SimOptions::seeded(1)).map_err(&broken)?;
        let flow = FlowSpec::new(from, to)
            .with_bytes(self.bytes)
            .with_congestion(self.control.congestion())
            .with_transport(shared(self.config()));
        let flow = sim.add_flow(flow).map_err(&broken)?;
        sim.run_flows(Time::ZERO + PATIENCE).map_err(&broken)?;
        let view = sim.flow(flow);
        let took =
            view.and_then(|view| Some((view.finished?.since(view.started), view.retransmitted)));
        let (took, retransmitted) = took
            .ok_or_else(|| broken(SimError::InvalidTopology("the flow did not end".to_owned())))?;
        Ok(Took {
            seconds: took.as_secs_f64(),
            retransmitted,
            sent: sim.counters().sent,
        })
    }
}
