//! RCP's sender: sends at the rate that the routers on the path offer (Dukkipati et al., IWQoS
//! 2005), regardless of losses.
//!
//! Each packet carries a rate field that routers with [`Rcp`](ccplane_qdisc::Rcp) queues lower and
//! the receiver returns. A driver that supports the field passes it to [`Rcp::set_offered_rate`].
//! As in RC3's comparison (`tcp-rcp.cc`) the window is the rate times the last RTT, and losses
//! change neither.

use ccplane_datapath::Outcome;
use ccplane_units::{Duration, Rate};

use crate::control::{CongestionControl, ControlEvent};

/// RCP congestion control.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rcp {
    /// Offered rate, bytes/s of whole packets; 0 before the first offer.
    offered_rate: u64,
    rtt: Duration,
}

impl Rcp {
    /// Sets the rate offered by the routers, headers included, and the RTT of the packet that
    /// carried it.
    pub fn set_offered_rate(&mut self, rate: Rate, rtt: Duration) {
        (self.offered_rate, self.rtt) = (rate.bytes_per_sec(), rtt);
    }

    fn outcome(&self, event: &ControlEvent<'_>) -> Outcome {
        let connection = event.connection();
        // No threshold: there is no reduction.
        let ssthresh = event.ack.starts_reduction.then_some(u64::MAX);
        if self.offered_rate == 0 {
            return Outcome {
                ssthresh,
                ..Outcome::default()
            };
        }
        let mss = connection.mss();
        let packet = mss + u64::from(connection.config.header_bytes);
        let in_flight = u128::from(self.offered_rate) * u128::from(self.rtt.as_nanos())
            / 1_000_000_000
            / u128::from(packet);
        let window = u64::try_from(in_flight)
            .unwrap_or(u64::MAX / mss)
            .max(1)
            .saturating_mul(mss);
        Outcome {
            cwnd: Some(window),
            rate: Some(
                (u128::from(self.offered_rate) * u128::from(mss) / u128::from(packet)).max(1)
                    as u64,
            ),
            ssthresh,
            ..Outcome::default()
        }
    }
}

impl CongestionControl for Rcp {
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        self.outcome(event)
    }

    fn on_deadline(&mut self, event: &ControlEvent<'_>) -> Outcome {
        self.outcome(event)
    }
}
