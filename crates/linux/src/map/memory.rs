//! Memory shared with the kernel: BPF arrays mapped into this process.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A mapped array of `len` values of `T`, shared with the kernel's programs. Dereferences to a
/// slice.
pub struct SharedMemory<T> {
    start: NonNull<T>,
    len: usize,
    bytes: usize,
}

/// Types that may lie in memory that the kernel writes.
///
/// # Safety
/// Every bit pattern must be valid, and every field that this process accesses must be an atomic.
pub unsafe trait Plain {}

// SAFETY: `FlowSlot` is `repr(C)` and consists of integers and atomics. The plain integers are
// private padding that is never read.
unsafe impl Plain for crate::map::layout::FlowSlot {}
// SAFETY: as for `FlowSlot`.
unsafe impl Plain for crate::map::layout::PlaneLayout {}
// SAFETY: as for `FlowSlot`.
unsafe impl Plain for crate::map::layout::ProgramSlot {}

/// Access of this process to the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only; a write would raise SIGSEGV.
    Read,
    /// Read and write, to control flows.
    Write,
}

impl<T: Plain> SharedMemory<T> {
    /// Maps `len` values of an array map created with `BPF_F_MMAPABLE`.
    pub fn map(fd: BorrowedFd<'_>, len: usize, access: Access) -> std::io::Result<SharedMemory<T>> {
        let bytes = len * size_of::<T>();
        let start = map_pages(fd, 0, bytes, access)?;
        Ok(SharedMemory {
            start: start.cast(),
            len,
            bytes,
        })
    }
}

impl<T: Plain> std::ops::Deref for SharedMemory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `map` mapped `len` values from the start of a page. They stay mapped until
        // `drop`, and `Plain` guarantees that concurrent writes of the kernel are no data race.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for SharedMemory<T> {
    fn drop(&mut self) {
        unmap_pages(self.start.cast(), self.bytes);
    }
}

// SAFETY: the mapping is not bound to a thread, and all access is atomic (`Plain`).
unsafe impl<T: Plain> Send for SharedMemory<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Plain> Sync for SharedMemory<T> {}

/// Maps `bytes` bytes of `fd` at `offset`, shared.
pub fn map_pages(
    fd: BorrowedFd<'_>,
    offset: usize,
    bytes: usize,
    access: Access,
) -> std::io::Result<NonNull<u8>> {
    use nix::sys::mman::{MapFlags, ProtFlags, mmap};
    let bytes = std::num::NonZeroUsize::new(bytes).ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut protection = ProtFlags::PROT_READ;
    protection.set(ProtFlags::PROT_WRITE, access == Access::Write);
    // SAFETY: the kernel chooses the address of the new mapping, so it overlaps no other memory.
    let start = unsafe {
        mmap(
            None,
            bytes,
            protection,
            MapFlags::MAP_SHARED,
            fd,
            offset as i64,
        )
    }?;
    Ok(start.cast())
}

/// Unmaps memory mapped by [`map_pages`].
pub fn unmap_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the callers own the mapping and unmap it once, when they are dropped.
    let _ = unsafe { nix::sys::mman::munmap(start.cast(), bytes) };
}

/// Waits for an event with nanosecond resolution, which `epoll_wait` does not have. Returns true if
/// there was one.
pub fn epoll_wait(epoll: &std::os::fd::OwnedFd, timeout: ccplane_units::Duration) -> bool {
    use std::os::fd::AsRawFd;
    let ns = timeout.as_nanos();
    let timeout = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: `event` has room for one event, the timeout outlives the call, and a null signal mask
    // is valid. An error can only be an interruption by a signal, which counts as a timeout: the
    // caller checks everything anyway.
    let events = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            &raw mut event,
            1,
            &raw const timeout,
            std::ptr::null::<libc::sigset_t>(),
            8,
        )
    };
    events > 0
}
