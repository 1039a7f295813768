//! Goodput of a transfer under a flood of forged hellos. Receiver, sender and attacker are on one
//! switch.
#![expect(
    clippy::disallowed_methods,
    reason = "a load generator runs in real time"
)]

#[path = "support/switch.rs"]
pub mod switch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use ccplane_host::Namespace;
use ccplane_link::identity::Identity;
use ccplane_transport::{Connection, Native, SideData, TransportConfig};
use ccplane_udp::endpoint::{Endpoint, MIN_PLPMTU, mss};
use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Stamping, Tls, UdpCongestion, UdpHost, UdpOptions};
use ccplane_units::{Duration, Rate, Time};
use switch::{Origin, RECEIVER, SENDER, flood, network, settings};

/// Defaults for two cores and a debug build: Mbit/s, hellos per second, seconds.
const DEFAULT: [u64; 3] = [10, 4_000, 2];
const PORT: u16 = 4_790;
const TURN: Duration = Duration::from_millis(5);

fn options(local: SocketAddr, tls: Tls, rate: Option<Rate>) -> UdpOptions {
    UdpOptions {
        local,
        datagram_bytes: DATAGRAM_BYTES_DEFAULT,
        window: 1 << 20,
        tls: Some(tls),
        dscp: 0,
        stamping: Stamping::Off,
        link_rate: None,
        config: TransportConfig {
            max_rate: rate,
            ..TransportConfig::default()
        },
        accept_congestion: Native::cubic(),
    }
}

/// Returns a hello in the smallest datagram that is answered.
fn hello() -> Vec<u8> {
    let config = Arc::new(TransportConfig {
        mss: mss(MIN_PLPMTU, true, false),
        ..TransportConfig::default()
    });
    let tls = Tls::client(None, Some(&Identity::new().unwrap())).unwrap();
    let mut endpoint = Endpoint::new(config.clone(), MIN_PLPMTU, Some(tls));
    assert!(endpoint.connect((RECEIVER, PORT).into(), 77).unwrap());
    let mut connection = Connection::connect(&config, Time::ZERO);
    let mut side = SideData::default();
    let segment = connection.transmit(Time::ZERO, 0, &mut side).unwrap();
    let mut out = [0; DATAGRAM_BYTES_DEFAULT];
    let prove = |side: &SideData| connection.prove(&segment, side);
    let (length, _) = endpoint
        .write(77, &segment, &mut side, &mut out, prove, |_| ())
        .unwrap();
    out[..length].to_vec()
}

/// Receives without a flood, then with one. Returns the bytes of each run, and the number of
/// unanswered hellos.
fn receive(mut host: UdpHost, seconds: u64, mut flood: impl FnMut()) -> ([u64; 2], u64) {
    let mut id = None;
    let mut count = |time: f64, id: &mut Option<u64>| {
        let (begin, mut bytes) = (Instant::now(), 0);
        while begin.elapsed().as_secs_f64() < time {
            host.poll(TURN).unwrap();
            *id = id.or_else(|| host.accept());
            if let Some(id) = *id {
                let (first, second) = host.received(id);
                let arrived = first.len() + second.len();
                host.consume(id, arrived);
                bytes += arrived as u64;
            }
        }
        (bytes, host.unanswered())
    };
    // Slow start.
    count(2.5, &mut id);
    let (quiet, _) = count(seconds as f64, &mut id);
    flood();
    count(0.5, &mut id);
    let (flooded, unanswered) = count(seconds as f64, &mut id);
    ([quiet, flooded], unanswered)
}

fn run(spaces: &[Namespace; 3], origin: Origin) -> ([u64; 2], u64) {
    let [mbit, rate, seconds] = settings(DEFAULT);
    let [switch, sender, receiver] = spaces;
    let identity = Identity::new().unwrap();
    let stop = AtomicBool::new(false);
    let address = SocketAddr::from((RECEIVER, PORT));
    thread::scope(|scope| {
        let tls = Tls::server(&identity, &[]).unwrap();
        let mut host = receiver
            .run(|| UdpHost::bind(options(address, tls, None)))
            .unwrap()
            .unwrap();
        receiver.run(|| host.listen(8)).unwrap().unwrap();
        scope.spawn(|| {
            let tls = Tls::client(
                Some(identity.fingerprint()),
                Some(&Identity::new().unwrap()),
            )
            .unwrap();
            let local = (SENDER, 0).into();
            let rate = Some(Rate::from_bits_per_sec(mbit * 1_000_000));
            let mut host = sender
                .run(|| UdpHost::bind(options(local, tls, rate)))
                .unwrap()
                .unwrap();
            let id = host
                .connect(address, UdpCongestion::Native(Native::cubic()))
                .unwrap();
            while !stop.load(Relaxed) {
                let written = host.write_buffer(id).len();
                host.commit_write(id, written);
                host.poll(TURN).unwrap();
            }
        });
        let outcome = receive(host, seconds, || {
            let stop = &stop;
            scope.spawn(move || flood(switch, origin, (PORT, &[hello()]), rate, stop));
        });
        stop.store(true, Relaxed);
        outcome
    })
}

#[test]
#[ignore = "long: half a minute on both cores"]
fn no_flood_of_hellos_costs_a_transfer_its_goodput() {
    let Some(spaces) = network("hello") else {
        return;
    };
    let mut failed = Vec::new();
    for origin in [Origin::OnLink, Origin::OffLink, Origin::Own] {
        let mut best = 0.0_f64;
        // Repeats the run, because the host may have paused.
        for _ in 0..3 {
            let ([quiet, flooded], unanswered) = run(&spaces, origin);
            best = best.max(flooded as f64 / quiet as f64);
            println!(
                "{origin:?}: {quiet} and {flooded} bytes, {unanswered} hellos without a \
                reply"
            );
            assert!(quiet > 0 && (unanswered > 0 || origin == Origin::OffLink));
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
