//! Arbitrary text as a gateway configuration. Either it parses and its printed form parses to the
//! same, or the problem has a line of the file and a fix.
#![no_main]

#[path = "../../crates/gateway/tests/harness/any_config.rs"]
mod any_config;

libfuzzer_sys::fuzz_target!(|text: &str| any_config::any_config(text));
