//! A custom algorithm behind quinn: a server that sends and a client that receives, in one process.
//!
//! `cargo run --release -p ccplane-quic --features quinn --example quinn`

use std::sync::Arc;

use ccplane_quic::units::Bytes;
use ccplane_quic::{
    Algorithm, Control, FlowInfo, OperatorLimits, Programs, QuicPlane, Report, Stack, box_algorithm,
};
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig};
use rustls::pki_types::PrivatePkcs8KeyDer;

/// Grows the window by an eighth per RTT while queueing delay is below 5 ms, else shrinks it by an
/// eighth; halves it on a loss.
struct MyController;

impl Algorithm for MyController {
    type Flow = (u64, u64); // window and packet size, bytes

    fn name(&self) -> &str {
        "mine"
    }

    fn programs(&self) -> Programs {
        let fold = "(def (Report (volatile lost 0) (volatile rtt 0) (least +infinity)))
            (when true (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
                (:= Report.rtt Flow.srtt_us)
                (:= Report.least (min Report.least Flow.rtt_sample_us)) (fallthrough))
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
        let of = |name| report.get(name).unwrap_or(0);
        *cwnd = match of("rtt").saturating_sub(of("least")) {
            _ if of("lost") > 0 => *cwnd / 2,
            ..5_000 => *cwnd + *cwnd / 8,
            _ => *cwnd - *cwnd / 8,
        };
        *cwnd = (*cwnd).clamp(4 * *mss, 100_000_000);
        control.set_cwnd(Bytes::new(*cwnd));
    }
}

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "the server sends its rate")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let plane = QuicPlane::in_process(
        Stack::Quinn,
        box_algorithm(MyController),
        OperatorLimits::default(),
    )?;
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(plane.quinn()?); // the only line to add
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let mut server = ServerConfig::with_single_cert(vec![key.cert.der().clone()], private.into())?;
    server.transport_config(Arc::new(transport));
    let server = Endpoint::server(server, "127.0.0.1:0".parse()?)?;
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
    let mut client = Endpoint::client("127.0.0.1:0".parse()?)?;
    client.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
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
