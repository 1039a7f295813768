//! Invariants, checked after every event. Each module checks one of them with its own counters.

pub mod counters;
pub mod end;
pub mod fallback;
pub mod limits;
pub mod stream;

/// Description of a violated invariant.
pub type Violation = String;
