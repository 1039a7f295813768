//! All tests of the crate that need neither real packets nor a binary of their own, in one binary.

mod common;

mod arena;
mod command;
mod compare;
mod evaluate;
mod gateway;
mod manual;
mod programs;
mod results_format;
mod run_sim;
mod sweep;
mod units;
