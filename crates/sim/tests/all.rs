//! Integration tests of the crate, in one binary.

mod bundle;
mod classes;
mod hosts;
mod probes;
mod rc3;
mod rcp;
mod receipt;
mod seeds;
mod simulation;
mod stamps;
mod theory;
mod workloads;
