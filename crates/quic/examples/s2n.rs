//! A custom algorithm behind s2n-quic: a server that sends and a client that receives, in one
//! process.
//!
//! `cargo run --release -p ccplane-quic --features s2n --example s2n`

use ccplane_quic::units::{Bytes, Rate};
use ccplane_quic::{
    Algorithm, Control, FlowInfo, OperatorLimits, Programs, QuicPlane, Report, Stack, box_algorithm,
};
use s2n_quic::client::Connect;
use s2n_quic::{Client, Server};

/// Sets the window to 1.05 times the bytes acknowledged in the last RTT, halves it on a loss, and
/// paces accordingly.
struct MyController;

impl Algorithm for MyController {
    type Flow = u64; // window, bytes

    fn name(&self) -> &str {
        "mine"
    }

    fn programs(&self) -> Programs {
        let fold = "(def (Report (volatile acked 0) (volatile lost 0) (volatile rtt 0)))
            (when true (:= Report.acked (+ Report.acked Ack.bytes_acked))
                (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
                (:= Report.rtt Flow.srtt_us) (fallthrough))
            (when (> Micros Flow.srtt_us) (report) (:= Micros 0))";
        Programs::new().with("fold", fold)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> u64 {
        control.set_program("fold", &[]);
        info.cwnd.get()
    }

    fn on_report(&mut self, cwnd: &mut u64, report: &Report<'_>, control: &mut Control<'_>) {
        let of = |name| report.get(name).unwrap_or(0);
        let more = if of("lost") > 0 {
            0
        } else {
            of("acked") / 20 + 2_400
        };
        *cwnd = (*cwnd / 2).max(of("acked") + more).max(12_000);
        control.set_cwnd(Bytes::new(*cwnd));
        control.set_rate(Rate::from_bytes_per_sec(
            *cwnd * 1_250_000 / of("rtt").max(1),
        ));
    }
}

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "the server sends its rate")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let plane = QuicPlane::in_process(
        Stack::S2n,
        box_algorithm(MyController),
        OperatorLimits::default(),
    )?;
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (certificate, private) = (key.cert.der().to_vec(), key.signing_key.serialize_der());
    let mut server = Server::builder()
        .with_tls((&*certificate, &*private))?
        .with_io("127.0.0.1:0")?
        .with_congestion_controller(plane.s2n()?)? // the only line to add
        .start()?;
    let address = server.local_addr()?;
    let sending = tokio::spawn(async move {
        let mut connection = server.accept().await.ok_or("nobody came")?;
        let mut stream = connection.open_send_stream().await?;
        stream.send(vec![0; 100_000_000].into()).await?;
        stream.close().await?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    });
    let client = Client::builder()
        .with_tls(&*certificate)?
        .with_io("127.0.0.1:0")?
        .start()?;
    let to = Connect::new(address).with_server_name("localhost");
    let mut connection = client.connect(to).await?;
    let begun = std::time::Instant::now();
    let mut stream = connection
        .accept_receive_stream()
        .await?
        .ok_or("no stream")?;
    let mut arrived = 0;
    while let Some(chunk) = stream.receive().await? {
        arrived += chunk.len();
    }
    let mbit = arrived as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e6;
    sending.await??;
    println!("{arrived} bytes at {mbit:.0} Mbit/s: {:?}", plane.stats());
    Ok(())
}
