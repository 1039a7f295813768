//! Benchmark loop: two ends of a connection exchange segments. Per round, segments beyond a limit
//! are lost, so that the congestion control oscillates as with a short queue. The caller measures
//! time.

use std::sync::Arc;

use ccplane_transport::{Connection, Native, Proof, Segment, SideData, TransportConfig};
use ccplane_units::{Duration, Time};

/// Two ends and a window of segments in flight.
#[derive(Debug)]
pub struct Exchange {
    now: Time,
    sender: Connection,
    receiver: Connection,
    control: Native,
    idle: Native,
    data: Vec<(Segment, Proof)>,
    acks: Vec<(Segment, SideData, Proof)>,
    proves: bool,
}

/// Packets per round that arrive.
const ROUND_PACKETS_MAX: usize = 64;

impl Exchange {
    /// Creates an unlimited sender under `control`, after its window has converged. With `proves`
    /// the receiver must prove receipt.
    pub fn new(config: TransportConfig, control: Native, proves: bool) -> Exchange {
        let config = Arc::new(TransportConfig {
            discard: true,
            ..config
        });
        let mut sender = Connection::connect(&config, Time::ZERO);
        if proves {
            sender.require_proof(&[1; 16]);
        }
        let mut side = SideData::default();
        sender.write(u64::MAX);
        let mut control = control;
        let idle = Native::new_reno();
        let open = sender
            .transmit(Time::ZERO, 0, &mut side)
            .unwrap_or_default();
        let now = Time::ZERO + Duration::from_micros(20);
        let mut receiver = Connection::accept(&config, now, &open)
            .unwrap_or_else(|| Connection::connect(&config, now));
        let reply = receiver.transmit(now, 0, &mut side).unwrap_or_default();
        sender.handle(now, &reply, &side, &mut control);
        let mut exchange = Exchange {
            now,
            sender,
            receiver,
            control,
            idle,
            data: Vec::with_capacity(1 << 10),
            acks: Vec::with_capacity(1 << 10),
            proves,
        };
        for _ in 0..200 {
            exchange.send();
            exchange.receive();
            exchange.acknowledge();
        }
        exchange
    }

    /// Sends as many segments as the window allows. Returns their number.
    #[inline(never)]
    pub fn send(&mut self) -> usize {
        self.data.clear();
        let mut side = SideData::default();
        self.now += Duration::from_micros(10);
        while let Some(segment) = self.sender.transmit(self.now, 0, &mut side) {
            let proof = if self.proves {
                self.sender.prove(&segment, &side)
            } else {
                Proof::default()
            };
            self.data.push((segment, proof));
        }
        self.data.len()
    }

    /// Delivers them to the receiver. Returns the number of acknowledgements.
    #[inline(never)]
    pub fn receive(&mut self) -> usize {
        self.acks.clear();
        let mut side = SideData::default();
        self.now += Duration::from_micros(10);
        for (segment, proof) in self.data.iter().take(ROUND_PACKETS_MAX) {
            self.now += Duration::from_nanos(1200);
            let now = (self.now, self.now);
            self.receiver
                .handle_with_proof(now, segment, &side, proof, &mut self.idle);
            if let Some(ack) = self.receiver.transmit(self.now, 0, &mut side) {
                let proof = if self.proves {
                    self.receiver.prove(&ack, &side)
                } else {
                    Proof::default()
                };
                self.acks.push((ack, side, proof));
                side = SideData::default();
            }
        }
        self.acks.len()
    }

    /// Delivers the acknowledgements to the sender.
    #[inline(never)]
    pub fn acknowledge(&mut self) {
        for (ack, side, proof) in &self.acks {
            self.now += Duration::from_nanos(1200);
            let now = (self.now, self.now);
            self.sender
                .handle_with_proof(now, ack, side, proof, &mut self.control);
        }
        if self.sender.next_timeout().is_some_and(|at| at <= self.now) {
            self.sender.on_timeout(self.now, &mut self.control);
        }
        if self
            .receiver
            .next_timeout()
            .is_some_and(|at| at <= self.now)
        {
            self.receiver.on_timeout(self.now, &mut self.idle);
        }
    }

    /// Segments retransmitted so far.
    pub fn retransmitted(&self) -> u32 {
        self.sender.stats().retransmitted
    }
}
