//! All algorithms behind an agent, with arbitrary reports from a datapath.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_algorithms::fuzz::agent(data);
});
