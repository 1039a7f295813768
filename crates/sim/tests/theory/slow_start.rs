//! Flow completion times that slow start alone determines, against the closed form of RC3's
//! analysis (Mittal et al., NSDI 2014, section 2), checked against the authors' own data.

use std::sync::Arc;

use ccplane_sim::{FlowControl, FlowSpec, LinkSpec, Native, TransportConfig};
use ccplane_units::Duration;

use super::path::{Path, at, config, mbit, within};

/// Base RTT, s.
const R: f64 = 0.040;
/// Available bandwidth, Mbit/s.
const A: f64 = 700.0;
/// Initial window, packets.
const I: u64 = 4;
/// Payload and size on the wire, bytes.
const MSS: u16 = 1460;
const PACKET_BYTES: f64 = 1500.0;

/// Flow sizes of the authors' figure, packets.
const FLOW_PACKETS: [u64; 11] = [1, 2, 3, 5, 7, 40, 72, 137, 267, 1187, 2107];

/// Returns the completion time, s, of `n` packets: handshake and propagation of the last packet
/// (1.5 R), one RTT for each window of i, 2i, 4i… that leaves data unsent and does not fill the
/// pipe, and the rest at the line rate.
fn closed_form(n: u64) -> f64 {
    let rate = A * 1e6 / 8.0 / PACKET_BYTES;
    let (mut rounds, mut sent, mut window) = (0.0, 0, I);
    while sent + window < n && (window as f64) < rate * R {
        rounds += 1.0;
        sent += window;
        window *= 2;
    }
    1.5 * R + rounds * R + (n - sent) as f64 / rate
}

/// The closed form against the authors' data file, ms.
#[test]
fn the_closed_form_gives_the_published_times() {
    let published = [
        60.0, 60.0, 60.0, 100.02, 100.05, 180.21, 220.21, 260.22, 300.26, 382.86, 421.08,
    ];
    for (n, published) in FLOW_PACKETS.into_iter().zip(published) {
        let ms = closed_form(n) * 1e3;
        // The data omit the transmission time of flows of one window.
        assert!(
            (ms - published).abs() < 0.1,
            "{n} packets: {ms} ms, published {published} ms"
        );
    }
}

#[test]
fn completion_times_are_those_of_the_closed_form() {
    let half = Duration::from_nanos((R * 1e9 / 2.0) as u64);
    let transport = Arc::new(TransportConfig {
        mss: MSS,
        header_bytes: 40,
        initial_window: I as u16,
        ack_every: 1,
        ..config()
    });
    for n in FLOW_PACKETS {
        let mut path = Path::new(
            LinkSpec::new(mbit(A), half),
            LinkSpec::new(mbit(A), half),
            1,
        );
        let spec = FlowSpec::new(path.sender, path.receiver)
            .with_bytes(n * u64::from(MSS))
            .with_congestion(FlowControl::Native(Native::new_reno()))
            .with_transport(Arc::clone(&transport));
        let flow = path.sim.add_flow(spec).unwrap();
        assert!(path.sim.run_flows(at(2.0)).unwrap());
        let view = path.view(flow);
        let took = view.finished.unwrap().since(view.started).as_secs_f64();
        assert!(within(
            &format!("{n} packets, ms"),
            took * 1e3,
            closed_form(n) * 1e3,
            0.5
        ));
        assert_eq!(view.retransmitted, 0);
    }
}
