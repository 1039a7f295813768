//! Arbitrary text as a link trace, a table of flow sizes, a queue or a loss model: a value or an
//! error. The printed form of a queue parses to the same.
#![no_main]

#[path = "../../crates/sim/tests/harness/tables.rs"]
mod tables;

libfuzzer_sys::fuzz_target!(|text: &str| tables::any_table(text));
