//! Anything at all through the bytecode checker; what passes runs, beside a plain model of it.
#![no_main]

#[path = "../../crates/datapath/tests/harness/mod.rs"]
#[allow(dead_code)]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    harness::bytecode(data);
});
