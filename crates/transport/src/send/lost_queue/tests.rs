use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    /// The queue returns the lowest number for any order of pushes, also across the wrap.
    #[test]
    fn the_lowest_number_leaves_first(
        first in prop::sample::select(vec![0u32, u32::MAX - 40]),
        steps in prop::collection::vec((0u32..80, any::<bool>()), 1..200),
    ) {
        let mut queue = LostQueue::default();
        let mut model = BTreeSet::new();
        for (offset, pops) in steps {
            if pops {
                let lowest = model
                    .pop_first()
                    .map(|offset: u32| SequenceNumber(first.wrapping_add(offset)));
                prop_assert_eq!(queue.pop(), lowest);
            } else if model.insert(offset) {
                queue.push(SequenceNumber(first.wrapping_add(offset)));
            }
            prop_assert_eq!(queue.len(), model.len());
        }
        prop_assert_eq!(queue.drain().count(), model.len());
        prop_assert_eq!(queue.pop(), None);
    }
}

#[test]
fn marks_in_ascending_order_append() {
    let mut queue = LostQueue::default();
    for number in 0..1_000 {
        queue.push(SequenceNumber(number));
    }
    assert!(queue.earlier.is_empty());
    let ascending_bytes = queue.heap_bytes();
    queue.push(SequenceNumber(3));
    assert_eq!(queue.earlier.len(), 1);
    assert!(queue.heap_bytes() > ascending_bytes && ascending_bytes >= 4_000);
}
