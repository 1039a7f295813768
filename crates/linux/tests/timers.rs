//! Programs that run by timer, without an ACK.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant};

use crate::common::direct::*;
use crate::common::*;
use ccplane_datapath::{Capabilities, Program};
use ccplane_linux::{Kernel, RegistrationOptions};
use ccplane_wire::WireCommand;

/// Counts acknowledged bytes and reports; sets a window of its own after the first report.
const CLOCK_PROGRAM: &str = "
(def (Report (volatile acked 0) (ticks 0) (window 0)) (interval 20000))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (:= Report.window Cwnd) (fallthrough))
(when (> Micros interval) (:= Micros 0) (:= Report.ticks (+ Report.ticks 1))
    (:= Cwnd (+ 100000 Report.ticks)) (report))
";
const TICKS_FIELD: usize = 1;

fn start(
    name: &str,
    wants: Capabilities,
    programs: Vec<Arc<Program>>,
    options: &RegistrationOptions,
) -> Direct {
    let mut spec = spec(name, programs);
    spec.wants = spec.wants.union(wants);
    let kernel = Kernel::load(&[spec], options).unwrap_or_else(|error| panic!("{error}"));
    Direct::over(kernel, name, 1)
}

/// A connection to a peer that does not read: its window is closed, and the only ACKs are answers
/// to probes.
struct StalledConnection {
    sender: TcpStream,
    receiver: TcpStream,
}

fn stall(direct: &mut Direct) -> StalledConnection {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    choose(&sender, &direct.kernel_name()).expect("registered");
    let (receiver, _) = listener.accept().expect("connected");
    sender.set_nonblocking(true).expect("a socket");
    let stalled = StalledConnection { sender, receiver };
    stalled.fill(direct);
    stalled
}

impl StalledConnection {
    /// Writes until nothing more fits for a while.
    fn fill(&self, direct: &mut Direct) {
        let chunk = vec![0x55; 1 << 16];
        let mut full = Instant::now();
        while full.elapsed() < StdDuration::from_millis(300) {
            if matches!((&self.sender).write(&chunk), Ok(n) if n > 0) {
                full = Instant::now();
            }
            direct.turn();
        }
    }

    fn read(&mut self, bytes: usize) {
        let mut left = bytes;
        let mut buffer = vec![0; 1 << 16];
        while left > 0 {
            let n = buffer.len().min(left);
            left -= self.receiver.read(&mut buffer[..n]).expect("bytes wait");
        }
    }
}

/// Returns the ticks of the reports received within a second.
fn ticks_of_a_second(direct: &mut Direct) -> Vec<u64> {
    direct.turn_for(50);
    direct.reports.clear();
    direct.turn_for(1000);
    direct
        .reports
        .iter()
        .map(|(.., fields)| fields[TICKS_FIELD])
        .collect()
}

fn each_follows_the_one_before(ticks: &[u64]) -> bool {
    ticks.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[test]
fn timers_run_programs_without_an_ack() {
    if !can_run("timers_run_programs_without_an_ack") {
        return;
    }
    let _host = lock_host();
    let mut direct = start(
        "t_clock",
        Capabilities::TIMERS,
        vec![program(1, CLOCK_PROGRAM)],
        &patient(),
    );
    assert!(
        direct
            .kernel
            .info()
            .capabilities
            .contains(Capabilities::TIMERS)
    );
    let mut stalled = stall(&mut direct);
    let ticks = ticks_of_a_second(&mut direct);
    assert!(
        (40..=51).contains(&ticks.len()),
        "{} reports in 50 intervals",
        ticks.len()
    );
    assert!(each_follows_the_one_before(&ticks), "{ticks:?}");
    // The next ACK continues from the timer's state: its variables, clock and window.
    let last = ticks.last().copied().unwrap_or(0);
    direct.reports.clear();
    stalled.read(1 << 20);
    direct.turn_for(200);
    let after: Vec<u64> = direct
        .reports
        .iter()
        .map(|(.., fields)| fields[TICKS_FIELD])
        .collect();
    assert!(
        after.first().is_some_and(|first| *first <= last + 3),
        "{last}, then {after:?}"
    );
    assert!(each_follows_the_one_before(&after), "{after:?}");
    let in_force = direct.kernel.flows().next().expect("it lives").cwnd;
    let last = after.last().copied().unwrap_or(0);
    // The last window may wait for an ACK.
    let of = in_force.get() - 100_000;
    assert!(of > ticks[0] && of <= last, "{in_force:?} after {last}");
    // A program installed later is interpreted, and equally punctual.
    let uid = 2;
    let algorithm: Arc<str> = "t_clock".into();
    direct.kernel.apply(&WireCommand::Install {
        algorithm,
        program: program(uid, CLOCK_PROGRAM),
    });
    let flow = direct.opened[0].0;
    direct.kernel.apply(&WireCommand::SetProgram {
        flow,
        uid,
        updates: Default::default(),
    });
    stalled.read(1 << 20);
    // Reading has made room.
    stalled.fill(&mut direct);
    let ticks = ticks_of_a_second(&mut direct);
    assert!(direct.reports.iter().all(|(_, by, ..)| *by == uid));
    assert!(
        (40..=51).contains(&ticks.len()),
        "{} reports in 50 intervals",
        ticks.len()
    );
    assert!(each_follows_the_one_before(&ticks), "{ticks:?}");
    // After the end of the flow there are no more reports.
    drop(stalled);
    direct.turn_until("it closes", |direct| direct.closed.len() == 1);
    direct.reports.clear();
    direct.turn_for(100);
    assert!(direct.reports.is_empty());
    assert!(direct.refused.is_empty(), "{:?}", direct.refused);
}

#[test]
fn an_algorithm_that_wants_no_timers_has_none() {
    if !can_run("an_algorithm_that_wants_no_timers_has_none") {
        return;
    }
    let _host = lock_host();
    let none = Capabilities::default();
    let mut direct = start("t_acks", none, vec![program(1, CLOCK_PROGRAM)], &patient());
    assert!(
        !direct
            .kernel
            .info()
            .capabilities
            .contains(Capabilities::TIMERS)
    );
    let stalled = stall(&mut direct);
    let ticks = ticks_of_a_second(&mut direct);
    assert!(
        ticks.len() < 10,
        "{} reports, all caused by probe replies",
        ticks.len()
    );
    drop(stalled);
}

/// Timers and ACKs coincide at every point: acknowledged bytes are reported exactly once, however
/// the two interleave.
#[test]
fn concurrent_timers_and_acks_lose_and_repeat_nothing() {
    if !can_run("concurrent_timers_and_acks_lose_and_repeat_nothing") {
        return;
    }
    let _host = lock_host();
    let often = CLOCK_PROGRAM.replace("(interval 20000)", "(interval 120)");
    let mut direct = start(
        "t_meet",
        Capabilities::TIMERS,
        vec![program(1, &often)],
        &patient(),
    );
    let (_emulator, sink, sender) = direct.send_over_link();
    direct.turn_until("it opens", |direct| !direct.opened.is_empty());
    let flow = direct.opened[0].0;
    direct.turn_for(1500);
    direct.end(sender);
    direct.turn_until("it closes", |direct| !direct.closed.is_empty());
    let ticks: Vec<u64> = direct
        .reports
        .iter()
        .map(|(.., fields)| fields[TICKS_FIELD])
        .collect();
    let odd: Vec<_> = ticks
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[1] != pair[0] + 1)
        .collect();
    assert!(
        odd.is_empty(),
        "of {} ticks some were lost or repeated: {odd:?}",
        ticks.len()
    );
    assert!(ticks.len() > 1000, "{} ticks", ticks.len());
    let (_, stats) = direct
        .closed
        .iter()
        .find(|(closed, _)| *closed == flow)
        .expect("it closed");
    assert_eq!(stats.reports, direct.reports.len() as u64);
    // Some bytes were acknowledged before the program was set, and after its last report.
    let (reported, acked) = (direct.sum(ACKED_FIELD), stats.bytes_acked.get());
    assert!(
        reported <= acked && acked - reported < 500_000,
        "{reported} of {acked}"
    );
    assert!(sink.received() > 1_000_000);
    let counters = direct.kernel.counters().next().expect("one").2;
    assert_eq!((counters.faults, counters.ring_lost), (0, 0));
}

#[test]
fn timers_outlive_the_process_that_made_them() {
    if !can_run("timers_outlive_the_process_that_made_them") {
        return;
    }
    let _host = lock_host();
    let mut options = patient();
    options.pin = true;
    let mut direct = start(
        "t_kept",
        Capabilities::TIMERS,
        vec![program(1, CLOCK_PROGRAM)],
        &options,
    );
    let stalled = stall(&mut direct);
    drop(direct);
    let mut spec = spec("t_kept", vec![program(1, CLOCK_PROGRAM)]);
    spec.wants = spec.wants.union(Capabilities::TIMERS);
    let kernel = Kernel::adopt(&[spec], &options.limits).unwrap_or_else(|error| panic!("{error}"));
    assert!(kernel.info().capabilities.contains(Capabilities::TIMERS));
    let mut direct = Direct::over(kernel, "t_kept", 1);
    let ticks = ticks_of_a_second(&mut direct);
    assert!(
        (40..=51).contains(&ticks.len()),
        "{} reports in 50 intervals",
        ticks.len()
    );
    drop(stalled);
    drop(direct);
    ccplane_linux::detach(Some("ccp_t_kept")).expect("it was attached");
}

/// Measurement for `docs/performance.md`: `cargo test --release -p ccplane-linux --test serial
/// timers -- --ignored --nocapture`.
#[test]
#[ignore = "measures: needs an idle machine"]
fn timer_cost_per_ack() {
    let _host = lock_host();
    let _counting = BpfStats::start();
    let mut ns_an_ack = [Vec::new(), Vec::new()];
    for _ in 0..7 {
        for (wants, all) in [Capabilities::CWND, Capabilities::TIMERS]
            .into_iter()
            .zip(&mut ns_an_ack)
        {
            let mut direct = start(
                "t_cost",
                wants,
                vec![program(1, WATCHER_PROGRAM)],
                &patient(),
            );
            let sink = Sink::start("127.0.0.1");
            let sender = Sender::start(sink.address, &direct.kernel_name());
            direct.turn_until("it opens", |direct| !direct.opened.is_empty());
            direct.turn_for(200);
            let (before_ns, before) = BpfStats::of_acks();
            direct.turn_for(1500);
            let (ns, acks) = BpfStats::of_acks();
            all.push((ns - before_ns) / (acks - before).max(1));
            direct.end(sender);
        }
    }
    let [without, with] = ns_an_ack.map(|mut all| {
        all.sort_unstable();
        all
    });
    println!("ns per ACK, seven rounds: without timers {without:?}, with {with:?}");
}

/// Enables the kernel's run-time statistics of BPF programs.
struct BpfStats {
    before: String,
}

impl BpfStats {
    const BPF_STATS_SYSCTL: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn start() -> BpfStats {
        let before = std::fs::read_to_string(BpfStats::BPF_STATS_SYSCTL).expect("as root");
        std::fs::write(BpfStats::BPF_STATS_SYSCTL, "1").expect("as root");
        BpfStats { before }
    }

    /// Returns total ns and number of calls of the programs that run on ACKs.
    fn of_acks() -> (u64, u64) {
        let all = libbpf_rs::query::ProgInfoIter::default();
        let acks = all.filter(|info| info.name.to_string_lossy().starts_with("cong_control"));
        acks.fold((0, 0), |(ns, count), info| {
            (ns + info.run_time_ns, count + info.run_cnt)
        })
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        let _ = std::fs::write(BpfStats::BPF_STATS_SYSCTL, &self.before);
    }
}
