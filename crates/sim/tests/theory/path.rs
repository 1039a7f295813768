//! The path that all these tests take, and what is measured on it.

use std::sync::Arc;

use ccplane_sim::{
    Config, Congestion, FlowId, FlowSpec, FlowView, LinkId, LinkSpec, LinkView, Native, Network,
    NodeId, SimOptions, Simulation,
};
use ccplane_units::{Duration, Rate, Time};

/// Payload and header bytes of a full packet: 1500 bytes on the wire.
pub const MSS: u16 = 1448;

/// A sender, a switch beside it, a receiver: `forward` leads from the switch to the receiver,
/// `backward` back.
pub struct Path {
    pub sim: Simulation,
    pub sender: NodeId,
    pub receiver: NodeId,
    pub forward: LinkId,
}

impl Path {
    pub fn new(forward: LinkSpec, backward: LinkSpec, seed: u64) -> Path {
        let mut network = Network::new();
        let (sender, receiver) = (network.host("sender"), network.host("receiver"));
        let switch = network.switch("switch");
        network.duplex(
            sender,
            switch,
            LinkSpec::wire(Duration::ZERO),
            LinkSpec::wire(Duration::ZERO),
        );
        let (forward, _) = network.duplex(switch, receiver, forward, backward);
        let options = SimOptions::seeded(seed);
        Path {
            sim: Simulation::new(network, options).unwrap(),
            sender,
            receiver,
            forward,
        }
    }

    /// A flow from the beginning, without end.
    pub fn flow(&mut self, native: Native, config: Config) -> FlowId {
        let spec = FlowSpec::new(self.sender, self.receiver)
            .under(Congestion::Native(native))
            .with(Arc::new(config));
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

/// Whoever receives takes every byte at once.
pub fn config() -> Config {
    Config {
        discard: true,
        mss: MSS,
        ..Config::default()
    }
}

pub fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_nanos((seconds * 1e9).round() as u64)
}

pub fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec((rate * 1e6) as u64)
}

/// Whether `measured` is within so many per cent of `expected`; prints both.
pub fn within(what: &str, measured: f64, expected: f64, percent: f64) -> bool {
    let error = (measured / expected - 1.0) * 100.0;
    println!(
        "{what}: measured {measured:.5}, expected {expected:.5}: {error:+.2} %, bound {percent} %"
    );
    error.abs() <= percent
}
