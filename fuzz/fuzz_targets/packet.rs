//! Arbitrary packets through a device with timestamps: the shipped BPF programs in the running
//! kernel, as root, against a reference model.
#![no_main]

#[path = "../../crates/linux/tests/harness/packet.rs"]
mod packet;

thread_local! {
    static DEVICE: packet::Device = packet::Device::load();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    DEVICE.with(|device| device.shows(data));
});
