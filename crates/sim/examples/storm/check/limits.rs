//! Invariant of the limits: windows and rates stay within the operator's limits, even if agents
//! request other values.

use ccplane_datapath::OperatorLimits;
use ccplane_sim::Connection;

use super::Violation;

/// Packets that may be in flight beyond the window: tail loss probes, and the packet that was
/// started before the window was full.
const EXCESS_PACKETS_MAX: u64 = 3;

/// Checks the sender of a steered flow. The datapath applies the operator's limits from the first
/// ACK on; `heard` is true after it.
pub fn check(
    limits: &OperatorLimits,
    initial: u64,
    heard: bool,
    sender: &Connection,
) -> Result<(), Violation> {
    let (cwnd, rate, mss) = (sender.cwnd(), sender.rate(), sender.mss());
    if heard {
        // In recovery and after a timeout (one segment) the transport determines the window.
        let (least, most) = match sender.in_recovery() {
            true => (
                mss,
                limits
                    .max_cwnd
                    .saturating_mul(2)
                    .saturating_add(EXCESS_PACKETS_MAX * mss),
            ),
            // After recovery the window is a whole number of segments, and never below the number
            // that `min_cwnd` allows.
            false => (limits.min_cwnd / mss * mss, limits.max_cwnd),
        };
        if cwnd < least || cwnd > most {
            return Err(format!(
                "a window of {cwnd} bytes, but {least} to {most} are allowed"
            ));
        }
        if rate > limits.max_rate || rate == 0 && limits.max_rate != u64::MAX {
            return Err(format!(
                "a rate of {rate} bytes/s, but at most {} are allowed",
                limits.max_rate
            ));
        }
    }
    // After a spurious retransmission, both the original packets and the retransmissions are in
    // flight.
    let most = limits
        .max_cwnd
        .max(initial)
        .saturating_mul(2)
        .div_ceil(mss)
        .saturating_add(EXCESS_PACKETS_MAX);
    if u64::from(sender.in_flight()) > most {
        return Err(format!(
            "{} packets in flight, but at most {most} are allowed",
            sender.in_flight()
        ));
    }
    Ok(())
}
