//! How flows begin in the experiments on RC3: with the second loop, without it, and the
//! alternatives that the paper compares it with.

use std::sync::Arc;

use ccplane_sim::{FlowControl, Native, TransportConfig, default_transport};
use ccplane_transport::Rc3;

use super::rc3_theory::{PAYLOAD, WINDOW, WIRE};

/// How a flow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Start {
    /// Slow start from four packets: the paper's TCP.
    Tcp,
    /// The same, and the second loop with its four levels, which watches whether the path keeps its
    /// marking.
    Rc3,
    /// The second loop with so many levels.
    Levels(u8),
    /// The second loop, and the first one paced.
    Paced,
    /// The second loop as in the paper: it does not watch anything.
    Blind,
    /// Slow start from so many packets.
    Window(u16),
    /// What RCP's routers offer.
    Rcp,
    /// The whole flow in the first round trip, paced.
    Jump,
    /// Plain TCP in the highest band, beside flows in the one below it: quality of service as it is
    /// sold.
    High,
    /// Plain TCP in the band below.
    Low,
}

impl Start {
    /// For a person.
    pub fn label(self) -> String {
        match self {
            Start::Tcp => "TCP".to_owned(),
            Start::Rc3 => "RC3".to_owned(),
            Start::Levels(1) => "RC3, one level".to_owned(),
            Start::Levels(levels) => format!("RC3, {levels} levels"),
            Start::Paced => "RC3, first loop paced".to_owned(),
            Start::Blind => "RC3, not watching".to_owned(),
            Start::Rcp => "RCP".to_owned(),
            Start::Jump => "JumpStart".to_owned(),
            Start::High => "TCP, high priority".to_owned(),
            Start::Low => "TCP, low priority".to_owned(),
            Start::Window(packets) => format!("initial window {packets}"),
        }
    }

    /// For names of files and figures.
    pub fn key(self) -> String {
        match self {
            Start::Tcp => "tcp".to_owned(),
            Start::Rc3 => "rc3".to_owned(),
            Start::Levels(levels) => format!("levels{levels}"),
            Start::Paced => "paced".to_owned(),
            Start::Blind => "blind".to_owned(),
            Start::Rcp => "rcp".to_owned(),
            Start::Jump => "jump".to_owned(),
            Start::High => "high".to_owned(),
            Start::Low => "low".to_owned(),
            Start::Window(packets) => format!("iw{packets}"),
        }
    }

    /// Whether it needs queues with bands.
    pub fn uses_bands(self) -> bool {
        !matches!(
            self,
            Start::Tcp | Start::Rcp | Start::Jump | Start::Window(_)
        )
    }

    /// What decides its window: `control` unless it brings its own.
    pub fn congestion(self, control: Control) -> FlowControl {
        match self {
            Start::Rcp => FlowControl::Native(Native::rcp()),
            _ => control.congestion(),
        }
    }

    /// The band of its ordinary packets.
    pub fn band(self) -> u8 {
        u8::from(self == Start::Low)
    }

    /// The transport's settings: the paper's packets of 1,460 bytes in 1,500, each acknowledged at
    /// once, buffers that do not limit.
    pub fn transport(self) -> TransportConfig {
        let own = TransportConfig {
            mss: PAYLOAD as u16,
            header_bytes: (WIRE - PAYLOAD) as u16,
            initial_window: WINDOW as u16,
            ack_every: 1,
            ..TransportConfig::clone(&default_transport())
        };
        let with = |rc3: Rc3| TransportConfig {
            rc3: Some(rc3),
            ..own.clone()
        };
        match self {
            Start::Tcp | Start::Rcp | Start::High | Start::Low => own,
            Start::Rc3 => with(Rc3::default()),
            Start::Levels(levels) => with(Rc3 {
                levels,
                ..Rc3::default()
            }),
            Start::Paced => TransportConfig {
                pacing: true,
                ..with(Rc3::default())
            },
            Start::Blind => with(Rc3 {
                verify: false,
                ..Rc3::default()
            }),
            Start::Jump => TransportConfig {
                jump_start: true,
                pacing: true,
                ..own
            },
            Start::Window(packets) => TransportConfig {
                initial_window: packets,
                ..own
            },
        }
    }
}

/// What decides the window after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Control {
    /// NewReno, as the paper's simulations.
    Reno,
    /// Cubic, as its testbed.
    Cubic,
}

impl Control {
    /// Both.
    pub const ALL: [Control; 2] = [Control::Cubic, Control::Reno];

    /// For names of files and figures.
    pub fn key(self) -> &'static str {
        match self {
            Control::Reno => "reno",
            Control::Cubic => "cubic",
        }
    }

    /// For a simulation. Cubic leaves slow start at a loss only: with HyStart its completion times
    /// would say more of that than of slow start.
    pub fn native(self) -> Native {
        match self {
            Control::Reno => Native::new_reno(),
            Control::Cubic => Native::cubic_without_hystart(),
        }
    }

    /// The same as a flow takes it.
    pub fn congestion(self) -> FlowControl {
        FlowControl::Native(self.native())
    }
}

/// Settings as flows share them.
pub(super) fn shared(config: TransportConfig) -> Arc<TransportConfig> {
    Arc::new(config)
}
