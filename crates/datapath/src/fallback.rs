//! Built-in NewReno of the datapath (RFC 5681, RFC 6582), for flows whose agent is silent. It uses
//! the same window, rate and threshold, and a fixed amount of memory per flow.
//!
//! It takes over a flow in its current state. The transport still repairs losses and decides which
//! segment is sent when.

use ccplane_units::{Duration, Time};

use crate::outcome::RequestedControls;
use crate::signals::{Signals, Transport};

/// Segment size in bytes if a datapath does not report one: a full Ethernet frame with TCP
/// timestamps.
const DEFAULT_MSS_BYTES: u64 = 1448;

/// Maximum growth per ACK in slow start, segments: L of RFC 3465 section 2.2. With 1, the window
/// grows at half the rate if the receiver delays ACKs; above 2, compressed or lost ACKs cause
/// bursts.
const SLOW_START_SEGMENTS_PER_ACK_MAX: u64 = 2;

/// Pacing rate in percent of cwnd/SRTT: in slow start room to double in each round, then enough
/// that the window and not pacing limits the flow. Linux's `tcp_pacing_ss_ratio` and
/// `tcp_pacing_ca_ratio`.
const SLOW_START_PACING_PERCENT: u64 = 200;
const CONGESTION_AVOIDANCE_PACING_PERCENT: u64 = 120;

/// State of NewReno for one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fallback {
    /// Initial window of the flow, bytes.
    pub initial_cwnd: u64,
    /// Bytes acknowledged towards the next increase in congestion avoidance (RFC 3465 section 2.1).
    acked: u64,
    /// Window and threshold before the last reduction, in case it was spurious; 0 if there is
    /// nothing to undo.
    undo_state: (u64, u64),
    /// Pacing rate before the fallback, bytes/s; 0 if there was none.
    rate: u64,
    /// Time of the last reaction to congestion.
    last_reaction: Time,
    phase: FallbackPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FallbackPhase {
    /// The fallback has just started.
    Fresh,
    /// Slow start or congestion avoidance.
    Open,
    /// The window was reduced after a loss; recovery is in progress.
    Recovery,
    /// A timeout occurred, and nothing was acknowledged since.
    Timeout,
    /// Slow start after a timeout.
    Restart,
}

impl Fallback {
    pub fn new(initial_cwnd: u64) -> Fallback {
        Fallback {
            initial_cwnd,
            acked: 0,
            undo_state: (0, 0),
            rate: 0,
            last_reaction: Time::ZERO,
            phase: FallbackPhase::Fresh,
        }
    }

    /// Handles one ACK or timeout.
    #[cold]
    pub fn step(&mut self, transport: &Transport, signals: &Signals) -> RequestedControls {
        let mss = if signals.mss == 0 {
            DEFAULT_MSS_BYTES
        } else {
            signals.mss
        };
        let RequestedControls {
            cwnd,
            rate,
            ssthresh,
        } = RequestedControls::from_transport(transport);
        let (cwnd, ssthresh) = if self.phase == FallbackPhase::Fresh {
            self.rate = rate;
            self.take_over(transport, signals)
        } else {
            (cwnd, ssthresh)
        };

        let congested = signals.lost_pkts_sample > 0 || signals.ecn_packets > 0;
        let (cwnd, ssthresh) = if signals.undone != 0 && self.undo_state.0 != 0 {
            self.undo(cwnd, ssthresh)
        } else if signals.was_timeout != 0 {
            self.timeout(cwnd, ssthresh, mss)
        } else {
            self.advance(transport.now, signals);
            if congested && matches!(self.phase, FallbackPhase::Open) {
                self.reduce(transport.now, cwnd, ssthresh, mss)
            } else {
                (self.grow(cwnd, ssthresh, mss, signals), ssthresh)
            }
        };
        RequestedControls {
            cwnd,
            rate: pacing(rate, cwnd, ssthresh, signals.srtt_us),
            ssthresh,
        }
    }

    /// Pacing rate to restore for the next program if NewReno has set its own. An algorithm that
    /// sets only windows would otherwise keep NewReno's rate for ever.
    #[cold]
    pub fn prior_rate(&self) -> Option<u64> {
        (self.rate != 0).then_some(self.rate)
    }

    /// Continues from the agent's window. If the agent set no threshold, a window above the initial
    /// one means that slow start was over, so NewReno probes from there and does not double the
    /// window.
    fn take_over(&mut self, transport: &Transport, signals: &Signals) -> (u64, u64) {
        let &Transport {
            cwnd,
            ssthresh,
            now,
            ..
        } = transport;
        self.last_reaction = now;
        self.phase = if signals.in_recovery != 0 {
            FallbackPhase::Recovery
        } else {
            FallbackPhase::Open
        };
        let unknown = ssthresh == u64::MAX && cwnd > self.initial_cwnd;
        (cwnd, if unknown { cwnd } else { ssthresh })
    }

    /// Detects the end of a recovery, and the first progress after a timeout.
    ///
    /// Losses of data sent before the reduction are detected within about one round trip, so a
    /// reduction lasts at least one. Losses after two round trips concern data sent since,
    /// retransmitted or new. They require another reduction (RFC 5681 section 4.3), even if the
    /// transport went from one recovery into the next in a single ACK.
    fn advance(&mut self, now: Time, signals: &Signals) {
        let round_trip = Duration::from_micros(signals.srtt_us);
        let since = now.since(self.last_reaction);
        let recovering = signals.in_recovery != 0;
        self.phase = match self.phase {
            FallbackPhase::Recovery
                if since >= round_trip * 2 || (!recovering && since >= round_trip) =>
            {
                FallbackPhase::Open
            }
            FallbackPhase::Timeout if signals.bytes_acked > 0 => FallbackPhase::Restart,
            FallbackPhase::Restart if !recovering => FallbackPhase::Open,
            phase => phase,
        };
    }

    /// Halves the window at the first congestion signal of an episode. RFC 5681 halves the data in
    /// flight. Datapaths differ in whether segments just marked lost still count as in flight, so
    /// the window is halved instead, as in RFC 9002 section 7.3.2.
    fn reduce(&mut self, now: Time, cwnd: u64, ssthresh: u64, mss: u64) -> (u64, u64) {
        self.undo_state = (cwnd, ssthresh);
        self.acked = 0;
        self.phase = FallbackPhase::Recovery;
        self.last_reaction = now;
        let half = halve_window(cwnd, mss);
        (half, half)
    }

    /// Handles a retransmission timeout: one segment, then slow start to half the window (RFC 5681
    /// section 3.1). A further timeout before any progress leaves the threshold unchanged.
    fn timeout(&mut self, cwnd: u64, ssthresh: u64, mss: u64) -> (u64, u64) {
        let first = self.phase != FallbackPhase::Timeout;
        self.acked = 0;
        self.phase = FallbackPhase::Timeout;
        if first {
            self.undo_state = (cwnd, ssthresh);
        }
        (
            mss,
            if first {
                halve_window(cwnd, mss)
            } else {
                ssthresh
            },
        )
    }

    /// Undoes a spurious reduction (RFC 4015).
    fn undo(&mut self, cwnd: u64, ssthresh: u64) -> (u64, u64) {
        let (cwnd_before, ssthresh_before) = core::mem::take(&mut self.undo_state);
        self.phase = FallbackPhase::Open;
        (cwnd.max(cwnd_before), ssthresh.max(ssthresh_before))
    }

    /// Grows the window by acknowledged bytes (RFC 3465), but not in fast recovery, and not while
    /// the application rather than the window limits sending (RFC 9002 section 7.8).
    fn grow(&mut self, cwnd: u64, ssthresh: u64, mss: u64, signals: &Signals) -> u64 {
        let limited_by_window = signals.cwnd_limited != 0 || signals.app_limited == 0;
        let repairing = self.phase == FallbackPhase::Recovery
            || (self.phase == FallbackPhase::Open && signals.in_recovery != 0);
        if repairing || !limited_by_window {
            return cwnd;
        }
        if cwnd < ssthresh {
            let limit = if self.phase == FallbackPhase::Open {
                SLOW_START_SEGMENTS_PER_ACK_MAX
            } else {
                1
            };
            return cwnd.saturating_add(signals.bytes_acked.min(limit.saturating_mul(mss)));
        }
        self.acked = self.acked.saturating_add(signals.bytes_acked);
        if self.acked < cwnd {
            return cwnd;
        }
        // At most one segment per round, however much one ACK covers.
        self.acked = (self.acked - cwnd).min(cwnd);
        cwnd.saturating_add(mss)
    }
}

/// Half the window in whole segments, at least two. A fraction would stay in it until the next
/// loss.
fn halve_window(cwnd: u64, mss: u64) -> u64 {
    (cwnd / 2 / mss.max(1)).max(2).saturating_mul(mss)
}

/// Pacing rate for the window, if the flow is paced. The rate of the silent agent would otherwise
/// apply for ever.
fn pacing(rate: u64, cwnd: u64, ssthresh: u64, srtt_us: u64) -> u64 {
    if rate == 0 || srtt_us == 0 {
        return rate;
    }
    let percent = if cwnd < ssthresh {
        SLOW_START_PACING_PERCENT
    } else {
        CONGESTION_AVOIDANCE_PACING_PERCENT
    };
    let per_second = u128::from(cwnd) * u128::from(percent) * 10_000 / u128::from(srtt_us);
    u64::try_from(per_second).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    fn transport(controls: RequestedControls, ms: u64) -> Transport {
        Transport {
            cwnd: controls.cwnd,
            rate: controls.rate,
            ssthresh: controls.ssthresh,
            now: Time::ZERO + Duration::from_millis(ms),
        }
    }

    fn controls(cwnd: u64, ssthresh: u64) -> RequestedControls {
        RequestedControls {
            cwnd,
            rate: 0,
            ssthresh,
        }
    }

    fn ack(bytes_acked: u64) -> Signals {
        Signals {
            bytes_acked,
            mss: MSS,
            srtt_us: 20_000,
            cwnd_limited: 1,
            ..Signals::default()
        }
    }

    #[test]
    fn windows_are_in_segments_of_the_flow() {
        let mut fallback = Fallback::new(10 * MSS);
        let grown = fallback.step(&transport(controls(10 * MSS, 5 * MSS), 0), &ack(10 * MSS));
        assert_eq!(grown.cwnd, 11 * MSS);
        let lost = Signals {
            lost_pkts_sample: 1,
            ..ack(0)
        };
        let halved = fallback.step(&transport(grown, 1), &lost);
        assert_eq!((halved.cwnd, halved.ssthresh), (5 * MSS, 5 * MSS));
        // Where a datapath has no size of a segment, an Ethernet frame's worth.
        let unknown = Signals {
            mss: 0,
            ..ack(20_000)
        };
        let mut fallback = Fallback::new(10 * MSS);
        let grown = fallback.step(&transport(controls(20_000, 5 * MSS), 0), &unknown);
        assert_eq!(grown.cwnd, 20_000 + DEFAULT_MSS_BYTES);
    }

    /// An ACK of nothing is no progress: the second of two timeouts leaves the threshold.
    #[test]
    fn a_timeout_ends_with_the_first_byte_acknowledged() {
        let timeout = Signals {
            was_timeout: 1,
            ..ack(0)
        };
        for (acked, second) in [(0, 10 * MSS), (1, 2 * MSS)] {
            let mut fallback = Fallback::new(10 * MSS);
            let first = fallback.step(&transport(controls(20 * MSS, u64::MAX), 0), &timeout);
            assert_eq!((first.cwnd, first.ssthresh), (MSS, 10 * MSS));
            let between = fallback.step(&transport(first, 100), &ack(acked));
            let last = fallback.step(&transport(between, 200), &timeout);
            assert_eq!((last.cwnd, last.ssthresh), (MSS, second), "{acked} bytes");
        }
    }
}
