//! Tests on real packets that hold the host lock, in one binary.

mod common;

mod agent;
mod attach;
mod attach_remote;
mod config;
mod evaluate_real;
mod fleet;
