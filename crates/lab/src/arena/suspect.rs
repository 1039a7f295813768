//! A run that is looked into: which, beside which other, and by what.

use crate::contender::Contender;
use crate::evaluate::Run;

/// What a run is judged by: in which two runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// The flow's goodput, the more the better.
    Goodput,
    /// The link's queueing delay, the less the better.
    Delay,
    /// Segments sent again.
    Loss,
    /// Goodput of the Cubic that was there before.
    Other,
    /// How far the goodputs of its two flows are apart.
    Share,
}

/// The run that is looked at, and how.
pub(super) struct Suspect {
    pub place: String,
    pub figure: String,
    pub run: Run,
    pub baseline: Contender,
    pub beside: Run,
    pub judged: Judged,
    /// From this share of the run on.
    pub from: f64,
}
