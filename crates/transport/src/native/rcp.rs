//! RCP's sender: it sends at the rate that the routers on its way offer (Dukkipati et al., IWQoS
//! 2005), whatever is lost.
//!
//! Its packets carry a stamp that routers with [`Rcp`](ccplane_qdisc::Rcp) queues lower, and the
//! receiver returns it: a driver whose packets can do so tells it here with [`Rcp::offer`]. As in
//! RC3's comparison (`tcp-rcp.cc`) the window is what the rate sends in the last round trip, and
//! losses change neither.

use ccplane_datapath::Outcome;
use ccplane_units::{Duration, Rate};

use crate::control::{Control, Event};

/// RCP's sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rcp {
    /// Bytes/s of whole packets; 0 before the first offer.
    offered: u64,
    rtt: Duration,
}

impl Rcp {
    /// The routers offer this rate, of whole packets, by an answer that came back after this time.
    pub fn offer(&mut self, rate: Rate, rtt: Duration) {
        (self.offered, self.rtt) = (rate.bytes_per_sec(), rtt);
    }

    fn outcome(&self, event: &Event<'_>) -> Outcome {
        let connection = event.connection();
        // No threshold: there is no reduction.
        let ssthresh = event.ack.reduces.then_some(u64::MAX);
        if self.offered == 0 {
            return Outcome {
                ssthresh,
                ..Outcome::default()
            };
        }
        let mss = connection.mss();
        let packet = mss + u64::from(connection.config.header_bytes);
        let in_flight = u128::from(self.offered) * u128::from(self.rtt.as_nanos())
            / 1_000_000_000
            / u128::from(packet);
        let window = u64::try_from(in_flight)
            .unwrap_or(u64::MAX / mss)
            .max(1)
            .saturating_mul(mss);
        Outcome {
            cwnd: Some(window),
            rate: Some(
                (u128::from(self.offered) * u128::from(mss) / u128::from(packet)).max(1) as u64,
            ),
            ssthresh,
            ..Outcome::default()
        }
    }
}

impl Control for Rcp {
    fn on_event(&mut self, event: &Event<'_>) -> Outcome {
        self.outcome(event)
    }

    fn on_deadline(&mut self, event: &Event<'_>) -> Outcome {
        self.outcome(event)
    }
}
