//! Base RTT of full-sized packets, for algorithms whose target delay is a multiple of it.

use ccplane_datapath::INFINITY;

/// Condition for a new RTT sample of full-sized packets. A smaller packet has a shorter
/// serialization delay at each link. Seven eighths of the MSS count as full-sized because QUIC
/// headers vary in length. A timer run repeats the last sample and acknowledges no packets, so it
/// does not count.
pub(crate) const FULL_SIZED_SAMPLE_CONDITION: &str = "\
    (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.packets_acked Ack.packets_misordered) 0)
        (>= (* 8 (+ Ack.bytes_acked Ack.bytes_misordered)) \
            (* 7 Flow.mss (+ Ack.packets_acked Ack.packets_misordered))))";

/// Base RTT of full-sized packets, µs: the minimum over the flow's lifetime.
///
/// The transport's own minimum includes the handshake, whose packets are small. At 100 Mbit/s and
/// 20 µs of propagation delay, a handshake takes 20 µs and a full packet 140 µs: a target computed
/// as a multiple of the handshake's RTT is shorter than the serialization of one packet.
///
/// The minimum does not expire. An algorithm that keeps a standing queue never samples the empty
/// path again. A five-minute minimum, such as transports keep, would therefore absorb the queue
/// every five minutes and raise the target with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaseRtt {
    full: u64,
    any: u64,
}

impl BaseRtt {
    pub fn new() -> BaseRtt {
        BaseRtt {
            full: INFINITY,
            any: INFINITY,
        }
    }

    /// Updates with the minimum RTT of full-sized packets since the last report and the transport's
    /// minimum, each [`INFINITY`] if unknown. Returns the base RTT. The transport's minimum is used
    /// until a full-sized packet has been sampled.
    pub fn update(&mut self, full_rtt: u64, min_rtt: u64) -> Option<u64> {
        self.full = self.full.min(full_rtt);
        self.any = self.any.min(min_rtt);
        let base = if self.full < INFINITY {
            self.full
        } else {
            self.any
        };
        (base < INFINITY).then_some(base)
    }

    /// Extra serialization delay of a full-sized packet over a small one, summed over the links of
    /// the path, µs; 0 if unknown.
    pub fn packet_time(&self) -> u64 {
        match self.full {
            INFINITY => 0,
            full => full.saturating_sub(self.any),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_count_only_until_a_full_one_arrives() {
        let mut base = BaseRtt::new();
        assert_eq!(base.update(INFINITY, INFINITY), None);
        assert_eq!(
            (base.update(INFINITY, 20), base.packet_time()),
            (Some(20), 0)
        );
        assert_eq!((base.update(160, 20), base.packet_time()), (Some(160), 140));
        assert_eq!((base.update(140, 30), base.packet_time()), (Some(140), 120));
        assert_eq!(base.update(INFINITY, 150), Some(140), "neither expires");
    }
}
