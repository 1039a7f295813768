//! What paths carry (RFC 8899): found by hellos of all sizes, and noticed when it becomes less.

use std::io;
use std::net::SocketAddr;

use super::Host;
use crate::endpoint::{BASE, sizes};
use crate::error::UdpError;
use crate::socket::Marks;
use ccplane_transport::{Segment, Side, State};

impl Host {
    /// Bytes of the largest packet that the path of a connection carries, IP header included.
    pub fn packet(&self, id: u64) -> Option<usize> {
        let headers = if self.socket.local().is_ipv4() { 28 } else { 48 };
        let size = self.endpoint.size(id)?;
        let narrowed = self.flows.get(&id).is_some_and(|flow| flow.narrowed);
        Some(headers + if narrowed { size.min(BASE) } else { size })
    }

    /// A hello that was not answered leaves again in every size that its path may carry.
    pub(super) fn search(&mut self, id: u64, hello: &Segment, side: &mut Side, marks: Marks) -> Result<(), UdpError> {
        let mut hello = *hello;
        for step in 1..=sizes(self.datagram).count() {
            hello.transmission = step as u8;
            let written = self.endpoint.write(id, &hello, side, self.batch.room(), |_| ());
            if let Some((length, to)) = written
                && !self.batch.add(length, to, marks, None)
            {
                self.flush()?;
            }
            // Each by itself: one that the device does not take is no loss to the others.
            self.flush()?;
        }
        Ok(())
    }

    /// A datagram is longer than this host's own link takes.
    pub(super) fn too_long(&mut self, first: Option<(SocketAddr, usize)>, why: io::Error) -> Result<(), UdpError> {
        // A hello finds out what it takes.
        if self
            .flows
            .values()
            .any(|flow| flow.connection.state() == State::Opening)
        {
            self.note_trouble(why);
            return Ok(());
        }
        match first {
            Some((address, size)) if self.fragments => Err(UdpError::TooLong { address, size }),
            Some(_) => {
                let mss = self.narrow_mss();
                self.flows.values_mut().for_each(|flow| flow.narrow(mss));
                self.may_fragment()
            }
            None => Ok(()),
        }
    }

    /// What segments have on a path that has become narrower: little enough for any.
    pub(super) fn narrow_mss(&self) -> u16 {
        let less = u16::try_from(self.datagram.saturating_sub(BASE)).unwrap_or(u16::MAX);
        self.config.mss.saturating_sub(less)
    }

    /// What waits to be sent again was cut for a wider path: it leaves in fragments.
    pub(super) fn may_fragment(&mut self) -> Result<(), UdpError> {
        if self.fragments {
            return Ok(());
        }
        tracing::info!("full packets do not arrive any more: they are sent in fragments, and new ones are smaller");
        self.fragments = true;
        self.socket.may_fragment().map_err(|why| UdpError::Socket {
            what: "send in fragments",
            why,
        })
    }
}
