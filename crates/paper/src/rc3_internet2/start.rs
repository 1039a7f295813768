//! Ways in which a flow starts: with RC3's second loop, without it, and the alternatives to which
//! the paper compares it.

use ccplane_sim::{FlowControl, Native, TransportConfig};
use ccplane_transport::Rc3;

use super::super::rc3_transport;

/// Start of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Slow start from four packets: the paper's TCP.
    Tcp,
    /// The same with the second loop, which verifies that the path keeps the marking.
    Rc3,
    /// The second loop with this number of levels.
    Levels(u8),
    /// The second loop, and a paced first one.
    Paced,
    /// The second loop as in the paper, which verifies nothing.
    Blind,
    /// Slow start from this number of packets.
    Window(u16),
    /// The rate that RCP's routers offer.
    Rcp,
    /// JumpStart: the whole flow in the first round trip, paced.
    Jump,
    /// Plain TCP in the highest band, with others in the band below it.
    High,
    /// Plain TCP in the second band.
    Low,
}

impl Start {
    /// Returns its name in the tables.
    pub fn name(self) -> String {
        match self {
            Start::Tcp => "tcp".to_owned(),
            Start::Rc3 => "rc3".to_owned(),
            Start::Levels(levels) => format!("levels{levels}"),
            Start::Paced => "paced".to_owned(),
            Start::Blind => "blind".to_owned(),
            Start::Window(packets) => format!("iw{packets}"),
            Start::Rcp => "rcp".to_owned(),
            Start::Jump => "jump".to_owned(),
            Start::High => "high".to_owned(),
            Start::Low => "low".to_owned(),
        }
    }

    /// Returns true if it needs queues with bands.
    pub fn uses_bands(self) -> bool {
        !matches!(
            self,
            Start::Tcp | Start::Rcp | Start::Jump | Start::Window(_)
        )
    }

    pub fn congestion(self) -> FlowControl {
        FlowControl::Native(match self {
            Start::Rcp => Native::rcp(),
            _ => Native::new_reno(),
        })
    }

    /// Returns the band of its ordinary packets.
    pub fn band(self) -> u8 {
        u8::from(self == Start::Low)
    }

    pub fn transport(self) -> TransportConfig {
        let tcp = rc3_transport::tcp();
        let rc3 = Rc3::default();
        match self {
            Start::Tcp | Start::Rcp | Start::High | Start::Low => tcp,
            Start::Rc3 => TransportConfig {
                rc3: Some(rc3),
                ..tcp
            },
            Start::Levels(levels) => TransportConfig {
                rc3: Some(Rc3 { levels, ..rc3 }),
                ..tcp
            },
            Start::Paced => TransportConfig {
                rc3: Some(rc3),
                pacing: true,
                ..tcp
            },
            Start::Blind => TransportConfig {
                rc3: Some(Rc3 {
                    verify: false,
                    ..rc3
                }),
                ..tcp
            },
            Start::Jump => TransportConfig {
                jump_start: true,
                pacing: true,
                ..tcp
            },
            Start::Window(packets) => TransportConfig {
                initial_window: packets,
                ..tcp
            },
        }
    }
}
