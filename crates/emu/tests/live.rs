//! Tests on real packets, in one binary.

mod common;

mod bulk;
mod namespaces;
mod rate;
