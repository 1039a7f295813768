//! Arbitrary datagrams: envelope and segment decode without a panic, and re-encode to the same
//! bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| ccplane_udp::codec::fuzz::segment(datagram));
