//! Receiver over ccplane's own transport.

use std::net::SocketAddr;

use ccplane_udp::UdpHost;
use ccplane_units::Duration;

use super::ReceiveHost;
use crate::exit::Failure;
use crate::transfer::failed;

impl ReceiveHost for UdpHost {
    fn local(&self) -> SocketAddr {
        UdpHost::local(self)
    }

    fn poll(&mut self, timeout: Duration) -> Result<(), Failure> {
        UdpHost::poll(self, timeout).map_err(failed)
    }

    fn accept(&mut self) -> Option<u64> {
        UdpHost::accept(self)
    }

    fn peer(&self, id: u64) -> Option<SocketAddr> {
        UdpHost::peer(self, id)
    }

    fn was_crowded(&mut self) -> bool {
        UdpHost::was_crowded(self)
    }

    fn read(&mut self, id: u64, take: &mut dyn FnMut(&[u8])) -> usize {
        let (first, second) = self.received(id);
        let count = first.len() + second.len();
        take(first);
        take(second);
        self.consume(id, count);
        count
    }

    fn has_read_all(&self, id: u64) -> bool {
        let connection = self.connection(id);
        connection.is_none_or(|connection| connection.all_received())
    }

    fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        let room = self.write_buffer(id);
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.commit_write(id, count);
        count
    }

    fn finish(&mut self, id: u64) {
        UdpHost::finish(self, id);
    }

    fn has_sent_all(&self, id: u64) -> bool {
        let connection = self.connection(id);
        connection.is_none_or(|connection| connection.all_acked())
    }

    fn failure(&self, id: u64) -> Option<(String, Option<&'static str>)> {
        let why = self.connection(id)?.failure()?;
        Some((why.to_string(), Some(why.name())))
    }

    fn close(&mut self, id: u64, graceful: bool) -> Result<(), Failure> {
        if graceful {
            self.remove(id);
            return Ok(());
        }
        self.abort(id).map_err(failed)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}
