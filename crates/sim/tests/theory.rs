//! The simulator against theory: published closed forms of throughput, windows, delays and
//! completion times, and against another simulator. `docs/validation.md` has the method and the
//! results.
#![expect(
    clippy::disallowed_methods,
    reason = "reference formulas; no simulation result depends on them"
)]

mod aqm;
mod cubic;
mod loss;
mod ns3;
mod path;
mod queueing;
mod slow_start;
