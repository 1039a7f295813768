//! Reader of the BPF ring buffer: records in place, without a copy and without a system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::map::layout::{REC_URGENT, ReportRecord};
use crate::map::memory::{Access, map_pages, unmap_pages};

/// Flags that the kernel sets on a record being written, and on a discarded one.
const BUSY_BIT: u32 = 1 << 31;
const DISCARD_BIT: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// A ring buffer with this as its only reader.
pub struct RingBuffer {
    fd: OwnedFd,
    pages: Pages,
    access: Access,
}

/// Memory of a ring buffer. The creator keeps both areas mapped for as long as this exists.
struct Pages {
    /// One page with the read position, written by this process.
    consumer: NonNull<u8>,
    /// One page with the write position, written by the kernel, followed by the data. The data is
    /// mapped twice in a row, so that no record is split.
    producer: NonNull<u8>,
    page: usize,
    size: usize,
}

/// Consecutive records, borrowed from the ring.
pub struct RecordBatch<'a> {
    /// The words of each record, header first.
    pub records: Vec<&'a [u64]>,
    /// Position after the last record.
    pub end: u64,
}

impl RingBuffer {
    /// Maps a ring buffer of `size` bytes (a power of two). With [`Access::Read`] it yields no
    /// records, since the kernel overwrites those that another process has released.
    pub fn new(fd: OwnedFd, size: usize, access: Access) -> std::io::Result<RingBuffer> {
        let page =
            nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
        let consumer = map_pages(fd.as_fd(), 0, page, access)?;
        let producer = match map_pages(fd.as_fd(), page, page + 2 * size, Access::Read) {
            Ok(producer) => producer,
            Err(error) => {
                unmap_pages(consumer, page);
                return Err(error);
            }
        };
        Ok(RingBuffer {
            fd,
            pages: Pages {
                consumer,
                producer,
                page,
                size,
            },
            access,
        })
    }

    /// Returns the complete records in place, at most `limit`. They stay valid until released,
    /// which the exclusive borrow prevents meanwhile.
    pub fn batch(&mut self, limit: usize) -> RecordBatch<'_> {
        self.pages.batch(match self.access {
            Access::Write => limit,
            Access::Read => 0,
        })
    }

    /// Frees everything before `end`, the end of a batch. Returns the number of bytes freed.
    pub fn release(&mut self, end: u64) -> usize {
        let freed = end - self.pages.read();
        self.pages.set_read(end);
        freed as usize
    }

    /// Returns the size of the data area in bytes.
    pub fn capacity(&self) -> usize {
        self.pages.size
    }

    /// Discards everything in the ring.
    pub fn skip(&mut self) {
        let end = self.batch(usize::MAX).end;
        self.release(end);
    }

    /// Returns true if the ring has no data.
    pub fn is_empty(&self) -> bool {
        self.pages.read() == self.pages.filled()
    }

    /// Returns true if the ring has an urgent record.
    pub fn has_urgent(&self) -> bool {
        self.pages.has_urgent()
    }
}

impl Pages {
    /// Returns the complete records, at most `limit`.
    fn batch(&self, limit: usize) -> RecordBatch<'_> {
        let mut batch = RecordBatch {
            records: Vec::new(),
            end: self.read(),
        };
        while batch.records.len() < limit {
            let Some((words, next)) = self.record(batch.end) else {
                break;
            };
            batch.end = next;
            batch.records.extend(words);
        }
        batch
    }

    fn has_urgent(&self) -> bool {
        let mut position = self.read();
        let end = self.filled();
        while position < end {
            match self.record(position) {
                // Being written, so possibly urgent.
                None => return true,
                Some((words, next)) => {
                    let urgent = |(record, _): (ReportRecord, _)| record.flags & REC_URGENT != 0;
                    if words.and_then(ReportRecord::split).is_some_and(urgent) {
                        return true;
                    }
                    position = next;
                }
            }
        }
        false
    }

    /// Returns the record at `position` and the position of the next one. The inner value is `None`
    /// for a discarded record, the result is `None` if there is no complete record.
    fn record(&self, position: u64) -> Option<(Option<&[u64]>, u64)> {
        if position >= self.filled() {
            return None;
        }
        let offset = self.page + (position as usize & (self.size - 1));
        // SAFETY: the offset is a multiple of 8 below page + size, and 2·size bytes are mapped
        // after the page.
        let header = unsafe { self.producer.add(offset).cast::<AtomicU32>().as_ref() }
            .load(Ordering::Acquire);
        if header & BUSY_BIT != 0 {
            return None;
        }
        let len = (header & !(BUSY_BIT | DISCARD_BIT)) as usize;
        let next = position + HEADER_BYTES + (len as u64).next_multiple_of(8);
        if header & DISCARD_BIT != 0 || len > self.size {
            return Some((None, next));
        }
        // SAFETY: the data area is mapped twice in a row, so `len` <= size bytes after the header
        // are mapped. The kernel does not write them until `set_read` passes them, and records are
        // 8-byte aligned.
        let words = unsafe {
            let data = self
                .producer
                .add(offset + HEADER_BYTES as usize)
                .cast::<u64>();
            std::slice::from_raw_parts(data.as_ptr(), len / 8)
        };
        Some((Some(words), next))
    }

    fn read(&self) -> u64 {
        // SAFETY: the page is mapped and aligned, and only this process writes the word.
        unsafe { self.consumer.cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed)
    }

    fn set_read(&self, position: u64) {
        // SAFETY: as in `read`; with `Access::Write`, which releasing requires, the page is
        // writable.
        unsafe { self.consumer.cast::<AtomicU64>().as_ref() }.store(position, Ordering::Release);
    }

    fn filled(&self) -> u64 {
        // SAFETY: the page is mapped and aligned, and the kernel writes the word atomically.
        unsafe { self.producer.cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire)
    }
}

impl AsFd for RingBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        let Pages {
            consumer,
            producer,
            page,
            size,
        } = self.pages;
        unmap_pages(consumer, page);
        unmap_pages(producer, page + 2 * size);
    }
}

// SAFETY: the mapping is not bound to a thread, and `&mut` guards the non-atomic accesses.
unsafe impl Send for RingBuffer {}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: usize = 4096;
    const RING_BYTES: usize = 256;

    /// A ring buffer in memory of this process, with the kernel's side of it. Also run under Miri:
    /// `scripts/miri`.
    struct Kernel {
        pages: Pages,
        filled: u64,
        memory: [*mut [u64]; 2],
    }

    impl Kernel {
        fn new() -> Kernel {
            let area = |bytes: usize| Box::into_raw(vec![0u64; bytes / 8].into_boxed_slice());
            let memory = [area(PAGE_BYTES), area(PAGE_BYTES + 2 * RING_BYTES)];
            let [consumer, producer] = memory.map(|area| NonNull::new(area.cast::<u8>()).unwrap());
            Kernel {
                pages: Pages {
                    consumer,
                    producer,
                    page: PAGE_BYTES,
                    size: RING_BYTES,
                },
                filled: 0,
                memory,
            }
        }

        /// Writes a word of the data area, in both copies.
        fn write(&self, position: u64, word: u64) {
            let at = PAGE_BYTES + (position as usize & (RING_BYTES - 1));
            for at in [at, at + RING_BYTES] {
                // SAFETY: the word lies in the second area, and no reference to it is alive.
                unsafe { self.pages.producer.add(at).cast::<u64>().write(word) };
            }
        }

        /// Appends a record with the header flags `flags`.
        fn put(&mut self, flags: u32, words: &[u64]) {
            self.write(self.filled, u64::from(flags | (8 * words.len()) as u32));
            for (index, word) in (1..).zip(words) {
                self.write(self.filled + 8 * index, *word);
            }
            self.filled += HEADER_BYTES + 8 * words.len() as u64;
            // SAFETY: the word is the first one of the second area, which is mapped and aligned.
            unsafe { self.pages.producer.cast::<AtomicU64>().as_ref() }
                .store(self.filled, Ordering::Release);
        }

        fn read(&self, limit: usize) -> Vec<Vec<u64>> {
            let batch = self.pages.batch(limit);
            let records = batch.records.iter().map(|words| words.to_vec()).collect();
            self.pages.set_read(batch.end);
            records
        }
    }

    impl Drop for Kernel {
        fn drop(&mut self) {
            // SAFETY: the areas come from `Box::into_raw`, and are freed once.
            self.memory
                .iter()
                .for_each(|area| drop(unsafe { Box::from_raw(*area) }));
        }
    }

    #[test]
    fn records_are_read_in_order_and_across_the_end() {
        let mut kernel = Kernel::new();
        for round in 0..100u64 {
            kernel.put(0, &[round, 1, 2]);
            kernel.put(0, &[round; 9]);
            assert_eq!(kernel.read(1), [vec![round, 1, 2]]);
            assert_eq!(kernel.read(5), [vec![round; 9]]);
            assert!(kernel.read(5).is_empty());
        }
    }

    #[test]
    fn records_in_progress_block_and_discarded_ones_are_skipped() {
        let mut kernel = Kernel::new();
        kernel.put(DISCARD_BIT, &[1, 1]);
        kernel.put(0, &[2]);
        kernel.put(BUSY_BIT, &[3]);
        kernel.put(0, &[4]);
        assert_eq!(kernel.read(9), [vec![2]]);
        assert!(kernel.pages.has_urgent(), "the record may be urgent");
        assert!(kernel.read(9).is_empty());
    }

    #[test]
    fn a_length_beyond_the_ring_is_no_record() {
        let mut kernel = Kernel::new();
        kernel.write(0, RING_BYTES as u64 + 8);
        kernel.filled = 8;
        kernel.put(0, &[]);
        assert!(kernel.read(9).is_empty());
    }
}
