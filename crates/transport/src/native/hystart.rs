//! HyStart of Linux 6.13 and later (`hystart_update` in tcp_cubic.c): slow start ends before the
//! first loss when an ACK train is as long as the path, or when the delay has risen.
//!
//! Linux 5.16 to 6.12 start no round below `hystart_low_window`. Their first round starts in the
//! middle of a flight and mistakes the queue of the flight's end for a standing queue (fixed by
//! "tcp_cubic: fix incorrect HyStart round start detection").

use ccplane_units::{Duration, Time};

use crate::connection::Connection;
use crate::number::SequenceNumber;

/// Linux's `hystart_low_window`, packets. Below it rounds start but do not end slow start.
const WINDOW_PACKETS_MIN: u32 = 16;
/// Linux's `hystart_ack_delta_us`. ACKs further apart do not form a train.
const ACK_TRAIN_GAP_MAX: Duration = Duration::from_millis(2);
/// Linux's `HYSTART_MIN_SAMPLES`: RTT samples per round before the minimum is used.
const RTT_SAMPLES_MIN: u8 = 8;
/// Linux's `HYSTART_DELAY_MIN` and `_MAX`: bounds of the delay threshold, which is an eighth of the
/// minimum RTT. A lower minimum ends slow start on jitter; a higher maximum ends it only at a long
/// queue.
const DELAY_THRESHOLD_MIN: Duration = Duration::from_millis(4);
const DELAY_THRESHOLD_MAX: Duration = Duration::from_millis(16);
/// Linux's `hystart_ack_delay`: the duration of a GSO burst, 4 times 65536 bytes at the pacing rate
/// of slow start, at most 1 ms.
const GSO_BURST_BYTES: u64 = 4 * 65536;
const GSO_BURST_DURATION_MAX: Duration = Duration::from_millis(1);

/// State of a slow-start round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HyStart {
    round_start: Time,
    last_ack: Time,
    round_min_rtt: Duration,
    round_end: Option<SequenceNumber>,
    samples: u8,
}

impl HyStart {
    /// Returns true if slow start ends at this ACK.
    #[inline]
    pub fn should_exit_slow_start(
        &mut self,
        connection: &Connection,
        now: Time,
        rtt: Duration,
    ) -> bool {
        if rtt == Duration::ZERO {
            return false;
        }
        if self
            .round_end
            .is_none_or(|end| end.is_before(connection.una()))
        {
            *self = HyStart {
                round_start: now,
                last_ack: now,
                round_min_rtt: Duration::MAX,
                round_end: Some(connection.next()),
                samples: 0,
            };
        }
        if connection.window() < WINDOW_PACKETS_MIN {
            return false;
        }
        let min_rtt = connection.min_rtt();
        if now.since(self.last_ack) <= ACK_TRAIN_GAP_MAX {
            self.last_ack = now;
            let paced = connection.rate() != 0;
            // In slow start the pacing rate is twice cwnd/SRTT.
            let burst = connection.srtt() * (GSO_BURST_BYTES / 2) / connection.cwnd();
            let train = min_rtt + burst.min(GSO_BURST_DURATION_MAX);
            if now.since(self.round_start) > if paced { train } else { train / 2 } {
                return true;
            }
        }
        self.round_min_rtt = self.round_min_rtt.min(rtt);
        if self.samples < RTT_SAMPLES_MIN {
            self.samples += 1;
            return false;
        }
        self.round_min_rtt > min_rtt + (min_rtt / 8).clamp(DELAY_THRESHOLD_MIN, DELAY_THRESHOLD_MAX)
    }
}
