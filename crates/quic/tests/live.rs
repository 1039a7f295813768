//! Tests on real packets, in one binary.

mod flood;
mod quinn;
mod s2n;
