//! quinn's hook: `transport.congestion_controller_factory(plane.quinn()?)`.
//!
//! It is an older form of noq's and reports less: sent bytes per batch, acknowledged packets by
//! send time, and only the number of lost bytes, which are assumed to be the oldest packets.
//! ACK-only packets are reported as sent but never acknowledged; they are forgotten after one and a
//! half RTTs. quinn paces on its own at 1.25 windows per RTT.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use crate::{PlaneError, QuicPlane, Stack, SteeredPath};

impl QuicPlane {
    /// Returns a factory for quinn that creates a controller for each path of each connection.
    pub fn quinn(&self) -> Result<Arc<dyn ControllerFactory + Send + Sync>, PlaneError> {
        self.check_stack(Stack::Quinn)?;
        Ok(Arc::new(Quinn(self.clone())))
    }
}

struct Quinn(QuicPlane);

impl ControllerFactory for Quinn {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(QuinnController {
            steered: SteeredPath::new(&self.0, now, current_mtu),
            next_number: 0,
        })
    }
}

/// Controller of one path.
#[derive(Debug)]
struct QuinnController {
    steered: SteeredPath,
    /// Own number of the next packet.
    next_number: u64,
}

impl Controller for QuinnController {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        let now = self.steered.time(now);
        let path = self.steered.path_mut();
        let (mut left, mss) = (bytes, path.mss());
        while left > 0 {
            let size = left.min(mss);
            path.on_sent(
                now,
                self.next_number,
                u16::try_from(size).unwrap_or(u16::MAX),
            );
            self.next_number += 1;
            left -= size;
        }
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        _bytes: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        let (now, sent) = (self.steered.time(now), self.steered.time(sent));
        self.steered.path_mut().on_acked_sent_at(now, sent);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        _in_flight: u64,
        app_limited: bool,
        _largest: Option<u64>,
    ) {
        let now = self.steered.time(now);
        self.steered.open(now);
        self.steered.finish_event(now, app_limited);
    }

    /// An event without lost bytes is an ECN mark.
    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let (now, sent) = (self.steered.time(now), self.steered.time(sent));
        let path = self.steered.path_mut();
        if lost_bytes == 0 {
            path.on_ce_marks(1, path.mss());
        }
        path.on_lost_until(now, sent, lost_bytes);
        if is_persistent_congestion {
            path.on_persistent_congestion();
        }
        self.steered.finish_event(now, false);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.steered.path_mut().set_mss(new_mtu);
    }

    fn window(&self) -> u64 {
        self.steered.path().window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let path = self.steered.path();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = path.window();
        metrics.ssthresh = Some(path.ssthresh());
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(QuinnController {
            steered: self.steered.migrate(),
            next_number: self.next_number,
        })
    }

    fn initial_window(&self) -> u64 {
        self.steered.path().window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
