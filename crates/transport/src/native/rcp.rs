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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_harness::{MSS_BYTES, TestEnd, ack};

    /// A full packet has 1,000 bytes of payload and 52 of headers. The window and the pacing rate
    /// count payload only.
    #[test]
    fn the_window_is_the_offered_rate_times_the_rtt_in_whole_packets() {
        let mut end = TestEnd::new(10);
        let mut rcp = Rcp::default();
        let mut in_force = |rcp: &mut Rcp| {
            end.connection.on_control_deadline(end.now, rcp);
            (end.connection.window(), end.connection.rate())
        };
        assert_eq!(in_force(&mut rcp), (10, 0), "before the first offer");
        for (bytes_per_sec, rtt_us, expected) in [
            (1_052_000, 20_000, (20, 1_000_000)),
            (1_052_000, 20_999, (20, 1_000_000)),
            (1_052_000, 21_000, (21, 1_000_000)),
            (2_104_000, 20_000, (40, 2_000_000)),
            // At least one packet, and one byte per second.
            (1, 20_000, (1, 1)),
        ] {
            rcp.set_offered_rate(
                Rate::from_bytes_per_sec(bytes_per_sec),
                Duration::from_micros(rtt_us),
            );
            assert_eq!(
                in_force(&mut rcp),
                expected,
                "{bytes_per_sec} B/s, {rtt_us} µs"
            );
        }
    }

    #[test]
    fn losses_reduce_neither_window_nor_rate() {
        for offered in [false, true] {
            let mut end = TestEnd::new(10);
            let mut rcp = Rcp::default();
            if offered {
                rcp.set_offered_rate(
                    Rate::from_bytes_per_sec(1_052_000),
                    Duration::from_millis(10),
                );
            }
            end.write(10);
            end.connection.on_control_deadline(end.now, &mut rcp);
            let before = end.connection.rate();
            end.advance_ms(20);
            let answer = ack(0).sack(3..10);
            end.connection
                .handle(end.now, &answer.segment, &answer.side, &mut rcp);
            assert_eq!(end.connection.stats().lost, 3);
            assert_eq!(
                (end.connection.cwnd(), end.connection.ssthresh()),
                (10 * MSS_BYTES, u64::MAX)
            );
            assert_eq!(end.connection.rate(), before);
        }
    }
}
