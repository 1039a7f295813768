//! A path whose MTU shrinks and grows while a connection is open: two namespaces behind a router
//! that sends no ICMP errors and drops fragments.
#![expect(clippy::disallowed_methods, reason = "a test in real time")]

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use ccplane_transport::{Native, TransportConfig};
use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Stamping, UdpCongestion, UdpHost, UdpOptions};
use ccplane_units::{Duration, Rate};

use crate::flood::switch::host::{RoutedPath, skip};

/// Initial MTU of the path.
const FULL_DATAGRAM_BYTES: usize = DATAGRAM_BYTES_DEFAULT + 28;
const RAISE: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_millis(5);

/// Creates the path, whose router drops oversized packets silently, and fragments as well.
fn silent_path() -> RoutedPath {
    let path = RoutedPath::new("width", 72);
    path.drop_icmp();
    let fragments = "add chain ip hole way { type filter hook forward priority 0; }; \
                     add rule ip hole way ip frag-off & 0x3fff != 0 drop";
    path.run_on_router(&["nft", fragments]);
    path
}

/// Moves this thread to the namespace.
fn enter(name: &str) {
    let namespace = File::open(format!("/run/netns/{name}")).expect("the namespace was created");
    nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).expect("root may");
}

fn options(local: &str) -> UdpOptions {
    UdpOptions {
        local: local.parse().expect("an address"),
        datagram_bytes: DATAGRAM_BYTES_DEFAULT,
        window: 4 << 20,
        tls: None,
        dscp: 0,
        config: TransportConfig {
            idle_timeout: Duration::from_secs(60),
            max_rate: Some(Rate::from_bits_per_sec(10_000_000)),
            ..TransportConfig::default()
        },
        stamping: Stamping::Off,
        link_rate: None,
        accept_congestion: Native::cubic(),
    }
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Receives one stream and checks every byte; returns its length.
fn receive(mut host: UdpHost) -> u64 {
    let (mut id, mut at) = (None, 0);
    loop {
        host.poll(WAIT).expect("the connection continues");
        id = id.or_else(|| host.accept());
        let Some(id) = id else { continue };
        let (first, second) = host.received(id);
        let came = first.len() + second.len();
        for found in first.iter().chain(second) {
            assert_eq!(*found, byte(at), "byte {at}");
            at += 1;
        }
        host.consume(id, came);
        let connection = host.connection(id).expect("it exists");
        assert_eq!(connection.failure(), None);
        if connection.all_received() {
            host.finish(id);
            // Leaves time for the last ACKs.
            let end = Instant::now();
            while end.elapsed().as_millis() < 500 {
                host.poll(WAIT).expect("the connection continues");
            }
            return at;
        }
    }
}

#[test]
fn path_mtu_changes_are_followed_without_fragmentation() {
    const NAME: &str = "path_mtu_changes_are_followed_without_fragmentation";
    let nft = Command::new("nft")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !nix::unistd::geteuid().is_root() || nft.is_err() {
        return skip(NAME, "needs root (network namespaces) and nft");
    }
    let routed = silent_path();
    let [sender_space, _, receiver_space] = routed.names.clone();
    let (ready, address) = mpsc::channel();
    let receiver = thread::spawn(move || {
        enter(&receiver_space);
        let mut host = UdpHost::bind(options("10.72.2.1:0")).expect("it binds");
        host.listen(1).expect("it listens");
        ready.send(host.local()).expect("somebody waits");
        receive(host)
    });
    let to: SocketAddr = address.recv().expect("it is bound");
    let sender = thread::spawn(move || {
        enter(&sender_space);
        let mut host = UdpHost::bind(options("10.72.1.1:0")).expect("it binds");
        host.set_raise_timer(RAISE);
        let id = host
            .connect(to, UdpCongestion::Native(Native::cubic()))
            .expect("it opens");
        let (began, mut at) = (Instant::now(), 0);
        let mut sizes = vec![FULL_DATAGRAM_BYTES];
        let mut stage = 0;
        // The MTU shrinks after one second and grows again once a smaller size was found; the test
        // ends when the full size is back.
        while stage < 3 {
            assert!(
                began.elapsed().as_secs() < 60,
                "stage {stage}, packets of {sizes:?} bytes"
            );
            let room = host.write_buffer(id);
            for (n, place) in room.iter_mut().enumerate() {
                *place = byte(at + n as u64);
            }
            let written = room.len();
            host.commit_write(id, written);
            at += written as u64;
            host.poll(WAIT).expect("the connection continues");
            assert_eq!(host.connection(id).and_then(|c| c.failure()), None);
            let carried = host.packet_bytes(id).unwrap_or(FULL_DATAGRAM_BYTES);
            if sizes.last() != Some(&carried) {
                sizes.push(carried);
            }
            match stage {
                0 if began.elapsed().as_millis() > 1000 => {
                    routed.set_mtu(1300);
                    stage = 1;
                }
                1 if sizes.contains(&1280) => {
                    routed.set_mtu(1500);
                    stage = 2;
                }
                2 if carried == FULL_DATAGRAM_BYTES => stage = 3,
                _ => {}
            }
        }
        host.finish(id);
        while !host.connection(id).is_none_or(|c| c.all_acked()) {
            assert!(began.elapsed().as_secs() < 90, "packets of {sizes:?} bytes");
            host.poll(WAIT).expect("the connection continues");
        }
        let stats = host.stats(id).expect("it exists");
        drop(routed);
        (at, sizes, stats)
    });
    let (sent, sizes, stats) = sender.join().expect("the sender's thread");
    assert_eq!(receiver.join().expect("the receiver's thread"), sent);
    println!(
        "{sent} bytes, packets of {sizes:?} bytes, {} segments retransmitted",
        stats.retransmitted
    );
    assert_eq!(
        sizes[..3],
        [FULL_DATAGRAM_BYTES, 1260, 1280],
        "down to the base size, up to the path MTU"
    );
    assert_eq!(sizes.last(), Some(&FULL_DATAGRAM_BYTES));
}
