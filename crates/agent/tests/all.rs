//! All tests of the crate that need no process of their own, in one binary.

mod batches;
mod callbacks;
mod datapath;
mod fields;
mod lifetimes;
mod support;
