//! Anything at all through the readers of both framings; what passes is written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_wire::fuzz::read(data);
});
