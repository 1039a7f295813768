//! Gain of a receiver that conceals losses: none if the sender requires proofs.

use std::cell::Cell;
use std::rc::Rc;

use crate::wire::{Bottleneck, Pair, Path, ms, secs};
use ccplane_transport::{
    ConnectionError, ConnectionState, Native, Segment, SegmentKind, SequenceNumber, TransportConfig,
};
use ccplane_units::Time;

/// Link of 10 Mbit/s and 20 ms with a queue of 50 kB to a receiver that acknowledges every segment
/// sent to it, received or not.
struct ConcealingPath {
    link: Bottleneck,
    furthest: SequenceNumber,
    begun: Rc<Cell<Option<Time>>>,
}

impl Path for ConcealingPath {
    fn pass(&mut self, now: Time, from: usize, segment: &mut Segment, arrivals: &mut Vec<Time>) {
        if from == 0 && segment.kind == SegmentKind::Data {
            self.furthest = self.furthest.max(segment.number.wrapping_add(1));
        } else if from == 1 && segment.kind == SegmentKind::Ack && self.link.dropped > 0 {
            segment.ack = self.furthest;
            segment.flags &= !Segment::SIDE_FLAG;
            self.begun.set(self.begun.get().or(Some(now)));
        }
        self.link.pass(now, from, segment, arrivals);
    }
}

/// Returns the bytes sent in two seconds, the times of the first false ACK and of the end, and the
/// failure.
fn run(control: &Native, proves: bool) -> (u64, Time, Time, Option<ConnectionError>) {
    let config = TransportConfig {
        discard: true,
        pacing: true,
        // 420 Mbit/s at 20 ms: without proofs only the receive window limits growth.
        receive_buffer: 1 << 20,
        ..TransportConfig::default()
    };
    let begun = Rc::new(Cell::new(None));
    let path = ConcealingPath {
        link: Bottleneck::new(1_250_000, ms(10), 50_000),
        furthest: SequenceNumber(0),
        begun: begun.clone(),
    };
    let controls = [control.clone(), Native::cubic()];
    let mut pair = Pair::new(&config, controls, path, [u64::MAX, 0]);
    pair.ends[0].finishes = false;
    if proves {
        pair.require_proof();
    }
    while pair.step(secs(2)) {
        if pair.connection(0).state() == ConnectionState::Closed {
            break;
        }
    }
    let begun = begun.get().expect("a loss was concealed");
    (
        pair.connection(0).stats().sent,
        begun,
        pair.now,
        pair.connection(0).failure(),
    )
}

#[test]
fn a_receiver_that_conceals_losses_is_given_up_at_its_first_false_ack() {
    for control in [Native::new_reno(), Native::cubic()] {
        // The link carries 2.5 MB in two seconds.
        let (sent, ..) = run(&control, false);
        assert!(
            sent > 10_000_000,
            "{control:?} sent {sent} bytes without a proof"
        );
        let (sent, begun, ended, failure) = run(&control, true);
        assert_eq!(failure, Some(ConnectionError::FalseReceipt));
        assert!(sent < 1_000_000, "{control:?} sent {sent} bytes");
        assert!(ended.since(begun) < ms(20), "from {begun:?} to {ended:?}");
    }
}
