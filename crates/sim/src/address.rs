//! IP addresses and ports of simulated hosts and flows, used in captures and by agents.

use std::net::{Ipv4Addr, SocketAddr};

/// Port of all servers. The client port is derived from the flow's number.
pub(crate) const SERVER_PORT: u16 = 5_201;
pub(crate) const FIRST_CLIENT_PORT: u32 = 10_000;
const CLIENT_PORTS: u32 = 50_000;

/// Returns a host's address, 10.0.0.0/8 plus its number.
pub(crate) fn host(node: u32) -> Ipv4Addr {
    let [_, a, b, c] = node.wrapping_add(1).to_be_bytes();
    Ipv4Addr::new(10, a, b, c)
}

pub(crate) fn client_port(flow: u32) -> u16 {
    (FIRST_CLIENT_PORT + flow % CLIENT_PORTS) as u16
}

/// Returns the addresses of a flow's sender and receiver.
pub(crate) fn flow_addresses(flow: u32, from: u32, to: u32) -> (SocketAddr, SocketAddr) {
    (
        (host(from), client_port(flow)).into(),
        (host(to), SERVER_PORT).into(),
    )
}
