//! Bundles on real packets: sites behind gateways, over the emulated link. Needs root; without it
//! the tests report that they are skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::host::{privileged, registers};
use ccplane_algorithms::Registry;
use ccplane_lab::result::ContenderResult;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, Error, NoProgress, RunOptions, run};
use ccplane_testbed::{RealPackets, TransportKind};

/// Nodes and wires of the `n`-th pair of sites.
fn site(n: usize) -> String {
    let node =
        |name: &str, switch: bool| format!("[[node]]\nname = \"{name}{n}\"\nswitch = {switch}\n");
    let wire = |from: &str, to: &str| format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
    [
        node("server", false),
        node("client", false),
        node("near", true),
        node("far", true),
        wire(&format!("server{n}"), &format!("near{n}")),
        wire(&format!("near{n}"), "left"),
        wire("right", &format!("far{n}")),
        wire(&format!("far{n}"), &format!("client{n}")),
        format!("[[bundle]]\nfrom = \"near{n}\"\nto = \"far{n}\"\n"),
    ]
    .concat()
}

/// Returns a scenario with `count` pairs of sites and a host outside of them on either side. The
/// bottleneck runs at 24 Mbit/s with an RTT of 40 ms.
fn sites(count: usize, top: &str, workloads: &str) -> Scenario {
    let mut text = format!(
        "{top}\nsample = \"20ms\"\n[report]\nlink = \"left->right\"\n[[node]]\nname = \"left\"\n\
         switch = true\n[[node]]\nname = \"right\"\nswitch = true\n\
         [[node]]\nname = \"stranger\"\n[[node]]\nname = \"guest\"\n[[link]]\nfrom = \"stranger\"\n\
         to = \"left\"\n[[link]]\nfrom = \"right\"\nto = \"guest\"\n\
         [[link]]\nfrom = \"left\"\nto = \"right\"\nrate = \"24mbit\"\ndelay = \"20ms\"\n\
         queue = \"droptail:240p\"\n"
    );
    (1..=count).for_each(|n| text += &site(n));
    text += workloads;
    Scenario::parse("sites.toml", &text, Path::new(".")).unwrap()
}

fn on_kernel(scenario: &Scenario) -> Vec<ContenderResult> {
    let options = RunOptions::single(1, "ccplane run sites.toml");
    let result = run(
        &RealPackets::new(TransportKind::Tcp),
        scenario,
        &Registry::builtin(),
        &options,
        &NoProgress,
    )
    .unwrap();
    for contender in &result.contenders {
        println!("{}: {:?}", contender.label, contender.metrics);
        println!("{:?}", contender.audit);
    }
    result.contenders
}

/// Names of the namespaces of a process.
fn namespaces(of: u32) -> Vec<PathBuf> {
    let begin = format!("ccplane-{of}-");
    let all = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten();
    let ours = all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&begin));
    ours.map(|entry| entry.path()).collect()
}

#[test]
fn a_bundle_moves_the_queue_from_the_link_into_its_box() {
    if !privileged("a_bundle_moves_the_queue_from_the_link_into_its_box") {
        return;
    }
    let _turn = registers();
    let scenario = sites(
        1,
        "contenders = [\"native:cubic\", \"bundler\"]\nduration = \"6s\"\nwarm = \"2s\"",
        "[[workload]]\nname = \"bulk\"\nfrom = \"server1\"\nto = \"client1\"\n\
         bulk = { flows = 4 }\n\
         [[workload]]\nname = \"thin\"\nfrom = \"stranger\"\nto = \"guest\"\n\
         datagrams = { rate = \"1mbit\" }\n",
    );
    let results = on_kernel(&scenario);
    let [without, with] = &results[..] else {
        panic!("two contenders")
    };
    // Four Cubic flows fill the queue of 120 ms.
    assert!(
        without.metrics.delay_p50_ms > 40.0,
        "{}",
        without.metrics.delay_p50_ms
    );
    assert!(
        with.metrics.delay_p50_ms < 0.6 * without.metrics.delay_p50_ms,
        "{} of {}",
        with.metrics.delay_p50_ms,
        without.metrics.delay_p50_ms
    );
    for result in &results {
        let goodput = result.metrics.goodput_mbit;
        assert!(
            (12.0..23.0).contains(&goodput),
            "{}: {goodput}",
            result.label
        );
        assert_eq!(result.audit.own, Vec::<String>::new(), "{}", result.label);
        let bundle = &result.metrics.bundles[0];
        assert_eq!(bundle.name, "near1 -> far1");
        // 20 Mbit/s for six seconds.
        assert!(bundle.arrived > 7_000, "{bundle:?}");
        assert!(bundle.out_of_order_share < 0.01, "{bundle:?}");
        let samples = &result.series.bundles[0];
        assert!(samples.len() > 150, "{} looks", samples.len());
        assert!(samples.windows(2).all(|two| two[0].at_ns <= two[1].at_ns));
        let last = samples.last().unwrap();
        assert!((39.0..80.0).contains(&last.min_rtt_ms), "{last:?}");
    }
    let [open, limited] = [without, with].map(|result| &result.metrics.bundles[0]);
    assert_eq!((open.open_share, open.dropped), (1.0, 0), "{open:?}");
    // Until the other gateway answers, the peer is briefly reported as a plain one.
    assert!(
        open.changes.iter().all(|change| change.to == "open"),
        "nobody steers it: {open:?}"
    );
    assert!(
        limited.open_share < 0.4 && limited.box_queue_ms > Some(5.0),
        "{limited:?}"
    );
    // The bundle starts open, and leaves that mode because of the queue.
    let begun = limited.changes.iter().find(|change| change.to != "open");
    assert!(
        begun.is_some_and(|change| change.why == "queue" && (0.0..4.0).contains(&change.at_s)),
        "{:?}",
        limited.changes
    );
    assert_eq!(namespaces(std::process::id()), Vec::<PathBuf>::new());
}

#[test]
fn two_pairs_of_sites_have_a_bundle_each() {
    if !privileged("two_pairs_of_sites_have_a_bundle_each") {
        return;
    }
    let _turn = registers();
    let scenario = sites(
        2,
        "contenders = [\"bundler\"]\nduration = \"4s\"",
        "[[workload]]\nname = \"one\"\nfrom = \"server1\"\nto = \"client1\"\nstop = \"3s\"\n\
         messages = { connections = 20, rate = \"8mbit\", sizes = { fixed = \"20kB\" } }\n\
         [[workload]]\nname = \"two\"\nfrom = \"server2\"\nto = \"client2\"\nbulk = {}\n\
         [[workload]]\nname = \"cross\"\nfrom = \"stranger\"\nto = \"guest\"\n\
         datagrams = { rate = \"2mbit\" }\n",
    );
    let results = on_kernel(&scenario);
    let metrics = &results[0].metrics;
    let names: Vec<&str> = metrics.bundles.iter().map(|bundle| &*bundle.name).collect();
    assert_eq!(names, ["near1 -> far1", "near2 -> far2"]);
    // 50 messages per second, 15 packets each.
    let [one, two] = [&metrics.bundles[0], &metrics.bundles[1]];
    assert!((400..4_000).contains(&one.arrived), "{one:?}");
    assert!(two.arrived > 1_000, "{two:?}");
    let workload = |name: &str| {
        results[0]
            .workloads
            .iter()
            .find(|workload| workload.name == name)
            .unwrap()
    };
    assert!(workload("cross").totals.goodput_mbit > 0.5);
    let completions = workload("one").completions.as_ref().unwrap();
    assert!(
        completions.classes.last().unwrap().flows > 20,
        "{completions:?}"
    );
}

/// A run that lasts until it is killed.
fn long() -> Scenario {
    sites(
        1,
        "contenders = [\"bundler\"]\nduration = \"60s\"",
        "[[workload]]\nfrom = \"server1\"\nto = \"client1\"\nbulk = {}\n",
    )
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a process is waited for in real time"
)]
fn a_killed_run_leaves_no_site() {
    if !privileged("a_killed_run_leaves_no_site") {
        return;
    }
    let _turn = registers();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "sites::victim"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let names = loop {
        let names = namespaces(victim.id());
        // Two sides and two sites.
        if names.len() == 4 {
            break names;
        }
        assert!(Instant::now() < deadline, "{names:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    // The run is now in the middle of its traffic.
    std::thread::sleep(Duration::from_secs(1));
    assert!(names.iter().all(|name| std::fs::File::open(name).is_ok()));
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(
        names.iter().all(|name| std::fs::File::open(name).is_err()),
        "the namespaces have gone"
    );
    // Another run may already have removed the stale names.
    ccplane_host::remove_stale_names();
    assert_eq!(namespaces(victim.id()), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "child: a_killed_run_leaves_no_site kills it"]
fn victim() {
    on_kernel(&long());
}

#[test]
fn unsupported_options_of_sites_are_rejected() {
    let refused = |backend: &dyn Backend, scenario: &Scenario| match backend
        .prepare(scenario, &Registry::builtin())
    {
        Err(Error::NotOnLinux { parts, .. }) => parts,
        Err(error) => panic!("{error}"),
        Ok(_) => Vec::new(),
    };
    let bulk = |from: &str, to: &str| {
        format!("[[workload]]\nname = \"w\"\nfrom = \"{from}\"\nto = \"{to}\"\nbulk = {{}}\n")
    };
    let top = "contenders = [\"bundler\"]\nduration = \"1s\"";
    assert_eq!(
        refused(
            &RealPackets::new(TransportKind::Tcp),
            &sites(1, top, &bulk("server1", "client1"))
        ),
        Vec::<String>::new()
    );
    let over_udp = refused(
        &RealPackets::new(TransportKind::Udp),
        &sites(1, top, &bulk("server1", "client1")),
    );
    assert!(over_udp[0].contains("--datapath linux"), "{over_udp:?}");
    for (count, workloads, reason) in [
        (1, bulk("server1", "guest"), "`server1` sends to `guest`"),
        (
            1,
            bulk("stranger", "client1"),
            "`stranger` sends to `client1`",
        ),
        (
            2,
            bulk("server1", "client2"),
            "`server1` sends to `client2`",
        ),
    ] {
        let parts = refused(
            &RealPackets::new(TransportKind::Tcp),
            &sites(count, top, &workloads),
        );
        assert!(parts.len() == 1 && parts[0].contains(reason), "{parts:?}");
    }
    let with = |words: &str| {
        sites(
            1,
            top,
            &format!(
                "[[bundle]]\nfrom = \"far1\"\nto = \"near1\"\n{words}\n{}",
                bulk("server1", "client1")
            ),
        )
    };
    for (words, reason) in [
        ("overhead = \"80B\"", "an overhead of 80 bytes"),
        ("by_hash = true", "`by_hash` of far1 -> near1"),
        (
            "queue = \"droptail:1bdp\"",
            "the queue needs the link's rate",
        ),
    ] {
        let parts = refused(&RealPackets::new(TransportKind::Tcp), &with(words));
        assert!(
            parts.len() == 1 && parts[0].to_lowercase().contains(reason),
            "{parts:?}"
        );
    }
}
