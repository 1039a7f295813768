//! ccplane's algorithms behind quinn, over loopback.
#![cfg(feature = "quinn")]

use std::sync::Arc;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_quic::{OperatorLimits, QuicPlane, Stack};
use rustls::pki_types::PrivatePkcs8KeyDer;

#[tokio::test]
async fn data_arrives_under_window_algorithms() {
    for name in ["cubic", "reno"] {
        let algorithm = Registry::builtin()
            .by_name(name, &Parameters::default())
            .unwrap();
        let plane =
            QuicPlane::in_process(Stack::Quinn, algorithm, OperatorLimits::default()).unwrap();
        let mut transport = quinn::TransportConfig::default();
        transport.congestion_controller_factory(plane.quinn().unwrap());
        let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
        let mut server =
            quinn::ServerConfig::with_single_cert(vec![key.cert.der().clone()], private.into())
                .unwrap();
        server.transport_config(Arc::new(transport));
        let server = quinn::Endpoint::server(server, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.local_addr().unwrap();
        let sending = tokio::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            let mut stream = connection.open_uni().await.unwrap();
            stream.write_all(&vec![7; 20_000_000]).await.unwrap();
            stream.finish().unwrap();
            stream.stopped().await.unwrap();
        });
        let mut roots = rustls::RootCertStore::empty();
        roots.add(key.cert.der().clone()).unwrap();
        let mut client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        client.set_default_client_config(
            quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap(),
        );
        let connection = client.connect(address, "localhost").unwrap().await.unwrap();
        let arrived = connection
            .accept_uni()
            .await
            .unwrap()
            .read_to_end(30_000_000)
            .await
            .unwrap();
        assert!(arrived.len() == 20_000_000 && arrived.iter().all(|byte| *byte == 7));
        sending.await.unwrap();
        let stats = plane.stats();
        assert!(
            stats.opened == 1 && stats.reports > 0 && stats.fallbacks == 0,
            "{name}: {stats:?}"
        );
        println!("{name}: {stats:?}");
    }
}
