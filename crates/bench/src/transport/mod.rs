//! `ccplane bench transport`: what a packet costs the transport, and how fast its UDP driver and the kernel's TCP are on loopback.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ccplane_lab::Diag;
use ccplane_lab::traffic::{self, Plan};
use ccplane_transport::endpoint::{Arrival, Endpoint, Limits, mss};
use ccplane_transport::udp::{Congestion, Host, Options, Stamping};
use ccplane_transport::{Config, Connection, Native, Side, Tail};
use ccplane_units::{Duration, Rate, Time};

use ccplane_report::Aim;

use super::Figures;
use crate::exit::{Failure, Kind};
use crate::transfer::cpu_seconds;

/// Bytes of a datagram: 1500 less IPv4's and UDP's headers.
const DATAGRAM: usize = 1472;
/// Packets to warm up with, until rings and windows have their size, and to measure.
const WARM: u64 = 100_000;
const PACKETS: u64 = 500_000;
/// Packets handed over at once, as many as the kernel joins of this size, and the virtual time between two such rounds.
const ROUND: usize = 44;
const BETWEEN: Duration = Duration::from_micros(50);
/// The limit of a paced run.
const LIMIT: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// For how long the sockets run each time, and how often; figures are medians.
const RUN: Duration = Duration::from_secs(2);
const RUNS: usize = 3;

/// Runs the benchmark: some 20 s.
pub fn run() -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    let mut pair = Pair::new()?;
    pair.carry(WARM)?;
    pair.spent = Spent::default();
    let mut outcome = Ok(());
    let allocations = count_allocations(|| outcome = pair.carry(PACKETS));
    outcome?;
    let packets = pair.spent.packets as f64;
    let per_packet = |ns: u64| ns as f64 / packets;
    let reference = "codec and copy of payload included";
    figures.add("send_ns", per_packet(pair.spent.send_ns), "ns/packet", None, reference);
    figures.add(
        "receive_ns",
        per_packet(pair.spent.receive_ns),
        "ns/packet",
        None,
        reference,
    );
    match allocations {
        Some(count) => figures.add(
            "allocations_per_packet",
            count as f64 / packets,
            "",
            Some(Aim::AtMost(0.0)),
            "",
        ),
        None => figures.note("built without the feature `allocations`: they were not counted"),
    }
    figures.add(
        "flow_bytes",
        pair.idle_bytes() as f64,
        "bytes",
        Some(Aim::AtMost(1024.0)),
        "both ends under native Cubic, idle",
    );

    let plain = Config::default();
    let limited = Config {
        max_rate: Some(LIMIT),
        ..plain.clone()
    };
    let with_stamps = Config {
        stamps: true,
        ..plain.clone()
    };
    let with_tail = |config: &Config| Config {
        tail: Some(Tail::default()),
        ..config.clone()
    };
    let (mut udp, mut paced, mut stamped, mut tcp) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut tail, mut paced_tail) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        udp.push(over_udp(&plain)?);
        tail.push(over_udp(&with_tail(&plain))?);
        paced.push(over_udp(&limited)?);
        paced_tail.push(over_udp(&with_tail(&limited))?);
        stamped.push(over_udp(&with_stamps)?);
        tcp.push(over_tcp()?);
    }
    let aim = Some(Aim::AtLeast(3.0));
    figures.add("udp_loopback_gbps", median(&udp, |run| run.gbps), "Gbit/s", aim, "");
    figures.add(
        "udp_cpu_s_per_gb",
        median(&udp, |run| run.cpu_s_per_gb),
        "s/GB",
        None,
        "both ends, user and system",
    );
    figures.add(
        "udp_limited_gbps",
        median(&paced, |run| run.gbps),
        "Gbit/s",
        // 98 % of 1429 bytes in 1487.
        Some(Aim::AtLeast(0.942)),
        "payload under a limit of 1 Gbit/s with headers",
    );
    figures.add(
        "udp_limited_cpu_s_per_gb",
        median(&paced, |run| run.cpu_s_per_gb),
        "s/GB",
        Some(Aim::AtMost(1.0)),
        "both ends, user and system",
    );
    figures.add(
        "udp_stamped_gbps",
        median(&stamped, |run| run.gbps),
        "Gbit/s",
        None,
        "with the kernel's time stamps: each datagram a packet of its own, and an acknowledgement for each",
    );
    figures.add(
        "udp_stamped_cpu_s_per_gb",
        median(&stamped, |run| run.cpu_s_per_gb),
        "s/GB",
        None,
        "both ends, user and system",
    );
    figures.add(
        "udp_tail_gbps",
        median(&tail, |run| run.gbps),
        "Gbit/s",
        None,
        "with the second loop",
    );
    figures.add(
        "udp_tail_cpu_s_per_gb",
        median(&tail, |run| run.cpu_s_per_gb),
        "s/GB",
        None,
        "both ends, user and system",
    );
    figures.add(
        "udp_tail_cpu_ratio",
        median(&tail, |run| run.cpu_s_per_gb) / median(&udp, |run| run.cpu_s_per_gb),
        "",
        Some(Aim::AtMost(1.1)),
        "to that without, as fast as it goes",
    );
    figures.add(
        "udp_limited_tail_cpu_ratio",
        median(&paced_tail, |run| run.cpu_s_per_gb) / median(&paced, |run| run.cpu_s_per_gb),
        "",
        Some(Aim::AtMost(1.1)),
        "to that without, under the limit of 1 Gbit/s",
    );
    figures.add(
        "tcp_loopback_gbps",
        median(&tcp, |run| run.gbps),
        "Gbit/s",
        None,
        "kernel TCP in the same run",
    );
    figures.add(
        "tcp_cpu_s_per_gb",
        median(&tcp, |run| run.cpu_s_per_gb),
        "s/GB",
        None,
        "both ends, user and system",
    );
    figures.note(format!(
        "per packet: {PACKETS} full segments between two connections in memory, {ROUND} at a time; send: segment, codec, copy, and \
         its share of acknowledgements; receive: codec, connection, and the acknowledgement of a round"
    ));
    figures.note(format!(
        "loopback: one connection, native Cubic, datagrams of {DATAGRAM} bytes, no key, no hash; medians of {RUNS} runs of {RUN}; \
         kernel TCP has loopback's 64 kB packets"
    ));
    Ok(figures)
}

/// Allocations and reallocations of this thread while `work` runs; `None` where nobody counts.
fn count_allocations(work: impl FnOnce()) -> Option<u64> {
    #[cfg(feature = "allocations")]
    return Some(allocation_counter::measure(work).count_total);
    #[cfg(not(feature = "allocations"))]
    {
        work();
        None
    }
}

/// A sender and a receiver, and the datagrams between them, without a socket. Time is virtual, cost is real.
struct Pair {
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
    config: Arc<Config>,
    endpoint: Endpoint,
    connection: Option<Connection>,
    id: u64,
    control: Native,
    address: SocketAddr,
}

#[derive(Default)]
struct Spent {
    packets: u64,
    send_ns: u64,
    receive_ns: u64,
}

impl Pair {
    fn new() -> Result<Pair, Failure> {
        let config = Arc::new(Config {
            mss: mss(DATAGRAM, false, false),
            receive_buffer: 4 << 20,
            ..Config::default()
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
        receiver.endpoint.listen([7; 32], Limits::places(1));
        sender.id = 42;
        sender.endpoint.connect(receiver.address, sender.id);
        let connection = Connection::connect(&config, now);
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
        let failed = || Failure::text(Kind::Failed, "no handshake between two ends in memory");
        pair.shake_hands().ok_or_else(failed)?;
        Ok(pair)
    }

    /// Carries so many packets; an error when nothing moves.
    fn carry(&mut self, packets: u64) -> Result<(), Failure> {
        let until = self.spent.packets + packets;
        let mut idle = 0;
        while self.spent.packets < until {
            if let Some(connection) = &mut self.sender.connection {
                connection.write(ROUND as u64 * connection.mss());
            }
            idle = if self.round() == 0 { idle + 1 } else { 0 };
            if idle > 100_000 {
                return Err(Failure::text(
                    Kind::Failed,
                    "the transport stands still between two ends in memory",
                ));
            }
        }
        Ok(())
    }

    /// One round: data there, acknowledgements back. How many packets of data there were.
    fn round(&mut self) -> u64 {
        self.now += BETWEEN;
        let (now, buffers, lengths) = (self.now, &mut self.buffers, &mut self.lengths);
        self.spent.send_ns += Self::send(&mut self.sender, now, buffers, lengths, &self.payload);
        let count = lengths.len() as u64;
        let from = self.sender.address;
        self.spent.receive_ns += Self::take(&mut self.receiver, from, now, buffers, lengths, &mut self.payload);
        self.spent.receive_ns += Self::send(&mut self.receiver, now, buffers, lengths, &[]);
        let from = self.receiver.address;
        self.spent.send_ns += Self::take(&mut self.sender, from, now, buffers, lengths, &mut []);
        self.spent.packets += count;
        count
    }

    /// Writes what an end has to send; ns that it took.
    fn send(end: &mut End, now: Time, buffers: &mut [Vec<u8>], lengths: &mut Vec<usize>, payload: &[u8]) -> u64 {
        lengths.clear();
        let begun = Instant::now();
        let Some(connection) = &mut end.connection else {
            return 0;
        };
        if connection.next_timeout().is_some_and(|due| due <= now) {
            connection.on_timeout(now, &mut end.control);
        }
        let mut side = Side::default();
        for buffer in buffers.iter_mut().take(ROUND) {
            if !connection.has(now, 0) {
                break;
            }
            let Some(segment) = connection.transmit(now, 0, &mut side) else {
                break;
            };
            let fill = |out: &mut [u8]| {
                let at = segment.offset() as usize % (payload.len() / 2).max(1);
                out.copy_from_slice(&payload[at..at + out.len()]);
            };
            let written = end.endpoint.write(end.id, &segment, &mut side, buffer, fill);
            lengths.push(written.map_or(0, |(length, _)| length));
            if segment.has_side() {
                side = Side::default();
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
        let (mut side, mut answer) = (Side::default(), [0; 256]);
        let begun = Instant::now();
        for (buffer, length) in buffers.iter_mut().zip(lengths) {
            let arrival = end
                .endpoint
                .receive(now, from, &mut buffer[..*length], &mut side, &mut answer);
            let (segment, data) = match arrival {
                Ok(Arrival::Segment(_, segment, data)) => (segment, data),
                Ok(Arrival::Accepted {
                    id,
                    open,
                    segment,
                    payload,
                    ..
                }) => {
                    end.id = id;
                    end.connection = Connection::accept(&end.config, now, &open);
                    (segment, payload)
                }
                Ok(Arrival::Answer(_)) | Err(_) => continue,
            };
            if let Some(connection) = &mut end.connection {
                if !payload.is_empty() {
                    let at = segment.offset() as usize % (payload.len() / 2);
                    payload[at..at + data.len()].copy_from_slice(&buffer[data]);
                }
                connection.handle(now, &segment, &side, &mut end.control);
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
        let (mut side, mut answer, from) = (Side::default(), [0; 256], self.sender.address);
        let arrival = self
            .receiver
            .endpoint
            .receive(self.now, from, hello, &mut side, &mut answer);
        let Ok(Arrival::Answer(length)) = arrival else {
            return None;
        };
        self.buffers[0][..length].copy_from_slice(&answer[..length]);
        let from = self.receiver.address;
        Self::take(&mut self.sender, from, self.now, &mut self.buffers, &[length], &mut []);
        Some(())
    }

    /// What both ends take in memory when everything is acknowledged and nothing is under way.
    fn idle_bytes(&mut self) -> usize {
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

/// One run over sockets.
struct Run {
    gbps: f64,
    cpu_s_per_gb: f64,
}

fn median(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Our own transport, a thread an end.
fn over_udp(config: &Config) -> Result<Run, Failure> {
    let fail = |e| Failure::new(Kind::Failed, e);
    let options = || Options {
        local: SocketAddr::from(([127, 0, 0, 1], 0)),
        datagram: DATAGRAM,
        window: 4 << 20,
        key: None,
        dscp: 0,
        config: config.clone(),
        stamping: Stamping::Software,
        link: None,
        accepted: Native::cubic(),
    };
    let mut server = Host::bind(options()).map_err(fail)?;
    server.listen(1).map_err(fail)?;
    let mut client = Host::bind(options()).map_err(fail)?;
    let stop = AtomicBool::new(false);
    let wait = Duration::from_millis(10);
    thread::scope(|scope| {
        let to = server.local();
        let stopped = &stop;
        let receiving = scope.spawn(move || -> Result<u64, Failure> {
            let (mut id, mut received) = (None, 0);
            while !stopped.load(Ordering::Relaxed) {
                server.turn(wait).map_err(fail)?;
                id = id.or_else(|| server.accepted());
                if let Some(id) = id {
                    let (first, second) = server.arrived(id);
                    let taken = first.len() + second.len();
                    server.take(id, taken);
                    received += taken as u64;
                }
            }
            Ok(received)
        });
        let begun = (Instant::now(), cpu_seconds());
        let mut run = || -> Result<(), Failure> {
            let id = client.connect(to, Congestion::Native(Native::cubic())).map_err(fail)?;
            while begun.0.elapsed() < RUN.to_std() {
                let room = client.room(id).len();
                client.wrote(id, room);
                client.turn(wait).map_err(fail)?;
            }
            Ok(())
        };
        let sent = run();
        let (seconds, cpu) = (begun.0.elapsed().as_secs_f64(), cpu_seconds() - begun.1);
        stop.store(true, Ordering::Relaxed);
        let received = receiving
            .join()
            .map_err(|_| Failure::text(Kind::Failed, "the receiving end panicked"))??;
        sent.map(|()| run_of(received, seconds, cpu))
    })
}

/// The kernel's TCP, a thread an end.
fn over_tcp() -> Result<Run, Failure> {
    let fail = |e: std::io::Error| Failure::text(Kind::Failed, format!("TCP on loopback: {e}"));
    let plan = Plan {
        duration: RUN,
        sample_every: Duration::from_millis(200),
        ahead: false,
    };
    let congestion = if traffic::exists("cubic") { "cubic" } else { "reno" };
    let buffer = 4 << 20;
    let listener = traffic::listen(IpAddr::from([127, 0, 0, 1]), buffer).map_err(fail)?;
    let to = listener.local_addr().map_err(fail)?;
    let senders = vec![traffic::connect(to, congestion, buffer).map_err(fail)?];
    let receivers = traffic::accept(&listener, &senders).map_err(fail)?;
    let diag = Diag::open().map_err(fail)?;
    let cpu = cpu_seconds();
    let done = traffic::transfer(senders, receivers, diag, &plan, |_, _| true).map_err(fail)?;
    let cpu = cpu_seconds() - cpu;
    let received = done
        .flows
        .first()
        .and_then(|flow| flow.last())
        .map_or(0, |sample| sample.received);
    Ok(run_of(received, done.elapsed_ns as f64 / 1e9, cpu))
}

fn run_of(bytes: u64, seconds: f64, cpu: f64) -> Run {
    Run {
        gbps: bytes as f64 * 8.0 / seconds / 1e9,
        cpu_s_per_gb: cpu / (bytes as f64 / 1e9),
    }
}
