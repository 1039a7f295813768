//! Under TLS a receiver that conceals losses is disconnected by the sender.
#![expect(clippy::disallowed_methods, reason = "a test in real time")]

#[path = "support/liar.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_link::identity::Identity;
use ccplane_transport::{ConnectionError, ConnectionState, Native, TransportConfig};
use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Stamping, Tls, UdpCongestion, UdpHost, UdpOptions};
use ccplane_units::Duration;
use support::{LOST_SEGMENT, Liar};

#[test]
fn a_receiver_that_conceals_losses_is_disconnected_with_the_reason() {
    let identity = Identity::new().expect("a certificate");
    let mut liar = Liar::new(Tls::server(&identity, &[]).expect("a configuration"));
    let to = liar.socket.local_addr().expect("an address");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            liar.receive();
            liar.acknowledge();
        }
        liar
    });
    let mut host = UdpHost::bind(UdpOptions {
        local: "127.0.0.1:0".parse().expect("an address"),
        datagram_bytes: DATAGRAM_BYTES_DEFAULT,
        window: 4 << 20,
        tls: Some(Tls::client(Some(identity.fingerprint()), None).expect("a configuration")),
        dscp: 0,
        config: TransportConfig {
            idle_timeout: Duration::from_secs(5),
            ..TransportConfig::default()
        },
        stamping: Stamping::Off,
        link_rate: None,
        accept_congestion: Native::cubic(),
    })
    .expect("a host");
    let id = host
        .connect(to, UdpCongestion::Native(Native::cubic()))
        .expect("a connection");
    let failure = loop {
        let room = host.write_buffer(id).len();
        host.commit_write(id, room);
        host.poll(Duration::from_millis(10))
            .expect("the socket works");
        let connection = host.connection(id).expect("it exists");
        // Without nonces the sender would continue for as long as it receives false ACKs.
        assert!(
            connection.stats().acked < 100_000_000,
            "{:?}",
            connection.stats()
        );
        if let Some(why) = connection.failure() {
            break why;
        }
    };
    assert_eq!(failure, ConnectionError::FalseReceipt);
    let text = failure.to_string();
    assert!(
        text.contains("acknowledged data that it did not receive"),
        "{text}"
    );
    // The receiver gets the sender's reset.
    host.poll(Duration::ZERO).expect("the socket works");
    let deadline = std::time::Duration::from_millis(100);
    thread::sleep(deadline);
    stop.store(true, Ordering::Relaxed);
    let liar = thread.join().expect("it ends");
    let (_, connection) = liar.connection.expect("a connection");
    assert!(liar.datagrams >= LOST_SEGMENT);
    assert_eq!(
        (connection.state(), connection.failure()),
        (ConnectionState::Closed, Some(ConnectionError::Reset))
    );
}
