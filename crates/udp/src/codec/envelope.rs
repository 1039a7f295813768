//! The head of every datagram: for whom it is, and how the rest is to be read.

use super::CodecError;
use crate::socket::FirstByte;

/// The version that this code speaks, in the high half of the first byte. Version 1 was sealed with
/// a key that both ends were given; version 2 had no nonces.
pub const VERSION: u8 = 3;

/// Bytes of the longest envelope: both identifiers and a packet number.
pub const MAX_ENVELOPE: usize = 23;

/// First byte of a datagram that begins a handshake of this version under TLS. Others are refused
/// by it, and take nothing of what hellos may take.
pub(crate) const HELLO: FirstByte = FirstByte {
    mask: 0xf0 | COVER,
    value: VERSION << 4 | 2 << 1,
};

/// Bytes of a packet number as it is sent.
pub const NUMBER: usize = 4;

const LONG: u8 = 0b0001;
const COVER: u8 = 0b0110;
pub(crate) const PHASE: u8 = 0b1000;

/// The head of a datagram. All integers are big-endian.
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 1 | high half: version, 3; bit 0: `from` follows; bits 1-2: [`Cover`]; bit 3: key phase of what is sealed, else 0 |
/// | 1 | 8 | `to`: the receiver's identifier of the connection; in a hello 0, or the server's cookie |
/// | 9 | 8 + 2 | `from`: the sender's identifier and its MSS, where bit 0 says so: in the handshake, and in what the client sends until it has heard of the connection again |
/// | … | 4 | the packet number's last 32 bits, where the whole rest is sealed |
/// | … | | the rest, as the cover says |
///
/// Key phase and packet number are under header protection (RFC 9001, 5.4): on the wire they look
/// like noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The receiver's identifier; 0 asks for a new connection.
    pub to: u64,
    /// Who sends, where the receiver may not know it yet.
    pub from: Option<Source>,
    /// How the rest is to be read.
    pub cover: Cover,
}

/// What is behind an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// A segment (see [`codec`](super)), for all to read.
    Plain,
    /// A sealed segment.
    Sealed {
        /// The key phase: which of two neighbouring keys it is (RFC 9001, 6).
        phase: bool,
        /// The packet number's last 32 bits.
        number: u32,
    },
    /// A [`Crypto`](super::Crypto) of the handshake, for all to read, and a segment.
    Handshake,
    /// A [`Crypto`](super::Crypto) of the handshake for all to read, a packet number, and sealed a
    /// further part and a segment.
    SealedHandshake,
}

impl Cover {
    fn bits(self) -> u8 {
        match self {
            Cover::Plain => 0,
            Cover::Sealed { phase: false, .. } => 1 << 1,
            Cover::Sealed { phase: true, .. } => 1 << 1 | PHASE,
            Cover::Handshake => 2 << 1,
            Cover::SealedHandshake => 3 << 1,
        }
    }
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
        let sealed = if matches!(self.cover, Cover::Sealed { .. }) {
            NUMBER
        } else {
            0
        };
        9 + long + sealed
    }

    /// Writes it to the front of `out`; the bytes taken, or `None` where `out` is too short.
    #[inline]
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let length = self.bytes();
        let out = out.get_mut(..length)?;
        let (first, rest) = out.split_first_mut()?;
        *first = VERSION << 4 | self.cover.bits();
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
        if let Cover::Sealed { number, .. } = self.cover {
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
        let (to, mut rest) = rest.split_first_chunk().ok_or(CodecError::Short)?;
        let to = u64::from_be_bytes(*to);
        let mut from = None;
        if first & LONG != 0 {
            let (id, after) = rest.split_first_chunk().ok_or(CodecError::Short)?;
            let (mss, after) = after.split_first_chunk().ok_or(CodecError::Short)?;
            from = Some(Source {
                id: u64::from_be_bytes(*id),
                mss: u16::from_be_bytes(*mss),
            });
            rest = after;
        }
        let phase = first & PHASE != 0;
        let cover = match (first & COVER) >> 1 {
            1 => Cover::Sealed {
                phase,
                number: u32::from_be_bytes(*rest.first_chunk().ok_or(CodecError::Short)?),
            },
            _ if phase => return Err(CodecError::Reserved),
            0 => Cover::Plain,
            2 => Cover::Handshake,
            _ => Cover::SealedHandshake,
        };
        let envelope = Envelope { to, from, cover };
        Ok((envelope, envelope.bytes()))
    }
}
