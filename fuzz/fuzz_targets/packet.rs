//! Any packet at a device with stamps: the shipped BPF programs in the running kernel, as root,
//! beside a model of them.
#![no_main]

#[path = "../../crates/linux/tests/harness/packet.rs"]
mod packet;

thread_local! {
    static DEVICE: packet::Device = packet::Device::load();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    DEVICE.with(|device| device.shows(data));
});
