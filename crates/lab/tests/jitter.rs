//! A gateway on a path with jitter keeps the link full and the queue short, in the simulator.
//! `papers/own/jitter.toml` has the full matrix.

use ccplane_lab::result::ContenderResult;

use crate::common::simulate;

/// Minimum goodput with the gateway, as a share of the goodput without it.
const GOODPUT: f64 = 0.85;

/// Returns a scenario with a call of 2 Mbit/s, and a download from 8 s on, over 48 Mbit/s with this
/// one-way delay and jitter, ms.
fn scenario(delay: u32, jitter: u32) -> String {
    let path = format!("delay = \"{delay}ms\", jitter = \"{jitter}ms\"");
    include_str!("jitter.toml").replace("delay = \"20ms\", jitter = \"5ms\"", &path)
}

/// Returns the goodput of the download, Mbit/s.
fn download(result: &ContenderResult) -> f64 {
    let samples = result.series.flow(1);
    samples.last().map_or(0, |sample| sample.received) as f64 * 8.0 / 1e6 / 20.0
}

#[test]
fn jitter_does_not_strangle_a_site() {
    for (delay, jitter) in [(20, 5), (50, 8)] {
        let result = simulate(&scenario(delay, jitter));
        let [ours, none] = result.contenders.as_slice() else {
            panic!("{} contenders", result.contenders.len())
        };
        let queue = |result: &ContenderResult| result.metrics.bundles[0].network_queue_p95_ms;
        println!(
            "{delay} ± {jitter} ms: {:.1} of {:.1} Mbit/s, queue {:.1} of {:.1} ms",
            download(ours),
            download(none),
            queue(ours),
            queue(none)
        );
        assert!(download(none) > 20.0, "{delay} ± {jitter} ms");
        assert!(
            download(ours) > GOODPUT * download(none),
            "{delay} ± {jitter} ms: {} of {}",
            download(ours),
            download(none)
        );
        assert!(queue(ours) < 0.7 * queue(none), "{delay} ± {jitter} ms");
    }
}
