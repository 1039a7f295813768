//! Where frames are kept between arrival and delivery, in whatever order they go: no allocation per
//! packet.
//!
//! A driver asks for [`room`](Store::room), reads a frame into it, looks at what
//! [`arrived`](Store::arrived), and may [`keep`](Store::keep) it. Queues hold
//! [`Packet`](crate::Packet)s of 16 bytes that say in which kept frame they are.
//! [`let_go`](Store::let_go) releases a packet's part.

use std::ptr::NonNull;

use ccplane_units::{Duration, Time};
use nix::sys::mman::{MmapAdvise, madvise};
use nix::unistd::{SysconfVar, sysconf};

use crate::Frame;

/// A block holds well over a hundred full packets, or a few super-packets, so that one is taken or
/// given back rarely. It is free again when its last frame goes: larger blocks would be held longer
/// by one frame that waits.
const BLOCK: usize = 256 * 1024;
/// Blocks that were not in use for one to two of these periods give their pages back. A shorter
/// period would fault pages in again with each burst of a site; a longer one keeps the memory of a
/// rare burst.
const REVIEW_PERIOD: Duration = Duration::from_secs(10);

/// Frames in blocks of memory that are used again. A frame is named by the number that
/// [`keep`](Store::keep) gave it, which is another's once all its packets have gone: to ask for it
/// then gives another frame, or panics.
#[derive(Debug)]
pub struct Store {
    blocks: Vec<Block>,
    /// The block that frames are put into, if there is one.
    filling: Option<usize>,
    /// Blocks without frames. The last one was used last.
    free: Vec<usize>,
    /// Highest number of blocks in use in this period, and in the one before.
    peaks: [usize; 2],
    /// End of this period.
    review_at: Time,
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
    /// It was written to since its pages were given back.
    written: bool,
}

/// A frame and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// What it consists of.
    pub frame: Frame,
    /// When it came.
    pub arrived: Time,
    /// Of sender and receiver, 0 where there are none.
    pub ports: [u16; 2],
    block: u32,
    begin: u32,
    length: u32,
    /// Packets of the frame that have not gone.
    left: u16,
}

impl Store {
    /// A store that takes up to about `bytes` of memory, as it needs it, and at least a quarter of
    /// a megabyte.
    pub fn new(bytes: u64) -> Store {
        Store {
            blocks: Vec::new(),
            filling: None,
            free: Vec::new(),
            peaks: [0; 2],
            review_at: Time::ZERO,
            most_blocks: usize::try_from(bytes)
                .unwrap_or(usize::MAX)
                .div_ceil(BLOCK)
                .max(1),
            frames: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Room for the next frame, of at most `bytes`; `None` when the memory is used up, or when no
    /// frame is that long ([`LONGEST_FRAME`](crate::LONGEST_FRAME)). It is the same room until the
    /// frame is kept.
    #[inline]
    pub fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > BLOCK {
            return None;
        }
        let fits = |block: &Block| BLOCK - block.end >= bytes;
        if !self.filling.is_some_and(|index| fits(&self.blocks[index])) {
            self.filling = Some(match self.free.pop() {
                Some(index) => index,
                None if self.blocks.len() < self.most_blocks => {
                    self.blocks.push(Block {
                        bytes: vec![0; BLOCK].into_boxed_slice(),
                        end: 0,
                        frames: 0,
                        written: false,
                    });
                    self.blocks.len() - 1
                }
                None => return None,
            });
            self.peaks[0] = self.peaks[0].max(self.in_use());
        }
        let block = &mut self.blocks[self.filling?];
        block.written = true;
        block.bytes.get_mut(block.end..block.end + bytes)
    }

    /// Blocks that hold frames, or that frames are put into.
    fn in_use(&self) -> usize {
        self.blocks.len() - self.free.len()
    }

    /// Gives the kernel back the memory of a burst that is over. A driver that runs for long calls
    /// it now and then; most calls do nothing.
    pub fn review(&mut self, now: Time) {
        if now < self.review_at {
            return;
        }
        self.review_at = now + REVIEW_PERIOD;
        let spare = self.blocks.len()
            - self
                .peaks
                .iter()
                .copied()
                .max()
                .unwrap_or_default()
                .max(self.in_use());
        // The first ones were not used for the longest time.
        for &index in self.free.iter().take(spare) {
            let block = &mut self.blocks[index];
            if std::mem::take(&mut block.written) {
                give_back(&mut block.bytes);
            }
        }
        self.peaks = [self.in_use(), self.peaks[0]];
    }

    /// The first `length` bytes of the room that was given last.
    #[inline]
    pub fn arrived(&self, length: usize) -> &[u8] {
        let block = self.filling.map(|index| &self.blocks[index]);
        block
            .and_then(|block| block.bytes.get(block.end..block.end + length))
            .unwrap_or_default()
    }

    /// Keeps the first `length` bytes of the room that was given last, until all packets of the
    /// frame are let go.
    #[inline]
    pub fn keep(&mut self, length: usize, frame: Frame, arrived: Time, ports: [u16; 2]) -> u32 {
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
    #[inline]
    pub fn get(&self, frame: u32) -> &Stored {
        &self.frames[frame as usize]
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self, frame: u32) -> &[u8] {
        let stored = self.get(frame);
        let begin = stored.begin as usize;
        &self.blocks[stored.block as usize].bytes[begin..begin + stored.length as usize]
    }

    /// So many packets of a frame have gone.
    #[inline]
    pub fn let_go(&mut self, frame: u32, packets: u16) {
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

/// Gives whole pages of a block back. They read as zeros afterwards.
fn give_back(bytes: &mut [u8]) {
    let Ok(Some(page)) = sysconf(SysconfVar::PAGE_SIZE) else {
        return;
    };
    let page = page as usize;
    let head = bytes.as_ptr().align_offset(page).min(bytes.len());
    let pages = &mut bytes[head..];
    let length = pages.len() / page * page;
    if let (Some(start), 1..) = (NonNull::new(pages.as_mut_ptr()), length) {
        // SAFETY: the pages lie in the slice, which nothing else refers to, and are private and
        // anonymous, as all memory of the allocator. Zeros are valid bytes. An error leaves the
        // memory as it is.
        let _ = unsafe { madvise(start.cast(), length, MmapAdvise::MADV_DONTNEED) };
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
    fn what_no_frame_is_costs_no_memory() {
        let mut store = Store::new(2 * BLOCK as u64);
        for _ in 0..5 {
            assert!(store.room(BLOCK + 1).is_none());
        }
        assert!(store.room(crate::LONGEST_FRAME).is_some());
    }

    #[test]
    fn memory_is_bounded_and_used_again() {
        let mut store = Store::new(BLOCK as u64);
        for _ in 0..2 {
            let kept: Vec<u32> = std::iter::from_fn(|| put(&mut store, 1_510, 7)).collect();
            assert_eq!(kept.len(), BLOCK / 1_510);
            kept.into_iter()
                .rev()
                .for_each(|place| store.let_go(place, 1));
        }
    }

    /// Pages of the blocks that the kernel has memory for.
    fn resident(store: &Store) -> usize {
        let page = sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap() as usize;
        let count = |block: &Block| {
            let head = block.bytes.as_ptr().align_offset(page);
            let pages = (BLOCK - head) / page;
            let mut there = vec![0u8; pages];
            // SAFETY: whole pages of the block, and a byte for each of them.
            let asked = unsafe {
                libc::mincore(
                    block.bytes[head..].as_ptr().cast_mut().cast(),
                    pages * page,
                    there.as_mut_ptr(),
                )
            };
            assert_eq!(asked, 0);
            there.iter().filter(|page| **page & 1 == 1).count()
        };
        store.blocks.iter().map(count).sum()
    }

    #[test]
    fn the_memory_of_a_burst_is_given_back_and_can_be_used_again() {
        let mut store = Store::new(64 << 20);
        let at = |periods: u64| Time::ZERO + REVIEW_PERIOD * periods;
        store.review(at(0));
        let burst = |store: &mut Store| {
            let places: Vec<u32> = (0..20_000).map(|_| put(store, 1_500, 7).unwrap()).collect();
            let full = resident(store);
            assert!(store.bytes(places[0])[10..].iter().all(|byte| *byte == 7));
            places.into_iter().for_each(|place| store.let_go(place, 1));
            full
        };
        let full = burst(&mut store);
        assert!(full > 7_000, "{full} pages");
        // What a period needed is kept for the next one.
        store.review(at(1));
        assert_eq!(resident(&store), full);
        store.review(at(2));
        assert_eq!(resident(&store), full);
        store.review(at(3));
        let left = resident(&store);
        assert!(left <= 2 * BLOCK / 4_096, "{left} of {full} pages");
        assert_eq!(burst(&mut store), full);
    }
}
