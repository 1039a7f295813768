//! Base delay of full-sized packets, for algorithms whose target is a multiple of it.

use ccplane_datapath::INFINITY;

/// Condition for a new RTT sample of full-sized packets. A sample of smaller packets lacks the time
/// that a full one takes at each link; seven eighths of the MSS are full, because QUIC packets vary
/// by their headers. A run by timer repeats the last sample, without packets.
pub(crate) const FULL_SAMPLE: &str = "(&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.packets_acked Ack.packets_misordered) 0)
        (>= (* 8 (+ Ack.bytes_acked Ack.bytes_misordered)) (* 7 Flow.mss (+ Ack.packets_acked Ack.packets_misordered))))";

/// Base delay of full-sized packets: the least RTT of the flow's life, µs.
///
/// The transport's own minimum includes the handshake, whose packets are small. At 100 Mbit/s and
/// 20 µs a handshake takes 20 µs and a full packet 140 µs, so a target that is a multiple of the
/// handshake's RTT is below what a single packet takes.
///
/// It does not expire. An algorithm that holds a queue never sees the empty path again, so a
/// minimum of the last five minutes, as transports keep it, grows by the queue every five minutes,
/// and the target with it.
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

    /// Takes the least RTT of full-sized packets since the last report and the transport's minimum,
    /// [`INFINITY`] where there is none. Returns the base delay: the transport's minimum while
    /// every packet was small.
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

    /// Time that a full-sized packet takes at the links of the path beyond the time of a small one;
    /// 0 while that is unknown.
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
