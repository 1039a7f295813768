//! Tests on real packets, in one binary.

mod loopback;
