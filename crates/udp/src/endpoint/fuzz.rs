//! Fuzz harness of a listening endpoint, with and without TLS, that receives clients' datagrams,
//! random bytes, copies and forgeries. Checks that nothing panics, that only clients that return
//! the answer's identifier get a connection, that connections and handshakes stay within their
//! limits, and that at most three bytes are sent per byte received. Runs under libFuzzer
//! (`fuzz/fuzz_targets/endpoint.rs`) and, with seeded random bytes, under `cargo test`.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use ccplane_link::identity::Identity;
use ccplane_transport::{Connection, Native, Segment, SideData, TransportConfig};
use ccplane_units::{Duration, Time};

use super::{
    ANTI_AMPLIFICATION_FACTOR, DatagramOutcome, Endpoint, ListenLimits, PENDING_HANDSHAKES_MAX, mss,
};
use crate::tls::Tls;

const DATAGRAM_BYTES: usize = 700;
const CONNECTIONS_MAX: usize = 3;
const CLIENT_COUNT: usize = 4;

struct EndpointInput<'a>(&'a [u8]);

impl EndpointInput<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (some, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        some.to_vec()
    }
}

struct Client {
    endpoint: Endpoint,
    connection: Connection,
    control: Native,
    id: u64,
    from: SocketAddr,
}

/// TLS configurations of the server, of clients that trust it, and of a client that trusts another
/// server.
fn parties() -> &'static [Tls; 3] {
    static TLS_PARTIES: OnceLock<[Tls; 3]> = OnceLock::new();
    TLS_PARTIES.get_or_init(|| {
        let make = || Identity::new().expect("a certificate");
        let (server, other) = (make(), make());
        let trusting =
            |who: &Identity| Tls::client(Some(who.fingerprint()), None).expect("a configuration");
        [
            Tls::server(&server, &[])
                .expect("a configuration")
                .with_rekey_after(3),
            trusting(&server),
            trusting(&other),
        ]
    })
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host as u8], 4000))
}

/// Runs the actions in `data` against a server and its clients.
pub fn endpoint(data: &[u8]) {
    let mut input = EndpointInput(data);
    let choice = input.byte();
    let tls = |which: usize| (choice & 1 != 0).then(|| parties()[which].clone());
    let config = Arc::new(TransportConfig {
        mss: mss(DATAGRAM_BYTES, true, false),
        receive_buffer: 1 << 18,
        ..TransportConfig::default()
    });
    let mut now = Time::ZERO + Duration::from_secs(100);
    let mut server = Endpoint::new(
        config.clone(),
        DATAGRAM_BYTES,
        tls(0).map(|tls| {
            if choice & 16 != 0 {
                tls.with_retry()
            } else {
                tls
            }
        }),
    );
    server.listen(
        [9; 32],
        ListenLimits {
            connections: CONNECTIONS_MAX,
            per_address: if choice & 2 != 0 { 2 } else { CONNECTIONS_MAX },
        },
    );
    let mut clients: Vec<Client> = (1..=CLIENT_COUNT)
        .map(|n| {
            // The last client may trust another server.
            let whom = if n == CLIENT_COUNT && choice & 4 != 0 {
                2
            } else {
                1
            };
            let mut endpoint = Endpoint::new(config.clone(), DATAGRAM_BYTES, tls(whom));
            let id = n as u64;
            assert_eq!(endpoint.connect(address(0), id), Ok(true));
            let mut connection = Connection::connect(&config, now);
            connection.write(2_000);
            Client {
                endpoint,
                connection,
                control: Native::cubic(),
                id,
                from: address(if choice & 8 != 0 { 1 } else { n }),
            }
        })
        .collect();
    // Recorded datagrams, for copies and forgeries.
    let mut seen: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
    while !input.0.is_empty() {
        let what = input.byte();
        let which = usize::from(what >> 4) % CLIENT_COUNT;
        let (from, datagrams) = match what & 7 {
            0..=2 => (clients[which].from, send(&mut clients[which], now)),
            3 if !seen.is_empty() => {
                let (from, datagram) = &seen[usize::from(input.byte()) % seen.len()];
                (*from, vec![datagram.clone()])
            }
            4 if !seen.is_empty() => {
                let (from, datagram) = &seen[usize::from(input.byte()) % seen.len()];
                let (from, mut datagram) = (*from, datagram.clone());
                let at = usize::from(input.byte()) % datagram.len().max(1);
                if let Some(byte) = datagram.get_mut(at) {
                    *byte ^= input.byte();
                }
                datagram.truncate(usize::from(input.byte()) * 3);
                (from, vec![datagram])
            }
            5 => (address(which), vec![input.bytes(DATAGRAM_BYTES)]),
            6 => {
                now += Duration::from_millis(u64::from(input.byte()) * 50);
                continue;
            }
            _ => {
                server.remove(now, u64::from(what >> 4));
                continue;
            }
        };
        for datagram in datagrams {
            if seen.len() < 64 {
                seen.push((from, datagram.clone()));
            }
            arrives(&mut server, &mut clients, now, from, datagram);
        }
        assert!(
            server.len() <= CONNECTIONS_MAX,
            "more connections than the limit"
        );
        assert!(
            server.pending() <= 2 * PENDING_HANDSHAKES_MAX,
            "more handshakes than the limit"
        );
    }
}

/// Returns a client's next datagrams: the end of its handshake if it is due, and a segment.
fn send(client: &mut Client, now: Time) -> Vec<Vec<u8>> {
    let (mut side, mut datagrams, mut out) =
        (SideData::default(), Vec::new(), vec![0; DATAGRAM_BYTES]);
    let Some(segment) = client.connection.transmit(now, 0, &mut side) else {
        return datagrams;
    };
    if segment.has_flag(Segment::PROOF_FLAG) {
        client.endpoint.begin_flight(client.id, &segment);
        while let Some((length, _)) = client.endpoint.write_flight(client.id, &mut out) {
            datagrams.push(out[..length].to_vec());
        }
    }
    let fill = |payload: &mut [u8]| payload.fill(0x77);
    let prove = |side: &SideData| client.connection.prove(&segment, side);
    if let Some((length, _)) = client
        .endpoint
        .write(client.id, &segment, &mut side, &mut out, prove, fill)
    {
        datagrams.push(out[..length].to_vec());
    }
    datagrams
}

/// Delivers a datagram to the server, and the server's immediate answer to the client.
fn arrives(
    server: &mut Endpoint,
    clients: &mut [Client],
    now: Time,
    from: SocketAddr,
    mut datagram: Vec<u8>,
) {
    let (mut side, mut out) = (SideData::default(), vec![0; 3 * DATAGRAM_BYTES]);
    let (length, each) = match server.receive(now, from, &mut datagram, &mut side, &mut out) {
        Ok(DatagramOutcome::Answer(length, each)) => (length, each),
        Ok(DatagramOutcome::Alert(length)) => (length, length),
        _ => return,
    };
    assert!(
        length <= datagram.len() * ANTI_AMPLIFICATION_FACTOR,
        "{length} bytes sent for {} bytes of an unknown sender",
        datagram.len()
    );
    let Some(client) = clients.iter_mut().find(|client| client.from == from) else {
        return;
    };
    for answer in out[..length].chunks_mut(each) {
        let mut side = SideData::default();
        let arrival =
            client
                .endpoint
                .receive(now, address(0), answer, &mut side, &mut [0; DATAGRAM_BYTES]);
        match arrival {
            Ok(DatagramOutcome::Segment(_, segment, proof, _)) => {
                let control = &mut client.control;
                client
                    .connection
                    .handle_with_proof((now, now), &segment, &side, &proof, control);
            }
            Ok(DatagramOutcome::HelloRequested(_)) => client.connection.resend_open(),
            Ok(DatagramOutcome::HandshakeFailed(id)) => {
                assert!(client.endpoint.handshake_error(id).is_some())
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;

    #[test]
    fn any_input_keeps_the_limits() {
        for seed in 0..2_000u64 {
            let mut data = [0; 300];
            Pcg32::new(seed, 1).fill_bytes(&mut data);
            super::endpoint(&data);
        }
    }
}
