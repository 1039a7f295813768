//! Arbitrary text through the compiler, which returns a program or errors. The printed form of a
//! program must compile to the same code, and the program of a whole algorithm (a text with a
//! header) must compile with its defaults.
#![no_main]

#[path = "../../crates/lang/tests/support/any_text.rs"]
mod any_text;

libfuzzer_sys::fuzz_target!(|text: &str| any_text::any_text(text));
