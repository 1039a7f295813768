//! Batches of outgoing datagrams for UDP GSO: one destination, one ECN field and DSCP, and one size
//! for all but the last datagram, sent by a single system call.

use std::net::SocketAddr;
use std::time::Duration;

use ccplane_udp::{DATAGRAM_BYTES_MAX, DatagramMarks, Socket, passes};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

use super::error::GatewayError;

/// Bytes kept free behind a full batch, so that sealing always has room for the longest datagram
/// and a handshake message.
const SLACK_BYTES: usize = 66_000;
/// Longest wait for a full socket, at most once per turn of the send loop. A longer wait would let
/// one stalled interface block all peers; a shorter one would lose bursts that the driver's queue
/// could have taken.
const SOCKET_WAIT_MAX: Duration = Duration::from_millis(5);

/// The batch being filled.
pub(crate) struct SendBatch {
    bytes: Box<[u8]>,
    length: usize,
    count: usize,
    size: usize,
    to: Option<(SocketAddr, DatagramMarks)>,
    /// True if the last datagram was shorter than the others, so that none may follow it.
    complete: bool,
    /// True if a full socket has already been waited for in this turn.
    waited: bool,
}

/// Result of sending a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchOutcome {
    /// True if the datagrams exceed the path MTU.
    pub too_long: bool,
}

impl SendBatch {
    pub fn new() -> SendBatch {
        SendBatch {
            bytes: vec![0; DATAGRAM_BYTES_MAX + SLACK_BYTES].into_boxed_slice(),
            length: 0,
            count: 0,
            size: 0,
            to: None,
            complete: false,
            waited: false,
        }
    }

    /// Starts a turn of the send loop, in which a full socket is waited for at most once.
    pub fn begin_turn(&mut self) {
        self.waited = false;
    }

    /// Returns whether the socket was full in this turn. If so, packets that are not sealed yet
    /// should stay in their queue.
    pub fn is_socket_full(&self) -> bool {
        self.waited
    }

    /// Returns whether a datagram of `bytes` bytes can join the batch, which holds at most `most`.
    pub fn can_add(
        &self,
        to: SocketAddr,
        marks: DatagramMarks,
        bytes: usize,
        count_max: usize,
    ) -> bool {
        self.count == 0
            || !self.complete
                && self.to == Some((to, marks))
                && bytes <= self.size
                && self.count < count_max
                && self.length + bytes <= DATAGRAM_BYTES_MAX
    }

    /// Returns the free space, into which the next datagram is written.
    pub fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes[self.length..]
    }

    /// Appends the first `bytes` bytes of [`room`](SendBatch::room). [`takes`](SendBatch::takes)
    /// must have returned true for them.
    pub fn add(&mut self, to: SocketAddr, marks: DatagramMarks, bytes: usize) {
        if self.count == 0 {
            (self.to, self.size) = (Some((to, marks)), bytes);
        }
        self.complete = bytes < self.size;
        self.length += bytes;
        self.count += 1;
    }

    /// Sends the batch. Datagrams that the socket does not accept in time are lost, as on a link.
    pub fn flush(&mut self, socket: &Socket) -> Result<BatchOutcome, GatewayError> {
        let mut sent = BatchOutcome::default();
        let (length, size) = (self.length, self.size);
        (self.length, self.count, self.complete) = (0, 0, false);
        let Some((to, marks)) = self.to.take() else {
            return Ok(sent);
        };
        let mut rest = &self.bytes[..length];
        while !rest.is_empty() {
            match socket.send(to, rest, size, marks) {
                Ok(taken) => rest = rest.get(taken.max(1) * size..).unwrap_or_default(),
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {
                    if std::mem::replace(&mut self.waited, true) {
                        break;
                    }
                    let mut writable = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
                    let _ = poll(
                        &mut writable,
                        PollTimeout::try_from(SOCKET_WAIT_MAX).unwrap_or(PollTimeout::ZERO),
                    );
                }
                Err(why) if passes(&why) => {
                    sent.too_long = why.raw_os_error() == Some(Errno::EMSGSIZE as i32);
                    break;
                }
                Err(why) => return Err(GatewayError::system("send to a peer")(why)),
            }
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_datagrams_to_one_address_leave_together_and_a_shorter_one_ends_them() {
        let marked = DatagramMarks { ecn: 2, dscp: 0 };
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let (sender, receiver) = (Socket::bind(here).unwrap(), Socket::bind(here).unwrap());
        let to = receiver.local();
        let mut batch = SendBatch::new();
        for (n, bytes) in [100, 100, 60].into_iter().enumerate() {
            assert!(batch.can_add(to, marked, bytes, 64), "{n}");
            batch.buffer()[..bytes].fill(n as u8);
            batch.add(to, marked, bytes);
        }
        assert!(
            !batch.can_add(to, marked, 60, 64),
            "after a shorter datagram"
        );
        batch.flush(&sender).unwrap();
        assert!(
            batch.can_add(to, DatagramMarks::default(), 1, 64),
            "the batch is empty again"
        );
        batch.add(to, DatagramMarks::default(), 50);
        assert!(!batch.can_add(to, marked, 50, 64), "another mark");
        assert!(
            !batch.can_add(to, DatagramMarks { ecn: 0, dscp: 46 }, 50, 64),
            "another codepoint"
        );
        assert!(
            !batch.can_add(to, DatagramMarks::default(), 51, 64),
            "longer"
        );
        assert!(
            !batch.can_add(to, DatagramMarks::default(), 50, 1),
            "enough"
        );
        batch.flush(&sender).unwrap();
        let mut inbox = ccplane_udp::Inbox::new();
        let mut found = Vec::new();
        while found.len() < 4 {
            let mut wait = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
            assert_ne!(
                poll(&mut wait, 1_000_u16).unwrap(),
                0,
                "datagrams are missing: {found:?}"
            );
            let received = receiver.receive(&mut inbox).unwrap();
            received.for_each(|_, ecn, datagram| found.push((datagram.len(), ecn)));
        }
        assert_eq!(found, [(100, 2), (100, 2), (60, 2), (50, 0)]);
    }

    /// Linux segments at most 128 datagrams per call, so a batch of 200 stands in for a device
    /// without GSO.
    #[test]
    fn a_batch_that_is_not_cut_arrives_whole_and_marked() {
        const DATAGRAM_COUNT: usize = 200;
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let (sender, receiver) = (Socket::bind(here).unwrap(), Socket::bind(here).unwrap());
        let mut inbox = ccplane_udp::Inbox::new();
        for marks in [
            DatagramMarks::default(),
            DatagramMarks { ecn: 2, dscp: 0 },
            DatagramMarks { ecn: 2, dscp: 46 },
        ] {
            let mut batch = SendBatch::new();
            for _ in 0..DATAGRAM_COUNT {
                assert!(batch.can_add(receiver.local(), marks, 10, DATAGRAM_COUNT));
                batch.add(receiver.local(), marks, 10);
            }
            assert_eq!(batch.flush(&sender).unwrap(), BatchOutcome::default());
            let mut found = 0;
            while found < DATAGRAM_COUNT {
                let mut wait = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
                assert_ne!(poll(&mut wait, 1_000_u16).unwrap(), 0, "{found} came");
                receiver
                    .receive(&mut inbox)
                    .unwrap()
                    .for_each(|_, seen, datagram| {
                        assert_eq!((seen, datagram.len()), (marks.ecn, 10));
                        found += 1;
                    });
            }
        }
    }
}
