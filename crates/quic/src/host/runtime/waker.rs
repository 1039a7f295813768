//! Waker of the application's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use nix::sys::eventfd::EventFd;

/// Waker of an endpoint or of a connection. It signals the event of its host.
pub(super) struct EventWaker {
    event: Arc<EventFd>,
    woken: AtomicBool,
}

impl EventWaker {
    /// Creates a waker that is set.
    pub fn new(event: &Arc<EventFd>) -> Arc<EventWaker> {
        Arc::new(EventWaker {
            event: Arc::clone(event),
            woken: AtomicBool::new(true),
        })
    }

    /// Requests a poll in the next turn.
    pub fn set(&self) {
        self.woken.store(true, Ordering::Release);
    }

    /// Returns true if a poll was requested since the last call.
    pub fn take(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        self.set();
        // The counter cannot overflow, since every turn reads it.
        let _ = self.event.write(1);
    }
}
