//! Any packets, most of them of a few flows: joined to super-packets and taken apart again, they
//! are the same.
#![no_main]

#[path = "../../crates/host/tests/harness/join.rs"]
mod join;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    join::joins(data);
});
