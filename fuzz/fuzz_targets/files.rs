//! Both streams of a transfer of files, and the names in them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|stream: &[u8]| ccplane_files::fuzz::streams(stream));
