//! Wakers of the application's thread: an eventfd per host and a flag per connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Event of a host.
pub(super) struct Event {
    fd: EventFd,
    /// Set while the event is signalled, to avoid further writes.
    signalled: AtomicBool,
}

impl Event {
    pub fn new() -> io::Result<Event> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let fd = EventFd::from_value_and_flags(0, flags)?;
        let signalled = AtomicBool::new(false);
        Ok(Event { fd, signalled })
    }

    /// Returns the descriptor that is readable while the event is signalled.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns true if the event was signalled since the last call.
    pub fn take(&self) -> bool {
        let signalled = self.signalled.swap(false, Ordering::AcqRel);
        // Read even if the flag is not set: the last writer may have written after the previous
        // read.
        self.fd.read().is_ok() || signalled
    }
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            // The counter cannot overflow, since it is read after every signal.
            let _ = self.fd.write(1);
        }
    }
}

/// Waker of one connection.
pub(super) struct ConnectionWaker {
    event: Arc<Event>,
    woken: AtomicBool,
}

impl ConnectionWaker {
    /// Creates a waker that is woken, so that the connection is polled once.
    pub fn new(event: &Arc<Event>) -> ConnectionWaker {
        ConnectionWaker {
            event: Arc::clone(event),
            woken: AtomicBool::new(true),
        }
    }

    /// Lets the next turn poll the connection.
    pub fn set(&self) {
        self.woken.store(true, Ordering::Release);
    }

    /// Returns true if the connection has to be polled.
    pub fn take(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.set();
        Arc::clone(&self.event).wake();
    }
}
