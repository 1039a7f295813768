//! Arbitrary packets, mostly of a few flows. Joining them into super-packets and splitting those
//! again must return the originals.
#![no_main]

#[path = "../../crates/host/tests/harness/join.rs"]
mod join;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    join::joins(data);
});
