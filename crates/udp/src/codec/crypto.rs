//! Fragments of TLS handshake bytes in handshake datagrams.

use super::CodecError;

/// Bytes of a fragment header.
pub const CRYPTO_HEADER_BYTES: usize = 4;

/// Reserved offset of a TLS alert (RFC 8446, section 6). Its one byte is the alert description; the
/// handshake has failed.
pub const ALERT_OFFSET: u16 = u16::MAX;

/// Fragment of one side's handshake bytes at one level, plain or sealed, like a CRYPTO frame of
/// QUIC (RFC 9000, section 19.6). Encoded as offset and length, 2 bytes each, then the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crypto<'a> {
    /// Offset in this side's handshake stream at this level; [`ALERT_OFFSET`] for an alert.
    pub offset: u16,
    /// Handshake bytes at that offset.
    pub bytes: &'a [u8],
}

impl<'a> Crypto<'a> {
    /// Writes the fragment to the front of `out` and returns its length, or `None` if it does not
    /// fit.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let length = u16::try_from(self.bytes.len()).ok()?;
        let (offset, rest) = out.split_first_chunk_mut()?;
        let (count, rest) = rest.split_first_chunk_mut()?;
        rest.get_mut(..self.bytes.len())?
            .copy_from_slice(self.bytes);
        *offset = self.offset.to_be_bytes();
        *count = length.to_be_bytes();
        Some(CRYPTO_HEADER_BYTES + self.bytes.len())
    }

    /// Reads a fragment from the front of `bytes` and returns it with its length.
    pub fn read(bytes: &'a [u8]) -> Result<(Crypto<'a>, usize), CodecError> {
        let (offset, rest) = bytes.split_first_chunk().ok_or(CodecError::Short)?;
        let (length, rest) = rest.split_first_chunk().ok_or(CodecError::Short)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let part = Crypto {
            offset: u16::from_be_bytes(*offset),
            bytes: rest.get(..length).ok_or(CodecError::Short)?,
        };
        Ok((part, CRYPTO_HEADER_BYTES + length))
    }
}
