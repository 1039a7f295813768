//! Two gateways in network namespaces, connected by a link between two TUN devices.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ccplane_bundle::{EpochSize, FEEDBACK_PORT, Notice};
use ccplane_gateway::config::AlgorithmSpec;
use ccplane_gateway::keys::PrivateKey;
use ccplane_gateway::status::{StatusRequest, request};
use ccplane_gateway::{AlgorithmFactory, ReloadError};
use ccplane_host::{Tun, has_ipv6};

use crate::sites::{Sites, makes, parse, there_and_back, two_configs};

/// Name of an algorithm whose factory panics.
const PANICS: &str = "panics";

fn panics() -> AlgorithmFactory {
    let known = makes();
    Arc::new(move |algorithm: &AlgorithmSpec| {
        assert_ne!(
            algorithm.name, PANICS,
            "the test makes this algorithm panic"
        );
        known(algorithm)
    })
}

#[test]
fn packets_of_two_sites_pass_and_both_boxes_measure() {
    let Some(sites) = Sites::new("pass") else {
        return;
    };
    // The first packet waits for the handshake. The longest message is fragmented by the site's
    // kernel.
    for message in [&b"hello"[..], &[7; 1_300], &[8; 4_000]] {
        sites.there_and_back(message);
    }
    if has_ipv6() {
        sites.there_and_back_v6(b"hello");
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
            (
                peer.counts["feedback_unlikely"],
                peer.counts["bad_messages"]
            ),
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
    let Some(mut sites) = Sites::new("bulk") else {
        return;
    };
    let listener = sites.inside(1, || TcpListener::bind("10.7.0.2:5201").unwrap());
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = vec![0; BYTES];
        for _ in 0..2 {
            stream.read_exact(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        }
    });
    let mut stream = sites.inside(0, || TcpStream::connect("10.7.0.2:5201").unwrap());
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|n| (n * 7 % 251) as u8).collect();
    let mut round = || {
        let mut writer = stream.try_clone().unwrap();
        let copy = sent.clone();
        let write = thread::spawn(move || writer.write_all(&copy).unwrap());
        let mut back = vec![0; BYTES];
        stream.read_exact(&mut back).unwrap();
        write.join().unwrap();
        assert!(back == sent, "the payload was changed");
    };
    round();
    for n in [0, 1] {
        // The link preserves the order, so the gateway's two threads must send packets in the order
        // of their numbers.
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
    let Some(sites) = Sites::new("reload") else {
        return;
    };
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    there_and_back(&a, &b, b"before");
    let reload = |text: &str| {
        let config = parse(text);
        sites.inside(0, || sites.gateways[0].as_ref().unwrap().reload(config))
    };
    let stranger = PrivateKey::from_bytes([9; 32]).public();
    let more = format!(
        "{}queue = \"fq_codel\"\n[[peer]]\nname = \"new\"\npublic_key = \"{stranger}\"\n\
         prefixes = [\"10.9.0.0/16\"]\nalgorithm = \"bundler\"\n",
        sites.configs[0]
    );
    let changes: Vec<String> = reload(&more)
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(changes, ["peer `other` changed: queue", "peer `new` added"]);
    assert_eq!(sites.report(0).peers.len(), 2);
    there_and_back(&a, &b, b"after");
    sites.until("measured under the new keys", |sites| {
        sites.report(0).peers[0].counts["arrived_packets"] > 0
    });
    let refused = reload(&more.replace("gate0", "gate1"));
    assert!(
        matches!(refused, Err(ReloadError::Restart(_))),
        "{refused:?}"
    );
    let changes = reload(&sites.configs[0]).unwrap();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(sites.report(0).peers.len(), 1);
    there_and_back(&a, &b, b"and back");
}

#[test]
fn manual_mode_survives_a_new_queue() {
    let Some(sites) = Sites::new("hand") else {
        return;
    };
    sites.there_and_back(b"hello");
    sites.until("measured", |sites| sites.is_measured(0, 0));
    let pass = StatusRequest::ByHand {
        peer: "other".into(),
        pass: true,
    };
    request(&sites.socket(0), &pass, |_| true).unwrap();
    let changes = sites.reload(0, &format!("{}max = \"50mbit\"\n", sites.configs[0]));
    assert_eq!(changes, ["peer `other` changed: max"]);
    assert_eq!(sites.report(0).peers[0].reason, "by_hand");
}

#[test]
fn a_reload_that_cannot_be_made_changes_nothing() {
    let Some(sites) = Sites::new("refuse") else {
        return;
    };
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
            "{}[[peer]]\nname = \"new\"\npublic_key = \"{stranger}\"\n\
             prefixes = [\"10.9.0.0/16\"]\nalgorithm = \"{algorithm}\"\n",
            sites.configs[0]
        ))
    };
    let reload = |config| sites.inside(0, || sites.gateways[0].as_ref().unwrap().reload(config));
    assert!(matches!(
        reload(peer("unheard_of")),
        Err(ReloadError::Gateway(_))
    ));
    assert_eq!((routes(), sites.report(0).peers.len()), (before.clone(), 1));
    // A peer that was refused once can still be added.
    assert_eq!(reload(peer("bundler")).unwrap().len(), 1);
    assert_eq!(
        (routes().len(), sites.report(0).peers.len()),
        (before.len() + 1, 2)
    );
    assert_eq!(reload(parse(&sites.configs[0])).unwrap().len(), 1);
    assert_eq!((routes(), sites.report(0).peers.len()), (before, 1));
}

#[test]
fn a_thread_that_ends_stops_the_gateway_and_no_reload_waits_for_it() {
    let Some(mut sites) = Sites::of("ended", &two_configs(), panics()) else {
        return;
    };
    let gateway = sites.gateways[0].take().unwrap();
    let config = parse(&sites.configs[0].replace("\"bundler\"", &format!("\"{PANICS}\"")));
    let outcome = sites.spaces[0]
        .run(|| gateway.reload(config.clone()))
        .unwrap();
    assert!(matches!(outcome, Err(ReloadError::Stopping)), "{outcome:?}");
    sites.until("stopped", |_| !gateway.is_running());
    // No thread is left to take the reload.
    let outcome = sites.spaces[0].run(|| gateway.reload(config)).unwrap();
    assert!(matches!(outcome, Err(ReloadError::Stopping)), "{outcome:?}");
    let panicked = sites.spaces[0]
        .run(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| gateway.stop())));
    assert!(panicked.unwrap().is_err(), "the panic is reported");
    assert!(
        !sites.spaces[0]
            .run(|| Tun::remove("gate0"))
            .unwrap()
            .unwrap(),
        "the device is removed"
    );
}

#[test]
fn status_pass_and_control_requests_are_served() {
    use std::os::unix::fs::PermissionsExt;
    let Some(sites) = Sites::new("ask") else {
        return;
    };
    let socket = sites.socket(0);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    sites.there_and_back(b"hello");
    sites.until("measured", |sites| sites.is_measured(0, 0));
    let answer = |question: &StatusRequest| {
        let mut lines = Vec::new();
        request(&socket, question, |line| {
            lines.push(line.to_owned());
            true
        })
        .unwrap();
        lines
    };
    let status = answer(&StatusRequest::Status);
    assert!(
        status.len() == 1 && status[0].contains("\"min_rtt\""),
        "{status:?}"
    );
    let by_hand = |peer: &str, pass| {
        answer(&StatusRequest::ByHand {
            peer: peer.into(),
            pass,
        })
        .concat()
    };
    assert!(by_hand("other", true).contains("\"by_hand\""));
    assert!(by_hand("other", false).contains("\"start\""));
    assert!(by_hand("nobody", true).contains("no peer is named"));
    let events = answer(&StatusRequest::Events {
        after: 0,
        follow: false,
    });
    for what in ["\"keys\"", "\"mode\""] {
        assert!(
            events.iter().any(|event| event.contains(what)),
            "{what}: {events:?}"
        );
    }
}

#[test]
fn packets_with_foreign_source_addresses_are_dropped() {
    let Some(sites) = Sites::new("source") else {
        return;
    };
    let (a, b) = (sites.udp(0, "10.7.0.1"), sites.udp(1, "10.7.0.2"));
    there_and_back(&a, &b, b"hello");
    // An address of the first site that the second site does not route to it.
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

#[test]
fn a_process_on_a_gateway_cannot_speak_as_its_box() {
    let Some(sites) = Sites::new("posed") else {
        return;
    };
    sites.there_and_back(b"hello");
    sites.until("measured", |sites| sites.is_measured(0, 0));
    let every = EpochSize::new(1).unwrap();
    let notice = Notice {
        session: 0,
        epoch_size: every,
    }
    .encode();
    let far = ("10.7.0.2", FEEDBACK_PORT);
    // The port is above 1023, so any user can bind it.
    let socket = sites.inside(0, || UdpSocket::bind(("10.7.0.1", FEEDBACK_PORT)).unwrap());
    socket.send_to(b"no message", far).unwrap();
    socket.send_to(&notice, far).unwrap();
    sites.udp(0, "10.7.0.1").send_to(b"nor this", far).unwrap();
    let of = |n: usize, count: &str| sites.report(n).peers[0].counts[count];
    sites.until("dropped", |_| of(0, "posed_messages") == 3);
    sites.there_and_back(b"again");
    assert_eq!(of(1, "bad_messages"), 0);
    // The port has no special meaning for other hosts of the site.
    let other = sites.udp(0, "10.7.0.1");
    other
        .send_to(b"hello", ("10.8.2.1", FEEDBACK_PORT))
        .unwrap();
    assert_eq!(of(0, "posed_messages"), 3);
}
