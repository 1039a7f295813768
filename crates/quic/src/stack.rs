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
    /// s2n-quic: a control for each endpoint. It counts marks, and of an acknowledgement it says the newest packet and how many bytes.
    S2n,
}

/// What every stack can, with what [`Path`](crate::Path) adds to it.
const ALL: Capabilities = Capabilities::CWND
    .with(Capabilities::RTT)
    .with(Capabilities::DELIVERY_RATE)
    .with(Capabilities::RECOVERY);

impl Stack {
    /// All of them.
    pub const ALL: [Stack; 3] = [Stack::Noq, Stack::Quinn, Stack::S2n];

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
            instead: Stack::with(algorithm.needs()),
        })
    }

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Stack::Noq => "noq",
            Stack::Quinn => "quinn",
            Stack::S2n => "s2n-quic",
        }
    }

    /// What an algorithm may ask of it.
    pub const fn capabilities(self) -> Capabilities {
        match self {
            Stack::Noq => ALL.with(Capabilities::PACING),
            Stack::Quinn => ALL,
            Stack::S2n => ALL.with(Capabilities::PACING).with(Capabilities::ECN),
        }
    }

    /// What runs an algorithm of these needs instead, for people.
    fn with(needs: Capabilities) -> String {
        let can = |stack: &Stack| needs.missing_from(stack.capabilities()).is_empty();
        let names: Vec<&str> = Stack::ALL.into_iter().filter(can).map(Stack::name).collect();
        match names.as_slice() {
            [] => "no QUIC stack has it; ccplane's other datapaths do: kernel TCP, UDP, the simulator".to_owned(),
            names => format!(
                "{} can run it, and so do kernel TCP, UDP and the simulator",
                names.join(" or ")
            ),
        }
    }
}
