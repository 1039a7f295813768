//! Tests on real packets, in one binary.

mod sites;

mod classes;
mod cost;
mod flood;
mod operation;
mod seeds;
mod tunnel;
