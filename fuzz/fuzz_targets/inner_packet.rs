//! Any bytes as a packet of a site on a way of any MTU: MSS, ICMP "too big", fragments.
#![no_main]

#[path = "../../crates/gateway/tests/harness/inner_packet.rs"]
mod inner_packet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    inner_packet::holds(data);
});
