//! Scenarios end to end in the simulator: metrics that agree with theory, and reproducible bytes.

use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report, box_algorithm};
use ccplane_algorithms::{AlgorithmDoc, Registry};
use ccplane_lab::result::{ContenderResult, RunResult};
use ccplane_lab::scenario::plan::Plan;
use ccplane_lab::scenario::{Scenario, Seeds, shipped};
use ccplane_lab::{Error, NoProgress, Sim, run as run_in, run_keeping};

use ccplane_sim::{SimError, SimOptions, Simulation};
use ccplane_units::stats::mean;

use crate::common::{options, scenario, simulate, try_run};

const DUMBBELL: &str = r#"
contenders = ["reno", "native:reno", "native:cubic"]
duration = "10s"

[topology.dumbbell]
rate = "96mbit"
rtt = "20ms"

[[workload]]
bulk = { flows = 2 }
"#;

/// Shortens a scenario whose results are not compared.
fn for_a_second(text: &str) -> String {
    let short = text.replace("\"10s\"", "\"1s\"");
    assert_ne!(short, text);
    short
}

#[test]
fn a_dumbbell_is_filled_and_its_queue_stays_within_its_limit() {
    let result = simulate(DUMBBELL);
    assert_eq!(result.contenders.len(), 3);
    for c in &result.contenders {
        let f = &c.metrics;
        // 96 Mbit/s carry 92.7 Mbit/s of payload: 1448 of 1500 bytes.
        assert!((80.0..92.7).contains(&f.goodput_mbit), "{}: {f:?}", c.label);
        assert!(
            f.utilisation > 0.9 && f.utilisation <= 1.0,
            "{}: {f:?}",
            c.label
        );
        // A queue of one BDP takes 20 ms, plus the packet's own transmission.
        assert!(
            f.delay_mean_ms > 1.0 && f.delay_p99_ms <= 20.2,
            "{}: {f:?}",
            c.label
        );
        assert!(
            f.queue_drops > 0 && f.retransmissions > 0,
            "{}: {f:?}",
            c.label
        );
        assert!(
            f.jain.unwrap() > 0.5 && f.flows.len() == 2,
            "{}: {f:?}",
            c.label
        );
        assert!(c.audit.sound, "{:?}", c.audit);
        assert_eq!(c.series.flows[0].len(), 1001);
        assert_eq!(c.series.throughput_mbit.len(), 500);
        let simulation = c.audit.simulation.as_ref().unwrap();
        assert!(simulation.hops > 100_000 && simulation.events > 0);
    }
    let (ours, native) = (&result.contenders[0], &result.contenders[1]);
    assert!(!ours.native && native.native && ours.host.reports_per_s > Some(10.0));
    assert_eq!(native.host.reports_per_s, None);
    let heard = &ours.series.heard;
    assert!(native.series.heard.reports.is_empty() && heard.discarded == 0);
    assert_eq!(heard.flows, [Some(0), Some(1)]);
    let of = |flow: usize| {
        heard
            .reports
            .iter()
            .filter(|r| Some(r.flow) == heard.flows[flow])
            .count()
    };
    assert!(of(0) > 100 && of(1) > 100 && of(0) + of(1) == heard.reports.len());
    assert_eq!(
        (result.setup.flows, result.setup.rtt_ms, result.setup.bin_ms),
        (2, 20.0, 20.0)
    );
    assert_eq!(result.setup.queue_bytes, Some(240_000));
}

#[test]
fn results_do_not_depend_on_threads_or_repetition() {
    let scenario = scenario(
        &format!("{DUMBBELL}\n")
            .replace("[\"reno\", ", "[\"reno\", \"bbr\", ")
            .replace("\"10s\"", "\"2s\"")
            .replace("rtt =", "loss = \"0.1%\"\nrtt ="),
    );
    let run = |seeds: &str, threads| try_run(&scenario, seeds.parse().unwrap(), threads).unwrap();
    let summary = |mut result: RunResult| {
        result
            .contenders
            .iter_mut()
            .for_each(|c| c.host.wall_s = None);
        serde_json::to_string(&result).unwrap()
    };
    let one = run("1..4", 1);
    assert_eq!(summary(one.clone()), summary(run("1..4", 2)));
    assert_eq!(summary(one.clone()), summary(run("1..4", 3)));
    assert_ne!(one.digest, run("2..5", 2).digest);
    let spread = one.contenders[0].spread.unwrap();
    assert!(
        spread.seeds == 4 && spread.half.goodput_mbit > 0.0,
        "{spread:?}"
    );
    assert_eq!(one.setup.seeds.as_deref(), Some("1..4"));
    assert_eq!(one.contenders[0].series.throughputs().len(), 4 * 100);
    assert!(one.note.contains("4 seeds"));
}

#[test]
fn a_route_changes_in_time() {
    let book = include_str!("../../../docs/scenarios.md");
    let example = book
        .split("```toml\n")
        .find(|block| block.contains("route = \"b\""))
        .unwrap();
    let result = simulate(example.split("```").next().unwrap());
    let [short, long] = result.contenders[0].metrics.links.as_slice() else {
        panic!("two links are asked for")
    };
    // Each link is in use for two of the four seconds; losses and delays at the change are small in
    // comparison.
    assert!(
        (0.45..=0.5).contains(&short.utilisation.unwrap()),
        "{short:?}"
    );
    assert!(
        (0.35..=0.5).contains(&long.utilisation.unwrap()),
        "{long:?}"
    );
}

/// Runs one contender on 96 Mbit/s and 20 ms, with these settings and workloads.
fn on_the_link(top: &str, rest: &str) -> ContenderResult {
    let text = format!(
        "contenders = [\"native:cubic\"]\n{top}\n[topology.dumbbell]\nrate = \"96mbit\"\n\
         rtt = \"20ms\"\n{rest}"
    );
    let mut result = simulate(&text);
    let c = result.contenders.remove(0);
    assert!(c.audit.sound, "{:?}", c.audit);
    c
}

/// 500 kbit/s carry 1,202 ACKs per second of 52 bytes, of two segments each: 28 Mbit/s of data.
#[test]
fn a_limited_reverse_direction_limits_the_acknowledgements() {
    let run = |reverse: &str| {
        let text = format!(
            "contenders = [\"native:cubic\"]\nduration = \"5s\"\n[topology.dumbbell]\n\
             rate = \"96mbit\"\nrtt = \"20ms\"\n{reverse}\n[[workload]]\nbulk = {{}}\n\
             [report]\nlinks = [\"reverse\"]\n"
        );
        simulate(&text).contenders.remove(0).metrics
    };
    let (free, limited) = (
        run(""),
        run("reverse = { rate = \"500kbit\", queue = \"droptail:inf\" }"),
    );
    assert_eq!(free.links[0].utilisation, None);
    assert!(limited.links[0].utilisation.unwrap() > 0.9, "{limited:?}");
    // The receiver may be ahead of the ACKs by at most the window.
    assert!(
        limited.goodput_mbit < 0.7 * free.goodput_mbit,
        "{} of {} Mbit/s",
        limited.goodput_mbit,
        free.goodput_mbit
    );
}

#[test]
fn a_run_ends_with_its_last_flow() {
    let workloads = "[[workload]]\nlist = [[\"0s\", \"10kB\"], [\"50ms\", \"1MB\"]]\n\
        [[workload]]\nname = \"cross\"\nalgorithm = \"native:reno\"\nbulk = {}";
    let whole = on_the_link("duration = \"20s\"", workloads);
    let done = on_the_link("duration = \"20s\"\nuntil = \"flows done\"", workloads);
    let ends = |c: &ContenderResult| -> Vec<u64> {
        c.series
            .completed
            .iter()
            .map(|f| f.started_ns + f.took_ns)
            .collect()
    };
    assert_eq!(ends(&whole).len(), 2);
    assert_eq!(ends(&done), ends(&whole));
    // 1.01 MB in total; the run ends with the arrival of the last byte.
    let last = *ends(&done).iter().max().unwrap() as f64 / 1e9;
    assert!((0.1..5.0).contains(&last), "{last}");
    let mbit = 1.01 * 8.0 / last;
    assert!(
        (done.metrics.goodput_mbit / mbit - 1.0).abs() < 1e-6,
        "{} {mbit}",
        done.metrics.goodput_mbit
    );
    assert!((whole.metrics.goodput_mbit / (1.01 * 8.0 / 20.0) - 1.0).abs() < 1e-6);
    assert!(
        done.metrics.utilisation > whole.metrics.utilisation / 2.0
            && done.metrics.utilisation <= 1.0
    );
    let bins = done.series.throughput_mbit.len() as f64 * done.series.bin_ns as f64 / 1e9;
    // An incomplete bin is dropped.
    assert!((last - 0.021..=last).contains(&bins), "{bins} {last}");
    // If the flows do not end in time, the duration is the limit, and the result counts the
    // unfinished ones.
    let limited = on_the_link("duration = \"60ms\"\nuntil = \"flows done\"", workloads);
    let completions = limited.metrics.completions.unwrap();
    assert_eq!(
        (limited.series.completed.len(), completions.unfinished),
        (1, 1)
    );
}

#[test]
fn messages_wait_for_their_connection() {
    let c = on_the_link(
        "duration = \"100s\"\nuntil = \"flows done\"",
        "[transport]\nrestart_after_idle = false\n[[workload]]\n\
         messages = { connections = 2, rate = \"30mbit\", sizes = { fixed = \"100kB\" }, \
         count = 300 }",
    );
    let all = &c.series.completed;
    assert_eq!(
        (
            all.len(),
            c.metrics.completions.as_ref().unwrap().unfinished
        ),
        (300, 0)
    );
    for message in all {
        // Delivery takes at least half an RTT plus the bytes at the link's rate.
        assert!(
            message.took_ns - message.waited_ns >= 10_000_000 + 8_333_333,
            "{message:?}"
        );
        assert_eq!(message.bytes, 100_000);
    }
    // The two connections that share the link are busy for a good part of the time: some messages
    // wait, most do not.
    let waited = all.iter().filter(|message| message.waited_ns > 0).count();
    assert!((10..290).contains(&waited), "{waited}");
    let span = all.iter().map(|m| m.started_ns + m.took_ns).max().unwrap() as f64 / 1e9;
    assert!(
        (c.metrics.goodput_mbit / (30.0 * 8.0 / span) - 1.0).abs() < 1e-6,
        "{:?}",
        c.metrics
    );
    // With requests, each message starts half an RTT earlier and takes that much longer. Its
    // completion time on an idle path is still one RTT plus its bytes.
    let requested = on_the_link(
        "duration = \"100s\"\nuntil = \"flows done\"",
        "[transport]\nrestart_after_idle = false\n[[workload]]\n\
         messages = { connections = 2, rate = \"30mbit\", sizes = { fixed = \"100kB\" }, \
         count = 300, requested = true }",
    );
    assert_eq!(requested.series.completed.len(), all.len());
    for (asked, message) in requested.series.completed.iter().zip(all) {
        assert_eq!(asked.took_ns, message.took_ns + 10_000_000);
        assert_eq!(
            asked.started_ns,
            message.started_ns.saturating_sub(10_000_000)
        );
        assert_eq!(
            (asked.waited_ns, asked.alone_ns),
            (message.waited_ns, message.alone_ns)
        );
    }
    // A request that is sent takes the reverse path, and the message follows it.
    let sent = on_the_link(
        "duration = \"100s\"\nuntil = \"flows done\"",
        "[transport]\nrestart_after_idle = false\n[[workload]]\n\
         messages = { connections = 2, rate = \"30mbit\", sizes = { fixed = \"100kB\" }, \
         count = 300, request = \"100B\" }",
    );
    assert_eq!(sent.series.completed.len(), all.len());
    for message in &sent.series.completed {
        assert!(
            message.took_ns - message.waited_ns >= 20_000_000 + 8_333_333,
            "{message:?}"
        );
    }
    // With more connections no message waits.
    let c = on_the_link(
        "duration = \"100s\"\nuntil = \"flows done\"",
        "[[workload]]\n\
         messages = { connections = 64, rate = \"30mbit\", sizes = { fixed = \"100kB\" }, \
         count = 300 }",
    );
    assert!(
        c.series
            .completed
            .iter()
            .all(|message| message.waited_ns == 0)
    );
    // A run that ends while messages wait counts them as unfinished.
    let c = on_the_link(
        "duration = \"2s\"",
        "[[workload]]\nmessages = { rate = \"200mbit\", sizes = { fixed = \"100kB\" } }",
    );
    let (served, unfinished) = (
        c.series.completed.len() as u64,
        c.metrics.completions.unwrap().unfinished,
    );
    assert!(
        (400..600).contains(&(served + unfinished)) && unfinished > 200,
        "{served} {unfinished}"
    );
}

#[test]
fn the_transport_does_as_the_scenario_says() {
    // The first packet of the handshake is lost; the second is sent after the initial timeout.
    let lost = |transport: &str| {
        let c = on_the_link(
            "duration = \"10s\"",
            &format!(
                "loss = \"100%\"\n[transport]\n{transport}\n[[workload]]\n\
                 bulk = {{ bytes = \"10kB\" }}\n\
                 [[event]]\nat = \"100ms\"\nlink = \"bottleneck\"\nloss = \"0%\""
            ),
        );
        c.series.completed[0].took_ns as f64 / 1e9
    };
    assert!((1.0..1.1).contains(&lost("")), "{}", lost(""));
    assert!((3.0..3.1).contains(&lost("initial_rto = \"3s\"")));
    // Each acknowledgement is one packet.
    let acks = |transport: &str| {
        let c = on_the_link(
            "duration = \"5s\"",
            &format!(
                "[transport]\n{transport}\n[[workload]]\nbulk = {{}}\n[report]\n\
                 links = [\"reverse\"]"
            ),
        );
        c.metrics.links[0].delivered_bytes as f64
    };
    let (each, second, eighth) = (
        acks("ack_every = 1"),
        acks("delayed_acks = true"),
        acks("ack_every = 8"),
    );
    assert!((1.7..2.1).contains(&(each / second)), "{each} {second}");
    assert!(second / eighth > 2.0, "{second} {eighth}");
}

#[test]
fn higher_bands_take_the_link() {
    let shares = |bands: [u8; 3]| {
        let [flow, other, datagrams] = bands;
        let c = on_the_link(
            "duration = \"5s\"",
            &format!(
                "queue = \"prio:3:shared:100p\"\n\
                 [[workload]]\nname = \"flow\"\nband = {flow}\nbulk = {{}}\n\
                 [[workload]]\nname = \"other\"\nband = {other}\nbulk = {{}}\n\
                 [[workload]]\nname = \"datagrams\"\nband = {datagrams}\n\
                 datagrams = {{ rate = \"60mbit\" }}"
            ),
        );
        let share = |name: &str| {
            c.workloads
                .iter()
                .find(|w| w.name == name)
                .unwrap()
                .totals
                .share
        };
        ["flow", "other", "datagrams"].map(share)
    };
    let [flow, other, datagrams] = shares([0, 1, 2]);
    assert!(
        flow > 0.9 && other < 0.1 && datagrams < 0.05,
        "{flow} {other} {datagrams}"
    );
    let [flow, other, datagrams] = shares([2, 1, 0]);
    assert!(
        flow < 0.1 && other > 0.3 && datagrams > 0.4,
        "{flow} {other} {datagrams}"
    );
}

/// A scenario that is built in memory skips the checks of the file reader.
#[test]
fn a_trace_without_flows_is_refused() {
    let mut scenario = scenario(DUMBBELL);
    scenario.workloads[0].kind = ccplane_lab::scenario::WorkloadKind::Trace { flows: Vec::new() };
    let run = try_run(&scenario, Seeds::one(1), 1);
    let Err(Error::Scenario(problem)) = run else {
        panic!("{run:?}")
    };
    assert_eq!(
        (problem.line(), problem.message()),
        (9, "the trace has no flows")
    );
}

#[test]
fn a_generated_cellular_link_has_its_mean() {
    let result = simulate(
        r#"
contenders = ["native:cubic"]
duration = "30s"
[topology.dumbbell]
cellular = { mean = "12mbit", seed = 7, length = "30s" }
rtt = "40ms"
queue = "droptail:1000p"
[[workload]]
bulk = {}
"#,
    );
    let (setup, c) = (&result.setup, &result.contenders[0]);
    assert_eq!(setup.rate, "cellular, 12mbit on average");
    assert!(
        (setup.rate_mbit / 12.0 - 1.0).abs() < 0.03,
        "{}",
        setup.rate_mbit
    );
    // The long queue keeps the link busy in spite of its silences.
    assert!(
        c.metrics.utilisation > 0.9 && c.metrics.delay_p95_ms > 50.0,
        "{:?}",
        c.metrics
    );
}

#[test]
fn short_flows_are_reported_by_completion_time() {
    let result = simulate(
        r#"
contenders = ["native:cubic"]
duration = "20s"
[topology.dumbbell]
rate = "96mbit"
rtt = "50ms"
pairs = 4
[[workload]]
name = "web"
poisson = { rate = "30mbit", sizes = { table = "caida" } }
[[workload]]
name = "cross"
algorithm = "native:reno"
bulk = {}
[report]
links = ["bottleneck", "reverse"]
"#,
    );
    let c = &result.contenders[0];
    let completions = c.metrics.completions.as_ref().unwrap();
    let all = completions.classes.last().unwrap();
    // 30 Mbit/s with a mean size of 21,025 bytes are 178 flows per second.
    assert!((2500..4500).contains(&all.flows), "{completions:?}");
    assert!(
        all.slowdown_p50 > 1.0 && all.slowdown_p99 >= all.slowdown_p50,
        "{completions:?}"
    );
    assert_eq!(completions.classes.len(), 4);
    assert_eq!(
        completions.classes[..3]
            .iter()
            .map(|class| class.flows)
            .sum::<u64>(),
        all.flows
    );
    // Cross traffic does not count as goodput.
    assert!(
        c.metrics.goodput_mbit < 45.0 && c.metrics.flows.is_empty(),
        "{:?}",
        c.metrics
    );
    assert!(
        c.metrics.links[0].utilisation.unwrap() > 0.7 && c.metrics.links[1].utilisation.is_none()
    );
    assert_eq!(result.setup.flows, 0);
}

#[test]
fn every_other_workload_runs() {
    let kinds = [
        "paced = { rate = \"5mbit\", on = \"100ms\", off = \"50ms\", exponential = true }",
        "requests = { connections = 2, response = { fixed = \"100kB\" }, think = \"5ms\" }",
        "bursts = { sizes = { fixed = \"50kB\" }, every = \"100ms\", bursts = 5 }",
        "bulk = { bytes = \"1MB\", flows = 3, stagger = \"10ms\" }",
    ];
    for kind in kinds {
        let result = simulate(
            &DUMBBELL
                .replace("\"10s\"", "\"2s\"")
                .replace("bulk = { flows = 2 }", kind),
        );
        for c in &result.contenders {
            assert!(
                c.metrics.goodput_mbit > 0.5,
                "{kind}, {}: {:?}",
                c.label,
                c.metrics
            );
            let finite = !kind.starts_with("paced");
            assert_eq!(c.metrics.completions.is_some(), finite, "{kind}");
        }
    }
    // Datagrams alone have no contender to compare.
    let result = simulate(&DUMBBELL.replace("\"10s\"", "\"2s\"").replace(
        "[[workload]]",
        "[[workload]]\ndatagrams = { rate = \"48mbit\", poisson = true }\n[[workload]]",
    ));
    for c in &result.contenders {
        assert!(
            (20.0..47.0).contains(&c.metrics.goodput_mbit),
            "{:?}",
            c.metrics
        );
    }
}

#[test]
fn events_change_the_link() {
    let text =
        format!("{DUMBBELL}\n[[event]]\nat = \"5s\"\nlink = \"bottleneck\"\nrate = \"48mbit\"\n");
    let result = simulate(&text);
    let c = &result.contenders[2];
    let mean = |bins: &[f64]| mean(bins.iter().copied()).expect("bins");
    let (before, after) = (
        mean(&c.series.throughput_mbit[100..240]),
        mean(&c.series.throughput_mbit[300..]),
    );
    assert!(
        (88.0..96.1).contains(&before) && (40.0..48.1).contains(&after),
        "{before} {after}"
    );
    // The link's capacity includes the event.
    assert!(
        c.metrics.utilisation > 0.85 && c.metrics.utilisation <= 1.0,
        "{}",
        c.metrics.utilisation
    );
}

fn problem(text: &str) -> (usize, String) {
    match try_run(&scenario(text), Seeds::one(1), 1) {
        Err(Error::Scenario(problem)) => (
            problem.line(),
            format!("{}; {}", problem.message(), problem.fix().unwrap_or("")),
        ),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it ran"),
    }
}

#[test]
fn a_plans_paths_are_the_simulators() {
    for name in shipped() {
        let plan = Plan::new(&Scenario::shipped(name).unwrap()).unwrap();
        let network = plan.network;
        let options = SimOptions::default();
        let routing = network.routing(options.memory_limit).unwrap();
        let sim = Simulation::new(network.clone(), options).unwrap();
        let hosts: Vec<_> = network.hosts().take(8).collect();
        for from in &hosts {
            let others = hosts.iter().filter(|to| *to != from);
            for to in others {
                let planned = network.path(&routing, *from, *to).map_err(SimError::from);
                assert_eq!(planned, sim.path(*from, *to), "{name}");
            }
        }
    }
}

#[test]
fn workloads_whose_packets_take_no_time_are_refused_at_reading() {
    let one = for_a_second(DUMBBELL);
    let two = one.replace("[topology.dumbbell]\n", "[topology.dumbbell]\npairs = 2\n");
    assert_ne!(two, one);
    for hosts in [
        "from = \"left1\"\nto = \"left2\"\n",
        "from = \"left*\"\nto = \"*\"\npairs = \"all\"\n",
        "from = \"*\"\npairs = \"permutation\"\n",
    ] {
        let (line, text) = problem(&two.replace("bulk", &format!("{hosts}bulk")));
        assert!(
            text.contains("would arrive instantly") && text.contains("both sides"),
            "{line}: {text}"
        );
        simulate(
            &two.replace("bulk", &format!("{hosts}bulk"))
                .replace("pairs = 2\n", "pairs = 2\naccess_rate = \"100mbit\"\n"),
        );
    }
}

#[test]
fn algorithms_that_do_not_exist_are_refused() {
    let with = |name: &str| {
        let scenario = scenario(&DUMBBELL.replace("\"reno\"", &format!("{name:?}")));
        try_run(&scenario, Seeds::one(1), 1)
            .unwrap_err()
            .to_string()
    };
    assert!(with("native:cubik").contains("did you mean `cubic`?"));
    assert!(with("renoo").contains("reno"));
}

/// Algorithm with a defect: it panics after four reports.
struct Mistaken;

impl Algorithm for Mistaken {
    type Flow = u32;

    fn name(&self) -> &str {
        "mistaken"
    }

    fn programs(&self) -> Programs {
        let fold = "(def (Report (volatile acked 0)))\n\
                    (when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (fallthrough))\n\
                    (when (> Micros 10000) (:= Micros 0) (report))";
        Programs::new().with("fold", fold)
    }

    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) -> u32 {
        control.set_program("fold", &[]);
        0
    }

    fn on_report(&mut self, reports: &mut u32, _report: &Report<'_>, _control: &mut Control<'_>) {
        *reports += 1;
        assert!(*reports < 5, "five reports are too many");
    }
}

const MISTAKEN: AlgorithmDoc = AlgorithmDoc {
    name: "mistaken",
    doc: "panics at its fifth report",
    parameters: &[],
};

#[test]
fn a_panic_names_the_seed_and_the_command_that_repeats_it() {
    let registry = Registry::builtin().add(MISTAKEN, |_| Ok(box_algorithm(Mistaken)));
    let scenario = scenario(&for_a_second(DUMBBELL).replace("\"reno\", ", "\"mistaken\", "));
    // Every thread count reports the first failing run in order.
    for threads in [1, 2] {
        let error = run_in(
            &Sim::default(),
            &scenario,
            &registry,
            &options("3..9".parse().unwrap(), threads),
            &NoProgress,
        )
        .unwrap_err();
        let text = error.to_string();
        for part in [
            "mistaken, seed 3",
            "five reports are too many",
            "reproduce it with `ccplane run test.toml --seeds 3`",
        ] {
            assert!(text.contains(part), "no {part} in: {text}");
        }
    }
}

#[test]
fn a_failed_contender_does_not_affect_the_others() {
    let registry = Registry::builtin().add(MISTAKEN, |_| Ok(box_algorithm(Mistaken)));
    let scenario = scenario(&for_a_second(DUMBBELL).replace("\"reno\", ", "\"mistaken\", "));
    for threads in [1, 2] {
        for seeds in ["3", "3..5"] {
            let options = options(seeds.parse().unwrap(), threads);
            let stopped = run_keeping(&Sim::default(), &scenario, &registry, &options, &NoProgress)
                .unwrap_err();
            let Error::Internal {
                contender, seed: 3, ..
            } = &stopped.error
            else {
                panic!("{}", stopped.error)
            };
            assert_eq!(contender, "mistaken");
            let finished = stopped.finished.expect("two contenders finished");
            let labels: Vec<&str> = finished
                .contenders
                .iter()
                .map(|c| c.label.as_str())
                .collect();
            assert_eq!(labels, ["native:reno", "native:cubic"]);
            assert!(
                finished.note.contains("mistaken finished 0 of"),
                "{}",
                finished.note
            );
            assert!(
                finished
                    .stopped
                    .is_some_and(|why| why.contains("five reports are too many"))
            );
            if seeds != "3" {
                assert!(
                    finished
                        .contenders
                        .iter()
                        .all(|c| c.spread.is_some_and(|spread| spread.seeds == 3))
                );
            }
        }
    }
}

/// A link that clears the class marking: the sender detects that the second loop's packets arrive
/// in class 0, and stops it.
#[test]
fn second_loops_are_reported_with_the_reason_they_stopped() {
    let text = |strip: &str| {
        format!(
            r#"
contenders = ["native:cubic"]
duration = "2s"

[transport]
rc3 = true

[report]
link = "narrow"

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
rate = "1gbit"
delay = "1ms"
queue = "prio:5:shared:1MB"
{strip}

[[link]]
from = "s"
to = "b"
name = "narrow"
rate = "96mbit"
delay = "20ms"
queue = "prio:5:shared:1MB"

[[workload]]
from = "a"
to = "b"
bulk = {{ bytes = "20MB" }}
"#
        )
    };
    let of = |result: &RunResult| {
        let table = ccplane_lab::table::of_second_loops(result)
            .unwrap()
            .to_text();
        (
            result.contenders[0].metrics.second_loop.clone().unwrap(),
            table,
        )
    };
    let told = |strip: &str| of(&simulate(&text(strip)));
    let (kept, table) = told("");
    assert!(
        kept.flows == 1 && kept.delivered_bytes > 1_000_000 && kept.stopped.is_empty(),
        "{kept:?}"
    );
    assert!(kept.sent_bytes >= kept.delivered_bytes, "{kept:?}");
    assert!(
        table.contains("native:cubic") && table.trim_end().ends_with("no"),
        "{table}"
    );
    let (stripped, told) = told("strip_classes = true");
    let (why, flows) = stripped.stopped.first_key_value().unwrap();
    assert!(
        *flows == 1 && why.contains("marking") && told.contains(why.as_str()),
        "{why} {told}"
    );
    assert!(
        stripped.sent_bytes < kept.sent_bytes,
        "{stripped:?} {kept:?}"
    );
    // Two seeds of a deterministic path: twice the bytes, the same share of the received bytes.
    let twice = text("").replace("duration =", "seeds = \"1..2\"\nduration =");
    let (twice, both) = of(&simulate(&twice));
    assert_eq!(
        (twice.flows, twice.delivered_bytes),
        (2, 2 * kept.delivered_bytes)
    );
    let share = |table: &str| {
        table
            .lines()
            .last()
            .and_then(|row| row.split_whitespace().nth(2).map(str::to_owned))
    };
    assert_eq!(share(&both), share(&table));
    // Without a second loop there is nothing to report.
    let off = simulate(&text("").replace("rc3 = true", ""));
    assert!(off.contenders[0].metrics.second_loop.is_none());
    assert_eq!(ccplane_lab::table::of_second_loops(&off), None);
}

/// Returns a scenario with Cubic on 10 Mbit/s and 20 ms, with these lines in `[transport]`.
fn concealing(transport: &str) -> String {
    format!(
        "contenders = [\"native:cubic\", \"bbr\"]\nduration = \"5s\"\n[topology.dumbbell]\n\
         rate = \"10mbit\"\n\
         rtt = \"20ms\"\naccess_rate = \"100mbit\"\n[transport]\n{transport}\n[[workload]]\n\
         start = \"500ms\"\nbulk = {{}}\n\
         [[workload]]\nname = \"small\"\nalgorithm = \"native:reno\"\n\
         bulk = {{ bytes = \"10kB\" }}\n\
         [report]\nlinks = [\"bottleneck\"]\n"
    )
}

#[test]
fn a_receiver_that_conceals_losses_is_disconnected_where_it_has_to_prove_receipt() {
    let drops = |c: &ContenderResult| c.metrics.links[0].drops;
    let concealed = simulate(&concealing("conceal_losses = \"right*\""));
    let proved = simulate(&concealing(
        "conceal_losses = \"right*\"\nproof_of_receipt = true",
    ));
    for (concealed, proved) in concealed.contenders.iter().zip(&proved.contenders) {
        // The link carries 4,200 packets in five seconds.
        assert!(
            drops(concealed) > 4_200,
            "{}: {} drops",
            concealed.label,
            drops(concealed)
        );
        assert!(concealed.audit.sound, "{:?}", concealed.audit);
        assert!(
            drops(proved) < 420,
            "{}: {} drops",
            proved.label,
            drops(proved)
        );
        let bulk = &proved.workloads[0];
        assert_eq!(
            (bulk.failed, bulk.false_receipts),
            (1, 1),
            "{}",
            proved.label
        );
        assert_eq!(
            proved.workloads[1].failed, 0,
            "{}: nothing of 10 kB is lost",
            proved.label
        );
        let complaints = &proved.audit.complaints;
        assert!(
            complaints.len() == 1
                && complaints[0].contains("acknowledged data that it did not receive"),
            "{complaints:?}"
        );
    }
    let digests = |result: &RunResult| -> Vec<String> {
        let digest = |c: &ContenderResult| c.audit.simulation.as_ref().map(|s| s.digest.clone());
        result.contenders.iter().filter_map(digest).collect()
    };
    let (off, on) = (
        concealing("proof_of_receipt = false"),
        concealing("proof_of_receipt = true"),
    );
    assert_eq!(digests(&simulate(&off)), digests(&simulate(&on)));
}

#[test]
fn only_hosts_that_flows_send_to_conceal_losses() {
    let problem = |line: &str| {
        let text = concealing(line);
        let scenario = scenario(&text);
        match try_run(&scenario, scenario.seeds, 1) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{line} runs"),
        }
    };
    let text = problem("conceal_losses = \"left1\"");
    assert!(text.contains("no flow sends to `left1`"), "{text}");
    let text = problem("conceal_losses = [\"right1\", \"right2\"]");
    assert!(text.contains("right2"), "{text}");
}
