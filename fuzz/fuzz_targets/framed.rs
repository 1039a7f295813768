//! Anything at all as a stream of frames of version 2, cut in any way.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_wire::fuzz::read_framed(data);
});
