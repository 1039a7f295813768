//! Memory shared with the kernel: a BPF array mapped into this process.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// `len` values of `T`, shared with the kernel's programs. Dereferences to a slice.
///
/// `T` must be plain shared memory: made of atomics (or never read), valid for every bit pattern.
pub struct Shared<T> {
    start: NonNull<T>,
    len: usize,
    bytes: usize,
}

/// Types that may stand in memory that others write: any bits are valid and all access is atomic.
///
/// # Safety
/// Every field that this process reads or writes is an atomic, and there is no invalid bit pattern.
pub unsafe trait Plain {}

// SAFETY: integers and atomics only; the plain integers among them are private padding that nobody
// reads.
unsafe impl Plain for crate::map::layout::Slot {}
// SAFETY: as above.
unsafe impl Plain for crate::map::layout::Plane {}
// SAFETY: as above.
unsafe impl Plain for crate::map::layout::ProgramSlot {}

/// What this process may do with shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It looks on; a write would end the process.
    Read,
    /// It steers.
    Write,
}

impl<T: Plain> Shared<T> {
    /// Maps `len` values of an array map created with `BPF_F_MMAPABLE`.
    pub fn map(fd: BorrowedFd<'_>, len: usize, access: Access) -> std::io::Result<Shared<T>> {
        let bytes = len * size_of::<T>();
        let start = map_pages(fd, 0, bytes, access)?;
        Ok(Shared {
            start: start.cast(),
            len,
            bytes,
        })
    }
}

impl<T: Plain> std::ops::Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `map` mapped `len` values from the start of a page; they stay mapped until
        // `drop`, and `Plain` makes shared references sound while the kernel writes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        unmap_pages(self.start.cast(), self.bytes);
    }
}

// SAFETY: the memory belongs to nobody's thread, and all access is atomic (`Plain`).
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Shared<T> {}

/// Maps `bytes` of `fd` from `offset` on, shared.
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
    // SAFETY: a new mapping at an address that the kernel chooses; nothing else lies there.
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

/// Gives back what [`map_pages`] mapped.
pub fn unmap_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the callers own the mapping and drop it here, once.
    let _ = unsafe { nix::sys::mman::munmap(start.cast(), bytes) };
}

/// Waits for an event of an epoll instance, to the nanosecond, as `epoll_wait` cannot. Whether
/// there was one.
pub fn epoll_wait(epoll: &std::os::fd::OwnedFd, timeout: ccplane_units::Duration) -> bool {
    use std::os::fd::AsRawFd;
    let ns = timeout.as_nanos();
    let timeout = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: one event fits `event`, the timeout outlives the call, a null signal mask changes
    // none. An error is an interruption by a signal, as good as the end of the time: the caller
    // looks at everything anyway.
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
