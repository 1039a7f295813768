//! The functions of `ccp.h` under any order of calls, with any messages of an agent.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_capi::fuzz::libccp(data);
});
