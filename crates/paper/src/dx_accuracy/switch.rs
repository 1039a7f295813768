//! Slides 19 and 20 in the simulator: sender 1 saturates 1 Gbit/s with one TCP connection and
//! measures with its own packets, sender 2 sends a full packet every 25 ms, and the switch's queue
//! is the truth.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccplane_datapath::{ExchangeStamps, OneWay};
use ccplane_lab::scenario::StampErrors;
use ccplane_lab::sim::stamp_model;
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    Carrier, Duty, FlowControl, FlowSpec, LinkSpec, LinkStep, Network, PacketEvent, Pairs,
    SimError, SimOptions, Simulation, StampClock, Tracer, TransportConfig, Workload, WorkloadSpec,
    default_transport,
};
use ccplane_transport::{Native, SegmentKind};
use ccplane_units::{Bytes, Duration, Rate, Time};

use super::rows::{ACK_BYTES, DATA_BYTES, Exchange, SATURATED, SwitchSample};

const RATE: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// Delay of each of the four links of a round trip. With 12 µs per packet on two links and 0.544 µs
/// per ACK on two, a round trip takes 108.1 µs, a little more than nine packets.
const DELAY: Duration = Duration::from_nanos(20_750);
/// Window of sender 1. The receiver announces it in steps of two packets, so a window lasts for a
/// round trip and a packet, 120.1 µs. Sender 1 then uses 99.9 % of the link, and the queue is empty
/// again a round trip after a packet of sender 2.
const WINDOW_PACKETS: u32 = 10;
const PROBE_INTERVAL: Duration = Duration::from_millis(25);

/// Returns the packets of sender 1 in the order of their ACKs.
pub(super) fn samples(seed: u64, length: Duration) -> Result<Vec<SwitchSample>, SimError> {
    let passages = passages(seed, length)?;
    let measured = |stamps| queue_delays(&passages, &stamps, seed);
    let exact = measured(StampErrors::EXACT_TIMESTAMPS);
    let hardware = measured(StampErrors::HARDWARE_TIMESTAMPS);
    let software = measured(StampErrors::SOFTWARE_TIMESTAMPS);
    let all = passages.iter().zip(exact).zip(hardware).zip(software);
    Ok(all
        .map(|(((passage, exact), hardware), software)| SwitchSample {
            run: SATURATED,
            at: passage.queued.as_nanos() as i64,
            probes: passage.probes,
            truth: passage.wait.as_nanos() as i64,
            exact,
            hardware,
            software,
            kernel: None,
        })
        .collect())
}

/// Returns the queueing delay of each packet as ccplane computes it at sender 1, ns, if the hosts'
/// time stamps have these errors. `None` if the stamps are implausible.
fn queue_delays(passages: &[Passage], stamps: &StampErrors, seed: u64) -> Vec<Option<i64>> {
    // The hosts' clocks: sender 1 and the receiver.
    let [mut sender, mut receiver] = [0, 1].map(|host| {
        StampClock::new(
            stamp_model(stamps, seed, host),
            seed,
            host as u32,
            [RATE; 2],
        )
    });
    let mut one_way = OneWay::default();
    let time = |ns: i64| Time::from_nanos(ns as u64);
    // A clock takes the true times of a direction in their order, as they are here.
    let delay = |passage: &Passage| {
        let Exchange { t1, t2, t3, t4, .. } = passage.exchange;
        let now = time(t4);
        let t1 = sender.departure(time(t1), DATA_BYTES);
        let t2 = receiver.arrival(time(t2), DATA_BYTES);
        let t3 = receiver.departure(time(t3), ACK_BYTES);
        let stamps = ExchangeStamps {
            t1,
            t2,
            // As in the simulator: an ACK does not depart before its data arrived.
            t3: time((t3.as_nanos() as i64).max(t2.as_nanos() as i64)),
            t4: sender.arrival(now, ACK_BYTES),
        };
        let valid = one_way.sample(now, &stamps);
        let queue = one_way.queue_delay(now, Duration::ZERO);
        queue.filter(|_| valid).map(|queue| queue.as_nanos() as i64)
    };
    passages.iter().map(delay).collect()
}

/// Passage of a packet of sender 1 through the switch.
#[derive(Clone, Copy)]
struct Passage {
    exchange: Exchange,
    /// Arrival at the switch.
    queued: Time,
    /// Waiting time in the switch, without the packet's own transmission.
    wait: Duration,
    /// Packets of sender 2 that the switch accepted before this one.
    probes: u64,
}

/// Simulates both senders. Returns the packets of sender 1 whose ACKs arrived.
fn passages(seed: u64, length: Duration) -> Result<Vec<Passage>, SimError> {
    let mut network = Network::new();
    let [sender, prober] = ["sender-1", "sender-2"].map(|name| network.add_host(name));
    let (switch, receiver) = (network.add_switch("switch"), network.add_host("receiver"));
    let link = LinkSpec::new(RATE, DELAY);
    let (access, home) = network.add_duplex_link(sender, switch, link.clone(), link.clone());
    network.add_duplex_link(prober, switch, link.clone(), link.clone());
    let queue = QueueSpec::DropTail(Size::Packets(250));
    let bottleneck = link.clone().with_queue(queue, Duration::ZERO);
    let (bottleneck, back) = network.add_duplex_link(switch, receiver, bottleneck, link);
    let log = PassageLog {
        access: access.index(),
        bottleneck: bottleneck.index(),
        back: back.index(),
        home: home.index(),
        probes: 0,
        in_flight: BTreeMap::new(),
        acked: Vec::new(),
    };
    let mut sim = Simulation::with_tracer(network, SimOptions::seeded(seed), log)?;
    let stamped = TransportConfig::clone(&default_transport()).stamped();
    let config = TransportConfig {
        receive_buffer: WINDOW_PACKETS * u32::from(stamped.mss),
        ..stamped
    };
    sim.add_flow(FlowSpec::new(sender, receiver).with_transport(Arc::new(config)))?;
    let packets = WorkloadSpec {
        name: "sender 2".to_owned(),
        pairs: Pairs::List(vec![(prober, receiver)]),
        kind: Workload::Paced {
            // One packet per interval.
            rate: Rate::from_bytes_per_sec(
                u64::from(DATA_BYTES) * 1_000_000_000 / PROBE_INTERVAL.as_nanos(),
            ),
            duty: Duty::Always,
            carrier: Carrier::Datagrams {
                bytes: DATA_BYTES,
                poisson: false,
            },
        },
        start: Time::ZERO + PROBE_INTERVAL,
        stop: None,
    };
    let native = FlowControl::Native(Native::cubic());
    sim.add_workload(packets, native, default_transport())?;
    sim.run_until(Time::ZERO + length)?;
    Ok(sim.into_tracer().acked)
}

/// True times of sender 1's packets, by number until the ACK arrives.
struct PassageLog {
    /// Links: sender 1 to switch, switch to receiver, receiver to switch, switch to sender 1.
    access: usize,
    bottleneck: usize,
    back: usize,
    home: usize,
    probes: u64,
    in_flight: BTreeMap<u32, Passage>,
    acked: Vec<Passage>,
}

impl Tracer for PassageLog {
    fn on_packet_event(&mut self, now: Time, event: &PacketEvent<'_>) {
        let (segment, link, ns) = (event.segment, event.link.index(), now.as_nanos() as i64);
        if event.flow.is_none() {
            if event.step == LinkStep::Queued && link == self.bottleneck {
                self.probes += 1;
            }
            return;
        }
        match (event.step, segment.kind) {
            // The end of the transmission by the host, so its own queue is not measured.
            (LinkStep::Arrived, SegmentKind::Data) if link == self.access => {
                let passage = Passage {
                    exchange: Exchange {
                        run: SATURATED,
                        t1: ns - DELAY.as_nanos() as i64,
                        ..Exchange::default()
                    },
                    queued: now,
                    wait: Duration::ZERO,
                    probes: self.probes,
                };
                self.in_flight.insert(segment.number.0, passage);
            }
            (LinkStep::Arrived, SegmentKind::Data) if link == self.bottleneck => {
                let own = RATE.transmission_time(Bytes::new(u64::from(event.bytes))) + DELAY;
                if let Some(passage) = self.in_flight.get_mut(&segment.number.0) {
                    passage.exchange.t2 = ns;
                    passage.wait = now.since(passage.queued).saturating_sub(own);
                }
            }
            (LinkStep::Queued, SegmentKind::Ack) if link == self.back => {
                if let Some(passage) = self.in_flight.get_mut(&segment.echo.0) {
                    passage.exchange.t3 = ns;
                }
            }
            (LinkStep::Arrived, SegmentKind::Ack) if link == self.home => {
                let passage = self.in_flight.remove(&segment.echo.0);
                let passage = passage.filter(|passage| passage.exchange.t3 > 0);
                self.acked.extend(passage.map(|passage| Passage {
                    exchange: Exchange {
                        t4: ns,
                        ..passage.exchange
                    },
                    ..passage
                }));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_NS: i64 = 12_000;

    /// Sender 1 fills the link, each packet of sender 2 makes its packets wait for one packet's
    /// time, and exact stamps measure each wait to the nanosecond.
    #[test]
    fn sender_1_sees_every_packet_of_sender_2() {
        let length = Duration::from_millis(500);
        let samples = samples(1, length).expect("a valid simulation");
        let full = length.as_nanos() as f64 / PACKET_NS as f64;
        assert!(samples.len() as f64 > 0.99 * full, "{}", samples.len());
        let probes = samples.last().expect("packets").probes;
        assert!((18..=19).contains(&probes), "{probes}");
        for sample in &samples {
            assert_eq!(sample.exact, Some(sample.truth));
            assert!(sample.truth <= PACKET_NS, "{sample:?}");
        }
        // The last packet of sender 2 may arrive just before the end.
        for probe in 1..probes {
            let waited = samples
                .iter()
                .filter(|sample| sample.probes == probe && sample.truth > PACKET_NS / 2);
            assert!((5..=15).contains(&waited.count()), "packet {probe}");
        }
    }

    /// With hardware-like stamps the error is far below a packet; with software-like stamps it is
    /// about half a packet.
    #[test]
    fn hardware_like_stamps_detect_single_packets() {
        let samples = samples(1, Duration::from_millis(500)).expect("a valid simulation");
        let median = |measured: fn(&SwitchSample) -> Option<i64>| {
            let error = |sample: &SwitchSample| Some((measured(sample)? - sample.truth).abs());
            let mut errors: Vec<i64> = samples.iter().filter_map(error).collect();
            assert!(errors.len() > samples.len() * 9 / 10, "{}", errors.len());
            errors.sort_unstable();
            errors[errors.len() / 2]
        };
        let hardware = median(|sample| sample.hardware);
        assert!(hardware > 0 && hardware < PACKET_NS / 4, "{hardware} ns");
        let software = median(|sample| sample.software);
        assert!(software > hardware && software < PACKET_NS, "{software} ns");
    }
}
