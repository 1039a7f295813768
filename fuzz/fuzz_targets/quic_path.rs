//! Path of a QUIC connection: calls of its stack in any order, with arbitrary decisions of its
//! congestion control.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_quic::fuzz::quic_path(data);
});
