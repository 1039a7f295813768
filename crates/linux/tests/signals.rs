//! Signals of kernel TCP as seen by a program, on an emulated link: units, timeouts, undone
//! timeouts.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use crate::common::direct::*;
use crate::common::*;
use ccplane_datapath::{CommandTarget, Update};
use ccplane_emu::PathDirection;
use ccplane_host::Namespace;
use ccplane_units::{Duration, Probability};
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration as StdDuration, Instant};

#[test]
fn signals_are_in_their_units() {
    if !can_run("signals_are_in_their_units") {
        return;
    }
    let _host = lock_host();
    let mut direct = Direct::new("t_sig", vec![program(7, WATCHER_PROGRAM)], 7, &patient());
    // Twice the capacity of the path: fills the link and the queue.
    direct.updates = vec![Update {
        target: CommandTarget::Cwnd,
        value: 80_000,
    }];
    let (emulator, sink, sender) = direct.send_over_link();
    direct.turn_for(2000);
    let sent = direct.end(sender);
    direct.turn_until("it closes", |direct| !direct.closed.is_empty());

    let (flow, info) = direct.opened[0].clone();
    assert_eq!(info.local.ip(), emulator.sender_addr());
    assert_eq!(info.peer, sink.address);
    assert_eq!(info.algorithm, direct.name);
    assert!(!info.live);
    assert!(info.mss.get() > 1000 && info.init_cwnd.get() >= 10 * info.mss.get());
    assert!(
        direct
            .reports
            .iter()
            .all(|(f, uid, _, fields)| *f == flow && *uid == 7 && fields.len() == 11)
    );
    let close = direct.closed[0];
    assert_eq!(close.0, flow);
    // The closing handshake consumes a sequence number, not a byte.
    assert!(
        close.1.bytes_acked.get().abs_diff(sent) <= 2,
        "{close:?}, sent {sent}"
    );
    // The reports cover everything but the last, incomplete interval.
    assert!(
        direct.sum(ACKED_FIELD) <= sent + 2 && direct.sum(ACKED_FIELD) > sent * 8 / 10,
        "{} of {sent}",
        direct.sum(ACKED_FIELD)
    );
    let (mss, min_rtt, srtt) = (
        direct.last(MSS_FIELD),
        direct.last(MIN_RTT_FIELD),
        direct.last(SRTT_FIELD),
    );
    assert_eq!(mss, info.mss.get());
    assert!(
        (20_000..35_000).contains(&min_rtt),
        "minimum RTT {min_rtt} us"
    );
    if !emulated() {
        assert!((20_000..80_000).contains(&srtt), "smoothed RTT {srtt} us");
        // 20 Mbit/s less headers; the largest of many samples exceeds the mean. Windows are sent in
        // bursts, so the rate over the send interval only has a lower bound.
        let [incoming, outgoing] =
            [RATE_IN_FIELD, RATE_OUT_FIELD].map(|field| direct.last(field) * 8);
        assert!(
            (15_000_000..80_000_000).contains(&incoming),
            "{incoming} bit/s"
        );
        assert!(
            outgoing >= incoming / 2,
            "{outgoing} bit/s out, {incoming} in"
        );
    }
    emulator.finish().expect("it ends");
}

#[test]
fn programs_see_pacing_from_any_source() {
    if !can_run("programs_see_pacing_from_any_source") {
        return;
    }
    let _host = lock_host();
    let text = "(def (Report (paced false))) (when true (:= Report.paced Flow.paced) (report))";
    let mut direct = Direct::new("t_pace", vec![program(1, text)], 1, &patient());
    let own = Namespace::create(&format!("ccplane-pace-{}", std::process::id())).expect("as root");
    let name = direct.kernel_name();
    let connect = || {
        let connected = || {
            let sink = Sink::start("127.0.0.1");
            let stream = TcpStream::connect(sink.address).expect("it listens");
            choose(&stream, &name).expect("it is registered");
            (sink, stream)
        };
        own.run(connected).expect("inside")
    };
    // A socket that starts with BBR, possibly the host's default, stays paced.
    let shell = |script: &'static str| {
        let done = own.run(|| Command::new("sh").args(["-ec", script]).status());
        assert!(
            done.expect("inside").expect("a shell").success(),
            "{script}"
        );
    };
    shell("ip link set lo up; echo reno >/proc/sys/net/ipv4/tcp_congestion_control");
    // The signal after some ACKs: the agent's commands need one to take effect.
    let told = |direct: &mut Direct, stream: &mut TcpStream| {
        direct.reports.clear();
        direct.turn_until("twenty reports", |direct| {
            stream.write_all(&[0; 10_000]).expect("connected");
            direct.reports.len() >= 20
        });
        direct.last(0) == 1
    };

    let (_sink, mut stream) = connect();
    assert!(!told(&mut direct, &mut stream), "by nobody");
    ccplane_host::pace(&stream, 100_000_000).expect("a TCP socket");
    assert!(told(&mut direct, &mut stream), "by the socket's own limit");

    // From 1000 Gbit/s on nothing is paced: the kernel would arm a timer per packet.
    for (rate, paced) in [(100_000_000, true), (125_000_000_000, false)] {
        direct.updates = vec![Update {
            target: CommandTarget::Rate,
            value: rate,
        }];
        let (_sink, mut stream) = connect();
        assert_eq!(
            told(&mut direct, &mut stream),
            paced,
            "by the agent, {rate} bytes/s"
        );
    }

    // Only Debian's kernel, in emulation, is certain to have fq.
    if emulated() {
        direct.updates.clear();
        shell("/sbin/tc qdisc add dev lo root fq");
        let (_sink, mut stream) = connect();
        assert!(told(&mut direct, &mut stream), "by fq");
    }
}

#[test]
fn a_timeout_is_reported_at_once_and_the_flow_recovers() {
    if !can_run("a_timeout_is_reported_at_once_and_the_flow_recovers") {
        return;
    }
    let _host = lock_host();
    let mut direct = Direct::new("t_rto", vec![program(1, WATCHER_PROGRAM)], 1, &patient());
    let (emulator, sink, sender) = direct.send_over_link();
    direct.turn_until("it runs", |direct| direct.reports.len() > 20);
    emulator
        .control()
        .set_loss(PathDirection::Forward, Probability::ALWAYS)
        .expect("it runs");
    let cut = direct.reports.len();
    direct.turn_until("a timeout is reported", |direct| {
        direct.reports[cut..]
            .iter()
            .any(|(_, _, urgent, fields)| *urgent && fields[TIMEOUT_FIELD] == 1)
    });
    // If the host paused, the first timeout may be undone by ACKs in flight. The next one is
    // genuine, and nothing passes that could end it.
    direct.turn_until("the flow is in the timeout", |direct| {
        direct
            .kernel
            .flows()
            .next()
            .is_some_and(|flow| flow.ca_state == 4)
    });
    assert!(direct.sum(LOST_FIELD) > 0);
    let flow = direct.kernel.flows().next().expect("it lives");
    assert!(flow.cwnd.get() <= 10 * flow.mss.get(), "{flow:?}");
    emulator
        .control()
        .set_loss(PathDirection::Forward, Probability::NEVER)
        .expect("it runs");
    // No window is set: the datapath itself grows it again, at least to the threshold.
    direct.turn_until("the flow is open again", |direct| {
        let flow = direct.kernel.flows().next().expect("it lives");
        flow.ca_state == 0 && flow.cwnd.get() + flow.mss.get() >= flow.ssthresh.get()
    });
    let sent = direct.end(sender);
    assert_eq!(sent, sink.received());
    emulator.finish().expect("it ends");
}

#[test]
fn a_spurious_timeout_is_undone() {
    if !can_run("a_spurious_timeout_is_undone") {
        return;
    }
    let _host = lock_host();
    let mut direct = Direct::new("t_undo", vec![program(1, WATCHER_PROGRAM)], 1, &patient());
    direct.updates = vec![Update {
        target: CommandTarget::Cwnd,
        value: 40_000, // below the capacity of the path: nothing is lost before
    }];
    let (emulator, _sink, sender) = direct.send_over_link();
    direct.turn_until("it runs", |direct| direct.reports.len() > 50);
    let window = |direct: &Direct| {
        direct
            .kernel
            .flows()
            .next()
            .map_or(0, |flow| flow.cwnd.get())
    };
    let before = window(&direct);
    assert!((20_000..=40_000).contains(&before), "{before}");
    // Nothing is lost but everything is delayed: the timer fires, and timestamps then prove it
    // wrong (RFC 3522).
    let delay = |ms| {
        let delay = Duration::from_millis(ms);
        emulator
            .control()
            .set_delay(PathDirection::Forward, delay)
            .expect("it runs");
    };
    let seen =
        |reports: &[DirectReport], field| reports.iter().any(|(.., fields)| fields[field] == 1);
    let mut late = 0;
    for _ in 0..5 {
        late = direct.reports.len();
        delay(700);
        let started = Instant::now();
        while !seen(&direct.reports[late..], TIMEOUT_FIELD)
            && started.elapsed() < StdDuration::from_millis(1500)
        {
            direct.turn();
        }
        if seen(&direct.reports[late..], TIMEOUT_FIELD) {
            break;
        }
        // A pause of the host leaves an RTO longer than the delay, which shrinks within some round
        // trips. Also, a sandbox's kernel may not call BPF if the timer has interrupted a process
        // that it protects, and that timeout goes unreported.
        delay(10);
        direct.turn_until("the path is short again", |direct| {
            direct.last(SRTT_FIELD) < 40_000
        });
        direct.turn_for(500);
    }
    assert!(
        seen(&direct.reports[late..], TIMEOUT_FIELD),
        "no timeout in five attempts"
    );
    direct.turn_until("the timeout is undone", |direct| {
        seen(&direct.reports[late..], UNDONE_FIELD)
    });
    let undo = direct.reports[late..]
        .iter()
        .find(|(.., fields)| fields[UNDONE_FIELD] == 1);
    let after = undo.map_or(0, |(.., fields)| fields[WINDOW_FIELD]);
    // The kernel restores whole packets.
    assert!(after + 1500 > before, "{after} after, {before} before");
    delay(10);
    direct.end(sender);
    emulator.finish().expect("it ends");
}
