//! Throughput under random loss against the model of Padhye, Firoiu, Towsley and Kurose ("Modeling
//! TCP throughput: a simple model and its empirical validation", SIGCOMM 1998): the full one, and
//! the approximation that RFC 5348 uses.

use ccplane_qdisc::LossModel;
use ccplane_sim::{Config, LinkSpec, Native};
use ccplane_units::Duration;

use super::path::{Path, config, within};

/// Packets acknowledged for each packet that the window grows by in a round-trip time. The model
/// has 2 for receivers that delay acknowledgements, because its senders count acknowledgements.
/// Here, as in Linux, the packets that an acknowledgement covers count (RFC 3465 with L unlimited).
/// So the window grows by 1 per RTT whatever the receiver does.
const B: f64 = 1.0;

/// Packets sent a second: the full model, without a limit to the window. `rtt` and `t0`, the first
/// retransmission timeout, in seconds.
fn full(p: f64, rtt: f64, t0: f64) -> f64 {
    let third = (2.0 + B) / (3.0 * B);
    // Mean window at the end of a cycle.
    let window = third + (8.0 * (1.0 - p) / (3.0 * B * p) + third * third).sqrt();
    // Whether a loss in a window of that size ends in a timeout.
    let q = 1.0 - p;
    let timeout = (1.0 - q.powi(3)) * (1.0 + q.powi(3) * (1.0 - q.powf(window - 3.0)))
        / (1.0 - q.powf(window));
    let timeout = timeout.min(1.0);
    let backoff = 1.0
        + p
        + 2.0 * p.powi(2)
        + 4.0 * p.powi(3)
        + 8.0 * p.powi(4)
        + 16.0 * p.powi(5)
        + 32.0 * p.powi(6);
    (q / p + window + timeout / q) / (rtt * (B / 2.0 * window + 1.0) + timeout * t0 * backoff / q)
}

/// The same, approximated.
fn approximate(p: f64, rtt: f64, t0: f64) -> f64 {
    let timeouts = t0 * (3.0 * (3.0 * B * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    1.0 / (rtt * (2.0 * B * p / 3.0).sqrt() + timeouts)
}

/// Packets sent a second over a path of this round-trip time that loses a share `p` at random and
/// limits nothing else: over `cycles / p` packets, in four parts of a seed each, after the first
/// losses.
pub fn simulated(p: f64, rtt: f64, native: impl Fn() -> Native, ack_every: u8, cycles: f64) -> f64 {
    const SEEDS: u64 = 4;
    let half = Duration::from_nanos((rtt / 2.0 * 1e9) as u64);
    let loss: LossModel = format!("{p}").parse().unwrap();
    // About; it only says for how long to look.
    let per_cycle = 0.8 * rtt / p.sqrt();
    let (warm, span) = (20.0 * per_cycle, cycles / SEEDS as f64 * per_cycle);
    let mean = |seed| {
        let mut path = Path::new(
            LinkSpec::wire(half).with_loss(loss),
            LinkSpec::wire(half),
            seed,
        );
        let config = Config {
            ack_every,
            ..config()
        };
        let flow = path.flow(native(), config);
        // Slow start overshoots far; some cycles bring the window back.
        path.run_until(warm);
        let before = path.link().arrived;
        path.run_until(warm + span);
        assert_eq!(
            path.view(flow).timeouts,
            0,
            "SACK repairs random losses without a timeout"
        );
        (path.link().arrived - before) as f64 / span
    };
    (1..=SEEDS).map(mean).sum::<f64>() / SEEDS as f64
}

#[test]
fn reno_follows_the_model() {
    // With a constant round-trip time the timeout is that and Linux' 200 ms.
    let (rtt, t0) = (0.1, 0.3);
    for (p, cycles) in [
        (1e-4, 400.0),
        (3e-4, 800.0),
        (1e-3, 1600.0),
        (3e-3, 3200.0),
        (1e-2, 6400.0),
    ] {
        let rate = simulated(p, rtt, Native::new_reno, 2, cycles);
        assert!(within(
            &format!("p {p}, full model, packets/s"),
            rate,
            full(p, rtt, t0),
            15.0
        ));
        assert!(within(
            &format!("p {p}, approximation, packets/s"),
            rate,
            approximate(p, rtt, t0),
            15.0
        ));
    }
}

/// The model takes every cycle for a mean one. Under losses that are independent of each other the
/// window has a distribution, whose mean over time Ott, Kemperman and Mathis found exactly for
/// small p ("The stationary behavior of ideal TCP congestion avoidance", 1996): 1.3098 / sqrt(p)
/// packets, 7 % above the model's sqrt(3 / 2p).
#[test]
fn reno_has_the_mean_window_of_ideal_congestion_avoidance() {
    let (p, rtt) = (3e-4, 0.1);
    // Every packet acknowledged, or every second: the window counts packets, and is the same.
    for ack_every in [1, 2] {
        let window = simulated(p, rtt, Native::new_reno, ack_every, 1600.0) * rtt;
        assert!(within(
            &format!("mean window, ACK every {ack_every}"),
            window,
            1.3098 / p.sqrt(),
            5.0
        ));
    }
}
