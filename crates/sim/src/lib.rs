//! The discrete-event simulator.
#![forbid(unsafe_code)]
