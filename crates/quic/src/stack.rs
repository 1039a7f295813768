//! What each QUIC stack's hook can do for whoever steers it.

use ccplane_datapath::Capabilities;

/// A QUIC stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// noq, n0's successor of quinn.
    Noq,
}

/// What every stack can, with what [`Path`](crate::Path) adds to it.
const ALL: Capabilities = Capabilities::CWND
    .with(Capabilities::RTT)
    .with(Capabilities::DELIVERY_RATE)
    .with(Capabilities::RECOVERY);

impl Stack {
    /// Every stack.
    pub const ALL: [Stack; 1] = [Stack::Noq];

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Stack::Noq => "noq",
        }
    }

    /// What an algorithm may ask of it.
    pub const fn capabilities(self) -> Capabilities {
        match self {
            Stack::Noq => ALL.with(Capabilities::PACING),
        }
    }
}
