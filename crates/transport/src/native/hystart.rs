//! HyStart of Linux 6.13 and later (`hystart_update` in tcp_cubic.c): slow start ends before the
//! first loss when a train of ACKs is as long as the path, or when the delay has risen.
//!
//! Linux 5.16 to 6.12 start no round below `hystart_low_window`, so that the first round begins in
//! the middle of a flight and takes the queue of the flight's end for a standing one (fixed by
//! "tcp_cubic: fix incorrect HyStart round start detection").

use ccplane_units::{Duration, Time};

use crate::connection::Connection;
use crate::number::Number;

/// Linux: `hystart_low_window`, packets. Smaller windows start rounds, but do not end slow start.
const LOW_WINDOW: u32 = 16;
/// Linux: `hystart_ack_delta_us`. ACKs further apart are no train.
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// Linux: `HYSTART_MIN_SAMPLES`. RTTs of a round before its least one counts.
const MIN_SAMPLES: u8 = 8;
/// Linux: `HYSTART_DELAY_MIN` and `_MAX`: the rise of an eighth that counts is within these. Less
/// ends slow start for jitter, more only when the queue is long.
const DELAY_MIN: Duration = Duration::from_millis(4);
const DELAY_MAX: Duration = Duration::from_millis(16);
/// Linux: `hystart_ack_delay`: what offloading sends at once, 4 times 65536 bytes at the pacing
/// rate of slow start, 1 ms at most.
const BURST: u64 = 4 * 65536;
const BURST_MAX: Duration = Duration::from_millis(1);

/// What a round of slow start has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HyStart {
    round_start: Time,
    last_ack: Time,
    least: Duration,
    round_end: Option<Number>,
    samples: u8,
}

impl HyStart {
    /// Whether slow start is to end at this ACK.
    #[inline]
    pub fn is_over(&mut self, connection: &Connection, now: Time, rtt: Duration) -> bool {
        if rtt == Duration::ZERO {
            return false;
        }
        if self
            .round_end
            .is_none_or(|end| end.before(connection.una()))
        {
            *self = HyStart {
                round_start: now,
                last_ack: now,
                least: Duration::MAX,
                round_end: Some(connection.next()),
                samples: 0,
            };
        }
        if connection.window() < LOW_WINDOW {
            return false;
        }
        let min_rtt = connection.min_rtt();
        if now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = now;
            let paced = connection.rate() != 0;
            // The pacing rate of slow start is twice cwnd/srtt.
            let burst = connection.srtt() * (BURST / 2) / connection.cwnd();
            let train = min_rtt + burst.min(BURST_MAX);
            if now.since(self.round_start) > if paced { train } else { train / 2 } {
                return true;
            }
        }
        self.least = self.least.min(rtt);
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
            return false;
        }
        self.least > min_rtt + (min_rtt / 8).clamp(DELAY_MIN, DELAY_MAX)
    }
}
