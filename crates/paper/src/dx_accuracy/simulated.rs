//! Simulated packets: those of a TCP connection with the timestamps of several models of clocks,
//! and probes of a queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccplane_datapath::burst::{LinkPacket, calibrate_batch};
use ccplane_datapath::{ExchangeStamps, OneWay};
use ccplane_lab::scenario::StampErrors;
use ccplane_lab::sim::put_stamps;
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    Carrier, DataDirection, Duty, FlowControl, FlowSpec, LinkSpec, LinkStep, Network, NodeId,
    PacketEvent, Pairs, SimError, SimOptions, Simulation, StampClock, StampModel, Tracer,
    TransportConfig, Workload, WorkloadSpec, default_transport,
};
use ccplane_transport::{Native, SegmentKind};
use ccplane_units::{Bytes, Duration, Rate, Time};

use super::rows::{ACK_BYTES, DATA_BYTES, Exchange, Probe};

const RATE_10G: Rate = Rate::from_bits_per_sec(10_000_000_000);
const RATE_1G: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// Delay of the connection's link.
const DELAY: Duration = Duration::from_micros(5);

const EXACT: StampModel = StampModel::EXACT;
/// Passage between TCP and the driver. The four passages of a round trip have a 99th percentile of
/// 10.0 times the mean, here the 710 µs of slide 8.
const STACK: StampModel = StampModel {
    jitter: Duration::from_micros(71),
    ..EXACT
};
/// A burst of 16 full packets has one timestamp when it departs.
const BURST: StampModel = batch(20);
/// Packets that arrive within a usual interrupt timer have one timestamp.
const INTERRUPT: StampModel = batch(10);
const DRIFT: StampModel = StampModel {
    drift_ppb: 20_000,
    ..EXACT
};

const fn batch(micros: u64) -> StampModel {
    StampModel {
        batch: Duration::from_micros(micros),
        ..EXACT
    }
}

/// Slides 9 to 17. Returns the packets of a connection with the timestamps of each run's clocks;
/// in runs with `idle` the reverse path is empty. Also returns the queueing delays that ccplane
/// computes from clocks that drift; the true ones are zero.
pub(super) fn exchanges(
    seed: u64,
    length: Duration,
) -> Result<(Vec<Exchange>, Vec<Probe>), SimError> {
    let busy = packets(seed, length)?;
    let empty = |exchange: &Exchange| Exchange {
        t4: exchange.t3 + DELAY.as_nanos() as i64,
        ..*exchange
    };
    let idle: Vec<Exchange> = busy.iter().map(empty).collect();
    // Clocks of departures and arrivals of both hosts, or of the sender and of the receiver.
    let both = |run, exchanges, clocks| stamped(run, exchanges, seed, [clocks; 2]);
    let mut calibrated = both("calibrated", &busy, [EXACT, INTERRUPT]);
    calibrate(&mut calibrated, DATA_BYTES, |exchange| &mut exchange.t2);
    calibrate(&mut calibrated, ACK_BYTES, |exchange| &mut exchange.t4);
    let drifting = stamped("idle drift", &idle, seed, [[EXACT; 2], [DRIFT; 2]]);
    let estimates = estimates(&drifting);
    let all = [
        both("stack", &busy, [STACK; 2]),
        both("driver", &busy, [BURST, INTERRUPT]),
        both("paced", &busy, [EXACT, INTERRUPT]),
        both("idle stack", &idle, [STACK; 2]),
        both("idle driver", &idle, [BURST, INTERRUPT]),
        calibrated,
        drifting,
        busy,
    ];
    Ok((all.concat(), estimates))
}

/// Replaces true times by the timestamps of these clocks.
fn stamped(
    run: &'static str,
    exchanges: &[Exchange],
    seed: u64,
    [[sent, acked], [answered, received]]: [[StampModel; 2]; 2],
) -> Vec<Exchange> {
    let clock = |which, model| StampClock::new(model, seed, which, [RATE_10G; 2]);
    let (mut t1, mut t4) = (clock(0, sent), clock(1, acked));
    let (mut t3, mut t2) = (clock(2, answered), clock(3, received));
    let time = |ns: i64| Time::from_nanos(ns as u64);
    let ns = |time: Time| time.as_nanos() as i64;
    let exchange = |exchange: &Exchange| Exchange {
        run,
        t1: ns(t1.departure(time(exchange.t1), DATA_BYTES)),
        t2: ns(t2.arrival(time(exchange.t2), DATA_BYTES)),
        t3: ns(t3.departure(time(exchange.t3), ACK_BYTES)),
        t4: ns(t4.arrival(time(exchange.t4), ACK_BYTES)),
        user: None,
    };
    exchanges.iter().map(exchange).collect()
}

/// Calibrates arrivals that share a timestamp by the transmission times of their packets.
fn calibrate(exchanges: &mut [Exchange], bytes: u32, arrival: fn(&mut Exchange) -> &mut i64) {
    let packet = |exchange: &mut Exchange| LinkPacket {
        stamp: Time::from_nanos(*arrival(exchange) as u64),
        bytes,
    };
    let mut packets: Vec<LinkPacket> = exchanges.iter_mut().map(packet).collect();
    for batch in packets.chunk_by_mut(|a, b| a.stamp == b.stamp) {
        calibrate_batch(batch, RATE_10G);
    }
    for (exchange, packet) in exchanges.iter_mut().zip(packets) {
        *arrival(exchange) = packet.stamp.as_nanos() as i64;
    }
}

/// Returns the queueing delays that ccplane computes at the sender.
fn estimates(exchanges: &[Exchange]) -> Vec<Probe> {
    let mut one_way = OneWay::default();
    let probe = |exchange: &Exchange| {
        let all = [exchange.t1, exchange.t2, exchange.t3, exchange.t4];
        let [t1, t2, t3, t4] = all.map(|ns| Time::from_nanos(ns as u64));
        one_way.sample(t4, &ExchangeStamps { t1, t2, t3, t4 });
        let queue = one_way.queue_delay(t4, Duration::ZERO);
        Probe {
            run: exchange.run,
            truth: 0,
            measured: queue.map_or(0, |queue| queue.as_nanos() as i64),
        }
    };
    exchanges.iter().map(probe).collect()
}

/// Simulates a connection at 10 Gbit/s whose ACKs share the reverse path with 5 Gbit/s of other
/// packets. Returns the true times of its packets, in the order of their ACKs.
fn packets(seed: u64, length: Duration) -> Result<Vec<Exchange>, SimError> {
    let mut network = Network::new();
    let (sender, receiver) = (network.add_host("sender"), network.add_host("receiver"));
    let link = LinkSpec::new(RATE_10G, DELAY);
    network.add_duplex_link(sender, receiver, link.clone(), link);
    let mut sim = Simulation::with_tracer(network, SimOptions::seeded(seed), PacketLog::default())?;
    let config = TransportConfig {
        // Enough for the path and no more: the flow has no queue except its own host's.
        receive_buffer: 64_000,
        ..TransportConfig::clone(&default_transport()).stamped()
    };
    sim.add_flow(FlowSpec::new(sender, receiver).with_transport(Arc::new(config)))?;
    let reverse = WorkloadSpec {
        name: "reverse".to_owned(),
        pairs: Pairs::List(vec![(receiver, sender)]),
        kind: Workload::Paced {
            rate: Rate::from_bits_per_sec(5_000_000_000),
            duty: Duty::Always,
            carrier: Carrier::Datagrams {
                bytes: DATA_BYTES,
                poisson: true,
            },
        },
        start: Time::ZERO,
        stop: None,
    };
    let native = FlowControl::Native(Native::cubic());
    sim.add_workload(reverse, native, default_transport())?;
    sim.run_until(Time::ZERO + length)?;
    Ok(sim.into_tracer().acked)
}

/// True times of packets: by number until their ACK arrives, and with it.
#[derive(Default)]
struct PacketLog {
    in_flight: BTreeMap<u32, Exchange>,
    acked: Vec<Exchange>,
}

impl Tracer for PacketLog {
    fn on_packet_event(&mut self, now: Time, event: &PacketEvent<'_>) {
        let (segment, now) = (event.segment, now.as_nanos() as i64);
        if event.flow.is_none() {
            return;
        }
        match (event.step, segment.kind, event.backward) {
            (LinkStep::Arrived, SegmentKind::Data, false) => {
                let exchange = Exchange {
                    run: "busy",
                    t1: now - DELAY.as_nanos() as i64,
                    t2: now,
                    ..Exchange::default()
                };
                self.in_flight.insert(segment.number.0, exchange);
            }
            (LinkStep::Queued, SegmentKind::Ack, true) => {
                if let Some(exchange) = self.in_flight.get_mut(&segment.echo.0) {
                    exchange.t3 = now;
                }
            }
            (LinkStep::Arrived, SegmentKind::Ack, true) => {
                let exchange = self.in_flight.remove(&segment.echo.0);
                let exchange = exchange.filter(|exchange| exchange.t3 > 0);
                self.acked.extend(exchange.map(|exchange| Exchange {
                    t4: now,
                    ..exchange
                }));
            }
            _ => {}
        }
    }
}

/// The roles of slides 18 to 20 exchanged: a packet every 25 ms through a long queue that another
/// sender fills. Returns the waiting times of the packets.
pub(super) fn probes(
    run: &'static str,
    stamps: &StampErrors,
    seed: u64,
    length: Duration,
) -> Result<Vec<Probe>, SimError> {
    const INTERVAL: Duration = Duration::from_millis(25);
    let mut network = Network::new();
    let (load, prober) = (network.add_host("load"), network.add_host("prober"));
    let (switch, receiver) = (network.add_switch("switch"), network.add_host("receiver"));
    let link = LinkSpec::new(RATE_1G, PROBE_DELAY);
    // Faster than the bottleneck, so that the queue is in the switch and not in the host.
    let fast = LinkSpec::new(RATE_10G, PROBE_DELAY);
    network.add_duplex_link(load, switch, fast.clone(), fast);
    network.add_duplex_link(prober, switch, link.clone(), link.clone());
    let queue = QueueSpec::DropTail(Size::Packets(250));
    let bottleneck = link.clone().with_queue(queue, Duration::ZERO);
    let (bottleneck, _) = network.add_duplex_link(switch, receiver, bottleneck, link);
    let waits = Waits {
        link: bottleneck.index(),
        prober,
        queued: Time::ZERO,
        all: Vec::new(),
    };
    let mut sim = Simulation::with_tracer(network, SimOptions::seeded(seed), waits)?;
    put_stamps(stamps, &mut sim, [prober, receiver].into_iter())?;
    let config = TransportConfig::clone(&default_transport()).stamped();
    let mss = u64::from(config.mss);
    // Until then the queue is empty, which gives the minimum delay.
    let load_start = Time::ZERO + Duration::from_millis(500);
    sim.add_flow(FlowSpec::new(load, receiver).starting_at(load_start))?;
    let flow = sim.add_flow(FlowSpec {
        finish: false,
        ..FlowSpec::new(prober, receiver)
            .with_bytes(mss)
            .with_transport(Arc::new(config))
    })?;
    // The handshake includes the first probe.
    sim.run_until(Time::ZERO + INTERVAL)?;
    let mut probes = Vec::new();
    let mut now = INTERVAL;
    while now < length {
        let before = sim.tracer().all.len();
        sim.write(flow, DataDirection::Forward, mss, false);
        now = now + INTERVAL;
        sim.run_until(Time::ZERO + now)?;
        let one_way = sim.one_way_delay(flow);
        let delay = one_way.and_then(|one_way| one_way.queue_delay(sim.now(), INTERVAL));
        // The queue is far longer than the RTT of the empty path, so the transport retransmits a
        // probe before its ACK arrives. The last copy is acknowledged last.
        let waits = sim.tracer().all.get(before..).unwrap_or_default();
        if let (Some(delay), Some(wait)) = (delay, waits.last()) {
            let (truth, measured) = (wait.as_nanos() as i64, delay.as_nanos() as i64);
            probes.push(Probe {
                run,
                truth,
                measured,
            });
        }
    }
    Ok(probes)
}

const PROBE_DELAY: Duration = Duration::from_micros(20);

/// Waiting times of the probes at the bottleneck, without their own transmission.
struct Waits {
    link: usize,
    prober: NodeId,
    queued: Time,
    all: Vec<Duration>,
}

impl Tracer for Waits {
    fn on_packet_event(&mut self, now: Time, event: &PacketEvent<'_>) {
        let probe = event.from == self.prober && event.segment.kind == SegmentKind::Data;
        if !probe || event.link.index() != self.link {
            return;
        }
        match event.step {
            LinkStep::Queued => self.queued = now,
            LinkStep::Arrived => {
                let bytes = Bytes::new(u64::from(event.bytes));
                let own = RATE_1G.transmission_time(bytes) + PROBE_DELAY;
                self.all.push(now.since(self.queued).saturating_sub(own));
            }
            LinkStep::Dropped(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transport's own value of each packet is its waiting time at the switch, to the
    /// nanosecond.
    #[test]
    fn exact_stamps_measure_the_queue_exactly() {
        let of = |stamps: &StampErrors| {
            probes("test", stamps, 1, Duration::from_millis(1_500)).expect("a valid simulation")
        };
        let exact = of(&StampErrors::EXACT_TIMESTAMPS);
        assert!(exact.len() >= 50, "{}", exact.len());
        assert!(
            exact.iter().any(|probe| probe.truth > 1_000_000),
            "{exact:?}"
        );
        for probe in &exact {
            assert_eq!(probe.measured, probe.truth);
        }
        let hardware = of(&StampErrors::HARDWARE_TIMESTAMPS);
        let mut errors: Vec<i64> = hardware
            .iter()
            .map(|probe| (probe.measured - probe.truth).abs())
            .collect();
        errors.sort_unstable();
        // A packet takes 12 µs.
        let median = errors[errors.len() / 2];
        assert!(median > 0 && median < 1_200, "{median} ns");
    }
}
