//! The functions of `ccplane.h` under any order of calls with any structs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_capi::fuzz::capi(data);
});
