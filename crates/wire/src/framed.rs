//! Version 2 over a stream of bytes, between hosts: each frame is a u32 length, little-endian, and
//! so many bytes. docs/wire.md is its page.
//!
//! The first byte says what a frame is: [`MAGIC`] a packet of version 2, [`HELLO`] who opens the
//! connection, [`GOODBYE`] why the other end closes it.

use crate::WireError;
use crate::bytes::{Put, Reader};
use crate::v2::{MAGIC, MAX_PACKET};

/// First byte of the frame with which a datapath begins.
pub const HELLO: u8 = 0xce;
/// First byte of the frame with which either end says why it closes the connection.
pub const GOODBYE: u8 = 0xcd;
/// Bytes of a frame's length.
pub const LENGTH: usize = 4;
/// Bytes of the words of a goodbye at most; more are cut. Enough for a sentence and what helps.
pub const MOST_WORDS: usize = 512;

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A packet, for [`v2::read_events`](crate::v2::read_events) or
    /// [`v2::read_commands`](crate::v2::read_commands).
    Packet(&'a [u8]),
    /// Who opens the connection. An agent sees by it that a datapath is back, and that two have the
    /// same key.
    Hello(Hello),
    /// Why the other end closes it, in words.
    Goodbye(&'a str),
}

/// Who opens a connection. Both numbers are drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The process: the same for all its connections.
    pub process: u64,
    /// The way to an agent: the same whenever its connection is made anew, and no other way's.
    pub way: u64,
}

/// Takes a stream as it comes, in pieces of any size, and gives its frames. It holds one frame at
/// most, and what came behind it with the same piece.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    from: usize,
}

impl Frames {
    /// At the beginning of a stream.
    pub fn new() -> Frames {
        Frames::default()
    }

    /// More of the stream. Take every [frame](Frames::next) before giving the next piece: what is
    /// kept then is less than one frame.
    pub fn give(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.from);
        self.from = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame; nothing where it has not come to its end yet. After an error nothing
    /// can be read any more: close the connection.
    #[expect(clippy::should_implement_trait, reason = "its items borrow from it")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        let left = self.bytes.get(self.from..).unwrap_or_default();
        let Some((length, rest)) = left.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        // Before its bytes have come: nobody waits for 4 GB, or makes room for them.
        if length > MAX_PACKET {
            return Err(WireError::TooLong {
                what: "a frame",
                is: length,
                most: MAX_PACKET,
            });
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        self.from += LENGTH + length;
        read(frame).map(Some)
    }

    /// Bytes that are kept: of a frame that has not come to its end.
    pub fn kept(&self) -> usize {
        self.bytes.len() - self.from
    }
}

fn read(frame: &[u8]) -> Result<Frame<'_>, WireError> {
    let mut body = Reader::new("a frame", frame);
    match body.u8()? {
        MAGIC => Ok(Frame::Packet(frame)),
        HELLO => {
            let (process, way) = (body.u64()?, body.u64()?);
            body.end(frame.len())?;
            Ok(Frame::Hello(Hello { process, way }))
        }
        GOODBYE => {
            let words = body.rest();
            if words.len() > MOST_WORDS {
                return Err(WireError::TooLong {
                    what: "a goodbye",
                    is: words.len(),
                    most: MOST_WORDS,
                });
            }
            let words = std::str::from_utf8(words);
            words
                .map(Frame::Goodbye)
                .map_err(|_| WireError::Text("a goodbye"))
        }
        unknown => Err(WireError::Unknown {
            what: "frame of first byte",
            value: u64::from(unknown),
        }),
    }
}

/// The length that goes before a packet.
pub fn length(packet: &[u8]) -> [u8; LENGTH] {
    (packet.len() as u32).to_le_bytes()
}

/// A frame that says who opens the connection.
pub fn hello(hello: Hello) -> Vec<u8> {
    framed(HELLO, |out| {
        out.put_u64(hello.process);
        out.put_u64(hello.way);
    })
}

/// A frame that says why the connection is closed.
pub fn goodbye(words: &str) -> Vec<u8> {
    let mut end = words.len().min(MOST_WORDS);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    framed(GOODBYE, |out| out.put(&words.as_bytes()[..end]))
}

fn framed(first: u8, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; LENGTH];
    out.put_u8(first);
    write(&mut out);
    let length = length(&out[LENGTH..]);
    out[..LENGTH].copy_from_slice(&length);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v2::{Packet, VERSION};
    use crate::{Command, Event};

    #[derive(Clone, Debug, PartialEq)]
    enum Owned {
        Packet(Vec<u8>),
        Hello(Hello),
        Goodbye(String),
    }

    fn owned(frame: Frame<'_>) -> Owned {
        match frame {
            Frame::Packet(bytes) => Owned::Packet(bytes.to_vec()),
            Frame::Hello(hello) => Owned::Hello(hello),
            Frame::Goodbye(words) => Owned::Goodbye(words.to_owned()),
        }
    }

    fn bytes(frame: &Owned) -> Vec<u8> {
        match frame {
            Owned::Packet(bytes) => [&length(bytes)[..], bytes].concat(),
            Owned::Hello(is) => hello(*is),
            Owned::Goodbye(words) => goodbye(words),
        }
    }

    fn frame() -> impl Strategy<Value = Owned> {
        prop_oneof![
            prop::collection::vec(any::<u64>(), 0..300).prop_map(|fields| {
                let (mut packet, flow) = (Packet::new(), 1);
                let report = Event::Report {
                    flow,
                    program: 2,
                    urgent: false,
                    fields: &fields,
                };
                packet.event(&report).expect("room");
                Owned::Packet(packet.as_bytes().to_vec())
            }),
            any::<u64>().prop_map(|flow| {
                let mut packet = Packet::new();
                packet.command(&Command::Release { flow }).expect("room");
                Owned::Packet(packet.as_bytes().to_vec())
            }),
            any::<(u64, u64)>().prop_map(|(process, way)| Owned::Hello(Hello { process, way })),
            "[a-zäöü ]{0,60}".prop_map(Owned::Goodbye),
        ]
    }

    /// What comes out of a stream in these pieces, and the error at its end.
    fn read_all<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Owned>, Option<WireError>) {
        let (mut frames, mut all) = (Frames::new(), Vec::new());
        for piece in pieces {
            frames.give(piece);
            loop {
                match frames.next() {
                    Ok(Some(frame)) => all.push(owned(frame)),
                    Ok(None) => break,
                    Err(why) => return (all, Some(why)),
                }
            }
            assert!(frames.kept() < LENGTH + MAX_PACKET);
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
            // A byte at a time.
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
        fn a_stream_that_ends_anywhere_gives_the_whole_frames_before(sent in prop::collection::vec(frame(), 1..4)) {
            let stream: Vec<u8> = sent.iter().flat_map(bytes).collect();
            let mut ends = Vec::new();
            sent.iter().fold(0, |end, frame| { ends.push(end + bytes(frame).len()); end + bytes(frame).len() });
            for end in 0..=stream.len() {
                let whole = ends.iter().filter(|at| **at <= end).count();
                prop_assert_eq!(read_all([&stream[..end]]), (sent[..whole].to_vec(), None));
            }
        }
    }

    #[test]
    fn a_length_of_gigabytes_is_refused_before_anything_of_it_came() {
        for length in [MAX_PACKET as u32 + 1, 0x7fff_ffff, u32::MAX] {
            let (all, why) = read_all([&length.to_le_bytes()[..]]);
            assert!(all.is_empty());
            assert_eq!(
                why,
                Some(WireError::TooLong {
                    what: "a frame",
                    is: length as usize,
                    most: MAX_PACKET
                })
            );
        }
        let largest = [&(MAX_PACKET as u32).to_le_bytes()[..], &[MAGIC, VERSION]].concat();
        assert_eq!(read_all([&largest[..]]), (Vec::new(), None));
    }

    #[test]
    fn what_is_no_frame_is_named() {
        let (_, why) = read_all([&[0, 0, 0, 0][..]]);
        assert!(matches!(why, Some(WireError::Short { .. })), "{why:?}");
        // Who speaks HTTP: its first letters are a length.
        let (_, why) = read_all([&b"GET / HTTP/1.1\r\n"[..]]);
        assert!(matches!(why, Some(WireError::TooLong { .. })), "{why:?}");
        let (_, why) = read_all([&[1, 0, 0, 0, 7][..]]);
        assert!(
            matches!(why, Some(WireError::Unknown { value: 7, .. })),
            "{why:?}"
        );
        let (_, why) = read_all([&[2, 0, 0, 0, HELLO, 7][..]]);
        assert!(matches!(why, Some(WireError::Short { .. })), "{why:?}");
        let (_, why) = read_all([&[2, 0, 0, 0, GOODBYE, 0xff][..]]);
        assert!(matches!(why, Some(WireError::Text(_))), "{why:?}");
        let long = framed(GOODBYE, |out| out.put(&[b'x'; MOST_WORDS + 1]));
        let (_, why) = read_all([&long[..]]);
        assert!(
            matches!(why, Some(WireError::TooLong { is: 513, .. })),
            "{why:?}"
        );
    }

    #[test]
    fn many_words_are_cut_at_a_character() {
        let frame = goodbye(&"ä".repeat(400));
        assert_eq!(frame.len(), LENGTH + 1 + MOST_WORDS);
        let (all, why) = read_all([&frame[..]]);
        assert_eq!(
            (all, why),
            (vec![Owned::Goodbye("ä".repeat(MOST_WORDS / 2))], None)
        );
    }
}
