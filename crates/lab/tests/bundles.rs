//! Bundles in the simulator: the location of the queue, classes, and policers.

use std::path::Path;

use ccplane_lab::scenario::Scenario;

use crate::common::simulate;

#[test]
fn the_queue_moves_from_the_network_into_the_box() {
    let shipped = Scenario::find(Path::new("22-bundle")).expect("it is shipped");
    // Ends before the cross traffic starts.
    let text = shipped
        .text
        .replace("duration = \"60s\"", "duration = \"12s\"");
    let text = match text.split_once("\n[[workload]]\nname = \"cross\"") {
        Some((alone, _)) => alone.to_owned(),
        None => panic!("the cross traffic is the last workload"),
    };
    let result = simulate(&text);
    let of = |label: &str| {
        let contender = result.contenders.iter().find(|c| c.label == label);
        let contender = contender.expect("the contender ran");
        assert!(contender.audit.sound, "{:?}", contender.audit);
        let [bundle] = contender.metrics.bundles.as_slice() else {
            panic!("{:?}", contender.metrics.bundles)
        };
        (contender, bundle)
    };
    let ((ours, paced), (native, open)) = (of("bundler"), of("native:cubic"));
    assert_eq!(
        (open.open_share, open.changes.len(), open.box_queue_ms),
        (1.0, 0, None)
    );
    assert!(paced.delay_share > 0.9, "{paced:?}");
    assert!(
        paced.network_queue_p95_ms < 0.5 * open.network_queue_p95_ms,
        "{paced:?} {open:?}"
    );
    assert!(paced.box_queue_ms > Some(5.0), "{paced:?}");
    assert!(ours.metrics.goodput_mbit > 0.97 * native.metrics.goodput_mbit);
    // The sendbox schedules its queue, so small transfers do not wait behind large ones.
    let small = |c: &ccplane_lab::result::ContenderResult| {
        let completions = c.metrics.completions.as_ref().expect("messages complete");
        completions
            .classes
            .first()
            .map(|class| class.slowdown_p99)
            .expect("a class of small messages")
    };
    assert!(
        small(ours) < small(native),
        "{} {}",
        small(ours),
        small(native)
    );
    let [samples] = ours.series.bundles.as_slice() else {
        panic!("{} bundles", ours.series.bundles.len())
    };
    assert_eq!(samples.len(), 601, "a look each 20 ms");
}

/// First scenario of docs/gateway.md.
#[test]
fn an_upload_through_a_gateway_does_not_delay_pings() {
    let result = simulate(include_str!("../../../examples/gateway/uplink.toml"));
    let of = |label: &str| {
        let contender = result
            .contenders
            .iter()
            .find(|c| c.label == label)
            .expect("the contender ran");
        let completions = contender
            .metrics
            .completions
            .as_ref()
            .expect("pings complete");
        let all = completions.classes.last().expect("the class of all sizes");
        (all.p50_ms, contender.metrics.goodput_mbit)
    };
    let ((ping, goodput), (ping_without, goodput_without)) = (of("bundler"), of("native:cubic"));
    assert!(ping < 0.4 * ping_without, "{ping} ms of {ping_without}");
    assert!(
        goodput > 0.9 * goodput_without,
        "{goodput} Mbit/s of {goodput_without}"
    );
}

/// Bundle with a FIFO: four flows without end in the lower band, messages in the higher band, and
/// these classes.
const CLASSES: &str = r#"
contenders = ["bundler"]
duration = "10s"
warm = "3s"
seeds = 1

node = [
    { name = "server" },
    { name = "client" },
    { name = "near", switch = true },
    { name = "router", switch = true },
    { name = "far", switch = true },
]
link = [
    { from = "server", to = "near" },
    { from = "near", to = "router" },
    { from = "router", to = "far", rate = "24mbit", delay = "20ms", queue = "droptail:3bdp" },
    { from = "far", to = "client" },
]

[[bundle]]
from = "near"
to = "far"
queue = "droptail:1.875MB"
CLASSES

[[workload]]
name = "backup"
from = "server"
to = "client"
band = 1
bulk = { flows = 4 }

[[workload]]
name = "calls"
from = "server"
to = "client"
start = "3s"
messages = { connections = 20, rate = "2mbit", sizes = { fixed = "10kB" } }
"#;

#[test]
fn a_high_class_does_not_wait_for_a_low_one() {
    let median = |classes: &str| {
        let result = simulate(&CLASSES.replace("CLASSES", classes));
        let [contender] = result.contenders.as_slice() else {
            panic!("one contender")
        };
        assert!(contender.audit.sound, "{:?}", contender.audit);
        let completions = contender
            .metrics
            .completions
            .as_ref()
            .expect("messages complete");
        completions
            .classes
            .last()
            .expect("the class of all sizes")
            .slowdown_p50
    };
    let (none, first, last) = (
        median(""),
        median("class = [{ level = 0 }, { level = 1 }]"),
        median("class = [{ level = 1 }, { level = 0 }]"),
    );
    assert!(
        first < 1.3 && none > 2.0 * first && last > none,
        "{first} {none} {last}"
    );
}

/// Site that exceeds the rate of a policer: on a fast link without queueing, and behind a
/// bottleneck whose queue follows the policer's bursts.
const POLICED: &str = r#"
contenders = ["bundler", "bundler:law=basic", "native:cubic"]
duration = "30s"
warm = "5s"
seeds = 1

node = [
    { name = "server" },
    { name = "client" },
    { name = "near", switch = true },
    { name = "router", switch = true },
    { name = "edge", switch = true },
    { name = "far", switch = true },
]
link = [
    { from = "server", to = "near" },
    { from = "near", to = "router", rate = "RATE", queue = "droptail:600p" },
    { from = "router", to = "edge", rate = "1gbit", delay = "20ms", queue = "policer:rate=40mbit:burst=500kB" },
    { from = "edge", to = "far" },
    { from = "far", to = "client" },
]
bundle = [{ from = "near", to = "far" }]
workload = [{ from = "server", to = "client", bulk = { flows = 8 } }]
"#;

#[test]
fn bundles_do_not_collapse_behind_a_policer() {
    for rate in ["1gbit", "60mbit"] {
        let result = simulate(&POLICED.replace("RATE", rate));
        let goodput = |label: &str| {
            let contender = result
                .contenders
                .iter()
                .find(|c| c.label == label)
                .expect("the contender ran");
            assert!(contender.audit.sound, "{:?}", contender.audit);
            contender.metrics.goodput_mbit
        };
        let none = goodput("native:cubic");
        assert!(none > 20.0, "{none}");
        for law in ["bundler", "bundler:law=basic"] {
            assert!(
                goodput(law) > 0.95 * none,
                "{rate} {law}: {} of {none}",
                goodput(law)
            );
        }
    }
}
