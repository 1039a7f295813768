//! The paper's model of an agent that decides everything at fixed times.
//!
//! It is `reno:split=agent` without urgent reports: a loss or a timeout waits for the next regular
//! report.

use ccplane_agent::{DynAlgorithm, box_algorithm};
use ccplane_algorithms::{AgentOnly, Reno, Reporting};
use ccplane_units::Duration;

/// Name by which flows choose the algorithm.
pub(super) const NAME: &str = "reno";

/// Returns the algorithm with this time between reports.
pub(super) fn reporting(interval: Duration) -> Box<dyn DynAlgorithm> {
    // A report leaves at the first ACK after more than the given time.
    let interval = interval.saturating_sub(Duration::from_micros(1));
    box_algorithm(AgentOnly::new(Reno, Reporting::Every(interval)).without_urgent_reports())
}
