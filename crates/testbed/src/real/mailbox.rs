//! Messages between the loops of a run on real packets.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Queue of messages for one reader, which waits for its descriptor to become readable.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    waiting: Mutex<Vec<T>>,
    wake: EventFd,
}

impl<T> Mailbox<T> {
    pub fn new() -> std::io::Result<Mailbox<T>> {
        Ok(Mailbox {
            waiting: Mutex::new(Vec::new()),
            wake: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?,
        })
    }

    /// Queues a message.
    pub fn send(&self, message: T) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(message);
        // The sender of the first message wakes the reader.
        let first = waiting.len() == 1;
        drop(waiting);
        if first {
            self.wake();
        }
    }

    /// Wakes the reader even if there is no message.
    pub fn wake(&self) {
        // Fails only if the counter is full; the reader is then being woken anyway.
        let _ = self.wake.write(1);
    }

    /// Returns all queued messages, in order.
    pub fn take(&self) -> Vec<T> {
        // A failed read means that there is nothing to reset.
        let _ = self.wake.read();
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    #[test]
    fn what_is_left_arrives_in_order_and_wakes_once() {
        let mail = Mailbox::new().unwrap();
        let readable = || {
            let mut fds = [PollFd::new(mail.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
        };
        assert!(!readable());
        mail.send(1);
        mail.send(2);
        assert!(readable());
        assert_eq!(mail.take(), [1, 2]);
        assert!(!readable() && mail.take().is_empty());
        mail.wake();
        assert!(readable() && mail.take().is_empty());
    }
}
