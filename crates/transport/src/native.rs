//! The transport's own congestion controls: baselines, and a choice for those who need no agent.
//!
//! They count packets, as Linux does. The connection repairs losses. At the start of a reduction a
//! control says the threshold; otherwise it only grows the window.

mod cubic;
mod dctcp;
mod hystart;
mod newreno;
mod rcp;

use std::str::FromStr;

use ccplane_datapath::Outcome;

use crate::connection::Phase;
use crate::control::{Control, Event};

pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use newreno::NewReno;
pub use rcp::Rcp;

/// A congestion control of the transport's own.
#[derive(Clone, Debug)]
pub enum Native {
    /// RFC 5681 and 6582.
    NewReno(NewReno),
    /// RFC 9438.
    Cubic(Cubic),
    /// RFC 8257.
    Dctcp(Dctcp),
    /// What RCP's routers offer.
    Rcp(Rcp),
}

impl Native {
    /// What [`Native::from_str`] takes.
    pub const NAMES: [&'static str; 4] = ["reno", "cubic", "cubic-without-hystart", "dctcp"];

    /// NewReno.
    pub fn new_reno() -> Native {
        Native::NewReno(NewReno::default())
    }

    /// Cubic with Linux' HyStart.
    pub fn cubic() -> Native {
        Native::Cubic(Cubic::new(true))
    }

    /// Cubic that leaves slow start at the first loss only.
    pub fn cubic_without_hystart() -> Native {
        Native::Cubic(Cubic::new(false))
    }

    /// DCTCP. The connection's `ecn` has to be on.
    pub fn dctcp() -> Native {
        Native::Dctcp(Dctcp::default())
    }

    /// RCP. It cannot be chosen by name, because its driver has to carry the routers' stamps. The
    /// simulator does so on links with RCP queues.
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

/// There is no native congestion control of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no native congestion control is called `{0}`: it is one of {list}", list = Native::NAMES.join(", "))]
pub struct UnknownNative(pub String);

impl Control for Native {
    #[inline(always)]
    fn on_event(&mut self, event: &Event<'_>) -> Outcome {
        match self {
            Native::Cubic(cubic) => cubic.on_event(event),
            Native::NewReno(reno) => reno.on_event(event),
            Native::Dctcp(dctcp) => dctcp.on_event(event),
            Native::Rcp(rcp) => rcp.on_event(event),
        }
    }

    fn on_deadline(&mut self, event: &Event<'_>) -> Outcome {
        match self {
            Native::Rcp(rcp) => rcp.on_deadline(event),
            _ => Outcome::default(),
        }
    }
}

/// Growth as Linux does it, packet by packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    /// Packets acknowledged towards the next increase (`snd_cwnd_cnt`).
    count: u32,
}

impl Growth {
    /// Whether the window may grow: something was acknowledged, no reduction is under way, and the
    /// window limits sending.
    #[inline(always)]
    pub fn allowed(event: &Event<'_>) -> bool {
        let connection = event.connection();
        event.ack.bytes > 0
            && !matches!(connection.phase(), Phase::Reduction | Phase::Recovery)
            && connection.cwnd_limited()
    }

    /// Slow start: one packet for every packet that counts, up to the threshold. Returns the new
    /// window, and the acknowledged packets that are left for congestion avoidance.
    #[inline(always)]
    pub fn slow_start(event: &Event<'_>) -> (u32, u32) {
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

    /// Congestion avoidance: a packet for every `every` that are acknowledged
    /// (`tcp_cong_avoid_ai`).
    #[inline(always)]
    pub fn avoid(&mut self, window: u32, every: u32, acked: u32) -> u32 {
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

/// An outcome that sets the window, in packets. Empty where the window is in force already.
#[inline(always)]
pub(crate) fn window(event: &Event<'_>, packets: u32) -> Outcome {
    let connection = event.connection();
    let changed = packets != connection.window();
    Outcome {
        cwnd: changed.then(|| u64::from(packets) * connection.mss()),
        ..Outcome::default()
    }
}

/// A threshold in packets as an outcome, at least two.
#[inline(always)]
pub(crate) fn threshold(event: &Event<'_>, packets: u64) -> Outcome {
    Outcome {
        ssthresh: Some(packets.max(2) * event.connection().mss()),
        ..Outcome::default()
    }
}

/// Whether the connection is in slow start.
#[inline(always)]
pub(crate) fn in_slow_start(event: &Event<'_>) -> bool {
    event.connection().cwnd() < event.connection().ssthresh()
}
