//! NewReno: RFC 5681, counted in packets as in Linux.

use ccplane_datapath::Outcome;

use super::{Growth, in_slow_start, threshold_outcome, window_outcome};
use crate::control::{CongestionControl, ControlEvent};

/// NewReno congestion control.
#[derive(Clone, Debug, Default)]
pub struct NewReno {
    growth: Growth,
}

impl CongestionControl for NewReno {
    #[inline(always)]
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        if event.ack.starts_reduction {
            self.growth.reset();
            return threshold_outcome(event, u64::from(event.connection().window()) / 2);
        }
        if !Growth::can_grow(event) {
            return Outcome::default();
        }
        window_outcome(event, self.growth.reno(event))
    }
}

impl Growth {
    /// Returns NewReno's window after this ACK, packets.
    #[inline(always)]
    pub(crate) fn reno(&mut self, event: &ControlEvent<'_>) -> u32 {
        let connection = event.connection();
        let (mut packets, mut acked) = (connection.window(), event.ack.delivered());
        if in_slow_start(event) {
            (packets, acked) = Growth::slow_start(event);
            if acked == 0 {
                return packets;
            }
        }
        self.congestion_avoidance(packets, packets, acked)
    }
}
