//! All tests of the crate that need no process of their own, in one binary.

mod batches;
mod callbacks;
mod ccp;
mod datapath;
mod fields;
mod foreign;
mod lifetimes;
mod support;
