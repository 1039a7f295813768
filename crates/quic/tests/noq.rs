//! ccplane's algorithms behind noq, in virtual time.
#![cfg(feature = "noq")]
#![expect(clippy::disallowed_methods, reason = "an epoch is taken; nothing depends on which")]

mod pair;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ccplane_agent::datapath::Here;
use ccplane_agent::{Agent, Options};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_quic::{Limits, Plane, PlaneError, PlaneStats, Stack};
use noq_proto::TransportConfig;
use pair::{Link, Outcome, run};

const LASTS: Duration = Duration::from_secs(10);

/// A run of an algorithm, whose agent is in the same virtual time.
fn steered(name: &str, link: Link) -> (Outcome, PlaneStats) {
    let algorithm = Registry::builtin().by_name(name, &Parameters::default()).unwrap();
    let mut agent = Agent::new(Options::default());
    agent.add_boxed(algorithm).unwrap();
    let epoch = Instant::now();
    let plane = Plane::driven(Stack::Noq, Box::new(Here::new(agent)), Limits::default(), epoch);
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(plane.noq().unwrap());
    let outcome = run(link, transport, epoch, LASTS, |now| plane.turn(now));
    (outcome, plane.stats())
}

fn native(link: Link) -> Outcome {
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(Arc::new(noq_proto::congestion::CubicConfig::default()));
    run(link, transport, Instant::now(), LASTS, |_| ())
}

fn mbit(outcome: &Outcome) -> f64 {
    outcome.arrived as f64 * 8.0 / LASTS.as_secs_f64() / 1e6
}

#[test]
fn every_algorithm_fills_a_link_behind_noq() {
    let link = Link::ordinary();
    let own = native(link);
    println!("native:cubic {:.1} Mbit/s, queue {} of {}, {} lost", mbit(&own), own.queue_mean, link.buffer, own.lost);
    for name in ["reno", "cubic", "bbr", "bbr3", "copa", "vegas", "ledbat++", "swift"] {
        let (outcome, stats) = steered(name, link);
        println!(
            "{name} {:.1} Mbit/s, queue {} of {}, {} lost, {stats:?}",
            mbit(&outcome),
            outcome.queue_mean,
            link.buffer,
            outcome.lost
        );
        assert_eq!((stats.opened, stats.closed), (1, 1), "{name}");
        assert!(stats.fallbacks == 0 && stats.reports > 100, "{name}: {stats:?}");
    }
}

#[test]
fn the_same_run_twice_is_the_same() {
    let link = Link {
        loses: 1_000,
        ..Link::ordinary()
    };
    assert_eq!(steered("cubic", link), steered("cubic", link));
}

#[test]
fn an_algorithm_that_needs_what_noq_lacks_is_refused_with_its_name() {
    for (name, lacks) in [("dctcp", "ECN counts"), ("dx", "one-way delay")] {
        let algorithm = Registry::builtin().by_name(name, &Parameters::default()).unwrap();
        let refused = Plane::in_process(Stack::Noq, algorithm, Limits::default());
        let Err(why @ PlaneError::Missing { .. }) = refused else {
            panic!("{name}: {refused:?}")
        };
        let text = why.to_string();
        assert!(text.contains(name) && text.contains(lacks) && text.contains("noq"), "{text}");
    }
}
