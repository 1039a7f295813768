//! Every benchmark: what ccplane costs, measured here and now, beside the reference.
//!
//! A module is a command of `ccplane bench`. Its `run` gives [`Figures`]: a table with aims and
//! references, or one JSON object. `linux::bench` stays where it is, as it plays the kernel's side
//! of the datapath's own memory, and so does `capi::bench`, which calls the functions that C calls.
#![forbid(unsafe_code)]
// Standard output may be closed or full: `ccplane::program::print_line` reports it at the end.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod agent;
pub mod arena;
mod bpf_statistics;
pub mod capi;
mod command;
pub mod control_loop;
pub mod datapath;
pub mod dx;
pub mod emu;
mod error;
mod figures;
pub mod gateway;
pub mod kernel;
mod over_tls;
pub mod peers;
pub mod quic;
mod rounds;
pub mod sim;
pub mod sweep;
pub mod transport;

pub use command::main_with;
pub use error::Error;
pub use figures::{Figure, Figures};
