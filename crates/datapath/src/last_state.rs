//! State from a flow's last ACK, for programs that also run without an ACK.

use crate::INFINITY;
use crate::signals::{BaseSignals, SignalSource, StampSignals};

/// Signals that describe a state rather than an event. Packed, because it is written at every ACK:
/// the flow's hot state then takes four cache lines instead of five, and cache misses dominate the
/// cost of an ACK with 10,000 flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastState {
    /// Signals 8 to 13 and 15 to 17, from `Flow.bytes_in_flight` to `Flow.mss`.
    amounts: [u64; 9],
    /// Signals 24 and 25, `Flow.min_owd_ns` and `min_rtt_ns`. They fit, as infinity is the largest
    /// 32-bit value.
    delays: [u32; 2],
    /// Signals 18, 19 and 21: application-limited, in recovery, window-limited.
    flags: [bool; 3],
    /// Signal 28, for programs that read it.
    paced: bool,
}

impl Default for LastState {
    /// State before the first ACK: nothing in flight, delays unknown.
    fn default() -> LastState {
        LastState {
            amounts: [0, 0, 0, 0, 0, INFINITY, INFINITY, INFINITY, 0],
            delays: [u32::MAX; 2],
            flags: [false; 3],
            paced: false,
        }
    }
}

impl LastState {
    /// Stores the state among the signals that every program gets.
    #[inline(always)]
    pub fn store_base(&mut self, signals: &BaseSignals) {
        self.amounts[..6].copy_from_slice(&signals[8..14]);
        self.amounts[6..].copy_from_slice(&signals[15..18]);
        let [limited, recovery, full] = &mut self.flags;
        for (flag, number) in [(limited, 18), (recovery, 19), (full, 21)] {
            *flag = signals[number] != 0;
        }
    }

    /// Stores the state among the signals from stamps.
    pub fn store_stamped(&mut self, &[_, _, min_owd, min_rtt, ..]: &StampSignals) {
        self.delays = [min_owd, min_rtt].map(|delay| delay.min(INFINITY) as u32);
    }

    /// Stores signal 28.
    pub fn store_paced(&mut self, paced: u64) {
        self.paced = paced != 0;
    }
}

/// The stored state without events.
impl SignalSource for LastState {
    fn base(&self) -> BaseSignals {
        let mut signals = BaseSignals::default();
        signals[8..14].copy_from_slice(&self.amounts[..6]);
        signals[15..18].copy_from_slice(&self.amounts[6..]);
        for (number, &set) in [18, 19, 21].into_iter().zip(&self.flags) {
            signals[number] = u64::from(set);
        }
        signals
    }

    /// The age of the last stamps is unknown here, so the queueing delay is not valid.
    fn stamp_signals(&self) -> StampSignals {
        let [min_owd, min_rtt] = self.delays.map(u64::from);
        [INFINITY, INFINITY, min_owd, min_rtt, INFINITY, 0]
    }

    fn paced(&self) -> u64 {
        self.paced.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_unknown_before_the_first_ack_and_then_as_it_left_them() {
        let mut last = LastState::default();
        let unknown = [13, 15, 16];
        for (number, signal) in last.base().into_iter().enumerate() {
            let expected = if unknown.contains(&number) {
                INFINITY
            } else {
                0
            };
            assert_eq!(signal, expected, "signal {number}");
        }
        assert_eq!(
            last.stamp_signals(),
            [INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, 0]
        );
        last.store_base(&[9; 22]);
        let plain = last.base();
        assert_eq!(unknown.map(|number| plain[number]), [9; 3]);
        assert_eq!((plain[0], plain[18], plain[20]), (0, 1, 0));
        last.store_stamped(&[9; 6]);
        assert_eq!(
            last.stamp_signals(),
            [INFINITY, INFINITY, 9, 9, INFINITY, 0]
        );
        assert_eq!(last.paced(), 0);
        last.store_paced(1);
        assert_eq!(last.paced(), 1);
    }
}
