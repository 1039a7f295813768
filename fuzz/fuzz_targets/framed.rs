//! Arbitrary bytes as a stream of version 2 frames, split at arbitrary points.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_wire::fuzz::read_framed(data);
});
