//! Two gateways in namespaces of their own, over a wire between two more devices.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ccplane_bundle::gateway::config::{Algorithm, Config};
use ccplane_bundle::gateway::keys::PrivateKey;
use ccplane_bundle::gateway::status::{Question, ask};
use ccplane_bundle::gateway::{Gateway, Makes, Refused, Report};
use ccplane_host::{LONGEST_FRAME, Namespace, Offload, Tun, has_ipv6};
use nix::poll::{PollFd, PollFlags, poll};

/// A namespace for a test, unless this process may make none.
fn namespace(test: &str) -> Option<Namespace> {
    match Namespace::create(&format!("ccplane-{}-{test}", std::process::id())) {
        Ok(namespace) => Some(namespace),
        Err(reason) if std::env::var_os("CCPLANE_NO_SKIP").is_none() => {
            eprintln!("SKIPPED: {test}: {reason}");
            None
        }
        Err(reason) => panic!("{test} cannot run: {reason}"),
    }
}

/// What carries packets between two devices until it is dropped.
struct Wire {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    fn between(ends: [Tun; 2]) -> Wire {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let carry = move || {
            let mut frame = vec![0; LONGEST_FRAME];
            while !stopped.load(Ordering::Relaxed) {
                let mut readable = ends.each_ref().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
                let _ = poll(&mut readable, 50_u16);
                for [from, to] in [[0, 1], [1, 0]] {
                    while let Ok(Some(length)) = ends[from].read(&mut frame) {
                        let _ = ends[to].write([&frame[..length], &[]]);
                    }
                }
            }
        };
        Wire {
            stop,
            thread: Some(thread::spawn(carry)),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Two sites.
struct Sites {
    spaces: [Namespace; 2],
    gateways: [Option<Gateway>; 2],
    configs: [String; 2],
    keys: [PrivateKey; 2],
    _wire: Wire,
    dir: PathBuf,
}

/// The name of an algorithm that cannot be made.
const PANICS: &str = "panics";

fn makes() -> Makes {
    Arc::new(|algorithm: &Algorithm| {
        assert_ne!(algorithm.name, PANICS, "as this test wants it");
        ccplane_algorithms::by_name(&algorithm.name, &ccplane_algorithms::Parameters::new())
            .map_err(|why| why.to_string())
    })
}

fn parse(text: &str) -> Config {
    Config::parse("test.toml", text, &|_| Ok(())).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

fn site(n: usize, other: &PrivateKey, peer: &str) -> String {
    let v6 = |last| {
        if has_ipv6() {
            format!(", \"fd07::{last}/{}\"", if last == n + 1 { 64 } else { 128 })
        } else {
            String::new()
        }
    };
    let far = 2 - n;
    format!(
        "[site]\nkey = \"unused\"\nlisten = \"0.0.0.0:51820\"\ndevice = \"gate0\"\naddresses = [\"10.7.0.{}/24\"{}]\n\
         [[peer]]\nname = \"other\"\npublic_key = \"{}\"\nprefixes = [\"10.7.0.{far}/32\", \"10.8.{far}.0/24\"{}]\nalgorithm = \"bundler\"\n{peer}\n",
        n + 1,
        v6(n + 1),
        other.public(),
        v6(far),
    )
}

impl Sites {
    fn new(test: &str) -> Option<Sites> {
        let spaces = [namespace(&format!("{test}-a"))?, namespace(&format!("{test}-b"))?];
        let end = |n: usize| {
            let address: IpAddr = format!("192.0.2.{}", n + 1).parse().unwrap();
            let make = || Tun::create("under0", 1_500, &[(address, 30)], Offload::None);
            spaces[n].run(make).unwrap().unwrap()
        };
        let wire = Wire::between([end(0), end(1)]);
        let keys = [1, 2].map(|n| PrivateKey::from_bytes([n; 32]));
        let configs = [
            site(0, &keys[1], "endpoint = \"192.0.2.2:51820\""),
            // The second is called, and learns where the first is.
            site(1, &keys[0], ""),
        ];
        let dir = std::env::temp_dir().join(format!("ccplane-gateway-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut sites = Sites {
            spaces,
            gateways: [None, None],
            configs,
            keys,
            _wire: wire,
            dir,
        };
        // A call that nobody hears is repeated after 5 s only.
        sites.start(1);
        sites.start(0);
        Some(sites)
    }

    fn socket(&self, n: usize) -> PathBuf {
        self.dir.join(format!("{n}.sock"))
    }

    fn start(&mut self, n: usize) {
        let (config, key, socket) = (parse(&self.configs[n]), self.keys[n].clone(), self.socket(n));
        let start = || Gateway::start(config, &key, makes(), false, &socket);
        self.gateways[n] = Some(self.spaces[n].run(start).unwrap().unwrap());
    }

    fn stop(&mut self, n: usize) {
        if let Some(gateway) = self.gateways[n].take() {
            self.spaces[n].run(|| gateway.stop()).unwrap().unwrap();
        }
    }

    fn report(&self, n: usize) -> Report {
        self.gateways[n].as_ref().unwrap().report()
    }

    /// Waits until something is so.
    #[expect(clippy::disallowed_methods, reason = "gateways run in real time")]
    fn until(&self, what: &str, holds: impl Fn(&Sites) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "not {what}: {:#?} {:#?}",
                self.report(0),
                self.report(1)
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn udp(&self, n: usize, address: &str) -> UdpSocket {
        let socket = self.spaces[n].run(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.stop(0);
            self.stop(1);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn there_and_back(a: &UdpSocket, b: &UdpSocket, message: &[u8]) {
    let mut buffer = vec![0; 70_000];
    a.send_to(message, b.local_addr().unwrap()).unwrap();
    let (bytes, from) = b.recv_from(&mut buffer).expect("it came");
    assert_eq!((&buffer[..bytes], from), (message, a.local_addr().unwrap()));
    b.send_to(message, from).unwrap();
    assert_eq!(a.recv(&mut buffer).expect("it came back"), message.len());
}

#[test]
fn packets_of_two_sites_pass_and_both_boxes_measure() {
    let Some(sites) = Sites::new("pass") else { return };
    // The first packet waits for the keys. The longest are fragmented by the site's own kernel.
    for message in [&b"hello"[..], &[7; 1_300], &[8; 4_000]] {
        there_and_back(&sites.udp(0, "10.7.0.1"), &sites.udp(1, "10.7.0.2"), message);
    }
    if has_ipv6() {
        there_and_back(&sites.udp(0, "fd07::1"), &sites.udp(1, "fd07::2"), b"hello");
    }
    sites.until("measured both ways", |sites| {
        [0, 1].iter().all(|n| {
            let peer = &sites.report(*n).peers[0];
            peer.min_rtt > 0.0 && peer.reason != "plain" && peer.counts["arrived_packets"] > 3
        })
    });
    for n in [0, 1] {
        let peer = &sites.report(n).peers[0];
        assert_eq!(
            (
                peer.mode,
                peer.counts["missing_packets"],
                peer.counts["foreign_packets"]
            ),
            ("open", 0, 0),
            "{peer:?}"
        );
        assert_eq!(
            (peer.counts["feedback_unlikely"], peer.counts["bad_messages"]),
            (0, 0),
            "{peer:?}"
        );
        assert_eq!(
            peer.endpoint.as_deref(),
            Some(["192.0.2.2:51820", "192.0.2.1:51820"][n])
        );
    }
}

#[test]
fn a_connection_carries_megabytes_both_ways_and_goes_on_after_a_restart() {
    const BYTES: usize = 4 << 20;
    let Some(mut sites) = Sites::new("bulk") else { return };
    let listener = sites.spaces[1]
        .run(|| TcpListener::bind("10.7.0.2:5201").unwrap())
        .unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = vec![0; BYTES];
        for _ in 0..2 {
            stream.read_exact(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        }
    });
    let mut stream = sites.spaces[0]
        .run(|| TcpStream::connect("10.7.0.2:5201").unwrap())
        .unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|n| (n * 7 % 251) as u8).collect();
    let mut round = || {
        let mut writer = stream.try_clone().unwrap();
        let copy = sent.clone();
        let write = thread::spawn(move || writer.write_all(&copy).unwrap());
        let mut back = vec![0; BYTES];
        stream.read_exact(&mut back).unwrap();
        write.join().unwrap();
        assert!(back == sent, "bytes were changed");
    };
    round();
    for n in [0, 1] {
        // The wire keeps the order, so what two threads of a gateway send has to leave in that of its numbers.
        let counts = &sites.report(n).peers[0].counts;
        assert_eq!(
            (counts["out_of_order_packets"], counts["replayed"]),
            (0, 0),
            "{counts:?}"
        );
    }
    sites.stop(1);
    sites.start(1);
    round();
    echo.join().unwrap();
}

#[test]
fn a_reload_changes_peers_without_loss_and_refuses_what_takes_a_restart() {
    let Some(sites) = Sites::new("reload") else { return };
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    there_and_back(&a, &b, b"before");
    let reload = |text: &str| {
        let config = parse(text);
        sites.spaces[0]
            .run(|| sites.gateways[0].as_ref().unwrap().reload(config))
            .unwrap()
    };
    let stranger = PrivateKey::from_bytes([9; 32]).public();
    let more = format!(
        "{}queue = \"fq_codel\"\n[[peer]]\nname = \"new\"\npublic_key = \"{stranger}\"\nprefixes = [\"10.9.0.0/16\"]\nalgorithm = \"bundler\"\n",
        sites.configs[0]
    );
    let changes: Vec<String> = reload(&more).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(changes, ["peer `other` changed: queue", "peer `new` added"]);
    assert_eq!(sites.report(0).peers.len(), 2);
    there_and_back(&a, &b, b"after");
    sites.until("measured under the new keys", |sites| {
        sites.report(0).peers[0].counts["arrived_packets"] > 0
    });
    let refused = reload(&more.replace("gate0", "gate1"));
    assert!(matches!(refused, Err(Refused::Restart(_))), "{refused:?}");
    let changes = reload(&sites.configs[0]).unwrap();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(sites.report(0).peers.len(), 1);
    there_and_back(&a, &b, b"and back");
}

#[test]
fn what_a_person_ordered_outlasts_a_new_queue() {
    let Some(sites) = Sites::new("hand") else { return };
    there_and_back(&sites.udp(0, "10.7.0.1"), &sites.udp(1, "10.7.0.2"), b"hello");
    sites.until("measured", |sites| sites.report(0).peers[0].reason == "start");
    let pass = Question::ByHand {
        peer: "other".into(),
        pass: true,
    };
    ask(&sites.socket(0), &pass, |_| true).unwrap();
    let config = parse(&format!("{}max = \"50mbit\"\n", sites.configs[0]));
    let changes = sites.spaces[0]
        .run(|| sites.gateways[0].as_ref().unwrap().reload(config))
        .unwrap()
        .unwrap();
    assert_eq!(changes[0].to_string(), "peer `other` changed: max");
    assert_eq!(sites.report(0).peers[0].reason, "by_hand");
}

#[test]
fn a_reload_that_cannot_be_made_changes_nothing() {
    let Some(sites) = Sites::new("refuse") else { return };
    let routes = || {
        let read = || std::fs::read_to_string("/proc/thread-self/net/route").unwrap();
        let all = sites.spaces[0].run(read).unwrap();
        let mut all: Vec<String> = all.lines().map(str::to_owned).collect();
        all.sort();
        all
    };
    let before = routes();
    let stranger = PrivateKey::from_bytes([9; 32]).public();
    let peer = |algorithm: &str| {
        parse(&format!(
            "{}[[peer]]\nname = \"new\"\npublic_key = \"{stranger}\"\nprefixes = [\"10.9.0.0/16\"]\nalgorithm = \"{algorithm}\"\n",
            sites.configs[0]
        ))
    };
    let reload = |config| {
        sites.spaces[0]
            .run(|| sites.gateways[0].as_ref().unwrap().reload(config))
            .unwrap()
    };
    assert!(matches!(reload(peer("unheard_of")), Err(Refused::Gateway(_))));
    assert_eq!((routes(), sites.report(0).peers.len()), (before.clone(), 1));
    // What was refused once is as new as before.
    assert_eq!(reload(peer("bundler")).unwrap().len(), 1);
    assert_eq!((routes().len(), sites.report(0).peers.len()), (before.len() + 1, 2));
    assert_eq!(reload(parse(&sites.configs[0])).unwrap().len(), 1);
    assert_eq!((routes(), sites.report(0).peers.len()), (before, 1));
}

#[test]
fn a_thread_that_ends_stops_the_gateway_and_no_reload_waits_for_it() {
    let Some(mut sites) = Sites::new("ended") else { return };
    let gateway = sites.gateways[0].take().unwrap();
    let config = parse(&sites.configs[0].replace("\"bundler\"", &format!("\"{PANICS}\"")));
    let outcome = sites.spaces[0].run(|| gateway.reload(config.clone())).unwrap();
    assert!(matches!(outcome, Err(Refused::Stopping)), "{outcome:?}");
    assert!(!gateway.is_running());
    // Nobody takes this order.
    let outcome = sites.spaces[0].run(|| gateway.reload(config)).unwrap();
    assert!(matches!(outcome, Err(Refused::Stopping)), "{outcome:?}");
    let panicked = sites.spaces[0].run(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| gateway.stop())));
    assert!(panicked.unwrap().is_err(), "the panic is told");
    assert!(
        !sites.spaces[0].run(|| Tun::remove("gate0")).unwrap().unwrap(),
        "and the device is gone"
    );
}

#[test]
fn who_may_ask_is_answered_and_pass_and_control_are_heard() {
    use std::os::unix::fs::PermissionsExt;
    let Some(sites) = Sites::new("ask") else { return };
    let socket = sites.socket(0);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    there_and_back(&sites.udp(0, "10.7.0.1"), &sites.udp(1, "10.7.0.2"), b"hello");
    sites.until("measured", |sites| sites.report(0).peers[0].reason == "start");
    let answer = |question: &Question| {
        let mut lines = Vec::new();
        ask(&socket, question, |line| {
            lines.push(line.to_owned());
            true
        })
        .unwrap();
        lines
    };
    let status = answer(&Question::Status);
    assert!(status.len() == 1 && status[0].contains("\"min_rtt\""), "{status:?}");
    let by_hand = |peer: &str, pass| {
        answer(&Question::ByHand {
            peer: peer.into(),
            pass,
        })
        .concat()
    };
    assert!(by_hand("other", true).contains("\"by_hand\""));
    assert!(by_hand("other", false).contains("\"start\""));
    assert!(by_hand("nobody", true).contains("there are other"));
    let events = answer(&Question::Events {
        after: 0,
        follow: false,
    });
    for what in ["\"keys\"", "\"mode\""] {
        assert!(events.iter().any(|event| event.contains(what)), "{what}: {events:?}");
    }
}

#[test]
fn a_source_that_is_not_the_peer_s_is_not_taken() {
    let Some(sites) = Sites::new("source") else { return };
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    there_and_back(&a, &b, b"hello");
    // An address of the first site that the second knows nothing of.
    sites.spaces[0]
        .run(|| ccplane_host::add_address("lo:own", "10.6.0.1".parse().unwrap(), 32))
        .unwrap()
        .unwrap();
    let stranger = sites.udp(0, "10.6.0.1");
    stranger.send_to(b"hello", b.local_addr().unwrap()).unwrap();
    sites.until("refused", |sites| {
        sites.report(1).peers[0].counts["foreign_packets"] == 1
    });
    there_and_back(&a, &b, b"again");
}
