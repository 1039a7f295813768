//! Who may have how much of a listening endpoint: places, and memory for what arrives.
//!
//! A connection's memory is what its peer can make this side hold: a whole receive window, since one byte on each page of it takes
//! all of its pages, and the list of holes. All of it is set aside when the connection begins, so that nothing later can exceed it.
//! A window is a part of what is still free: the first connections get what they ask for, later ones less, and there is always some.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ccplane_transport::MOST_RANGE_BYTES;

/// The smallest window that a connection is opened with, bytes: a few of the largest datagrams. With less a sender would wait for
/// each; more would let fewer connections in when memory is short.
pub const LEAST_WINDOW: u64 = 1 << 18;

/// A new connection gets at most this part of the window memory that is free. A larger part leaves little to those that come
/// later, a smaller one makes the first slow on long paths.
const PART: u64 = 8;

/// The same of what is left to its address, so that a second connection of the same host still has a window worth having.
const PART_OF_ADDRESS: u64 = 2;

/// What a listening endpoint gives away at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time.
    pub places: usize,
    /// Bytes that all of them may make this side hold.
    pub memory: u64,
    /// What one address may have of both: for whoever cannot tell by a key that peers are friends.
    pub address: Option<(usize, u64)>,
}

impl Limits {
    /// So many connections, whatever they take.
    pub fn places(places: usize) -> Limits {
        Limits {
            places,
            memory: u64::MAX,
            address: None,
        }
    }

    /// Bytes that so many connections take with the smallest window each.
    pub fn least_memory(places: usize) -> u64 {
        places as u64 * (LEAST_WINDOW + MOST_RANGE_BYTES)
    }
}

/// What is given away.
#[derive(Debug)]
pub(super) struct Shares {
    limits: Limits,
    /// Of each connection: whose it is, and its bytes.
    held: BTreeMap<u64, (IpAddr, u64)>,
}

impl Shares {
    pub fn new(limits: Limits) -> Shares {
        Shares {
            limits,
            held: BTreeMap::new(),
        }
    }

    /// The window that one more connection from this address may have, at most `wanted`; `None` where there is no place for it.
    pub fn window(&self, address: SocketAddr, wanted: u64) -> Option<u64> {
        let Limits {
            places,
            memory,
            address: each,
        } = self.limits;
        if self.held.len() >= places {
            return None;
        }
        if memory == u64::MAX {
            return Some(wanted);
        }
        let taken: u64 = self.held.values().map(|(_, bytes)| bytes).sum();
        let mut window = part(memory.saturating_sub(taken), places - self.held.len(), PART)?;
        if let Some((places, memory)) = each {
            let whose = origin(address);
            let (mut count, mut bytes) = (0, 0);
            for (_, taken) in self.held.values().filter(|(origin, _)| *origin == whose) {
                (count, bytes) = (count + 1, bytes + taken);
            }
            let left = places.checked_sub(count).filter(|left| *left > 0)?;
            window = window.min(part(memory.saturating_sub(bytes), left, PART_OF_ADDRESS)?);
        }
        let window = window.min(wanted);
        // A power of two, as the buffer behind it is.
        Some(1 << window.checked_ilog2()?)
    }

    /// A connection has begun with this window.
    pub fn hold(&mut self, id: u64, address: SocketAddr, window: u64) {
        let bytes = window.saturating_add(MOST_RANGE_BYTES);
        self.held.insert(id, (origin(address), bytes));
    }

    /// A connection is over.
    pub fn release(&mut self, id: u64) {
        self.held.remove(&id);
    }
}

/// The window of one more connection, out of `free` bytes that `places` connections may have. Each of them has the smallest window
/// for certain, and this one a part of what is beyond that.
fn part(free: u64, places: usize, most: u64) -> Option<u64> {
    let beyond = free.checked_sub(Limits::least_memory(places))?;
    Some(LEAST_WINDOW + beyond / most.min(places as u64).max(1))
}

/// Who is behind an address: under IPv6 a host has a whole /64.
pub(super) fn origin(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 256_000_000;
    const WANTED: u64 = 16 << 20;

    fn address(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], port))
    }

    fn fill(shares: &mut Shares, from: impl Fn(u64) -> SocketAddr) -> Vec<u64> {
        let mut windows = Vec::new();
        for id in 0..1000 {
            let Some(window) = shares.window(from(id), WANTED) else {
                break;
            };
            shares.hold(id, from(id), window);
            windows.push(window);
        }
        windows
    }

    #[test]
    fn all_connections_together_stay_within_the_memory_and_each_has_a_window() {
        let limits = Limits {
            places: 64,
            memory: MEMORY,
            address: None,
        };
        let mut shares = Shares::new(limits);
        let windows = fill(&mut shares, |id| address(id as u8, 9));
        assert_eq!(windows.len(), 64);
        assert_eq!(windows[..4], [WANTED; 4], "the first have what they ask for");
        assert!(windows.iter().all(|window| *window >= LEAST_WINDOW));
        let taken: u64 = shares.held.values().map(|(_, bytes)| bytes).sum();
        assert!(taken <= MEMORY, "{taken}");
    }

    #[test]
    fn one_address_has_eight_places_and_a_sixth_and_leaves_the_rest_to_others() {
        let limits = Limits {
            places: 64,
            memory: MEMORY,
            address: Some((8, MEMORY / 6)),
        };
        let mut shares = Shares::new(limits);
        let windows = fill(&mut shares, |id| address(7, id as u16));
        assert_eq!((windows.len(), windows[0]), (8, WANTED));
        let taken: u64 = shares.held.values().map(|(_, bytes)| bytes).sum();
        assert!(taken <= MEMORY / 6, "{taken}");
        assert_eq!(shares.window(address(8, 1), WANTED), Some(WANTED));
        shares.release(3);
        assert!(shares.window(address(7, 1), WANTED).is_some(), "a place is free again");
    }

    #[test]
    fn hosts_of_one_ipv6_network_count_as_one() {
        let parse = |text: &str| origin(text.parse().unwrap());
        assert_eq!(parse("[2001:db8::1]:1"), parse("[2001:db8::ffff:2]:2"));
        assert_ne!(parse("[2001:db8::1]:1"), parse("[2001:db8:0:1::1]:1"));
        assert_eq!(parse("[::ffff:192.0.2.1]:1"), parse("192.0.2.1:2"));
    }

    #[test]
    fn a_single_place_has_all_the_memory() {
        let limits = Limits {
            places: 1,
            memory: MEMORY,
            address: None,
        };
        assert_eq!(Shares::new(limits).window(address(1, 1), 1 << 27), Some(1 << 27));
        let unlimited = Shares::new(Limits::places(2));
        assert_eq!(unlimited.window(address(1, 1), 1 << 30), Some(1 << 30));
    }
}
