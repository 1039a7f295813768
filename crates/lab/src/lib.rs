//! Runs scenarios in the simulator, on kernel TCP and over UDP; has their figures, result files and report page; evaluates
//! algorithms.
//!
//! [`run()`] takes a [`Scenario`](scenario::Scenario) and a [`Place`] and returns a [`RunResult`](result::RunResult).
//! [`files::write`] makes the result directory of it, [`table::of_run`] the table for a terminal.
#![forbid(unsafe_code)]

pub mod arena;
pub mod behaviour;
mod burner;
pub mod compare;
mod contender;
pub mod control_loop;
pub mod cpu;
mod diag;
pub mod ends;
mod error;
pub mod evaluate;
mod figures;
pub mod files;
mod heard;
pub mod jobs;
pub mod loopback;
pub mod machine;
pub mod metrics;
mod over;
mod packets;
pub mod parts;
mod progress;
mod real;
mod record;
mod repeats;
pub mod report;
pub mod result;
mod run;
mod sends;
pub mod sim;
pub mod stamped;
pub mod stats;
pub mod steer;
pub mod table;
pub mod traffic;
pub mod wire;

pub use ccplane_scenario as scenario;
pub use contender::wants;
pub use diag::{Diag, TcpInfo};
pub use error::Error;
pub use figures::longest_stall;
pub use over::{MTU, Over, RemoteAgent, waited_us};
pub use packets::Packets;
pub use progress::{Progress, Quiet, Step};
pub use run::{Options, Place, Prepared, Stopped, run, run_keeping};
pub use scenario::{BadContender, Contender, suggestions};
pub use sim::Sim;
