//! Datagrams of one size and one destination, one behind the other, as the kernel takes them in one call.

use std::io;
use std::net::SocketAddr;

use super::socket::{LARGEST, Marks, Socket};

/// What waits for the next call.
///
/// All of them have the size of the first but the last, which may be shorter. They are written where they are sent from.
pub(super) struct Batch {
    bytes: Box<[u8]>,
    filled: usize,
    /// Bytes of the first; 0 while there is none.
    size: usize,
    count: usize,
    most: usize,
    to: Option<SocketAddr>,
    marks: Marks,
    /// A shorter one closed it.
    closed: bool,
    /// What was written behind it and belongs to the next call.
    behind: Option<(usize, SocketAddr, Marks)>,
}

impl Batch {
    /// Room for one call of at most `most` datagrams.
    pub fn new(most: usize) -> Batch {
        Batch {
            // One more datagram of the largest size is written behind a full batch before it is known not to belong to it.
            bytes: vec![0; 2 * LARGEST].into_boxed_slice(),
            filled: 0,
            size: 0,
            count: 0,
            most: most.max(1),
            to: None,
            marks: Marks::default(),
            closed: false,
            behind: None,
        }
    }

    /// From now on at most so many datagrams a call.
    pub fn limit(&mut self, most: usize) {
        self.most = most.max(1);
    }

    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Where to write the next datagram.
    pub fn room(&mut self) -> &mut [u8] {
        let end = (self.filled + LARGEST).min(self.bytes.len());
        &mut self.bytes[self.filled..end]
    }

    /// Adds what was written there, `length` bytes. False where it does not belong to the same call: it waits behind the others
    /// until they are [sent](Batch::send), and nothing may be added before.
    pub fn add(&mut self, length: usize, to: SocketAddr, marks: Marks) -> bool {
        let same = self.to == Some(to) && self.marks == marks && !self.closed;
        let fits = length <= self.size && self.count < self.most && self.filled + length <= LARGEST;
        if self.is_empty() {
            (self.size, self.to, self.marks) = (length, Some(to), marks);
        } else if !(same && fits) {
            self.behind = Some((length, to, marks));
            return false;
        }
        self.closed = length < self.size;
        self.filled += length;
        self.count += 1;
        true
    }

    /// Sends it; `WouldBlock` leaves it as it is, any other error empties it, as the network might have lost it.
    pub fn send(&mut self, socket: &Socket) -> io::Result<()> {
        let Some(to) = self.to.filter(|_| !self.is_empty()) else {
            return Ok(());
        };
        let sent = socket.send(to, &self.bytes[..self.filled], self.size, self.marks);
        if !matches!(&sent, Err(why) if why.kind() == io::ErrorKind::WouldBlock) {
            let filled = self.filled;
            (self.filled, self.size, self.count, self.closed) = (0, 0, 0, false);
            if let Some((length, to, marks)) = self.behind.take() {
                self.bytes.copy_within(filled..filled + length, 0);
                self.add(length, to, marks);
            }
        }
        sent
    }

    /// Where the first of them goes, and how long it is.
    pub fn first(&self) -> Option<(SocketAddr, usize)> {
        self.to.map(|to| (to, self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::socket::Inbox;

    #[test]
    fn datagrams_arrive_as_they_were_added_whatever_their_sizes() {
        let here = "127.0.0.1:0".parse().unwrap();
        let (sender, receiver) = (Socket::bind(here).unwrap(), Socket::bind(here).unwrap());
        let to = receiver.local();
        let ect = Marks { ecn: 2, dscp: 0 };
        let ce = Marks { ecn: 3, dscp: 46 };
        let lengths = [100, 100, 60, 60, 100, 200, 200, 10, 1400, 1400, 1400, 1400, 7];
        let mut batch = Batch::new(3);
        for (index, length) in lengths.into_iter().enumerate() {
            let marks = if index < 5 { ect } else { ce };
            batch.room()[..length].fill(index as u8);
            if !batch.add(length, to, marks) {
                batch.send(&sender).unwrap();
                assert!(!batch.is_empty());
            }
        }
        batch.send(&sender).unwrap();
        assert!(batch.is_empty());

        let (mut inbox, mut found) = (Inbox::new(), Vec::new());
        while found.len() < lengths.len() {
            receiver.receive(&mut inbox).unwrap().each(|from, ecn, datagram| {
                assert_eq!(from, sender.local());
                assert!(
                    datagram.iter().all(|&b| usize::from(b) == found.len()),
                    "datagram {}",
                    found.len()
                );
                assert_eq!(ecn, if found.len() < 5 { 2 } else { 3 });
                found.push(datagram.len());
            });
        }
        assert_eq!(found, lengths);
    }
}
