//! Runs scenarios, computes their metrics, writes result files and report pages, and evaluates
//! algorithms.
//!
//! This crate contains the simulator backend. `ccplane-testbed` has the backends for real packets.
//!
//! [`run()`] takes a [`Scenario`](scenario::Scenario) and a [`Backend`] and returns a
//! [`RunResult`](result::RunResult). [`files::write`] writes its result directory, and
//! [`table::of_run`] returns its table for a terminal.
#![forbid(unsafe_code)]

pub mod arena;
pub mod behaviour;
pub mod capacity;
pub mod compare;
mod contender;
mod error;
pub mod evaluate;
pub mod files;
pub mod jobs;
pub mod metrics;
pub mod parts;
mod progress;
pub mod record;
mod repeats;
pub mod report;
pub mod report_log;
pub mod result;
mod resume;
mod run;
pub mod sim;
pub mod stats;
pub mod sweep;
pub mod table;
pub mod traffic_kind;
pub mod transport;

pub use capacity::{MTU, waited_us};
pub use ccplane_scenario as scenario;
pub use contender::{read, wants};
pub use error::Error;
pub use progress::{NoProgress, Progress, ProgressStep};
pub use resume::{ResumableBackend, program_file};
pub use run::{Backend, PreparedRun, RunError, RunOptions, run, run_keeping};
pub use scenario::{AGENT_ADDRESS_STARTS, BadContender, Contender, suggestions};
pub use sim::Sim;
