//! An endpoint that listens, with a key and without one, among clients, strangers, copies and forgeries: no panic, no connection for
//! who did not return the answer's identifier, no more of them than there are places.
//! Runs under libFuzzer (`fuzz/fuzz_targets/endpoint.rs`) and, with seeded random bytes, under `cargo test`.

use std::net::SocketAddr;
use std::sync::Arc;

use ccplane_units::{Duration, Time};

use super::{Arrival, Endpoint, Limits, mss};
use crate::crypto::Key;
use ccplane_transport::{Config, Connection, Native, Side};

const SIZE: usize = 300;
const PLACES: usize = 3;
const CLIENTS: usize = 4;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
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

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host as u8], 4000))
}

/// Does what `data` says with a server and its clients.
pub fn endpoint(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte();
    let key = |other: bool| (choice & 1 != 0).then(|| Key::from_bytes([if other { 2 } else { 1 }; 32]));
    let config = Arc::new(Config {
        mss: mss(SIZE, true, false),
        receive_buffer: 1 << 18,
        ..Config::default()
    });
    let mut now = Time::ZERO + Duration::from_secs(100);
    let mut server = Endpoint::new(config.clone(), SIZE, key(false));
    server.listen(
        [9; 32],
        Limits {
            places: PLACES,
            memory: Limits::least_memory(PLACES) * 2,
            address: (choice & 2 != 0).then_some((2, Limits::least_memory(PLACES))),
        },
    );
    let mut clients: Vec<Client> = (1..=CLIENTS)
        .map(|n| {
            // The last one may have another key.
            let mut endpoint = Endpoint::new(config.clone(), SIZE, key(n == CLIENTS && choice & 4 != 0));
            let id = n as u64;
            endpoint.connect(address(0), id);
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
    // What went over the network, for copies and forgeries.
    let mut seen: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
    while !input.0.is_empty() {
        let what = input.byte();
        let which = usize::from(what >> 4) % CLIENTS;
        let (from, mut datagram) = match what & 7 {
            0..=2 => match send(&mut clients[which], now) {
                Some(datagram) => (clients[which].from, datagram),
                None => continue,
            },
            3 if !seen.is_empty() => {
                let (from, datagram) = &seen[usize::from(input.byte()) % seen.len()];
                (*from, datagram.clone())
            }
            4 if !seen.is_empty() => {
                let (from, datagram) = &seen[usize::from(input.byte()) % seen.len()];
                let (from, mut datagram) = (*from, datagram.clone());
                let at = usize::from(input.byte()) % datagram.len().max(1);
                if let Some(byte) = datagram.get_mut(at) {
                    *byte ^= input.byte();
                }
                datagram.truncate(usize::from(input.byte()) * 2);
                (from, datagram)
            }
            5 => (address(which), input.bytes(SIZE)),
            6 => {
                now += Duration::from_millis(u64::from(input.byte()) * 50);
                continue;
            }
            _ => {
                server.remove(now, u64::from(what >> 4));
                continue;
            }
        };
        if seen.len() < 64 {
            seen.push((from, datagram.clone()));
        }
        let answer = arrives(&mut server, now, from, &mut datagram);
        assert!(server.len() <= PLACES, "more connections than places");
        let Some((to, mut answer)) = answer else { continue };
        assert!(
            answer.len() <= datagram.len(),
            "an answer is no longer than what it answers"
        );
        let client = clients.iter_mut().find(|client| client.from == to);
        if let Some(client) = client {
            let mut side = Side::default();
            let arrival = client
                .endpoint
                .receive(now, address(0), &mut answer, &mut side, &mut [0; SIZE]);
            if let Ok(Arrival::Segment(_, segment, _)) = arrival {
                client.connection.handle(now, &segment, &side, &mut client.control);
            }
        }
    }
}

fn send(client: &mut Client, now: Time) -> Option<Vec<u8>> {
    let mut side = Side::default();
    let segment = client.connection.transmit(now, 0, &mut side)?;
    let mut out = vec![0; SIZE];
    let fill = |payload: &mut [u8]| payload.fill(0x77);
    let (length, _) = client.endpoint.write(client.id, &segment, &mut side, &mut out, fill)?;
    out.truncate(length);
    Some(out)
}

/// What the server answers at once, and to whom.
fn arrives(server: &mut Endpoint, now: Time, from: SocketAddr, datagram: &mut [u8]) -> Option<(SocketAddr, Vec<u8>)> {
    let (mut side, mut out) = (Side::default(), vec![0; SIZE]);
    match server.receive(now, from, datagram, &mut side, &mut out).ok()? {
        Arrival::Answer(length) => {
            out.truncate(length);
            Some((from, out))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;

    #[test]
    fn whatever_comes_to_an_endpoint_it_keeps_its_places() {
        for seed in 0..2_000u64 {
            let mut data = [0; 300];
            Pcg32::new(seed, 1).fill_bytes(&mut data);
            super::endpoint(&data);
        }
    }
}
