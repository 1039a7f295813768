//! The simulator against theory, closed forms of throughput, windows, delays and completion times
//! that others have proved or published, and against another simulator. `docs/validation.md` has
//! the method and the figures.
#![expect(
    clippy::disallowed_methods,
    reason = "formulas that results are compared with; no simulation reaches them"
)]

mod aqm;
mod cubic;
mod loss;
mod ns3;
mod path;
mod queueing;
mod slow_start;
