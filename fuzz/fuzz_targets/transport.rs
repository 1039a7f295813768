//! Anything at all as segments at a connection, between writes, reads and timeouts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_transport::fuzz::transport(data);
});
