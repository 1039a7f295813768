//! Tests on real packets that hold the host lock, in one binary.

#[path = "../../lab/tests/common/mod.rs"]
mod common;
#[path = "common/host.rs"]
mod host;

mod kernel;
mod real;
mod run;
mod sites;
mod split;
