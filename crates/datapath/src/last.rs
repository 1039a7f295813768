//! The state that a flow was last seen in, kept for programs that also run without an ACK.

use crate::bytecode::reg;

const SIGNALS: usize = reg::SIGNALS_END as usize;

/// The signals that describe a state rather than an event. Packed, because it is written at every ACK: with the flow's
/// other state it takes four cache lines and not five, which is what 10,000 flows in turn wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastState {
    /// Signals 8 to 13 and 15 to 17, from `Flow.bytes_in_flight` to `Flow.mss`.
    amounts: [u64; 9],
    /// Signals 18, 19 and 21: limited by the application, in recovery, limited by the window.
    flags: [bool; 3],
}

impl LastState {
    /// Keeps the state among the signals.
    #[inline(always)]
    pub fn keep(&mut self, signals: &[u64; SIGNALS]) {
        self.amounts[..6].copy_from_slice(&signals[8..14]);
        self.amounts[6..].copy_from_slice(&signals[15..18]);
        self.flags = [18, 19, 21].map(|flag| signals[flag] != 0);
    }

    /// Signals with that state, and no events.
    pub fn write(&self, signals: &mut [u64; SIGNALS]) {
        *signals = [0; SIGNALS];
        signals[8..14].copy_from_slice(&self.amounts[..6]);
        signals[15..18].copy_from_slice(&self.amounts[6..]);
        for (flag, &set) in [18, 19, 21].into_iter().zip(&self.flags) {
            signals[flag] = u64::from(set);
        }
    }
}
