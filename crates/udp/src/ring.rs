//! Ring buffer for one window of stream bytes, sent or received.

/// Ring buffer addressed by absolute stream offset. The user keeps track of the valid range.
#[derive(Debug)]
pub struct StreamRing {
    bytes: Box<[u8]>,
}

impl StreamRing {
    /// Creates a buffer of `capacity` bytes, rounded up to a power of two. Untouched pages take no
    /// physical memory.
    pub fn new(capacity: usize) -> StreamRing {
        StreamRing {
            bytes: vec![0; capacity.next_power_of_two()].into_boxed_slice(),
        }
    }

    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Copies stream bytes from `offset` on to `out`, at most the capacity.
    #[inline]
    pub fn copy_to(&self, offset: u64, out: &mut [u8]) {
        let (first, second) = self.at(offset, out.len());
        let (a, b) = out.split_at_mut(first.len());
        a.copy_from_slice(first);
        b.copy_from_slice(second);
    }

    /// Copies `bytes` into the buffer at stream `offset`, at most the capacity.
    #[inline]
    pub fn copy_from(&mut self, offset: u64, bytes: &[u8]) {
        let start = self.index(offset);
        let first = bytes.len().min(self.bytes.len() - start);
        let (a, b) = bytes.split_at(first);
        self.bytes[start..start + first].copy_from_slice(a);
        self.bytes[..b.len()].copy_from_slice(b);
    }

    /// Returns stream bytes `offset..offset + length`, in two slices because they may wrap.
    #[inline]
    pub fn at(&self, offset: u64, length: usize) -> (&[u8], &[u8]) {
        let start = self.index(offset);
        let first = length.min(self.bytes.len() - start);
        (
            &self.bytes[start..start + first],
            &self.bytes[..length - first],
        )
    }

    /// Returns the contiguous first part of `offset..offset + length`, to be filled.
    pub fn piece_mut(&mut self, offset: u64, length: usize) -> &mut [u8] {
        let start = self.index(offset);
        let first = length.min(self.bytes.len() - start);
        &mut self.bytes[start..start + first]
    }

    #[inline]
    fn index(&self, offset: u64) -> usize {
        offset as usize & (self.bytes.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_goes_round_its_end() {
        let mut ring = StreamRing::new(10);
        assert_eq!(ring.capacity(), 16);
        let text: Vec<u8> = (0..16).collect();
        for offset in [0, 3, 15, 16, 31, (1 << 40) + 9] {
            ring.copy_from(offset, &text);
            let mut out = [0; 16];
            ring.copy_to(offset, &mut out);
            assert_eq!(out, *text);
            let (a, b) = ring.at(offset, 16);
            assert_eq!([a, b].concat(), text);
            let first = a.len();
            assert_eq!(ring.piece_mut(offset, 16).len(), first);
        }
        assert!(StreamRing::new(4).at(2, 0).0.is_empty());
    }
}
