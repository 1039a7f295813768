//! What each QUIC stack's hook can do for whoever steers it.

use ccplane_agent::DynAlgorithm;
use ccplane_datapath::Capabilities;

use crate::PlaneError;

/// A QUIC stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// noq, n0's successor of quinn.
    Noq,
    /// quinn: it paces by itself, at 1.25 windows an RTT, and says of losses only how many bytes there were.
    Quinn,
}

/// What every stack can, with what [`Path`](crate::Path) adds to it.
const ALL: Capabilities = Capabilities::CWND
    .with(Capabilities::RTT)
    .with(Capabilities::DELIVERY_RATE)
    .with(Capabilities::RECOVERY);

impl Stack {
    /// An error where the algorithm needs what the stack lacks.
    pub fn can_run(self, algorithm: &dyn DynAlgorithm) -> Result<(), PlaneError> {
        let missing = algorithm.needs().missing_from(self.capabilities());
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = missing.names().collect();
        Err(PlaneError::Missing {
            algorithm: algorithm.name().to_owned(),
            missing: names.join(", "),
            stack: self.name(),
        })
    }

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Stack::Noq => "noq",
            Stack::Quinn => "quinn",
        }
    }

    /// What an algorithm may ask of it.
    pub const fn capabilities(self) -> Capabilities {
        match self {
            Stack::Noq => ALL.with(Capabilities::PACING),
            Stack::Quinn => ALL,
        }
    }
}
