//! noq's hook: `transport.congestion_controller_factory(plane.noq()?)`.
//!
//! An ACK results in one [`on_ack`](Controller::on_ack) per packet and one
//! [`on_end_acks`](Controller::on_end_acks). The losses that it reveals follow as one
//! [`on_packet_lost`](Controller::on_packet_lost) per packet and one
//! [`on_congestion_event`](Controller::on_congestion_event). Lost path MTU probes, and packets
//! dropped with the handshake keys, are not reported.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use crate::{PlaneError, QuicPlane, Stack, SteeredPath};

impl QuicPlane {
    /// Returns a factory for noq that creates a controller for each path of each connection.
    pub fn noq(&self) -> Result<Arc<dyn ControllerFactory + Send + Sync>, PlaneError> {
        self.check_stack(Stack::Noq)?;
        Ok(Arc::new(Noq(self.clone())))
    }
}

struct Noq(QuicPlane);

impl ControllerFactory for Noq {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(NoqController(SteeredPath::new(&self.0, now, current_mtu)))
    }
}

/// Controller of one path.
#[derive(Debug)]
struct NoqController(SteeredPath);

impl Controller for NoqController {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        let now = self.0.time(now);
        self.0.path_mut().on_sent(now, pn, bytes);
    }

    fn on_cwnd_limited(&mut self) {
        self.0.path_mut().on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        _bytes: u64,
        pn: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        let (now, sent) = (self.0.time(now), self.0.time(sent));
        self.0.path_mut().on_acked(now, pn, sent);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        _in_flight: u64,
        app_limited: bool,
        _largest: Option<u64>,
    ) {
        let now = self.0.time(now);
        self.0.open(now);
        self.0.finish_event(now, app_limited);
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        let now = self.0.time(now);
        self.0.path_mut().on_lost(now, pn, lost_bytes);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        _lost_bytes: u64,
        _largest_lost_pn: u64,
    ) {
        let now = self.0.time(now);
        let path = self.0.path_mut();
        if is_ecn {
            // The count is not reported; at least one packet was marked.
            path.on_ce_marks(1, path.mss());
        }
        if is_persistent_congestion {
            path.on_persistent_congestion();
        }
        self.0.finish_event(now, false);
    }

    /// Called before the ACK that reveals it; takes effect in the ACK's call.
    fn on_spurious_congestion_event(&mut self) {
        self.0.path_mut().on_spurious_loss();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.0.path_mut().set_mss(new_mtu);
    }

    fn window(&self) -> u64 {
        self.0.path().window()
    }

    /// If the control has set no rate, noq paces at 1.25 windows per RTT.
    fn metrics(&self) -> ControllerMetrics {
        let path = self.0.path();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = path.window();
        metrics.ssthresh = Some(path.ssthresh());
        metrics.pacing_rate = path.pacing_rate().map(|rate| rate.bytes_per_sec());
        metrics.send_quantum = path.pacing_rate().map(|_| path.send_quantum());
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(NoqController(self.0.migrate()))
    }

    fn initial_window(&self) -> u64 {
        self.0.path().window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
