//! Tests of the crate in one binary. `behaviour` and `golden` are slow and have binaries of their
//! own.

mod common;

mod bbr;
mod bundles;
mod cases;
mod datacentre;
mod delay_based;
mod evaluate;
mod jitter;
mod nimbus;
mod outages;
mod report;
mod sim;
mod texts;
mod vivace;
mod workloads;
