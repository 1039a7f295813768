//! Where packets are kept between arrival and delivery: first in, first out, no allocation per packet.

use std::collections::VecDeque;

/// A block holds well over a hundred full packets, so that one is taken or given back rarely.
const BLOCK: usize = 256 * 1024;

/// Packets in blocks of memory that are used again.
#[derive(Debug)]
pub(crate) struct Store {
    /// Blocks with packets; the last one is being filled.
    filled: VecDeque<Block>,
    free: Vec<Box<[u8]>>,
    /// How many more blocks may be made.
    blocks_left: usize,
}

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    /// Where the first packet begins.
    begin: usize,
    /// Where the last one ends.
    end: usize,
}

impl Store {
    /// A store that takes up to about `bytes` of memory, as it needs it.
    pub(crate) fn new(bytes: u64) -> Store {
        Store {
            filled: VecDeque::new(),
            free: Vec::new(),
            blocks_left: usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(BLOCK).max(1),
        }
    }

    /// Room for the next packet, of at most `bytes`; `None` when the memory is used up.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let fits = self.filled.back().is_some_and(|last| BLOCK - last.end >= bytes);
        if !fits {
            let bytes = match self.free.pop() {
                Some(bytes) => bytes,
                None => {
                    self.blocks_left = self.blocks_left.checked_sub(1)?;
                    vec![0; BLOCK].into_boxed_slice()
                }
            };
            self.filled.push_back(Block {
                bytes,
                begin: 0,
                end: 0,
            });
        }
        let last = self.filled.back_mut()?;
        last.bytes.get_mut(last.end..last.end + bytes)
    }

    /// Keeps the first `bytes` of the room that was given last.
    pub(crate) fn keep(&mut self, bytes: usize) {
        if let Some(last) = self.filled.back_mut() {
            last.end += bytes;
        }
    }

    /// The oldest packet, which was kept with this many bytes.
    pub(crate) fn oldest(&mut self, bytes: usize) -> &[u8] {
        // A block that gave its last packet away, or never got one, and is not being filled is done.
        while self.filled.len() > 1 && self.filled.front().is_some_and(|block| block.begin == block.end) {
            self.free.extend(self.filled.pop_front().map(|block| block.bytes));
        }
        self.filled
            .front()
            .and_then(|block| block.bytes.get(block.begin..block.begin + bytes))
            .unwrap_or_default()
    }

    /// Forgets the oldest packet.
    pub(crate) fn forget(&mut self, bytes: usize) {
        if let Some(first) = self.filled.front_mut() {
            first.begin += bytes;
            if first.begin == first.end {
                // Empty: begin again in memory that the cache still holds.
                (first.begin, first.end) = (0, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let mut store = Store::new(2 * BLOCK as u64);
        let mut waiting = VecDeque::new();
        for round in 0..5_000_usize {
            let length = 40 + (round * 37) % 1_461;
            let room = store.room(1_500).expect("at most 100 packets wait");
            room[..length].fill(round as u8);
            store.keep(length);
            waiting.push_back((round as u8, length));
            if waiting.len() > 100 {
                let (byte, length) = waiting.pop_front().expect("just checked");
                let packet = store.oldest(length);
                assert_eq!(packet.len(), length);
                assert!(packet.iter().all(|&b| b == byte));
                store.forget(length);
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_used_again() {
        let mut store = Store::new(BLOCK as u64);
        let fit = BLOCK / 1_500;
        for _ in 0..fit {
            assert!(store.room(1_500).is_some());
            store.keep(1_500);
        }
        assert!(store.room(1_500).is_none());
        for _ in 0..fit {
            assert_eq!(store.oldest(1_500).len(), 1_500);
            store.forget(1_500);
        }
        assert!(store.room(1_500).is_some());
    }
}
