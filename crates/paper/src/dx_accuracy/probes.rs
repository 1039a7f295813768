//! Slides 18 to 20: one sender keeps a queue full, another sends a packet every 25 ms through it;
//! what does each packet's queueing delay come out as, and what was it?

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_emu::{EmuConfig as Path, Emulator, Gso, LinkConfig, PacketRecord, Timing};
use ccplane_lab::Error;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::scenario::StampErrors;
use ccplane_lab::sim::put_stamps;
use ccplane_qdisc::{LineSpec, QueueSpec, Size};
use ccplane_sim::{
    DataDirection, FlowSpec, LinkSpec, LinkStep, Network, NodeId, PacketEvent, SimError,
    SimOptions, Simulation, Tracer, TransportConfig, default_transport,
};
use ccplane_testbed::BackendError;
use ccplane_testbed::longest_stall;
use ccplane_testbed::machine::MachineWatch;
use ccplane_transport::SegmentKind;
use ccplane_units::{Duration, Rate, Time};
use serde::{Deserialize, Serialize};

use super::stamped::{Datagrams, clock, until};

/// Between two packets of the second sender (slide 19).
pub(super) const EVERY: Duration = Duration::from_millis(25);
/// The first sender begins so late: until then the queue is empty, which is how its least delay is
/// known.
const IDLE: Duration = Duration::from_millis(500);
/// The simulated bottleneck, as the slides'.
const RATE: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// The emulated one: a packet takes 120 µs, far more than an emulator's thread is late.
const EMULATED: Rate = Rate::from_bits_per_sec(100_000_000);
const DELAY: Duration = Duration::from_micros(20);
/// Packets that either queue holds.
const BUFFER: u64 = 250;
/// Bytes of a probe, and of its datagram's contents.
const PROBE: u64 = 1_500;
const CONTENTS: usize = 1_472;

/// A packet's queueing delay as it was and as it was measured, µs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Probe {
    pub truth: f64,
    pub measured: f64,
}

/// All of them, and what a full packet takes on that link, µs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Probes {
    pub all: Vec<Probe>,
    pub packet_us: f64,
    /// Nothing disturbed the measurement, as far as is known.
    pub sound: bool,
    /// What the machine did meanwhile.
    pub disturbed: Vec<String>,
}

impl Probes {
    /// The error that this share of the packets does not exceed, in packets of the link.
    pub fn error(&self, share: f64) -> Option<f64> {
        let errors = self
            .all
            .iter()
            .map(|probe| (probe.measured - probe.truth).abs());
        Distribution::new(errors)
            .quantile(share)
            .map(|us| us / self.packet_us)
    }
}

/// In the simulator, on these stamps.
pub(super) fn simulated(
    stamps: &StampErrors,
    seed: u64,
    length: Duration,
) -> Result<Probes, SimError> {
    let mut network = Network::new();
    let (first, second) = (network.add_host("first"), network.add_host("second"));
    let (switch, receiver) = (network.add_switch("switch"), network.add_host("receiver"));
    let access = |gbit: u64| LinkSpec::new(Rate::from_bits_per_sec(gbit * 1_000_000_000), DELAY);
    // The first sender's own link is faster than the bottleneck, so that the queue is the switch's
    // and not its host's.
    network.add_duplex_link(first, switch, access(10), access(10));
    network.add_duplex_link(second, switch, access(1), access(1));
    let queue = QueueSpec::DropTail(Size::Packets(BUFFER));
    let bottleneck = LinkSpec::new(RATE, DELAY).with_queue(queue, Duration::ZERO);
    let (there, _) =
        network.add_duplex_link(switch, receiver, bottleneck, LinkSpec::new(RATE, DELAY));
    let truth = Truth {
        link: there.index(),
        from: second,
        came: Time::ZERO,
        waited: Vec::new(),
    };
    let mut sim = Simulation::with_tracer(network, SimOptions::seeded(seed), truth)?;
    put_stamps(stamps, &mut sim, [second, receiver].into_iter())?;
    let config = TransportConfig::clone(&default_transport()).stamped();
    let mss = u64::from(config.mss);
    let probes = FlowSpec {
        finish: false,
        ..FlowSpec::new(second, receiver)
            .with_bytes(mss)
            .with_transport(Arc::new(config))
    };
    let load = FlowSpec::new(first, receiver).starting_at(Time::ZERO + IDLE);
    sim.add_flow(load)?;
    let probing = sim.add_flow(probes)?;
    // From the first probe on, which the handshake carries with it.
    sim.run_until(Time::ZERO + EVERY)?;
    let mut all = Vec::new();
    let mut now = EVERY;
    while now < length {
        let before = sim.tracer().waited.len();
        sim.write(probing, DataDirection::Forward, mss, false);
        now = now + EVERY;
        sim.run_until(Time::ZERO + now)?;
        let measured = sim.one_way_delay(probing);
        let measured = measured.and_then(|one_way| one_way.queue_delay(sim.now(), EVERY));
        // As the queue is far longer than the round trip of the empty path, the transport sends a
        // probe once more before it hears of it: the last of them is the one that was answered
        // last.
        if let (Some(measured), Some(waited), true) = (
            measured,
            sim.tracer().waited.last(),
            sim.tracer().waited.len() > before,
        ) {
            all.push(Probe {
                truth: waited.as_nanos() as f64 / 1e3,
                measured: measured.as_nanos() as f64 / 1e3,
            });
        }
    }
    Ok(Probes {
        all,
        packet_us: packet_us(RATE),
        sound: true,
        disturbed: Vec::new(),
    })
}

fn packet_us(rate: Rate) -> f64 {
    PROBE as f64 * 1e6 / rate.bytes_per_sec() as f64
}

/// How long the probes wait at the bottleneck before their own transmission begins.
struct Truth {
    link: usize,
    from: NodeId,
    came: Time,
    waited: Vec<Duration>,
}

impl Tracer for Truth {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        let probe = seen.from == self.from && seen.segment.kind == SegmentKind::Data;
        if !probe || seen.link.index() != self.link {
            return;
        }
        match seen.step {
            LinkStep::Queued => self.came = now,
            LinkStep::Arrived => {
                let own = RATE.transmission_time(ccplane_units::Bytes::new(u64::from(seen.bytes)))
                    + DELAY;
                self.waited.push(now.since(self.came).saturating_sub(own));
            }
            LinkStep::Dropped(_) => {}
        }
    }
}

/// On real packets, through the emulator, whose log is the truth; by the kernel's stamps of
/// departure and arrival.
pub(super) fn emulated(length: Duration) -> Result<Probes, Error> {
    let way = |line| LinkConfig {
        line,
        delay: Duration::from_millis(1),
        queue: QueueSpec::DropTail(Size::Packets(BUFFER)),
        ..LinkConfig::default()
    };
    let emulator = Emulator::start(Path {
        forward: way(LineSpec::Constant(EMULATED)),
        reverse: way(LineSpec::Unlimited),
        timing: Timing::Precise,
        // Packets that are handed over together would have one stamp.
        gso: Gso::Off,
        ..Path::default()
    })
    .map_err(|error| BackendError::from_emulator(error, false))?;
    let inside = |error| BackendError::from_host(error, false);
    let fail = || Error::traffic("probe the emulated queue", "");
    let patience = std::time::Duration::from_millis(100);
    let (here, there) = (emulator.sender_addr(), emulator.receiver_addr());
    let sender = emulator
        .sender_ns()
        .run(|| Datagrams::bind(here, patience))
        .map_err(inside)?;
    let sender = sender.map_err(fail())?;
    let receiver = emulator
        .receiver_ns()
        .run(|| Datagrams::bind(there, patience))
        .map_err(inside)?;
    let receiver = receiver.map_err(fail())?;
    let listener = emulator
        .receiver_ns()
        .run(|| TcpListener::bind((there, 0)))
        .map_err(inside)?;
    let listener = listener.map_err(fail())?;
    let to = listener.local_addr().map_err(fail())?;
    let load = emulator
        .sender_ns()
        .run(|| TcpStream::connect(to))
        .map_err(inside)?;
    let load = load.map_err(fail())?;
    let (sink, _) = listener.accept().map_err(fail())?;
    let (stop, begun) = (AtomicBool::new(false), clock());
    let end = begun + length.as_nanos();
    let watch = MachineWatch::start();
    let (sent, arrived) = thread::scope(|scope| {
        scope.spawn(|| {
            until(begun + IDLE.as_nanos());
            let block = vec![0; 64 << 10];
            while !stop.load(Ordering::Relaxed) {
                if (&load).write_all(&block).is_err() {
                    break;
                }
            }
        });
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 20];
            while (&sink).read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        let arrivals = scope.spawn(|| arrivals(&receiver, &stop));
        let sent = probe(&sender, &receiver, begun, end);
        // The last ones are under way for as long as the queue is.
        until(clock() + EVERY.as_nanos() * 4);
        stop.store(true, Ordering::Relaxed);
        let _ = load.shutdown(std::net::Shutdown::Both);
        (
            sent,
            arrivals
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))),
        )
    });
    let disturbed = watch
        .finish()
        .disturbances(longest_stall(2e3 * DELAY.as_secs_f64()));
    let (sent, arrived) = (sent.map_err(fail())?, arrived.map_err(fail())?);
    let port = receiver.address().map_err(fail())?.port();
    let report = emulator
        .finish()
        .map_err(|error| BackendError::from_emulator(error, false))?;
    let mut log: Vec<&PacketRecord> = report
        .forward
        .records()
        .filter(|record| record.destination_port == port)
        .collect();
    log.sort_by_key(|record| record.arrived);
    Ok(Probes {
        all: matched(&log, &sent, &arrived),
        packet_us: packet_us(EMULATED),
        sound: report.audit.passed && log.len() == sent.len() && disturbed.is_empty(),
        disturbed,
    })
}

/// Sends a packet every 25 ms; the kernel's stamps of their departures, ns.
fn probe(sender: &Datagrams, receiver: &Datagrams, begun: u64, end: u64) -> io::Result<Vec<u64>> {
    let to = receiver.address()?;
    let mut sent: Vec<u64> = Vec::new();
    while clock() < end {
        let number = sent.len() as u64;
        until(begun + number * EVERY.as_nanos());
        sender.send(to, number, CONTENTS)?;
        sent.push(0);
        sender.departures(|number, ns| {
            if let Some(place) = sent.get_mut(number as usize) {
                *place = ns;
            }
        });
    }
    Ok(sent)
}

/// The kernel's stamps of arrivals: number, ns.
fn arrivals(receiver: &Datagrams, stop: &AtomicBool) -> io::Result<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Some(arrived) = receiver.receive()? {
            all.push((arrived.number, arrived.kernel));
        }
    }
    Ok(all)
}

/// The n-th packet in the log is the n-th that was sent: nothing loses or reorders them on their
/// way to the queue.
fn matched(log: &[&PacketRecord], sent: &[u64], arrived: &[(u64, u64)]) -> Vec<Probe> {
    let pairs = arrived.iter().filter_map(|(number, came)| {
        let number = usize::try_from(*number).ok()?;
        let left = sent.get(number).filter(|left| **left != 0)?;
        let truth = log.get(number)?.sojourn()?;
        Some((truth.as_nanos() as i64, *came as i64 - *left as i64))
    });
    let pairs: Vec<(i64, i64)> = pairs.collect();
    // Above their least, each: propagation and own transmission, offset and all that is always the
    // same.
    let least = |values: &mut dyn Iterator<Item = i64>| values.min().unwrap_or(0);
    let (truth, delay) = (
        least(&mut pairs.iter().map(|p| p.0)),
        least(&mut pairs.iter().map(|p| p.1)),
    );
    let probe = |(t, m): &(i64, i64)| Probe {
        truth: (t - truth) as f64 / 1e3,
        measured: (m - delay) as f64 / 1e3,
    };
    pairs.iter().map(probe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transport's own figure of each packet is what it waited at the switch, to the
    /// nanosecond.
    #[test]
    fn exact_stamps_measure_the_queue_exactly() {
        let probes = simulated(
            &StampErrors::EXACT_TIMESTAMPS,
            1,
            Duration::from_millis(1_500),
        )
        .unwrap();
        assert!(probes.all.len() >= 50, "{}", probes.all.len());
        assert!(
            probes.all.iter().any(|probe| probe.truth > 1_000.0),
            "{probes:?}"
        );
        for probe in &probes.all {
            assert_eq!(probe.measured, probe.truth);
        }
        let hardware = simulated(
            &StampErrors::HARDWARE_TIMESTAMPS,
            1,
            Duration::from_millis(1_500),
        )
        .unwrap();
        let error = hardware.error(0.5).unwrap();
        assert!(error > 0.0 && error < 0.1, "{error} packets of 12 µs");
    }
}
