//! Arbitrary bytes as a packet of a site over a path of any MTU: MSS clamping, ICMP "packet too
//! big", fragmentation.
#![no_main]

#[path = "../../crates/gateway/tests/harness/inner_packet.rs"]
mod inner_packet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    inner_packet::holds(data);
});
