//! Adversarial packets at a device with timestamp programs: each is stamped or left alone as the
//! model predicts.

#[path = "harness/packet.rs"]
mod harness;

use harness::{Device, PacketFate};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Options before ours, usually malformed.
fn before() -> impl Strategy<Value = Vec<u8>> {
    let time_stamps = Just(vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    let sack = |blocks: u8| {
        let mut option = vec![1, 1, 5, 2 + 8 * blocks];
        option.resize(4 + 8 * usize::from(blocks), 7);
        option
    };
    let both = sack(1).into_iter();
    let both: Vec<u8> = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]
        .into_iter()
        .chain(both)
        .collect();
    prop_oneof![
        4 => Just(Vec::new()),
        4 => time_stamps,
        4 => (0..=2u8).prop_map(sack),
        4 => Just(both),
        1 => (0..=12u8).prop_map(|length| vec![1, 1, 5, length]),
        1 => proptest::collection::vec(any::<u8>(), 0..24),
    ]
}

/// Our option, and lookalikes.
fn option() -> impl Strategy<Value = Vec<u8>> {
    let word = || prop_oneof![Just(0u32), any::<u32>()];
    let id = prop_oneof![
        6 => Just(0xfd10_4458u32),
        2 => Just(0xfd10_4478),
        1 => Just(0xfd04_4458),
        1 => Just(0xfd10_4459),
        1 => any::<u32>(),
    ];
    (id, word(), word(), word()).prop_map(|(id, sent, echo, arrived)| {
        [id, sent, echo, arrived].map(u32::to_be_bytes).concat()
    })
}

/// A packet over Ethernet or without link-layer header, over IPv4 or IPv6, truncated anywhere.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..40);
    let odd = (0..16u8, any::<bool>(), 0..40usize);
    (0..4u8, any::<bool>(), before(), option(), payload, odd).prop_map(
        |(which, six, before, option, payload, (offset, as_said, cut))| {
            let bare = which & 2 == 2;
            let mut packet = if bare { Vec::new() } else { vec![2; 12] };
            if !bare {
                packet.extend(if six { [0x86, 0xdd] } else { [0x08, 0x00] });
            }
            let ip = packet.len();
            packet.resize(ip + if six { 40 } else { 20 }, 0);
            packet[ip] = if six { 0x60 } else { 0x45 };
            packet[ip + if six { 6 } else { 9 }] = 6;
            if bare {
                // The kernel takes these bytes as the frame's type; here they are part of the
                // source address.
                packet[12..14].copy_from_slice(if six { &[0x86, 0xdd] } else { &[0x08, 0x00] });
            }
            let options = before.len() + option.len();
            let mut tcp = vec![9; 20];
            tcp[12] = if as_said || options % 4 != 0 {
                offset << 4
            } else {
                (((20 + options) / 4) << 4) as u8
            };
            packet.extend(tcp.into_iter().chain(before).chain(option).chain(payload));
            packet.truncate(packet.len() - if as_said { cut.min(packet.len()) } else { 0 });
            packet.insert(0, which);
            packet
        },
    )
}

#[test]
fn packets_are_stamped_as_in_the_model() {
    if !crate::common::can_run("packets_are_stamped_as_in_the_model") {
        return;
    }
    let device = Device::load();
    let config = Config {
        cases: 50_000,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[14; 32]);
    let stamped = std::cell::Cell::new(0);
    TestRunner::new_with_rng(config, rng)
        .run(&packets(), |packet| {
            if device.shows(&packet) == PacketFate::Stamped {
                stamped.set(stamped.get() + 1);
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    // Guards against a generator whose packets all pass unchanged.
    assert!(stamped.get() > 5_000, "only {} were stamped", stamped.get());
}

/// Contents of the files that fuzzing starts from.
fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/packet");
    let files = std::fs::read_dir(folder).expect("fuzz/seeds is in the repository");
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read(file.expect("a file").path()).expect("the seed is readable")
    };
    files.map(read).collect()
}

#[test]
fn fuzz_seeds_are_stamped_as_in_the_model() {
    if crate::common::can_run("fuzz_seeds_are_stamped_as_in_the_model") {
        let device = Device::load();
        for data in seeds() {
            device.shows(&data);
        }
    }
}
