//! DCTCP: RFC 8257, in Linux's fixed-point arithmetic.

use ccplane_datapath::Outcome;

use super::{Growth, threshold_outcome, window_outcome};
use crate::control::{CongestionControl, ControlEvent};
use crate::number::SequenceNumber;

/// Fixed-point 1 of α.
const ALPHA_ONE: u32 = 1024;
/// log2(1/g), g = 1/16 (RFC 8257 section 4.2): the weight of a round's fraction of marks. A larger
/// g follows the marks faster and oscillates more.
const GAIN_SHIFT: u32 = 4;

/// DCTCP: reduces the window in proportion to the fraction of marked packets.
#[derive(Clone, Debug)]
pub struct Dctcp {
    growth: Growth,
    /// Fixed-point α, in units of 1/[`ALPHA_ONE`].
    alpha: u32,
    delivered: u32,
    marked: u32,
    /// The round ends when every segment before this number is acknowledged.
    round_end: Option<SequenceNumber>,
}

impl Default for Dctcp {
    /// α starts at 1 (RFC 8257 section 3.3, step 1), so that the first mark halves the window.
    fn default() -> Dctcp {
        Dctcp {
            growth: Growth::default(),
            alpha: ALPHA_ONE,
            delivered: 0,
            marked: 0,
            round_end: None,
        }
    }
}

impl Dctcp {
    /// Estimated fraction of marked packets, between 0 and 1.
    pub fn alpha(&self) -> f64 {
        f64::from(self.alpha) / f64::from(ALPHA_ONE)
    }

    /// RFC 8257 section 3.3, steps 5 to 8: once per round, α moves by g towards the round's
    /// fraction.
    #[inline(always)]
    fn update_alpha(&mut self, event: &ControlEvent<'_>) {
        let connection = event.connection();
        self.delivered = self.delivered.saturating_add(event.ack.delivered());
        self.marked = self.marked.saturating_add(event.ack.ce_packets);
        let round = *self.round_end.get_or_insert(connection.next());
        if connection.una().is_before(round) {
            return;
        }
        let fraction =
            (self.marked.min(self.delivered) << (10 - GAIN_SHIFT)) / self.delivered.max(1);
        // As in Linux: subtract at least 1, so that α reaches 0.
        self.alpha -= (self.alpha >> GAIN_SHIFT)
            .max(u32::from(self.alpha > 0))
            .min(self.alpha);
        self.alpha = (self.alpha + fraction).min(ALPHA_ONE);
        (self.delivered, self.marked) = (0, 0);
        self.round_end = Some(connection.next());
    }
}

impl CongestionControl for Dctcp {
    #[inline(always)]
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        self.update_alpha(event);
        if event.ack.starts_reduction {
            self.growth.reset();
            let packets = u64::from(event.connection().window());
            // RFC 8257 section 3.4 for marks, section 3.5 for losses, which halve the window as
            // usual.
            let loss = event.ack.lost > 0 || event.ack.timeout;
            let cut = if loss {
                packets / 2
            } else {
                packets * u64::from(self.alpha) / u64::from(2 * ALPHA_ONE)
            };
            return threshold_outcome(event, packets - cut);
        }
        if !Growth::can_grow(event) {
            return Outcome::default();
        }
        window_outcome(event, self.growth.reno(event))
    }
}
