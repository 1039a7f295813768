//! What measures see of a run.

use ccplane_lab::result::ContenderResult;
use ccplane_lab::scenario::Scenario;

/// A run, as measures look at it.
pub(super) struct Run<'r> {
    pub scenario: &'r Scenario,
    /// What a full packet takes to be sent at the bottleneck, µs.
    pub packet_us: f64,
    pub result: &'r ContenderResult,
}
