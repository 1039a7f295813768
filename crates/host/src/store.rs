//! Storage of frames between arrival and delivery, in any order and without an allocation per
//! packet.
//!
//! A driver asks for [`room`](Store::room), reads a frame into it, inspects it with
//! [`arrived`](Store::arrived), and may [`commit`](Store::commit) it. Queues hold
//! [`Packet`](crate::FramePacket)s of 16 bytes that refer to the kept frame.
//! [`release`](Store::release) releases packets of a frame.

use std::ptr::NonNull;

use ccplane_units::{Duration, Time};
use nix::sys::mman::{MmapAdvise, madvise};
use nix::unistd::{SysconfVar, sysconf};

use crate::Frame;

/// Block size in bytes: well over a hundred full-sized packets, or a few super-packets, so that
/// blocks change rarely. A block is free again when its last frame is released; a larger one would
/// be held longer by a single waiting frame.
const BLOCK_BYTES: usize = 256 * 1024;
/// Blocks unused for one to two of these periods return their pages to the kernel. A shorter period
/// would fault pages in again with each burst of a site; a longer one would hold the memory of a
/// rare burst.
const REVIEW_PERIOD: Duration = Duration::from_secs(10);

/// Frames in reusable blocks of memory. A frame's number, from [`commit`](Store::commit), is reused
/// once all its packets are released: using it afterwards yields another frame, or panics.
#[derive(Debug)]
pub struct Store {
    blocks: Vec<Block>,
    /// Block that receives frames, if any.
    filling: Option<usize>,
    /// Blocks without frames, least recently used first.
    free: Vec<usize>,
    /// Maximum number of blocks in use in this period, and in the previous one.
    peaks: [usize; 2],
    /// End of this period.
    review_at: Time,
    blocks_max: usize,
    frames: Vec<StoredFrame>,
    /// Unused indices of `frames`.
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    /// End of the last frame.
    end: usize,
    /// Number of frames in the block.
    frames: u32,
    /// Written to since its pages were returned.
    written: bool,
}

/// A kept frame with its metadata.
#[derive(Clone, Copy, Debug)]
pub struct StoredFrame {
    /// Layout of the frame.
    pub frame: Frame,
    /// Arrival time.
    pub arrived: Time,
    /// Source and destination port, 0 if there are none.
    pub ports: [u16; 2],
    block: u32,
    begin: u32,
    length: u32,
    /// Packets that are not yet released.
    packets_left: u16,
}

impl Store {
    /// Creates a store that uses up to about `bytes` of memory, on demand, and at least 256 KiB.
    pub fn new(bytes: u64) -> Store {
        Store {
            blocks: Vec::new(),
            filling: None,
            free: Vec::new(),
            peaks: [0; 2],
            review_at: Time::ZERO,
            blocks_max: usize::try_from(bytes)
                .unwrap_or(usize::MAX)
                .div_ceil(BLOCK_BYTES)
                .max(1),
            frames: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Returns space for the next frame of at most `bytes`; `None` if the memory is used up, or
    /// `bytes` exceeds a block (no frame is longer than [`LONGEST_FRAME`](crate::FRAME_BYTES_MAX)).
    /// The space is the same until a frame is kept.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > BLOCK_BYTES {
            return None;
        }
        let fits = |block: &Block| BLOCK_BYTES - block.end >= bytes;
        if !self.filling.is_some_and(|index| fits(&self.blocks[index])) {
            self.filling = Some(match self.free.pop() {
                Some(index) => index,
                None if self.blocks.len() < self.blocks_max => {
                    self.blocks.push(Block {
                        bytes: vec![0; BLOCK_BYTES].into_boxed_slice(),
                        end: 0,
                        frames: 0,
                        written: false,
                    });
                    self.blocks.len() - 1
                }
                None => return None,
            });
            self.peaks[0] = self.peaks[0].max(self.blocks_in_use());
        }
        let block = &mut self.blocks[self.filling?];
        block.written = true;
        block.bytes.get_mut(block.end..block.end + bytes)
    }

    /// Returns the number of blocks that hold or receive frames.
    fn blocks_in_use(&self) -> usize {
        self.blocks.len() - self.free.len()
    }

    /// Returns the memory of past bursts to the kernel. A long-running driver calls it
    /// periodically; most calls do nothing.
    pub fn reclaim(&mut self, now: Time) {
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
                .max(self.blocks_in_use());
        // The first ones are the least recently used.
        for &index in self.free.iter().take(spare) {
            let block = &mut self.blocks[index];
            if std::mem::take(&mut block.written) {
                discard_pages(&mut block.bytes);
            }
        }
        self.peaks = [self.blocks_in_use(), self.peaks[0]];
    }

    /// Returns the first `length` bytes of the space returned last.
    #[inline]
    pub fn reserved(&self, length: usize) -> &[u8] {
        let block = self.filling.map(|index| &self.blocks[index]);
        block
            .and_then(|block| block.bytes.get(block.end..block.end + length))
            .unwrap_or_default()
    }

    /// Keeps the first `length` bytes of the space returned last until all packets of the frame are
    /// released. Returns the frame's number.
    #[inline]
    pub fn commit(&mut self, length: usize, frame: Frame, arrived: Time, ports: [u16; 2]) -> u32 {
        // Without a block there was no space, so there is nothing to keep.
        let index = self.filling.unwrap_or_default();
        let block = &mut self.blocks[index];
        let stored = StoredFrame {
            frame,
            arrived,
            ports,
            block: index as u32,
            begin: block.end as u32,
            length: length as u32,
            packets_left: frame.packets(),
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

    /// Returns a kept frame.
    #[inline]
    pub fn get(&self, frame: u32) -> &StoredFrame {
        &self.frames[frame as usize]
    }

    /// Returns the bytes of a frame.
    #[inline]
    pub fn bytes(&self, frame: u32) -> &[u8] {
        let stored = self.get(frame);
        let begin = stored.begin as usize;
        &self.blocks[stored.block as usize].bytes[begin..begin + stored.length as usize]
    }

    /// Releases `packets` packets of a frame.
    #[inline]
    pub fn release(&mut self, frame: u32, packets: u16) {
        let stored = &mut self.frames[frame as usize];
        stored.packets_left -= packets;
        if stored.packets_left > 0 {
            return;
        }
        self.vacant.push(frame);
        let index = stored.block as usize;
        let block = &mut self.blocks[index];
        block.frames -= 1;
        if block.frames == 0 {
            // Reuses memory that is still in the cache.
            block.end = 0;
            if self.filling != Some(index) {
                self.free.push(index);
            }
        }
    }
}

/// Returns whole pages of a block to the kernel. They read as zeros afterwards.
fn discard_pages(bytes: &mut [u8]) {
    let Ok(Some(page)) = sysconf(SysconfVar::PAGE_SIZE) else {
        return;
    };
    let page = page as usize;
    let head = bytes.as_ptr().align_offset(page).min(bytes.len());
    let pages = &mut bytes[head..];
    let length = pages.len() / page * page;
    if let (Some(start), 1..) = (NonNull::new(pages.as_mut_ptr()), length) {
        // SAFETY: the pages are within the slice, which is borrowed exclusively, and are private
        // and anonymous like all memory of the allocator. Zeros are valid bytes. An error leaves
        // the memory unchanged.
        let _ = unsafe { madvise(start.cast(), length, MmapAdvise::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps a single packet of `length` bytes, all equal to `byte`.
    fn put(store: &mut Store, length: usize, byte: u8) -> Option<u32> {
        let room = store.reserve(1_510)?;
        room[..length].fill(byte);
        room[..10].fill(0);
        let frame = Frame::parse(store.reserved(length)).expect("a virtio-net header of zeros");
        Some(store.commit(length, frame, Time::ZERO, [0; 2]))
    }

    #[test]
    fn frames_come_out_as_they_went_in_whatever_the_order() {
        let mut store = Store::new(4 * BLOCK_BYTES as u64);
        let mut waiting = Vec::new();
        for round in 0..20_000_usize {
            let length = 50 + (round * 37) % 1_461;
            let place = put(&mut store, length, round as u8).expect(
                "at most 100 frames are \
                queued",
            );
            waiting.push((place, length, round as u8));
            if waiting.len() > 100 {
                // Sometimes the oldest one, otherwise one from the middle.
                let (place, length, byte) = waiting.remove(if round % 3 == 0 { 0 } else { 50 });
                let bytes = store.bytes(place);
                assert_eq!(bytes.len(), length);
                assert!(bytes[10..].iter().all(|&b| b == byte));
                store.release(place, 1);
            }
        }
        assert!(store.frames.len() <= 101, "slots are reused");
    }

    #[test]
    fn invalid_frames_use_no_memory() {
        let mut store = Store::new(2 * BLOCK_BYTES as u64);
        for _ in 0..5 {
            assert!(store.reserve(BLOCK_BYTES + 1).is_none());
        }
        assert!(store.reserve(crate::FRAME_BYTES_MAX).is_some());
    }

    #[test]
    fn memory_is_bounded_and_reused() {
        let mut store = Store::new(BLOCK_BYTES as u64);
        for _ in 0..2 {
            let kept: Vec<u32> = std::iter::from_fn(|| put(&mut store, 1_510, 7)).collect();
            assert_eq!(kept.len(), BLOCK_BYTES / 1_510);
            kept.into_iter()
                .rev()
                .for_each(|place| store.release(place, 1));
        }
    }

    /// Returns the number of resident pages of the blocks.
    fn resident(store: &Store) -> usize {
        let page = sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap() as usize;
        let count = |block: &Block| {
            let head = block.bytes.as_ptr().align_offset(page);
            let pages = (BLOCK_BYTES - head) / page;
            let mut there = vec![0u8; pages];
            // SAFETY: the range consists of whole pages of the block, and `there` has one byte for
            // each.
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
        store.reclaim(at(0));
        let burst = |store: &mut Store| {
            let places: Vec<u32> = (0..20_000).map(|_| put(store, 1_500, 7).unwrap()).collect();
            let full = resident(store);
            assert!(store.bytes(places[0])[10..].iter().all(|byte| *byte == 7));
            places.into_iter().for_each(|place| store.release(place, 1));
            full
        };
        let full = burst(&mut store);
        assert!(full > 7_000, "{full} pages");
        // The memory used in a period is kept for the next one.
        store.reclaim(at(1));
        assert_eq!(resident(&store), full);
        store.reclaim(at(2));
        assert_eq!(resident(&store), full);
        store.reclaim(at(3));
        let left = resident(&store);
        assert!(left <= 2 * BLOCK_BYTES / 4_096, "{left} of {full} pages");
        // A new block may begin elsewhere in its first page, and then has a whole page less or
        // more.
        let again = burst(&mut store);
        assert!(
            again.abs_diff(full) <= store.blocks.len(),
            "{again} and {full} pages"
        );
    }
}
