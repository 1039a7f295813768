//! The emulator with real packets, between namespaces that the tests create and remove.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant};

use crate::common::host::skip;
use crate::common::{emulate, may_run, rate, sockets};
use ccplane_emu::qdisc::{
    FifoLink, Limit, LineSpec, LinkSeeds, Loss, LossModel, QueueSpec, Size, Trace,
};
use ccplane_emu::{
    EmuConfig, Emulator, Error, Fate, LinkConfig, LinkLog, PathDirection, ShellOptions, remote,
    shell,
};
use ccplane_host::{Namespace, Offload, Tun};
use ccplane_units::{Duration, Probability, Rate};

fn assert_conserved(log: &LinkLog) {
    assert_eq!(
        log.arrived,
        log.delivered + log.queue_drops + log.losses + log.in_flight
    );
    assert_eq!(
        log.arrived - log.in_flight,
        log.len() as u64 + log.records_dropped
    );
}

/// Waits until everything that was sent has arrived at the link.
fn await_arrivals(emulator: &Emulator, packets: u64) {
    let control = emulator.control();
    let deadline = Instant::now() + StdDuration::from_secs(10);
    while control.stats(PathDirection::Forward).arrived < packets {
        assert!(
            Instant::now() < deadline,
            "packets were lost before the link"
        );
        std::thread::sleep(StdDuration::from_millis(1));
    }
}

#[test]
fn the_delay_is_accurate() {
    if !may_run("delay") {
        return;
    }
    let link = |ms| LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    };
    let emulator = emulate(link(12), link(3));
    for version in [4, 6] {
        if version == 6 && !ccplane_host::has_ipv6() {
            continue;
        }
        let bind = |namespace: &Namespace, address: IpAddr| {
            namespace
                .run(|| UdpSocket::bind((address, 0)).expect("bind"))
                .expect("the test's namespace")
        };
        let (sender, receiver) = match version {
            4 => (emulator.sender_addr(), emulator.receiver_addr()),
            _ => (emulator.sender_addr_v6(), emulator.receiver_addr_v6()),
        };
        let sender = bind(emulator.sender_ns(), sender);
        let receiver = bind(emulator.receiver_ns(), receiver);
        let to = receiver.local_addr().expect("bound");
        let mut times: Vec<_> = (0..20)
            .map(|_| {
                let begin = Instant::now();
                sender.send_to(b"ping", to).expect("send");
                let (_, from) = receiver.recv_from(&mut [0; 8]).expect("ping");
                receiver.send_to(b"pong", from).expect("send");
                sender.recv(&mut [0; 8]).expect("pong");
                begin.elapsed()
            })
            .collect();
        times.sort();
        assert!(
            times[0] >= StdDuration::from_millis(15),
            "faster than the link: {:?}",
            times[0]
        );
        assert!(
            times[0] < StdDuration::from_millis(18),
            "at best {:?} instead of 15 ms",
            times[0]
        );
    }
    let report = emulator.finish().expect("it ran");
    assert_conserved(&report.forward);
    assert_eq!(
        report.forward.records().count() as u64,
        report.forward.delivered
    );
    assert_eq!(report.audit.emulator_drops + report.audit.tun_drops, 0);
}

#[test]
fn the_seed_decides_which_packets_are_lost() {
    if !may_run("loss") {
        return;
    }
    const PACKETS: u32 = 2_000;
    let probability = Probability::from_parts((1 << 32) / 20);
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(probability),
        seeds: LinkSeeds::from_seed(42),
        ..LinkConfig::default()
    };
    let emulator = emulate(lossy, LinkConfig::default());
    let (sender, receiver) = sockets(&emulator);
    let mut loss = Loss::new(probability, 42);
    let mut expected = (0..PACKETS).filter(|_| !loss.next_is_lost()).peekable();
    let mut number = [0; 4];
    for n in 0..PACKETS {
        sender.send(&n.to_be_bytes()).expect("send");
        // No more in flight than the receiver's buffer holds.
        if n % 100 == 99 {
            while let Some(next) = expected.next_if(|&next| next <= n) {
                receiver.recv(&mut number).expect("another packet");
                assert_eq!(u32::from_be_bytes(number), next);
            }
        }
    }
    let report = emulator.finish().expect("it ran");
    assert_eq!(
        report.forward.losses + report.forward.delivered,
        u64::from(PACKETS)
    );
    assert!(
        (50..150).contains(&report.forward.losses),
        "about 5 % of them"
    );
    assert_conserved(&report.forward);
}

#[test]
fn a_full_queue_drops_by_its_size() {
    if !may_run("drops") {
        return;
    }
    // 100 ms per packet; 1 BDP of 2 s is 20 packets, and one more is on the line.
    let slow = LinkConfig {
        line: rate("120kbit"),
        delay: Duration::from_secs(1),
        queue: QueueSpec::ONE_BDP,
        ..LinkConfig::default()
    };
    let emulator = emulate(
        slow.clone(),
        LinkConfig {
            line: LineSpec::Unlimited,
            queue: QueueSpec::UNLIMITED,
            ..slow
        },
    );
    assert_eq!(emulator.limit(PathDirection::Forward), Limit::Bytes(30_000));
    let (sender, _receiver) = sockets(&emulator);
    let begin = Instant::now();
    for _ in 0..100 {
        sender.send(&[0; 1_472]).expect("send");
    }
    await_arrivals(&emulator, 100);
    let left_meanwhile = (begin.elapsed().as_millis() / 100) as u64;
    let log = emulator.finish().expect("it ran").forward;
    let admitted = log.in_flight + log.delivered;
    assert!(
        (21..=21 + left_meanwhile).contains(&admitted),
        "{admitted} admitted"
    );
    assert_eq!(log.queue_drops, 100 - admitted);
    assert_conserved(&log);
}

#[test]
fn the_log_is_what_the_queue_would_do_with_these_arrivals() {
    if !may_run("log") {
        return;
    }
    let line = rate("48mbit");
    let shaped = LinkConfig {
        line: line.clone(),
        queue: QueueSpec::DropTail(Size::Packets(30)),
        ..LinkConfig::default()
    };
    let emulator = emulate(shaped, LinkConfig::default());
    let (sender, _receiver) = sockets(&emulator);
    for n in 0..400 {
        sender.send(&vec![0; 100 + n * 3]).expect("send");
    }
    await_arrivals(&emulator, 400);
    std::thread::sleep(StdDuration::from_millis(50));
    let port = sender.local_addr().expect("bound").port();
    let log = emulator.finish().expect("it ran").forward;
    assert_eq!((log.arrived, log.in_flight), (400, 0));
    let mut records: Vec<_> = log.records().copied().collect();
    records.sort_by_key(|record| record.arrived);
    let mut link = FifoLink::new(&line, Limit::Packets(30), ccplane_units::Time::ZERO);
    for record in records {
        let expected = match link.enqueue(record.arrived, u32::from(record.bytes)) {
            Ok(departs) => Fate::Departed(departs),
            Err(reason) => Fate::Dropped(reason),
        };
        assert_eq!(record.fate(), expected);
        assert_eq!(record.source_port, port);
    }
    assert!(log.queue_drops > 0);
}

#[test]
fn a_new_rate_and_delay_hold_at_once_and_flush_nothing() {
    if !may_run("change") {
        return;
    }
    // 12 s for each of the 20 packets.
    let crawling = LinkConfig {
        line: rate("1kbit"),
        ..LinkConfig::default()
    };
    let emulator = emulate(crawling, LinkConfig::default());
    let (sender, receiver) = sockets(&emulator);
    for n in 0..20_u32 {
        let mut packet = [0; 1_472];
        packet[..4].copy_from_slice(&n.to_be_bytes());
        sender.send(&packet).expect("send");
    }
    await_arrivals(&emulator, 20);
    let control = emulator.control();
    control
        .set_delay(PathDirection::Forward, Duration::from_millis(5))
        .expect("any delay");
    control
        .set_line(PathDirection::Forward, rate("100mbit"))
        .expect("not zero");
    for n in 0..20_u32 {
        let mut packet = [0; 1_472];
        receiver
            .recv(&mut packet)
            .expect("the packet arrives in time at the new rate");
        assert_eq!(packet[..4], n.to_be_bytes());
    }
    assert!(matches!(
        control.set_line(
            PathDirection::Reverse,
            LineSpec::Constant(Rate::from_bytes_per_sec(0))
        ),
        Err(Error::ZeroRate {
            way: PathDirection::Reverse
        })
    ));
    control
        .set_loss(
            PathDirection::Forward,
            LossModel::Bernoulli(Probability::ALWAYS),
        )
        .expect("any probability");
    sender.send(b"lost").expect("send");
    await_arrivals(&emulator, 21);
    assert_eq!(emulator.finish().expect("it ran").forward.losses, 1);
}

#[test]
fn a_change_holds_for_every_packet_that_is_sent_after_it() {
    if !may_run("order") {
        return;
    }
    let emulator = emulate(LinkConfig::default(), LinkConfig::default());
    let (sender, receiver) = sockets(&emulator);
    let control = emulator.control();
    // The driver often finds a change and the packet after it at once.
    for n in 0..500_u32 {
        let loss = if n % 2 == 0 {
            LossModel::Bernoulli(Probability::ALWAYS)
        } else {
            LossModel::NONE
        };
        control
            .set_loss(PathDirection::Forward, loss)
            .expect("any probability");
        sender.send(&n.to_be_bytes()).expect("send");
        await_arrivals(&emulator, u64::from(n) + 1);
    }
    for n in (1..500_u32).step_by(2) {
        let mut packet = [0; 4];
        receiver
            .recv(&mut packet)
            .expect("none of these packets is lost");
        assert_eq!(packet, n.to_be_bytes());
    }
    assert_eq!(emulator.finish().expect("it ran").forward.losses, 250);
}

#[test]
fn a_trace_delivers_at_its_times() {
    if !may_run("trace") {
        return;
    }
    let trace = Trace::parse("50\n100\n").expect("a trace");
    let traced = LinkConfig {
        line: LineSpec::Trace(Arc::new(trace)),
        ..LinkConfig::default()
    };
    let emulator = emulate(traced, LinkConfig::default());
    let (sender, receiver) = sockets(&emulator);
    for _ in 0..4 {
        sender.send(&[0; 1_472]).expect("send");
    }
    for _ in 0..4 {
        receiver
            .recv(&mut [0; 1_472])
            .expect("an opportunity every 50 ms");
    }
    let log = emulator.finish().expect("it ran").forward;
    for record in log.records() {
        let Fate::Departed(at) = record.fate() else {
            panic!("nothing is dropped")
        };
        assert_eq!(at.as_nanos() % 50_000_000, 0);
    }
    assert_eq!(log.delivered, 4);
}

#[test]
fn invalid_links_are_refused_before_any_change() {
    let start = |forward| {
        Emulator::start(EmuConfig {
            forward,
            ..EmuConfig::default()
        })
        .expect_err("impossible")
    };
    let zero = LinkConfig {
        line: LineSpec::Constant(Rate::from_bytes_per_sec(0)),
        ..LinkConfig::default()
    };
    assert!(matches!(
        start(zero),
        Error::ZeroRate {
            way: PathDirection::Forward
        }
    ));
    let no_delay = LinkConfig {
        line: rate("96mbit"),
        queue: QueueSpec::ONE_BDP,
        ..LinkConfig::default()
    };
    let text = start(no_delay).to_string();
    assert!(
        text.starts_with("forward link: the queue holds 0 bytes, less than one packet"),
        "{text}"
    );
}

#[test]
fn existing_interfaces_are_not_taken_over() {
    if !may_run("exists") {
        return;
    }
    let name = format!("ccplane-{}-twice", std::process::id());
    let first = Namespace::create(&name).expect("a free name");
    let second = Namespace::create(&name).expect_err("the name is in use");
    assert!(
        matches!(&second, ccplane_host::Error::Exists { .. }) && second.to_string().contains(&name)
    );
    let again = first.run(|| {
        let _tun = Tun::create("link0", 1_500, &[], Offload::None).expect("a free name");
        Tun::create("link0", 1_500, &[], Offload::None)
            .expect_err("the name is in use")
            .to_string()
    });
    let again = again.expect("the test's namespace");
    assert!(
        again.contains("the interface link0 already exists")
            && again.contains("ip link delete link0")
    );
    drop(first);
    assert!(!Path::new("/run/netns").join(&name).is_symlink());
}

#[test]
fn a_command_runs_behind_the_link() {
    if !may_run("shell") {
        return;
    }
    let link = LinkConfig {
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let config = EmuConfig {
        forward: link.clone(),
        reverse: link,
        ..EmuConfig::default()
    };
    let mut host = None;
    let mut echo = None;
    // The command finds its address, talks to the host while the rate is changed, and exits with
    // its own code.
    let script = "exec 3<>/dev/udp/$CCPLANE_HOST/$PORT; echo hello >&3; answer=$(timeout 5 head -c 6 <&3); \
                  [ \"$answer\" = world ] && exit 7; exit 1";
    let mut command = Command::new("bash");
    let port = UdpSocket::bind(("0.0.0.0", 0))
        .expect("a free port")
        .local_addr()
        .expect("bound")
        .port();
    command.args(["-c", script]).env("PORT", port.to_string());
    let report = shell(&config, ShellOptions::default(), &mut command, |info| {
        let socket = UdpSocket::bind((info.host_address, port)).expect("the host's end is up");
        let id = info.id.clone();
        host = Some(info.host_address);
        echo = Some(std::thread::spawn(move || {
            let (length, from) = socket.recv_from(&mut [0; 16]).expect("hello");
            assert_eq!(length, 6);
            assert!(remote::list().contains(&id));
            let answer = remote::request(&id, "set down rate 1mbit").expect("a good request");
            assert!(answer.contains("down rate 1mbit"), "{answer}");
            let refused = remote::request(&id, "set rate 0mbit")
                .expect_err("a rate of zero")
                .to_string();
            assert!(refused.contains("0"), "{refused}");
            assert!(
                remote::request(&id, "nonsense")
                    .expect_err("no request")
                    .to_string()
                    .contains("set [up|down] rate")
            );
            socket.send_to(b"world\n", from).expect("send");
        }));
    })
    .expect("it ran");
    echo.expect("ready was called")
        .join()
        .expect("the command succeeded");
    assert_eq!(report.exit_code(), 7);
    assert_eq!(
        (
            report.report.forward.delivered,
            report.report.reverse.delivered
        ),
        (1, 1)
    );
    // Nothing is left.
    assert!(remote::list().is_empty() || !remote::list().contains(&std::process::id().to_string()));
    assert!(UdpSocket::bind((host.expect("ready was called"), 0)).is_err());
    let missing = shell(
        &config,
        ShellOptions::default(),
        &mut Command::new("/no/such/command"),
        |_| {},
    )
    .expect_err("no command");
    assert!(
        missing
            .to_string()
            .contains("cannot run `/no/such/command`")
    );
}

/// Returns a command that runs this test binary again with only `test`, one of the ignored ones
/// below.
fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
    command
        .args(["--exact", "--ignored", "--nocapture", test])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

#[test]
fn a_killed_emulator_leaves_nothing() {
    if !may_run("kill") {
        return;
    }
    let mut victim = again("namespaces::victim").spawn().expect("it starts");
    let names: Vec<String> = BufReader::new(victim.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| {
            line.split_once("namespace ")
                .map(|(_, name)| name.to_owned())
        })
        .take(2)
        .collect();
    assert_eq!(names.len(), 2);
    let links: Vec<_> = names
        .iter()
        .map(|name| Path::new("/run/netns").join(name))
        .collect();
    // `ip netns exec` opens these.
    assert!(links.iter().all(|link| std::fs::File::open(link).is_ok()));
    victim.kill().expect("it runs");
    victim.wait().expect("it runs");
    assert!(
        links.iter().all(|link| std::fs::File::open(link).is_err()),
        "the namespaces are removed"
    );
    // Another emulation may have swept already.
    ccplane_host::remove_stale_names();
    assert!(
        links.iter().all(|link| !link.is_symlink()),
        "the names are removed"
    );
}

#[test]
#[ignore = "child: killed by a_killed_emulator_leaves_nothing"]
fn victim() {
    let emulator = Emulator::start(EmuConfig::default()).expect("it starts");
    println!("\nnamespace {}", emulator.sender_ns().name());
    println!("namespace {}", emulator.receiver_ns().name());
    std::thread::sleep(StdDuration::from_secs(60));
}

#[test]
fn without_permission_the_error_says_what_is_missing() {
    if !may_run("permission") {
        return;
    }
    let output = match again("namespaces::unprivileged")
        .uid(65_534)
        .gid(65_534)
        .output()
    {
        Ok(output) => output,
        // The test binary is in a folder that other users cannot read.
        Err(reason) => {
            return skip("without_permission_the_error_says_what_is_missing", reason);
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("no permission to create the network namespace"),
        "{text}"
    );
    assert!(text.contains("CAP_NET_ADMIN"), "{text}");
}

#[test]
#[ignore = "child: without_permission_the_error_says_what_is_missing runs it as another user"]
fn unprivileged() {
    println!(
        "{}",
        Emulator::start(EmuConfig::default()).expect_err("no permission")
    );
}
