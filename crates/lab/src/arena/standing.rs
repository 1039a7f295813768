//! How a candidate did.

use serde::Serialize;

use super::gate::Check;
use super::score::Score;

/// How a candidate did.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The algorithm with its parameters.
    pub candidate: String,
    /// 0 to 1, or a little more where it is better than every baseline; 0 for what fails the gate.
    /// Absent where only the gate was asked for.
    pub score: Option<f64>,
    /// Whether it passed.
    pub gate_passed: bool,
    /// Why it did not, a sentence each.
    pub reasons: Vec<String>,
    /// The checks.
    pub gate: Vec<Check>,
    /// What the score is made of; absent where there is none.
    #[serde(flatten)]
    pub parts: Option<Score>,
}

impl Standing {
    /// It does not pass.
    pub(super) fn fails(&mut self, why: String) {
        self.gate_passed = false;
        self.reasons.push(why);
    }
}
