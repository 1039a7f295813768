//! A path of a QUIC connection under any order of its stack's calls, with any answer of its
//! control.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_quic::fuzz::quic_path(data);
});
