//! Functions of `ccplane.h` in any order, with arbitrary structs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_capi::fuzz::capi(data);
});
