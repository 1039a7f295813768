//! Path used by all these tests, and its measurements.

use std::sync::Arc;

use ccplane_sim::{
    FlowControl, FlowId, FlowSpec, FlowView, LinkId, LinkSpec, LinkView, Native, Network, NodeId,
    SimOptions, Simulation, TransportConfig,
};
use ccplane_units::{Duration, Rate, Time};

/// Payload of a packet of 1500 bytes on the wire.
pub const MSS: u16 = 1448;

/// A sender, a switch next to it, and a receiver: the link `forward` leads from the switch to the
/// receiver, `backward` from the receiver to the switch.
pub struct Path {
    pub sim: Simulation,
    pub sender: NodeId,
    pub receiver: NodeId,
    pub forward: LinkId,
}

impl Path {
    pub fn new(forward: LinkSpec, backward: LinkSpec, seed: u64) -> Path {
        let mut network = Network::new();
        let (sender, receiver) = (network.add_host("sender"), network.add_host("receiver"));
        let switch = network.add_switch("switch");
        network.add_duplex_link(
            sender,
            switch,
            LinkSpec::wire(Duration::ZERO),
            LinkSpec::wire(Duration::ZERO),
        );
        let (forward, _) = network.add_duplex_link(switch, receiver, forward, backward);
        let options = SimOptions::seeded(seed);
        Path {
            sim: Simulation::new(network, options).unwrap(),
            sender,
            receiver,
            forward,
        }
    }

    /// Adds a flow without end that starts at time 0.
    pub fn flow(&mut self, native: Native, config: TransportConfig) -> FlowId {
        let spec = FlowSpec::new(self.sender, self.receiver)
            .with_congestion(FlowControl::Native(native))
            .with_transport(Arc::new(config));
        self.sim.add_flow(spec).unwrap()
    }

    pub fn run_until(&mut self, seconds: f64) {
        self.sim.run_until(at(seconds)).unwrap();
    }

    pub fn view(&self, flow: FlowId) -> FlowView {
        self.sim.flow(flow).unwrap()
    }

    pub fn link(&self) -> LinkView {
        self.sim.link(self.forward).unwrap()
    }
}

/// Returns a configuration whose receiver reads every byte immediately.
pub fn config() -> TransportConfig {
    TransportConfig {
        discard: true,
        mss: MSS,
        ..TransportConfig::default()
    }
}

pub fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_nanos((seconds * 1e9).round() as u64)
}

pub fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec((rate * 1e6) as u64)
}

/// Returns true if `measured` is within `percent` of `expected`, and prints both.
pub fn within(what: &str, measured: f64, expected: f64, percent: f64) -> bool {
    let error = (measured / expected - 1.0) * 100.0;
    println!(
        "{what}: measured {measured:.5}, expected {expected:.5}: {error:+.2} %, bound {percent} %"
    );
    error.abs() <= percent
}
