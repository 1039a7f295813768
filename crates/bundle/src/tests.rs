//! Sendbox and receivebox over a small network in virtual time: a FIFO with a fixed rate, a delay
//! in each direction, and faults that affect feedback.

use std::collections::BTreeSet;

use ccplane_datapath::{Outcome, Signals, SteeredFlow, Transport};
use ccplane_qdisc::{DropReason, Ecn, Packet, QueueSpec, Verdict};
use ccplane_units::stats::{sort_floats, upper_rank};
use ccplane_units::{Duration, Rate, Time};

use crate::{
    BoxMessage, ImplausibleFeedback, ModeChange, PacketNumbering, Reason, Receivebox, Sendbox,
    SendboxConfig, SendboxMode, hash,
};

const PACKET_BYTES: u32 = 1_500;
/// Link rate: 96 Mbit/s in bytes/s.
const LINK_BYTES_PER_SECOND: u64 = 12_000_000;
const ONE_WAY_DELAY: Duration = Duration::from_millis(25);
const TIME_STEP: Duration = Duration::from_micros(50);

#[derive(Clone, Copy, Debug)]
struct FullPacket;

impl Packet for FullPacket {
    fn bytes(&self) -> u32 {
        PACKET_BYTES
    }
}

/// Fate of a feedback message: its delivery times in ms after it was sent; empty if it is lost.
type Fate = Box<dyn FnMut(u64) -> Vec<u64>>;

struct Net {
    now: Time,
    sendbox: Sendbox<FullPacket>,
    receivebox: Receivebox,
    marks: PacketNumbering,
    /// Sending rate of the site, bytes/s.
    offered: u64,
    owed: u64,
    /// Link rate, bytes/s, and the time at which the link is free.
    link: u64,
    free: Time,
    /// Packets in flight, by arrival time and number; and messages in flight.
    there: Vec<(Time, u64, u64)>,
    back: Vec<(Time, BoxMessage)>,
    sent: u64,
    /// Packets sent in all sessions of all sendboxes.
    ever: u64,
    fate: Fate,
    /// Rate that the algorithm sets each tick, if any.
    order: Option<u64>,
    /// Window that the algorithm sets, bytes.
    window: Option<u64>,
    agent_gone: bool,
    last: Signals,
    changes: Vec<ModeChange>,
    /// Offset of the receivebox's clock.
    ahead: Duration,
}

impl Net {
    fn new(marks: PacketNumbering) -> Net {
        let config = SendboxConfig {
            numbering: marks,
            mtu: PACKET_BYTES,
            ..SendboxConfig::default()
        };
        let now = Time::ZERO + Duration::from_secs(1);
        Net {
            now,
            sendbox: Sendbox::new(now, &config).expect("the default configuration is valid"),
            receivebox: Receivebox::new(marks),
            marks,
            offered: 10_000_000,
            owed: 0,
            link: LINK_BYTES_PER_SECOND,
            free: now,
            there: Vec::new(),
            back: Vec::new(),
            sent: 0,
            ever: 0,
            fate: Box::new(|_| vec![25]),
            order: None,
            window: None,
            agent_gone: false,
            last: Signals::default(),
            changes: Vec::new(),
            ahead: Duration::from_secs(1_000),
        }
    }

    /// Network whose site sends more than the link carries.
    fn overloaded() -> Net {
        Net {
            offered: 14_000_000,
            ..Net::new(PacketNumbering::Counter)
        }
    }

    fn run(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while self.now < until {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now += TIME_STEP;
        let now = self.now;
        self.owed += self.offered * TIME_STEP.as_nanos() / 1_000;
        while self.owed >= u64::from(PACKET_BYTES) * 1_000_000 {
            self.owed -= u64::from(PACKET_BYTES) * 1_000_000;
            let _ = self.sendbox.enqueue(now, FullPacket, &mut |_, _| {});
        }
        if let Some(notice) = self.sendbox.poll_notice(now) {
            // A notice travels as a packet of the bundle; here it is delivered at once.
            self.receivebox.on_notice(&notice);
        }
        while self
            .sendbox
            .dequeue(now, &mut |_: FullPacket, _| {})
            .is_some()
        {
            let number = match self.marks {
                PacketNumbering::Counter => self.sent,
                PacketNumbering::Hash => hash(self.sent.to_be_bytes()),
            };
            self.sent += 1;
            self.ever += 1;
            self.sendbox.on_sent(now, number, PACKET_BYTES);
            let nanos = u64::from(PACKET_BYTES) * 1_000_000_000 / self.link;
            self.free = self.free.max(now) + Duration::from_nanos(nanos);
            self.there
                .push((self.free + ONE_WAY_DELAY, self.there.len() as u64, number));
        }
        let mut arrived = 0;
        while let Some(&(at, _, number)) = self.there.get(arrived).filter(|(at, ..)| *at <= now) {
            self.receivebox
                .on_packet(at + self.ahead, number, PACKET_BYTES, Ecn::NotEct);
            arrived += 1;
        }
        self.there.drain(..arrived);
        if let Some(feedback) = self.receivebox.poll(now + self.ahead) {
            let message = BoxMessage::decode(&feedback.encode()).expect("the test encoded it");
            for after in (self.fate)(now.as_micros()) {
                self.back
                    .push((now + Duration::from_millis(after), message));
            }
        }
        let mut waiting = Vec::new();
        for (at, message) in std::mem::take(&mut self.back) {
            match message {
                BoxMessage::Feedback(feedback) if at <= now => {
                    let _ = self.sendbox.on_feedback(now, &feedback);
                }
                _ => waiting.push((at, message)),
            }
        }
        self.back = waiting;
        if self.sendbox.next_deadline() <= now {
            self.sendbox.on_deadline(now);
        }
        if now.as_micros().is_multiple_of(10_000) {
            self.last = self.sendbox.tick(now);
            let outcome = Outcome {
                rate: self.order,
                cwnd: self.window,
                fallback: self.agent_gone,
                ..Outcome::default()
            };
            self.sendbox.apply_outcome(now, &outcome);
        }
        while let Some(change) = self.sendbox.next_mode_change() {
            self.changes.push(change);
        }
    }

    fn reasons(&self) -> Vec<Reason> {
        self.changes.iter().map(|change| change.reason).collect()
    }
}

#[test]
fn below_capacity_it_stays_open_and_measures_all() {
    for marks in [PacketNumbering::Counter, PacketNumbering::Hash] {
        let mut net = Net::new(marks);
        net.run(5_000);
        let status = net.sendbox.status(net.now);
        assert_eq!(
            (status.mode, status.reason, status.rate),
            (SendboxMode::Open, Reason::Start, None)
        );
        let near = |what: &str, value: u64, expected: u64, part: f64| {
            let off = (value as f64 / expected as f64 - 1.0).abs();
            assert!(
                off <= part,
                "{marks:?}: {what} {value}, expected {expected}"
            );
        };
        near("S", net.last.rate_outgoing, 10_000_000, 0.03);
        near("R", net.last.rate_incoming, 10_000_000, 0.03);
        near("RTT", net.last.rtt_sample_us, 50_125, 0.01);
        near("min RTT", net.last.min_rtt_us, 50_125, 0.01);
        // 10 MB/s and 50 ms are 333 packets, rounded to 256; a quarter is 64.
        assert_eq!(status.epoch_size.get(), 64);
        assert_eq!(
            (
                status.totals.implausible_feedback,
                status.totals.missing,
                net.last.bytes_pending
            ),
            (0, 0, 0)
        );
        let signals = net.last;
        assert_eq!(
            (signals.app_limited, signals.cwnd_limited, signals.paced),
            (1, 0, 0)
        );
        assert!(net.changes.is_empty());
    }
}

#[test]
fn a_queue_in_the_network_moves_here() {
    let mut net = Net::overloaded();
    net.run(1_000);
    assert_eq!(net.reasons(), [Reason::Queue]);
    let change = net.changes[0];
    let queue = change.path.rtt.saturating_sub(change.path.min_rtt);
    assert!(
        queue < Duration::from_millis(18),
        "a quarter of 50 ms, half a ms and two feedback messages: {queue}"
    );
    // The limit starts at the receiving rate, which is the capacity.
    let near = |rate: Option<Rate>, expected: u64| {
        let rate = rate.expect("there is a limit").bytes_per_sec();
        assert!(rate.abs_diff(expected) < expected / 25, "{rate}");
    };
    near(net.sendbox.status(net.now).rate, LINK_BYTES_PER_SECOND);
    // The algorithm lowers the rate: the network's queue drains and the sendbox's queue builds up.
    net.order = Some(11_000_000);
    net.run(1_000);
    assert_eq!(
        net.sendbox.status(net.now).rate,
        Some(Rate::from_bytes_per_sec(11_000_000))
    );
    assert!(
        net.last.rtt_sample_us < 51_000,
        "{}",
        net.last.rtt_sample_us
    );
    assert!(
        net.last.bytes_pending > 500_000,
        "{}",
        net.last.bytes_pending
    );
    assert_eq!(
        (net.last.app_limited, net.last.cwnd_limited, net.last.paced),
        (0, 1, 1)
    );
    assert_eq!(net.sendbox.transport(net.now).rate, 11_000_000);
    assert_eq!(net.last.queue_delay_valid, 1);
    assert!(
        net.last.queue_delay_ns < 1_000_000,
        "{}",
        net.last.queue_delay_ns
    );
}

#[test]
fn a_window_is_in_flight_and_never_much_more() {
    let mut net = Net::overloaded();
    net.run(1_000);
    // Half of the path's 600 kB, then twice as much, which takes a queue of 50 ms.
    for (window, rtt_ms) in [(300_000, 50), (1_200_000, 100), (300_000, 50)] {
        net.window = Some(window);
        let mut most = 0;
        for _ in 0..100 {
            net.run(10);
            most = most.max(net.last.bytes_in_flight);
        }
        let flight = net.last.bytes_in_flight;
        assert!(
            flight.abs_diff(window) < window / 10,
            "{flight} of {window} in flight"
        );
        assert!(
            most < 1_200_000 * 11 / 10,
            "{most} in flight, with a window of {window}"
        );
        let rtt = net.last.rtt_sample_us / 1_000;
        assert!(rtt.abs_diff(rtt_ms) <= 8, "{rtt} ms, expected {rtt_ms}");
    }
}

#[test]
fn missing_feedback_opens_and_new_feedback_restarts() {
    let mut net = Net::overloaded();
    net.order = Some(11_000_000);
    net.run(2_000);
    assert_eq!(net.sendbox.mode(), SendboxMode::Delay);
    net.fate = Box::new(|_| Vec::new());
    let silent = net.now;
    net.run(1_000);
    let change = net.changes.last().copied().expect("it opened");
    assert_eq!(
        (change.to, change.reason),
        (SendboxMode::Open, Reason::NoFeedback)
    );
    let after = change.at.since(silent);
    // Packets in flight arrive for 25 ms more; silence follows after max(4 RTT, 250 ms).
    assert!(
        after > Duration::from_millis(250) && after < Duration::from_millis(300),
        "{after}"
    );
    assert_eq!(net.sendbox.status(net.now).rate, None);
    assert_eq!(net.last.bytes_pending, 0, "queued packets were sent");
    net.fate = Box::new(|_| vec![25]);
    net.run(1_000);
    assert_eq!(
        net.reasons()[1..],
        [Reason::NoFeedback, Reason::Start, Reason::Queue]
    );
}

#[test]
fn an_idle_bundle_is_not_silent() {
    let mut net = Net::overloaded();
    net.run(1_000);
    net.offered = 0;
    net.run(10_000);
    assert_eq!(net.reasons(), [Reason::Queue]);
    // An occasional packet does not count as silence. The bundle opens for lack of a queue.
    net.offered = 15_000;
    net.run(10_000);
    assert_eq!(net.reasons(), [Reason::Queue, Reason::Start]);
}

#[test]
fn a_silent_agent_opens_the_bundle() {
    let mut net = Net::overloaded();
    net.order = Some(11_000_000);
    net.run(1_000);
    net.agent_gone = true;
    net.run(20);
    assert_eq!(net.reasons(), [Reason::Queue, Reason::Agent]);
    net.agent_gone = false;
    net.run(500);
    assert_eq!(net.reasons()[2..], [Reason::Start, Reason::Queue]);
}

#[test]
fn rekeying_restarts_the_numbering_without_opening() {
    let mut net = Net::overloaded();
    net.order = Some(11_000_000);
    net.run(1_000);
    net.sendbox.start_session(net.now, 1);
    // The packets in flight belong to the old session, which this network cannot distinguish, so
    // they are dropped.
    net.there.clear();
    net.receivebox.start_session(1);
    net.sent = 0;
    net.run(1_000);
    assert_eq!(net.reasons(), [Reason::Queue]);
    let status = net.sendbox.status(net.now);
    assert_eq!(status.totals.implausible_feedback, 0);
    assert!(
        net.last.rate_incoming.abs_diff(11_000_000) < 300_000,
        "{}",
        net.last.rate_incoming
    );
}

#[test]
fn implausible_feedback_changes_nothing() {
    use crate::Feedback;

    let mut net = Net::new(PacketNumbering::Counter);
    net.run(500);
    let good = net
        .receivebox
        .clone()
        .poll(net.now + net.ahead + Duration::from_secs(1))
        .expect("data came");
    let (now, mut sendbox) = (net.now, net.sendbox.clone());
    let before = sendbox.status(now);
    let sent = before.totals.packets;
    let cases: [(Feedback, ImplausibleFeedback); 6] = [
        (
            Feedback { session: 9, ..good },
            ImplausibleFeedback::UnknownSession(9),
        ),
        (
            Feedback {
                boundary: sent,
                ..good
            },
            ImplausibleFeedback::NeverSent(sent),
        ),
        (
            Feedback {
                packets: sent + 1,
                ..good
            },
            ImplausibleFeedback::ExcessiveCounts,
        ),
        (
            Feedback {
                missing: sent,
                ..good
            },
            ImplausibleFeedback::ExcessiveCounts,
        ),
        (
            Feedback {
                marked: u64::MAX,
                ..good
            },
            ImplausibleFeedback::ExcessiveCounts,
        ),
        (
            Feedback {
                hold: Duration::from_secs(3),
                ..good
            },
            ImplausibleFeedback::ExcessiveHoldTime,
        ),
    ];
    for (n, (feedback, why)) in cases.into_iter().enumerate() {
        assert_eq!(sendbox.on_feedback(now, &feedback), Err(why));
        let after = sendbox.status(now);
        assert_eq!(after.totals.implausible_feedback, n as u64 + 1);
        assert_eq!(
            (after.path, after.mode, after.totals.received),
            (before.path, before.mode, before.totals.received)
        );
    }
}

/// Pseudo-random numbers per seed (xorshift with shifts 13, 7, 17).
struct Draws(u64);

impl Draws {
    fn of(seed: u64) -> Draws {
        Draws(hash(seed.to_be_bytes()) << 1 | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Loses, delays and duplicates feedback, and thereby reorders it.
fn fate(mut draws: Draws) -> Fate {
    let (lost, late) = (draws.below(100), draws.below(200));
    Box::new(move |_| {
        if draws.below(100) < lost {
            return Vec::new();
        }
        let after = 25 + draws.below(late + 1);
        match draws.below(16) {
            0 => vec![after, 25 + late],
            _ => vec![after],
        }
    })
}

impl Net {
    /// Replaces the sendbox as after a restart of its process: the queue is lost and numbers
    /// restart without the receivebox's knowledge.
    fn restart_sendbox(&mut self) {
        let config = SendboxConfig {
            numbering: self.marks,
            mtu: PACKET_BYTES,
            ..SendboxConfig::default()
        };
        self.sendbox = Sendbox::new(self.now, &config).expect("the default configuration is valid");
        self.sent = 0;
    }

    /// Rekeys: both boxes start a new session. The receivebox does so with the first packet of it,
    /// which here arrives at once.
    fn rekey(&mut self, session: u32) {
        self.sendbox.start_session(self.now, session);
        self.there.clear();
        self.receivebox.start_session(session);
        self.sent = 0;
    }
}

/// Runs a random scenario. Feedback is lost, delayed, reordered or duplicated; either box restarts;
/// keys change; the agent comes and goes and sets arbitrary rates and windows; the site sends in
/// bursts over a link of any rate. Invariants: no panic, no limit below the minimum, and open mode
/// in time without feedback.
fn live(seed: u64) {
    let mut draws = Draws::of(seed);
    let mut net = Net::new(if seed.is_multiple_of(4) {
        PacketNumbering::Hash
    } else {
        PacketNumbering::Counter
    });
    net.fate = fate(Draws::of(draws.below(u64::MAX)));
    let floor = SendboxConfig::default().min_rate;
    for part in 0..8 {
        net.offered = draws.below(20_000_000);
        net.link = 100_000 + draws.below(LINK_BYTES_PER_SECOND);
        net.order = [
            None,
            Some(0),
            Some(u64::MAX),
            Some(draws.below(LINK_BYTES_PER_SECOND)),
        ][draws.below(4) as usize];
        net.agent_gone = draws.below(5) == 0;
        match draws.below(12) {
            0 | 1 => net.receivebox = Receivebox::new(net.marks),
            2 => net.restart_sendbox(),
            3 => net.rekey(part + 1),
            _ => {}
        }
        net.run(draws.below(400));
        let status = net.sendbox.status(net.now);
        assert!(
            status.rate.is_none_or(|rate| rate >= floor),
            "seed {seed}: {:?}",
            status.rate
        );
        assert_eq!(
            status.rate.is_none(),
            status.mode == SendboxMode::Open,
            "seed {seed}"
        );
        // Packets of an old sendbox may be counted for a new one, but never more than were sent.
        assert!(
            status.totals.received <= net.ever,
            "seed {seed}: {:?}",
            status.totals
        );
    }
    net.agent_gone = false;
    net.fate = Box::new(|_| Vec::new());
    net.back.clear();
    net.offered = 10_000_000;
    net.link = LINK_BYTES_PER_SECOND;
    net.run(200);
    // Ten packets take 120 ms at the minimum rate; silence follows after max(4 RTT, 250 ms).
    net.run(4 * net.last.srtt_us / 1_000 + 300);
    assert_eq!(
        net.sendbox.mode(),
        SendboxMode::Open,
        "seed {seed}: no feedback"
    );
}

#[test]
fn whatever_happens_to_feedback() {
    (0..60).for_each(live);
}

/// The same test with 10,000 seeds: `cargo test --release -p ccplane-bundle --lib -- --ignored
/// ten_thousand`.
#[test]
#[ignore = "release: ten thousand runs take minutes"]
fn random_feedback_ten_thousand_times() {
    (60..10_060).for_each(live);
}

/// Packet counters and the paper's header hashes sample the same packets differently. Both measure
/// the same, except for the positions of the boundaries. The bundles stay open, so that the limit
/// does not influence the measurement.
#[test]
fn sampled_and_counted_marks_measure_the_same() {
    let mut draws = Draws::of(1);
    let mut nets = [PacketNumbering::Counter, PacketNumbering::Hash].map(Net::new);
    let (mut rtt, mut sent, mut received) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..12 {
        // Below, at and above the link rate: a queue builds up and drains.
        let (offered, parts) = (4_000_000 + draws.below(9_000_000), 20 + draws.below(60));
        for net in &mut nets {
            net.offered = offered;
            // Without an agent the boxes measure but do not limit.
            net.agent_gone = true;
        }
        for _ in 0..parts {
            let [counted, sampled] = nets.each_mut().map(|net| {
                net.run(10);
                net.last
            });
            assert_eq!(nets[0].sent, nets[1].sent, "the same packets");
            if nets[0].now > Time::ZERO + Duration::from_secs(2) {
                let off =
                    |counted: u64, sampled: u64| sampled.abs_diff(counted) as f64 / counted as f64;
                rtt.push(off(counted.rtt_sample_us, sampled.rtt_sample_us));
                sent.push(off(counted.rate_outgoing, sampled.rate_outgoing));
                received.push(off(counted.rate_incoming, sampled.rate_incoming));
            }
        }
    }
    // With counters, 64 packets lie between two boundaries; with hashes, 64 on average,
    // geometrically distributed. At 96 Mbit/s that is 8 ms.
    let p90 = |mut off: Vec<f64>| {
        sort_floats(&mut off);
        upper_rank(&off, 0.9).expect("ticks")
    };
    let said = [p90(rtt), p90(sent), p90(received)];
    println!(
        "off by RTT {:.4}, S {:.4}, R {:.4} in nine of ten ticks",
        said[0], said[1], said[2]
    );
    assert!(
        said[0] < 0.02 && said[1] < 0.01 && said[2] < 0.01,
        "{said:?}"
    );
    let [counted, sampled] = nets.map(|net| net.sendbox.status(net.now));
    let off = |a: u64, b: u64| a.abs_diff(b) as f64 / a as f64;
    assert!(off(counted.totals.received, sampled.totals.received) < 0.001);
    assert!(off(counted.totals.received_bytes, sampled.totals.received_bytes) < 0.001);
    assert_eq!(
        (counted.totals.missing, counted.totals.out_of_order),
        (0, 0)
    );
    assert_eq!(
        (
            sampled.totals.implausible_feedback,
            counted.totals.implausible_feedback
        ),
        (0, 0)
    );
}

/// A sendbox under which packets 0 to 9 left, a millisecond apart.
fn ten_left() -> Sendbox<FullPacket> {
    let now = Time::ZERO + Duration::from_secs(1);
    let config = SendboxConfig {
        numbering: PacketNumbering::Counter,
        mtu: PACKET_BYTES,
        ..SendboxConfig::default()
    };
    let mut sendbox = Sendbox::new(now, &config).expect("the default configuration is valid");
    for number in 0..10 {
        sendbox.on_sent(now + Duration::from_millis(number), number, PACKET_BYTES);
    }
    sendbox
}

/// Feedback of one of those packets, and when it comes back: packets, out of order, missing,
/// marked.
fn feedback(
    boundary: u64,
    [packets, out_of_order, missing, marked]: [u64; 4],
) -> (Time, crate::Feedback) {
    let came = Time::ZERO + Duration::from_millis(1_000 + boundary + 25);
    let bytes = packets * u64::from(PACKET_BYTES);
    let feedback = crate::Feedback {
        session: 0,
        boundary,
        received_at: came,
        boundary_bytes: bytes,
        hold: Duration::ZERO,
        epoch_size: crate::EpochSize::SINGLE_PACKET,
        packets,
        bytes,
        out_of_order,
        missing,
        marked,
    };
    (came + ONE_WAY_DELAY, feedback)
}

#[test]
fn feedback_adds_up() {
    let mut sendbox = ten_left();
    for (boundary, counts) in [(2, [3, 0, 0, 1]), (6, [6, 1, 1, 3])] {
        let (now, feedback) = feedback(boundary, counts);
        sendbox
            .on_feedback(now, &feedback)
            .expect("plausible feedback is accepted");
    }
    let (now, late) = feedback(2, [3, 0, 0, 1]);
    sendbox
        .on_feedback(now, &late)
        .expect("plausible feedback is accepted");
    let (now, untrue) = feedback(6, [60, 1, 1, 3]);
    assert!(sendbox.on_feedback(now, &untrue).is_err());
    let totals = sendbox.status(now).totals;
    assert_eq!((totals.packets, totals.bytes), (10, 15_000));
    assert_eq!((totals.received, totals.received_bytes), (6, 9_000));
    assert_eq!(
        (totals.missing, totals.out_of_order, totals.marked),
        (1, 1, 3)
    );
    assert_eq!(
        (
            totals.feedback,
            totals.stale_feedback,
            totals.implausible_feedback
        ),
        (4, 1, 1)
    );
    assert_eq!(sendbox.sent_bytes(), 15_000);
}

/// Returns `ten_left` after feedback that arrived `rtt_ms` after its packet, and the arrival time.
fn ten_left_with_rtt(rtt_ms: u64) -> (Sendbox<FullPacket>, Time) {
    let mut sendbox = ten_left();
    let now = Time::ZERO + Duration::from_millis(1_002 + rtt_ms);
    let (_, feedback) = feedback(2, [3, 0, 0, 0]);
    sendbox
        .on_feedback(now, &feedback)
        .expect("plausible feedback is accepted");
    assert_eq!(sendbox.srtt(), Duration::from_millis(rtt_ms));
    (sendbox, now)
}

#[test]
fn feedback_for_the_previous_session_counts_for_two_rtts() {
    let (_, late) = feedback(6, [7, 0, 0, 0]);
    for (rtt_ms, counts_ms) in [(50, 250), (125, 250), (126, 252), (400, 800)] {
        let (mut sendbox, now) = ten_left_with_rtt(rtt_ms);
        sendbox.start_session(now, 1);
        let end = now + Duration::from_millis(counts_ms);
        let result = sendbox.on_feedback(end - Duration::from_nanos(1), &late);
        assert_eq!(result, Ok(()), "RTT {rtt_ms} ms");
        assert_eq!(sendbox.status(end).totals.received, 7);
        assert_eq!(
            sendbox.on_feedback(end, &late),
            Err(ImplausibleFeedback::UnknownSession(0)),
            "RTT {rtt_ms} ms"
        );
    }
}

#[test]
fn silence_follows_after_four_rtts() {
    for (rtt_ms, silence_ms) in [(50, 250), (62, 250), (63, 252), (400, 1_600)] {
        let (mut sendbox, now) = ten_left_with_rtt(rtt_ms);
        (10..20).for_each(|number| sendbox.on_sent(now, number, PACKET_BYTES));
        let silent = now + Duration::from_millis(silence_ms);
        sendbox.on_deadline(silent - Duration::from_nanos(1));
        assert_eq!(sendbox.tick(silent).was_timeout, 0, "RTT {rtt_ms} ms");
        sendbox.on_deadline(silent);
        assert_eq!(sendbox.tick(silent).was_timeout, 1, "RTT {rtt_ms} ms");
    }
}

#[test]
fn the_reported_window_is_rate_times_rtt_and_at_least_ten_packets() {
    let (mut sendbox, now) = ten_left_with_rtt(50);
    let transport = |cwnd| Transport {
        cwnd,
        rate: 0,
        ssthresh: u64::MAX,
        now,
    };
    assert_eq!(
        sendbox.transport(now),
        transport(15_000),
        "no rate is measured"
    );
    // Four packets arrived in 4 ms.
    let (later, feedback) = feedback(6, [7, 0, 0, 0]);
    sendbox
        .on_feedback(later, &feedback)
        .expect("plausible feedback is accepted");
    assert_eq!(sendbox.transport(now), transport(75_000));
}

#[test]
fn a_probe_that_is_missing_is_no_loss() {
    let mut sendbox = ten_left();
    (0..3).for_each(|_| sendbox.on_probe_sent());
    sendbox.on_probe_acked();
    for (boundary, missing, lost) in [(2, 1, 0), (5, 3, 1), (8, 4, 2)] {
        let (now, feedback) = feedback(boundary, [boundary + 1 - missing, 0, missing, 0]);
        sendbox
            .on_feedback(now, &feedback)
            .expect("plausible feedback is accepted");
        assert_eq!(sendbox.status(now).totals.missing, lost, "of {missing}");
    }
}

#[test]
fn manual_mode_opens_a_bundle_and_returns_it() {
    let mut sendbox = ten_left();
    let now = Time::ZERO + Duration::from_secs(2);
    assert!(!sendbox.is_ready(now), "nothing waits");
    let _ = sendbox.enqueue(now, FullPacket, &mut |_, _| {});
    assert!(sendbox.is_ready(now));
    sendbox.set_disabled_by_operator(now, true);
    assert_eq!(sendbox.status(now).reason, Reason::Operator);
    sendbox.set_disabled_by_operator(now, false);
    assert_eq!(sendbox.status(now).reason, Reason::Start);
}

/// Returns a sendbox with one queue, and the time of its creation. One packet more than the queue's
/// limit fits: the next to be sent.
fn sendbox_with(queue: &str) -> (Sendbox<FullPacket>, Time) {
    let now = Time::ZERO + Duration::from_secs(1);
    let queue: QueueSpec = queue.parse().expect("a valid queue");
    let config = SendboxConfig {
        queue: queue.into(),
        mtu: PACKET_BYTES,
        ..SendboxConfig::default()
    };
    let sendbox = Sendbox::new(now, &config).expect("the configuration is valid");
    (sendbox, now)
}

#[test]
fn a_bundle_is_app_limited_if_its_queue_was_empty_since_the_last_tick() {
    let (mut sendbox, start) = sendbox_with("droptail:1p");
    let app_limited = |sendbox: &mut Sendbox<FullPacket>, ms: u64| {
        sendbox.tick(start + Duration::from_millis(ms)).app_limited
    };
    assert_eq!(app_limited(&mut sendbox, 10), 1, "the queue is empty");
    let verdict =
        |sendbox: &mut Sendbox<FullPacket>| sendbox.enqueue(start, FullPacket, &mut |_, _| {});
    assert_eq!(verdict(&mut sendbox), Verdict::Queued);
    assert_eq!(app_limited(&mut sendbox, 20), 1, "it was empty before");
    assert_eq!(verdict(&mut sendbox), Verdict::Queued);
    assert_eq!(app_limited(&mut sendbox, 30), 0);
    assert_eq!(verdict(&mut sendbox), Verdict::Dropped(DropReason::Full));
    assert_eq!(sendbox.backlog().packets, 2);
    assert_eq!(app_limited(&mut sendbox, 40), 0);
}

#[test]
fn late_ticks_keep_their_phase() {
    let (mut sendbox, start) = sendbox_with("droptail:1p");
    let at = |ms: u64| start + Duration::from_millis(ms);
    assert_eq!(sendbox.next_tick(), at(10));
    for (now, next) in [(10, 20), (29, 30), (30, 40), (75, 80), (100, 110)] {
        sendbox.tick(at(now));
        assert_eq!(sendbox.next_tick(), at(next), "after a tick at {now} ms");
    }
}

/// Flow that records its calls.
#[derive(Default)]
struct RecordedFlow {
    deadline: Option<Time>,
    calls: Vec<(&'static str, Time)>,
}

impl SteeredFlow for RecordedFlow {
    fn on_ack(&mut self, transport: &Transport, _signals: &Signals) -> Outcome {
        self.calls.push(("tick", transport.now));
        Outcome::default()
    }

    fn on_deadline(&mut self, transport: &Transport) -> Outcome {
        self.calls.push(("deadline", transport.now));
        Outcome::default()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.deadline
    }
}

#[test]
fn the_program_runs_at_ticks_and_at_its_own_deadline() {
    let (mut sendbox, start) = sendbox_with("droptail:1p");
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut flow = RecordedFlow {
        deadline: Some(at(14)),
        ..RecordedFlow::default()
    };
    for (ms, tick, calls) in [
        (9, false, &[] as &[&str]),
        (10, true, &["tick"]),
        (13, false, &[]),
        (14, false, &["deadline"]),
        (20, true, &["tick", "deadline"]),
    ] {
        assert_eq!(sendbox.drive(at(ms), &mut flow), tick, "at {ms} ms");
        let expected: Vec<_> = calls.iter().map(|call| (*call, at(ms))).collect();
        assert_eq!(std::mem::take(&mut flow.calls), expected);
    }
}

#[test]
fn a_tick_reports_what_changed_since_the_last_one() {
    let mut sendbox = ten_left();
    let mut last = Time::ZERO;
    for (boundary, counts) in [(2, [3, 0, 0, 1]), (6, [6, 1, 1, 3])] {
        let (now, feedback) = feedback(boundary, counts);
        sendbox
            .on_feedback(now, &feedback)
            .expect("plausible feedback is accepted");
        last = now;
    }
    let _ = sendbox.enqueue(last, FullPacket, &mut |_, _| {});
    let signals = sendbox.tick(last);
    let expected = Signals {
        bytes_acked: 9_000,
        packets_acked: 6,
        lost_pkts_sample: 1,
        ecn_packets: 3,
        ecn_bytes: 4_500,
        bytes_in_flight: 4_500,
        packets_in_flight: 3,
        bytes_pending: 1_500,
        // Packets 3 to 6 were sent in 4 ms; three of them arrived in 4 ms.
        rate_outgoing: 1_500_000,
        rate_incoming: 1_125_000,
        rtt_sample_us: 50_000,
        srtt_us: 50_000,
        min_rtt_us: 50_000,
        mss: 1_500,
        app_limited: 1,
        // Tested with `OneWay`.
        owd_ns: signals.owd_ns,
        rtt_ns: signals.rtt_ns,
        min_owd_ns: signals.min_owd_ns,
        min_rtt_ns: signals.min_rtt_ns,
        queue_delay_ns: signals.queue_delay_ns,
        queue_delay_valid: signals.queue_delay_valid,
        ..Signals::default()
    };
    assert_eq!(signals, expected);
    let signals = sendbox.tick(last + Duration::from_millis(10));
    assert_eq!(
        (
            signals.bytes_acked,
            signals.packets_acked,
            signals.lost_pkts_sample,
            signals.ecn_packets,
            signals.ecn_bytes
        ),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(
        (signals.packets_in_flight, signals.rtt_sample_us),
        (3, 50_000)
    );
}

#[test]
fn silence_is_reported_in_one_tick() {
    let mut sendbox = ten_left();
    // Ten packets are unanswered since 1,009 ms. Silence follows after 250 ms.
    let silent = Time::ZERO + Duration::from_millis(1_259);
    sendbox.on_deadline(silent - Duration::from_nanos(1));
    assert_eq!(sendbox.tick(silent).was_timeout, 0);
    sendbox.on_deadline(silent);
    let later = |ticks: u64| silent + Duration::from_millis(10 * ticks);
    assert_eq!(sendbox.tick(later(1)).was_timeout, 1);
    assert_eq!(sendbox.tick(later(2)).was_timeout, 0);
}

/// A packet of one of several flows.
#[derive(Clone, Copy, Debug)]
struct FlowPacket(u32);

impl Packet for FlowPacket {
    fn bytes(&self) -> u32 {
        PACKET_BYTES
    }

    fn flow_hash(&self) -> u32 {
        hash(self.0.to_be_bytes()) as u32
    }
}

/// The default queue holds 1,250 packets and the next one to be sent, of one flow or of as many
/// flows. It rarely puts two of a thousand flows into one bucket.
#[test]
fn the_default_queue_separates_a_thousand_flows() {
    let now = Time::ZERO + Duration::from_secs(1);
    let config = SendboxConfig::default();
    // Packets queued without a drop, and packets of different flows among the first 1,000 sent.
    let fill = |flow: fn(u32) -> u32| {
        let mut sendbox = Sendbox::new(now, &config).expect("the default configuration is valid");
        let mut queued = 0;
        let mut dropped = 0;
        while dropped == 0 {
            assert!(queued < 10_000, "the queue is unbounded");
            let packet = FlowPacket(flow(queued));
            let _ = sendbox.enqueue(now, packet, &mut |_, _| dropped += 1);
            queued += 1;
        }
        let first: BTreeSet<u32> = (0..1_000)
            .filter_map(|_| sendbox.dequeue(now, &mut |_, _| {}))
            .map(|packet: FlowPacket| packet.0)
            .collect();
        (queued - 1, first.len())
    };
    assert_eq!(fill(|_| 7), (1_251, 1));
    let (queued, separate) = fill(|packet| packet % 1_000);
    assert_eq!(queued, 1_251);
    assert!(separate > 950, "{separate} of 1,000 flows");
    assert_eq!(fill(|packet| packet).0, 1_251);
}
