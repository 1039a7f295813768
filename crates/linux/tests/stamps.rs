//! Timestamps of both ends for kernel TCP over emulated links: the queue seen by a program compared
//! with the link's log, and everything that a peer, a middlebox or another program may do to the
//! option.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::common::stamped::*;
use crate::common::*;
use ccplane_datapath::Capabilities;
use ccplane_emu::{LinkLog, PathDirection};
use ccplane_host::Namespace;
use ccplane_linux::stamp::{StampCounters, StampPrograms, StampedArrival};
use ccplane_units::stats::upper_rank;
use ccplane_units::{Duration, Probability};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    upper_rank(&values, 0.5).unwrap_or(0)
}

fn arrivals(stamps: &mut StampPrograms) -> Vec<StampedArrival> {
    let mut all = Vec::new();
    stamps.drain_arrivals(|arrival| all.push(arrival));
    all
}

/// Returns the errors, ns, of the queueing delay of full-sized packets from their two timestamps,
/// compared with their wait in the link, for each packet found in both.
fn errors(arrivals: &[StampedArrival], log: &LinkLog, epoch: Duration) -> Vec<u64> {
    // Both clocks are this host's, so the full departure time is known.
    let left = |a: &StampedArrival| a.at_ns - u64::from((a.at_ns as u32).wrapping_sub(a.sent));
    let full: Vec<&StampedArrival> = arrivals.iter().filter(|a| a.bytes > 1400).collect();
    let waited = |a: &StampedArrival| a.at_ns - left(a);
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
        // The first packet to reach the link after it was stamped.
        while records
            .get(next)
            .is_some_and(|r| r.arrived.as_nanos() < left)
        {
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
fn samples_measure_the_queueing_delay() {
    const TEST: &str = "samples_measure_the_queueing_delay";
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
    assert!(bed.direct.kernel.flows().all(|flow| flow.has_queue_delay));
    bed.end(flow);

    assert_eq!(
        (counters.agreed, counters.not_agreed),
        (2, 0),
        "{counters:?}"
    );
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
    // Everything that departed has arrived, except packets in flight at the time of counting.
    assert!(counters.departed - counters.arrived < 200, "{counters:?}");
    // Almost every ACK carries a sample, and all after the first are valid.
    let fresh = bed.known(0, RTT_FIELD).len();
    assert!(fresh > reports * 9 / 10, "{fresh} of {reports}");
    assert!(
        bed.valid(0) > reports * 9 / 10,
        "{} of {reports}",
        bed.valid(0)
    );
    let (_, _, taken) = bed.direct.kernel.counters().next().expect("one");
    assert!(
        taken.stamps >= fresh as u64 && taken.stamps_dropped == 0,
        "{taken:?}"
    );

    // 10 ms each way, and 30,000 bytes in the queue: 12 ms at 20 Mbit/s.
    let half = bed.direct.reports.len() / 2;
    let [queue, rtt, owd] =
        [QUEUE_DELAY_FIELD, RTT_FIELD, OWD_FIELD].map(|field| median(bed.known(half, field)));
    let [least_owd, least] =
        [MIN_OWD_FIELD, MIN_STAMPED_RTT_FIELD].map(|field| bed.direct.last(field));
    let arrived = arrivals(&mut bed.stamps);
    let epoch = bed.emulator.epoch();
    let report = bed.emulator.finish().expect("it ends");
    let errors = errors(&arrived, &report.forward, epoch);
    assert!(
        errors.len() > 500,
        "{} packets of {}",
        errors.len(),
        arrived.len()
    );
    let error = median(errors);
    println!("queue {queue} ns, rtt {rtt} ns, owd {owd} ns, least {least} ns, error {error} ns");
    if !emulated() {
        assert!(
            (20_000_000..25_000_000).contains(&least),
            "least round trip {least} ns"
        );
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
    bed.direct
        .turn_until("samples", |direct| direct.reports.len() > 300);
    bed.end(flow);
    let reports = bed.direct.reports.len();
    assert!(
        bed.valid(0) > reports * 8 / 10,
        "{} of {reports}",
        bed.valid(0)
    );
    assert_eq!(bed.stamps.counters().agreed, 2);
}

/// A segment captured by a packet socket.
struct Segment {
    syn: bool,
    /// Length of the option of kind 253, bytes.
    ours: Option<u8>,
    /// Length of the TCP header, bytes.
    header: usize,
    payload: usize,
}

fn segments_seen(capture: &OwnedFd) -> Vec<Segment> {
    let mut packet = vec![0; 70_000];
    let mut seen = Vec::new();
    while let Ok(length) = recv(capture.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
        let ip = &packet[..length];
        if length < 40 || ip[0] != 0x45 || ip[9] != 6 {
            continue;
        }
        let tcp = &ip[20..];
        let header = (usize::from(tcp[12] >> 4) * 4).min(tcp.len());
        let options = &tcp[20..header];
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
        seen.push(Segment {
            syn: tcp[13] & 2 != 0,
            ours,
            header,
            payload: tcp.len() - header,
        });
    }
    seen
}

/// Returns the lengths of our option on the SYN and SYN-ACK.
fn offers(seen: &[Segment]) -> Vec<Option<u8>> {
    seen.iter().filter(|s| s.syn).map(|s| s.ours).collect()
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
        bed.direct
            .turn_until("it runs", |direct| direct.reports.len() > 200);
        bed.end(flow);
        let seen = segments_seen(&watch);
        let after = seen.iter().filter(|s| !s.syn && s.ours.is_some()).count();
        let syns = offers(&seen);
        let (counters, valid) = (bed.stamps.counters(), bed.valid(0));
        match ends {
            // This end offers, the peer does not answer.
            [true, false] => {
                assert_eq!((syns, after), (vec![Some(4), None], 0), "{counters:?}");
                assert_eq!(
                    (counters.agreed, counters.not_agreed, counters.departed),
                    (0, 1, 0)
                );
            }
            // This end would accept, the peer does not offer.
            [false, true] => {
                assert_eq!((syns, after), (vec![None, None], 0), "{counters:?}");
                assert_eq!(
                    (counters.agreed, counters.not_agreed),
                    (0, 0),
                    "{counters:?}"
                );
            }
            _ => {
                assert_eq!(syns, vec![Some(4), Some(4)], "{counters:?}");
                // Everything after the handshake carries the option, except the few segments that
                // close the connection.
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

/// Opens a connection whose first `lost` SYNs are lost, and captures it. `None` if the machine
/// paused until one more was lost.
fn behind_lost_syns(lost: u64) -> Option<(Bed, Vec<Segment>)> {
    let [all, none] = ["100%", "0%"].map(|share| share.parse::<Probability>().expect("a share"));
    let mut bed = Bed::new("t_syn", [true, true]);
    let watch = capture(bed.emulator.sender_ns());
    let control = bed.emulator.control();
    control
        .set_loss(PathDirection::Forward, all)
        .expect("it runs");
    let losses = || control.stats(PathDirection::Forward).losses;
    let lift = || {
        // The next SYN follows after a second.
        eventually(EVENT_TIMEOUT, "SYNs are lost", || losses() >= lost);
        control
            .set_loss(PathDirection::Forward, none)
            .expect("it runs");
    };
    let flow = std::thread::scope(|scope| {
        scope.spawn(lift);
        bed.send()
    });
    bed.direct
        .turn_until("it runs", |direct| direct.reports.len() > 100);
    bed.end(flow);
    (losses() == lost).then(|| (bed, segments_seen(&watch)))
}

/// The last attempt has no offer, in case a middlebox drops SYNs with one.
#[test]
fn one_lost_syn_costs_no_stamps_and_two_do() {
    const TEST: &str = "one_lost_syn_costs_no_stamps_and_two_do";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    for lost in [1, 2] {
        let found = (0..5).find_map(|_| behind_lost_syns(lost));
        let (bed, seen) = found.expect("the machine does not pause for a second in five attempts");
        let counters = bed.stamps.counters();
        let agreed = (counters.agreed, counters.not_agreed);
        match lost {
            1 => {
                assert_eq!(
                    (offers(&seen), agreed),
                    (vec![Some(4); 3], (2, 0)),
                    "{counters:?}"
                );
                assert!(bed.valid(0) > 50, "{counters:?}");
            }
            _ => {
                let expected = vec![Some(4), Some(4), None, None];
                assert_eq!((offers(&seen), agreed), (expected, (0, 1)), "{counters:?}");
                assert_eq!(bed.valid(0), 0);
            }
        }
    }
}

/// Sends for a while from one end of the bed to the other with the kernel's Reno, which did not ask
/// for timestamps. Returns the captured segments.
fn send_without_asking(bed: &mut Bed) -> Vec<Segment> {
    let watch = capture(bed.emulator.receiver_ns());
    let address = bed.emulator.receiver_addr().to_string();
    let start = || Sink::start(&address);
    let sink = bed.emulator.receiver_ns().run(start).expect("inside");
    let start = || Flow::start(sink.address, "reno");
    let flow = bed.emulator.sender_ns().run(start).expect("inside");
    bed.direct.turn_for(300);
    flow.stop.store(true, Ordering::Relaxed);
    flow.thread.join().expect("no panic");
    segments_seen(&watch)
}

#[test]
fn a_connection_that_did_not_ask_carries_no_option() {
    const TEST: &str = "a_connection_that_did_not_ask_carries_no_option";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_other", [true, true]);
    let seen = send_without_asking(&mut bed);
    assert!(seen.len() > 100 && seen.iter().all(|s| s.ours.is_none()));
    assert_eq!(bed.stamps.counters(), StampCounters::default());
}

/// The callback flags of a socket are shared by all programs.
#[test]
fn foreign_option_programs_do_not_get_our_option() {
    const TEST: &str = "foreign_option_programs_do_not_get_our_option";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_flags", [true, true]);
    // Attached after ours, so it runs last.
    let _other = other_program();
    let seen = send_without_asking(&mut bed);
    assert!(seen.len() > 100 && seen.iter().all(|s| s.ours.is_none()));
    // The kernel's timestamps, and no reserved but unused space.
    let data: Vec<usize> = seen
        .iter()
        .filter(|s| s.payload > 0)
        .map(|s| s.header)
        .collect();
    assert!(
        data.iter().all(|header| *header == 32),
        "{:?}",
        data.iter().max()
    );
    assert_eq!(bed.stamps.counters(), StampCounters::default());
    // A connection that asks for timestamps still gets them.
    let flow = bed.send();
    bed.direct
        .turn_until("it runs", |direct| direct.reports.len() > 200);
    bed.end(flow);
    assert!(bed.valid(0) > 100, "{:?}", bed.stamps.counters());
}

/// Attaches `bpf/flags.bpf.c` to the sockets of every process.
fn other_program() -> Link {
    let bytes = include_bytes!("../bpf/prebuilt/flags.bpf.o");
    let open = ObjectBuilder::default()
        .open_memory(bytes)
        .expect("an object");
    let object = open.load().expect("the verifier takes it");
    let root = std::fs::File::open(cgroup_root()).expect("as root");
    let program = object.progs_mut().next().expect("its program");
    program.attach_cgroup(root.as_raw_fd()).expect("as root")
}

#[test]
fn sack_recovery_works_with_stamps() {
    const TEST: &str = "sack_recovery_works_with_stamps";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_sack", [true, true]);
    let [loss, none] = ["2%", "0%"].map(|share| share.parse::<Probability>().expect("a share"));
    bed.emulator
        .control()
        .set_loss(PathDirection::Forward, loss)
        .expect("it runs");
    let flow = bed.send();
    // Two or more SACK blocks leave no room for timestamps; one does.
    let control = bed.emulator.control();
    bed.direct
        .turn_until("losses that cost some stamps, but not all", |_| {
            let counters = bed.stamps.counters();
            control.stats(PathDirection::Forward).losses > 10
                && counters.no_room > 0
                && counters.samples > 100
        });
    control
        .set_loss(PathDirection::Forward, none)
        .expect("it runs");
    bed.end(flow);
    bed.emulator.finish().expect("it ends");
    let (_, _, taken) = bed.direct.kernel.counters().next().expect("one");
    assert!(taken.stamps_dropped * 20 < taken.stamps, "{taken:?}");
}

/// A middlebox at the sender's device, after the stamping: `bpf/mangle.bpf.c`.
struct Middlebox {
    object: Object,
    _link: OwnedFd,
}

impl Middlebox {
    /// Returns `None` on a kernel without tcx (before Linux 6.6).
    fn start(namespace: &Namespace) -> Option<Middlebox> {
        let bytes = include_bytes!("../bpf/prebuilt/mangle.bpf.o");
        let open = ObjectBuilder::default()
            .open_memory(bytes)
            .expect("an object");
        let object = open.load().expect("the verifier takes it");
        let program = object.progs_mut().next().expect("its program");
        let program = std::os::fd::AsFd::as_fd(&program).as_raw_fd();
        let attach = || {
            let index = nix::net::if_::if_nametoindex("link0").expect("its device");
            let kind = libbpf_rs::libbpf_sys::BPF_TCX_EGRESS;
            // SAFETY: the program is open, and null options are valid.
            unsafe {
                libbpf_rs::libbpf_sys::bpf_link_create(
                    program,
                    index as i32,
                    kind,
                    std::ptr::null(),
                )
            }
        };
        let fd = namespace.run(attach).expect("inside");
        if fd < 0 {
            eprintln!("SKIPPED: middlebox test: this kernel has no tcx");
            return None;
        }
        // SAFETY: the descriptor has just been created, and nothing else owns it.
        let link = unsafe { OwnedFd::from_raw_fd(fd) };
        Some(Middlebox {
            object,
            _link: link,
        })
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
fn middleboxes_cost_only_samples() {
    const TEST: &str = "middleboxes_cost_only_samples";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    const MODE_STRIP: u32 = 1;
    const MODE_SHORTEN: u32 = 2;
    const MODE_JUMP: u32 = 3;
    for (mode, receivers) in [
        (MODE_STRIP, false),
        (MODE_SHORTEN, false),
        (MODE_JUMP, true),
    ] {
        let mut bed = Bed::new("t_middle", [true, true]);
        // Data loses its timestamps at the sender's side, and the ACKs' echo at the receiver's.
        let side = if receivers {
            bed.emulator.receiver_ns()
        } else {
            bed.emulator.sender_ns()
        };
        let Some(middlebox) = Middlebox::start(side) else {
            return;
        };
        let flow = bed.send();
        bed.direct
            .turn_until("it runs", |direct| direct.reports.len() > 200);
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
        // Packets in flight are still intact: two round trips.
        bed.direct.turn_for(200);
        let from = bed.direct.reports.len();
        let between = bed.stamps.counters();
        bed.direct.turn_until("the flow continues", |direct| {
            direct.reports.len() > from + 200
        });
        let after = bed.stamps.counters();
        assert_eq!(bed.valid(from), 0, "mode {mode}: {after:?}");
        match mode {
            MODE_STRIP => assert_eq!(
                (after.samples, after.malformed),
                (between.samples, 0),
                "{after:?}"
            ),
            MODE_SHORTEN => {
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
