//! A path compared with a connection of ccplane's transport: with the same packets, losses and
//! control law, windows are the same throughout every reduction.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use ccplane_datapath::{Outcome, Signals, Transport};
use ccplane_quic::QuicPath;
use ccplane_transport::{
    CongestionControl, Connection, ControlEvent, Native, Segment, SegmentKind, SideData,
    TransportConfig,
};
use ccplane_units::{Duration, Time};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

const MSS: u16 = 1_448;
const DELAY: Duration = Duration::from_millis(10);

/// Control law: slow start, then one packet per RTT; 0.7 times the window after a loss. It uses
/// only signals that both report alike.
#[derive(Clone, Default)]
struct Law {
    recovering: bool,
    /// Losses reported in the last call.
    lost: u64,
    calls: u64,
}

impl Law {
    fn decide(&mut self, transport: &Transport, signals: &Signals) -> Outcome {
        let begins = signals.lost_pkts_sample > 0 && !self.recovering;
        self.recovering = signals.in_recovery != 0;
        self.lost = signals.lost_pkts_sample;
        self.calls += 1;
        if begins {
            return Outcome {
                ssthresh: Some(transport.cwnd * 7 / 10),
                ..Outcome::default()
            };
        }
        if self.recovering {
            return Outcome::default();
        }
        let newly = (signals.packets_acked + signals.packets_misordered) * signals.mss;
        let more = if transport.cwnd < transport.ssthresh {
            newly
        } else {
            signals.mss * newly / transport.cwnd
        };
        Outcome {
            cwnd: Some(transport.cwnd + more),
            ..Outcome::default()
        }
    }
}

impl CongestionControl for Law {
    const STEERED: bool = true;

    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        self.decide(&event.transport(), &event.signals())
    }
}

/// Two ends of the transport, and a path that observes the sender's packets.
struct TwoEnds {
    now: Time,
    ends: [Connection; 2],
    law: Law,
    receiver: Native,
    /// Packets in flight: arrival time, destination and contents.
    wire: VecDeque<(Time, usize, Segment, SideData)>,
    path: QuicPath,
    of_path: Law,
    /// Report ACKs and losses in two calls, as a QUIC stack does.
    apart: bool,
    packets: u64,
    /// Latest packet and its send time, per unacknowledged segment.
    sent: BTreeMap<u32, (u64, Time)>,
    /// Segments whose first transmission is lost, and the number that the transport has declared
    /// lost so far.
    drops: BTreeSet<u32>,
    marked: usize,
    compared: u64,
}

impl TwoEnds {
    fn new(drops: BTreeSet<u32>, apart: bool) -> TwoEnds {
        let now = Time::from_micros(1);
        let config = Arc::new(TransportConfig {
            mss: MSS,
            ack_every: 1,
            ..TransportConfig::default()
        });
        let mut client = Connection::connect(&config, now);
        client.write(1 << 40);
        let mut both = TwoEnds {
            now,
            // Placeholder until the connection is accepted.
            ends: [client, Connection::connect(&config, now)],
            law: Law::default(),
            receiver: Native::new_reno(),
            wire: VecDeque::new(),
            path: QuicPath::new(now, MSS),
            of_path: Law::default(),
            apart,
            packets: 0,
            sent: BTreeMap::new(),
            drops,
            marked: 0,
            compared: 0,
        };
        let mut side = SideData::default();
        let open = both.ends[0].transmit(now, 0, &mut side).expect("it asks");
        both.ends[1] = Connection::accept(&config, now, &open).expect("it is asked");
        both.flush();
        both
    }

    /// Sends everything that may be sent.
    fn flush(&mut self) {
        for from in 0..2 {
            while self.ends[from].has_segment(self.now, 0) {
                let mut side = SideData::default();
                let segment = self.ends[from]
                    .transmit(self.now, 0, &mut side)
                    .expect("it has");
                if from == 0 && segment.kind == SegmentKind::Data {
                    self.packets += 1;
                    self.path.on_sent(self.now, self.packets, MSS);
                    self.sent.insert(segment.number.0, (self.packets, self.now));
                    if segment.transmission == 1 && self.drops.contains(&segment.number.0) {
                        continue;
                    }
                }
                self.wire
                    .push_back((self.now + DELAY, 1 - from, segment, side));
            }
        }
    }

    fn step(&mut self) {
        let (at, to, segment, side) = self.wire.pop_front().expect("something is on its way");
        self.now = at;
        if to == 1 {
            self.ends[1].handle(at, &segment, &side, &mut self.receiver);
            return self.flush();
        }
        let calls = self.law.calls;
        self.ends[0].handle(at, &segment, &side, &mut self.law);
        let told = self.law.calls > calls;
        let numbers = |(number, _): (&u32, _)| *number;
        let mut newly: Vec<u32> = self.sent.range(..segment.ack.0).map(numbers).collect();
        if segment.has_side() {
            for range in side.ranges() {
                let selected = self.sent.range(range.start.0..range.end.0);
                newly.extend(selected.map(numbers));
            }
        }
        for number in newly {
            if let Some((packet, sent)) = self.sent.remove(&number) {
                self.path.on_acked(at, packet, sent);
            }
        }
        let law = &mut self.of_path;
        if self.apart {
            self.path.finish_event(at, false, |transport, signals| {
                law.decide(transport, signals)
            });
        }
        // Packets arrive in order, so the segments declared lost are the dropped ones, in the same
        // order.
        let lost = if told { self.law.lost as usize } else { 0 };
        for number in self.drops.iter().skip(self.marked).take(lost) {
            // The first transmission; its retransmission has another packet number.
            let (packet, _) = self.sent[number];
            self.path.on_lost(at, packet, MSS);
        }
        self.marked += lost;
        let law = &mut self.of_path;
        self.path.finish_event(at, false, |transport, signals| {
            law.decide(transport, signals)
        });
        self.compare();
        self.flush();
    }

    fn compare(&mut self) {
        let connection = &self.ends[0];
        let theirs = (
            connection.cwnd() / u64::from(MSS),
            connection.in_flight(),
            connection.ssthresh() / u64::from(MSS),
        );
        let ours = (
            self.path.window() / u64::from(MSS),
            (self.path.bytes_in_flight() / u64::from(MSS)) as u32,
            self.path.ssthresh() / u64::from(MSS),
        );
        // A path's reduction ends with the first packet sent after its start, the transport's when
        // the last loss is repaired.
        if connection.in_recovery() != self.path.in_recovery() || self.path.srtt() == Duration::ZERO
        {
            return;
        }
        self.compared += 1;
        let place = format!(
            "window, in flight and threshold at {:?}, drops {:?}",
            self.now, self.drops
        );
        if self.apart {
            // The law sees the ACK before the loss, so its window has grown by one packet.
            let near = |a: u64, b: u64| a.abs_diff(b) <= 2;
            assert!(
                ours.1 == theirs.1 && near(ours.0, theirs.0) && near(ours.2, theirs.2),
                "{ours:?}, {theirs:?}: {place}"
            );
        } else {
            assert_eq!(ours, theirs, "{place}");
        }
    }
}

#[test]
fn a_reduction_after_one_loss_is_that_of_the_transport_packet_for_packet() {
    for seed in 0..150 {
        let mut random = Pcg32::new(seed, 1);
        // From mid slow start to congestion avoidance, with one loss every few rounds.
        let first = 15 + random.next_u32() % 300;
        let drops = BTreeSet::from([first, first + 1_500 + random.next_u32() % 500]);
        let mut both = TwoEnds::new(drops, seed % 2 == 0);
        while both.ends[0].una().0 < first + 2_800 {
            both.step();
        }
        assert!(
            both.compared > 2_000 && both.ends[0].stats().lost == 2,
            "{} compared",
            both.compared
        );
    }
}

#[test]
fn a_reduction_after_several_losses_is_that_of_the_transport_as_long_as_both_last() {
    lose_several(0..2_000);
}

#[test]
#[ignore = "long: the remaining 8,000 of 10,000 seeds"]
fn a_reduction_after_several_losses_is_that_of_the_transport_for_more_seeds() {
    lose_several(2_000..10_000);
}

fn lose_several(seeds: Range<u64>) {
    for seed in seeds {
        let mut random = Pcg32::new(seed, 2);
        let first = 40 + random.next_u32() % 300;
        let drops: BTreeSet<u32> = (0..2 + random.next_u32() % 4)
            .map(|_| first + random.next_u32() % 12)
            .collect();
        let (count, mut both) = (drops.len(), TwoEnds::new(drops, seed % 2 == 0));
        let mut reduced = 0;
        while both.path.lost_packets() < count as u64 || both.path.in_recovery() {
            both.step();
            reduced += u64::from(both.path.in_recovery());
        }
        assert!(
            reduced > 5 && both.compared > 20,
            "{reduced}, {}",
            both.compared
        );
        let mss = u64::from(MSS);
        assert!(
            (both.path.ssthresh() / mss).abs_diff(both.ends[0].ssthresh() / mss)
                <= u64::from(both.apart)
        );
    }
}
