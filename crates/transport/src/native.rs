//! Native congestion controls of the transport: baselines, and controls for use without an agent.
//!
//! They count packets, as Linux does. The connection repairs losses. A control sets the threshold
//! at the start of a reduction; otherwise it only grows the window.

mod cubic;
mod dctcp;
mod hystart;
mod newreno;
mod rcp;

use std::str::FromStr;

use ccplane_datapath::Outcome;

use crate::connection::RecoveryPhase;
use crate::control::{CongestionControl, ControlEvent};

pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use newreno::NewReno;
pub use rcp::Rcp;

/// Native congestion control of the transport.
#[derive(Clone, Debug)]
pub enum Native {
    /// RFC 5681 and 6582.
    NewReno(NewReno),
    /// RFC 9438.
    Cubic(Cubic),
    /// RFC 8257.
    Dctcp(Dctcp),
    /// Rate offered by RCP routers.
    Rcp(Rcp),
}

impl Native {
    /// Names accepted by [`Native::from_str`].
    pub const NAMES: [&'static str; 4] = ["reno", "cubic", "cubic-without-hystart", "dctcp"];

    /// Creates NewReno.
    pub fn new_reno() -> Native {
        Native::NewReno(NewReno::default())
    }

    /// Creates Cubic with Linux's HyStart.
    pub fn cubic() -> Native {
        Native::Cubic(Cubic::new(true))
    }

    /// Creates Cubic that leaves slow start only at the first loss.
    pub fn cubic_without_hystart() -> Native {
        Native::Cubic(Cubic::new(false))
    }

    /// Creates DCTCP. It requires the connection's `ecn`.
    pub fn dctcp() -> Native {
        Native::Dctcp(Dctcp::default())
    }

    /// Creates RCP. It cannot be selected by name, because the driver must carry the routers'
    /// stamps. The simulator does so on links with RCP queues.
    pub fn rcp() -> Native {
        Native::Rcp(Rcp::default())
    }
}

impl FromStr for Native {
    type Err = UnknownNative;

    fn from_str(name: &str) -> Result<Native, UnknownNative> {
        match name {
            "reno" | "newreno" => Ok(Native::new_reno()),
            "cubic" => Ok(Native::cubic()),
            "cubic-without-hystart" => Ok(Native::cubic_without_hystart()),
            "dctcp" => Ok(Native::dctcp()),
            _ => Err(UnknownNative(name.to_owned())),
        }
    }
}

/// Unknown name of a native congestion control.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown native congestion control `{0}`; use one of \
    {list}", list = Native::NAMES.join(", "))]
pub struct UnknownNative(pub String);

impl CongestionControl for Native {
    #[inline(always)]
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        match self {
            Native::Cubic(cubic) => cubic.on_event(event),
            Native::NewReno(reno) => reno.on_event(event),
            Native::Dctcp(dctcp) => dctcp.on_event(event),
            Native::Rcp(rcp) => rcp.on_event(event),
        }
    }

    fn on_deadline(&mut self, event: &ControlEvent<'_>) -> Outcome {
        match self {
            Native::Rcp(rcp) => rcp.on_deadline(event),
            _ => Outcome::default(),
        }
    }
}

/// Window growth as in Linux, packet by packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    /// Packets acknowledged towards the next increase (`snd_cwnd_cnt`).
    count: u32,
}

impl Growth {
    /// Returns true if the window may grow: data was acknowledged, no reduction is in progress, and
    /// the window limits sending.
    #[inline(always)]
    pub fn can_grow(event: &ControlEvent<'_>) -> bool {
        let connection = event.connection();
        event.ack.bytes > 0
            && !matches!(
                connection.phase(),
                RecoveryPhase::Reduction | RecoveryPhase::Recovery
            )
            && connection.cwnd_limited()
    }

    /// Slow start: grows by one packet per acknowledged packet, up to the threshold and
    /// `Config::growth_limit`. Returns the new window and the acknowledged packets left for
    /// congestion avoidance.
    #[inline(always)]
    pub fn slow_start(event: &ControlEvent<'_>) -> (u32, u32) {
        let connection = event.connection();
        let acked = match connection.config.growth_limit {
            0 => event.ack.delivered(),
            limit => event.ack.delivered().min(u32::from(limit)),
        };
        let (window, mss) = (connection.window(), connection.mss());
        let room = connection.ssthresh() - connection.cwnd();
        if u64::from(acked) * mss <= room {
            return (window.saturating_add(acked), 0);
        }
        let step = (room / mss) as u32;
        (window + step, acked - step)
    }

    /// Congestion avoidance: grows by one packet per `every` acknowledged packets
    /// (`tcp_cong_avoid_ai`).
    #[inline(always)]
    pub fn congestion_avoidance(&mut self, window: u32, every: u32, acked: u32) -> u32 {
        let mut window = window;
        if self.count >= every {
            self.count = 0;
            window = window.saturating_add(1);
        }
        self.count = self.count.saturating_add(acked);
        if self.count >= every {
            let steps = self.count / every.max(1);
            self.count -= steps * every;
            window = window.saturating_add(steps);
        }
        window
    }

    #[inline(always)]
    pub fn reset(&mut self) {
        self.count = 0;
    }
}

/// Returns an outcome that sets the window to `packets`. It is empty if that window is in force.
#[inline(always)]
pub(crate) fn window_outcome(event: &ControlEvent<'_>, packets: u32) -> Outcome {
    let connection = event.connection();
    let changed = packets != connection.window();
    Outcome {
        cwnd: changed.then(|| u64::from(packets) * connection.mss()),
        ..Outcome::default()
    }
}

/// Returns an outcome that sets the threshold to `packets`, at least two.
#[inline(always)]
pub(crate) fn threshold_outcome(event: &ControlEvent<'_>, packets: u64) -> Outcome {
    Outcome {
        ssthresh: Some(packets.max(2) * event.connection().mss()),
        ..Outcome::default()
    }
}

#[inline(always)]
pub(crate) fn in_slow_start(event: &ControlEvent<'_>) -> bool {
    event.connection().cwnd() < event.connection().ssthresh()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ack;
    use crate::test_harness::TestEnd;

    #[test]
    fn every_name_is_an_algorithm_of_its_own() {
        let read = |name: &str| name.parse::<Native>().map(|native| format!("{native:?}"));
        let expected = [
            ("reno", Native::new_reno()),
            ("newreno", Native::new_reno()),
            ("cubic", Native::cubic()),
            ("cubic-without-hystart", Native::cubic_without_hystart()),
            ("dctcp", Native::dctcp()),
        ];
        for (name, native) in expected {
            assert_eq!(read(name).ok(), Some(format!("{native:?}")), "{name}");
        }
        assert_ne!(read("cubic").ok(), read("cubic-without-hystart").ok());
        assert!(read("rcp").is_err() && read("Reno").is_err());
    }

    /// Linux's `tcp_slow_start`: the window grows to the threshold, and congestion avoidance counts
    /// the remaining packets.
    #[test]
    fn slow_start_leaves_packets_beyond_the_threshold_to_congestion_avoidance() {
        for (ssthresh, acked, expected) in [
            (12_000, 1, (11, 0)),
            (12_000, 2, (12, 0)),
            (12_000, 7, (12, 5)),
            // The last, partial packet of the threshold is not counted.
            (12_900, 7, (12, 5)),
            (10_900, 3, (10, 3)),
        ] {
            let mut end = TestEnd::new(10);
            end.connection.ssthresh = ssthresh;
            let event = ControlEvent {
                now: end.now,
                ack: Ack {
                    packets: acked,
                    ..Ack::default()
                },
                connection: &end.connection,
            };
            assert_eq!(
                Growth::slow_start(&event),
                expected,
                "{acked} packets, threshold {ssthresh}"
            );
        }
    }
}
