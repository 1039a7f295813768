//! Windows and rates are within what the owner allows, whatever the agents say.

use ccplane_datapath::Limits;
use ccplane_sim::Connection;

use super::Wrong;

/// So many packets may be out beyond the window: probes of a lost tail, and the one that began
/// before the window was full.
const BEYOND: u64 = 3;

/// Looks at the sender of a steered flow. What was acknowledged first was the first that the
/// datapath heard of: its owner's limits hold from then on.
pub fn check(limits: &Limits, initial: u64, heard: bool, sender: &Connection) -> Result<(), Wrong> {
    let (cwnd, rate, mss) = (sender.cwnd(), sender.rate(), sender.mss());
    if heard {
        // What a repair leaves room for, and the one segment after a timeout, is the transport's
        // affair.
        let (least, most) = match sender.in_recovery() {
            true => (
                mss,
                limits
                    .max_cwnd
                    .saturating_mul(2)
                    .saturating_add(BEYOND * mss),
            ),
            // Where a repair ends the window is whole segments, and lets out what the least one
            // does.
            false => (limits.min_cwnd / mss * mss, limits.max_cwnd),
        };
        if cwnd < least || cwnd > most {
            return Err(format!(
                "a window of {cwnd} bytes, where {least} to {most} are allowed"
            ));
        }
        if rate > limits.max_rate || rate == 0 && limits.max_rate != u64::MAX {
            return Err(format!(
                "a rate of {rate} bytes/s, where {} are allowed",
                limits.max_rate
            ));
        }
    }
    // What a repair that proves needless has sent is in flight beside what it was for.
    let most = limits
        .max_cwnd
        .max(initial)
        .saturating_mul(2)
        .div_ceil(mss)
        .saturating_add(BEYOND);
    if u64::from(sender.in_flight()) > most {
        return Err(format!(
            "{} packets in flight, where {most} are allowed",
            sender.in_flight()
        ));
    }
    Ok(())
}
