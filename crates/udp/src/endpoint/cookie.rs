//! The server's identifier of a connection, which proves that the client receives at its address.

use std::net::{IpAddr, SocketAddr};

use ccplane_units::{Duration, Time};

/// How long a secret's output stays the same. An identifier is accepted during the slot that it was
/// made in and the next: a client has at least this long to come back with it. Longer, and who read
/// one on a path could use the address for longer.
const SLOT: Duration = Duration::from_secs(10);

/// For how long an identifier may open a connection, at most.
pub const VALID: Duration = Duration::from_secs(20);

/// Makes identifiers out of a client's address and identifier, its hello's parameters, the time and
/// a secret, and knows them again, without keeping any.
///
/// It is a keyed hash (BLAKE3) cut to 64 bits: to a client as good as a random number, to who does
/// not receive at the address as hard to guess as one, and needing no bytes of its own in what the
/// client sends.
#[derive(Clone)]
pub struct Cookies {
    secret: [u8; 32],
}

impl Cookies {
    /// From a random secret, new at each start.
    pub const fn new(secret: [u8; 32]) -> Cookies {
        Cookies { secret }
    }

    /// The identifier for a client that asks now. Never 0, which asks for a new connection.
    pub fn issue(&self, now: Time, address: SocketAddr, client: u64) -> u64 {
        self.of(slot(now), address, client)
    }

    /// Whether the identifier was issued to this client, not long ago.
    pub fn knows(&self, now: Time, address: SocketAddr, client: u64, server: u64) -> bool {
        let slot = slot(now);
        // Not in constant time, as an answer would have to be heard: what is wrong gets none.
        self.of(slot, address, client) == server
            || slot
                .checked_sub(1)
                .is_some_and(|s| self.of(s, address, client) == server)
    }

    fn of(&self, slot: u64, address: SocketAddr, client: u64) -> u64 {
        // An IPv4 address is the same on a socket of either family.
        let ip = match address.ip().to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut text = [0; 34];
        let parts: [&[u8]; 4] = [
            &ip.octets(),
            &address.port().to_be_bytes(),
            &client.to_be_bytes(),
            &slot.to_be_bytes(),
        ];
        let mut at = 0;
        for part in parts {
            text[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let hash = blake3::keyed_hash(&self.secret, &text);
        let (first, _) = hash
            .as_bytes()
            .split_first_chunk()
            .expect("a hash has 32 bytes");
        u64::from_be_bytes(*first).max(1)
    }
}

fn slot(now: Time) -> u64 {
    now.as_nanos() / SLOT.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_belongs_to_address_client_and_time() {
        let cookies = Cookies::new([3; 32]);
        let at = |s| Time::ZERO + Duration::from_secs(s);
        let address: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let issued = cookies.issue(at(19), address, 7);
        for (now, known) in [
            (10, true),
            (19, true),
            (20, true),
            (29, true),
            (30, false),
            (0, false),
            (1000, false),
        ] {
            assert_eq!(
                cookies.knows(at(now), address, 7, issued),
                known,
                "after {now} s"
            );
        }
        let mapped = "[::ffff:192.0.2.1]:4000".parse().unwrap();
        assert!(cookies.knows(at(19), mapped, 7, issued));
        for (address, client) in [
            ("192.0.2.2:4000", 7),
            ("192.0.2.1:4001", 7),
            ("192.0.2.1:4000", 8),
        ] {
            assert!(
                !cookies.knows(at(19), address.parse().unwrap(), client, issued),
                "{address} {client}"
            );
        }
        assert!(
            !Cookies::new([4; 32]).knows(at(19), address, 7, issued),
            "another secret"
        );
    }
}
