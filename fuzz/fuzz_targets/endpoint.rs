//! Listening endpoint, with and without TLS, with clients, replayed and forged datagrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_udp::endpoint::fuzz::endpoint(data);
});
