//! Runs in namespaces. They need root; without it the tests report that they are skipped.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::host::{alone, privileged, registers, steers};
use ccplane_algorithms::Registry;
use ccplane_lab::result::RunResult;
use ccplane_lab::scenario::Rc3;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, Error, NoProgress, RunOptions, files, report};
use ccplane_qdisc::{LineSpec, QueueSpec, Size};
use ccplane_testbed::{RealPackets, TransportKind};
use ccplane_units::stats::mean;
use ccplane_units::{Duration, Rate};

/// 24 Mbit/s, 20 ms, a queue of one BDP, two seconds.
fn scenario(contenders: &[&str]) -> Scenario {
    let contenders = contenders.iter().map(|c| c.parse().unwrap()).collect();
    let (rate, rtt) = (
        Rate::from_bits_per_sec(24_000_000),
        Duration::from_millis(20),
    );
    Scenario::dumbbell(
        contenders,
        rate,
        rtt,
        QueueSpec::ONE_BDP,
        Duration::from_secs(2),
    )
    .with_sample_interval(Duration::from_millis(10))
}

fn run(scenario: &Scenario) -> Result<RunResult, Error> {
    run_on(&RealPackets::new(TransportKind::Tcp), scenario)
}

fn run_on(backend: &dyn Backend, scenario: &Scenario) -> Result<RunResult, Error> {
    let options = RunOptions::single(7, "ccplane run");
    ccplane_lab::run(
        backend,
        scenario,
        &Registry::builtin(),
        &options,
        &NoProgress,
    )
}

/// Names of namespaces that this process created and that still exist.
fn left_behind() -> Vec<String> {
    let list = Command::new("ip")
        .args(["netns", "list"])
        .output()
        .unwrap()
        .stdout;
    let mine = format!("ccplane-{}-", std::process::id());
    String::from_utf8_lossy(&list)
        .lines()
        .filter(|l| l.starts_with(&mine))
        .map(str::to_owned)
        .collect()
}

/// Uses no congestion control of the kernel: both ends are in this process, over UDP.
#[test]
fn our_transport_fills_the_same_link_also_with_a_second_loop() {
    if !privileged("our_transport_fills_the_same_link_also_with_a_second_loop") {
        return;
    }
    let _turn = registers();
    let queue = QueueSpec::Prio {
        bands: 6,
        shared: true,
        limit: Size::MilliBdp(1000),
    };
    let mut scenario = self::scenario(&["cubic", "native:reno"])
        .with_flows(2)
        .with_bottleneck(|link| link.queue = queue);
    for second_loop in [false, true] {
        scenario.transport.rc3 = second_loop.then_some(Rc3 {
            levels: None,
            verify: true,
        });
        let result = run_on(&RealPackets::new(TransportKind::Udp), &scenario).unwrap();
        for c in &result.contenders {
            let f = &c.metrics;
            assert!(
                f.goodput_mbit > 14.0 && f.goodput_mbit < 24.0,
                "{}: {f:?}",
                c.label
            );
            assert!(f.goodput_mbit / 24.0 < f.utilisation, "{}: {f:?}", c.label);
            assert!(
                f.flows.iter().all(|flow| flow.received_bytes > 100_000),
                "{}: {f:?}",
                c.label
            );
            let samples = &c.series.flows[1];
            assert!(
                samples.len() > 50
                    && samples
                        .iter()
                        .skip(5)
                        .all(|s| s.tcp.cwnd > 0 && s.tcp.srtt_us > 15_000)
            );
            // The second loop is reported if enabled: the flows have more data to send than their
            // windows allow.
            let told = f
                .second_loop
                .as_ref()
                .map(|rc3| (rc3.flows, rc3.sent_bytes > 1_000_000));
            assert_eq!(told, second_loop.then_some((2, true)), "{}: {f:?}", c.label);
            let page = report::page(&result, &ccplane_report::Provenance::default());
            assert!(page.contains("over UDP"));
            assert_eq!(page.contains("<h2>Second loop</h2>"), second_loop);
        }
    }
    let unknown = run_on(
        &RealPackets::new(TransportKind::Udp),
        &self::scenario(&["native:vegas"]),
    );
    assert!(matches!(unknown, Err(Error::UnknownControl { .. })));
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn native_flows_fill_the_link_and_every_figure_agrees() {
    if !privileged("native_flows_fill_the_link_and_every_figure_agrees") {
        return;
    }
    let _turn = registers();
    let result = run(&scenario(&["native:reno", "native:cubic"]).with_flows(2)).unwrap();
    assert_eq!(result.contenders.len(), 2);
    for c in &result.contenders {
        let f = &c.metrics;
        assert!(
            f.goodput_mbit > 15.0 && f.goodput_mbit < 24.0,
            "{}: {f:?}",
            c.label
        );
        assert!(
            f.utilisation > 0.7 && f.utilisation < 1.02,
            "{}: {f:?}",
            c.label
        );
        // Utilisation includes headers, goodput does not: 52 of 1500 bytes.
        assert!(f.goodput_mbit / 24.0 < f.utilisation, "{}: {f:?}", c.label);
        // The queue holds one BDP: at most 20 ms, plus rounding by half a packet.
        assert!(
            f.delay_p99_ms <= 21.0 && f.delay_p50_ms > 0.5 && f.delay_p50_ms <= f.delay_p95_ms,
            "{}: {f:?}",
            c.label
        );
        assert!(
            f.queue_drops > 0 && f.retransmissions > 0 && f.random_losses == 0,
            "{}: {f:?}",
            c.label
        );
        assert!(f.jain.unwrap() > 0.5, "{}: {f:?}", c.label);
        assert_eq!(f.flows.len(), 2);
        for flow in &f.flows {
            assert!(
                flow.min_rtt_ms >= 20.0 && flow.srtt_mean_ms >= flow.min_rtt_ms,
                "{flow:?}"
            );
            assert!(
                flow.rwnd_limited < 0.01 && flow.sndbuf_limited < 0.01,
                "{flow:?}"
            );
        }
        let mean = mean(c.series.throughput_mbit.iter().copied()).expect("bins");
        assert!(
            (mean - f.utilisation * 24.0).abs() < 1.0,
            "bins {mean}, utilisation {}",
            f.utilisation
        );
        assert_eq!(c.series.throughput_mbit.len(), 100);
        assert!(c.host.process_cpu_percent > Some(0.0) && c.host.cpu_s_per_gb > Some(0.0));
    }
    assert_eq!(left_behind(), [] as [&str; 0]);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native");
    let page =
        ccplane_lab::files::write(&result, &directory, &ccplane_report::Provenance::default())
            .unwrap();
    assert!(page.is_file());
    for (file, rows) in [("series.csv", 300), ("bins.csv", 201), ("flows.csv", 5)] {
        let text = std::fs::read_to_string(directory.join(file)).unwrap();
        let columns = text.lines().next().unwrap().split(',').count();
        assert!(
            text.lines().count() >= rows,
            "{file} has {} lines",
            text.lines().count()
        );
        assert!(
            text.lines().all(|line| line.split(',').count() == columns),
            "{file} is ragged"
        );
    }
    let summary: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(directory.join("summary.json")).unwrap())
            .unwrap();
    assert!(summary["contenders"][0]["figures"]["goodput_mbit"].is_number());
    assert!(
        summary["contenders"][0]["host"].is_null(),
        "the metrics of the host are in host.json"
    );
}

#[test]
fn bad_input_gives_one_message_and_leaves_nothing() {
    let _turn = alone();
    let told = |scenario: Scenario| run(&scenario).unwrap_err().to_string();
    let line =
        |line: LineSpec| told(scenario(&["native:reno"]).with_bottleneck(|link| link.line = line));
    let who = |contenders: &[&str]| told(scenario(contenders));
    let short = Scenario {
        duration: Duration::from_millis(1),
        ..scenario(&["native:reno"])
    };
    let cases: [(&str, String); 9] = [
        (
            "--rate 96mbit",
            line(LineSpec::Constant(Rate::from_bytes_per_sec(0))),
        ),
        ("needs a bottleneck", line(LineSpec::Unlimited)),
        ("did you mean `cubic`", who(&["native:cubik"])),
        ("nothing to run", who(&[])),
        ("at least 100ms", told(short)),
        (
            "the maximum is 1000",
            told(scenario(&["native:reno"]).with_flows(1_001)),
        ),
        ("did you mean `cubic`", who(&["cubix"])),
        ("no parameter `colour`", who(&["reno:colour=red"])),
        (
            "less than one packet",
            told(
                scenario(&["native:reno"])
                    .with_bottleneck(|link| link.queue = QueueSpec::DropTail(Size::Bytes(10))),
            ),
        ),
    ];
    for (part, text) in cases {
        assert!(
            text.contains(part) && !text.contains('\n'),
            "{text:?} lacks {part:?}"
        );
    }
    assert_eq!(left_behind(), [] as [&str; 0]);
}

#[test]
fn an_interrupted_run_says_so_and_leaves_nothing() {
    if !privileged("an_interrupted_run_says_so_and_leaves_nothing") {
        return;
    }
    let _turn = registers();
    struct Impatient;
    impl ccplane_lab::Progress for Impatient {
        fn is_cancelled(&self) -> bool {
            true
        }
    }
    let options = RunOptions::single(7, "ccplane run");
    let scenario = scenario(&["native:reno"]);
    let error = ccplane_lab::run(
        &RealPackets::new(TransportKind::Tcp),
        &scenario,
        &Registry::builtin(),
        &options,
        &Impatient,
    )
    .unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(left_behind(), [] as [&str; 0]);
}

#[test]
fn an_algorithm_outside_the_datapath_fills_the_link_as_the_kernels_own_does() {
    if !steers("an_algorithm_outside_the_datapath_fills_the_link_as_the_kernels_own_does") {
        return;
    }
    let _turn = registers();
    let result = run(&scenario(&["reno:report=10ms", "native:reno"])).unwrap();
    let [ours, native] = result.contenders.as_slice() else {
        panic!("two contenders")
    };
    assert_eq!(
        (ours.kernel_name.as_str(), native.kernel_name.as_str()),
        ("ccp_reno", "reno")
    );
    // Two seconds on a busy machine are no comparison. A window that is never opened would yield 4
    // Mbit/s.
    assert!(ours.metrics.goodput_mbit > 12.0, "{:?}", ours.metrics);
    assert!(
        ours.metrics.queue_drops > 0 && ours.metrics.delay_p99_ms <= 21.0,
        "{:?}",
        ours.metrics
    );
    let reports = ours.host.reports_per_s.unwrap();
    assert!(
        reports > 20.0 && reports < 300.0,
        "{reports} reports/s, every 10 ms and at losses"
    );
    assert!(ours.host.agent_cpu_percent.is_some() && native.host.reports_per_s.is_none());
    assert!(
        !ccplane_testbed::traffic::available()
            .iter()
            .any(|name| name == "ccp_reno"),
        "it stayed registered"
    );
    assert_eq!(left_behind(), [] as [&str; 0]);
}

/// Child of the next test, which runs it without privileges. As root it does nothing.
#[test]
fn as_nobody() {
    if nix::unistd::geteuid().is_root() {
        return;
    }
    match run(&scenario(&["native:reno"])) {
        Err(error) => println!("REFUSED: {error}"),
        Ok(_) => println!("it ran"),
    }
}

#[test]
fn missing_permissions_are_named() {
    if !privileged("missing_permissions_are_named") {
        return;
    }
    let _turn = registers();
    // In a location where every user can execute it: a build directory below /root is closed to
    // others.
    let copy = std::env::temp_dir().join(format!("ccplane-lab-test-{}", std::process::id()));
    // Copied by another process: a child that another test forks during the write would inherit the
    // open file, and executing the copy would fail (ETXTBSY).
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let output = Command::new(&copy)
        .args(["--exact", "run::as_nobody", "--nocapture"])
        .uid(65534)
        .gid(65534)
        .output();
    std::fs::remove_file(&copy).unwrap();
    let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    let message = text
        .lines()
        .find(|line| line.contains("REFUSED: "))
        .unwrap_or_else(|| panic!("{text}"));
    for part in [
        "needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN",
        "sudo",
        "without root: `ccplane check`",
    ] {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn one_way_delay_is_compared_with_the_links_log() {
    if !steers("one_way_delay_is_compared_with_the_links_log") {
        return;
    }
    let _turn = registers();
    let result = run(&scenario(&["dx", "native:reno"])).unwrap();
    let [dx, reno] = &result.contenders[..] else {
        panic!("two contenders")
    };
    // Only the contender that wants stamps gets them.
    assert!(reno.metrics.one_way.is_none() && reno.series.stamped.is_empty());
    let f = dx.metrics.one_way.as_ref().unwrap();
    assert_eq!(f.packets as usize, dx.series.stamped.len());
    assert!(
        f.packets > 500 && f.samples > 500 && f.malformed == 0,
        "{f:?}"
    );
    // Serialisation of a packet takes 500 µs on this link.
    assert!(
        f.queue_error_p50_us < 500.0 && f.queue_error_p50_us <= f.queue_error_p99_us,
        "{f:?}"
    );
    // Far below Reno's queueing delay, which reaches 20 ms.
    assert!(
        dx.metrics.delay_p50_ms < reno.metrics.delay_p50_ms / 2.0,
        "{:?}",
        dx.metrics
    );

    let summary = files::summary(&result).to_string();
    assert!(summary.contains("queue_error_p50_us"), "{summary}");
    let page = report::page(&result, &ccplane_report::Provenance::default());
    assert!(page.contains("One-way queueing delay") && page.contains(">time stamps</text>"));
    assert!(left_behind().is_empty());
}
