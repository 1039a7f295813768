//! Datagrams that leave together: of one size but the last, to one address, with the same ECN field
//! and DSCP, in one call.

use std::net::SocketAddr;
use std::time::Duration;

use ccplane_udp::{LARGEST, Marks, Socket, passes};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

use super::error::GatewayError;

/// Room behind a full batch, so that sealing always finds what it wants: the longest datagram and a
/// handshake.
const SLACK: usize = 66_000;
/// How long a full socket is waited for, once in a turn. Longer, and one interface that stands
/// still holds all peers; shorter, and a burst is lost that the driver's queue would have taken.
const PATIENCE: Duration = Duration::from_millis(5);

/// The batch that is being filled.
pub(crate) struct Batch {
    bytes: Box<[u8]>,
    length: usize,
    count: usize,
    size: usize,
    to: Option<(SocketAddr, Marks)>,
    /// The last one was shorter than the others: none comes behind it.
    over: bool,
    /// The socket was full, and has been waited for in this turn.
    waited: bool,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The path takes no datagrams of this size.
    pub too_long: bool,
}

impl Batch {
    pub fn new() -> Batch {
        Batch {
            bytes: vec![0; LARGEST + SLACK].into_boxed_slice(),
            length: 0,
            count: 0,
            size: 0,
            to: None,
            over: false,
            waited: false,
        }
    }

    /// Another turn begins: a full socket is waited for once in each.
    pub fn begin(&mut self) {
        self.waited = false;
    }

    /// Whether the socket was full in this turn. What has not been sealed yet waits better where it
    /// is.
    pub fn is_stuck(&self) -> bool {
        self.waited
    }

    /// Whether one of so many bytes may go along.
    pub fn takes(&self, to: SocketAddr, marks: Marks, bytes: usize, most: usize) -> bool {
        self.count == 0
            || !self.over
                && self.to == Some((to, marks))
                && bytes <= self.size
                && self.count < most
                && self.length + bytes <= LARGEST
    }

    /// Room for the next one.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.length..]
    }

    /// The first so many bytes of that room are the next one, for whom [`takes`](Batch::takes) said
    /// yes.
    pub fn keep(&mut self, to: SocketAddr, marks: Marks, bytes: usize) {
        if self.count == 0 {
            (self.to, self.size) = (Some((to, marks)), bytes);
        }
        self.over = bytes < self.size;
        self.length += bytes;
        self.count += 1;
    }

    /// Sends what there is. What no room is found for in time is lost, as on a wire.
    pub fn flush(&mut self, socket: &Socket) -> Result<Sent, GatewayError> {
        let mut sent = Sent::default();
        let (length, size) = (self.length, self.size);
        (self.length, self.count, self.over) = (0, 0, false);
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
                        PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::ZERO),
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
        let marked = Marks { ecn: 2, dscp: 0 };
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let (sender, receiver) = (Socket::bind(here).unwrap(), Socket::bind(here).unwrap());
        let to = receiver.local();
        let mut batch = Batch::new();
        for (n, bytes) in [100, 100, 60].into_iter().enumerate() {
            assert!(batch.takes(to, marked, bytes, 64), "{n}");
            batch.room()[..bytes].fill(n as u8);
            batch.keep(to, marked, bytes);
        }
        assert!(!batch.takes(to, marked, 60, 64), "after a shorter one");
        batch.flush(&sender).unwrap();
        assert!(
            batch.takes(to, Marks::default(), 1, 64),
            "it is empty again"
        );
        batch.keep(to, Marks::default(), 50);
        assert!(!batch.takes(to, marked, 50, 64), "another mark");
        assert!(
            !batch.takes(to, Marks { ecn: 0, dscp: 46 }, 50, 64),
            "another code point"
        );
        assert!(!batch.takes(to, Marks::default(), 51, 64), "longer");
        assert!(!batch.takes(to, Marks::default(), 50, 1), "enough");
        batch.flush(&sender).unwrap();
        let mut inbox = ccplane_udp::Inbox::new();
        let mut found = Vec::new();
        while found.len() < 4 {
            let mut wait = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
            assert_ne!(
                poll(&mut wait, 1_000_u16).unwrap(),
                0,
                "something is missing: {found:?}"
            );
            let received = receiver.receive(&mut inbox).unwrap();
            received.each(|_, ecn, datagram| found.push((datagram.len(), ecn)));
        }
        assert_eq!(found, [(100, 2), (100, 2), (60, 2), (50, 0)]);
    }

    /// Linux cuts no more than 128 datagrams a call, so more stand for a device that cuts none.
    #[test]
    fn a_batch_that_is_not_cut_arrives_whole_and_marked() {
        const MANY: usize = 200;
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let (sender, receiver) = (Socket::bind(here).unwrap(), Socket::bind(here).unwrap());
        let mut inbox = ccplane_udp::Inbox::new();
        for marks in [
            Marks::default(),
            Marks { ecn: 2, dscp: 0 },
            Marks { ecn: 2, dscp: 46 },
        ] {
            let mut batch = Batch::new();
            for _ in 0..MANY {
                assert!(batch.takes(receiver.local(), marks, 10, MANY));
                batch.keep(receiver.local(), marks, 10);
            }
            assert_eq!(batch.flush(&sender).unwrap(), Sent::default());
            let mut found = 0;
            while found < MANY {
                let mut wait = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
                assert_ne!(poll(&mut wait, 1_000_u16).unwrap(), 0, "{found} came");
                receiver
                    .receive(&mut inbox)
                    .unwrap()
                    .each(|_, seen, datagram| {
                        assert_eq!((seen, datagram.len()), (marks.ecn, 10));
                        found += 1;
                    });
            }
        }
    }
}
