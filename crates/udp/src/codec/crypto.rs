//! Parts of what TLS has to say, in the datagrams of a handshake.

use super::CodecError;

/// Bytes of a part's head.
pub const CRYPTO_HEAD: usize = 4;

/// The offset that stands for a TLS alert (RFC 8446, 6): its one byte is the description, and the
/// handshake is over.
pub const ALERT: u16 = u16::MAX;

/// As a CRYPTO frame of QUIC (RFC 9000, 19.6): a part of one side's handshake bytes of one level,
/// plain or sealed. It is offset and length, 2 bytes each, and the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crypto<'a> {
    /// Where it belongs in what this side says on this level; [`ALERT`] for an alert.
    pub offset: u16,
    /// What is said there.
    pub bytes: &'a [u8],
}

impl<'a> Crypto<'a> {
    /// Writes it to the front of `out`; the bytes taken, or `None` where it does not fit.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let length = u16::try_from(self.bytes.len()).ok()?;
        let (offset, rest) = out.split_first_chunk_mut()?;
        let (count, rest) = rest.split_first_chunk_mut()?;
        rest.get_mut(..self.bytes.len())?
            .copy_from_slice(self.bytes);
        *offset = self.offset.to_be_bytes();
        *count = length.to_be_bytes();
        Some(CRYPTO_HEAD + self.bytes.len())
    }

    /// Reads it from the front of `bytes`, with the bytes that it took.
    pub fn read(bytes: &'a [u8]) -> Result<(Crypto<'a>, usize), CodecError> {
        let (offset, rest) = bytes.split_first_chunk().ok_or(CodecError::Short)?;
        let (length, rest) = rest.split_first_chunk().ok_or(CodecError::Short)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let part = Crypto {
            offset: u16::from_be_bytes(*offset),
            bytes: rest.get(..length).ok_or(CodecError::Short)?,
        };
        Ok((part, CRYPTO_HEAD + length))
    }
}
