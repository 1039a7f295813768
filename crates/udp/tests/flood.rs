//! A transfer under a flood of forged hellos. Receiver, sender and attacker are on a switch.
#![expect(clippy::disallowed_methods, reason = "a load generator runs in real time")]

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use ccplane_host::{Namespace, Wire};
use ccplane_link::identity::Identity;
use ccplane_transport::{Config, Connection, Native, Side};
use ccplane_udp::endpoint::{Endpoint, LEAST, mss};
use ccplane_udp::{Congestion, DATAGRAM, Host, Options, Stamping, Tls};
use ccplane_units::{Duration, Rate, Time};

/// Settings of the measurement: `CCPLANE_FLOOD=50,20000,4` is 50 Mbit/s, 20,000 hellos per second and
/// runs of four seconds. The default fits two cores and a build without optimisation.
const DEFAULT: [u64; 3] = [10, 4_000, 2];
const PORT: u16 = 4_790;
const TURN: Duration = Duration::from_millis(5);

/// Source addresses of a flood.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin {
    /// Unused addresses of the switch's network: an answer waits for ARP.
    OnLink,
    /// Addresses behind a router.
    OffLink,
    /// The attacker's own address.
    Own,
}

fn settings() -> [u64; 3] {
    let Ok(text) = std::env::var("CCPLANE_FLOOD") else {
        return DEFAULT;
    };
    let numbers: Vec<u64> = text.split(',').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn ip(space: &Namespace, arguments: &str) {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace());
    let status = space.confine(&mut command).unwrap().status().expect("ip is there");
    assert!(status.success(), "ip {arguments}");
}

/// The switch, the sender's namespace and the receiver's.
fn network() -> Option<[Namespace; 3]> {
    let space = |name: &str| match Namespace::create(&format!("ccplane-{}-hello{name}", std::process::id())) {
        Ok(space) => Some(space),
        Err(reason) if std::env::var_os("CCPLANE_NO_SKIP").is_none() => {
            eprintln!("SKIPPED: flood: {reason}");
            None
        }
        Err(reason) => panic!("flood cannot run: {reason}"),
    };
    let spaces = [space("")?, space("1")?, space("2")?];
    let [switch, ..] = &spaces;
    ip(switch, "link add br0 type bridge");
    ip(switch, "link set br0 up");
    ip(switch, "addr add 172.16.0.254/16 dev br0");
    ip(switch, "addr add 172.16.0.253/16 dev br0");
    for (n, end) in spaces.iter().enumerate().skip(1) {
        let name = end.name();
        ip(
            switch,
            &format!("link add port{n} type veth peer name eth0 netns {name}"),
        );
        ip(switch, &format!("link set port{n} master br0"));
        ip(switch, &format!("link set port{n} up"));
        ip(end, &format!("link set eth0 address 02:00:00:00:00:0{n}"));
        ip(end, "link set eth0 up");
        ip(end, &format!("addr add 172.16.0.{n}/16 dev eth0"));
        ip(end, "route add default via 172.16.0.254");
    }
    Some(spaces)
}

fn options(local: SocketAddr, tls: Tls, rate: Option<Rate>) -> Options {
    Options {
        local,
        datagram: DATAGRAM,
        window: 1 << 20,
        tls: Some(tls),
        dscp: 0,
        stamping: Stamping::Off,
        link: None,
        config: Config {
            max_rate: rate,
            ..Config::default()
        },
        accepted: Native::cubic(),
    }
}

/// A hello in the smallest datagram that is answered.
fn hello() -> Vec<u8> {
    let config = Arc::new(Config {
        mss: mss(LEAST, true, false),
        ..Config::default()
    });
    let tls = Tls::client(None, Some(&Identity::new().unwrap())).unwrap();
    let mut endpoint = Endpoint::new(config.clone(), LEAST, Some(tls));
    assert!(endpoint.connect(([172, 16, 0, 2], PORT).into(), 77).unwrap());
    let mut connection = Connection::connect(&config, Time::ZERO);
    let mut side = Side::default();
    let segment = connection.transmit(Time::ZERO, 0, &mut side).unwrap();
    let mut out = [0; DATAGRAM];
    let prove = |side: &Side| connection.prove(&segment, side);
    let (length, _) = endpoint
        .write(77, &segment, &mut side, &mut out, prove, |_| ())
        .unwrap();
    out[..length].to_vec()
}

/// A frame without its Ethernet header, behind an empty header of the packet socket.
fn frame(origin: Origin, n: u64, datagram: &[u8]) -> Vec<u8> {
    let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let [low, high] = [random as u8, (random >> 8) as u8];
    let source = match origin {
        Origin::OnLink => [172, 16, 1 + low % 255, high],
        Origin::OffLink => [198, 18, low, high],
        Origin::Own => [172, 16, 0, 253],
    };
    let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 172, 16, 0, 2];
    header[2..4].copy_from_slice(&(datagram.len() as u16 + 28).to_be_bytes());
    header[12..16].copy_from_slice(&source);
    let words = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let port = 1_024 + (random % 60_000) as u16;
    let length = datagram.len() as u16 + 8;
    // Over IPv4 a datagram may have no checksum.
    let udp = [port, PORT, length, 0].map(u16::to_be_bytes).concat();
    [&[0; 10][..], &header, &udp, datagram].concat()
}

fn flood(switch: &Namespace, origin: Origin, rate: u64, stop: &AtomicBool) {
    switch.enter().unwrap();
    let wire = Wire::open("port2").unwrap();
    let (datagram, begin, mut sent) = (hello(), Instant::now(), 0);
    while !stop.load(Relaxed) {
        let due = begin.elapsed().as_micros() as u64 * rate / 1_000_000;
        while sent < due {
            let link = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9, 8, 0];
            let _ = wire.write(&link, [&frame(origin, sent, &datagram), &[]]);
            sent += 1;
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Receives for a run without a flood and a run with one. Returns the bytes of each, and hellos that were not answered.
fn receive(mut host: Host, seconds: u64, mut flood: impl FnMut()) -> ([u64; 2], u64) {
    let mut id = None;
    let mut count = |time: f64, id: &mut Option<u64>| {
        let (begin, mut bytes) = (Instant::now(), 0);
        while begin.elapsed().as_secs_f64() < time {
            host.turn(TURN).unwrap();
            *id = id.or_else(|| host.accepted());
            if let Some(id) = *id {
                let (first, second) = host.arrived(id);
                let arrived = first.len() + second.len();
                host.take(id, arrived);
                bytes += arrived as u64;
            }
        }
        (bytes, host.unanswered())
    };
    // The window opens meanwhile.
    count(2.5, &mut id);
    let (quiet, _) = count(seconds as f64, &mut id);
    flood();
    count(0.5, &mut id);
    let (flooded, unanswered) = count(seconds as f64, &mut id);
    ([quiet, flooded], unanswered)
}

fn run(spaces: &[Namespace; 3], origin: Origin) -> ([u64; 2], u64) {
    let [mbit, rate, seconds] = settings();
    let [switch, sender, receiver] = spaces;
    let identity = Identity::new().unwrap();
    let stop = AtomicBool::new(false);
    let address = SocketAddr::from(([172, 16, 0, 2], PORT));
    thread::scope(|scope| {
        let tls = Tls::server(&identity, &[]).unwrap();
        let mut host = receiver
            .run(|| Host::bind(options(address, tls, None)))
            .unwrap()
            .unwrap();
        receiver.run(|| host.listen(8)).unwrap().unwrap();
        scope.spawn(|| {
            let tls = Tls::client(Some(identity.fingerprint()), Some(&Identity::new().unwrap())).unwrap();
            let local = ([172, 16, 0, 1], 0).into();
            let rate = Some(Rate::from_bits_per_sec(mbit * 1_000_000));
            let mut host = sender.run(|| Host::bind(options(local, tls, rate))).unwrap().unwrap();
            let id = host.connect(address, Congestion::Native(Native::cubic())).unwrap();
            while !stop.load(Relaxed) {
                let written = host.room(id).len();
                host.wrote(id, written);
                host.turn(TURN).unwrap();
            }
        });
        let outcome = receive(host, seconds, || {
            let stop = &stop;
            scope.spawn(move || flood(switch, origin, rate, stop));
        });
        stop.store(true, Relaxed);
        outcome
    })
}

#[test]
fn no_flood_of_hellos_costs_a_transfer_its_goodput() {
    let Some(spaces) = network() else { return };
    let mut failed = Vec::new();
    for origin in [Origin::OnLink, Origin::OffLink, Origin::Own] {
        let mut best = 0.0_f64;
        // A pause of the machine costs one run, not all.
        for _ in 0..3 {
            let ([quiet, flooded], unanswered) = run(&spaces, origin);
            best = best.max(flooded as f64 / quiet as f64);
            println!("{origin:?}: {quiet} and {flooded} bytes, {unanswered} hellos not answered");
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
