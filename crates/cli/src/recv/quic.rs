//! Receiver over QUIC.

use std::net::SocketAddr;

use ccplane_quic::host::QuicHost;
use ccplane_units::Duration;

use super::ReceiveHost;
use crate::escape::printable;
use crate::exit::Failure;
use crate::transfer::quic::{failed, flush};

impl ReceiveHost for QuicHost {
    fn local(&self) -> SocketAddr {
        QuicHost::local(self)
    }

    fn poll(&mut self, timeout: Duration) -> Result<(), Failure> {
        QuicHost::poll(self, timeout).map_err(failed)
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
        flush(self)
    }
}
