//! Any datagram: envelope and segment are read without a panic, and written back as they were.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| ccplane_udp::codec::fuzz::segment(datagram));
