//! Bulk transfers through the emulator: super-packets arrive intact, and queues have
//! their intended effect on kernel TCP.
#![expect(clippy::disallowed_methods, reason = "real packets take real time")]

use std::io::{IoSliceMut, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use crate::common::{emulate, may_run, rate, sockets};
use ccplane_emu::qdisc::LineSpec;
use ccplane_emu::{EmuConfig, EmuReport, Emulator, Gso, LinkConfig};
use ccplane_units::Duration;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};

/// Returns byte `at` of a stream without a period that could mask a misplaced packet.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

fn link(line: LineSpec, ms: u64, queue: &str) -> LinkConfig {
    LinkConfig {
        line,
        delay: Duration::from_millis(ms),
        queue: queue.parse().expect("a queue"),
        ..LinkConfig::default()
    }
}

/// Opens a TCP connection from the sender's namespace to the receiver's.
fn connect(emulator: &Emulator, to: IpAddr) -> (TcpStream, TcpStream) {
    // The kernel's default may be an algorithm that keeps queues short.
    let own = emulator.sender_ns();
    own.set_sysctl("net/ipv4/tcp_congestion_control", "reno")
        .expect("every kernel has it");
    let listener = emulator.receiver_ns().run(|| TcpListener::bind((to, 0)));
    let listener = listener
        .expect("the test's namespace")
        .expect("its address is there");
    let to = listener.local_addr().expect("bound");
    let sender = emulator.sender_ns().run(|| TcpStream::connect(to));
    let sender = sender.expect("the test's namespace").expect("it listens");
    (sender, listener.accept().expect("it connected").0)
}

/// Sends `bytes` bytes over TCP and compares every one.
fn transfer(emulator: &Emulator, to: IpAddr, bytes: usize) {
    let (mut sender, mut receiver) = connect(emulator, to);
    thread::scope(|scope| {
        scope.spawn(move || {
            let data: Vec<u8> = (0..bytes).map(byte).collect();
            sender.write_all(&data).expect("the receiver reads");
        });
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            let count = receiver.read(&mut buffer).expect("the sender sends");
            if count == 0 {
                break;
            }
            let wrong = (0..count).find(|&i| buffer[i] != byte(at + i));
            assert_eq!(wrong.map(|i| at + i), None, "the first wrong byte");
            at += count;
        }
        assert_eq!(at, bytes);
    });
}

fn addresses(emulator: &Emulator) -> Vec<IpAddr> {
    let v6 = ccplane_host::has_ipv6().then(|| emulator.receiver_addr_v6());
    [emulator.receiver_addr()].into_iter().chain(v6).collect()
}

#[test]
fn transfers_arrive_intact_however_their_packets_are_cut() {
    if !may_run("intact") {
        return;
    }
    // Whole; segmented; segmented with holes for TCP to fill; segmented by a queue that reorders
    // flows; whole at any rate.
    let lossy = LinkConfig {
        loss: "gilbert:p=0.2%:r=50%".parse().expect("a model"),
        ..link(LineSpec::Unlimited, 1, "droptail:inf")
    };
    let cases = [
        (link(LineSpec::Unlimited, 1, "droptail:inf"), Gso::Auto),
        (link(rate("960mbit"), 1, "droptail:300p"), Gso::Auto),
        (lossy, Gso::Auto),
        (link(rate("480mbit"), 1, "fq_codel"), Gso::Auto),
        (link(rate("480mbit"), 1, "droptail:300p"), Gso::On),
        (link(rate("480mbit"), 1, "droptail:300p"), Gso::Off),
    ];
    for (forward, gso) in cases {
        let config = EmuConfig {
            reverse: link(LineSpec::Unlimited, 1, "droptail:inf"),
            forward: forward.clone(),
            gso,
            ..EmuConfig::default()
        };
        let emulator = Emulator::start(config).expect("the machine allows it");
        for to in addresses(&emulator) {
            transfer(&emulator, to, 6_000_000);
        }
        let report = emulator.finish().expect("it ran");
        let log = &report.forward;
        assert_eq!(
            log.arrived,
            log.delivered + log.queue_drops + log.losses + log.in_flight
        );
        let together = log.delivered as f64 / log.handovers as f64;
        match gso {
            Gso::Off => assert_eq!(log.delivered, log.handovers),
            Gso::Auto if forward.line == LineSpec::Unlimited && log.losses == 0 => {
                assert!(together > 5.0, "{together}")
            }
            Gso::On => assert!(together > 2.0, "{together}"),
            Gso::Auto => {}
        }
        assert!(
            log.records().all(|record| record.bytes <= 1_500),
            "every packet is counted separately"
        );
    }
}

#[test]
fn udp_s_super_packets_arrive_as_the_packets_they_stand_for() {
    if !may_run("udp-gso") {
        return;
    }
    for line in [LineSpec::Unlimited, rate("200mbit")] {
        let emulator = emulate(link(line, 1, "droptail:inf"), LinkConfig::default());
        let (sender, receiver) = sockets(&emulator);
        setsockopt(&sender, sockopt::UdpGsoSegment, &1_000).expect("Linux 4.18");
        let data: Vec<u8> = (0..30_500).map(byte).collect();
        sender.send(&data).expect("31 packets");
        let mut buffer = [0; 2_000];
        for expected in data.chunks(1_000) {
            let length = receiver.recv(&mut buffer).expect("another packet");
            assert_eq!(&buffer[..length], expected);
        }
        assert_eq!(emulator.finish().expect("it ran").forward.delivered, 31);
    }
}

/// Returns the median round trip of a small datagram next to a bulk transfer.
fn ping_beside_bulk(queue: &str) -> (StdDuration, EmuReport) {
    let back = link(LineSpec::Unlimited, 10, "droptail:inf");
    let emulator = emulate(link(rate("20mbit"), 10, queue), back);
    let (mut sender, mut receiver) = connect(&emulator, emulator.receiver_addr());
    let (ping, echo) = sockets(&emulator);
    let median = thread::scope(|scope| {
        scope.spawn(move || {
            let begin = Instant::now();
            while begin.elapsed() < StdDuration::from_secs(3) {
                sender.write_all(&[1; 65_536]).expect("it is read");
            }
        });
        scope.spawn(move || while receiver.read(&mut [0; 65_536]).is_ok_and(|count| count > 0) {});
        scope.spawn(move || {
            while let Ok(1..) = echo.recv(&mut [0; 8]) {
                echo.send(b"pong").expect("it is bound");
            }
        });
        // Slow start is over by then.
        thread::sleep(StdDuration::from_millis(1_500));
        let mut times: Vec<_> = (0..25)
            .map(|_| {
                let begin = Instant::now();
                ping.send(b"ping").expect("it is bound");
                ping.recv(&mut [0; 8]).expect("within five seconds");
                begin.elapsed()
            })
            .collect();
        ping.send(b"").expect("it is bound");
        times.sort();
        times[12]
    });
    (median, emulator.finish().expect("it ran"))
}

#[test]
fn a_fair_queue_keeps_a_ping_short_beside_a_bulk_transfer_and_drop_tail_does_not() {
    if !may_run("fair") {
        return;
    }
    // 200 kB take 80 ms at 20 Mbit/s.
    let (tail, _) = ping_beside_bulk("droptail:4bdp");
    let (fair, report) = ping_beside_bulk("fq_codel");
    assert!(tail > StdDuration::from_millis(45), "drop-tail: {tail:?}");
    assert!(fair < StdDuration::from_millis(32), "fq_codel: {fair:?}");
    assert!(
        report.forward.queue_drops > 0,
        "CoDel keeps the bulk flow's own queue short"
    );
}

/// Returns the ECN bits of datagrams of this traffic class that queue behind others.
fn received_ecn(emulator: &Emulator, from: IpAddr, to: IpAddr, class: u8) -> Vec<u8> {
    let bind = |namespace: &ccplane_host::Namespace, address| {
        let socket = namespace.run(|| UdpSocket::bind(SocketAddr::new(address, 0)));
        socket
            .expect("the test's namespace")
            .expect("its address is there")
    };
    let (sender, receiver) = (
        bind(emulator.sender_ns(), from),
        bind(emulator.receiver_ns(), to),
    );
    if to.is_ipv4() {
        setsockopt(&sender, sockopt::Ipv4Tos, &i32::from(class))
            .expect("an option of every socket");
        setsockopt(&receiver, sockopt::IpRecvTos, &true).expect("an option of every socket");
    } else {
        setsockopt(&sender, sockopt::Ipv6TClass, &i32::from(class))
            .expect("an option of every socket");
        setsockopt(&receiver, sockopt::Ipv6RecvTClass, &true).expect("an option of every socket");
    }
    let target = receiver.local_addr().expect("bound");
    for n in 0..20_u8 {
        sender.send_to(&[n; 1_000], target).expect("send");
    }
    receiver
        .set_read_timeout(Some(StdDuration::from_secs(5)))
        .expect("not zero");
    (0..20)
        .map(|n| {
            let mut data = [0; 1_500];
            let mut space = nix::cmsg_space!(i32);
            let mut pieces = [IoSliceMut::new(&mut data)];
            let flags = MsgFlags::empty();
            let message = recvmsg::<SockaddrStorage>(
                receiver.as_raw_fd(),
                &mut pieces,
                Some(&mut space),
                flags,
            )
            .expect("another packet");
            let class = message
                .cmsgs()
                .expect("room for one")
                .find_map(|control| match control {
                    ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
                    ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
                    _ => None,
                });
            assert_eq!(data[0], n, "in order");
            assert_eq!(
                class.map(|class| class >> 2),
                Some(3),
                "the codepoint is unchanged"
            );
            class.expect("asked for") & 0b11
        })
        .collect()
}

#[test]
fn only_ecn_capable_packets_are_marked() {
    if !may_run("marks") {
        return;
    }
    // 4 ms per packet, so of 20 all but the first few exceed the threshold.
    let emulator = emulate(link(rate("2mbit"), 1, "ecn:3p:100p"), LinkConfig::default());
    let mut pairs = vec![(emulator.sender_addr(), emulator.receiver_addr())];
    if ccplane_host::has_ipv6() {
        pairs.push((emulator.sender_addr_v6(), emulator.receiver_addr_v6()));
    }
    for &(from, to) in &pairs {
        for (sent, marked) in [(0b00, 0b00), (0b01, 0b11), (0b10, 0b11)] {
            let received = received_ecn(&emulator, from, to, 3 << 2 | sent);
            assert_eq!(
                received[0], sent,
                "the queue was empty before the first packet"
            );
            assert_eq!(received[19], marked);
            assert!(
                received.is_sorted_by_key(|&ecn| ecn != sent),
                "{received:?}"
            );
        }
    }
    let log = emulator.finish().expect("it ran").forward;
    assert_eq!(
        (log.queue_drops, log.delivered),
        (0, 60 * pairs.len() as u64)
    );
    assert!(log.marks >= 2 * 10 * pairs.len() as u64, "{}", log.marks);
}

#[test]
fn ecn_tcp_is_marked_instead_of_dropped() {
    if !may_run("tcp-ecn") {
        return;
    }
    // More space than both transfers fill: a full queue drops ECN-capable packets too.
    let emulator = emulate(
        link(rate("100mbit"), 5, "codel:ecn:limit=10000p"),
        link(LineSpec::Unlimited, 5, "droptail:inf"),
    );
    for namespace in [emulator.sender_ns(), emulator.receiver_ns()] {
        namespace
            .set_sysctl("net/ipv4/tcp_ecn", "1")
            .expect("its own");
    }
    for to in addresses(&emulator) {
        transfer(&emulator, to, 6_000_000);
    }
    let log = emulator.finish().expect("it ran").forward;
    assert!(log.marks > 0, "CoDel signalled");
    // Handshakes and retransmissions are not ECN-capable (RFC 3168 section 6.1) and may be dropped,
    // more of them after a pause of this machine that the senders took for losses.
    assert_eq!(
        log.ecn_drops, 0,
        "of {} drops, with {} marks",
        log.queue_drops, log.marks
    );
}
