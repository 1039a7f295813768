//! Server identifiers that prove that a client receives at its address.

use std::net::{IpAddr, SocketAddr};

use ccplane_units::{Duration, Time};

/// Lifetime of one output of the secret. An identifier is valid in its own slot and the next, so a
/// client has at least this long to return it. A longer slot would extend the time in which an
/// observer on the path can use the address.
const SLOT_DURATION: Duration = Duration::from_secs(10);

/// Longest time for which an identifier may open a connection.
pub const COOKIE_LIFETIME_MAX: Duration = Duration::from_secs(20);

/// Stateless generator of connection identifiers from a client's address, its identifier, the time
/// and a secret.
///
/// An identifier is a keyed hash (BLAKE3) truncated to 64 bits. To a client it is as good as a
/// random number; a sender that does not receive at the address cannot guess it. It needs no extra
/// bytes in the client's datagrams.
#[derive(Clone)]
pub struct Cookies {
    secret: [u8; 32],
}

impl Cookies {
    /// Creates a generator from a random secret, which must be new at each start.
    pub const fn new(secret: [u8; 32]) -> Cookies {
        Cookies { secret }
    }

    /// Returns the identifier for a client that asks at `now`. It is never 0, which requests a new
    /// connection.
    pub fn issue(&self, now: Time, address: SocketAddr, client: u64) -> u64 {
        self.compute(slot(now), address, client)
    }

    /// Returns true if the identifier was issued to this client recently.
    pub fn verify(&self, now: Time, address: SocketAddr, client: u64, server: u64) -> bool {
        let slot = slot(now);
        // The comparison need not take constant time: wrong identifiers are not answered, so timing
        // cannot be observed.
        self.compute(slot, address, client) == server
            || slot
                .checked_sub(1)
                .is_some_and(|s| self.compute(s, address, client) == server)
    }

    fn compute(&self, slot: u64, address: SocketAddr, client: u64) -> u64 {
        // An IPv4 address is the same on IPv4 and dual-stack sockets.
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
    now.as_nanos() / SLOT_DURATION.as_nanos()
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
                cookies.verify(at(now), address, 7, issued),
                known,
                "after {now} s"
            );
        }
        let mapped = "[::ffff:192.0.2.1]:4000".parse().unwrap();
        assert!(cookies.verify(at(19), mapped, 7, issued));
        for (address, client) in [
            ("192.0.2.2:4000", 7),
            ("192.0.2.1:4001", 7),
            ("192.0.2.1:4000", 8),
        ] {
            assert!(
                !cookies.verify(at(19), address.parse().unwrap(), client, issued),
                "{address} {client}"
            );
        }
        assert!(
            !Cookies::new([4; 32]).verify(at(19), address, 7, issued),
            "another secret"
        );
    }
}
