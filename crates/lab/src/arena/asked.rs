//! Which candidates to score, and how thoroughly.

use crate::contender::Contender;

/// How thoroughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Only whether it may be let on a network: under a second of a processor.
    Gate,
    /// The gate, and a score on six links: some seconds.
    Quick,
    /// The same on twenty links, and for three times as long.
    Full,
}

impl Suite {
    /// How many links it has.
    pub(super) fn links(self) -> usize {
        match self {
            Suite::Gate => 0,
            Suite::Quick => 6,
            Suite::Full => 20,
        }
    }
}

/// Whom to score, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The candidates.
    pub candidates: Vec<Contender>,
    /// Each figure is set beside the best of these.
    pub against: Vec<Contender>,
    /// How thoroughly.
    pub suite: Suite,
    /// The links are drawn from this, instead of the published ones.
    pub held_out: Option<u64>,
    /// Threads of the simulator.
    pub threads: usize,
}
