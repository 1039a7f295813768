//! A gateway on a path with jitter keeps the line full and the queue short, in the simulator. `papers/own/jitter.toml` has the whole matrix.

mod common;

use ccplane_lab::result::ContenderResult;
use common::simulate;

/// Part of the goodput without a box that the gateway has to leave.
const GOODPUT: f64 = 0.85;

/// A call of 2 Mbit/s, and a download from 20 s on over 48 Mbit/s with this delay and jitter each way, ms.
fn scenario(delay: u32, jitter: u32) -> String {
    format!(
        r#"
contenders = ["bundler", "native:cubic"]
duration = "35s"
sample = "50ms"
node = [
    {{ name = "server" }},
    {{ name = "client" }},
    {{ name = "near", switch = true }},
    {{ name = "router", switch = true }},
    {{ name = "far", switch = true }},
]
link = [
    {{ from = "server", to = "near" }},
    {{ from = "near", to = "router" }},
    {{ name = "wan", from = "router", to = "far", rate = "48mbit", delay = "{delay}ms", jitter = "{jitter}ms", queue = "droptail:3bdp" }},
    {{ from = "far", to = "client" }},
]
[[bundle]]
from = "near"
to = "far"
[[workload]]
name = "call"
from = "server"
to = "client"
paced = {{ rate = "2mbit" }}
[[workload]]
name = "download"
from = "server"
to = "client"
start = "20s"
bulk = {{}}
[report]
link = "wan"
"#
    )
}

/// Goodput of the download, Mbit/s.
fn download(result: &ContenderResult) -> f64 {
    let samples = result.series.flow(1);
    samples.last().map_or(0, |sample| sample.received) as f64 * 8.0 / 1e6 / 15.0
}

#[test]
fn jitter_does_not_strangle_a_site() {
    for (delay, jitter) in [(20, 5), (50, 8)] {
        let result = simulate(&scenario(delay, jitter));
        let [ours, none] = result.contenders.as_slice() else {
            panic!("{} contenders", result.contenders.len())
        };
        let queue = |result: &ContenderResult| result.figures.bundles[0].network_queue_p95_ms;
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
