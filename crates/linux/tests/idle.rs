//! Window after idle periods and after timeouts, on real packets through an emulated link.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration as StdDuration, Instant};

use crate::common::direct::*;
use crate::common::*;
use ccplane_datapath::{Capabilities, CommandTarget, Update};
use ccplane_emu::qdisc::{LineSpec, LinkSeeds, QueueSpec};
use ccplane_emu::{EmuConfig, Emulator, LinkConfig, PathDirection};
use ccplane_linux::Kernel;
use ccplane_units::{Duration, Rate};

/// Maintains a window of its own, as model-based algorithms do, and sets it on every call and every
/// 20 ms.
const OWN_WINDOW_PROGRAM: &str = "
(def (Report (volatile acked 0)) (window 150000))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (:= Cwnd window) (fallthrough))
(when (> Micros 20000) (:= Micros 0) (report))
";
/// The window in segments.
const WINDOW_SEGMENTS: u32 = 150_000 / 1_448;

fn link() -> EmuConfig {
    let way = |seed| LinkConfig {
        line: LineSpec::Constant(Rate::from_bits_per_sec(200_000_000)),
        delay: Duration::from_millis(20),
        queue: QueueSpec::ONE_BDP,
        seeds: LinkSeeds::from_seed(seed),
        ..LinkConfig::default()
    };
    EmuConfig {
        forward: way(1),
        reverse: way(2),
        ..EmuConfig::default()
    }
}

fn start(name: &str, wants: Capabilities) -> Direct {
    let mut spec = spec(name, vec![program(1, OWN_WINDOW_PROGRAM)]);
    spec.wants = spec.wants.union(wants);
    let kernel = Kernel::load(&[spec], &patient()).unwrap_or_else(|error| panic!("{error}"));
    Direct::over(kernel, name, 1)
}

fn in_flight(info: &libc::tcp_info) -> u32 {
    (info.tcpi_unacked + info.tcpi_retrans) - info.tcpi_sacked - info.tcpi_lost
}

/// Returns the segments that are sent at once when a flow resumes after 1.5 s, and the window then.
fn after_idle(name: &str, sysctl: bool, wants: Capabilities) -> (u32, u32) {
    let mut direct = start(name, wants);
    let emulator = Emulator::start(link()).expect("it starts");
    let sink = Sink::behind(&emulator);
    let outcome = emulator.sender_ns().run(|| {
        let value = if sysctl { "1" } else { "0" };
        std::fs::write("/proc/sys/net/ipv4/tcp_slow_start_after_idle", value)
            .expect("a namespace of our own");
        let mut stream = TcpStream::connect(sink.address).expect("reachable");
        choose(&stream, &direct.kernel_name()).expect("registered");
        stream.set_nonblocking(true).expect("a socket");
        let chunk = vec![0; 1 << 20];
        let _ = stream.write(&chunk);
        direct.turn_until("the program steers", |_| {
            tcp_info(&stream).tcpi_snd_cwnd == WINDOW_SEGMENTS
        });
        direct.turn_until("everything is acknowledged", |_| {
            tcp_info(&stream).tcpi_unacked == 0
        });
        direct.turn_for(1_500);
        let _ = stream.write(&chunk);
        let window = tcp_info(&stream).tcpi_snd_cwnd;
        // Before the first ACK.
        let (begun, mut left) = (Instant::now(), 0);
        while begun.elapsed() < StdDuration::from_millis(30) {
            left = left.max(in_flight(&tcp_info(&stream)));
        }
        let first = (left, window);
        direct.turn_until("the window is restored", |_| {
            tcp_info(&stream).tcpi_snd_cwnd == WINDOW_SEGMENTS
        });
        first
    });
    drop(emulator.finish());
    outcome.expect("inside")
}

/// Largest number of segments sent before the first ACK of a restart: the window of 10, plus a
/// first offload burst.
const RESTARTED_MAX: u32 = 16;

/// RFC 5681, section 4.1, according to the namespace's `tcp_slow_start_after_idle`. The first
/// offload burst leaves before the kernel signals the restart, and is counted.
#[test]
fn a_steered_flow_restarts_after_an_idle_time() {
    if !can_run("a_steered_flow_restarts_after_an_idle_time") {
        return;
    }
    let _host = lock_host();
    let (left, window) = after_idle("t_idle", true, Capabilities::CWND);
    eprintln!("{left} segments, window {window}");
    assert!(
        left <= RESTARTED_MAX && window == 10,
        "{left} segments, window {window}"
    );
    let (left, window) = after_idle("t_idle", false, Capabilities::CWND);
    assert!(
        left > RESTARTED_MAX && window == WINDOW_SEGMENTS,
        "sysctl 0: {left} segments, window {window}"
    );
    let (left, window) = after_idle("t_idle", true, Capabilities::KEEPS_WINDOW);
    assert!(
        left > RESTARTED_MAX && window == WINDOW_SEGMENTS,
        "declined: {left} segments, window {window}"
    );
}

/// RFC 5681, section 3.1: while the link is down one segment is in flight, although the program's
/// timer sets its window every 20 ms and the application keeps writing.
#[test]
fn one_segment_is_in_flight_between_a_timeout_and_the_next_delivery() {
    if !can_run("one_segment_is_in_flight_between_a_timeout_and_the_next_delivery") {
        return;
    }
    let _host = lock_host();
    let mut direct = start("t_outage", Capabilities::TIMERS);
    direct.updates = vec![Update {
        target: CommandTarget::Cwnd,
        value: 150_000,
    }];
    let emulator = Emulator::start(link()).expect("it starts");
    let control = emulator.control();
    let sink = Sink::behind(&emulator);
    let outcome = emulator.sender_ns().run(|| {
        let mut stream = TcpStream::connect(sink.address).expect("reachable");
        choose(&stream, &direct.kernel_name()).expect("registered");
        stream.set_nonblocking(true).expect("a socket");
        let chunk = vec![0; 1 << 16];
        let mut turns = |direct: &mut Direct, ms: u64, each: &mut dyn FnMut(&libc::tcp_info)| {
            for _ in 0..ms / 4 {
                let _ = stream.write(&chunk);
                direct.turn_for(4);
                each(&tcp_info(&stream));
            }
        };
        turns(&mut direct, 600, &mut |_| {});
        control.set_up(PathDirection::Forward, false);
        let (mut most, mut timeouts, mut resent) = (0, 0, 0);
        let before = sink.received();
        turns(&mut direct, 2_500, &mut |info| {
            if info.tcpi_backoff > 0 {
                most = most.max(in_flight(info));
                timeouts = timeouts.max(info.tcpi_backoff);
                resent = info.tcpi_total_retrans;
            }
        });
        control.set_up(PathDirection::Forward, true);
        turns(&mut direct, 3_000, &mut |_| {});
        (most, timeouts, resent, sink.received() > before)
    });
    drop(emulator.finish());
    let (most, timeouts, resent, goes_on) = outcome.expect("inside");
    eprintln!("{most} in flight, {timeouts} timeouts, {resent} resent");
    assert!(
        timeouts >= 2 && goes_on,
        "{timeouts} consecutive timeouts; continues: {goes_on}"
    );
    assert!(most <= 1, "{most} segments in flight after a timeout");
    assert!(
        resent <= u32::from(timeouts) + 2,
        "{resent} resent in {timeouts} timeouts"
    );
}
