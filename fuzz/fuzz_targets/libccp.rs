//! Functions of `ccp.h` in any order, with arbitrary messages from an agent.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_capi::fuzz::libccp(data);
});
