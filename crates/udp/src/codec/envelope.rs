//! Header of every datagram: the connection and the encoding of the rest.

use super::CodecError;
use crate::socket::FirstByte;

/// Protocol version, in the high half of the first byte. Version 1 used a pre-shared key; version 2
/// had no nonces.
pub const VERSION: u8 = 3;

/// Bytes of the longest envelope: both identifiers and a packet number.
pub const ENVELOPE_BYTES_MAX: usize = 23;

/// First byte of a TLS hello of this version. TLS rejects anything else, which therefore consumes
/// nothing from the rate limit on hellos.
pub(crate) const HELLO_FIRST_BYTE: FirstByte = FirstByte {
    mask: 0xf0 | COVER_MASK,
    value: VERSION << 4 | 2 << 1,
};

/// Bytes of an encoded packet number.
pub const PACKET_NUMBER_BYTES: usize = 4;

const LONG_FORM_BIT: u8 = 0b0001;
const COVER_MASK: u8 = 0b0110;
pub(crate) const KEY_PHASE_BIT: u8 = 0b1000;

/// Header of a datagram. All integers are big-endian.
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 1 | high half: version, 3; bit 0: `from` follows; bits 1-2: [`Cover`]; bit 3: key phase if sealed, else 0 |
/// | 1 | 8 | `to`: the receiver's connection identifier; in a hello 0, or the server's cookie |
/// | 9 | 8 + 2 | `from`: the sender's identifier and MSS, if bit 0 is set: in the handshake, and from a client until the server has confirmed the connection |
/// | … | 4 | low 32 bits of the packet number, if the entire rest is sealed |
/// | … | | the rest, as given by the cover |
///
/// Key phase and packet number have header protection (RFC 9001, section 5.4) and look random on
/// the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Receiver's connection identifier; 0 requests a new connection.
    pub to: u64,
    /// Sender, if the receiver may not have its identifier yet.
    pub from: Option<ClientAddress>,
    /// Encoding of the rest.
    pub cover: Cover,
}

/// Encoding of the bytes after an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// A segment in plain text (see [`codec`](super)).
    Plain,
    /// A sealed segment.
    Sealed {
        /// Key phase bit: selects one of two consecutive keys (RFC 9001, section 6).
        phase: bool,
        /// Low 32 bits of the packet number.
        number: u32,
    },
    /// A handshake [`Crypto`](super::Crypto) and a segment, both in plain text.
    Handshake,
    /// A handshake [`Crypto`](super::Crypto) in plain text, a packet number, then a second fragment
    /// and a segment, both sealed.
    SealedHandshake,
}

impl Cover {
    fn bits(self) -> u8 {
        match self {
            Cover::Plain => 0,
            Cover::Sealed { phase: false, .. } => 1 << 1,
            Cover::Sealed { phase: true, .. } => 1 << 1 | KEY_PHASE_BIT,
            Cover::Handshake => 2 << 1,
            Cover::SealedHandshake => 3 << 1,
        }
    }
}

/// Sender of a datagram: everything a server needs from a client to open the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// Sender's connection identifier.
    pub id: u64,
    /// Largest segment payload that the sender accepts, bytes.
    pub mss: u16,
}

impl Envelope {
    /// Returns the encoded length in bytes.
    pub const fn bytes(&self) -> usize {
        let long = if self.from.is_some() { 10 } else { 0 };
        let sealed = if matches!(self.cover, Cover::Sealed { .. }) {
            PACKET_NUMBER_BYTES
        } else {
            0
        };
        9 + long + sealed
    }

    /// Writes the envelope to the front of `out` and returns its length, or `None` if it does not
    /// fit.
    #[inline]
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let length = self.bytes();
        let out = out.get_mut(..length)?;
        let (first, rest) = out.split_first_mut()?;
        *first = VERSION << 4 | self.cover.bits();
        let (to, mut rest) = rest.split_first_chunk_mut()?;
        *to = self.to.to_be_bytes();
        if let Some(source) = self.from {
            *first |= LONG_FORM_BIT;
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

    /// Reads an envelope from the front of a datagram and returns it with its length.
    #[inline]
    pub fn read(datagram: &[u8]) -> Result<(Envelope, usize), CodecError> {
        let (&first, rest) = datagram.split_first().ok_or(CodecError::Short)?;
        if first >> 4 != VERSION {
            return Err(CodecError::Version(first >> 4));
        }
        let (to, mut rest) = rest.split_first_chunk().ok_or(CodecError::Short)?;
        let to = u64::from_be_bytes(*to);
        let mut from = None;
        if first & LONG_FORM_BIT != 0 {
            let (id, after) = rest.split_first_chunk().ok_or(CodecError::Short)?;
            let (mss, after) = after.split_first_chunk().ok_or(CodecError::Short)?;
            from = Some(ClientAddress {
                id: u64::from_be_bytes(*id),
                mss: u16::from_be_bytes(*mss),
            });
            rest = after;
        }
        let phase = first & KEY_PHASE_BIT != 0;
        let cover = match (first & COVER_MASK) >> 1 {
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
