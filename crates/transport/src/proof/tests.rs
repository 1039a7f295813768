//! Honest receivers pass the check whatever arrives in whatever order; false claims end the
//! connection.

use ccplane_units::{Duration, Time};
use proptest::prelude::*;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::*;
use crate::config::TransportConfig;
use crate::connection::RecoveryPhase;
use crate::native::Native;
use crate::receive::Receiver;
use crate::segment::Range;
use crate::test_harness::{MSS_BYTES, TestEnd};

thread_local! {
    /// Number of hashes computed so far.
    pub(super) static HASHES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

const NONCE_KEY: [u8; 16] = *b"a key of a test.";
/// Half of the numbers lie beyond the wrap.
const FIRST_NUMBER: u32 = u32::MAX - 9;
const FLIGHT_SEGMENTS: u16 = 20;

/// Sender that requires proof, and the receiving half of its peer.
struct Ends {
    sender: TestEnd,
    receiver: Receiver,
    config: TransportConfig,
    /// Segments sent, in order.
    sent: Vec<(Segment, Proof)>,
}

/// Acknowledgement with its ranges and nonces.
type Answer = (Segment, SideData, Proof);

impl Ends {
    /// Starts with a flight of [`FLIGHT_SEGMENTS`] segments.
    fn new() -> Ends {
        let config = TransportConfig {
            initial_window: FLIGHT_SEGMENTS,
            first_number: FIRST_NUMBER,
            ..TransportConfig::default()
        };
        let mut sender = TestEnd::with_config(config.clone());
        sender.connection.require_proof(&NONCE_KEY);
        sender.connection.write(1_000 * MSS_BYTES);
        let mut ends = Ends {
            sender,
            receiver: Receiver::new(&config),
            config,
            sent: Vec::new(),
        };
        ends.send();
        assert_eq!(ends.sent.len(), usize::from(FLIGHT_SEGMENTS));
        ends
    }

    fn send(&mut self) {
        let side = SideData::default();
        for segment in self.sender.send_all() {
            let proof = self.sender.connection.prove(&segment, &side);
            self.sent.push((segment, proof));
        }
    }

    /// Delivers the segment sent as number `index`.
    fn deliver(&mut self, index: usize) {
        let (segment, proof) = self.sent[index];
        let now = self.sender.now;
        self.receiver.on_data(
            (now, now),
            &segment,
            &SideData::default(),
            &proof,
            &self.config,
        );
        self.receiver.check();
    }

    fn send_ack(&mut self) -> Answer {
        let (mut segment, mut side) = (Segment::default(), SideData::default());
        self.receiver
            .acknowledge(self.sender.now, &mut segment, &mut side, &self.config);
        let ranges = if segment.has_side() {
            side.ranges()
        } else {
            &[]
        };
        let proof = Proof {
            sum: self.receiver.nonce_sum(ranges),
            echo: self.receiver.echo_mark(0),
            ..Proof::default()
        };
        (segment, side, proof)
    }

    fn deliver_ack(&mut self, (segment, side, proof): &Answer) {
        let now = self.sender.now;
        let mut control = Native::new_reno();
        self.sender
            .connection
            .handle_with_proof((now, now), segment, side, proof, &mut control);
    }

    fn failure(&self) -> Option<ConnectionError> {
        self.sender.connection.failure()
    }

    fn advance_ms(&mut self, ms: u64) {
        self.sender.now += Duration::from_millis(ms);
        if self
            .sender
            .connection
            .next_timeout()
            .is_some_and(|at| at <= self.sender.now)
        {
            let now: Time = self.sender.now;
            self.sender
                .connection
                .on_timeout(now, &mut Native::new_reno());
        }
        self.send();
    }

    /// Repairs a loss: segment 5 of the flight is lost, detected by SACKs, and retransmitted as the
    /// last of `sent`.
    fn with_repaired_loss() -> Ends {
        let mut ends = Ends::new();
        ends.advance_ms(20);
        for index in (0..usize::from(FLIGHT_SEGMENTS)).filter(|index| *index != 5) {
            ends.deliver(index);
            let answer = ends.send_ack();
            ends.deliver_ack(&answer);
        }
        ends.send();
        let again = ends
            .sent
            .iter()
            .rposition(|(segment, _)| segment.transmission == 2);
        assert_eq!(
            again.map(|index| ends.sent[index].0.number),
            Some(number(5))
        );
        assert_eq!(ends.sender.connection.phase(), RecoveryPhase::Recovery);
        ends.sent
            .swap_remove(again.unwrap_or_default())
            .clone_into(&mut ends.sent[5]);
        ends
    }
}

fn number(index: u32) -> SequenceNumber {
    SequenceNumber(FIRST_NUMBER).wrapping_add(index)
}

fn range(start: u32, end: u32) -> Range {
    Range {
        start: number(start),
        end: number(end),
    }
}

#[test]
fn nonces_add_up_across_the_wrap() {
    let key = NonceKey::new(&NONCE_KEY, number(0));
    let sum = (0..50).fold(0u16, |sum, n| {
        sum.wrapping_add(key.sum(number(n), number(n + 1)))
    });
    assert_eq!(sum, key.sum(number(0), number(50)));
    assert_eq!(key.sum(number(3), number(3)), 0);
    assert_ne!(key.mark(number(3), 1), key.mark(number(3), 2));
}

proptest! {
    /// Losses, reordering, duplicates and late ACKs in any order.
    #[test]
    fn an_honest_receiver_is_kept(
        steps in prop::collection::vec((0u8..8, any::<prop::sample::Index>()), 1..200),
    ) {
        let mut ends = Ends::new();
        let mut answers: Vec<Answer> = Vec::new();
        for (step, index) in steps {
            match step {
                0..=2 => ends.deliver(index.index(ends.sent.len())),
                3 | 4 => answers.push(ends.send_ack()),
                5 | 6 if !answers.is_empty() => {
                    let answer = answers[index.index(answers.len())];
                    ends.deliver_ack(&answer);
                }
                _ => ends.advance_ms(1 + index.index(400) as u64),
            }
            prop_assert_eq!(ends.failure(), None);
        }
    }
}

/// The cost of an ACK does not depend on the window.
#[test]
fn a_segment_costs_two_hashes_and_an_ack_two_and_two_per_range() {
    let mut ends = Ends::new();
    let hashes = |before: u64| HASHES.get() - before;
    assert_eq!(
        hashes(0),
        1 + 2 * u64::from(FLIGHT_SEGMENTS),
        "one for the first number, and two per segment"
    );
    (0..10).for_each(|index| ends.deliver(index));
    let answer = ends.send_ack();
    let before = HASHES.get();
    ends.deliver_ack(&answer);
    assert_eq!(hashes(before), 2);
    [12, 14, 15].iter().for_each(|index| ends.deliver(*index));
    let answer = ends.send_ack();
    assert_eq!(answer.1.ranges().len(), 2);
    let before = HASHES.get();
    ends.deliver_ack(&answer);
    assert_eq!(hashes(before), 2 + 2 * 2);
    assert_eq!(ends.failure(), None);
}

/// All ways to claim a missing segment, with the honest sum and with a guess.
#[test]
fn a_false_claim_ends_the_connection() {
    let mut random = Pcg32::new(37, 4);
    for round in 0..2_000u32 {
        let mut ends = Ends::new();
        let missing = random.next_u32() % 18;
        for index in (0..18).filter(|index| *index != missing) {
            if random.next_u32().is_multiple_of(4) {
                ends.deliver(index as usize);
            }
        }
        let (mut segment, mut side, mut proof) = ends.send_ack();
        match round % 7 {
            // Ahead of the received, and of the sent segments.
            0 => segment.ack = number(missing + 1).max(segment.ack.wrapping_add(1)),
            1 => segment.ack = number(u32::from(FLIGHT_SEGMENTS)),
            2 => segment.ack = number(u32::from(FLIGHT_SEGMENTS) + 1),
            // A SACK of a missing segment, alone and with an inverted range that cancels it.
            3 => {
                side = SideData::default();
                side.push(range(missing, missing + 1));
            }
            4 => {
                side = SideData::default();
                side.push(range(missing, missing + 1));
                side.push(range(missing + 1, missing));
            }
            5 => {
                side = SideData::default();
                side.push(range(missing, missing + 1));
                side.push(range(missing, missing + 1));
            }
            // A SACK that closes a hole.
            _ => {
                side = SideData::default();
                side.push(range(
                    segment.ack.since(number(0)) + 1,
                    u32::from(FLIGHT_SEGMENTS),
                ));
            }
        }
        if round % 7 > 2 {
            segment.flags |= Segment::SIDE_FLAG;
        } else {
            segment.flags &= !Segment::SIDE_FLAG;
        }
        if round % 2 == 1 {
            proof.sum = random.next_u32() as u16;
        }
        ends.deliver_ack(&(segment, side, proof));
        assert_eq!(
            ends.failure(),
            Some(ConnectionError::FalseReceipt),
            "round {round}: {segment:?} {side:?}"
        );
        assert_eq!(ends.sender.connection.state(), ConnectionState::Closed);
        let abort = ends.sender.send_all();
        assert_eq!(
            abort.iter().map(|segment| segment.kind).collect::<Vec<_>>(),
            [SegmentKind::Abort]
        );
    }
}

/// Eifel: the ACK of the retransmission claims that the original triggered it.
#[test]
fn an_echo_without_its_mark_ends_the_connection() {
    let mut ends = Ends::with_repaired_loss();
    ends.deliver(5);
    let (mut segment, side, proof) = ends.send_ack();
    assert_eq!((segment.echo, segment.echo_transmission), (number(5), 2));
    segment.echo_transmission = 1;
    ends.deliver_ack(&(segment, side, proof));
    assert_eq!(ends.failure(), Some(ConnectionError::FalseReceipt));
}

/// A DSACK for every retransmission would undo every reduction. Only the original's mark does.
#[test]
fn a_duplicate_undoes_a_reduction_only_with_the_mark_of_the_original() {
    let mut ends = Ends::with_repaired_loss();
    ends.deliver(5);
    let (mut segment, mut side, proof) = ends.send_ack();
    side = {
        let mut with = SideData::default();
        with.set_duplicate(range(5, 6));
        side.ranges().iter().for_each(|range| {
            with.push(*range);
        });
        with
    };
    segment.flags |= Segment::SIDE_FLAG;
    let reduced = ends.sender.connection.ssthresh();
    ends.deliver_ack(&(segment, side, proof));
    assert_eq!(ends.failure(), None);
    assert_eq!(
        ends.sender.connection.ssthresh(),
        reduced,
        "the claim has no mark"
    );

    let mut late = Ends::with_repaired_loss();
    let original = Ends::new().sent[5];
    late.deliver(5);
    let answer = late.send_ack();
    late.deliver_ack(&answer);
    late.sent[5] = original;
    late.deliver(5);
    let answer = late.send_ack();
    assert!(answer.1.duplicate().is_some());
    late.deliver_ack(&answer);
    assert_eq!(late.failure(), None);
    assert!(
        late.sender.connection.ssthresh() > reduced,
        "the original arrived late"
    );
}

/// Every segment of an open connection claims receipt, except those of the handshake, aborts and
/// path MTU probes, which carry no nonces.
#[test]
fn acks_and_data_claim_receipt_and_nothing_else_does() {
    let failure = |kind: SegmentKind| {
        let mut ends = Ends::new();
        let (mut segment, side, proof) = ends.send_ack();
        (segment.kind, segment.ack) = (kind, number(1));
        ends.deliver_ack(&(segment, side, proof));
        ends.failure()
    };
    for kind in [SegmentKind::Ack, SegmentKind::Data] {
        assert_eq!(
            failure(kind),
            Some(ConnectionError::FalseReceipt),
            "{kind:?}"
        );
    }
    for kind in [
        SegmentKind::Open,
        SegmentKind::OpenReply,
        SegmentKind::PathProbe,
        SegmentKind::PathReply,
    ] {
        assert_eq!(failure(kind), None, "{kind:?}");
    }
    assert_eq!(failure(SegmentKind::Abort), Some(ConnectionError::Reset));
}
