//! What `send` and `recv` use of a transport.

use std::net::SocketAddr;

use ccplane_quic::host::QuicHost;
use ccplane_udp::UdpHost;
use ccplane_units::Duration;

use super::{failed, quic};
use crate::escape::printable;
use crate::exit::Failure;

/// Socket and connections of a transport.
pub(crate) trait TransferHost {
    fn local(&self) -> SocketAddr;
    /// Sends and receives. If there was nothing to do, waits up to `timeout` for the next event.
    fn poll(&mut self, timeout: Duration) -> Result<(), Failure>;
    /// Returns the next accepted connection.
    fn accept(&mut self) -> Option<u64>;
    /// Returns the sender's address, if the transport reports it.
    fn peer(&self, id: u64) -> Option<SocketAddr>;
    /// Returns true if a sender was rejected since the last call because of the limit on all
    /// connections.
    fn was_crowded(&mut self) -> bool;
    /// Passes the received bytes to `take` and returns their number.
    fn read(&mut self, id: u64, take: &mut dyn FnMut(&[u8])) -> usize;
    /// Returns true if the sender's stream was read to its end.
    fn has_read_all(&self, id: u64) -> bool;
    /// Writes as far as there is room and returns the number of bytes.
    fn write(&mut self, id: u64, bytes: &[u8]) -> usize;
    /// Ends the outgoing stream.
    fn finish(&mut self, id: u64);
    /// Returns true if all written data and the end of the stream are acknowledged.
    fn has_sent_all(&self, id: u64) -> bool;
    /// Returns the reason for which the connection failed, and its machine-readable name.
    fn failure(&self, id: u64) -> Option<(String, Option<&'static str>)>;
    /// Closes a connection, with an abort unless `graceful` is set.
    fn close(&mut self, id: u64, graceful: bool) -> Result<(), Failure>;
    /// Sends what [`close`](TransferHost::close) left to send.
    fn flush(&mut self) -> Result<(), Failure>;
}

impl TransferHost for UdpHost {
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

impl TransferHost for QuicHost {
    fn local(&self) -> SocketAddr {
        QuicHost::local(self)
    }

    fn poll(&mut self, timeout: Duration) -> Result<(), Failure> {
        QuicHost::poll(self, timeout).map_err(quic::failed)
    }

    fn accept(&mut self) -> Option<u64> {
        QuicHost::accept(self)
    }

    fn peer(&self, _id: u64) -> Option<SocketAddr> {
        None
    }

    fn was_crowded(&mut self) -> bool {
        QuicHost::was_crowded(self)
    }

    fn read(&mut self, id: u64, take: &mut dyn FnMut(&[u8])) -> usize {
        QuicHost::read(self, id, usize::MAX, take)
    }

    fn has_read_all(&self, id: u64) -> bool {
        QuicHost::has_read_all(self, id)
    }

    fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        QuicHost::write(self, id, bytes)
    }

    fn finish(&mut self, id: u64) {
        QuicHost::finish(self, id);
    }

    fn has_sent_all(&self, id: u64) -> bool {
        QuicHost::has_sent_all(self, id)
    }

    fn failure(&self, id: u64) -> Option<(String, Option<&'static str>)> {
        Some((printable(QuicHost::failure(self, id)?), None))
    }

    fn close(&mut self, id: u64, graceful: bool) -> Result<(), Failure> {
        QuicHost::close(self, id, graceful);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        quic::flush(self)
    }
}
