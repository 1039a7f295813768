//! Messages between sendbox and receivebox, sent as UDP datagrams between the tunnel addresses, so
//! that they are encrypted like all other packets.
//!
//! The receivebox sends [`Feedback`], the sendbox sends a [`Notice`]. Either sends a [`Probe`] of
//! its path, which the other acknowledges with a [`ProbeAck`]. Integers are big-endian:
//!
//! ```text
//! byte   0  version, 1             0  version, 1
//!        1  kind, 0: feedback      1  kind, 1: notice
//!        2  0                      2  0
//!        4  session                4  session
//!        8  boundary number        8  N
//!       16  arrival time, ns
//!       24  bytes received by then
//!       32  hold time, ns
//!       36  N in use
//!       40  totals of the session: packets, 48 bytes, 56 out of order, 64 missing, 72 CE marks
//!
//! byte   0  version, 1             0  version, 1
//!        1  kind, 2: probe         1  kind, 3: probe acknowledgement
//!        2  0                      2  0
//!        4  token                  4  token
//!        8  padding                8  bytes of the received packet
//! ```

use ccplane_units::{Duration, Time};

use crate::epoch::EpochSize;

/// UDP port of the messages at both ends, the same as in the published receivebox.
pub const FEEDBACK_PORT: u16 = 28_317;

/// Length of an encoded [`Feedback`].
pub const FEEDBACK_BYTES: usize = 80;
/// Length of an encoded [`Notice`].
pub const NOTICE_BYTES: usize = 12;

/// Length of the shortest [`Probe`].
pub const PROBE_BYTES: usize = 8;
/// Length of an encoded [`ProbeAck`].
pub const PROBE_ACK_BYTES: usize = 12;

const VERSION: u8 = 1;
const FEEDBACK_TYPE: u8 = 0;
const NOTICE_TYPE: u8 = 1;
const PROBE_TYPE: u8 = 2;
const PROBE_ACK_TYPE: u8 = 3;

/// Message of a receivebox, sent for a new boundary or 25 ms after the previous message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Session whose packets are counted. A rekey of the tunnel starts a new session with new
    /// counts.
    pub session: u32,
    /// Number of the newest boundary that arrived.
    pub boundary: u64,
    /// Arrival time of the boundary, by the receivebox's clock.
    pub received_at: Time,
    /// Bytes of the session received up to and including the boundary.
    pub boundary_bytes: u64,
    /// Time from the boundary's arrival to the transmission of this message.
    pub hold: Duration,
    /// Epoch size in use at the receivebox.
    pub epoch_size: EpochSize,
    /// Packets of the session received so far.
    pub packets: u64,
    /// Bytes of the session received so far.
    pub bytes: u64,
    /// Packets that arrived after one with a higher number; 0 with
    /// [`Marks::Hash`](crate::PacketNumbering).
    pub out_of_order: u64,
    /// Packets that have not arrived although a packet sent 1,024 packets later has; 0 with
    /// [`Marks::Hash`](crate::PacketNumbering).
    pub missing: u64,
    /// Packets that arrived with a CE mark (RFC 3168).
    pub marked: u64,
}

/// Message of a sendbox that sets the epoch size. Sent when the size changes, and once per second,
/// so that an idle tunnel is measured too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Session to which it applies.
    pub session: u32,
    /// New epoch size.
    pub epoch_size: EpochSize,
}

/// Probe of the path MTU; padded to the packet size to be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Identifier that the acknowledgement echoes.
    pub token: u32,
}

/// Acknowledgement of a [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeAck {
    /// Identifier of the probe.
    pub token: u32,
    /// Size of the packet that contained the probe, without encapsulation, bytes.
    pub size: u32,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxMessage {
    /// Sent by the receivebox.
    Feedback(Feedback),
    /// Sent by the sendbox.
    Notice(Notice),
    /// Sent to test the path MTU.
    Probe(Probe),
    /// Sent by the receiver of a probe.
    ProbeAck(ProbeAck),
}

/// Error of decoding a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedbackError {
    /// Wrong length for its kind: actual and expected bytes.
    #[error("{0} bytes instead of {1} for a message of its type")]
    Length(usize, usize),
    /// Unsupported version.
    #[error("version {0} instead of {VERSION}; run the same release on both gateways")]
    Version(u8),
    /// Unknown kind.
    #[error("unknown message type {0}")]
    Kind(u8),
    /// Invalid epoch size.
    #[error("the epoch size of {0} packets is not a power of two up to 1,024")]
    EpochSize(u32),
}

impl Feedback {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; FEEDBACK_BYTES] {
        let mut bytes = [0; FEEDBACK_BYTES];
        let hold = u32::try_from(self.hold.as_nanos()).unwrap_or(u32::MAX);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &[VERSION, FEEDBACK_TYPE]);
        put(4, &self.session.to_be_bytes());
        put(32, &hold.to_be_bytes());
        put(36, &self.epoch_size.get().to_be_bytes());
        let words = [
            (8, self.boundary),
            (16, self.received_at.as_nanos()),
            (24, self.boundary_bytes),
            (40, self.packets),
            (48, self.bytes),
            (56, self.out_of_order),
            (64, self.missing),
            (72, self.marked),
        ];
        for (at, word) in words {
            put(at, &word.to_be_bytes());
        }
        bytes
    }
}

impl Notice {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; NOTICE_BYTES] {
        let mut bytes = [0; NOTICE_BYTES];
        bytes[..2].copy_from_slice(&[VERSION, NOTICE_TYPE]);
        bytes[4..8].copy_from_slice(&self.session.to_be_bytes());
        bytes[8..].copy_from_slice(&self.epoch_size.get().to_be_bytes());
        bytes
    }
}

impl Probe {
    /// Encodes the message into `room` and pads all of it with zeros. Returns false if `room` is
    /// too small.
    pub fn encode(&self, room: &mut [u8]) -> bool {
        room.fill(0);
        let Some(head) = room.first_chunk_mut::<PROBE_BYTES>() else {
            return false;
        };
        head[..2].copy_from_slice(&[VERSION, PROBE_TYPE]);
        head[4..].copy_from_slice(&self.token.to_be_bytes());
        true
    }
}

impl ProbeAck {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; PROBE_ACK_BYTES] {
        let mut bytes = [0; PROBE_ACK_BYTES];
        bytes[..2].copy_from_slice(&[VERSION, PROBE_ACK_TYPE]);
        bytes[4..8].copy_from_slice(&self.token.to_be_bytes());
        bytes[8..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }
}

impl BoxMessage {
    /// Decodes a message from an untrusted peer.
    pub fn decode(bytes: &[u8]) -> Result<BoxMessage, FeedbackError> {
        let &[version, kind, ..] = bytes else {
            return Err(FeedbackError::Length(bytes.len(), NOTICE_BYTES));
        };
        if version != VERSION {
            return Err(FeedbackError::Version(version));
        }
        match kind {
            FEEDBACK_TYPE => BoxMessage::feedback(bytes).map(BoxMessage::Feedback),
            NOTICE_TYPE => {
                let bytes: &[u8; NOTICE_BYTES] = exactly(bytes)?;
                Ok(BoxMessage::Notice(Notice {
                    session: narrow(bytes, 4),
                    epoch_size: every(narrow(bytes, 8))?,
                }))
            }
            PROBE_TYPE => {
                let head: &[u8; PROBE_BYTES] = bytes
                    .first_chunk()
                    .ok_or(FeedbackError::Length(bytes.len(), PROBE_BYTES))?;
                Ok(BoxMessage::Probe(Probe {
                    token: narrow(head, 4),
                }))
            }
            PROBE_ACK_TYPE => {
                let bytes: &[u8; PROBE_ACK_BYTES] = exactly(bytes)?;
                Ok(BoxMessage::ProbeAck(ProbeAck {
                    token: narrow(bytes, 4),
                    size: narrow(bytes, 8),
                }))
            }
            kind => Err(FeedbackError::Kind(kind)),
        }
    }

    fn feedback(bytes: &[u8]) -> Result<Feedback, FeedbackError> {
        let bytes: &[u8; FEEDBACK_BYTES] = exactly(bytes)?;
        Ok(Feedback {
            session: narrow(bytes, 4),
            boundary: wide(bytes, 8),
            received_at: Time::from_nanos(wide(bytes, 16)),
            boundary_bytes: wide(bytes, 24),
            hold: Duration::from_nanos(u64::from(narrow(bytes, 32))),
            epoch_size: every(narrow(bytes, 36))?,
            packets: wide(bytes, 40),
            bytes: wide(bytes, 48),
            out_of_order: wide(bytes, 56),
            missing: wide(bytes, 64),
            marked: wide(bytes, 72),
        })
    }
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], FeedbackError> {
    bytes
        .try_into()
        .map_err(|_| FeedbackError::Length(bytes.len(), N))
}

fn every(n: u32) -> Result<EpochSize, FeedbackError> {
    EpochSize::new(n).ok_or(FeedbackError::EpochSize(n))
}

fn narrow(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    u64::from(narrow(bytes, at)) << 32 | u64::from(narrow(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_feedback() -> impl Strategy<Value = Feedback> {
        (any::<[u32; 2]>(), any::<[u64; 8]>(), 0..11_u32).prop_map(
            |([session, hold], words, log)| Feedback {
                session,
                boundary: words[0],
                received_at: Time::from_nanos(words[1]),
                boundary_bytes: words[2],
                hold: Duration::from_nanos(u64::from(hold)),
                epoch_size: EpochSize::new(1 << log).unwrap_or(EpochSize::SINGLE_PACKET),
                packets: words[3],
                bytes: words[4],
                out_of_order: words[5],
                missing: words[6],
                marked: words[7],
            },
        )
    }

    proptest! {
        #[test]
        fn encoding_round_trips(feedback in any_feedback()) {
            prop_assert_eq!(
                BoxMessage::decode(&feedback.encode()),
                Ok(BoxMessage::Feedback(feedback))
            );
            let notice = Notice {
                session: feedback.session,
                epoch_size: feedback.epoch_size,
            };
            prop_assert_eq!(
                BoxMessage::decode(&notice.encode()),
                Ok(BoxMessage::Notice(notice))
            );
            let (probe, size) = (
                Probe {
                    token: feedback.session,
                },
                notice.epoch_size.get(),
            );
            let mut padded = vec![0xaa; PROBE_BYTES + size as usize];
            prop_assert!(probe.encode(&mut padded));
            prop_assert_eq!(BoxMessage::decode(&padded), Ok(BoxMessage::Probe(probe)));
            let ack = ProbeAck {
                token: probe.token,
                size,
            };
            prop_assert_eq!(
                BoxMessage::decode(&ack.encode()),
                Ok(BoxMessage::ProbeAck(ack))
            );
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(BoxMessage::Feedback(feedback)) = BoxMessage::decode(&bytes) {
                // Bytes 2 and 3 are reserved.
                prop_assert_eq!(&feedback.encode()[4..], &bytes[4..]);
            }
        }
    }

    #[test]
    fn decoding_errors_are_specific() {
        let notice = Notice {
            session: 7,
            epoch_size: EpochSize::SINGLE_PACKET,
        }
        .encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = notice;
            bytes[at] = byte;
            BoxMessage::decode(&bytes)
        };
        assert_eq!(with(0, 9), Err(FeedbackError::Version(9)));
        assert_eq!(with(1, 9), Err(FeedbackError::Kind(9)));
        assert_eq!(with(1, FEEDBACK_TYPE), Err(FeedbackError::Length(12, 80)));
        assert_eq!(
            BoxMessage::decode(&[VERSION, PROBE_TYPE, 0, 0, 1]),
            Err(FeedbackError::Length(5, 8))
        );
        assert!(!Probe { token: 1 }.encode(&mut [0; PROBE_BYTES - 1]));
        assert_eq!(with(11, 3), Err(FeedbackError::EpochSize(3)));
        assert_eq!(BoxMessage::decode(&[]), Err(FeedbackError::Length(0, 12)));
    }
}
