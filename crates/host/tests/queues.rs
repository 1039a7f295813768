//! Priority bands through the real `tc`, on the loopback interface of the test's own namespace.

use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use crate::common::namespace;
use ccplane_host::queues::{Bands, QueueError, TcError, remove};
use ccplane_host::{Offload, Tun};
use ccplane_qdisc::marking::{LOW_CLASS_COUNT, dscp_of};
use ccplane_units::Rate;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

/// Returns the statistics of the interface's queues.
fn shown() -> String {
    let output = Command::new("tc")
        .args(["-s", "qdisc", "show", "dev", "lo"])
        .output()
        .expect("tc runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the number of packets that each band has sent.
fn counts() -> Vec<u64> {
    let text = shown();
    (0..=LOW_CLASS_COUNT)
        .map(|class| {
            let (_, band) = text
                .split_once(&format!("pfifo cc1{class}:"))
                .expect("the band is there");
            let (_, sent) = band.split_once(" bytes ").expect("figures");
            sent.split_whitespace()
                .next()
                .and_then(|n| n.parse().ok())
                .expect("a number")
        })
        .collect()
}

fn send(socket: &UdpSocket, to: SocketAddr, byte: u8, text: &[u8]) {
    let wide = i32::from(byte);
    let mark = match to {
        SocketAddr::V4(_) => ControlMessage::Ipv4Tos(&byte),
        SocketAddr::V6(_) => ControlMessage::Ipv6TClass(&wide),
    };
    let address = SockaddrStorage::from(to);
    sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(text)],
        &[mark],
        MsgFlags::empty(),
        Some(&address),
    )
    .expect("sent");
}

/// Installs the bands, or checks that the error names the missing kernel feature.
fn install(test: &str, bands: &Bands) -> bool {
    let why = match bands.install() {
        Ok(()) => return true,
        Err(QueueError::Tc(why @ TcError::Lacking { .. })) => why,
        Err(why) => panic!("{why}"),
    };
    if let TcError::Lacking { name, command, .. } = &why {
        let part = match *name {
            "prio" => " prio bands 5 ",
            "htb" => " htb default 1",
            _ => " u32 match ",
        };
        assert!(
            command.contains(part) && bands.commands().contains(command),
            "{why}"
        );
    }
    // Set by scripts/qemu, which runs Debian's kernel.
    let emulated = std::env::var_os("CCPLANE_EMULATED").is_some();
    assert!(!emulated, "Debian's kernel has it: {why}");
    assert!(
        shown().starts_with("qdisc noqueue 0: root"),
        "untouched: {}",
        shown()
    );
    eprintln!("SKIPPED: {test}: {why}; scripts/qemu runs it");
    false
}

#[test]
fn every_marking_has_its_band_whatever_its_ecn_bits_and_all_is_removed() {
    const TEST: &str = "every_marking_has_its_band_whatever_its_ecn_bits_and_all_is_removed";
    let Some(namespace) = namespace("bands") else {
        return;
    };
    let ran = namespace.run(|| {
        let bands = Bands::new("lo", None).expect("it has a loopback interface");
        if !install(TEST, &bands) {
            return;
        }
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // The kernel may have been built without IPv6.
            let Ok(socket) = UdpSocket::bind(address) else {
                continue;
            };
            let to = socket.local_addr().expect("bound");
            let before = counts();
            for class in 0..=LOW_CLASS_COUNT {
                for ecn in 0..4 {
                    send(&socket, to, dscp_of(class) << 2 | ecn, b"x");
                }
            }
            // Urgent, assured and old low-delay markings are not in the lower classes.
            for dscp in [46, 10, 4, 48] {
                send(&socket, to, dscp << 2, b"x");
            }
            let fresh: Vec<u64> = counts()
                .iter()
                .zip(&before)
                .map(|(after, before)| after - before)
                .collect();
            assert_eq!(fresh, [8, 4, 4, 4, 4], "{address}");
        }
        assert!(matches!(bands.install(), Err(QueueError::Installed(device)) if device == "lo"));
        remove("lo").expect("it is ours");
        assert!(shown().starts_with("qdisc noqueue 0: root"), "{}", shown());
    });
    ran.expect("the namespace is there");
}

#[test]
fn devices_are_those_of_the_threads_own_namespace() {
    let Some(namespace) = namespace("devices") else {
        return;
    };
    let create = || Tun::create("bands0", 1500, &[], Offload::None);
    let made = namespace.run(create).expect("the namespace is there");
    let _device = made.expect("as root");
    let ask = || Bands::new("bands0", None).map(drop);
    let inside = namespace.run(ask).expect("the namespace is there");
    inside.expect("the device is there");
    let error = ask().expect_err("the device is elsewhere").to_string();
    assert!(error.contains("unknown network device `bands0`"), "{error}");
}

#[test]
fn foreign_queues_are_left_alone() {
    let Some(namespace) = namespace("occupied") else {
        return;
    };
    let body = || {
        let bands = Bands::new("lo", None).expect("it has a loopback interface");
        assert!(
            matches!(remove("lo"), Err(QueueError::NotInstalled { kind, .. }) if kind == "noqueue")
        );
        let other = [
            "qdisc", "add", "dev", "lo", "root", "handle", "7:", "pfifo", "limit", "9",
        ];
        assert!(
            Command::new("tc")
                .args(other)
                .status()
                .expect("tc runs")
                .success()
        );
        for refused in [bands.install(), remove("lo")] {
            let text = refused.expect_err("the queue is not ours").to_string();
            assert!(
                text.contains("pfifo 7:") && text.contains("nothing was changed"),
                "{text}"
            );
        }
        assert!(shown().starts_with("qdisc pfifo 7: root"), "{}", shown());
    };
    namespace.run(body).expect("the namespace is there");
}

/// Simulates a kill after the first command. The root's handle identifies what it left.
#[test]
fn leftovers_of_an_interrupted_setup_are_named_and_removed() {
    let Some(namespace) = namespace("interrupted") else {
        return;
    };
    let body = || {
        let bands = Bands::new("lo", None).expect("it has a loopback interface");
        let first = [
            "qdisc", "add", "dev", "lo", "root", "handle", "cc0:", "pfifo",
        ];
        assert!(
            Command::new("tc")
                .args(first)
                .status()
                .expect("tc runs")
                .success()
        );
        let refused = bands.install().expect_err("bands are present").to_string();
        assert!(
            refused.contains("interrupted") && refused.contains("`ccplane qdisc remove lo`"),
            "{refused}"
        );
        remove("lo").expect("it is ours");
        assert!(shown().starts_with("qdisc noqueue 0: root"), "{}", shown());
    };
    namespace.run(body).expect("the namespace is there");
}

#[test]
fn under_a_rate_an_ordinary_packet_overtakes_all_low_ones() {
    const TEST: &str = "under_a_rate_an_ordinary_packet_overtakes_all_low_ones";
    let Some(namespace) = namespace("overtakes") else {
        return;
    };
    let ran = namespace.run(|| {
        let bands = Bands::new("lo", Some(Rate::from_bits_per_sec(100_000)))
            .expect("it has a loopback interface");
        if !install(TEST, &bands) {
            return;
        }
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        let to = socket.local_addr().expect("bound");
        // 40 packets of 100 ms each in the lowest class, then one in each other class, the ordinary
        // one last. None is sent before the next is queued, unless the host pauses for longer than
        // 100 ms.
        for _ in 0..40 {
            send(&socket, to, dscp_of(4) << 2, &[4; 1_200]);
        }
        for class in (0..4).rev() {
            send(&socket, to, dscp_of(class) << 2 | 2, &[class; 1_200]);
        }
        let mut order = Vec::new();
        let mut text = [0; 1_500];
        while order.len() < 44 {
            socket.recv(&mut text).expect("the next packet");
            order.push(text[0]);
        }
        let places: Vec<_> = (0..4)
            .map(|class| order.iter().position(|c| *c == class))
            .collect();
        assert!(places.is_sorted() && places[3] < Some(20), "{order:?}");
        remove("lo").expect("it is ours");
    });
    ran.expect("the namespace is there");
}
