//! Arbitrary bytecode through the checker; accepted programs run against a simple reference model.
#![no_main]

#[path = "../../crates/datapath/tests/harness/mod.rs"]
#[allow(dead_code)]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    harness::bytecode(data);
});
