//! A custom algorithm behind noq: a server that sends and a client that receives, in one process.
//!
//! `cargo run --release -p ccplane-quic --example noq`

use std::sync::Arc;

use ccplane_quic::units::Bytes;
use ccplane_quic::{
    Algorithm, Control, FlowInfo, OperatorLimits, Programs, QuicPlane, Report, Stack, box_algorithm,
};
use rustls::pki_types::PrivatePkcs8KeyDer;

/// Adds one packet per RTT without loss and halves the window on a loss.
struct MyController;

impl Algorithm for MyController {
    /// Window and packet size, bytes.
    type Flow = (u64, u64);

    fn name(&self) -> &str {
        "mine"
    }

    fn programs(&self) -> Programs {
        let fold = "(def (Report (volatile lost 0)))
            (when true (:= Report.lost (+ Report.lost Ack.lost_pkts_sample)) (fallthrough))
            (when (|| (> Micros Flow.srtt_us) (> Ack.lost_pkts_sample 0)) (report) (:= Micros 0))";
        Programs::new().with("fold", fold)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Self::Flow {
        control.set_program("fold", &[]);
        (info.cwnd.get(), info.mss.get())
    }

    fn on_report(
        &mut self,
        (cwnd, mss): &mut Self::Flow,
        report: &Report<'_>,
        control: &mut Control<'_>,
    ) {
        let lost = report.get("lost").unwrap_or(0) > 0;
        *cwnd = if lost {
            (*cwnd / 2).max(2 * *mss)
        } else {
            *cwnd + *mss
        };
        control.set_cwnd(Bytes::new(*cwnd));
    }
}

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "the server sends its rate")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let plane = QuicPlane::in_process(
        Stack::Noq,
        box_algorithm(MyController),
        OperatorLimits::default(),
    )?;
    let mut transport = noq::TransportConfig::default();
    transport.congestion_controller_factory(plane.noq()?); // the only line to add

    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let mut server =
        noq::ServerConfig::with_single_cert(vec![key.cert.der().clone()], private.into())?;
    server.transport_config(Arc::new(transport));
    let server = noq::Endpoint::server(server, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    let sending = tokio::spawn(async move {
        let mut stream = server
            .accept()
            .await
            .ok_or("nobody came")?
            .await?
            .open_uni()
            .await?;
        stream.write_all(&vec![0; 100_000_000]).await?;
        stream.finish()?;
        stream.stopped().await?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    });

    let mut roots = rustls::RootCertStore::empty();
    roots.add(key.cert.der().clone())?;
    let client = noq::Endpoint::client("127.0.0.1:0".parse()?)?;
    client.set_default_client_config(noq::ClientConfig::with_root_certificates(Arc::new(roots))?);
    let connection = client.connect(address, "localhost")?.await?;
    let begun = std::time::Instant::now();
    let arrived = connection
        .accept_uni()
        .await?
        .read_to_end(200_000_000)
        .await?
        .len();
    let mbit = arrived as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e6;
    sending.await??;
    println!("{arrived} bytes at {mbit:.0} Mbit/s: {:?}", plane.stats());
    Ok(())
}
