//! The head of every datagram: for whom it is, and how the rest is to be read.

use super::CodecError;

/// The version that this code speaks, in the high half of the first byte.
pub const VERSION: u8 = 1;

/// Bytes of the longest envelope: both identifiers and a packet number.
pub const MAX_ENVELOPE: usize = 27;

const LONG: u8 = 0b0001;
const SEALED: u8 = 0b0010;
const KNOWN: u8 = LONG | SEALED;

/// The head of a datagram. All integers are big-endian.
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 1 | high half: version, 1; low half: bit 0 = `from` follows, bit 1 = sealed, the others 0 |
/// | 1 | 8 | `to`: the receiver's identifier of the connection, 0 in a hello |
/// | 9 | 8 + 2 | `from`: the sender's identifier and its MSS, where bit 0 says so: in a hello, in its answer, and in what the client sends until it has heard of the connection again |
/// | … | 8 | `number`: the packet number, where bit 1 says that the rest is sealed |
/// | … | | the segment (see [`codec`](super)), sealed or plain |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The receiver's identifier; 0 asks for a new connection.
    pub to: u64,
    /// Who sends, where the receiver may not know it yet.
    pub from: Option<Source>,
    /// The packet number of a sealed datagram.
    pub number: Option<u64>,
}

/// Who sends: all that a server has to know of a client to open the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its identifier of the connection.
    pub id: u64,
    /// Most payload that it takes in a segment, bytes.
    pub mss: u16,
}

impl Envelope {
    /// Bytes that it takes.
    pub const fn bytes(&self) -> usize {
        let long = if self.from.is_some() { 10 } else { 0 };
        let sealed = if self.number.is_some() { 8 } else { 0 };
        9 + long + sealed
    }

    /// Writes it to the front of `out`; the bytes taken, or `None` where `out` is too short.
    #[inline]
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let length = self.bytes();
        let out = out.get_mut(..length)?;
        let (first, rest) = out.split_first_mut()?;
        *first = VERSION << 4;
        let (to, mut rest) = rest.split_first_chunk_mut()?;
        *to = self.to.to_be_bytes();
        if let Some(source) = self.from {
            *first |= LONG;
            let (id, after) = rest.split_first_chunk_mut()?;
            *id = source.id.to_be_bytes();
            let (mss, after) = after.split_first_chunk_mut()?;
            *mss = source.mss.to_be_bytes();
            rest = after;
        }
        if let Some(number) = self.number {
            *first |= SEALED;
            *rest.first_chunk_mut()? = number.to_be_bytes();
        }
        Some(length)
    }

    /// Reads it from the front of a datagram, with the bytes that it took.
    #[inline]
    pub fn read(datagram: &[u8]) -> Result<(Envelope, usize), CodecError> {
        let (&first, rest) = datagram.split_first().ok_or(CodecError::Short)?;
        if first >> 4 != VERSION {
            return Err(CodecError::Version(first >> 4));
        }
        if first & 0b1111 & !KNOWN != 0 {
            return Err(CodecError::Reserved);
        }
        let (to, mut rest) = rest.split_first_chunk().ok_or(CodecError::Short)?;
        let mut envelope = Envelope {
            to: u64::from_be_bytes(*to),
            from: None,
            number: None,
        };
        if first & LONG != 0 {
            let (id, after) = rest.split_first_chunk().ok_or(CodecError::Short)?;
            let (mss, after) = after.split_first_chunk().ok_or(CodecError::Short)?;
            envelope.from = Some(Source {
                id: u64::from_be_bytes(*id),
                mss: u16::from_be_bytes(*mss),
            });
            rest = after;
        }
        if first & SEALED != 0 {
            let number = rest.first_chunk().ok_or(CodecError::Short)?;
            envelope.number = Some(u64::from_be_bytes(*number));
        }
        Ok((envelope, envelope.bytes()))
    }
}
