//! An endpoint that listens, with and without TLS, among clients, copies and forgeries.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_udp::endpoint::fuzz::endpoint(data);
});
