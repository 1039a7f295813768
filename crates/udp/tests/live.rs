//! Tests on real packets, in one binary.

mod flood;
mod liar;
mod path;
mod udp;
