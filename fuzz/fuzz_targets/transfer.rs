//! Both streams of a file transfer. The parser is included by path, since it needs nothing else of
//! the `ccplane` command.
#![no_main]
#![allow(dead_code, reason = "the parser's other users are in the command")]

#[path = "../../crates/cli/src/transfer/wire/fuzz.rs"]
mod fuzz;
#[path = "../../crates/cli/src/transfer/wire.rs"]
mod wire;

use libfuzzer_sys::fuzz_target;
use wire::{Answers, StreamEvent, Frames};

fuzz_target!(|stream: &[u8]| fuzz::fuzz(stream));
