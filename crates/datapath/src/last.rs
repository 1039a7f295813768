//! The state that a flow was last seen in, kept for programs that also run without an ACK.

use crate::INFINITY;
use crate::bytecode::reg;

const SIGNALS: usize = reg::SIGNALS_END as usize;

/// The signals that describe a state rather than an event. Packed, because it is written at every ACK: with the flow's
/// other state it takes four cache lines and not five, which is what 10,000 flows in turn wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastState {
    /// Signals 8 to 13 and 15 to 17, from `Flow.bytes_in_flight` to `Flow.mss`.
    amounts: [u64; 9],
    /// Signals 24 to 26, `Flow.min_owd_ns`, `min_rtt_ns` and `queue_delay_ns`. They fit: infinity is the largest of 32 bits.
    delays: [u32; 3],
    /// Signals 18, 19, 21 and 27: limited by the application, in recovery, limited by the window, the queueing delay is valid.
    flags: [bool; 4],
}

const DELAYS: core::ops::Range<usize> = 24..27;
const FLAGS: [usize; 4] = [18, 19, 21, 27];
/// Events that read as infinity where there was none: `Ack.owd_ns` and `Ack.rtt_ns`.
const NOT_MEASURED: [usize; 2] = [22, 23];

impl Default for LastState {
    /// Before the first ACK: nothing in flight, round-trip times unknown.
    fn default() -> LastState {
        LastState {
            amounts: [0, 0, 0, 0, 0, INFINITY, INFINITY, INFINITY, 0],
            delays: [u32::MAX; 3],
            flags: [false; 4],
        }
    }
}

impl LastState {
    /// Keeps the state among the signals.
    #[inline(always)]
    pub fn keep(&mut self, signals: &[u64; SIGNALS]) {
        self.amounts[..6].copy_from_slice(&signals[8..14]);
        self.amounts[6..].copy_from_slice(&signals[15..18]);
        for (kept, &delay) in self.delays.iter_mut().zip(&signals[DELAYS]) {
            *kept = delay.min(INFINITY) as u32;
        }
        self.flags = FLAGS.map(|flag| signals[flag] != 0);
    }

    /// Signals with that state, and no events.
    pub fn write(&self, signals: &mut [u64; SIGNALS]) {
        *signals = [0; SIGNALS];
        signals[8..14].copy_from_slice(&self.amounts[..6]);
        signals[15..18].copy_from_slice(&self.amounts[6..]);
        for (delay, &kept) in signals[DELAYS].iter_mut().zip(&self.delays) {
            *delay = u64::from(kept);
        }
        for (flag, &set) in FLAGS.into_iter().zip(&self.flags) {
            signals[flag] = u64::from(set);
        }
        for number in NOT_MEASURED {
            signals[number] = INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_unknown_before_the_first_ack_and_then_as_it_left_them() {
        let mut signals = [7; SIGNALS];
        let mut last = LastState::default();
        last.write(&mut signals);
        let unknown = [13, 15, 16, 24, 25, 26];
        let never = NOT_MEASURED;
        for (number, &signal) in signals.iter().enumerate() {
            let expected = if unknown.contains(&number) || never.contains(&number) {
                INFINITY
            } else {
                0
            };
            assert_eq!(signal, expected, "signal {number}");
        }
        last.keep(&[9; SIGNALS]);
        last.write(&mut signals);
        assert_eq!(unknown.map(|number| signals[number]), [9; 6]);
        assert_eq!(never.map(|number| signals[number]), [INFINITY; 2]);
        assert_eq!((signals[0], signals[18], signals[27]), (0, 1, 1));
    }
}
