//! Throughput under random loss against the model of Padhye, Firoiu, Towsley and Kurose ("Modeling
//! TCP throughput: a simple model and its empirical validation", SIGCOMM 1998): the full model, and
//! the approximation used by RFC 5348.

use ccplane_qdisc::LossModel;
use ccplane_sim::{LinkSpec, Native, TransportConfig};
use ccplane_units::{Duration, stats};

use super::path::{Path, config, within};

/// b, the number of packets acknowledged per window increase of one packet per RTT. The model uses
/// 2 for delayed ACKs, because its senders count ACKs. Here, as in Linux, the packets covered by an
/// ACK count (RFC 3465 with L unlimited), so that the window grows by 1 per RTT whether ACKs are
/// delayed or not.
const B: f64 = 1.0;

/// Returns the packets per second of the full model without a window limit. `rtt` and `t0`, the
/// initial RTO, are in seconds.
fn full(p: f64, rtt: f64, t0: f64) -> f64 {
    let third = (2.0 + B) / (3.0 * B);
    // Mean window at the end of a cycle.
    let window = third + (8.0 * (1.0 - p) / (3.0 * B * p) + third * third).sqrt();
    // Probability that a loss in a window of that size causes a timeout.
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

/// Returns the packets per second of the approximation.
fn approximate(p: f64, rtt: f64, t0: f64) -> f64 {
    let timeouts = t0 * (3.0 * (3.0 * B * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    1.0 / (rtt * (2.0 * B * p / 3.0).sqrt() + timeouts)
}

/// Returns the packets per second over a path with this RTT and loss probability `p` and no other
/// limit: over `cycles / p` packets in total, from four seeds, after a warm-up.
pub fn simulated(p: f64, rtt: f64, native: impl Fn() -> Native, ack_every: u8, cycles: f64) -> f64 {
    const SEEDS: u64 = 4;
    let half = Duration::from_nanos((rtt / 2.0 * 1e9) as u64);
    let loss: LossModel = format!("{p}").parse().unwrap();
    // Approximate; it only determines the length of the run.
    let per_cycle = 0.8 * rtt / p.sqrt();
    let (warm, span) = (20.0 * per_cycle, cycles / SEEDS as f64 * per_cycle);
    let rate = |seed| {
        let mut path = Path::new(
            LinkSpec::wire(half).with_loss(loss),
            LinkSpec::wire(half),
            seed,
        );
        let config = TransportConfig {
            ack_every,
            ..config()
        };
        let flow = path.flow(native(), config);
        // Slow start overshoots far; a few cycles restore the window.
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
    stats::mean((1..=SEEDS).map(rate)).expect("seeds")
}

#[test]
fn reno_follows_the_model() {
    // With a constant RTT, the RTO is the RTT plus Linux' minimum of 200 ms.
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

/// The model assumes that every cycle is a mean one. Under independent losses the window has a
/// distribution, whose time average Ott, Kemperman and Mathis derived exactly for small p ("The
/// stationary behavior of ideal TCP congestion avoidance", 1996): 1.3098 / sqrt(p) packets, 7 %
/// above the model's sqrt(3 / 2p).
#[test]
fn reno_has_the_mean_window_of_ideal_congestion_avoidance() {
    let (p, rtt) = (3e-4, 0.1);
    // The window counts packets, so delayed ACKs do not change it.
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
