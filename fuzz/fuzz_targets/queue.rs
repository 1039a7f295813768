//! Arbitrary text as a queue or a loss model, which parses or gives an error. The printed form of a
//! valid one parses to the same, and the queue or model works.
#![no_main]

use ccplane_qdisc::{DropReason, Ecn, Loss, LossModel, Packet, Qdisc, QueueSpec};
use ccplane_units::{Duration, Rate, Time};
use libfuzzer_sys::fuzz_target;

/// Size of the largest packet, bytes.
const MTU: u32 = 1_500;

struct Whole;

impl Packet for Whole {
    fn bytes(&self) -> u32 {
        MTU
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }
}

/// Builds the queue for a link. Checks that every packet is dequeued, dropped or still queued.
fn run(spec: &QueueSpec, rate: Option<Rate>) {
    let mut queue = match spec.build(rate, Duration::from_millis(20), MTU, 1) {
        Ok(queue) => queue,
        Err(why) => return assert!(!why.to_string().is_empty()),
    };
    let (mut dropped, mut left) = (0, 0);
    let mut drops = |_: Whole, _: DropReason| dropped += 1;
    for n in 0..16 {
        let now = Time::from_micros(n * 20_000);
        queue.enqueue(now, Whole, &mut drops);
        queue.enqueue(now, Whole, &mut drops);
        if queue.next_ready().is_some_and(|ready| ready <= now) {
            left += u64::from(queue.dequeue(now, &mut drops).is_some());
        }
    }
    assert_eq!(left + dropped + queue.backlog().packets, 32, "{spec}");
}

fuzz_target!(|text: &str| {
    match text.parse::<QueueSpec>() {
        Ok(spec) => {
            assert_eq!(spec.to_string().parse(), Ok(spec), "{spec}");
            for rate in [None, Some(1), Some(12_000_000), Some(u64::MAX)] {
                run(&spec, rate.map(Rate::from_bytes_per_sec));
            }
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
    match text.parse::<LossModel>() {
        Ok(model) => {
            assert_eq!(model.to_string().parse(), Ok(model), "{model}");
            let mut loss = Loss::with_model(model, 1);
            for _ in 0..8 {
                let _ = loss.next_is_lost();
            }
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
});
