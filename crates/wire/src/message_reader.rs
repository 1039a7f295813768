//! Reading and writing of little-endian fields, without panics.

use crate::WireError;

/// Unread rest of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageReader<'a> {
    context: &'static str,
    remaining: &'a [u8],
}

impl<'a> MessageReader<'a> {
    pub fn new(what: &'static str, bytes: &'a [u8]) -> MessageReader<'a> {
        MessageReader {
            context: what,
            remaining: bytes,
        }
    }

    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        match self.remaining.split_at_checked(n) {
            Some((head, tail)) => {
                self.remaining = tail;
                Ok(head)
            }
            None => Err(WireError::Truncated {
                what: self.context,
                needs: n,
                has: self.remaining.len(),
            }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn into_remaining(self) -> &'a [u8] {
        self.remaining
    }

    pub fn remaining_len(&self) -> usize {
        self.remaining.len()
    }

    /// Returns an error if anything is left.
    pub fn finish(&self, says: usize) -> Result<(), WireError> {
        match self.remaining.len() {
            0 => Ok(()),
            over => Err(WireError::LengthMismatch {
                what: self.context,
                says,
                needs: says.saturating_sub(over),
            }),
        }
    }
}

/// Appends fields to a buffer.
pub(crate) trait PutField {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, n: u8) {
        self.put(&[n]);
    }
    fn put_u16(&mut self, n: u16) {
        self.put(&n.to_le_bytes());
    }
    fn put_u32(&mut self, n: u32) {
        self.put(&n.to_le_bytes());
    }
    fn put_u64(&mut self, n: u64) {
        self.put(&n.to_le_bytes());
    }
}

impl PutField for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
