//! Two ends of the transport in memory, without a socket: time is virtual, cost is real.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ccplane_transport::{Connection, Native, SideData, TransportConfig};
use ccplane_udp::endpoint::{DatagramOutcome, Endpoint, ListenLimits, mss};
use ccplane_units::{Duration, Time};

use super::{DATAGRAM, ROUND};
use crate::Error;

/// The virtual time between two rounds.
const BETWEEN: Duration = Duration::from_micros(50);

/// A sender and a receiver, and the datagrams between them.
pub(super) struct Pair {
    now: Time,
    sender: End,
    receiver: End,
    payload: Vec<u8>,
    /// Datagrams under way, and the length of each.
    buffers: Vec<Vec<u8>>,
    lengths: Vec<usize>,
    spent: Spent,
}

struct End {
    config: Arc<TransportConfig>,
    endpoint: Endpoint,
    connection: Option<Connection>,
    id: u64,
    control: Native,
    address: SocketAddr,
}

/// What packets cost so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Spent {
    pub packets: u64,
    pub send_ns: u64,
    pub receive_ns: u64,
}

impl Spent {
    pub fn since(self, earlier: Spent) -> Spent {
        Spent {
            packets: self.packets - earlier.packets,
            send_ns: self.send_ns - earlier.send_ns,
            receive_ns: self.receive_ns - earlier.receive_ns,
        }
    }
}

impl Pair {
    /// Both after the handshake.
    pub fn new() -> Result<Pair, Error> {
        let config = Arc::new(TransportConfig {
            mss: mss(DATAGRAM, false, false),
            receive_buffer: 4 << 20,
            ..TransportConfig::default()
        });
        let end = |port| End {
            config: config.clone(),
            endpoint: Endpoint::new(config.clone(), DATAGRAM, None),
            connection: None,
            id: 0,
            control: Native::cubic(),
            address: SocketAddr::from(([127, 0, 0, 1], port)),
        };
        let (mut sender, mut receiver) = (end(1), end(2));
        let now = Time::ZERO + Duration::from_secs(1);
        receiver
            .endpoint
            .listen([7; 32], ListenLimits::connections(1));
        sender.id = 42;
        let failed = || Error::failed("no handshake between two ends in memory");
        let begun = sender.endpoint.connect(receiver.address, sender.id);
        begun.map_err(|_| failed())?;
        let mut connection = Connection::connect(&config, now);
        connection.require_proof(&[1; 16]);
        sender.connection = Some(connection);
        let mut pair = Pair {
            now,
            sender,
            receiver,
            payload: vec![0x5a; 1 << 21],
            buffers: vec![vec![0; DATAGRAM]; 2 * ROUND],
            lengths: Vec::with_capacity(2 * ROUND),
            spent: Spent::default(),
        };
        pair.shake_hands().ok_or_else(failed)?;
        Ok(pair)
    }

    /// Carries so many packets; an error when nothing moves.
    pub fn carry(&mut self, packets: u64) -> Result<(), Error> {
        let until = self.spent.packets + packets;
        let mut idle = 0;
        while self.spent.packets < until {
            if let Some(connection) = &mut self.sender.connection {
                connection.write(ROUND as u64 * connection.mss());
            }
            idle = if self.round() == 0 { idle + 1 } else { 0 };
            if idle > 100_000 {
                return Err(Error::failed(
                    "the transport stands still between two ends in memory",
                ));
            }
        }
        Ok(())
    }

    /// What all packets cost so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// One round: data there, acknowledgements back. How many packets of data there were.
    fn round(&mut self) -> u64 {
        self.now += BETWEEN;
        let (now, buffers, lengths) = (self.now, &mut self.buffers, &mut self.lengths);
        self.spent.send_ns += Self::send(&mut self.sender, now, buffers, lengths, &self.payload);
        let count = lengths.len() as u64;
        let from = self.sender.address;
        self.spent.receive_ns += Self::take(
            &mut self.receiver,
            from,
            now,
            buffers,
            lengths,
            &mut self.payload,
        );
        self.spent.receive_ns += Self::send(&mut self.receiver, now, buffers, lengths, &[]);
        let from = self.receiver.address;
        self.spent.send_ns += Self::take(&mut self.sender, from, now, buffers, lengths, &mut []);
        self.spent.packets += count;
        count
    }

    /// Writes what an end has to send; ns that it took.
    fn send(
        end: &mut End,
        now: Time,
        buffers: &mut [Vec<u8>],
        lengths: &mut Vec<usize>,
        payload: &[u8],
    ) -> u64 {
        lengths.clear();
        let begun = Instant::now();
        let Some(connection) = &mut end.connection else {
            return 0;
        };
        if connection.next_timeout().is_some_and(|due| due <= now) {
            connection.on_timeout(now, &mut end.control);
        }
        let mut side = SideData::default();
        for buffer in buffers.iter_mut().take(ROUND) {
            if !connection.has_segment(now, 0) {
                break;
            }
            let Some(segment) = connection.transmit(now, 0, &mut side) else {
                break;
            };
            let prove = |side: &SideData| connection.prove(&segment, side);
            let fill = |out: &mut [u8]| {
                let at = segment.offset() as usize % (payload.len() / 2).max(1);
                out.copy_from_slice(&payload[at..at + out.len()]);
            };
            let written = end
                .endpoint
                .write(end.id, &segment, &mut side, buffer, prove, fill);
            lengths.push(written.map_or(0, |(length, _)| length));
            if segment.has_side() {
                side = SideData::default();
            }
        }
        begun.elapsed().as_nanos() as u64
    }

    /// Reads what came from the other end; ns that it took.
    fn take(
        end: &mut End,
        from: SocketAddr,
        now: Time,
        buffers: &mut [Vec<u8>],
        lengths: &[usize],
        payload: &mut [u8],
    ) -> u64 {
        let (mut side, mut answer) = (SideData::default(), [0; 256]);
        let begun = Instant::now();
        for (buffer, length) in buffers.iter_mut().zip(lengths) {
            let arrival =
                end.endpoint
                    .receive(now, from, &mut buffer[..*length], &mut side, &mut answer);
            let (segment, proof, data) = match arrival {
                Ok(DatagramOutcome::Segment(_, segment, proof, data)) => (segment, proof, data),
                Ok(DatagramOutcome::Accepted {
                    id,
                    open,
                    segment,
                    proof,
                    payload,
                    ..
                }) => {
                    end.id = id;
                    end.connection = Connection::accept(&end.config, now, &open);
                    if let Some(connection) = &mut end.connection {
                        connection.require_proof(&[2; 16]);
                    }
                    (segment, proof, payload)
                }
                Ok(_) | Err(_) => continue,
            };
            if let Some(connection) = &mut end.connection {
                if !payload.is_empty() {
                    let at = segment.offset() as usize % (payload.len() / 2);
                    payload[at..at + data.len()].copy_from_slice(&buffer[data]);
                }
                connection.handle_with_proof((now, now), &segment, &side, &proof, &mut end.control);
                let readable = connection.readable();
                connection.read(readable);
            }
        }
        begun.elapsed().as_nanos() as u64
    }

    /// The hello and its answer, after which every datagram belongs to a connection.
    fn shake_hands(&mut self) -> Option<()> {
        Self::send(
            &mut self.sender,
            self.now,
            &mut self.buffers,
            &mut self.lengths,
            &[0; 2],
        );
        let hello = &mut self.buffers[0][..*self.lengths.first()?];
        let (mut side, mut answer, from) = (SideData::default(), [0; 256], self.sender.address);
        let arrival = self
            .receiver
            .endpoint
            .receive(self.now, from, hello, &mut side, &mut answer);
        let Ok(DatagramOutcome::Answer(length, _)) = arrival else {
            return None;
        };
        self.buffers[0][..length].copy_from_slice(&answer[..length]);
        let from = self.receiver.address;
        Self::take(
            &mut self.sender,
            from,
            self.now,
            &mut self.buffers,
            &[length],
            &mut [],
        );
        Some(())
    }

    /// What both ends take in memory when everything is acknowledged and nothing is under way.
    pub fn idle_bytes(&mut self) -> usize {
        for _ in 0..1000 {
            self.round();
        }
        let ends = [&mut self.sender, &mut self.receiver];
        ends.into_iter()
            .map(|end| {
                let idle = end.connection.as_mut().map_or(0, |connection| {
                    connection.shrink();
                    connection.memory_bytes()
                });
                idle + size_of::<Native>()
            })
            .sum()
    }
}
