//! Transport settings of RC3's simulations.

use ccplane_sim::{TransportConfig, default_transport};

/// Payload of a packet, and its size on the wire, bytes.
pub(super) const PAYLOAD: u64 = 1_460;
pub(super) const PACKET: u64 = 1_500;

/// Returns the settings of plain TCP: an ACK per packet, an initial window of four packets, and
/// buffers that do not limit.
pub(super) fn tcp() -> TransportConfig {
    TransportConfig {
        mss: PAYLOAD as u16,
        header_bytes: (PACKET - PAYLOAD) as u16,
        initial_window: 4,
        ack_every: 1,
        ..TransportConfig::clone(&default_transport())
    }
}
