//! Time stamps of both ends on the kernel's TCP, over emulated links: what a program sees of the queue beside what the link
//! did, and everything that a peer, a middlebox or a device may do to the option.

mod common;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use ccplane_datapath::{Capabilities, Target, Update};
use ccplane_emu::{Emulator, LinkLog, Way};
use ccplane_linux::stamp::{self, Arrival, Stamps};
use ccplane_linux::{Kernel, Options};
use ccplane_tun::Namespace;
use ccplane_units::{Duration, Probability};
use common::direct::*;
use common::*;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, setsockopt, socket, sockopt,
};

/// Every ACK with what it brought.
const STAMPED: &str = "
(def (Report (owd 0) (rtt 0) (minowd 0) (minrtt 0) (queue 0) (valid 0) (acked 0)))
(when (> Ack.bytes_acked 0)
  (:= Report.owd Ack.owd_ns)
  (:= Report.rtt Ack.rtt_ns)
  (:= Report.minowd Flow.min_owd_ns)
  (:= Report.minrtt Flow.min_rtt_ns)
  (:= Report.queue Flow.queue_delay_ns)
  (:= Report.valid Flow.queue_delay_valid)
  (:= Report.acked Ack.bytes_acked)
  (report))
";
const OWD: usize = 0;
const RTT: usize = 1;
const MIN_OWD: usize = 2;
const MIN_RTT_NS: usize = 3;
const QUEUE: usize = 4;
const VALID: usize = 5;
const UNKNOWN: u64 = 0xffff_ffff;
const PATIENCE: StdDuration = StdDuration::from_secs(10);

/// A registration that reads stamps, over a link whose two ends may stamp.
struct Bed {
    direct: Direct,
    emulator: Emulator,
    stamps: Stamps,
    _sink: Option<Sink>,
}

impl Bed {
    /// `ends`: which of the two namespaces stamp, the sender's first. A window of 80,000 bytes: 50,000 fill the path.
    fn new(name: &str, ends: [bool; 2]) -> Bed {
        let kernel_name = format!("ccp_{name}");
        let mut stamps = Stamps::load(&[&kernel_name], true).unwrap_or_else(|error| panic!("{error}"));
        let options = Options {
            stamps: Some(stamps.storage().expect("its map")),
            ..options(500)
        };
        let mut direct = Direct::new(name, vec![program(7, STAMPED)], 7, &options);
        direct.updates = vec![Update {
            target: Target::Cwnd,
            value: 80_000,
        }];
        let mut config = link();
        // A whole window at once overflows nothing.
        config.forward.queue = "droptail:4bdp".parse().expect("a queue");
        let emulator = Emulator::start(config).expect("it starts");
        let namespaces = [emulator.sender_ns(), emulator.receiver_ns()];
        for (namespace, _) in namespaces.iter().zip(ends).filter(|(_, stamps)| *stamps) {
            stamps.confine(*namespace).unwrap_or_else(|error| panic!("{error}"));
            let attached = namespace.run(|| stamps.attach_device("link0")).expect("inside");
            attached.unwrap_or_else(|error| panic!("{error}"));
        }
        stamps.attach_sockets(None).unwrap_or_else(|error| panic!("{error}"));
        Bed {
            direct,
            emulator,
            stamps,
            _sink: None,
        }
    }

    /// A connection from the sender's namespace that sends until it is joined.
    fn send(&mut self) -> Flow {
        self.send_to(self.emulator.receiver_addr())
    }

    fn send_to(&mut self, address: IpAddr) -> Flow {
        let text = address.to_string();
        let sink = self.emulator.receiver_ns().run(|| Sink::start(&text)).expect("inside");
        let name = self.direct.kernel_name();
        let start = || Flow::start(sink.address, &name);
        let flow = self.emulator.sender_ns().run(start).expect("inside");
        self._sink = Some(sink);
        flow
    }

    /// Ends the connection properly; what arrived is what was sent.
    fn end(&mut self, flow: Flow) {
        flow.stop.store(true, Ordering::Relaxed);
        self.direct
            .turn_until("the transfer ends", |_| flow.thread.is_finished());
        let sent = flow.thread.join().expect("no panic");
        let sink = self._sink.as_ref().expect("it was sent to");
        eventually(PATIENCE, "every byte arrives", || sink.received() == sent);
    }

    /// Values of a field in the reports from `from` on, unknown ones left out.
    fn known(&self, from: usize, field: usize) -> Vec<u64> {
        let values = self.direct.reports[from..].iter().map(|(.., fields)| fields[field]);
        values.filter(|value| *value != UNKNOWN).collect()
    }

    fn valid(&self, from: usize) -> usize {
        self.direct.reports[from..]
            .iter()
            .filter(|(.., fields)| fields[VALID] == 1)
            .count()
    }
}

/// Sends under a congestion control that it has before it connects.
struct Flow {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Flow {
    fn start(to: SocketAddr, congestion: &str) -> Flow {
        let mut stream = connect(to, congestion);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let body = move || {
            let (chunk, mut sent) = (vec![0x55; 1 << 14], 0);
            while !seen.load(Ordering::Relaxed) {
                stream.write_all(&chunk).expect("the flow goes on");
                sent += chunk.len() as u64;
            }
            stream.shutdown(std::net::Shutdown::Write).expect("connected");
            // The sink closes when it has read everything.
            assert_eq!(stream.read(&mut [0]).expect("it ends well"), 0);
            sent
        };
        Flow {
            stop,
            thread: std::thread::spawn(body),
        }
    }
}

fn connect(to: SocketAddr, congestion: &str) -> TcpStream {
    let family = if to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp).expect("a socket");
    setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion)).expect("registered");
    // What waits in the socket must not outlast the test.
    setsockopt(&fd, sockopt::SndBuf, &200_000).expect("a size");
    nix::sys::socket::connect(fd.as_raw_fd(), &SockaddrStorage::from(to)).expect("it listens");
    TcpStream::from(fd)
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

fn arrivals(stamps: &mut Stamps) -> Vec<Arrival> {
    let mut all = Vec::new();
    stamps.arrivals(|arrival| all.push(arrival));
    all
}

/// How far the queueing delay of full packets, from their two stamps, is from what they waited in the link, ns; and how many
/// packets were found in both.
fn errors(arrivals: &[Arrival], log: &LinkLog, epoch: Duration) -> Vec<u64> {
    // Both clocks are this host's here, so when it left is known in full.
    let left = |a: &Arrival| a.at_ns - u64::from((a.at_ns as u32).wrapping_sub(a.sent));
    let full: Vec<&Arrival> = arrivals.iter().filter(|a| a.bytes > 1400).collect();
    let waited = |a: &Arrival| a.at_ns - left(a);
    let least = full.iter().map(|a| waited(a)).min().unwrap_or(0);
    let records: Vec<_> = log.records().filter(|r| r.bytes > 1400).collect();
    let shortest = records
        .iter()
        .filter_map(|r| r.sojourn())
        .min()
        .unwrap_or_default()
        .as_nanos();
    let mut next = 0;
    let mut errors = Vec::new();
    for arrival in full {
        let left = left(arrival) - epoch.as_nanos();
        // The packet that came to the link first after it was stamped.
        while records.get(next).is_some_and(|r| r.arrived.as_nanos() < left) {
            next += 1;
        }
        let Some(sojourn) = records.get(next).and_then(|r| r.sojourn()) else {
            continue;
        };
        next += 1;
        errors.push((waited(arrival) - least).abs_diff(sojourn.as_nanos() - shortest));
    }
    errors
}

#[test]
fn samples_are_what_packets_waited() {
    const TEST: &str = "samples_are_what_packets_waited";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_stamp", [true, true]);
    assert!(
        bed.direct
            .kernel
            .info()
            .capabilities
            .contains(Capabilities::ONE_WAY_DELAY)
    );
    let flow = bed.send();
    bed.direct.turn_for(2000);
    let reports = bed.direct.reports.len();
    let counters = bed.stamps.counters();
    assert!(bed.direct.kernel.flows().all(|flow| flow.stamped));
    bed.end(flow);

    assert_eq!((counters.agreed, counters.not_agreed), (2, 0), "{counters:?}");
    assert_eq!(
        (counters.offers, counters.malformed, counters.unstamped),
        (2, 0, 0),
        "{counters:?}"
    );
    assert_eq!(counters.bursts, 0, "one segment a packet: {counters:?}");
    assert!(
        counters.samples > 100 && counters.departed > counters.samples,
        "{counters:?}"
    );
    // What left has arrived, but for what was on its way when this was counted.
    assert!(counters.departed - counters.arrived < 200, "{counters:?}");
    // Almost every ACK brings a sample, and all after the first are valid.
    let fresh = bed.known(0, RTT).len();
    assert!(fresh > reports * 9 / 10, "{fresh} of {reports}");
    assert!(bed.valid(0) > reports * 9 / 10, "{} of {reports}", bed.valid(0));
    let (_, _, taken) = bed.direct.kernel.counters().next().expect("one");
    assert!(taken.stamps >= fresh as u64 && taken.stamps_dropped == 0, "{taken:?}");

    // 10 ms each way, and 30,000 bytes in the queue: 12 ms at 20 Mbit/s.
    let half = bed.direct.reports.len() / 2;
    let [queue, rtt, owd] = [QUEUE, RTT, OWD].map(|field| median(bed.known(half, field)));
    let [least_owd, least] = [MIN_OWD, MIN_RTT_NS].map(|field| bed.direct.last(field));
    let arrived = arrivals(&mut bed.stamps);
    let epoch = bed.emulator.epoch();
    let report = bed.emulator.finish().expect("it ends");
    let errors = errors(&arrived, &report.forward, epoch);
    assert!(errors.len() > 500, "{} packets of {}", errors.len(), arrived.len());
    let error = median(errors);
    println!("queue {queue} ns, rtt {rtt} ns, owd {owd} ns, least {least} ns, error {error} ns");
    if !emulated() {
        assert!((20_000_000..25_000_000).contains(&least), "least round trip {least} ns");
        assert_eq!(least_owd, least / 2);
        assert!((6_000_000..16_000_000).contains(&queue), "queue {queue} ns");
        assert!(
            rtt.abs_diff(least + queue) < 2_000_000,
            "{rtt} ns, {least} ns and {queue} ns"
        );
        assert!(owd.abs_diff(least / 2 + queue) < 2_000_000, "{owd} ns");
        // A packet takes 600 µs on this link.
        assert!(error < 300_000, "{error} ns");
    }
}

#[test]
fn ipv6_is_stamped_like_ipv4() {
    const TEST: &str = "ipv6_is_stamped_like_ipv4";
    if !can_run(TEST) || !has_ipv6(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_stamp6", [true, true]);
    let address = bed.emulator.receiver_addr_v6();
    let flow = bed.send_to(address);
    bed.direct.turn_until("samples", |direct| direct.reports.len() > 300);
    bed.end(flow);
    let reports = bed.direct.reports.len();
    assert!(bed.valid(0) > reports * 8 / 10, "{} of {reports}", bed.valid(0));
    assert_eq!(bed.stamps.counters().agreed, 2);
}

/// TCP options of the packets that this socket saw: for each, whether it was a SYN, and the bytes of kind 253.
fn options_seen(capture: &OwnedFd) -> Vec<(bool, Option<u8>)> {
    let mut packet = vec![0; 70_000];
    let mut seen = Vec::new();
    while let Ok(length) = recv(capture.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
        let ip = &packet[..length];
        if length < 40 || ip[0] != 0x45 || ip[9] != 6 {
            continue;
        }
        let tcp = &ip[20..];
        let options = &tcp[20..(usize::from(tcp[12] >> 4) * 4).min(tcp.len())];
        let (mut at, mut ours) = (0, None);
        while at < options.len() && options[at] != 0 {
            if options[at] == 1 {
                at += 1;
                continue;
            }
            if options[at] == 253 {
                ours = Some(options[at + 1]);
            }
            at += usize::from(options[at + 1]);
        }
        seen.push((tcp[13] & 2 != 0, ours));
    }
    seen
}

fn capture(namespace: &Namespace) -> OwnedFd {
    let open = || {
        let family = AddressFamily::Packet;
        let fd = socket(
            family,
            SockType::Datagram,
            SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        )
        .expect("as root");
        setsockopt(&fd, sockopt::RcvBufForce, &(64 << 20)).expect("as root");
        fd
    };
    namespace.run(open).expect("inside")
}

#[test]
fn a_peer_without_stamps_sees_ordinary_tcp() {
    const TEST: &str = "a_peer_without_stamps_sees_ordinary_tcp";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    for ends in [[true, false], [false, true], [true, true]] {
        let mut bed = Bed::new("t_peer", ends);
        let watch = capture(bed.emulator.receiver_ns());
        let flow = bed.send();
        bed.direct.turn_until("it runs", |direct| direct.reports.len() > 200);
        bed.end(flow);
        let seen = options_seen(&watch);
        let after = seen.iter().filter(|(syn, ours)| !syn && ours.is_some()).count();
        let syns: Vec<_> = seen.iter().filter(|(syn, _)| *syn).map(|(_, ours)| *ours).collect();
        let (counters, valid) = (bed.stamps.counters(), bed.valid(0));
        match ends {
            // It offers, nobody answers.
            [true, false] => {
                assert_eq!((syns, after), (vec![Some(4), None], 0), "{counters:?}");
                assert_eq!((counters.agreed, counters.not_agreed, counters.departed), (0, 1, 0));
            }
            // It would answer, nobody asks.
            [false, true] => {
                assert_eq!((syns, after), (vec![None, None], 0), "{counters:?}");
                assert_eq!((counters.agreed, counters.not_agreed), (0, 0), "{counters:?}");
            }
            _ => {
                assert_eq!(syns, vec![Some(4), Some(4)], "{counters:?}");
                // What follows the handshake carries it, but for the few that close the connection.
                assert!(
                    after + counters.no_room as usize + 4 >= seen.len() - 2 && valid > 100,
                    "{after} of {}, {counters:?}",
                    seen.len()
                );
            }
        }
        assert!(ends == [true, true] || valid == 0, "{ends:?}: {valid}");
    }
}

#[test]
fn a_connection_that_did_not_ask_carries_no_option() {
    const TEST: &str = "a_connection_that_did_not_ask_carries_no_option";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_other", [true, true]);
    let watch = capture(bed.emulator.receiver_ns());
    let address = bed.emulator.receiver_addr().to_string();
    let sink = bed
        .emulator
        .receiver_ns()
        .run(|| Sink::start(&address))
        .expect("inside");
    let flow = bed
        .emulator
        .sender_ns()
        .run(|| Flow::start(sink.address, "reno"))
        .expect("inside");
    bed.direct.turn_for(300);
    flow.stop.store(true, Ordering::Relaxed);
    flow.thread.join().expect("no panic");
    let seen = options_seen(&watch);
    assert!(seen.len() > 100 && seen.iter().all(|(_, ours)| ours.is_none()));
    assert_eq!(bed.stamps.counters(), stamp::StampCounters::default());
}

#[test]
fn losses_are_repaired_by_sack_beside_stamps() {
    const TEST: &str = "losses_are_repaired_by_sack_beside_stamps";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_sack", [true, true]);
    let [loss, none] = ["2%", "0%"].map(|share| share.parse::<Probability>().expect("a share"));
    bed.emulator.control().set_loss(Way::Forward, loss).expect("it runs");
    let flow = bed.send();
    bed.direct.turn_for(3000);
    bed.emulator.control().set_loss(Way::Forward, none).expect("it runs");
    bed.end(flow);
    let counters = bed.stamps.counters();
    let lost = bed.emulator.finish().expect("it ends").forward.losses;
    assert!(lost > 10, "{lost}");
    // Two blocks of SACK and more leave no room, one does.
    assert!(
        counters.no_room > 0 && counters.samples > 100,
        "{counters:?}, {lost} lost"
    );
    let (_, _, taken) = bed.direct.kernel.counters().next().expect("one");
    assert!(taken.stamps_dropped * 20 < taken.stamps, "{taken:?}");
}

/// A middlebox at the sender's device, behind the stamps: `bpf/mangle.bpf.c`.
struct Middlebox {
    object: Object,
    _link: OwnedFd,
}

impl Middlebox {
    /// `None` on a kernel without tcx (before Linux 6.6).
    fn start(namespace: &Namespace) -> Option<Middlebox> {
        let bytes = include_bytes!("../bpf/prebuilt/mangle.bpf.o");
        let open = ObjectBuilder::default().open_memory(bytes).expect("an object");
        let object = open.load().expect("the verifier takes it");
        let program = object.progs_mut().next().expect("its program");
        let program = std::os::fd::AsFd::as_fd(&program).as_raw_fd();
        let attach = || {
            let index = nix::net::if_::if_nametoindex("link0").expect("its device");
            let kind = libbpf_rs::libbpf_sys::BPF_TCX_EGRESS;
            // SAFETY: an open program, no options.
            unsafe { libbpf_rs::libbpf_sys::bpf_link_create(program, index as i32, kind, std::ptr::null()) }
        };
        let fd = namespace.run(attach).expect("inside");
        if fd < 0 {
            eprintln!("SKIPPED: a middlebox: this kernel has no tcx");
            return None;
        }
        // SAFETY: just made, and nobody else's.
        let link = unsafe { OwnedFd::from_raw_fd(fd) };
        Some(Middlebox { object, _link: link })
    }

    fn set(&self, mode: u32) {
        let map = self
            .object
            .maps()
            .find(|map| map.name() == ".data.mode")
            .expect("it has");
        map.update(&0u32.to_ne_bytes(), &mode.to_ne_bytes(), MapFlags::ANY)
            .expect("its entry");
    }
}

#[test]
fn what_a_middlebox_does_costs_samples_and_nothing_else() {
    const TEST: &str = "what_a_middlebox_does_costs_samples_and_nothing_else";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    const STRIP: u32 = 1;
    const SHORTEN: u32 = 2;
    const JUMP: u32 = 3;
    for (mode, receivers) in [(STRIP, false), (SHORTEN, false), (JUMP, true)] {
        let mut bed = Bed::new("t_middle", [true, true]);
        // Data loses its stamps at the sender's side, answers their echo at the receiver's.
        let side = if receivers {
            bed.emulator.receiver_ns()
        } else {
            bed.emulator.sender_ns()
        };
        let Some(middlebox) = Middlebox::start(side) else {
            return;
        };
        let flow = bed.send();
        bed.direct.turn_until("it runs", |direct| direct.reports.len() > 200);
        assert!(bed.valid(0) > 100);
        let before = bed.stamps.counters();
        let dropped = |bed: &Bed| {
            bed.direct
                .kernel
                .counters()
                .next()
                .map_or(0, |(_, _, c)| c.stamps_dropped)
        };
        assert_eq!(dropped(&bed), 0);
        middlebox.set(mode);
        // What was on its way is still whole: two round trips.
        bed.direct.turn_for(200);
        let from = bed.direct.reports.len();
        let between = bed.stamps.counters();
        bed.direct
            .turn_until("it goes on", |direct| direct.reports.len() > from + 200);
        let after = bed.stamps.counters();
        assert_eq!(bed.valid(from), 0, "mode {mode}: {after:?}");
        match mode {
            STRIP => assert_eq!((after.samples, after.malformed), (between.samples, 0), "{after:?}"),
            SHORTEN => {
                assert_eq!(after.samples, between.samples, "{after:?}");
                assert!(after.malformed > before.malformed + 100, "{after:?}");
            }
            _ => assert!(dropped(&bed) > 100, "{after:?}"),
        }
        middlebox.set(0);
        bed.direct.turn_for(200);
        let from = bed.direct.reports.len();
        bed.direct
            .turn_until("samples again", |direct| direct.reports.len() > from + 100);
        assert!(bed.valid(from) > 50, "mode {mode}: {}", bed.valid(from));
        bed.end(flow);
    }
}

#[test]
fn a_flow_goes_on_without_its_stamps() {
    const TEST: &str = "a_flow_goes_on_without_its_stamps";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_gone", [true, true]);
    let flow = bed.send();
    bed.direct.turn_until("it runs", |direct| direct.reports.len() > 200);
    assert!(bed.valid(0) > 100);
    // As when the process that attached them is killed.
    let emulator = bed.emulator;
    drop(bed.stamps);
    bed.direct.turn_for(200);
    let from = bed.direct.reports.len();
    bed.direct
        .turn_until("it goes on", |direct| direct.reports.len() > from + 200);
    let late = &bed.direct.reports[from..];
    assert!(
        late.iter()
            .all(|(.., fields)| fields[VALID] == 0 && fields[QUEUE] == UNKNOWN)
    );
    flow.stop.store(true, Ordering::Relaxed);
    bed.direct
        .turn_until("the transfer ends", |_| flow.thread.is_finished());
    flow.thread.join().expect("it ended well");
    emulator.finish().expect("it ends");
}

#[test]
fn a_device_that_vanishes_takes_its_stamps_along() {
    const TEST: &str = "a_device_that_vanishes_takes_its_stamps_along";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let bed = Bed::new("t_vanish", [true, true]);
    // The namespaces stay, the devices go.
    bed.emulator.finish().expect("it ends");
    drop(bed.stamps);
    eventually(PATIENCE, "no program of ours is left", || ours_loaded() == 0);
}

/// Programs of stamp.bpf.c in this kernel.
fn ours_loaded() -> usize {
    let names = ["depart_ether", "arrive_ether", "depart_ip", "arrive_ip"];
    libbpf_rs::query::ProgInfoIter::default()
        .filter(|info| names.iter().any(|name| info.name.to_string_lossy() == *name))
        .count()
}

/// Not a test: a process that stamps on an emulated link until it is killed.
#[test]
#[ignore = "the process that is killed"]
fn stamping_process() {
    if std::env::var_os("CCPLANE_TEST_STAMPS").is_none() {
        return;
    }
    let mut bed = Bed::new("t_kill", [true, true]);
    let _flow = bed.send();
    bed.direct.turn_until("it runs", |direct| direct.reports.len() > 200);
    println!("\nstamping");
    bed.direct.turn_for(60_000);
}

#[test]
fn a_killed_process_leaves_nothing() {
    const TEST: &str = "a_killed_process_leaves_nothing";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    assert_eq!(ours_loaded(), 0);
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "stamping_process", "--ignored", "--nocapture"])
        .env("CCPLANE_TEST_STAMPS", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while line.trim() != "stamping" {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut said, &mut line).expect("text") > 0,
            "it ended"
        );
    }
    assert_eq!(ours_loaded(), 4);
    child.kill().expect("our child");
    child.wait().expect("our child");
    eventually(PATIENCE, "no program of ours is left", || ours_loaded() == 0);
    ccplane_tun::sweep();
    drop(Kernel::load(&[spec("t_kill", vec![program(7, STAMPED)])], &options(500)).expect("its name is free"));
}

#[test]
fn pinned_stamps_outlive_their_process_until_they_are_detached() {
    const TEST: &str = "pinned_stamps_outlive_their_process_until_they_are_detached";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    const NAME: &str = "ccp_t_pin";
    let namespace = Namespace::create(&format!("ccplane-pin-{}", std::process::id())).expect("as root");
    let limit = || {
        let shown = Command::new("ip")
            .args(["-d", "link", "show", "lo"])
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let shown = shown.unwrap_or_default();
        let mut words = shown.split_whitespace();
        words.find(|word| *word == "gso_max_segs");
        words.next().and_then(|number| number.parse::<u32>().ok())
    };
    let limit = || namespace.run(limit).expect("inside");
    let before = limit();
    let attach = || {
        let mut stamps = Stamps::load(&[NAME], false).unwrap_or_else(|error| panic!("{error}"));
        stamps.confine(&namespace).unwrap_or_else(|error| panic!("{error}"));
        stamps.attach_sockets(None).unwrap_or_else(|error| panic!("{error}"));
        namespace
            .run(|| stamps.attach_device("lo"))
            .expect("inside")
            .unwrap_or_else(|error| panic!("{error}"));
        stamps
    };
    // Not pinned: gone with the value, and the device is as before.
    drop(attach());
    assert_eq!(limit(), before);

    let mut stamps = attach();
    stamps.pin(NAME).unwrap_or_else(|error| panic!("{error}"));
    assert!(attach().pin(NAME).is_err(), "it is attached already");
    drop(stamps);
    assert!(ours_loaded() > 0);
    // A kernel whose `ip` does not tell has nothing to compare.
    assert!(before.is_none() || limit() == Some(1), "{:?}", limit());
    let observed = stamp::observe().expect("bpffs");
    assert_eq!(observed.iter().map(|o| o.name()).collect::<Vec<_>>(), [NAME]);
    assert_eq!(observed[0].counters(), stamp::StampCounters::default());
    drop(observed);
    let detached = namespace
        .run(|| stamp::detach(Some(NAME)))
        .expect("inside")
        .expect("it works");
    assert_eq!(detached, [NAME]);
    assert_eq!(limit(), before);
    eventually(PATIENCE, "no program of ours is left", || ours_loaded() == 0);
    assert!(stamp::observe().expect("bpffs").is_empty());
}
