//! Send side of a host's socket: batches, and one that waits for room.

use std::io;
use std::num::NonZeroUsize;

use ccplane_udp::{DatagramMarks, Socket, passes};
use nix::errno::Errno;
use noq_proto::Transmit;

use crate::host::HostError;

/// Datagrams per system call, as in noq's own driver. A larger batch would be built at once
/// although an ACK may arrive meanwhile.
const BATCH_DATAGRAMS: usize = 10;

pub(super) struct NoqLink {
    pub socket: Socket,
    /// DSCP of the connections' packets.
    dscp: u8,
    /// Batch for which the socket had no room.
    unsent: Option<(Transmit, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl NoqLink {
    pub fn new(socket: Socket, dscp: u8) -> NoqLink {
        NoqLink {
            socket,
            dscp,
            unsent: None,
            buffer: Vec::new(),
        }
    }

    /// Returns true if a batch waits for room.
    pub fn is_blocked(&self) -> bool {
        self.unsent.is_some()
    }

    /// Sends the waiting batch. Returns false if there is still no room.
    pub fn resume(&mut self) -> Result<bool, HostError> {
        match self.unsent.take() {
            Some((transmit, contents)) => self.try_send(transmit, contents),
            None => Ok(true),
        }
    }

    /// Sends a connection's next batch; `None` if it has none. Returns false if the socket has no
    /// room; the batch is then kept.
    pub fn send(
        &mut self,
        next: impl FnOnce(NonZeroUsize, &mut Vec<u8>) -> Option<Transmit>,
    ) -> Result<Option<bool>, HostError> {
        let most = NonZeroUsize::new(self.socket.batch_max().min(BATCH_DATAGRAMS))
            .unwrap_or(NonZeroUsize::MIN);
        let mut contents = std::mem::take(&mut self.buffer);
        contents.clear();
        match next(most, &mut contents) {
            Some(transmit) => self.try_send(transmit, contents).map(Some),
            None => {
                self.buffer = contents;
                Ok(None)
            }
        }
    }

    /// Sends a response that belongs to no connection. It may be lost, since the peer retries.
    pub fn respond(&mut self, transmit: &Transmit, contents: &[u8]) -> Result<(), HostError> {
        let contents = contents.get(..transmit.size).unwrap_or(contents);
        let size = contents.len().max(1);
        match self.socket.send(
            transmit.destination,
            contents,
            size,
            DatagramMarks::default(),
        ) {
            Ok(_) => Ok(()),
            Err(why) if passes(&why) || why.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(why) => Err(HostError::Socket { what: "send", why }),
        }
    }

    fn try_send(&mut self, transmit: Transmit, mut contents: Vec<u8>) -> Result<bool, HostError> {
        contents.truncate(transmit.size);
        let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
        let marks = DatagramMarks {
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            dscp: self.dscp & 63,
        };
        match self
            .socket
            .send(transmit.destination, &contents, size, marks)
        {
            Ok(taken) if taken * size < contents.len() => {
                contents.drain(..taken * size);
                let size = contents.len();
                self.unsent = Some((Transmit { size, ..transmit }, contents));
                Ok(false)
            }
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                self.unsent = Some((transmit, contents));
                Ok(false)
            }
            // Fatal. Errors that concern only this batch drop it, as the network might; `EMSGSIZE`
            // is an MTU probe that is too long for the local link.
            Err(why) if !passes(&why) && why.raw_os_error() != Some(Errno::EMSGSIZE as i32) => {
                Err(HostError::Socket { what: "send", why })
            }
            Ok(_) | Err(_) => {
                self.buffer = contents;
                Ok(true)
            }
        }
    }
}
