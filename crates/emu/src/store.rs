//! Where frames are kept between arrival and delivery, in whatever order they go: no allocation per packet.

use ccplane_host::Frame;
use ccplane_units::Time;

/// A block holds well over a hundred full packets, or a few super-packets, so that one is taken or given back rarely.
/// It is free again when its last frame goes: larger blocks would be held longer by one frame that waits.
const BLOCK: usize = 256 * 1024;

/// Frames in blocks of memory that are used again.
#[derive(Debug)]
pub(crate) struct Store {
    blocks: Vec<Block>,
    /// The block that frames are put into, if there is one.
    filling: Option<usize>,
    /// Blocks without frames.
    free: Vec<usize>,
    most_blocks: usize,
    frames: Vec<Stored>,
    /// Places of `frames` that nobody has.
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    /// Where the last frame ends.
    end: usize,
    /// Frames that are in it.
    frames: u32,
}

/// A frame and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) frame: Frame,
    pub(crate) arrived: Time,
    /// Of sender and receiver, 0 where there are none.
    pub(crate) ports: [u16; 2],
    block: u32,
    begin: u32,
    length: u32,
    /// Packets of the frame that have not gone.
    left: u16,
}

impl Store {
    /// A store that takes up to about `bytes` of memory, as it needs it.
    pub(crate) fn new(bytes: u64) -> Store {
        Store {
            blocks: Vec::new(),
            filling: None,
            free: Vec::new(),
            most_blocks: usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(BLOCK).max(1),
            frames: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Room for the next frame, of at most `bytes`; `None` when the memory is used up.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let fits = |block: &Block| BLOCK - block.end >= bytes;
        if !self.filling.is_some_and(|index| fits(&self.blocks[index])) {
            self.filling = Some(match self.free.pop() {
                Some(index) => index,
                None if self.blocks.len() < self.most_blocks => {
                    self.blocks.push(Block {
                        bytes: vec![0; BLOCK].into_boxed_slice(),
                        end: 0,
                        frames: 0,
                    });
                    self.blocks.len() - 1
                }
                None => return None,
            });
        }
        let block = &mut self.blocks[self.filling?];
        block.bytes.get_mut(block.end..block.end + bytes)
    }

    /// The first `length` bytes of the room that was given last.
    pub(crate) fn arrived(&self, length: usize) -> &[u8] {
        let block = self.filling.map(|index| &self.blocks[index]);
        block
            .and_then(|block| block.bytes.get(block.end..block.end + length))
            .unwrap_or_default()
    }

    /// Keeps the first `length` bytes of the room that was given last, until all packets of the frame are let go.
    pub(crate) fn keep(&mut self, length: usize, frame: Frame, arrived: Time, ports: [u16; 2]) -> u32 {
        // Without a block there was no room, and nothing that could be kept.
        let index = self.filling.unwrap_or_default();
        let block = &mut self.blocks[index];
        let stored = Stored {
            frame,
            arrived,
            ports,
            block: index as u32,
            begin: block.end as u32,
            length: length as u32,
            left: frame.packets(),
        };
        block.end += length;
        block.frames += 1;
        match self.vacant.pop() {
            Some(place) => {
                self.frames[place as usize] = stored;
                place
            }
            None => {
                self.frames.push(stored);
                self.frames.len() as u32 - 1
            }
        }
    }

    /// A frame that was kept.
    pub(crate) fn get(&self, frame: u32) -> &Stored {
        &self.frames[frame as usize]
    }

    /// Its bytes.
    pub(crate) fn bytes(&self, frame: u32) -> &[u8] {
        let stored = self.get(frame);
        let begin = stored.begin as usize;
        &self.blocks[stored.block as usize].bytes[begin..begin + stored.length as usize]
    }

    /// So many packets of a frame have gone.
    pub(crate) fn let_go(&mut self, frame: u32, packets: u16) {
        let stored = &mut self.frames[frame as usize];
        stored.left -= packets;
        if stored.left > 0 {
            return;
        }
        self.vacant.push(frame);
        let index = stored.block as usize;
        let block = &mut self.blocks[index];
        block.frames -= 1;
        if block.frames == 0 {
            // Begin again in memory that the cache still holds.
            block.end = 0;
            if self.filling != Some(index) {
                self.free.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps a single packet of `length` bytes, all of them `byte`.
    fn put(store: &mut Store, length: usize, byte: u8) -> Option<u32> {
        let room = store.room(1_510)?;
        room[..length].fill(byte);
        room[..10].fill(0);
        let frame = Frame::of(store.arrived(length)).expect("a virtio-net header of zeros");
        Some(store.keep(length, frame, Time::ZERO, [0; 2]))
    }

    #[test]
    fn frames_come_out_as_they_went_in_whatever_the_order() {
        let mut store = Store::new(4 * BLOCK as u64);
        let mut waiting = Vec::new();
        for round in 0..20_000_usize {
            let length = 50 + (round * 37) % 1_461;
            let place = put(&mut store, length, round as u8).expect("at most 100 frames wait");
            waiting.push((place, length, round as u8));
            if waiting.len() > 100 {
                // The oldest ones at times, and one from the middle.
                let (place, length, byte) = waiting.remove(if round % 3 == 0 { 0 } else { 50 });
                let bytes = store.bytes(place);
                assert_eq!(bytes.len(), length);
                assert!(bytes[10..].iter().all(|&b| b == byte));
                store.let_go(place, 1);
            }
        }
        assert!(store.frames.len() <= 101, "places are used again");
    }

    #[test]
    fn memory_is_bounded_and_used_again() {
        let mut store = Store::new(BLOCK as u64);
        for _ in 0..2 {
            let kept: Vec<u32> = std::iter::from_fn(|| put(&mut store, 1_510, 7)).collect();
            assert_eq!(kept.len(), BLOCK / 1_510);
            kept.into_iter().rev().for_each(|place| store.let_go(place, 1));
        }
    }
}
