//! Joined packets are reproduced exactly by segmentation.

#[path = "harness/join.rs"]
mod harness;

use harness::{Outcome, joins};
use proptest::prelude::*;

/// A step that usually continues its flow, so that runs are long.
fn step() -> impl Strategy<Value = [u8; 4]> {
    let what = prop_oneof![
        20 => 0_u8..4,
        2 => (0_u8..4).prop_map(|flow| flow | 4),
        2 => (0_u8..4).prop_map(|flow| flow | 8),
        1 => any::<u8>(),
    ];
    (what, any::<u8>(), any::<u8>(), any::<u8>())
        .prop_map(|(what, size, at, value)| [what, size, at, value])
}

proptest! {
    #[test]
    fn joined_packets_split_into_the_originals(
        first in 0_u8..4,
        one_flow: bool,
        steps in proptest::collection::vec(step(), 1..150),
        flow in 0_u8..4,
    ) {
        let mut data = vec![first];
        for mut step in steps {
            if one_flow {
                step[0] = step[0] & !3 | flow;
            }
            data.extend(step);
        }
        let Outcome { packets, frames } = joins(&data);
        prop_assert!(frames <= packets);
    }

    #[test]
    fn no_script_harms_it(data in proptest::collection::vec(any::<u8>(), 0..1_000)) {
        joins(&data);
    }
}

#[test]
fn runs_are_as_long_as_they_can_be() {
    for flow in 0..4 {
        let mut data = vec![1];
        data.extend([flow, 0, 0, 1].repeat(100));
        // 1400 bytes of payload each, 46 per frame.
        assert_eq!(
            joins(&data),
            Outcome {
                packets: 100,
                frames: 3
            },
            "flow {flow}"
        );
    }
    // Without UDP joining each UDP packet is a frame.
    let mut data = vec![0];
    data.extend([2, 0, 0, 1].repeat(100));
    assert_eq!(joins(&data).frames, 100);
}

/// Contents of the files that fuzzing starts from.
fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/join");
    let files = std::fs::read_dir(folder).expect("fuzz/seeds is in the repository");
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read(file.expect("a file").path()).expect("it can be read")
    };
    files.map(read).collect()
}

#[test]
fn seeds_of_fuzzing_come_apart_into_the_same_packets() {
    for data in seeds() {
        joins(&data);
    }
}
