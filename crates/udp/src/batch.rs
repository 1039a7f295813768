//! Datagrams of one size and one destination, one behind the other, as the kernel takes them in one
//! call.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use ccplane_units::Time;

use super::departures::Departures;
use super::socket::{LARGEST, Marks, Socket};

/// What waits for the next call.
///
/// All of them have the size of the first but the last, which may be shorter. They are written
/// where they are sent from.
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
    behind: Option<(usize, SocketAddr, Marks, Option<Time>)>,
    /// When each says that it was made, where the kernel is to say when it left.
    said: VecDeque<Option<Time>>,
}

impl Batch {
    /// Room for one call of at most `most` datagrams.
    pub fn new(most: usize) -> Batch {
        Batch {
            // One more datagram of the largest size is written behind a full batch before it is
            // known not to belong to it.
            bytes: vec![0; 2 * LARGEST].into_boxed_slice(),
            filled: 0,
            size: 0,
            count: 0,
            most: most.max(1),
            to: None,
            marks: Marks::default(),
            closed: false,
            behind: None,
            said: VecDeque::new(),
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

    /// Adds what was written there, `length` bytes. False where it does not belong to the same
    /// call: it waits behind the others until they are [sent](Batch::send), and nothing may be
    /// added before.
    pub fn add(&mut self, length: usize, to: SocketAddr, marks: Marks, said: Option<Time>) -> bool {
        debug_assert!(
            self.behind.is_none(),
            "what waits behind the others leaves first"
        );
        let same = self.to.is_some_and(|first| first == to) && self.marks == marks && !self.closed;
        let fits = length <= self.size && self.count < self.most && self.filled + length <= LARGEST;
        if self.is_empty() {
            (self.size, self.to, self.marks) = (length, Some(to), marks);
        } else if !(same && fits) {
            self.behind = Some((length, to, marks, said));
            return false;
        }
        self.closed = length < self.size;
        self.filled += length;
        self.count += 1;
        if said.is_some() || !self.said.is_empty() {
            self.said.resize(self.count - 1, None);
            self.said.push_back(said);
        }
        true
    }

    /// Sends it, and tells `departures` the kernel's numbers of what says when it was made.
    /// `WouldBlock` leaves what was not taken, any other error empties it, as the network might
    /// have lost it.
    pub fn send(
        &mut self,
        socket: &mut Socket,
        departures: Option<&mut Departures>,
    ) -> io::Result<()> {
        let Some(to) = self.to.filter(|_| !self.is_empty()) else {
            return Ok(());
        };
        let contents = &self.bytes[..self.filled];
        let sent = match socket.send_each(to, contents, self.size, self.marks) {
            Ok((taken, first)) => {
                let said = self.said.drain(..taken.min(self.said.len())).zip(0u32..);
                if let Some(departures) = departures {
                    let (size, filled) = (self.size as u32, self.filled as u32);
                    said.for_each(|(said, n)| {
                        if let Some(said) = said {
                            let bytes = size.min(filled.saturating_sub(n * size));
                            departures.sent(said, first.wrapping_add(n), bytes);
                        }
                    });
                } else {
                    drop(said);
                }
                if taken < self.count {
                    self.forget(taken);
                    Err(io::ErrorKind::WouldBlock.into())
                } else {
                    Ok(())
                }
            }
            Err(why) => Err(why),
        };
        // A socket learns by a call what the device does not take.
        self.limit(self.most.min(socket.batch()));
        if !matches!(&sent, Err(why) if why.kind() == io::ErrorKind::WouldBlock) {
            let filled = self.filled;
            (self.filled, self.size, self.count, self.closed) = (0, 0, 0, false);
            self.said.clear();
            if let Some((length, to, marks, said)) = self.behind.take() {
                self.bytes.copy_within(filled..filled + length, 0);
                self.add(length, to, marks, said);
            }
        }
        sent
    }

    /// The first `taken` of several have left.
    fn forget(&mut self, taken: usize) {
        let gone = (taken * self.size).min(self.filled);
        let behind = self.behind.map_or(0, |(length, ..)| length);
        self.bytes.copy_within(gone..self.filled + behind, 0);
        self.filled -= gone;
        self.count -= taken;
        // A shorter one may be alone now, and nothing shorter may come behind it than itself: it
        // stays closed.
    }

    /// Where the first of them goes, and how long it is.
    pub fn first(&self) -> Option<(SocketAddr, usize)> {
        self.to.map(|to| (to, self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Inbox;

    #[test]
    fn datagrams_arrive_as_they_were_added_whatever_their_sizes_and_marks() {
        let here = "127.0.0.1:0".parse().unwrap();
        let (mut sender, receiver) = (Socket::bind(here).unwrap(), Socket::bind(here).unwrap());
        let to = receiver.local();
        // They change within runs of one size: what else could part 0 from 1, 5 from 6 and 9 from
        // 10?
        let marks_of = |index: usize| match index {
            0 => Marks { ecn: 2, dscp: 0 },
            1..6 => Marks { ecn: 3, dscp: 0 },
            6..10 => Marks { ecn: 3, dscp: 46 },
            _ => Marks { ecn: 3, dscp: 1 },
        };
        let lengths = [
            100, 100, 60, 60, 100, 200, 200, 10, 1400, 1400, 1400, 1400, 7,
        ];
        let mut batch = Batch::new(3);
        for (index, length) in lengths.into_iter().enumerate() {
            batch.room()[..length].fill(index as u8);
            if !batch.add(length, to, marks_of(index), None) {
                batch.send(&mut sender, None).unwrap();
                assert!(!batch.is_empty());
            }
        }
        batch.send(&mut sender, None).unwrap();
        assert!(batch.is_empty());

        let (mut inbox, mut found) = (Inbox::new(), Vec::new());
        while found.len() < lengths.len() {
            let received = receiver.receive_marked(&mut inbox).unwrap();
            received.each(|from, marks, _, datagram| {
                assert_eq!(from, sender.local());
                assert!(
                    datagram.iter().all(|&b| usize::from(b) == found.len()),
                    "datagram {}",
                    found.len()
                );
                assert_eq!(marks, marks_of(found.len()), "datagram {}", found.len());
                found.push(datagram.len());
            });
        }
        assert_eq!(found, lengths);
    }
}
