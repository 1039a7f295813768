//! Scenario files: valid files and their values, and the report of each mistake.

use std::path::Path;

use ccplane_qdisc::{ClassSpec, LineSpec, QueueSpec};
use ccplane_scenario::{
    Cellular, EventChange, FlowEnd, JitterShape, Pairing, Problem, Scenario, StampErrors, StopTime,
    Topology, TransportOptions, WorkloadKind,
};
use ccplane_units::{Bytes, Duration, Rate};
use ccplane_workload::{Arrivals, ConnectionPolicy, DurationDistribution, Duty, Workload};
use proptest::prelude::*;

fn parse(text: &str) -> Result<Scenario, Problem> {
    Scenario::parse("test.toml", text, Path::new(env!("CARGO_TARGET_TMPDIR")))
}

const SMALL_SCENARIO: &str = r#"
contenders = ["reno", "native:cubic"]
duration = "10s"

[topology.dumbbell]
rate = "96mbit"
rtt = "20ms"

[[workload]]
bulk = { flows = 4 }
"#;

#[test]
fn a_small_file_has_sensible_defaults() {
    let s = parse(SMALL_SCENARIO).unwrap();
    assert_eq!(s.contenders.len(), 2);
    assert_eq!(
        (s.duration, s.seeds.count(), s.seeds.first()),
        (Duration::from_secs(10), 1, 1)
    );
    assert_eq!(s.sample_every, Duration::from_millis(10));
    let Topology::Dumbbell {
        pairs,
        bottleneck,
        reverse,
        access_rate: access,
    } = &s.topology
    else {
        panic!("{:?}", s.topology)
    };
    assert_eq!((*pairs, *access), (1, None));
    assert_eq!(
        (bottleneck.delay, reverse.delay),
        (Duration::from_millis(10), Duration::from_millis(10))
    );
    assert_eq!(reverse.line, LineSpec::Unlimited);
    assert_eq!(bottleneck.queue.to_string(), "droptail:1bdp");
    assert_eq!(
        bottleneck.line,
        LineSpec::Constant(Rate::from_bits_per_sec(96_000_000))
    );
    let [w] = s.workloads.as_slice() else {
        panic!()
    };
    let WorkloadKind::Generated(Workload::Bulk {
        flows: 4,
        bytes: None,
        stagger,
        ..
    }) = w.kind
    else {
        panic!("{:?}", w.kind)
    };
    assert_eq!(stagger, Duration::ZERO);
    assert_eq!(
        (w.name.as_str(), w.pairing, w.algorithm.as_ref(), w.band),
        ("bulk", Pairing::Each, None, 0)
    );
    let low = parse(&SMALL_SCENARIO.replace("bulk =", "band = 7\nbulk ="));
    assert_eq!(low.unwrap().workloads[0].band, 7);
    assert_eq!(
        s.report.size_classes,
        [Bytes::new(10_000), Bytes::new(1_000_000)]
    );
}

#[test]
fn a_dumbbell_can_be_the_kernels_token_bucket() {
    let burst = |line: &str| {
        let text = SMALL_SCENARIO.replace("rtt = \"20ms\"", &format!("rtt = \"20ms\"\n{line}"));
        match parse(&text)?.topology {
            Topology::Dumbbell { bottleneck, .. } => Ok::<_, Problem>(bottleneck.tbf_burst),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(burst("").unwrap(), None);
    let given = burst("tbf_burst = \"16kB\"").unwrap();
    assert_eq!(given, Some(Bytes::new(16_000)));
    assert!(burst("tbf_burst = \"16 packets\"").is_err());
}

#[test]
fn a_link_can_have_several_paths() {
    let text = r#"
contenders = ["reno"]
duration = "1s"
node = [{ name = "a" }, { name = "s", switch = true }, { name = "t", switch = true }, { name = "b" }]
link = [
    { from = "a", to = "s" },
    { name = "ways", from = "s", to = "t", rate = "90mbit", delay = "10ms", slowest = "20ms", paths = 3 },
    { from = "t", to = "b" },
]
workload = [{ from = "a", to = "b", bulk = {} }]
"#;
    let scenario = parse(text).unwrap();
    let Topology::Graph { links, .. } = &scenario.topology else {
        panic!("{:?}", scenario.topology)
    };
    let ways = links
        .iter()
        .filter(|link| link.name.starts_with("ways") && link.from.text == "s");
    let ways: Vec<(&str, u64, &LineSpec)> = ways
        .map(|link| {
            (
                link.name.as_str(),
                link.link.delay.as_millis(),
                &link.link.line,
            )
        })
        .collect();
    let share = LineSpec::Constant(Rate::from_bits_per_sec(30_000_000));
    assert_eq!(
        ways,
        [
            ("ways", 10, &share),
            ("ways:2", 15, &share),
            ("ways:3", 20, &share)
        ]
    );
    let back = links
        .iter()
        .filter(|link| link.from.text == "t" && link.to.text == "s");
    let back: Vec<&str> = back.map(|link| link.name.as_str()).collect();
    assert_eq!(back, ["ways:back", "ways:2:back", "ways:3:back"]);
    for (from, to, what, fix) in [
        (", paths = 3", "", "several paths", "`paths`"),
        ("paths = 3", "paths = 0", "paths is 0", "1 to 1024"),
        (
            "rate = \"90mbit\"",
            "cellular = { mean = \"9mbit\" }",
            "constant rate",
            "`rate`",
        ),
    ] {
        let wrong = parse(&text.replace(from, to)).unwrap_err();
        let hint = wrong.fix().unwrap_or_default();
        assert!(
            wrong.message().contains(what) && hint.contains(fix),
            "{wrong}: {hint}"
        );
    }
}

#[test]
fn all_settings_are_parsed() {
    let s = parse(
        r#"
title = "all of it"
contenders = ["cubic:report=10ms"]
duration = "2s"
seeds = "1..50"
sample = "5ms"

[[node]]
name = "a"
[[node]]
name = "s"
switch = true
[[node]]
name = "b"

[[link]]
from = "a"
to = "s"
[[link]]
name = "narrow"
from = "s"
to = "b"
rate = "10mbit"
delay = "5ms"
jitter = "1ms"
reorder = true
queue = "droptail:100p"
loss = 0.001

[routing]
per_packet = true
fixed = [{ at = "a", to = "b", next = "s" }]

[[workload]]
name = "web"
from = "a"
to = ["b"]
start = "100ms"
stop = "1.5s"
poisson = { rate = "5mbit", sizes = { points = [["10kB", 0.5], ["1MB", 1.0]] }, flows = 100 }

[[workload]]
from = "b"
to = "a"
pairs = "all"
algorithm = "native:cubic"
requests = { connections = 3, response = { table = "websearch" }, think = "10ms" }

[[workload]]
from = "a"
to = "b"
algorithm = "native:reno"
paced = { on = "100ms", off = "200ms", rate = "1mbit", exponential = true }

[[event]]
at = "1s"
link = "narrow"
rate = "5mbit"
[[event]]
at = "1.2s"
link = "narrow"
up = false

[transport]
mss = 1000
delayed_acks = false
ecn = true
pacing = true
initial_window = 4
min_rto = "10ms"

[steering]
staleness = "1ms"

[stamps]
hosts = ["a"]
preset = "software"
shape = "normal"
calibrate = true
batch = "10us"
drift = "5ppm"

[report]
link = "narrow"
links = ["narrow:back"]
size_classes = ["100kB"]
"#,
    )
    .unwrap();
    assert_eq!(s.seeds.iter().last(), Some(50));
    let Topology::Graph { nodes, links } = &s.topology else {
        panic!()
    };
    assert_eq!(nodes.iter().filter(|node| node.switch).count(), 1);
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["a->s", "s->a", "narrow", "narrow:back"]);
    assert!(links[3].link.reorder && links[3].from.text == "b");
    assert!(s.per_packet && s.routes.len() == 1);
    let [web, requests, on_off] = s.workloads.as_slice() else {
        panic!()
    };
    let WorkloadKind::Generated(Workload::Poisson {
        arrivals: Arrivals::Rate(rate),
        flows: Some(100),
        sizes,
    }) = &web.kind
    else {
        panic!()
    };
    assert_eq!(
        (*rate, sizes.mean().round()),
        (Rate::from_bits_per_sec(5_000_000), 257_500.0)
    );
    let WorkloadKind::Generated(Workload::Requests {
        connections: 3,
        response,
        think_time: DurationDistribution::Fixed(think),
        ..
    }) = &requests.kind
    else {
        panic!()
    };
    assert_eq!(
        (response.mean().round(), *think),
        (1_711_250.0, Duration::from_millis(10))
    );
    assert_eq!(
        (requests.name.as_str(), requests.pairing),
        ("requests-2", Pairing::All)
    );
    let WorkloadKind::Generated(Workload::Paced {
        duty:
            Duty::OnOff {
                on: DurationDistribution::Exponential(on),
                ..
            },
        ..
    }) = on_off.kind
    else {
        panic!()
    };
    assert_eq!(on, Duration::from_millis(100));
    assert_eq!(s.events[1].change, EventChange::Up(false));
    assert_eq!(
        (s.transport.mss, s.transport.ack_every),
        (Some(1000), Some(1))
    );
    assert_eq!(s.staleness, Some(Duration::from_millis(1)));
    assert_eq!(s.report.size_classes, [Bytes::new(100_000)]);
    let stamps = s.stamps.unwrap();
    assert_eq!(stamps.hosts.len(), 1);
    let as_written = StampErrors {
        hosts: stamps.hosts.clone(),
        shape: JitterShape::Normal,
        batch: Duration::from_micros(10),
        calibrate: true,
        drift_ppb: 5_000,
        ..StampErrors::SOFTWARE_TIMESTAMPS
    };
    assert_eq!(stamps, as_written);
}

#[test]
fn files_next_to_the_scenario_are_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(
        folder.join("links.txt"),
        "# a star\nhub a 1gbit 1ms\nhub b 1gbit 2ms\n",
    )
    .unwrap();
    std::fs::write(
        folder.join("flows.csv"),
        "time,from,to,bytes\n0.5,a,b,1000\n600ms,b,a,20kB\n",
    )
    .unwrap();
    std::fs::write(folder.join("sizes.cdf"), "0 0\n1000 0.5\n20000 1\n").unwrap();
    let s = parse(
        r#"
contenders = ["reno"]
duration = "1s"
[topology.graph]
file = "links.txt"
[[workload]]
trace = "flows.csv"
[[workload]]
from = "a"
to = "b"
poisson = { per_second = 10.0, sizes = { file = "sizes.cdf" } }
"#,
    )
    .unwrap();
    let Topology::Graph { nodes, links } = &s.topology else {
        panic!()
    };
    assert_eq!((nodes.len(), links.len()), (3, 4));
    assert!(
        nodes
            .iter()
            .all(|node| node.switch == (node.name.text == "hub"))
    );
    let WorkloadKind::Trace { flows } = &s.workloads[0].kind else {
        panic!()
    };
    assert_eq!(
        (flows[0].at, flows[0].bytes),
        (Duration::from_millis(500), Bytes::new(1000))
    );
    assert_eq!(
        (flows[1].at, flows[1].line),
        (Duration::from_millis(600), 3)
    );
}

/// `text` in [`SMALL_SCENARIO`] replaced by `by`.
fn with(text: &str, by: &str) -> String {
    assert!(SMALL_SCENARIO.contains(text), "{text}");
    SMALL_SCENARIO.replace(text, by)
}

/// Returns the small file with these lines in `[transport]`.
fn transport(lines: &str) -> String {
    with(
        "[topology.dumbbell]",
        &format!("[transport]\n{lines}\n\n[topology.dumbbell]"),
    )
}

#[test]
fn second_loop_options_are_parsed() {
    let rc3 = |lines: &str| parse(&transport(lines)).unwrap().transport.rc3;
    assert_eq!(rc3("rc3 = false"), None);
    let usual = rc3("rc3 = true").unwrap();
    assert_eq!((usual.levels, usual.verify), (None, true));
    let own = rc3("rc3 = true\nrc3_levels = 2\nrc3_verify = false").unwrap();
    assert_eq!((own.levels, own.verify), (Some(2), false));
}

#[test]
fn receipt_options_are_parsed() {
    let usual = parse(&transport("")).unwrap();
    assert_eq!(usual.transport.proof_of_receipt, None);
    assert!(usual.conceal_losses.is_empty());
    let own = parse(&transport(
        "proof_of_receipt = true\nconceal_losses = [\"right1\", \"r*\"]",
    ))
    .unwrap();
    assert_eq!(own.transport.proof_of_receipt, Some(true));
    let names: Vec<&str> = own.conceal_losses.iter().map(|name| &*name.text).collect();
    assert_eq!(names, ["right1", "r*"]);
    for wrong in [
        "proof_of_receipt = \"yes\"",
        "conceal_losses = true",
        "conceal_loss = \"right1\"",
    ] {
        assert!(parse(&transport(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn acknowledgement_options_are_parsed() {
    let options = |lines: &str| parse(&transport(lines)).unwrap().transport;
    assert_eq!(options("").ack_every, None);
    assert_eq!(options("delayed_acks = true").ack_every, Some(2));
    assert_eq!(options("ack_every = 8").ack_every, Some(8));
    let all = options(
        "ack_every = 8\nack_delay = \"50us\"\nquick_acks = 0\ngrowth_limit = 2\nheader_bytes = 40\nmss = 1460\n\
         pacing_quantum = \"1ms\"\n\
         initial_rto = \"5s\"\njump_start = true\nrestart_after_idle = false",
    );
    let expected = TransportOptions {
        mss: Some(1_460),
        header_bytes: Some(40),
        ack_every: Some(8),
        ack_delay: Some(Duration::from_micros(50)),
        quick_acks: Some(0),
        growth_limit: Some(2),
        pacing_quantum: Some(Duration::from_millis(1)),
        jump_start: Some(true),
        restart_after_idle: Some(false),
        initial_rto: Some(Duration::from_secs(5)),
        ..TransportOptions::default()
    };
    assert_eq!(all, expected);
}

#[test]
fn the_reverse_direction_of_a_dumbbell_can_be_limited() {
    let reverse = |table: &str| {
        let text = with(
            "rtt = \"20ms\"",
            &format!("rtt = \"20ms\"\nreverse = {table}"),
        );
        parse(&text).map(|scenario| match scenario.topology {
            Topology::Dumbbell { reverse, .. } => reverse,
            other => panic!("{other:?}"),
        })
    };
    let limited = reverse("{ rate = \"1mbit\", queue = \"droptail:100p\" }").unwrap();
    assert_eq!(
        limited.line,
        LineSpec::Constant(Rate::from_bits_per_sec(1_000_000))
    );
    assert_eq!(limited.queue.to_string(), "droptail:100p");
    assert_eq!(limited.delay, Duration::from_millis(10));
    let cellular = reverse("{ cellular = { mean = \"6mbit\", seed = 2, length = \"20s\" } }");
    assert_eq!(cellular.unwrap().queue.to_string(), "droptail:1bdp");
    for (table, reason) in [
        ("{}", "`reverse` has no rate"),
        ("{ queue = \"droptail:100p\" }", "`reverse` has no rate"),
        (
            "{ rate = \"1mbit\", cellular = { mean = \"6mbit\" } }",
            "at most one",
        ),
    ] {
        let problem = reverse(table).unwrap_err();
        assert!(problem.message().contains(reason), "{table}: {problem}");
    }
}

#[test]
fn a_cellular_link_depends_only_on_its_seed() {
    let line = |cellular: &str| {
        let s = parse(&with(
            "rate = \"96mbit\"",
            &format!("cellular = {cellular}"),
        ))
        .unwrap();
        match s.topology {
            Topology::Dumbbell { bottleneck, .. } => (bottleneck.line, bottleneck.line_name),
            other => panic!("{other:?}"),
        }
    };
    let (seven, name) = line("{ mean = \"12mbit\", seed = 7, length = \"20s\" }");
    let own = Cellular {
        mean: Rate::from_bits_per_sec(12_000_000),
        length: Duration::from_secs(20),
        seed: 7,
    };
    assert_eq!(seven, own.to_line().unwrap());
    assert_eq!(name, "cellular, 12mbit on average");
    assert_ne!(
        seven,
        line("{ mean = \"12mbit\", seed = 8, length = \"20s\" }").0
    );
}

#[test]
fn lists_and_messages_are_read() {
    let kind = |text: &str| {
        let workload = parse(&with("bulk = { flows = 4 }", text))
            .unwrap()
            .workloads
            .remove(0);
        (workload.flow_end(), workload.name, workload.kind)
    };
    let (ends, name, list) = kind("list = [[\"0s\", \"10kB\"], [\"50ms\", \"1MB\"]]");
    let WorkloadKind::Generated(Workload::List { flows }) = list else {
        panic!("{list:?}")
    };
    let ms = Duration::from_millis;
    assert_eq!(
        flows,
        [(ms(0), Bytes::new(10_000)), (ms(50), Bytes::new(1_000_000))]
    );
    assert_eq!((ends, name.as_str()), (FlowEnd::All, "list"));
    let (ends, name, messages) =
        kind("messages = { connections = 8, rate = \"40mbit\", sizes = { fixed = \"10kB\" } }");
    let WorkloadKind::Generated(Workload::Messages {
        connections: 8,
        arrivals: Arrivals::Rate(rate),
        messages: None,
        requested: false,
        ..
    }) = messages
    else {
        panic!("{messages:?}")
    };
    assert_eq!(rate, Rate::from_bits_per_sec(40_000_000));
    assert_eq!((ends, name.as_str()), (FlowEnd::Each, "messages"));
    let pick = |connections: &str| {
        let text = format!(
            "messages = {{ connections = {connections}, per_second = 1.0, sizes = {{ fixed = \"10kB\" }} }}"
        );
        match kind(&text).2 {
            WorkloadKind::Generated(Workload::Messages {
                connections,
                policy: pick,
                ..
            }) => (connections, pick),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(pick("8"), (8, ConnectionPolicy::Last));
    assert_eq!(
        pick("{ pick = \"last\", servers = 8 }"),
        (8, ConnectionPolicy::Last)
    );
    assert_eq!(
        pick("{ pick = \"random\", servers = 200 }"),
        (200, ConnectionPolicy::Random)
    );
    let (ends, _, messages) = kind(
        "messages = { per_second = 10.0, count = 100, sizes = { fixed = \"10kB\" }, requested = true }",
    );
    let WorkloadKind::Generated(Workload::Messages {
        connections: 1,
        messages: Some(100),
        requested: true,
        ..
    }) = messages
    else {
        panic!("{messages:?}")
    };
    assert_eq!(ends, FlowEnd::All);
    let (ends, _, messages) = kind(
        "messages = { at = \"1ms\", spread = \"10us\", seed = 7, sizes = { fixed = \"10kB\" } }",
    );
    let WorkloadKind::Generated(Workload::Messages {
        arrivals: Arrivals::Once { at, spread },
        seed: Some(7),
        ..
    }) = messages
    else {
        panic!("{messages:?}")
    };
    assert_eq!((at, spread), (ms(1), Duration::from_micros(10)));
    assert_eq!(ends, FlowEnd::All);
    let (.., messages) =
        kind("messages = { per_second = 10.0, sizes = { fixed = \"10kB\" }, request = \"100B\" }");
    let WorkloadKind::Generated(Workload::Messages {
        requested: false,
        request: Some(request),
        ..
    }) = messages
    else {
        panic!("{messages:?}")
    };
    assert_eq!(request, Bytes::new(100));
    for wrong in [
        "rate = \"1mbit\", request = \"0B\"",
        "rate = \"1mbit\", request = \"100B\", requested = true",
        "at = \"1ms\", rate = \"1mbit\"",
        "spread = \"1ms\", rate = \"1mbit\"",
    ] {
        let line = format!("messages = {{ {wrong}, sizes = {{ fixed = \"10kB\" }} }}");
        assert!(
            parse(&with("bulk = { flows = 4 }", &line)).is_err(),
            "{wrong}"
        );
    }
}

/// Flows that join and leave have scheduled times that are known before the run.
#[test]
fn flows_can_have_a_duration() {
    let text = |bulk: &str| with("bulk = { flows = 4 }", bulk);
    let ms = Duration::from_millis;
    let there = |bulk: &str, n| parse(&text(bulk)).unwrap().workloads[0].planned_times(n);
    let bulk =
        "start = \"1s\"\nbulk = { stagger = \"100ms\", lasts = \"500ms\", spread = \"1ms\" }";
    assert_eq!(there(bulk, 0), Some((ms(1_000), Some(ms(1_500)))));
    assert_eq!(there(bulk, 3), Some((ms(1_300), Some(ms(1_800)))));
    let stopped = format!("stop = \"1600ms\"\n{bulk}");
    assert_eq!(there(&stopped, 3), Some((ms(1_300), Some(ms(1_600)))));
    assert_eq!(there("bulk = {}", 7), Some((ms(0), None)));
    assert_eq!(there("bulk = { bytes = \"1MB\" }", 0), None);
    for (wrong, what, fix) in [
        (
            "bulk = { bytes = \"1MB\", lasts = \"1s\" }",
            "`bytes`",
            "remove",
        ),
        ("bulk = { lasts = \"0s\" }", "last 0", "above 0"),
        (
            "bulk = { spread = \"2s\", lasts = \"1s\" }",
            "2s late",
            "above `spread`",
        ),
    ] {
        let problem = parse(&text(wrong)).unwrap_err();
        let told = problem.fix().unwrap_or_default();
        assert!(
            problem.message().contains(what) && told.contains(fix),
            "{problem}; {told}"
        );
        assert_eq!(text(wrong).lines().nth(problem.line() - 1), Some(wrong));
    }
}

#[test]
fn tree_delays_have_defaults_and_can_be_set() {
    let tree = |settings: &str| {
        let dumbbell = "[topology.dumbbell]\nrate = \"96mbit\"\nrtt = \"20ms\"\n";
        parse(&with(dumbbell, &format!("[topology.tree_192]\n{settings}"))).map(|s| s.topology)
    };
    let micros = Duration::from_micros;
    let Topology::Tree192 {
        host_delay: None,
        fabric_delay: None,
        ..
    } = tree("").unwrap()
    else {
        panic!()
    };
    let Topology::Tree192 {
        host_delay,
        fabric_delay,
        ..
    } = tree("host_delay = \"1us\"\nfabric_delay = \"2us\"\n").unwrap()
    else {
        panic!()
    };
    assert_eq!(
        (host_delay, fabric_delay),
        (Some(micros(1)), Some(micros(2)))
    );
    assert!(tree("delay = \"1us\"\n").is_err());
}

#[test]
fn a_run_can_end_when_its_flows_are_done() {
    let until = |until: &str, workload: &str| {
        let text = with("duration =", &format!("{until}\nduration ="));
        parse(&text.replace("bulk = { flows = 4 }", workload)).map(|s| s.stop_time)
    };
    let (done, sized) = ("until = \"flows done\"", "bulk = { bytes = \"1MB\" }");
    assert_eq!(until("", sized).unwrap(), StopTime::Duration);
    assert_eq!(
        until("until = \"duration\"", "bulk = {}").unwrap(),
        StopTime::Duration
    );
    let poisson = "poisson = { per_second = 9.0, sizes = { fixed = \"1kB\" }";
    for finite in [
        sized.to_owned(),
        format!("{poisson}, flows = 10 }}"),
        format!("stop = \"1s\"\n{poisson} }}"),
        "stop = \"1s\"\nrequests = { response = { fixed = \"1kB\" } }".to_owned(),
        // Cross traffic and compared flows may last for ever.
        format!("{sized}\n[[workload]]\nalgorithm = \"reno\"\n{poisson} }}"),
        format!("{sized}\n[[workload]]\nbulk = {{}}"),
    ] {
        assert_eq!(
            until(done, &finite).unwrap(),
            StopTime::FlowsDone,
            "{finite}"
        );
    }
    // A compared workload never ends, even if the others do.
    assert!(until(done, &format!("{poisson} }}\n[[workload]]\n{sized}")).is_err());
}

#[test]
fn bundles_are_parsed_and_checked() {
    let text = |lines: &str| {
        format!("{SMALL_SCENARIO}\n[[bundle]]\nfrom = \"left\"\nto = \"right\"\n{lines}\n")
    };
    let s = parse(&text("")).unwrap();
    let [bundle] = s.bundles.as_slice() else {
        panic!("{:?}", s.bundles)
    };
    assert_eq!(bundle.title(), "left -> right");
    assert_eq!(
        (
            bundle.overhead,
            bundle.observe_only,
            bundle.by_hash,
            bundle.queue
        ),
        (0, false, false, None)
    );
    assert_eq!(
        s.bundle_host_algorithm()
            .map(ToString::to_string)
            .as_deref(),
        Some("native:cubic")
    );
    // A bundle with its own algorithm leaves the workloads to the contenders.
    let own = parse(&text(
        "algorithm = \"bundler\"\noverhead = \"60B\"\nmax = \"1gbit\"\nqueue = \"fq_codel\"",
    ))
    .unwrap();
    assert_eq!(
        (own.bundle_host_algorithm(), own.bundles[0].overhead),
        (None, 60)
    );
    let classes = "queue = \"fq_codel\"\n\
                   class = [{ level = 0 }, { level = 1, weight = 3, queue = \"droptail:9p\" }]";
    let queues = parse(&text(classes)).unwrap().bundles[0].queues(QueueSpec::UNLIMITED);
    let class = |level, weight, queue: &str| ClassSpec {
        level,
        weight,
        queue: queue.parse().unwrap(),
    };
    assert_eq!(
        queues.classes,
        [class(0, 1, "fq_codel"), class(1, 3, "droptail:9p")]
    );
    assert_eq!(
        s.bundles[0].queues(QueueSpec::UNLIMITED),
        QueueSpec::UNLIMITED.into()
    );
    for (lines, said, fix) in [
        ("class = [{ weight = 0 }]", "weight", "1 to"),
        ("class = [{ queue = \"droptial:9p\" }]", "droptial", ""),
        (
            "class = [{}, {}, {}, {}, {}, {}, {}, {}, {}]",
            "too many classes",
            "8 classes",
        ),
        ("overhead = \"9kB\"", "too large", "60B"),
        ("min = \"2mbit\"\nmax = \"1mbit\"", "below", "above"),
        (
            "algorithm = \"bundler\"\nhosts = \"native:reno\"",
            "has no effect in a bundle",
            "remove `hosts`",
        ),
        ("queue = \"droptial:9p\"", "droptial", ""),
        (
            "hosts = \"native:reno\"\n[[bundle]]\nfrom = \"right\"\nto = \"left\"",
            "native:cubic",
            "same `hosts`",
        ),
    ] {
        let problem = parse(&text(lines)).expect_err(lines);
        let whole = format!("{problem:?} {problem}");
        assert!(
            whole.contains(said) && whole.contains(fix),
            "{lines}: {whole}"
        );
    }
    // A bundle needs an algorithm, and the contenders need something to compare.
    let lone = text("").replace(
        "bulk = { flows = 4 }",
        "bulk = { flows = 4 }\nalgorithm = \"native:reno\"",
    );
    let problem = parse(&lone).expect_err("nothing to compare").to_string();
    assert!(problem.contains("nothing to compare"), "{problem}");
    let nobody = lone.replace("contenders = [\"reno\", \"native:cubic\"]\n", "");
    let problem = parse(&nobody).expect_err("nobody steers").to_string();
    assert!(
        problem.contains("this bundle has no algorithm"),
        "{problem}"
    );
}

#[test]
fn every_mistake_names_its_line_and_its_fix() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(
        folder.join("falls.cdf"),
        "0 0\n1000 0.5\n20000 0.4\n30000 1\n",
    )
    .unwrap();
    std::fs::write(
        folder.join("unsorted.csv"),
        "2,left1,right1,1000\n1,left1,right1,1000\n",
    )
    .unwrap();
    std::fs::write(folder.join("loop.txt"), "a b 1gbit 1ms\nb b 1gbit 1ms\n").unwrap();
    let bulk = "bulk = { flows = 4 }";
    let connections = |value: &str| {
        let fixed = "per_second = 1.0, sizes = { fixed = \"1kB\" }";
        with(
            bulk,
            &format!("messages = {{ connections = {value}, {fixed} }}"),
        )
    };
    let cases = [
        ("a setting that does not exist", with("rtt =", "rtd =")),
        (
            "a topology that does not exist",
            with("dumbbell", "dumbell"),
        ),
        ("no duration", with("duration = \"10s\"\n", "")),
        ("a zero rate", with("\"96mbit\"", "\"0mbit\"")),
        ("a number without a unit", with("\"96mbit\"", "96")),
        ("not TOML", with("rtt = \"20ms\"", "rtt = 20ms")),
        ("no rate", with("rate = \"96mbit\"\n", "")),
        ("two rates", with("rate = ", "trace = \"x\"\nrate = ")),
        (
            "a trace that is not there",
            with("rate = \"96mbit\"", "trace = \"nowhere.trace\""),
        ),
        (
            "a queue smaller than a packet",
            with("rtt =", "queue = \"droptail:1000B\"\nrtt ="),
        ),
        (
            "a queue of a path without delay",
            with("\"20ms\"", "\"0ms\""),
        ),
        (
            "an unknown queue",
            with("rtt =", "queue = \"drptail:1bdp\"\nrtt ="),
        ),
        ("too much loss", with("rtt =", "loss = \"150%\"\nrtt =")),
        (
            "levels of a second loop that is off",
            transport("rc3_levels = 2"),
        ),
        (
            "checks of a second loop that is off",
            transport("rc3_verify = false"),
        ),
        (
            "a second loop of no level",
            transport("rc3 = true\nrc3_levels = 0"),
        ),
        (
            "a second loop of five levels",
            transport("rc3 = true\nrc3_levels = 5"),
        ),
        (
            "bursts of no probability",
            with("rtt =", "loss = \"gilbert:p=1%:r=2\"\nrtt ="),
        ),
        (
            "steps out of order",
            with(
                "rate = \"96mbit\"",
                "piecewise = [[\"0s\", \"10mbit\"], [\"5s\", \"5mbit\"], [\"4s\", \"1mbit\"]]",
            ),
        ),
        (
            "steps that begin late",
            with("rate = \"96mbit\"", "piecewise = [[\"1s\", \"10mbit\"]]"),
        ),
        ("a run of no time", with("\"10s\"", "\"0s\"")),
        (
            "too many looks",
            with("duration =", "sample = \"1ns\"\nduration ="),
        ),
        (
            "seeds that run backwards",
            with("duration =", "seeds = \"5..1\"\nduration ="),
        ),
        (
            "no contender",
            with("contenders = [\"reno\", \"native:cubic\"]", ""),
        ),
        (
            "no workload",
            with("[[workload]]\nbulk = { flows = 4 }", ""),
        ),
        (
            "a workload that sends nothing",
            with(bulk, "start = \"1s\""),
        ),
        (
            "a band that no queue has",
            with(bulk, "band = 8\nbulk = {}"),
        ),
        (
            "two kinds in one workload",
            with(bulk, "bulk = {}\npaced = { rate = \"1mbit\" }"),
        ),
        ("no flows", with(bulk, "bulk = { flows = 0 }")),
        ("flows of no size", with(bulk, "bulk = { bytes = \"0kB\" }")),
        (
            "a start after the end",
            with(bulk, "start = \"1m\"\nbulk = {}"),
        ),
        (
            "arrivals without a rate",
            with(bulk, "poisson = { sizes = { table = \"websearch\" } }"),
        ),
        (
            "stamps that do not exist",
            with(
                "[[workload]]",
                "[stamps]\npreset = \"hardwre\"\n[[workload]]",
            ),
        ),
        (
            "a drift without a unit",
            with("[[workload]]", "[stamps]\ndrift = 20\n[[workload]]"),
        ),
        (
            "noise of a second",
            with("[[workload]]", "[stamps]\njitter = \"2s\"\n[[workload]]"),
        ),
        (
            "an unknown table",
            with(
                bulk,
                "poisson = { per_second = 1.0, sizes = { table = \"web\" } }",
            ),
        ),
        (
            "probabilities that fall",
            with(
                bulk,
                "poisson = { per_second = 1.0, sizes = { points = [[\"1kB\", 0.5], [\"2kB\", 0.4], [\"3kB\", 1.0]] } }",
            ),
        ),
        (
            "probabilities that end early",
            with(
                bulk,
                "poisson = { per_second = 1.0, sizes = { points = [[\"1kB\", 0.5], [\"2kB\", 0.9]] } }",
            ),
        ),
        (
            "sizes that fall",
            with(
                bulk,
                "poisson = { per_second = 1.0, sizes = { points = [[\"2kB\", 0.5], [\"1kB\", 1.0]] } }",
            ),
        ),
        (
            "probabilities that fall in a file",
            with(
                bulk,
                "poisson = { per_second = 1.0, sizes = { file = \"falls.cdf\" } }",
            ),
        ),
        (
            "a trace out of order",
            with(bulk, "trace = \"unsorted.csv\""),
        ),
        (
            "two workloads of one name",
            with(
                bulk,
                "name = \"a\"\nbulk = {}\n[[workload]]\nname = \"a\"\nbulk = {}",
            ),
        ),
        (
            "a host name that is a number",
            with(bulk, "from = [\"left1\", 2]\nbulk = {}"),
        ),
        ("a name that is a number", with(bulk, "name = 7\nbulk = {}")),
        (
            "an event that changes nothing",
            with(
                "[[work",
                "[[event]]\nat = \"1s\"\nlink = \"bottleneck\"\n[[work",
            ),
        ),
        (
            "an event after the end",
            with(
                "[[work",
                "[[event]]\nat = \"11s\"\nlink = \"bottleneck\"\nup = false\n[[work",
            ),
        ),
        (
            "an odd fat tree",
            with(
                "[topology.dumbbell]\nrate",
                "[topology.fat_tree]\nk = 3\ndelay = \"1us\"\nrate",
            )
            .replace("rtt = \"20ms\"\n", ""),
        ),
        (
            "a node of a named topology",
            with("[[work", "[[node]]\nname = \"a\"\n[[work"),
        ),
        (
            "a link to nowhere",
            with(
                "[topology.dumbbell]\nrate = \"96mbit\"\nrtt = \"20ms\"",
                "[[node]]\nname = \"alice\"\n[[node]]\nname = \"bob\"\n[[link]]\nfrom = \"alice\"\nto = \"bab\"",
            ),
        ),
        (
            "two nodes of one name",
            with(
                "[topology.dumbbell]\nrate = \"96mbit\"\nrtt = \"20ms\"",
                "[[node]]\nname = \"a\"\n[[node]]\nname = \"a\"",
            ),
        ),
        (
            "a link to itself in a file",
            with(
                "[topology.dumbbell]\nrate = \"96mbit\"\nrtt = \"20ms\"",
                "[topology.graph]\nfile = \"loop.txt\"",
            ),
        ),
        (
            "size classes out of order",
            with(
                "[[work",
                "[report]\nsize_classes = [\"1MB\", \"1kB\"]\n[[work",
            ),
        ),
        (
            "a segment of nothing",
            with("[[work", "[transport]\nmss = 0\n[[work"),
        ),
        (
            "an end that there is not",
            with("duration =", "until = \"flow done\"\nduration ="),
        ),
        (
            "a run until flows without end are done",
            with("duration =", "until = \"flows done\"\nduration ="),
        ),
        (
            "a run until unlimited flows are done",
            with("duration =", "until = \"flows done\"\nduration =").replace(
                bulk,
                "poisson = { per_second = 1.0, sizes = { fixed = \"1kB\" } }",
            ),
        ),
        (
            "a rate and a cellular link",
            with("rtt =", "cellular = { mean = \"12mbit\" }\nrtt ="),
        ),
        (
            "a cellular link of no rate",
            with("rate = \"96mbit\"", "cellular = { mean = \"0mbit\" }"),
        ),
        (
            "a cellular link without a rate",
            with("rate = \"96mbit\"", "cellular = { seed = 7 }"),
        ),
        (
            "a cellular link of a moment",
            with(
                "rate = \"96mbit\"",
                "cellular = { mean = \"12mbit\", length = \"1ms\" }",
            ),
        ),
        (
            "a cellular link of too many packets",
            with("rate = \"96mbit\"", "cellular = { mean = \"10gbit\" }"),
        ),
        (
            "two ways to say how often",
            transport("delayed_acks = true\nack_every = 2"),
        ),
        ("an acknowledgement never", transport("ack_every = 0")),
        (
            "an acknowledgement hardly ever",
            transport("ack_every = 300"),
        ),
        ("a window of nothing", transport("initial_window = 0")),
        (
            "headers larger than packets",
            transport("header_bytes = 2000"),
        ),
        ("a timeout of no time", transport("initial_rto = \"0s\"")),
        ("an empty list", with(bulk, "list = []")),
        (
            "a list out of order",
            with(bulk, "list = [[\"1s\", \"1kB\"], [\"0s\", \"1kB\"]]"),
        ),
        (
            "a list of nothing",
            with(bulk, "list = [[\"1s\", \"0kB\"]]"),
        ),
        (
            "messages without a rate",
            with(bulk, "messages = { sizes = { fixed = \"1kB\" } }"),
        ),
        (
            "messages over no connection",
            with(
                bulk,
                "messages = { connections = 0, per_second = 1.0, sizes = { fixed = \"1kB\" } }",
            ),
        ),
        ("connections of a word", connections("\"many\"")),
        ("connections below zero", connections("-1")),
        (
            "an unknown pick",
            connections("{ pick = \"randum\", servers = 2 }"),
        ),
        (
            "a pick among no servers",
            connections("{ pick = \"random\", servers = 0 }"),
        ),
        (
            "a pick without servers",
            connections("{ pick = \"random\" }"),
        ),
        ("servers without a pick", connections("{ servers = 2 }")),
        (
            "a connection model with an unknown word",
            connections("{ pick = \"last\", server = 2 }"),
        ),
        (
            "no messages",
            with(
                bulk,
                "messages = { count = 0, per_second = 1.0, sizes = { fixed = \"1kB\" } }",
            ),
        ),
        ("a contender of no name", with("\"reno\"", "\"re no\"")),
        (
            "an agent with a relative path",
            with("\"reno\"", "\"reno@ccp:portus\""),
        ),
    ];
    let handler =
        miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor())
            .with_width(1_000);
    let mut told = String::new();
    for (what, text) in cases {
        let problem = parse(&text).expect_err(what);
        assert!(
            problem.to_string().starts_with("test.toml:"),
            "{what}: {problem}"
        );
        told += &format!("──── {what}\n");
        handler.render_report(&mut told, &problem).unwrap();
    }
    // The path of the folder differs between machines, and so does the position at which a line
    // that contains it is wrapped.
    insta::assert_snapshot!(told.replace(env!("CARGO_TARGET_TMPDIR"), "FOLDER"));
}

proptest! {
    #[test]
    fn no_text_can_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn incomplete_scenarios_do_not_panic(
        from in 0usize..SMALL_SCENARIO.len(),
        length in 0usize..20,
        by in "[ -~\n]{0,12}",
    ) {
        if let (Some(head), Some(rc3)) = (
            SMALL_SCENARIO.get(..from),
            SMALL_SCENARIO.get(from + length..),
        ) {
            let _ = parse(&format!("{head}{by}{rc3}"));
        }
    }

    #[test]
    fn no_value_can_panic(
        key in prop::sample::select(vec!["\"96mbit\"", "\"20ms\"", "\"10s\"", "4"]),
        value in "[\"\\-0-9a-z.:%]{0,16}",
    ) {
        let _ = parse(&SMALL_SCENARIO.replace(key, &value));
    }
}
