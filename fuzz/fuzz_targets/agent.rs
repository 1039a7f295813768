//! Every algorithm behind an agent, whatever a datapath reports.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ccplane_algorithms::fuzz::agent(data);
});
