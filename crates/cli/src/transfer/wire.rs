//! Wire format of the two streams of a transfer. Integers are big-endian.
//!
//! The sender's stream: `ccpsend3`, the header, data frames, an end frame.
//!
//! | header | bytes |
//! | --- | --- |
//! | kind: 0 file, 1 executable file, 2 stream of unknown length | 1 |
//! | length of the file; 0 for a stream | 8 |
//! | length of the name, name; an empty name lets the receiver choose | 2 + |
//!
//! | frame | bytes |
//! | --- | --- |
//! | 1, data: length, bytes; an empty frame is a keepalive | 1 + 4 + |
//! | 2, end: BLAKE3 hash of all bytes | 1 + 32 |
//!
//! The receiver's stream: `ccprecv3`, then one reply.
//!
//! | reply | bytes |
//! | --- | --- |
//! | 1, stored: hash of the stored file | 1 + 32 |
//! | 2, differs: hash of the received bytes, which are not stored | 1 + 32 |
//! | 3, failed: length of the reason, the reason | 1 + 2 + |
//!
//! This file has no dependencies in the crate, so that a fuzz target can include it.

/// Start of the sender's stream. The last digit is the protocol version.
const SENDER_MAGIC: [u8; 8] = *b"ccpsend3";
/// Start of the receiver's stream.
const RECEIVER_MAGIC: [u8; 8] = *b"ccprecv3";
/// Longest name, bytes. It bounds the memory that a stranger can occupy; file systems allow no
/// more.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest data frame, bytes.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Header length of a data frame.
pub const DATA_HEADER_BYTES: usize = 5;
/// Longest reason of a failure, bytes: a few lines on a terminal.
const REASON_BYTES_MAX: usize = 512;
/// Length of a hash.
pub const HASH_BYTES: usize = 32;
/// Length of the magic and the header without the name.
const HEADER_BYTES_MIN: usize = 19;

/// BLAKE3 hash.
pub type Hash = [u8; HASH_BYTES];

/// Description of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name in the receiver's folder; empty lets the receiver choose.
    pub name: Vec<u8>,
    /// Length of a file; `None` for a stream.
    pub bytes: Option<u64>,
    /// Set if the file is executable for its owner.
    pub executable: bool,
}

/// Protocol violation by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Another program, or another version.
    #[error("the peer is not a `ccplane send` or `ccplane recv` of the same version")]
    Version,
    /// Unknown kind of file.
    #[error("unknown file type {0}")]
    File(u8),
    /// Name longer than [`NAME_BYTES_MAX`].
    #[error("name of {0} bytes exceeds the limit of {NAME_BYTES_MAX}")]
    Name(usize),
    /// Unknown frame or reply.
    #[error("unknown message type {0}")]
    Kind(u8),
    /// Data frame longer than [`DATA_BYTES_MAX`].
    #[error("frame of {0} bytes exceeds the limit of {DATA_BYTES_MAX}")]
    Data(usize),
    /// Reason longer than [`REASON_BYTES_MAX`].
    #[error("reason of {0} bytes exceeds the limit of {REASON_BYTES_MAX}")]
    Reason(usize),
}

impl Header {
    /// Encodes the start of the sender's stream. Fails if the name is too long.
    pub fn write(&self) -> Result<Vec<u8>, WireError> {
        let length = name_length(self.name.len())?;
        let kind = match (self.bytes, self.executable) {
            (Some(_), false) => 0,
            (Some(_), true) => 1,
            (None, _) => 2,
        };
        let mut out = SENDER_MAGIC.to_vec();
        out.push(kind);
        out.extend(self.bytes.unwrap_or(0).to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend(&self.name);
        Ok(out)
    }
}

fn name_length(bytes: usize) -> Result<u16, WireError> {
    let length = u16::try_from(bytes).ok();
    length
        .filter(|_| bytes <= NAME_BYTES_MAX)
        .ok_or(WireError::Name(bytes))
}

/// Encodes the header of a data frame with `length` bytes.
pub fn data(length: u32) -> [u8; DATA_HEADER_BYTES] {
    let [a, b, c, d] = length.to_be_bytes();
    [1, a, b, c, d]
}

/// Encodes the end frame.
pub fn end(hash: &Hash) -> Vec<u8> {
    [&[2][..], hash].concat()
}

/// Part of the sender's stream.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// The header, once and first.
    Header(Header),
    /// Bytes of the file; empty for a keepalive.
    Data(&'a [u8]),
    /// The end, with the hash of all bytes.
    End(Hash),
}

/// Incremental parser of the sender's stream, for input in pieces of any size.
#[derive(Debug, Default)]
pub struct Frames {
    /// Incomplete header of a frame.
    buffer: Vec<u8>,
    has_header: bool,
    /// Remaining data bytes of the current frame.
    data: usize,
}

impl Frames {
    /// Returns the next event, or `None` if more input is needed. Advances `input` past the bytes
    /// used.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<StreamEvent<'a>>, WireError> {
        if !self.has_header {
            return Ok(self.read_header(input)?.map(StreamEvent::Header));
        }
        if self.data == 0 {
            if !hold(&mut self.buffer, 1, input) {
                return Ok(None);
            }
            let length = match self.buffer[0] {
                1 => DATA_HEADER_BYTES,
                2 => 1 + HASH_BYTES,
                kind => return Err(WireError::Kind(kind)),
            };
            if !hold(&mut self.buffer, length, input) {
                return Ok(None);
            }
            let held = std::mem::take(&mut self.buffer);
            if held[0] == 2 {
                return Ok(Some(StreamEvent::End(hash_of(&held[1..]))));
            }
            self.data = number(&held[1..]) as usize;
            if self.data > DATA_BYTES_MAX {
                return Err(WireError::Data(self.data));
            }
            if self.data == 0 {
                return Ok(Some(StreamEvent::Data(&[])));
            }
        }
        let (data, rest) = input.split_at(self.data.min(input.len()));
        *input = rest;
        self.data -= data.len();
        Ok((!data.is_empty()).then_some(StreamEvent::Data(data)))
    }

    fn read_header(&mut self, input: &mut &[u8]) -> Result<Option<Header>, WireError> {
        if !hold(&mut self.buffer, HEADER_BYTES_MIN, input) {
            return Ok(None);
        }
        if self.buffer[..8] != SENDER_MAGIC {
            return Err(WireError::Version);
        }
        let (bytes, length) = (
            number(&self.buffer[9..17]),
            number(&self.buffer[17..19]) as usize,
        );
        name_length(length)?;
        if !hold(&mut self.buffer, HEADER_BYTES_MIN + length, input) {
            return Ok(None);
        }
        let (bytes, executable) = match self.buffer[8] {
            kind @ (0 | 1) => (Some(bytes), kind == 1),
            2 => (None, false),
            kind => return Err(WireError::File(kind)),
        };
        self.has_header = true;
        let name = std::mem::take(&mut self.buffer).split_off(HEADER_BYTES_MIN);
        Ok(Some(Header {
            name,
            bytes,
            executable,
        }))
    }
}

/// The receiver's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferReply {
    /// The file is stored, with this hash.
    Stored(Hash),
    /// The received bytes differ from the sender's, with this hash. Nothing is stored.
    Differs(Hash),
    /// The file cannot be stored, for this reason.
    Failed(String),
}

/// Returns the start of the receiver's stream.
pub fn greeting() -> [u8; 8] {
    RECEIVER_MAGIC
}

impl TransferReply {
    /// Encodes the reply. A long reason is truncated.
    pub fn write(&self) -> Vec<u8> {
        match self {
            TransferReply::Stored(hash) => [&[1][..], hash].concat(),
            TransferReply::Differs(hash) => [&[2][..], hash].concat(),
            TransferReply::Failed(reason) => {
                let reason = &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)];
                [&[3][..], &(reason.len() as u16).to_be_bytes(), reason].concat()
            }
        }
    }
}

/// Incremental parser of the receiver's stream, for input in pieces of any size.
#[derive(Debug, Default)]
pub struct Answers {
    buffer: Vec<u8>,
    is_greeted: bool,
}

impl Answers {
    /// Returns the reply, or `None` if more input is needed. Advances `input` past the bytes used.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<TransferReply>, WireError> {
        if !self.is_greeted {
            if !hold(&mut self.buffer, RECEIVER_MAGIC.len(), input) {
                return Ok(None);
            }
            if self.buffer != RECEIVER_MAGIC {
                return Err(WireError::Version);
            }
            self.is_greeted = true;
            self.buffer.clear();
        }
        if !hold(&mut self.buffer, 1, input) {
            return Ok(None);
        }
        let head = match self.buffer[0] {
            1 | 2 => 1 + HASH_BYTES,
            3 => 3,
            kind => return Err(WireError::Kind(kind)),
        };
        if !hold(&mut self.buffer, head, input) {
            return Ok(None);
        }
        if self.buffer[0] == 3 {
            let length = number(&self.buffer[1..3]) as usize;
            if length > REASON_BYTES_MAX {
                return Err(WireError::Reason(length));
            }
            if !hold(&mut self.buffer, head + length, input) {
                return Ok(None);
            }
        }
        let held = std::mem::take(&mut self.buffer);
        Ok(Some(match held[0] {
            1 => TransferReply::Stored(hash_of(&held[1..])),
            2 => TransferReply::Differs(hash_of(&held[1..])),
            _ => TransferReply::Failed(String::from_utf8_lossy(&held[3..]).into_owned()),
        }))
    }
}

/// Moves input into `held` until it has `length` bytes. Returns true if it has.
fn hold(held: &mut Vec<u8>, length: usize, input: &mut &[u8]) -> bool {
    let missing = length.saturating_sub(held.len()).min(input.len());
    let (taken, rest) = input.split_at(missing);
    held.extend_from_slice(taken);
    *input = rest;
    held.len() >= length
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn hash_of(bytes: &[u8]) -> Hash {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(bytes);
    hash
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fuzz::{answered, fuzz, sent};
    use super::*;

    fn header() -> impl Strategy<Value = Header> {
        let name = proptest::collection::vec(any::<u8>(), 0..20);
        (name, any::<Option<u64>>(), any::<bool>()).prop_map(|(name, bytes, executable)| Header {
            name,
            bytes,
            executable: executable && bytes.is_some(),
        })
    }

    fn answer() -> impl Strategy<Value = TransferReply> {
        prop_oneof![
            any::<Hash>().prop_map(TransferReply::Stored),
            any::<Hash>().prop_map(TransferReply::Differs),
            "[ -~]{0,40}".prop_map(TransferReply::Failed),
        ]
    }

    proptest! {
        #[test]
        fn a_stream_is_read_as_it_was_written(
            header in header(),
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 0..6),
            piece in 1usize..40,
        ) {
            let mut stream = header.write().unwrap();
            for chunk in &chunks {
                stream.extend(data(chunk.len() as u32));
                stream.extend(chunk);
            }
            stream.extend(end(&[9; HASH_BYTES]));
            let (events, data) = sent(&stream, piece);
            prop_assert_eq!(events.len(), 2);
            prop_assert_eq!(&events[0], &format!("{:?} after 0", StreamEvent::Header(header)));
            prop_assert_eq!(data, chunks.concat());
        }

        #[test]
        fn an_answer_is_read_as_it_was_written(answer in answer(), piece in 1usize..40) {
            let stream = [&greeting()[..], &answer.write()].concat();
            prop_assert_eq!(answered(&stream, piece), vec![format!("{answer:?}")]);
        }

        #[test]
        fn no_bytes_panic(
            start in prop_oneof![Just(&b""[..]), Just(&SENDER_MAGIC[..]), Just(&RECEIVER_MAGIC[..])],
            bytes in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..100),
        ) {
            fuzz(&[start, &bytes].concat());
        }
    }

    #[test]
    fn oversized_fields_are_refused() {
        let long = Header {
            name: vec![b'n'; NAME_BYTES_MAX + 1],
            bytes: None,
            executable: false,
        };
        assert_eq!(long.write(), Err(WireError::Name(NAME_BYTES_MAX + 1)));
        let name_length = [&SENDER_MAGIC[..], &[0; 9], &[1, 0]].concat();
        assert_eq!(
            Frames::default().next(&mut &name_length[..]),
            Err(WireError::Name(256))
        );
        let kind = [&SENDER_MAGIC[..], &[3], &[0; 10]].concat();
        assert_eq!(
            Frames::default().next(&mut &kind[..]),
            Err(WireError::File(3))
        );
        assert_eq!(
            Frames::default().next(&mut &b"ccpsend2___________"[..]),
            Err(WireError::Version)
        );
        let reason = [&RECEIVER_MAGIC[..], &[3, 2, 1]].concat();
        assert_eq!(
            Answers::default().next(&mut &reason[..]),
            Err(WireError::Reason(513))
        );
        let cut = TransferReply::Failed("ö".repeat(300)).write();
        assert_eq!(cut.len(), 3 + REASON_BYTES_MAX);
    }
}
