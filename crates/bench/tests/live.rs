//! Tests of the program and on real packets, in one binary.

mod command;
mod loopback;
