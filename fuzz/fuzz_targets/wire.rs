//! Arbitrary bytes through the decoders of both framings; decoded messages are re-encoded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_wire::fuzz::read(data);
});
