//! Batch of equally sized datagrams to one destination, sent in a single system call.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use ccplane_units::Time;

use super::departures::Departures;
use super::socket::{DATAGRAM_BYTES_MAX, DatagramMarks, Socket};

/// Datagrams queued for the next send call.
///
/// All have the size of the first, except the last, which may be shorter. They are encoded in
/// place.
pub(super) struct GsoBatch {
    bytes: Box<[u8]>,
    filled: usize,
    /// Size of the first datagram in bytes; 0 if the batch is empty.
    size: usize,
    count: usize,
    count_max: usize,
    to: Option<SocketAddr>,
    marks: DatagramMarks,
    /// Set once a shorter datagram has been added: GSO allows one only at the end.
    closed: bool,
    /// Datagram written after the batch that belongs to the next call.
    trailing: Option<(usize, SocketAddr, DatagramMarks, Option<Time>)>,
    /// Creation time carried by each datagram, if the kernel reports transmit timestamps.
    creation_times: VecDeque<Option<Time>>,
}

impl GsoBatch {
    /// Creates a batch of at most `most` datagrams per call.
    pub fn new(most: usize) -> GsoBatch {
        GsoBatch {
            // A datagram of the largest size may be written behind a full batch before it is known
            // to belong to the next one.
            bytes: vec![0; 2 * DATAGRAM_BYTES_MAX].into_boxed_slice(),
            filled: 0,
            size: 0,
            count: 0,
            count_max: most.max(1),
            to: None,
            marks: DatagramMarks::default(),
            closed: false,
            trailing: None,
            creation_times: VecDeque::new(),
        }
    }

    /// Sets the maximum number of datagrams per call.
    pub fn set_limit(&mut self, most: usize) {
        self.count_max = most.max(1);
    }

    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Returns the buffer for the next datagram.
    pub fn buffer(&mut self) -> &mut [u8] {
        let end = (self.filled + DATAGRAM_BYTES_MAX).min(self.bytes.len());
        &mut self.bytes[self.filled..end]
    }

    /// Adds the `length` bytes written to [`room`](GsoBatch::room). Returns false if the datagram
    /// cannot go into the same call; it is kept until the batch is [sent](GsoBatch::send), and
    /// nothing may be added before then.
    pub fn add(
        &mut self,
        length: usize,
        to: SocketAddr,
        marks: DatagramMarks,
        created: Option<Time>,
    ) -> bool {
        debug_assert!(
            self.trailing.is_none(),
            "the trailing datagram is sent first"
        );
        let same = self.to.is_some_and(|first| first == to) && self.marks == marks && !self.closed;
        let fits = length <= self.size
            && self.count < self.count_max
            && self.filled + length <= DATAGRAM_BYTES_MAX;
        if self.is_empty() {
            (self.size, self.to, self.marks) = (length, Some(to), marks);
        } else if !(same && fits) {
            self.trailing = Some((length, to, marks, created));
            return false;
        }
        self.closed = length < self.size;
        self.filled += length;
        self.count += 1;
        if created.is_some() || !self.creation_times.is_empty() {
            self.creation_times.resize(self.count - 1, None);
            self.creation_times.push_back(created);
        }
        true
    }

    /// Sends the batch and records the kernel's packet number of every timestamped datagram in
    /// `departures`. On `WouldBlock` the unsent datagrams stay; any other error empties the batch,
    /// as if the network had lost it.
    pub fn send(
        &mut self,
        socket: &mut Socket,
        departures: Option<&mut Departures>,
    ) -> io::Result<()> {
        let Some(to) = self.to.filter(|_| !self.is_empty()) else {
            return Ok(());
        };
        let contents = &self.bytes[..self.filled];
        let sent = match socket.send_numbered(to, contents, self.size, self.marks) {
            Ok((taken, first)) => {
                let said = self
                    .creation_times
                    .drain(..taken.min(self.creation_times.len()))
                    .zip(0u32..);
                if let Some(departures) = departures {
                    let (size, filled) = (self.size as u32, self.filled as u32);
                    said.for_each(|(said, n)| {
                        if let Some(said) = said {
                            let bytes = size.min(filled.saturating_sub(n * size));
                            departures.on_sent(said, first.wrapping_add(n), bytes);
                        }
                    });
                } else {
                    drop(said);
                }
                if taken < self.count {
                    self.remove_sent(taken);
                    Err(io::ErrorKind::WouldBlock.into())
                } else {
                    Ok(())
                }
            }
            Err(why) => Err(why),
        };
        // The socket lowers its limit when a call shows that the device cannot take it.
        self.set_limit(self.count_max.min(socket.batch_max()));
        if !matches!(&sent, Err(why) if why.kind() == io::ErrorKind::WouldBlock) {
            let filled = self.filled;
            (self.filled, self.size, self.count, self.closed) = (0, 0, 0, false);
            self.creation_times.clear();
            if let Some((length, to, marks, said)) = self.trailing.take() {
                self.bytes.copy_within(filled..filled + length, 0);
                self.add(length, to, marks, said);
            }
        }
        sent
    }

    /// Removes the first `taken` datagrams, which were sent.
    fn remove_sent(&mut self, taken: usize) {
        let gone = (taken * self.size).min(self.filled);
        let behind = self.trailing.map_or(0, |(length, ..)| length);
        self.bytes.copy_within(gone..self.filled + behind, 0);
        self.filled -= gone;
        self.count -= taken;
        // The remaining datagram may be the shorter last one; the batch stays closed.
    }

    /// Returns the destination and the size of the first datagram.
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
        // The marks change within runs of equal size, so that only they can separate datagrams 0
        // and 1, 5 and 6, 9 and 10.
        let marks_of = |index: usize| match index {
            0 => DatagramMarks { ecn: 2, dscp: 0 },
            1..6 => DatagramMarks { ecn: 3, dscp: 0 },
            6..10 => DatagramMarks { ecn: 3, dscp: 46 },
            _ => DatagramMarks { ecn: 3, dscp: 1 },
        };
        let lengths = [
            100, 100, 60, 60, 100, 200, 200, 10, 1400, 1400, 1400, 1400, 7,
        ];
        let mut batch = GsoBatch::new(3);
        for (index, length) in lengths.into_iter().enumerate() {
            batch.buffer()[..length].fill(index as u8);
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
            received.for_each(|from, marks, _, datagram| {
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
