//! ccplane's algorithms behind s2n-quic, over loopback.
#![cfg(feature = "s2n")]
#![expect(clippy::disallowed_methods, reason = "a test of pacing has a clock")]

use std::time::Instant;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_quic::{OperatorLimits, QuicPlane, Stack};
use s2n_quic::client::Connect;
use s2n_quic::{Client, Server};

fn plane(name: &str, parameters: &Parameters) -> QuicPlane {
    let algorithm = Registry::builtin().by_name(name, parameters).unwrap();
    QuicPlane::in_process(Stack::S2n, algorithm, OperatorLimits::default()).unwrap()
}

/// Sends `bytes` bytes from a server controlled by the plane.
async fn carry(plane: &QuicPlane, bytes: usize) {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, private) = (key.cert.der().to_vec(), key.signing_key.serialize_der());
    let mut server = Server::builder()
        .with_tls((&*certificate, &*private))
        .unwrap()
        .with_io("127.0.0.1:0")
        .unwrap()
        .with_congestion_controller(plane.s2n().unwrap())
        .unwrap()
        .start()
        .unwrap();
    let address = server.local_addr().unwrap();
    let sending = tokio::spawn(async move {
        let mut connection = server.accept().await.unwrap();
        let mut stream = connection.open_send_stream().await.unwrap();
        stream.send(vec![7; bytes].into()).await.unwrap();
        stream.close().await.unwrap();
    });
    let client = Client::builder()
        .with_tls(&*certificate)
        .unwrap()
        .with_io("127.0.0.1:0")
        .unwrap()
        .start()
        .unwrap();
    let to = Connect::new(address).with_server_name("localhost");
    let mut connection = client.connect(to).await.unwrap();
    let mut stream = connection.accept_receive_stream().await.unwrap().unwrap();
    let mut arrived = 0;
    while let Some(chunk) = stream.receive().await.unwrap() {
        assert!(chunk.iter().all(|byte| *byte == 7));
        arrived += chunk.len();
    }
    assert_eq!(arrived, bytes);
    sending.await.unwrap();
}

#[tokio::test]
async fn data_arrives_under_every_kind_of_algorithm() {
    for name in ["cubic", "reno", "copa", "bbr3", "dctcp"] {
        let plane = plane(name, &Parameters::default());
        carry(&plane, 5_000_000).await;
        let stats = plane.stats();
        println!("{name}: {stats:?}");
        assert!(
            stats.opened == 1 && stats.reports > 0 && stats.fallbacks == 0,
            "{name}: {stats:?}"
        );
    }
}

#[tokio::test]
async fn an_ordered_rate_is_kept() {
    let window = Parameters::new().with("cwnd", "500p");
    let seconds = async |parameters| {
        let plane = plane("constant", parameters);
        let begun = Instant::now();
        carry(&plane, 5_000_000).await;
        begun.elapsed().as_secs_f64()
    };
    let unpaced = seconds(&window).await;
    let paced = seconds(&window.clone().with("rate", "40mbit")).await;
    // The stream alone takes one second at that rate. A busy machine takes longer, also without a
    // rate.
    assert!(
        paced > 0.95 && paced < 2.0 + 3.0 * unpaced,
        "{paced:.3} s, and {unpaced:.3} s without a rate"
    );
}

#[tokio::test]
async fn windows_above_32_bits_are_clamped() {
    let parameters = Parameters::new().with("cwnd", "18446744073709551615");
    let plane = plane("constant", &parameters);
    carry(&plane, 5_000_000).await;
    assert_eq!(plane.stats().opened, 1);
}

#[tokio::test]
async fn flows_end_with_their_connections() {
    let plane = plane("cubic", &Parameters::default());
    for _ in 0..5 {
        carry(&plane, 100_000).await;
    }
    let late = Instant::now() + std::time::Duration::from_secs(20);
    while plane.stats().closed < 5 && Instant::now() < late {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let stats = plane.stats();
    assert_eq!((stats.opened, stats.closed), (5, 5), "{stats:?}");
}
