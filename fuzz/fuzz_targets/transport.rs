//! Arbitrary segments received by a connection, interleaved with writes, reads and timeouts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_transport::fuzz::transport(data);
});
