//! Tests that the results do not depend on the order of scheduling or on the choice of free
//! endpoint slots, both of which a partition over threads would change.

use std::sync::Arc;

use ccplane_network::{LinkSpec, Network, Spread};
use ccplane_transport::{Native, TransportConfig};
use ccplane_units::{Duration, Rate, Time};

use super::wheel::Wheel;
use super::{EventQueue, SimEvent, TIME_MAX};
use crate::{FlowControl, FlowSpec, SimOptions, Simulation, topology};

/// Permutation of the pending events and the free slots, as threads might cause.
type Interleave = fn(&mut [SimEvent], &mut [u32]);

impl EventQueue {
    /// Reschedules all pending events in another order.
    fn reschedule(&mut self, order: impl FnOnce(&mut [SimEvent])) {
        let mut events: Vec<SimEvent> = std::iter::from_fn(|| self.pop(TIME_MAX)).collect();
        order(&mut events);
        self.wheel = Wheel::default();
        self.scheduled = 0;
        for SimEvent(number) in events {
            self.scheduled += 1;
            self.wheel.push(SimEvent(number));
        }
    }
}

/// Start of the second round of flows, µs. The first round has ended and leaves free slots to
/// choose from.
const SECOND_ROUND_START_US: u64 = 10_000_000;

/// Returns the digest of equal flows that start simultaneously on equal links, so that nearly all
/// events are simultaneous.
fn digest(network: Network, to_one: bool, interleave: Interleave) -> u64 {
    let mut sim = Simulation::new(network, SimOptions::seeded(7)).expect("a valid network");
    let hosts: Vec<_> = sim.network().hosts().collect();
    // Enough simultaneous flows to cause losses, whose timeouts coincide.
    for start in [[0; 6], [SECOND_ROUND_START_US; 6]].concat() {
        for (n, from) in hosts.iter().enumerate().skip(1) {
            let to = if to_one { hosts[0] } else { hosts[n - 1] };
            let spec = FlowSpec {
                start: Time::from_micros(start),
                bytes: Some(60_000),
                congestion: FlowControl::Native(Native::new_reno()),
                transport: Arc::new(TransportConfig::default()),
                ..FlowSpec::new(*from, to)
            };
            sim.add_flow(spec).expect("a path");
        }
    }
    let steps = |from| (0..100).map(move |step| Time::from_micros(from + step * 20));
    for step in steps(1).chain(steps(SECOND_ROUND_START_US - 1)) {
        sim.run_until(step).expect("the run succeeds");
        let mut free = std::mem::take(&mut sim.world.free_ends);
        sim.world
            .events
            .reschedule(|events| interleave(events, &mut free));
        sim.world.free_ends = free;
    }
    sim.run_until(Time::from_micros(30_000_000))
        .expect("the run succeeds");
    assert!(
        sim.flows()
            .all(|flow| sim.flow(flow).is_some_and(|flow| flow.finished.is_some()))
    );
    sim.digest()
}

/// Orders by a hash of the event.
fn scattered(events: &mut [SimEvent], free: &mut [u32]) {
    events
        .sort_by_key(|event| ccplane_network::random::mix(event.0 as u64 ^ (event.0 >> 64) as u64));
    free.sort_by_key(|place| ccplane_network::random::mix(u64::from(*place)));
}

fn backwards(events: &mut [SimEvent], free: &mut [u32]) {
    events.reverse();
    free.reverse();
}

fn link() -> LinkSpec {
    let queue = "droptail:30p".parse().expect("a queue");
    LinkSpec::new(
        Rate::from_bits_per_sec(1_000_000_000),
        Duration::from_micros(10),
    )
    .with_queue(queue, Duration::from_micros(40))
}

#[test]
fn whatever_was_scheduled_first_an_incast_gives_the_same_digest() {
    let run = |interleave| {
        let network = topology::incast(8, &link(), link()).expect("small");
        digest(network, true, interleave)
    };
    let as_it_was = run(|_, _| ());
    assert_eq!(run(backwards), as_it_was);
    assert_eq!(run(scattered), as_it_was);
}

#[test]
fn whatever_was_scheduled_first_packets_with_paths_of_their_own_take_the_same_ones() {
    let run = |interleave| {
        let mut network = topology::leaf_spine(2, 4, 2, &link(), &link()).expect("small");
        network.spread = Spread::PerPacket;
        digest(network, false, interleave)
    };
    let as_it_was = run(|_, _| ());
    assert_eq!(run(backwards), as_it_was);
    assert_eq!(run(scattered), as_it_was);
}
