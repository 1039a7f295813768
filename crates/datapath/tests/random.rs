//! Random programs: every program that passes the check runs in bounded time, without panic, and
//! agrees with the model.

use crate::harness;
use crate::harness::Verdict;
use proptest::prelude::*;

/// The fuzz target on stable Rust: thousands of cases from fixed seeds.
#[test]
fn seeded_cases_agree_with_the_model() {
    let mut ran = 0;
    let cases = 20_000;
    for seed in 0..cases {
        let data = harness::bytes(seed, 64 + (seed % 512) as usize);
        if harness::bytecode(&data) == Verdict::Ran {
            ran += 1;
        }
    }
    // A generator whose programs are all refused would test nothing.
    assert!(
        ran > cases / 10,
        "only {ran} of {cases} programs passed the check"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_agree_with_the_model(
        data in proptest::collection::vec(any::<u8>(), 0..700),
    ) {
        harness::bytecode(&data);
    }

    #[test]
    fn the_same_bytes_run_the_same_way(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(harness::bytecode(&data), harness::bytecode(&data));
    }
}
