//! ccplane's algorithms behind noq, in virtual time.
#![cfg(feature = "noq")]
#![expect(clippy::disallowed_methods, reason = "an arbitrary epoch")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pair::{Link, Outcome, between, run};
use ccplane_agent::datapath::InlineChannel;
use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_quic::{OperatorLimits, PlaneError, PlaneStats, QuicPlane, Stack};
use noq_proto::TransportConfig;

const DURATION: Duration = Duration::from_secs(10);

/// Runs an algorithm whose agent is in the same virtual time.
fn steered(name: &str, link: Link) -> (Outcome, PlaneStats) {
    let epoch = Instant::now();
    let plane = plane(name, &Parameters::default(), epoch);
    let outcome = run(link, under(&plane), epoch, DURATION, |now| {
        plane.process(now)
    });
    (outcome, plane.stats())
}

/// Creates a plane in virtual time whose agent runs this algorithm.
fn plane(name: &str, parameters: &Parameters, epoch: Instant) -> QuicPlane {
    let algorithm = Registry::builtin().by_name(name, parameters).unwrap();
    let mut agent = Agent::new(AgentOptions::default());
    agent.add_boxed(algorithm).unwrap();
    QuicPlane::with_channel(
        Stack::Noq,
        Box::new(InlineChannel::new(agent)),
        OperatorLimits::default(),
        epoch,
    )
}

fn under(plane: &QuicPlane) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(plane.noq().unwrap());
    transport
}

fn native(link: Link) -> Outcome {
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(Arc::new(noq_proto::congestion::CubicConfig::default()));
    run(link, transport, Instant::now(), DURATION, |_| ())
}

fn mbit(outcome: &Outcome) -> f64 {
    outcome.arrived as f64 * 8.0 / DURATION.as_secs_f64() / 1e6
}

/// A window, a rate, and delay targets on the RTT. The algorithms themselves are tested in the
/// simulator (`crates/lab/tests/behaviour.rs`).
#[test]
fn algorithms_of_every_kind_fill_a_link_behind_noq() {
    fill_a_link(&[
        ("cubic", 0.99, 0.9),
        ("bbr", 0.99, 0.5),
        ("copa", 0.99, 0.1),
        ("swift", 0.75, 0.5),
    ]);
}

#[test]
#[ignore = "long: the same with the other algorithms"]
fn every_algorithm_fills_a_link_behind_noq() {
    fill_a_link(&[
        ("reno", 0.99, 0.9),
        ("bbr3", 0.97, 0.5),
        ("vegas", 0.99, 0.1),
        ("ledbat++", 0.8, 0.6),
    ]);
}

/// Runs each algorithm with its minimum goodput as a fraction of noq's own Cubic, and its maximum
/// mean queue as a fraction of the buffer.
fn fill_a_link(algorithms: &[(&str, f64, f64)]) {
    let link = Link::ordinary();
    let own = native(link);
    let fraction = |outcome: &Outcome| outcome.arrived as f64 / own.arrived as f64;
    let queue = |outcome: &Outcome| outcome.queue_mean as f64 / link.buffer as f64;
    for &(name, goodput_min, queue_max) in algorithms {
        let (outcome, stats) = steered(name, link);
        println!(
            "{name}: {:.3} of noq's Cubic, queue {:.3} BDP, {stats:?}",
            fraction(&outcome),
            queue(&outcome)
        );
        assert_eq!(
            (stats.opened, stats.closed, stats.fallbacks),
            (1, 1, 0),
            "{name}"
        );
        assert!(stats.reports > 100, "{name}: {stats:?}");
        assert!(
            fraction(&outcome) >= goodput_min,
            "{name}: {:.3} of noq's Cubic",
            fraction(&outcome)
        );
        assert!(
            queue(&outcome) <= queue_max,
            "{name}: a queue of {:.3} BDP",
            queue(&outcome)
        );
        if name == "cubic" {
            assert!(
                outcome.lost < own.lost / 4,
                "{} lost, and {} with noq's own",
                outcome.lost,
                own.lost
            );
        }
    }
}

/// A loss rate of 0.1 % slows Cubic down much and BBR little, as on every datapath.
#[test]
fn random_loss_is_answered_as_each_algorithm_does() {
    let link = Link {
        loses: 1_000,
        ..Link::ordinary()
    };
    let [cubic, bbr] = ["cubic", "bbr"].map(|name| steered(name, link).0);
    // Equilibrium window of about 39 packets: sqrt(3 / 2p), since Cubic is Reno-friendly on short
    // paths (RFC 9438, section 4.3).
    let own = native(link);
    let ratio = mbit(&cubic) / mbit(&own);
    println!(
        "cubic {:.1} Mbit/s, {ratio:.3} of noq's own; bbr {:.1}",
        mbit(&cubic),
        mbit(&bbr)
    );
    assert!(
        (0.9..=1.25).contains(&ratio),
        "cubic: {:.1} Mbit/s, next to {:.1}",
        mbit(&cubic),
        mbit(&own)
    );
    assert!(mbit(&bbr) > 85.0, "bbr: {:.1} Mbit/s", mbit(&bbr));
}

#[test]
#[ignore = "long: the same with Copa"]
fn random_loss_slows_copa_little() {
    let link = Link {
        loses: 1_000,
        ..Link::ordinary()
    };
    let copa = mbit(&steered("copa", link).0);
    assert!(copa > 80.0, "copa: {copa:.1} Mbit/s");
}

/// noq reports a spurious loss for a reordered packet, and the reduction is undone.
#[test]
fn reordering_is_undone() {
    let link = Link {
        delays: 3_000,
        ..Link::ordinary()
    };
    let (outcome, _) = steered("cubic", link);
    assert!(outcome.spurious > 5, "{outcome:?}");
    assert!(
        mbit(&outcome) > 90.0,
        "{:.1} Mbit/s, {} lost",
        mbit(&outcome),
        outcome.lost
    );
}

/// Marks reduce the window although noq does not count them.
#[test]
fn ecn_marks_keep_the_queue_short() {
    let link = Link {
        marks: 60_000,
        ..Link::ordinary()
    };
    let (outcome, _) = steered("cubic", link);
    let late = outcome.queue_max;
    assert!(
        late < link.buffer / 2 && outcome.queue_mean < 80_000,
        "{late} bytes, {} on average",
        outcome.queue_mean
    );
    assert!(mbit(&outcome) > 75.0, "{:.1} Mbit/s", mbit(&outcome));
}

#[test]
fn a_path_that_was_down_for_a_second_starts_over_and_recovers() {
    starts_over_after_an_outage(&["cubic", "bbr"]);
}

#[test]
#[ignore = "long: the same with Copa"]
fn copa_starts_over_after_an_outage() {
    starts_over_after_an_outage(&["copa"]);
}

fn starts_over_after_an_outage(algorithms: &[&str]) {
    let seconds = Duration::from_secs;
    for &name in algorithms {
        let link = Link {
            out: Some((seconds(3), seconds(4))),
            ..Link::ordinary()
        };
        let (outcome, stats) = steered(name, link);
        assert_eq!(stats.fallbacks, 0);
        let least = outcome.windows.iter().skip(300).min().copied().unwrap_or(0);
        assert!(least <= 4 * 1_452, "{name}: the window fell to {least}");
        assert!(
            mbit(&outcome) > 60.0,
            "{name}: {:.1} Mbit/s",
            mbit(&outcome)
        );
    }
}

#[test]
fn runs_are_deterministic() {
    let link = Link {
        loses: 1_000,
        ..Link::ordinary()
    };
    assert_eq!(steered("cubic", link), steered("cubic", link));
}

/// Any 2 ms contain at most the bytes due at the rate, plus noq's burst of ten packets.
#[test]
fn an_ordered_rate_paces_what_leaves() {
    let epoch = Instant::now();
    let parameters = Parameters::new()
        .with("rate", "20mbit")
        .with("cwnd", "200p");
    let plane = plane("constant", &parameters, epoch);
    let outcome = run(Link::ordinary(), under(&plane), epoch, DURATION, |now| {
        plane.process(now)
    });
    let sent: Vec<(Duration, u64)> = outcome
        .departures
        .into_iter()
        .filter(|(at, _)| at.as_secs() >= 1)
        .collect();
    let most = 2_500_000 * 2 / 1_000 + 10 * 1_452;
    let (mut from, mut bytes, mut worst) = (0, 0, 0);
    for (at, size) in &sent {
        bytes += size;
        while sent[from].0 + Duration::from_millis(2) < *at {
            bytes -= sent[from].1;
            from += 1;
        }
        worst = worst.max(bytes);
    }
    assert!(worst <= most, "{worst} bytes in 2 ms, {most} at most");
    let mean = sent.iter().map(|(_, size)| size).sum::<u64>() as f64 * 8.0 / 9.0 / 1e6;
    assert!((19.5..20.3).contains(&mean), "{mean:.2} Mbit/s");
}

/// On each change of the client's port the server's path is cloned: a flow of its own, which ends
/// with the path.
#[test]
fn migrations_leave_no_flow_behind() {
    let epoch = Instant::now();
    let plane = plane("cubic", &Parameters::default(), epoch);
    let link = Link {
        rebinds: Some((Duration::from_millis(200), 10)),
        ..Link::ordinary()
    };
    let outcome = between(link, under(&plane), under(&plane), epoch, DURATION, |now| {
        plane.process(now)
    });
    let stats = plane.stats();
    println!("{stats:?}, {} bytes", outcome.arrived);
    // One path of the client and eleven of the server.
    assert_eq!(stats.opened, 12, "{stats:?}");
    assert_eq!(
        (stats.opened, stats.fallbacks),
        (stats.closed, 0),
        "{stats:?}"
    );
    assert!(outcome.arrived > 90_000_000, "{} bytes", outcome.arrived);
}

/// The address changes often, but leaves noq enough time to validate each path.
#[test]
fn a_thousand_migrations_leave_no_flow_behind() {
    let epoch = Instant::now();
    let plane = plane("cubic", &Parameters::default(), epoch);
    let (every, times) = (Duration::from_millis(300), 1_000);
    let link = Link {
        rate: 125_000,
        buffer: 12_000,
        rebinds: Some((every, times)),
        ..Link::ordinary()
    };
    let lasts = every * u32::from(times) + Duration::from_secs(5);
    let outcome = between(link, under(&plane), under(&plane), epoch, lasts, |now| {
        plane.process(now)
    });
    let stats = plane.stats();
    println!(
        "{stats:?}, {} bytes until {:?}",
        outcome.arrived, outcome.last
    );
    assert_eq!(outcome.ended, None);
    assert_eq!(
        (stats.closed, stats.fallbacks),
        (stats.opened, 0),
        "{stats:?}"
    );
    // One path of the client, and one of the server per address; an address used between two
    // packets only is not observed.
    assert!((950..=1_002).contains(&stats.opened), "{stats:?}");
    assert!(
        outcome.last > lasts - Duration::from_secs(1),
        "until {:?}",
        outcome.last
    );
    assert!(outcome.arrived > 10_000_000, "{} bytes", outcome.arrived);
}

/// noq 1.4 with its own Cubic. It acknowledges nothing on a path that is not validated
/// (`scheduling_info` in its `connection/mod.rs`), and a sender with a full window sends its
/// PATH_RESPONSE only with its next probe. If the address changes before then, no path is ever
/// validated and the transfer stalls. If this test fails, noq has been fixed and the entry in
/// docs/open.md can be removed.
#[test]
fn noq_stands_still_while_addresses_change_faster_than_it_validates_them() {
    let run = |every: u64| {
        let link = Link {
            rate: 1_250_000,
            buffer: 25_000,
            rebinds: Some((Duration::from_millis(every), 40)),
            ..Link::ordinary()
        };
        let mut own = TransportConfig::default();
        own.congestion_controller_factory(Arc::new(noq_proto::congestion::CubicConfig::default()));
        between(
            link,
            own,
            TransportConfig::default(),
            Instant::now(),
            DURATION,
            |_| (),
        )
    };
    let [often, seldom] = [100, 200].map(run);
    println!(
        "{} bytes, {} without a deadline",
        often.arrived, seldom.arrived
    );
    assert_eq!((&often.ended, &seldom.ended), (&None, &None));
    assert!(often.arrived < 1_000_000, "{} bytes", often.arrived);
    assert!(seldom.arrived > 6_000_000, "{} bytes", seldom.arrived);
}

/// The error names the stacks that have the missing capability.
#[test]
fn an_algorithm_beyond_its_stack_is_refused_with_alternatives() {
    for (stack, name, parts) in [
        (
            Stack::Noq,
            "dctcp",
            ["ECN counts", "noq", "use s2n-quic, kernel TCP"],
        ),
        (
            Stack::Quinn,
            "bbr",
            ["pacing", "quinn", "use noq or s2n-quic"],
        ),
        (
            Stack::Quinn,
            "copa",
            ["pacing", "quinn", "use noq or s2n-quic"],
        ),
    ] {
        let algorithm = Registry::builtin()
            .by_name(name, &Parameters::default())
            .unwrap();
        let refused = QuicPlane::in_process(stack, algorithm, OperatorLimits::default());
        let Err(why @ PlaneError::Missing { .. }) = refused else {
            panic!("{refused:?}")
        };
        let text = why.to_string();
        for part in parts.into_iter().chain([name]) {
            assert!(text.contains(part), "{text}");
        }
    }
}
