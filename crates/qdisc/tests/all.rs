//! Integration tests of the crate, in one binary.

mod classes;
mod common;
mod conservation;
mod control;
mod links;
mod rfc8289;
mod rfc8290;
mod rfc9332;
