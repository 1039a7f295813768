//! Any datagram of the delay meter: it is read without a panic, and what is read is written back as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| ccplane_meter::packet::any_bytes(datagram));
