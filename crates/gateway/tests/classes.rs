//! Traffic classes and the site's uplink, with gateways in network namespaces: delay per class and
//! total rate.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::sites::{Sites, endpoint, makes, peer, site};

/// Calls use port 4000 of the second site and are served first.
const CLASSES: &str = "[[class]]\nname = \"calls\"\nmatch = { proto = \"udp\", port = 4000 }\n\
                       [[class]]\nname = \"rest\"\nlevel = 1\nqueue = \"droptail:400kB\"\n";

/// Sends 24 Mbit/s of 1,200-byte datagrams until it is dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    #[expect(clippy::disallowed_methods, reason = "traffic in real time")]
    fn to(socket: UdpSocket, target: &'static str) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let send = move || {
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..5 {
                    let _ = socket.send_to(&[7; 1_200], target);
                }
                thread::sleep(Duration::from_millis(2));
            }
        };
        Flood {
            stop,
            thread: Some(thread::spawn(send)),
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn bound(sites: &Sites, n: usize, address: &str) -> UdpSocket {
    let socket = sites.inside(n, || UdpSocket::bind(address).unwrap());
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

/// Returns the median of eleven RTTs to a socket that the test itself echoes from.
#[expect(clippy::disallowed_methods, reason = "gateways run in real time")]
fn round_trip(a: &UdpSocket, b: &UdpSocket) -> Duration {
    let mut buffer = [0; 64];
    let mut all: Vec<Duration> = (0..11_u8)
        .map(|n| {
            let start = Instant::now();
            a.send_to(&[n; 60], b.local_addr().unwrap()).unwrap();
            let (bytes, from) = b.recv_from(&mut buffer).expect("it came");
            b.send_to(&buffer[..bytes], from).unwrap();
            a.recv(&mut buffer).expect("the packet is returned");
            assert_eq!(buffer[0], n);
            start.elapsed()
        })
        .collect();
    all.sort();
    all[5]
}

#[test]
fn urgent_classes_overtake_bulk_and_a_reload_keeps_queued_packets() {
    let first = site(0) + "uplink_rate = \"8mbit\"\n" + &peer("other", 1) + &endpoint(1);
    let configs = [first.clone() + CLASSES, site(1) + &peer("other", 0)];
    let Some(sites) = Sites::of("class", &configs, makes()) else {
        return;
    };
    let calls = [
        bound(&sites, 0, "10.7.0.1:0"),
        bound(&sites, 1, "10.7.0.2:4000"),
    ];
    round_trip(&calls[0], &calls[1]);
    let flood = Flood::to(bound(&sites, 0, "10.7.0.1:0"), "10.7.0.2:5000");
    sites.until("the low class's queue is full", |sites| {
        let classes = &sites.report(0).peers[0].classes;
        classes[1].queue_bytes > 300_000 && classes[1].dropped_packets > 0
    });
    let under_flood = round_trip(&calls[0], &calls[1]);
    let classes = sites.report(0).peers[0].classes.clone();
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["calls", "rest"]);
    // Includes the packets of the first RTT measurement, before the flood.
    assert_eq!(
        (classes[0].sent_packets, classes[0].dropped_packets),
        (22, 0)
    );
    // 400 kB at 8 Mbit/s take 400 ms.
    assert!(under_flood < Duration::from_millis(100), "{under_flood:?}");
    drop(flood);
    // The reload moves all queued packets to the first class without loss.
    let before = sites.report(0).peers[0].clone();
    let swapped = CLASSES
        .replace("port = 4000", "port = 5000")
        .replace("level = 1", "level = 0");
    assert_eq!(
        sites.reload(0, &(first.clone() + &swapped)),
        ["classes changed"]
    );
    let after = sites.report(0).peers[0].clone();
    assert!(
        after.classes[0].queue_bytes > 100_000,
        "{before:?} {after:?}"
    );
    assert_eq!(
        after.counts["dropped_packets"],
        before.counts["dropped_packets"]
    );
    let kept = after.queue_packets + after.counts["sent_packets"];
    assert!(
        kept >= before.queue_packets + before.counts["sent_packets"],
        "{before:?} {after:?}"
    );
    assert_eq!(after.counts["unreachable_packets"], 0);
    // Without classes the call shares the queue with the flood.
    sites.reload(0, &first);
    let _flood = Flood::to(bound(&sites, 0, "10.7.0.1:0"), "10.7.0.2:5000");
    sites.until("a queue", |sites| {
        sites.report(0).peers[0].queue_bytes > 300_000
    });
    assert_eq!(sites.report(0).peers[0].classes.len(), 1);
}

#[test]
fn peers_share_the_uplink_rate() {
    let uplink = 10_000_000.0;
    let first = site(0)
        + "uplink_rate = \"10mbit\"\n"
        + &(peer("one", 1) + &endpoint(1))
        + &(peer("two", 2) + &endpoint(2));
    let configs = [
        first,
        site(1) + &peer("zero", 0),
        site(2) + &peer("zero", 0),
    ];
    let Some(sites) = Sites::of("uplink", &configs, makes()) else {
        return;
    };
    sites.until("sessions with both peers", |sites| {
        let peers = &sites.report(0).peers;
        peers.iter().all(|peer| peer.keys_age_seconds.is_some())
    });
    let flood = |n: usize| {
        let target = ["", "10.7.0.2:5000", "10.7.0.3:5000"][n];
        Flood::to(bound(&sites, 0, "10.7.0.1:0"), target)
    };
    // Rate to each peer over one second, bits per second, from the sent byte counters.
    #[expect(clippy::disallowed_methods, reason = "gateways run in real time")]
    let rates = || {
        let read = || {
            let report = sites.report(0);
            let sent = [0, 1].map(|peer| report.peers[peer].counts["sent_bytes"]);
            (report.uptime, sent)
        };
        let (from, before) = read();
        thread::sleep(Duration::from_secs(1));
        let (to, after) = read();
        [0, 1].map(|peer| (after[peer] - before[peer]) as f64 * 8.0 / (to - from))
    };
    let one = flood(1);
    sites.until("a queue to the first", |sites| {
        sites.report(0).peers[0].queue_packets > 50
    });
    let [alone, _] = rates();
    let two = flood(2);
    sites.until("a queue to the second", |sites| {
        sites.report(0).peers[1].queue_packets > 50
    });
    let [a, b] = rates();
    drop((one, two));
    // Allows for catching up and for one or two packets at the ends of the second.
    let rate_max = 1.03 * uplink;
    assert!(alone < rate_max && a + b < rate_max, "{alone} {a} {b}");
    assert!(
        alone > 0.8 * uplink && a + b > 0.8 * uplink,
        "{alone} {a} {b}"
    );
    assert!(a / b < 1.15 && b / a < 1.15, "{a} {b}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "gateways run in real time")]
fn an_endpoint_that_a_reload_adds_is_called_at_once() {
    let configs = [site(0) + &peer("other", 1), site(1) + &peer("other", 0)];
    let Some(sites) = Sites::of("late", &configs, makes()) else {
        return;
    };
    thread::sleep(Duration::from_millis(600));
    assert!(
        sites.report(0).peers[0].keys_age_seconds.is_none(),
        "the peer's endpoint is unknown"
    );
    let start = Instant::now();
    let changes = sites.reload(0, &(configs[0].clone() + &endpoint(1)));
    assert_eq!(changes, ["peer `other` changed: endpoint"]);
    sites.until("called", |sites| {
        sites.report(0).peers[0].keys_age_seconds.is_some()
    });
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}
