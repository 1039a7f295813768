//! Tests on real packets, in one binary.

mod common;

mod devices;
mod join;
mod queues;
