//! Version 2 over a byte stream, between hosts: each frame is a little-endian u32 length and that
//! many bytes. The specification is docs/wire.md.
//!
//! The first byte of a frame is its type: [`MAGIC`] for a packet of version 2, [`HELLO_TYPE`] for
//! the identity of the opener, [`GOODBYE_TYPE`] for the reason of a close.

use crate::WireError;
use crate::message_reader::{MessageReader, PutField};
use crate::v2::{MAGIC, PACKET_BYTES_MAX};

/// First byte of the frame that a datapath sends first.
pub const HELLO_TYPE: u8 = 0xce;
/// First byte of the frame in which either end gives its reason for closing the connection.
pub const GOODBYE_TYPE: u8 = 0xcd;
/// Bytes of the length field.
pub const LENGTH_FIELD_BYTES: usize = 4;
/// Maximum bytes of the text of a goodbye; longer texts are cut. Enough for a sentence and a hint.
pub const GOODBYE_TEXT_BYTES_MAX: usize = 512;

/// Frame received from the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Packet, for [`v2::read_events`](crate::v2::read_events) or
    /// [`v2::read_commands`](crate::v2::read_commands).
    Packet(&'a [u8]),
    /// Identity of the opener. It lets an agent detect that a datapath has reconnected, or that two
    /// share a key.
    Hello(Hello),
    /// Reason of the other end for closing, as text.
    Goodbye(&'a str),
}

/// Identity of the end that opens a connection. Both numbers are random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Identifier of the process, the same for all its connections.
    pub process: u64,
    /// Identifier of the channel to an agent, unique and kept when its connection is
    /// re-established.
    pub channel: u64,
}

/// Splits a byte stream, received in pieces of any size, into frames. It buffers at most one frame
/// and the rest of the last piece.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    bytes: Vec<u8>,
    /// Start of the next frame.
    frame_start: usize,
}

impl FrameDecoder {
    /// Creates a decoder at the start of a stream.
    pub fn new() -> FrameDecoder {
        FrameDecoder::default()
    }

    /// Appends a piece of the stream. Take every [frame](FrameDecoder::next) before the next piece;
    /// the rest is then shorter than one frame.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.frame_start);
        self.frame_start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole frame; `None` if it is incomplete. After an error nothing more can be
    /// read: close the connection.
    #[expect(
        clippy::should_implement_trait,
        reason = "its items borrow from the reader"
    )]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        let left = self.bytes.get(self.frame_start..).unwrap_or_default();
        let Some((length, rest)) = left.split_first_chunk::<LENGTH_FIELD_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        // Refused before its bytes arrive: a length of 4 GB must neither be waited for nor
        // allocated.
        if length > PACKET_BYTES_MAX {
            return Err(WireError::TooLong {
                what: "a frame",
                is: length,
                most: PACKET_BYTES_MAX,
            });
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        self.frame_start += LENGTH_FIELD_BYTES + length;
        read(frame).map(Some)
    }

    /// Bytes buffered of an incomplete frame.
    pub fn buffered(&self) -> usize {
        self.bytes.len() - self.frame_start
    }
}

fn read(frame: &[u8]) -> Result<Frame<'_>, WireError> {
    let mut body = MessageReader::new("a frame", frame);
    match body.u8()? {
        MAGIC => Ok(Frame::Packet(frame)),
        HELLO_TYPE => {
            let (process, way) = (body.u64()?, body.u64()?);
            body.finish(frame.len())?;
            Ok(Frame::Hello(Hello {
                process,
                channel: way,
            }))
        }
        GOODBYE_TYPE => {
            let words = body.into_remaining();
            if words.len() > GOODBYE_TEXT_BYTES_MAX {
                return Err(WireError::TooLong {
                    what: "a goodbye",
                    is: words.len(),
                    most: GOODBYE_TEXT_BYTES_MAX,
                });
            }
            let words = std::str::from_utf8(words);
            words
                .map(Frame::Goodbye)
                .map_err(|_| WireError::InvalidUtf8("a goodbye"))
        }
        unknown => Err(WireError::UnknownValue {
            what: "frame type",
            value: u64::from(unknown),
        }),
    }
}

/// Length prefix of a packet.
pub fn encode_length(packet: &[u8]) -> [u8; LENGTH_FIELD_BYTES] {
    (packet.len() as u32).to_le_bytes()
}

/// Encodes a frame with the identity of the opener.
pub fn encode_hello(hello: Hello) -> Vec<u8> {
    encode_frame(HELLO_TYPE, |out| {
        out.put_u64(hello.process);
        out.put_u64(hello.channel);
    })
}

/// Encodes a frame with the reason for closing.
pub fn encode_goodbye(words: &str) -> Vec<u8> {
    let mut end = words.len().min(GOODBYE_TEXT_BYTES_MAX);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    encode_frame(GOODBYE_TYPE, |out| out.put(&words.as_bytes()[..end]))
}

fn encode_frame(first: u8, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; LENGTH_FIELD_BYTES];
    out.put_u8(first);
    write(&mut out);
    let length = encode_length(&out[LENGTH_FIELD_BYTES..]);
    out[..LENGTH_FIELD_BYTES].copy_from_slice(&length);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v2::{PacketWriter, VERSION};
    use crate::{WireCommand, WireEvent};

    #[derive(Clone, Debug, PartialEq)]
    enum OwnedMessage {
        Packet(Vec<u8>),
        Hello(Hello),
        Goodbye(String),
    }

    fn owned(frame: Frame<'_>) -> OwnedMessage {
        match frame {
            Frame::Packet(bytes) => OwnedMessage::Packet(bytes.to_vec()),
            Frame::Hello(hello) => OwnedMessage::Hello(hello),
            Frame::Goodbye(words) => OwnedMessage::Goodbye(words.to_owned()),
        }
    }

    fn bytes(frame: &OwnedMessage) -> Vec<u8> {
        match frame {
            OwnedMessage::Packet(bytes) => [&encode_length(bytes)[..], bytes].concat(),
            OwnedMessage::Hello(is) => encode_hello(*is),
            OwnedMessage::Goodbye(words) => encode_goodbye(words),
        }
    }

    fn frame() -> impl Strategy<Value = OwnedMessage> {
        prop_oneof![
            prop::collection::vec(any::<u64>(), 0..300).prop_map(|fields| {
                let (mut packet, flow) = (PacketWriter::new(), 1);
                let report = WireEvent::Report {
                    flow,
                    program: 2,
                    urgent: false,
                    fields: &fields,
                };
                packet.push_event(&report).expect("room");
                OwnedMessage::Packet(packet.as_bytes().to_vec())
            }),
            any::<u64>().prop_map(|flow| {
                let mut packet = PacketWriter::new();
                packet
                    .push_command(&WireCommand::Release { flow })
                    .expect("room");
                OwnedMessage::Packet(packet.as_bytes().to_vec())
            }),
            any::<(u64, u64)>()
                .prop_map(|(process, channel)| OwnedMessage::Hello(Hello { process, channel })),
            "[a-zäöü ]{0,60}".prop_map(OwnedMessage::Goodbye),
        ]
    }

    /// Returns the frames of a stream in these pieces, and the error at its end.
    fn read_all<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<OwnedMessage>, Option<WireError>) {
        let (mut frames, mut all) = (FrameDecoder::new(), Vec::new());
        for piece in pieces {
            frames.push(piece);
            loop {
                match frames.next() {
                    Ok(Some(frame)) => all.push(owned(frame)),
                    Ok(None) => break,
                    Err(why) => return (all, Some(why)),
                }
            }
            assert!(frames.buffered() < LENGTH_FIELD_BYTES + PACKET_BYTES_MAX);
        }
        (all, None)
    }

    proptest! {
        #[test]
        fn frames_come_out_however_the_stream_is_cut(
            sent in prop::collection::vec(frame(), 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let stream: Vec<u8> = sent.iter().flat_map(bytes).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
            prop_assert_eq!(read_all(pieces), (sent.clone(), None));
            // One byte at a time.
            prop_assert_eq!(read_all(stream.chunks(1)), (sent, None));
        }

        #[test]
        fn damaged_streams_are_read_without_a_panic(
            sent in prop::collection::vec(frame(), 1..6),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            size in any::<u8>(),
        ) {
            let mut stream = vec![size];
            stream.extend(sent.iter().flat_map(bytes));
            for (at, value) in &damage {
                let at = at.index(stream.len());
                stream[at] = *value;
            }
            crate::fuzz::read_framed(&stream);
            crate::fuzz::read_framed(&stream[..stream.len() / 2]);
        }

        #[test]
        fn a_stream_that_ends_anywhere_gives_the_whole_frames_before(
            sent in prop::collection::vec(frame(), 1..4),
        ) {
            let stream: Vec<u8> = sent.iter().flat_map(bytes).collect();
            let mut ends = Vec::new();
            sent.iter().fold(0, |end, frame| {
                ends.push(end + bytes(frame).len());
                end + bytes(frame).len()
            });
            for end in 0..=stream.len() {
                let whole = ends.iter().filter(|at| **at <= end).count();
                prop_assert_eq!(read_all([&stream[..end]]), (sent[..whole].to_vec(), None));
            }
        }
    }

    #[test]
    fn a_length_of_gigabytes_is_refused_before_anything_of_it_came() {
        for length in [PACKET_BYTES_MAX as u32 + 1, 0x7fff_ffff, u32::MAX] {
            let (all, why) = read_all([&length.to_le_bytes()[..]]);
            assert!(all.is_empty());
            assert_eq!(
                why,
                Some(WireError::TooLong {
                    what: "a frame",
                    is: length as usize,
                    most: PACKET_BYTES_MAX
                })
            );
        }
        let largest = [
            &(PACKET_BYTES_MAX as u32).to_le_bytes()[..],
            &[MAGIC, VERSION],
        ]
        .concat();
        assert_eq!(read_all([&largest[..]]), (Vec::new(), None));
    }

    #[test]
    fn what_is_no_frame_is_named() {
        let (_, why) = read_all([&[0, 0, 0, 0][..]]);
        assert!(matches!(why, Some(WireError::Truncated { .. })), "{why:?}");
        // An HTTP client: its first letters are read as a length.
        let (_, why) = read_all([&b"GET / HTTP/1.1\r\n"[..]]);
        assert!(matches!(why, Some(WireError::TooLong { .. })), "{why:?}");
        let (_, why) = read_all([&[1, 0, 0, 0, 7][..]]);
        assert!(
            matches!(why, Some(WireError::UnknownValue { value: 7, .. })),
            "{why:?}"
        );
        let (_, why) = read_all([&[2, 0, 0, 0, HELLO_TYPE, 7][..]]);
        assert!(matches!(why, Some(WireError::Truncated { .. })), "{why:?}");
        let (_, why) = read_all([&[2, 0, 0, 0, GOODBYE_TYPE, 0xff][..]]);
        assert!(matches!(why, Some(WireError::InvalidUtf8(_))), "{why:?}");
        let long = encode_frame(GOODBYE_TYPE, |out| {
            out.put(&[b'x'; GOODBYE_TEXT_BYTES_MAX + 1])
        });
        let (_, why) = read_all([&long[..]]);
        assert!(
            matches!(why, Some(WireError::TooLong { is: 513, .. })),
            "{why:?}"
        );
    }

    #[test]
    fn many_words_are_cut_at_a_character() {
        let frame = encode_goodbye(&"ä".repeat(400));
        assert_eq!(frame.len(), LENGTH_FIELD_BYTES + 1 + GOODBYE_TEXT_BYTES_MAX);
        let (all, why) = read_all([&frame[..]]);
        assert_eq!(
            (all, why),
            (
                vec![OwnedMessage::Goodbye(
                    "ä".repeat(GOODBYE_TEXT_BYTES_MAX / 2)
                )],
                None
            )
        );
    }
}
