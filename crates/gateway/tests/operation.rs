//! Operational conditions: NAT, small path MTUs, algorithms that hang, rekeying under load, plain
//! WireGuard peers.
#![expect(clippy::disallowed_methods, reason = "gateways run in real time")]

#[path = "harness/inner_packet.rs"]
mod inner_packet;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report as Told, box_algorithm};
use ccplane_datapath::Capabilities;
use ccplane_gateway::AlgorithmFactory;
use ccplane_gateway::config::AlgorithmSpec as Named;
use ccplane_host::{FRAME_BYTES_MAX, Frame, Namespace, Offload, Tun, has_ipv6};
use etherparse::{
    Icmpv4Type, PacketBuilder, SlicedPacket, TransportSlice, icmpv4::DestUnreachableHeader,
};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use proptest::prelude::*;

use crate::sites::{Sites, endpoint, key, makes, peer, site, there_and_back, two_configs};

const SEEDS: &[&[u8]] = &[
    include_bytes!("../../../fuzz/seeds/inner_packet/syn-v4"),
    include_bytes!("../../../fuzz/seeds/inner_packet/syn-v6"),
    include_bytes!("../../../fuzz/seeds/inner_packet/syn-v6-options"),
    include_bytes!("../../../fuzz/seeds/inner_packet/long-v4"),
    include_bytes!("../../../fuzz/seeds/inner_packet/long-v4-divided"),
    include_bytes!("../../../fuzz/seeds/inner_packet/long-v6"),
];

proptest! {
    /// Random bytes are rarely a valid packet, so most inputs are seeds of the fuzz target with
    /// some bytes changed.
    #[test]
    fn parsers_accept_any_packet(
        seed in prop::sample::select(SEEDS),
        changes in prop::collection::vec((0_usize..120, any::<u8>()), 0..6),
        mtu: u16,
        random in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        inner_packet::holds(&random);
        let mut input = seed.to_vec();
        input[..2].copy_from_slice(&mtu.to_be_bytes());
        for (place, byte) in changes {
            let place = place % input.len();
            input[place] = byte;
        }
        inner_packet::holds(&input);
    }
}

/// Sends a datagram repeatedly until it is delivered.
fn until_it_comes(what: &str, from: &UdpSocket, to: &UdpSocket, message: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut buffer = vec![0; 70_000];
    to.set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    loop {
        // The first send after the kernel learned a smaller path MTU fails with EMSGSIZE.
        let _ = from.send_to(message, to.local_addr().unwrap());
        match to.recv(&mut buffer) {
            Ok(bytes) => {
                assert!(
                    &buffer[..bytes] == message,
                    "{what}: received another packet"
                );
                break;
            }
            Err(_) => assert!(Instant::now() < deadline, "{what} was not received"),
        }
    }
    to.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
}

#[test]
fn a_translation_that_changes_its_port_under_way_is_followed() {
    let Some(sites) = Sites::new("roam") else {
        return;
    };
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    there_and_back(&a, &b, b"the bound port");
    for port in [40_001, 40_002] {
        sites.network.way.port.store(port, Relaxed);
        // Datagrams to the old port are lost; the next one from the first site updates the
        // endpoint.
        there_and_back(&a, &b, b"somewhere else");
        let endpoint = sites.report(1).peers[0].endpoint.clone().unwrap();
        assert_eq!(endpoint, format!("192.0.2.1:{port}"));
    }
    let counts = &sites.report(1).peers[0].counts;
    assert_eq!(
        (counts["forged"], counts["handshakes"]),
        (0, 1),
        "the keys are unchanged"
    );
}

#[test]
fn two_sites_meet_over_ipv6() {
    if !has_ipv6() {
        eprintln!("SKIPPED: two_sites_meet_over_ipv6: the kernel has no IPv6");
        return;
    }
    let over_v6 = |n: usize| site(n).replace("0.0.0.0:51820", "[::]:51820");
    let configs = [
        over_v6(0) + &peer("other", 1) + "endpoint = \"[fd01::2]:51820\"\n",
        over_v6(1) + &peer("other", 0),
    ];
    let Some(sites) = Sites::of("v6", &configs, makes()) else {
        return;
    };
    sites.there_and_back(&[1; 1_392]);
    sites.there_and_back_v6(&[2; 3_000]);
    assert_eq!(
        sites.report(1).peers[0].endpoint.as_deref(),
        Some("[fd01::1]:51820")
    );
    sites.network.way.mtu.store(1_400, Relaxed);
    until_it_comes(
        "a long datagram",
        &sites.udp(0, "fd07::1"),
        &sites.udp(1, "fd07::2"),
        &[3; 1_350],
    );
    assert_eq!(sites.report(0).peers[0].mtu, 1_400 - 80);
}

#[test]
fn packets_of_1280_bytes_fit_a_way_of_60_more() {
    let short = |n: usize| site(n) + "mtu = 1280\n";
    let configs = [
        short(0) + &peer("other", 1) + &endpoint(1),
        short(1) + &peer("other", 0),
    ];
    let Some(sites) = Sites::of("short", &configs, makes()) else {
        return;
    };
    sites.network.way.mtu.store(1_340, Relaxed);
    sites.there_and_back(&[1; 4_000]);
    if has_ipv6() {
        sites.there_and_back_v6(&[2; 4_000]);
    }
    assert_eq!(sites.network.way.refused.load(Relaxed), 0);
    let peer = &sites.report(0).peers[0];
    assert_eq!(
        (
            peer.mtu,
            peer.counts["divided_packets"],
            peer.counts["too_big_packets"]
        ),
        (1_280, 0, 0)
    );
}

#[test]
fn long_packets_are_reported_or_fragmented_and_connections_fit() {
    // The inner MTU is still at least 1280, the minimum of IPv6.
    const OUTER_MTU: u32 = 1_380;
    const INNER_MTU: u32 = OUTER_MTU - 60;
    let Some(sites) = Sites::new("narrow") else {
        return;
    };
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    there_and_back(&a, &b, b"hello");
    sites.network.way.mtu.store(OUTER_MTU, Relaxed);
    // Linux sets "don't fragment" until it learns a smaller path MTU.
    until_it_comes("a long datagram", &a, &b, &[1; 1_350]);
    let first = sites.report(0).peers[0].clone();
    assert_eq!(first.mtu, INNER_MTU);
    assert!(first.counts["too_big_packets"] > 0, "{first:?}");
    if has_ipv6() {
        until_it_comes(
            "over IPv6",
            &sites.udp(0, "fd07::1"),
            &sites.udp(1, "fd07::2"),
            &[3; 1_350],
        );
    }
    // A sender that allows fragmentation gets no ICMP message.
    let divides = |value: &str| {
        sites.spaces[1]
            .set_sysctl("net/ipv4/ip_no_pmtu_disc", value)
            .unwrap()
    };
    divides("1");
    let divided = sites.udp(1, "10.7.0.2");
    divides("0");
    until_it_comes("a fragmented datagram", &divided, &a, &[2; 1_350]);
    let second = sites.report(1).peers[0].clone();
    assert_eq!(
        (second.mtu, second.counts["too_big_packets"]),
        (INNER_MTU, 0)
    );
    assert!(second.counts["divided_packets"] > 0, "{second:?}");

    // MSS clamping works although the second site's hosts have received no ICMP message.
    let refused = sites.network.way.refused.load(Relaxed);
    let listener = sites.inside(1, || TcpListener::bind("10.7.0.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let stream = sites.inside(0, || TcpStream::connect(to).unwrap());
    let (accepted, _) = listener.accept().unwrap();
    for end in [&stream, &accepted] {
        let segment = getsockopt(end, sockopt::TcpMaxSeg).unwrap();
        assert!(segment <= INNER_MTU - 40, "{segment}");
    }
    const BYTES: usize = 1 << 20;
    let sends = thread::spawn(move || (&accepted).write_all(&[7; BYTES]).unwrap());
    let mut all = vec![0; BYTES];
    (&stream).read_exact(&mut all).unwrap();
    sends.join().unwrap();
    assert_eq!(
        sites.network.way.refused.load(Relaxed),
        refused,
        "no packet was too long"
    );
}

/// Transfers data over a connection whose first full segments exceed the path MTU.
#[test]
fn a_connection_moves_data_over_a_path_that_drops_long_packets_silently() {
    const OUTER_MTU: u32 = 1_300;
    const INNER_MTU: u32 = OUTER_MTU - 60;
    const BYTES: usize = 4 << 20;
    let Some(mut sites) = Sites::quiet("hole", &two_configs(), makes()) else {
        return;
    };
    let way = Arc::clone(&sites.network.way);
    way.silent.store(true, Relaxed);
    way.mtu.store(OUTER_MTU, Relaxed);
    sites.start(1);
    sites.start(0);
    let listener = sites.inside(1, || TcpListener::bind("10.7.0.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let stream = sites.inside(0, || TcpStream::connect(to).unwrap());
    stream
        .set_write_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let (accepted, _) = listener.accept().unwrap();
    accepted
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let sends = thread::spawn(move || (&stream).write_all(&[7; BYTES]).map(|()| stream));
    let mut all = vec![0; BYTES];
    (&accepted)
        .read_exact(&mut all)
        .expect("the path MTU is smaller");
    sends.join().unwrap().expect("all packets were sent");
    assert!(way.refused.load(Relaxed) > 0, "some packets were too long");
    let mtu = |sites: &Sites, n: usize| sites.report(n).peers[0].mtu;
    let is_found = |mtu: u32| (INNER_MTU - 8..=INNER_MTU).contains(&mtu);
    for n in [0, 1] {
        sites.until("found", |sites| {
            sites.report(n).peers[0].mtu_search == "complete"
        });
        assert!(is_found(mtu(&sites, n)), "{}", mtu(&sites, n));
        let peer = &sites.report(n).peers[0];
        assert_eq!(peer.mtu_confirmed, Some(peer.mtu));
        assert_eq!(
            (peer.counts["mtu_black_holes"], peer.counts["bad_messages"]),
            (1, 0),
            "{peer:?}"
        );
    }
    // A new connection negotiates an MSS that fits.
    let refused = way.refused.load(Relaxed);
    let stream = sites.inside(0, || TcpStream::connect(to).unwrap());
    let (accepted, _) = listener.accept().unwrap();
    for end in [&stream, &accepted] {
        let segment = getsockopt(end, sockopt::TcpMaxSeg).unwrap();
        assert!(segment <= INNER_MTU - 40, "{segment}");
    }
    drop((stream, accepted));
    assert_eq!(way.refused.load(Relaxed), refused);
}

/// Packets of the site's hosts that exceed the device's MTU are answered by the kernel; the gateway
/// never sees them.
#[test]
fn packets_above_the_device_mtu_get_an_icmp_error() {
    let Some(sites) = Sites::new("host") else {
        return;
    };
    let space = &sites.spaces[0];
    space.set_sysctl("net/ipv4/ip_forward", "1").unwrap();
    let lan = || {
        Tun::create(
            "lan0",
            1_500,
            &[("10.1.0.1".parse().unwrap(), 24)],
            Offload::None,
        )
        .unwrap()
    };
    let lan = space.run(lan).unwrap();
    let head = Frame::frame_bytes(0);
    let builder = PacketBuilder::ipv4([10, 1, 0, 2], [10, 7, 0, 2], 64).udp(9, 9);
    let mut packet = vec![0; head + 1_500];
    builder
        .write_to_slice(&mut packet[head..], &[0; 1_472])
        .unwrap();
    lan.write([&packet, &[]]).unwrap();
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let mut answers = || -> Option<u16> {
        let length = lan.read(&mut frame).unwrap()?;
        match SlicedPacket::from_ip(Frame::packet(&frame[..length]))
            .ok()?
            .transport?
        {
            TransportSlice::Icmpv4(icmp) => match icmp.header().icmp_type {
                Icmpv4Type::DestinationUnreachable(
                    DestUnreachableHeader::FragmentationNeeded { next_hop_mtu },
                ) => Some(next_hop_mtu),
                _ => None,
            },
            _ => None,
        }
    };
    let told = std::cell::Cell::new(None);
    let mut tries = 0;
    while told.get().is_none() && tries < 100 {
        told.set(answers());
        thread::sleep(Duration::from_millis(10));
        tries += 1;
    }
    assert_eq!(told.get(), Some(1_420));
}

#[test]
fn the_dscp_is_copied_only_if_configured() {
    let Some(sites) = Sites::new("dscp") else {
        return;
    };
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    setsockopt(&a, sockopt::Ipv4Tos, &(46 << 2)).unwrap();
    there_and_back(&a, &b, b"a call");
    assert_eq!(sites.network.way.dscp.load(Relaxed), 0);
    let asked = sites.configs[0].replacen("[[peer]]", "copy_dscp = true\n[[peer]]", 1);
    assert_eq!(sites.reload(0, &asked), ["copy_dscp changed"]);
    there_and_back(&a, &b, b"a call");
    assert_eq!(sites.network.way.dscp.load(Relaxed), 46);
}

/// Answers reports until `hangs` is set.
struct Hangs {
    hangs: Arc<AtomicBool>,
}

impl Algorithm for Hangs {
    type Flow = ();

    fn name(&self) -> &str {
        "hangs"
    }

    fn programs(&self) -> Programs {
        Programs::new().with(
            "tell",
            "(def (Report (waiting 0))) \
             (when true (:= Report.waiting Flow.bytes_pending) (report))",
        )
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::PACING
    }

    fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("tell", &[]);
    }

    fn on_report(&mut self, (): &mut (), _: &Told<'_>, _: &mut Control<'_>) {
        while self.hangs.load(Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn an_algorithm_that_hangs_opens_its_own_peer_and_disturbs_no_other() {
    let hangs = Arc::new(AtomicBool::new(false));
    let (seen, known) = (Arc::clone(&hangs), makes());
    let makes: AlgorithmFactory =
        Arc::new(move |algorithm: &Named| match algorithm.name.as_str() {
            "hangs" => Ok(box_algorithm(Hangs {
                hangs: Arc::clone(&seen),
            })),
            _ => known(algorithm),
        });
    let hanging = (peer("hanging", 1) + &endpoint(1)).replace("\"bundler\"", "\"hangs\"");
    let configs = [
        site(0) + &hanging + &peer("well", 2) + &endpoint(2),
        site(1) + &peer("hub", 0),
        site(2) + &peer("hub", 0),
    ];
    let Some(sites) = Sites::of("hang", &configs, makes) else {
        return;
    };
    let hub = sites.udp(0, "10.7.0.1");
    let others = [sites.udp(1, "10.7.0.2"), sites.udp(2, "10.7.0.3")];
    let reason = |sites: &Sites, n: usize| sites.report(0).peers[n].reason;
    others
        .iter()
        .for_each(|other| there_and_back(&hub, other, b"hello"));
    sites.until("measured", |sites| {
        sites.is_measured(0, 0) && sites.is_measured(0, 1)
    });
    hangs.store(true, Relaxed);
    sites.until("open by the watchdog", |sites| reason(sites, 0) == "agent");
    let report = sites.report(0);
    assert!(
        report.peers[0]
            .why
            .contains("the algorithm does not respond"),
        "{}",
        report.peers[0].why
    );
    others
        .iter()
        .for_each(|other| there_and_back(&hub, other, b"still forwarding"));
    assert_ne!(reason(&sites, 1), "agent");
    hangs.store(false, Relaxed);
    sites.until("steered again", |sites| reason(sites, 0) != "agent");
}

#[test]
fn new_keys_under_load_lose_nothing() {
    const PACKET_INTERVAL: Duration = Duration::from_micros(500);
    let Some(sites) = Sites::new("rekey") else {
        return;
    };
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    there_and_back(&a, &b, b"hello");
    sites.until("measured", |sites| sites.is_measured(0, 0));
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, to) = (Arc::clone(&stop), b.local_addr().unwrap());
    let sends = thread::spawn(move || {
        let mut number = 0_u32;
        while !stopped.load(Relaxed) {
            a.send_to(&number.to_be_bytes(), to).unwrap();
            number += 1;
            thread::sleep(PACKET_INTERVAL);
        }
        number
    });
    let hears = thread::spawn(move || {
        b.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let (mut all, mut buffer) = (Vec::new(), [0; 4]);
        loop {
            match b.recv(&mut buffer) {
                Ok(_) => all.push(u32::from_be_bytes(buffer)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return all,
                Err(why) => panic!("{why}"),
            }
        }
    });
    // Without feedback the gateway renews the session, which succeeds once the path works again.
    sites.network.way.deaf.store(true, Relaxed);
    sites.until("silent", |sites| {
        sites.report(0).peers[0].reason == "silent"
    });
    sites.network.way.deaf.store(false, Relaxed);
    sites.until("under new keys", |sites| {
        let peer = &sites.report(0).peers[0];
        peer.counts["handshakes"] >= 2 && peer.reason != "silent"
    });
    stop.store(true, Relaxed);
    let (sent, heard) = (sends.join().unwrap(), hears.join().unwrap());
    assert!(
        heard.iter().copied().eq(0..sent),
        "{} of {sent} received",
        heard.len()
    );
    let counts = &sites.report(1).peers[0].counts;
    assert_eq!(
        (
            counts["replayed"],
            counts["forged"],
            counts["unknown_session"]
        ),
        (0, 0, 0)
    );
}

#[test]
fn nothing_is_left_behind() {
    let Some(mut sites) = Sites::quiet("left", &two_configs(), makes()) else {
        return;
    };
    let seen = |sites: &Sites| {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
        };
        // IPv6 routes include use counts; compare only destination, prefix length and device.
        let here = move || {
            let fields = |line: &str| {
                let all: Vec<&str> = line.split_whitespace().collect();
                [all[0], all[1], all[9]].join(" ")
            };
            let v6: Vec<String> = read("ipv6_route").lines().map(fields).collect();
            (
                read("route"),
                v6,
                read("udp").lines().count(),
                read("if_inet6"),
            )
        };
        sites.spaces[0].run(here).unwrap()
    };
    let before = seen(&sites);
    sites.start(1);
    sites.start(0);
    sites.there_and_back(b"hello");
    assert_ne!(seen(&sites), before);
    assert!(sites.socket(0).exists());
    sites.stop(0);
    assert_eq!(seen(&sites), before);
    assert!(!sites.socket(0).exists());
    assert!(
        !sites.spaces[0]
            .run(|| Tun::remove("gate0"))
            .unwrap()
            .unwrap()
    );
}

/// `wireguard-go` in a namespace; dropping the value stops it.
struct Plain {
    process: Child,
    socket: String,
}

impl Plain {
    /// Starts the process; returns `None` if it is not installed.
    fn start(space: &Namespace, name: &str) -> Option<Plain> {
        let mut command = Command::new("wireguard-go");
        command
            .args(["-f", name])
            .env("WG_PROCESS_FOREGROUND", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match space.enter_on_spawn(&mut command).unwrap().spawn() {
            Ok(process) => Some(Plain {
                process,
                socket: format!("/var/run/wireguard/{name}.sock"),
            }),
            Err(why)
                if why.kind() == ErrorKind::NotFound
                    && std::env::var_os("CCPLANE_NO_SKIP").is_none() =>
            {
                eprintln!(
                    "SKIPPED: plain WireGuard peer: wireguard-go is not installed; `scripts/setup \
                    test` installs it"
                );
                None
            }
            Err(why) => panic!("wireguard-go failed to start: {why}"),
        }
    }

    /// Sends a command in WireGuard's cross-platform userspace protocol.
    fn set(&self, text: &str) {
        let mut tries = 0;
        let mut stream = loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => break stream,
                Err(why) => assert!(tries < 500, "wireguard-go does not listen: {why}"),
            }
            tries += 1;
            thread::sleep(Duration::from_millis(10));
        };
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        stream
            .write_all(format!("set=1\n{text}\n").as_bytes())
            .unwrap();
        let mut answer = [0; 64];
        let bytes = stream.read(&mut answer).unwrap();
        assert_eq!(&answer[..bytes], b"errno=0\n\n");
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn another_preshared_key_takes_effect_with_a_reload_and_a_mismatch_is_explained() {
    let line = |n: u8| format!("preshared_key = \"{}\"\n", STANDARD.encode([n; 32]));
    let configs = [
        site(0) + &peer("other", 1) + &endpoint(1) + &line(1),
        site(1) + &peer("other", 0) + &line(1),
    ];
    let Some(sites) = Sites::of("psk", &configs, makes()) else {
        return;
    };
    sites.there_and_back(b"hello");
    let changed = |n: usize| configs[n].replace(&line(1), &line(2));
    assert_eq!(
        sites.reload(0, &changed(0)),
        ["peer `other` changed: preshared_key"]
    );
    let fault = |sites: &Sites, n: usize| sites.report(n).peers[0].reason;
    sites.until("refused", |sites| fault(sites, 0) == "answer_rejected");
    let why = sites.report(0).peers[0].why.clone();
    assert!(why.contains("`preshared_key` differs"), "{why}");
    assert_eq!(
        sites.reload(1, &changed(1)),
        ["peer `other` changed: preshared_key"]
    );
    there_and_back(
        &sites.udp(1, "10.7.0.2"),
        &sites.udp(0, "10.7.0.1"),
        b"again",
    );
    sites.until("measured", |sites| {
        sites.is_measured(0, 0) && sites.is_measured(1, 0)
    });
    assert_eq!(sites.report(0).peers.len(), 1);
}

#[test]
fn traffic_with_a_plain_wireguard_peer_passes_and_status_says_why_it_is_unshaped() {
    const PRESHARED: [u8; 32] = [9; 32];
    // The second site runs plain WireGuard.
    let preshared = format!("preshared_key = \"{}\"\n", STANDARD.encode(PRESHARED));
    let configs = [
        site(0) + &peer("plain", 1) + &endpoint(1) + &preshared,
        site(1) + &peer("hub", 0),
    ];
    let Some(mut sites) = Sites::quiet("plain", &configs, makes()) else {
        return;
    };
    let name = format!("ccp{}", std::process::id());
    let Some(plain) = Plain::start(&sites.spaces[1], &name) else {
        return;
    };
    plain.set(&format!(
        "private_key={}\nlisten_port=51820\npublic_key={}\npreshared_key={}\n\
         allowed_ip=10.7.0.1/32\n",
        hex([2; 32]),
        hex(STANDARD.decode(key(0).public().to_string()).unwrap()),
        hex(PRESHARED),
    ));
    for arguments in [
        ["address", "add", "10.7.0.2/24", "dev", &name],
        ["link", "set", "dev", &name, "up"],
    ] {
        let mut ip = Command::new("ip");
        ip.args(arguments);
        assert!(
            sites.spaces[1]
                .enter_on_spawn(&mut ip)
                .unwrap()
                .status()
                .unwrap()
                .success()
        );
    }
    sites.start(0);
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    for message in [&b"hello"[..], &[7; 1_300]] {
        there_and_back(&a, &b, message);
    }
    let report = &sites.report(0).peers[0];
    assert_eq!(
        (report.reason, report.mode, report.rate),
        ("plain", "open", None)
    );
    assert!(report.why.contains("plain WireGuard"), "{}", report.why);
    assert_eq!(report.counts["handshakes"], 1);
    assert_eq!(
        (report.mtu_search, report.counts["mtu_probes"]),
        ("unconfirmed", 0)
    );
    // With a different preshared key the handshake fails, and the fault is reported.
    sites.stop(0);
    let other = format!("preshared_key = \"{}\"\n", STANDARD.encode([8; 32]));
    sites.configs[0] = sites.configs[0].replace(&preshared, &other);
    sites.start(0);
    sites.until("refused", |sites| {
        sites.report(0).peers[0].reason == "answer_rejected"
    });
    drop(plain);
}
