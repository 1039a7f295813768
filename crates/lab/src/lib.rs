//! Experiments on real packets: orchestration, metrics, result files, the report page, published figures.
//!
//! [`run`] takes an [`Experiment`] and gives a [`RunResult`](result::RunResult); [`files::write`] makes the result
//! directory of it, [`table::of_run`] the table for a terminal.
#![forbid(unsafe_code)]

pub mod behaviour;
mod burner;
pub mod cellular;
pub mod control_loop;
pub mod cpu;
mod datagrams;
mod diag;
pub mod ends;
mod error;
pub mod evaluate;
mod experiment;
mod figures;
pub mod files;
mod heard;
pub mod loopback;
mod machine;
pub mod measure;
pub mod metrics;
pub mod paper;
mod parts;
pub mod report;
pub mod result;
mod run;
pub mod scenario;
pub mod sim;
pub mod stamped;
pub mod stats;
pub mod steer;
pub mod table;
pub mod traffic;
pub mod wire;

pub use diag::{Diag, TcpInfo};
pub use error::Error;
pub use experiment::{BadContender, Contender, Experiment, RemoteAgent, suggestions};
pub use run::{Carrier, Progress, Quiet, open, run, run_over, waited_us};
