//! Two ends of a connection over a simulated wire, in virtual time.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ccplane_transport::{
    CLASS_COUNT, CongestionControl, Connection, ConnectionState, Ecn, Native, Proof, Segment,
    SegmentKind, SideData, TransportConfig,
};
use ccplane_units::{Duration, Time};

/// Fate of a packet: it is delivered at each time in `arrivals`, and lost if there is none.
pub trait Path {
    fn pass(&mut self, now: Time, from: usize, segment: &mut Segment, arrivals: &mut Vec<Time>);
}

/// Lossless path with a constant delay.
pub struct Delay(pub Duration);

impl Path for Delay {
    fn pass(&mut self, now: Time, _from: usize, _segment: &mut Segment, arrivals: &mut Vec<Time>) {
        arrivals.push(now + self.0);
    }
}

impl<F: FnMut(Time, usize, &mut Segment, &mut Vec<Time>)> Path for F {
    fn pass(&mut self, now: Time, from: usize, segment: &mut Segment, arrivals: &mut Vec<Time>) {
        self(now, from, segment, arrivals);
    }
}

/// Link of constant rate with a drop-tail queue from end 0 to end 1, and a constant delay in the
/// other direction.
pub struct Bottleneck {
    pub rate: u64,
    pub delay: Duration,
    pub queue: u64,
    /// Queue length from which packets are marked, bytes.
    pub mark_from: u64,
    free_at: Time,
    pub dropped: u64,
    pub marked: u64,
}

impl Bottleneck {
    pub fn new(rate: u64, delay: Duration, queue: u64) -> Bottleneck {
        Bottleneck {
            rate,
            delay,
            queue,
            mark_from: u64::MAX,
            free_at: Time::ZERO,
            dropped: 0,
            marked: 0,
        }
    }
}

impl Path for Bottleneck {
    fn pass(&mut self, now: Time, from: usize, segment: &mut Segment, arrivals: &mut Vec<Time>) {
        if from == 1 {
            return arrivals.push(now + self.delay);
        }
        let bytes = u64::from(segment.length) + 52;
        let backlog = self.free_at.since(now).as_nanos() * self.rate / 1_000_000_000;
        if backlog + bytes > self.queue {
            self.dropped += 1;
            return;
        }
        if backlog >= self.mark_from && segment.ecn != Ecn::NotEct {
            segment.ecn = Ecn::Ce;
            self.marked += 1;
        }
        self.free_at =
            self.free_at.max(now) + Duration::from_nanos(bytes * 1_000_000_000 / self.rate);
        arrivals.push(self.free_at + self.delay);
    }
}

pub struct End<C> {
    pub connection: Option<Connection>,
    pub control: C,
    config: Arc<TransportConfig>,
    /// Stream offset and length of each segment number.
    sent: HashMap<u32, (u64, u16)>,
    /// Bytes read by the application.
    pub read: u64,
    /// The application reads immediately.
    pub reads: bool,
    /// Bytes to write when the connection is established, and whether to finish the stream then.
    pub plan: u64,
    pub finishes: bool,
    pub sent_packets: u64,
    pub sent_acks: u64,
    pub armed: Option<Time>,
}

pub struct Pair<P, C = Native> {
    pub now: Time,
    pub ends: [End<C>; 2],
    pub path: P,
    flying: BTreeMap<(Time, u64), (usize, Segment, SideData, Proof)>,
    serial: u64,
    arrivals: Vec<Time>,
    pub log: Option<Vec<(Time, usize, Segment)>>,
    /// Clock of each end for time stamps.
    pub clocks: [fn(Time) -> Time; 2],
    proves: bool,
}

impl<P: Path, C: CongestionControl> Pair<P, C> {
    /// Creates a client that sends `bytes[0]` and finishes, and a server that sends `bytes[1]` and
    /// finishes.
    pub fn new(config: &TransportConfig, control: [C; 2], path: P, bytes: [u64; 2]) -> Pair<P, C> {
        Pair::with([config.clone(), config.clone()], control, path, bytes)
    }

    pub fn with(
        config: [TransportConfig; 2],
        control: [C; 2],
        path: P,
        bytes: [u64; 2],
    ) -> Pair<P, C> {
        let [mut client, server] = {
            let [a, b] = config;
            let [c, d] = control;
            [(a, c, bytes[0]), (b, d, bytes[1])].map(|(config, control, plan)| End {
                connection: None,
                control,
                config: Arc::new(config),
                sent: HashMap::new(),
                read: 0,
                reads: true,
                plan,
                finishes: true,
                sent_packets: 0,
                sent_acks: 0,
                armed: None,
            })
        };
        let mut connection = Connection::connect(&client.config, Time::ZERO);
        connection.write(client.plan);
        client.connection = Some(connection);
        Pair {
            now: Time::ZERO,
            ends: [client, server],
            path,
            flying: BTreeMap::new(),
            serial: 0,
            arrivals: Vec::new(),
            log: None,
            clocks: [|now| now; 2],
            proves: false,
        }
    }

    /// Makes both ends prove receipt.
    pub fn require_proof(&mut self) {
        self.proves = true;
        self.connection_mut(0).require_proof(&[1; 16]);
    }

    pub fn connection(&self, end: usize) -> &Connection {
        self.ends[end]
            .connection
            .as_ref()
            .expect("the connection exists")
    }

    pub fn connection_mut(&mut self, end: usize) -> &mut Connection {
        self.ends[end]
            .connection
            .as_mut()
            .expect("the connection exists")
    }

    /// Returns true if everything that the first end wrote is acknowledged.
    pub fn all_acked(&self) -> bool {
        let sender = self.ends[0].connection.as_ref();
        sender.is_some_and(Connection::all_acked)
    }

    pub fn is_over(&self) -> bool {
        self.ends.iter().all(|end| {
            end.connection
                .as_ref()
                .is_some_and(|c| c.state() == ConnectionState::Closed)
        })
    }

    /// Drops all packets on the wire.
    pub fn lose_all(&mut self) {
        self.flying.clear();
    }

    /// Bytes received in order at an end.
    pub fn received(&self, end: usize) -> u64 {
        self.ends[end]
            .connection
            .as_ref()
            .map_or(0, |connection| connection.stats().received)
    }

    /// Sends everything that an end may send.
    pub fn drain(&mut self, which: usize) {
        let end = &mut self.ends[which];
        let Some(connection) = end.connection.as_mut() else {
            return;
        };
        if end.finishes {
            connection.finish();
        }
        if end.reads {
            end.read += connection.read(u64::MAX);
        }
        let mut budget = 200_000;
        for class in 0..CLASS_COUNT {
            while connection.has_segment(self.now, class) {
                budget -= 1;
                assert!(
                    budget > 0,
                    "a connection never stops sending: {connection:?}"
                );
                let mut side = SideData::default();
                let Some(mut segment) = connection.transmit(self.now, class, &mut side) else {
                    panic!("`has` returned true: {connection:?}");
                };
                assert_eq!(segment.class, class);
                let proof = connection.prove(&segment, &side);
                match segment.kind {
                    SegmentKind::Ack => side.t3 = self.clocks[which](side.t3),
                    _ => side.t1 = self.clocks[which](side.t1),
                }
                if segment.kind == SegmentKind::Data {
                    end.sent_packets += 1;
                    let place = (segment.offset(), segment.length);
                    let known = *end.sent.entry(segment.number.0).or_insert(place);
                    assert_eq!(known, place, "segment {} changed", segment.number.0);
                } else {
                    end.sent_acks += 1;
                }
                if let Some(log) = &mut self.log {
                    log.push((self.now, which, segment));
                }
                self.arrivals.clear();
                self.path
                    .pass(self.now, which, &mut segment, &mut self.arrivals);
                for at in &self.arrivals {
                    self.serial += 1;
                    self.flying
                        .insert((*at, self.serial), (1 - which, segment, side, proof));
                }
            }
        }
    }

    /// Processes the next event. Returns false if there is none.
    pub fn step(&mut self, until: Time) -> bool {
        for which in 0..2 {
            self.drain(which);
        }
        let arrival = self.flying.keys().next().copied();
        let mut timer: Option<(Time, usize)> = None;
        for (which, end) in self.ends.iter().enumerate() {
            if let Some(connection) = &end.connection {
                let next = [connection.next_timeout(), connection.next_send(self.now)];
                for at in next.into_iter().flatten() {
                    timer = Some(timer.map_or((at, which), |other| other.min((at, which))));
                }
            }
        }
        let next = match (arrival, timer) {
            (Some((at, _)), Some((due, _))) => at.min(due),
            (Some((at, _)), None) => at,
            (None, Some((due, _))) => due,
            (None, None) => return false,
        };
        if next > until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(next);
        if let Some(key) = arrival.filter(|(at, _)| *at == next) {
            let (to, segment, side, proof) = self.flying.remove(&key).expect("it exists");
            self.arrive(to, &segment, &side, &proof);
        } else if let Some((_, which)) = timer {
            let end = &mut self.ends[which];
            if let Some(connection) = &mut end.connection
                && connection.next_timeout().is_some_and(|at| at <= self.now)
            {
                connection.on_timeout(self.now, &mut end.control);
            }
        }
        true
    }

    fn arrive(&mut self, to: usize, segment: &Segment, side: &SideData, proof: &Proof) {
        let end = &mut self.ends[to];
        match &mut end.connection {
            Some(connection) => {
                let before = connection.stats().received;
                let arrived = self.clocks[to](self.now);
                connection.handle_with_proof(
                    (self.now, arrived),
                    segment,
                    side,
                    proof,
                    &mut end.control,
                );
                let after = connection.stats().received;
                assert!(
                    after >= before,
                    "the stream went back from {before} to {after}"
                );
            }
            None => {
                end.connection = Connection::accept(&end.config, self.now, segment);
                if let Some(connection) = &mut end.connection {
                    if self.proves {
                        connection.require_proof(&[2; 16]);
                    }
                    connection.write(end.plan);
                }
            }
        }
    }

    pub fn run(&mut self, until: Time) {
        while self.step(until) {}
    }
}

pub fn secs(s: u64) -> Time {
    Time::ZERO + Duration::from_secs(s)
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
