//! Goodput of a QUIC transfer, and another client's handshake, under a flood of forged Initial
//! packets. Receiver, senders and attacker are on one switch.
#![cfg(feature = "host")]
#![expect(
    clippy::disallowed_methods,
    reason = "a load generator runs in real time"
)]

#[path = "../../udp/tests/support/switch.rs"]
mod switch;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use ccplane_host::Namespace;
use ccplane_link::identity::Identity;
use ccplane_quic::Stack;
use ccplane_quic::host::{HostOptions, Native, QuicCongestion, QuicHost};
use ccplane_units::{Duration, Rate};
use noq_proto::crypto::rustls::QuicClientConfig;
use noq_proto::{ClientConfig, Endpoint, EndpointConfig};
use switch::{Origin, RECEIVER, SENDER, flood, network, settings};

/// Defaults for two cores and a debug build: Mbit/s, Initial packets per second, seconds.
const DEFAULT: [u64; 3] = [10, 2_000, 2];
const PORT: u16 = 4_791;
/// Initial packets per second of a flood that fills 16 slots within about a second: 0.13 Mbit/s.
/// From 28 per second on, answers to unused on-link addresses fill the send buffer while they wait
/// for ARP, and most answers to other clients are dropped (`ANSWER_BUFFER` of `ccplane-udp`).
const SLOW_FLOOD: u64 = 14;
/// Head start of the flood before the client connects.
const FLOOD_LEAD: std::time::Duration = std::time::Duration::from_secs(2);
/// Longest handshake in a flood. Lost Initial packets are retransmitted after 1, 2 and 4 s.
const HANDSHAKE_MAX: std::time::Duration = std::time::Duration::from_secs(20);
const TURN: Duration = Duration::from_millis(5);
/// Number of distinct Initial packets.
const INITIALS: usize = 2_000;
/// Data per write of the sender.
const PIECE: [u8; 16_384] = [7; 16_384];

fn options(local: SocketAddr, max_rate: Option<Rate>) -> HostOptions {
    HostOptions {
        stack: Stack::Noq,
        local,
        window: 1 << 20,
        idle_timeout: Some(Duration::from_secs(10)),
        max_rate,
        qlog: None,
        dscp: 0,
        // Defaults of `ccplane recv --over quic`.
        connections_max: 16,
        per_address: 4,
        congestion: QuicCongestion::Native(Native::Cubic),
    }
}

/// Returns first packets of clients that never process the answer.
fn initials() -> Vec<Vec<u8>> {
    let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true);
    let tls = ccplane_link::identity::client(b"ccplane-quic/1", None, None).unwrap();
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let one = |_| {
        let now = Instant::now();
        let (_, mut connection) = endpoint
            .connect(
                now,
                config.clone(),
                (RECEIVER, PORT).into(),
                ccplane_link::identity::SUBJECT_NAME,
            )
            .unwrap();
        let mut datagram = Vec::new();
        let sent = connection.poll_transmit(now, NonZeroUsize::MIN, &mut datagram);
        datagram.truncate(sent.unwrap().size);
        datagram
    };
    (0..INITIALS).map(one).collect()
}

/// Receives without a flood, then with one. Returns the bytes of each run, and the peak number of
/// connections.
fn receive(mut host: QuicHost, seconds: u64, mut flood: impl FnMut()) -> ([u64; 2], usize) {
    let (mut id, mut most) = (None, 0);
    let mut count = |time: f64| {
        let (begin, mut bytes) = (Instant::now(), 0);
        while begin.elapsed().as_secs_f64() < time {
            host.poll(TURN).unwrap();
            while let Some(accepted) = host.accept() {
                id.get_or_insert(accepted);
            }
            if let Some(id) = id {
                bytes += host.read(id, usize::MAX, |_| ()) as u64;
            }
            most = most.max(host.connection_count());
        }
        bytes
    };
    // Slow start.
    count(2.5);
    let quiet = count(seconds as f64);
    flood();
    count(0.5);
    let flooded = count(seconds as f64);
    ([quiet, flooded], most)
}

/// Creates a receiver, and a sender limited to `rate`.
fn hosts([_, sender, receiver]: &[Namespace; 3], rate: Option<Rate>) -> [QuicHost; 2] {
    let identity = Identity::new().unwrap();
    let listens = || QuicHost::listen(options((RECEIVER, PORT).into(), None), &identity);
    let sends = || {
        QuicHost::bind(
            options((SENDER, 0).into(), rate),
            Some(identity.fingerprint()),
        )
    };
    [
        receiver.run(listens).unwrap().unwrap(),
        sender.run(sends).unwrap().unwrap(),
    ]
}

fn run(spaces: &[Namespace; 3], origin: Origin, initials: &[Vec<u8>]) -> ([u64; 2], usize) {
    let [mbit, rate, seconds] = settings(DEFAULT);
    let [receiver, mut sender] = hosts(spaces, Some(Rate::from_bits_per_sec(mbit * 1_000_000)));
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            let id = sender.connect((RECEIVER, PORT).into()).unwrap();
            while !stop.load(Relaxed) {
                while sender.write(id, &PIECE) > 0 {}
                sender.poll(TURN).unwrap();
            }
        });
        let outcome = receive(receiver, seconds, || {
            scope.spawn(move || flood(&spaces[0], origin, (PORT, initials), rate, stop));
        });
        stop.store(true, Relaxed);
        outcome
    })
}

/// Opens a connection during a flood, with retries. Returns the time until it is established.
fn join(
    spaces: &[Namespace; 3],
    origin: Origin,
    initials: &[Vec<u8>],
) -> Option<std::time::Duration> {
    let mut hosts = hosts(spaces, None);
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || flood(&spaces[0], origin, (PORT, initials), SLOW_FLOOD, stop));
        let begin = Instant::now();
        let (mut id, mut called) = (None, begin);
        let joined = loop {
            QuicHost::poll_all(&mut hosts, TURN).unwrap();
            match id {
                // The flood starts first.
                None if called.elapsed() > FLOOD_LEAD => {
                    called = Instant::now();
                    id = hosts[1].connect((RECEIVER, PORT).into()).ok();
                }
                None => {}
                Some(one) if hosts[1].is_connected(one) => break Some(called.elapsed()),
                Some(one) if hosts[1].failure(one).is_some() => {
                    hosts[1].close(one, false);
                    id = hosts[1].connect((RECEIVER, PORT).into()).ok();
                }
                Some(_) if called.elapsed() > HANDSHAKE_MAX => break None,
                Some(_) => {}
            }
        };
        stop.store(true, Relaxed);
        joined
    })
}

#[test]
#[ignore = "long: half a minute on both cores"]
fn no_flood_of_initials_costs_a_transfer_its_goodput() {
    let Some(spaces) = network("goodput") else {
        return;
    };
    let initials = initials();
    let mut failed = Vec::new();
    for origin in [Origin::OnLink, Origin::OffLink, Origin::Own] {
        let mut best = 0.0_f64;
        // Repeats the run, because the host may have paused.
        for _ in 0..3 {
            let ([quiet, flooded], most) = run(&spaces, origin, &initials);
            best = best.max(flooded as f64 / quiet as f64);
            println!("{origin:?}: {quiet} and {flooded} bytes, {most} connections at most");
            assert!(
                quiet > 0 && most > 1,
                "{origin:?}: no forged packet starts a handshake"
            );
            if best >= 0.99 {
                break;
            }
        }
        println!("{origin:?}: goodput of {:.2} %", best * 100.0);
        if best < 0.99 {
            failed.push((origin, best));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Without Retry the flood would fill the receiver before the client connects.
#[test]
fn a_slow_flood_of_initials_keeps_no_sender_out() {
    let Some(spaces) = network("join") else {
        return;
    };
    let initials = initials();
    for origin in [Origin::OnLink, Origin::OffLink, Origin::Own] {
        let joined = join(&spaces, origin, &initials);
        println!("{origin:?}: a handshake takes {joined:?}");
        assert!(joined.is_some(), "{origin:?}: not within {HANDSHAKE_MAX:?}");
    }
}
