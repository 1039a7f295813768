//! Experiments on real packets: orchestration, metrics, result files, the report page, published figures.
//!
//! [`run`] takes an [`Experiment`] and gives a [`RunResult`](result::RunResult); [`files::write`] makes the result
//! directory of it, [`table::of_run`] the table for a terminal.
#![forbid(unsafe_code)]

pub mod behaviour;
pub mod bench_dx;
pub mod bench_kernel;
mod burner;
mod cpu;
mod datagrams;
mod diag;
mod ends;
mod error;
pub mod evaluate;
mod experiment;
mod figures;
pub mod files;
mod heard;
mod machine;
pub mod measure;
pub mod metrics;
pub mod paper;
mod parts;
mod real_packets;
pub mod report;
pub mod result;
mod run;
pub mod sim;
mod stamped;
mod stats;
mod steer;
pub mod table;
pub mod traffic;
mod wire;

pub use ccplane_scenario as scenario;
pub use diag::{Diag, TcpInfo};
pub use error::Error;
pub use experiment::{BadContender, Contender, Experiment, RemoteAgent, suggestions, wants};
pub use real_packets::on_real_packets;
pub use run::{Carrier, Progress, Quiet, run, run_over};
