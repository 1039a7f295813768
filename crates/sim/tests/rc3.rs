//! RC3's low-priority loop over queues: its gain, and the absence of harm to class 0. The corner
//! cases have the numbers of `crates/transport/tests/rc3`.

use std::sync::{Arc, Mutex};

use ccplane_qdisc::QueueSpec;
use ccplane_sim::{
    FlowControl, FlowId, FlowSpec, LinkSpec, LinkStep, Native, Network, NodeId, PacketEvent, Rc3,
    Rc3Stats, Rc3Stop, Remark, SimOptions, Simulation, Tracer, TransportConfig, default_transport,
    topology,
};
use ccplane_transport::SegmentKind;
use ccplane_units::{Duration, Rate, Time};

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn queue(text: &str) -> QueueSpec {
    text.parse().expect("a queue")
}

/// With or without RC3; every packet is acknowledged.
fn transport(rc3: Option<Rc3>) -> Arc<TransportConfig> {
    Arc::new(TransportConfig {
        rc3,
        ack_every: 1,
        ..default_transport().as_ref().clone()
    })
}

const RC3: Option<Rc3> = Some(Rc3 {
    levels: 4,
    first_level_segments: 40,
    distance_max: 1 << 17,
    verify: true,
});

/// Pairs of hosts over one link of this rate and an RTT of 20 ms, with this queue and treatment of
/// class markings.
fn dumbbell(pairs: u32, rate: Rate, own: &str, remark: Remark) -> Network {
    let access = LinkSpec::new(mbit(10_000), Duration::ZERO);
    let link = LinkSpec::new(rate, ms(10))
        .with_queue(queue(own), ms(20))
        .with_remark(remark);
    let back = LinkSpec::new(rate, ms(10)).with_queue(queue("prio:5:shared:1bdp"), ms(20));
    topology::dumbbell(pairs, &access, link, back).expect("small")
}

fn ends<T: Tracer>(sim: &Simulation<T>, pair: u32) -> (NodeId, NodeId) {
    let node = |name: String| sim.network().find_node(&name).expect("a host");
    (node(format!("left{pair}")), node(format!("right{pair}")))
}

/// Runs until all flows have ended, at most for `limit_s`.
fn finish<T: Tracer>(sim: &mut Simulation<T>, limit_s: u64) {
    let limit = Time::ZERO + Duration::from_secs(limit_s);
    assert!(sim.run_flows(limit).expect("no stall"));
}

fn add(sim: &mut Simulation, pair: u32, bytes: u64, at: Duration, rc3: Option<Rc3>) -> FlowId {
    let (from, to) = ends(sim, pair);
    let spec = FlowSpec::new(from, to)
        .with_bytes(bytes)
        .starting_at(Time::ZERO + at)
        .with_transport(transport(rc3));
    sim.add_flow(spec.with_congestion(FlowControl::Native(Native::new_reno())))
        .expect("a path")
}

fn took(sim: &Simulation, flow: FlowId) -> Duration {
    let view = sim.flow(flow).expect("the flow exists");
    view.finished
        .expect("the flow finished")
        .since(view.started)
}

fn rc3_of(sim: &Simulation, flow: FlowId) -> Rc3Stats {
    sim.rc3(flow).expect("the flow uses RC3").0
}

/// Runs a single flow and returns its completion time and RC3 statistics.
fn alone(
    rate: Rate,
    own: &str,
    remark: Remark,
    bytes: u64,
    rc3: Option<Rc3>,
) -> (Duration, Option<Rc3Stats>) {
    let mut sim =
        Simulation::new(dumbbell(1, rate, own, remark), SimOptions::default()).expect("valid");
    let flow = add(&mut sim, 1, bytes, Duration::ZERO, rc3);
    finish(&mut sim, 600);
    sim.run_until(sim.now() + Duration::from_secs(5))
        .expect("no stall");
    sim.check().expect("packets are conserved");
    (took(&sim, flow), sim.rc3(flow).map(|(sent, _)| sent))
}

/// The paper's flow of 1.46 MB over 20 ms: with RC3 it takes one and a half RTTs plus its
/// transmission time, as in the model.
#[test]
fn a_flow_takes_a_round_trip_and_its_own_length() {
    for (rate, most) in [(mbit(10_000), 32), (mbit(1_000), 43)] {
        let (with, rc3) = alone(rate, "prio:5:shared:1bdp", Remark::IDENTITY, 1_460_000, RC3);
        let (without, _) = alone(
            rate,
            "prio:5:shared:1bdp",
            Remark::IDENTITY,
            1_460_000,
            None,
        );
        assert!(with >= ms(30) && with < ms(most), "{with:?}");
        assert!(without > ms(145), "{without:?}");
        let rc3 = rc3.expect("the flow uses RC3");
        assert_eq!((rc3.stopped, rc3.in_flight), (None, 0));
        // For data sent by both loops, it can be unknown which copy arrived.
        assert!(
            rc3.unconfirmed().iter().sum::<u64>() <= rc3.duplicates + 1,
            "{rc3:?}"
        );
    }
}

/// If its packets are dropped before the first link, RC3 changes nothing. If they are lost later, a
/// packet of class 0 waits for at most one lower-class packet per hop, since links do not preempt;
/// this recurs every RTT, since ACK clocking propagates the delay.
#[test]
fn case_07_what_is_lost_of_it_costs_a_packet_a_hop_in_a_round_trip_at_most() {
    let network = |own: Remark, behind: Remark| {
        let mut network = Network::new();
        let (from, to) = (network.add_host("left1"), network.add_host("right1"));
        let (a, b) = (network.add_switch("a"), network.add_switch("b"));
        let link = LinkSpec::new(mbit(100), ms(3)).with_queue(queue("prio:5:shared:inf"), ms(18));
        network.add_duplex_link(from, a, link.clone().with_remark(own), link.clone());
        network.add_duplex_link(a, b, link.clone(), link.clone());
        network.add_duplex_link(b, to, link.clone().with_remark(behind), link);
        network
    };
    let run = |own, behind, rc3, bytes| {
        let mut sim = Simulation::new(network(own, behind), SimOptions::default()).expect("valid");
        let flow = add(&mut sim, 1, bytes, Duration::ZERO, rc3);
        finish(&mut sim, 60);
        took(&sim, flow)
    };
    for bytes in [20_000, 73_001, 400_000, 1_460_000] {
        let plain = run(Remark::IDENTITY, Remark::IDENTITY, None, bytes);
        assert_eq!(
            run(Remark::PRIORITY_DROP, Remark::IDENTITY, RC3, bytes),
            plain,
            "{bytes} bytes"
        );
        // Two hops of 1500 bytes at 100 Mbit/s before the router that drops RC3's packets.
        let later = run(Remark::IDENTITY, Remark::PRIORITY_DROP, RC3, bytes);
        let rounds = plain.as_millis() / 18;
        let most = Duration::from_micros(2 * 120 * rounds);
        assert!(
            later >= plain && later <= plain + most,
            "{bytes} bytes: {later:?}, {plain:?}"
        );
    }
}

/// Networks without priorities: the sender detects that class 0 is delayed, or that the marking is
/// removed, and stops the low-priority loop.
#[test]
fn case_17_a_network_that_ignores_or_strips_priorities() {
    let rate = mbit(100);
    let bytes = 20_000_000;
    // The queue ignores classes. The stream is longer than the data sent in the first RTTs.
    let (_, rc3) = alone(rate, "droptail:1bdp", Remark::IDENTITY, bytes, RC3);
    let stopped = rc3.and_then(|rc3| rc3.stopped);
    assert!(
        matches!(stopped, Some(Rc3Stop::Delay { with, without }) if with > without),
        "{rc3:?}"
    );
    // The queue uses classes, but is behind a router that strips them.
    let (_, rc3) = alone(rate, "prio:5:shared:1bdp", Remark::BLEACHING, bytes, RC3);
    let rc3 = rc3.expect("the flow uses RC3");
    assert!(
        matches!(rc3.stopped, Some(Rc3Stop::Marking { .. })),
        "{rc3:?}"
    );
    // Without verification the loop runs to its end.
    let blind = RC3.map(|rc3| Rc3 {
        verify: false,
        ..rc3
    });
    let (_, blind) = alone(rate, "prio:5:shared:1bdp", Remark::BLEACHING, bytes, blind);
    let blind = blind.expect("the flow uses RC3");
    assert!(blind.stopped.is_none() && blind.sent.iter().sum::<u64>() >= rc3.sent.iter().sum());
    // Merged or reversed lower classes do not harm class 0: the loop continues, and the bytes
    // arrive.
    for remark in [
        Remark::new([0, 1, 1, 1, 1, 1, 1, 1]),
        Remark::new([0, 4, 3, 2, 1, 5, 6, 7]),
    ] {
        let (with, rc3) = alone(rate, "prio:5:shared:4bdp", remark, 400_000, RC3);
        assert_eq!(rc3.and_then(|rc3| rc3.stopped), None);
        assert!(with < ms(30 + 36), "{with:?}");
    }
}

/// Records the highest band in which data arrived at a link.
#[derive(Clone)]
struct Highest(Arc<Mutex<u8>>);

impl Default for Highest {
    fn default() -> Highest {
        Highest(Arc::new(Mutex::new(u8::MAX)))
    }
}

impl Tracer for Highest {
    fn on_packet_event(&mut self, _now: Time, seen: &PacketEvent<'_>) {
        if seen.step == LinkStep::Queued
            && seen.segment.length > 0
            && seen.segment.kind == SegmentKind::Data
        {
            let mut highest = self.0.lock().expect("one thread");
            *highest = seen.segment.band.min(*highest);
        }
    }
}

/// A flow in a lower band counts its classes from there: no lower class is mistaken for another or
/// served before the flow's own class 0, and a router that maps them to it has removed the marking.
#[test]
fn case_17_classes_count_from_the_flows_own_band() {
    let (link, own) = ("prio:8:shared:4bdp", 3);
    let bleach = Remark::new([0, 1, 2, 3, 3, 3, 3, 3]);
    // The loop uses classes up to 4, which is band 7 for a flow with class 0 in band 3.
    for (band, remark, strips) in [
        (0, Remark::IDENTITY, false),
        (own, Remark::IDENTITY, false),
        (own, bleach, true),
        (own, Remark::BLEACHING, true),
        (5, Remark::IDENTITY, false),
        // There is no band below the last, so the tail shares the band of class 0.
        (7, Remark::IDENTITY, true),
    ] {
        let network = dumbbell(1, mbit(1_000), link, remark);
        let log = Highest::default();
        let mut sim =
            Simulation::with_tracer(network, SimOptions::default(), log.clone()).expect("valid");
        let (from, to) = ends(&sim, 1);
        let spec = FlowSpec::new(from, to)
            .with_bytes(8_000_000)
            .with_transport(transport(RC3));
        let flow = sim.add_flow(spec.with_band(band)).expect("a path");
        finish(&mut sim, 60);
        let (sent, arrived) = sim.rc3(flow).expect("the flow uses RC3");
        let marking = matches!(sent.stopped, Some(Rc3Stop::Marking { .. }));
        assert_eq!(marking, strips, "band {band}: {sent:?}");
        assert!(strips || sent.stopped.is_none(), "band {band}: {sent:?}");
        assert!(sent.sent[3] > 0 || strips, "band {band}: {sent:?}");
        let remarked = arrived.remarked;
        assert_eq!(
            remarked > 0,
            strips || band > 3,
            "band {band}: {remarked} of {arrived:?}"
        );
        let highest = *log.0.lock().expect("one thread");
        assert_eq!(highest, if remark == Remark::BLEACHING { 0 } else { band });
        sim.check().expect("packets are conserved");
    }
}

/// Flows of class 0 next to an RC3 flow whose marking is removed, at a host whose link is as fast
/// as the shared one: verification limits the harm.
#[test]
fn case_17_the_check_limits_the_harm_to_others() {
    let harmed = |remark, rc3| {
        let mut network = Network::new();
        let (a, b) = (network.add_switch("a"), network.add_switch("b"));
        for pair in 1..=2 {
            let (from, to) = (
                network.add_host(format!("left{pair}")),
                network.add_host(format!("right{pair}")),
            );
            let access = LinkSpec::new(mbit(100), Duration::ZERO);
            network.add_duplex_link(from, a, access.clone(), access.clone());
            network.add_duplex_link(b, to, access.clone(), access);
        }
        let link = LinkSpec::new(mbit(100), ms(10)).with_queue(queue("prio:5:shared:1bdp"), ms(20));
        network.add_duplex_link(a, b, link.clone().with_remark(remark), link);
        let mut sim = Simulation::new(network, SimOptions::default()).expect("valid");
        add(&mut sim, 1, 6_000_000, Duration::ZERO, rc3);
        let shorts: Vec<FlowId> = (0..20)
            .map(|n| add(&mut sim, 2, 14_000, ms(40 + 8 * n), None))
            .collect();
        finish(&mut sim, 60);
        shorts
            .iter()
            .map(|flow| took(&sim, *flow).as_micros())
            .sum::<u64>()
            / 20
    };
    let blind = RC3.map(|rc3| Rc3 {
        verify: false,
        ..rc3
    });
    let [plain, kept, checked, unchecked] = [
        harmed(Remark::IDENTITY, None),
        harmed(Remark::IDENTITY, RC3),
        harmed(Remark::BLEACHING, RC3),
        harmed(Remark::BLEACHING, blind),
    ];
    println!(
        "mean of short plain flows: {plain} us, next to RC3 {kept}, stripped {checked}, unchecked \
         {unchecked}"
    );
    assert!(
        kept <= plain + plain / 50,
        "{kept} us next to RC3, {plain} without"
    );
    assert!(
        checked < unchecked,
        "{checked} us with the check, {unchecked} without"
    );
}

/// Per-band or shared buffers smaller than the burst, and a link that class 0 saturates.
#[test]
fn case_18_buffers_smaller_than_the_burst_and_a_link_that_is_full() {
    for own in [
        "prio:5:20p",
        "prio:5:shared:20p",
        "prio:5:shared:1bdp",
        "prio:5:1bdp",
    ] {
        // The whole burst arrives at a link of a hundredth of its rate.
        let (with, rc3) = alone(mbit(100), own, Remark::IDENTITY, 3_000_000, RC3);
        let (without, _) = alone(mbit(100), own, Remark::IDENTITY, 3_000_000, None);
        assert!(
            with <= without + ms(1),
            "{own}: {with:?} with, {without:?} without"
        );
        let rc3 = rc3.expect("the flow uses RC3");
        if own.ends_with("20p") {
            assert!(
                rc3.unconfirmed().iter().sum::<u64>() > 500,
                "{own}: {rc3:?}"
            );
        }
        assert_eq!(rc3.stopped, None, "{own}");
    }
    // Class 0 saturates the link: hardly any low-priority data arrives, and class 0 is unaffected.
    let full = |rc3| {
        let mut sim = Simulation::new(
            dumbbell(2, mbit(50), "prio:5:shared:1bdp", Remark::IDENTITY),
            SimOptions::default(),
        )
        .expect("valid");
        let long = add(&mut sim, 1, 40_000_000, Duration::ZERO, None);
        let late = add(&mut sim, 2, 2_000_000, ms(1_000), rc3);
        finish(&mut sim, 60);
        (took(&sim, long), took(&sim, late), sim.rc3(late))
    };
    let (long, _, _) = full(None);
    let (beside, _, rc3) = full(RC3);
    let (sent, _) = rc3.expect("the flow uses RC3");
    assert!(
        beside.as_micros().abs_diff(long.as_micros()) * 50 < long.as_micros(),
        "{beside:?}, {long:?}"
    );
    assert!(sent.delivered_bytes < 1_500_000, "{sent:?}");
}

/// A short flow has all its tail in class 1, so the long flow's lower classes do not delay it;
/// plain flows take as long as next to plain flows.
#[test]
fn case_19_short_beside_long_and_plain_beside_rc3() {
    let mut sim = Simulation::new(
        dumbbell(2, mbit(100), "prio:5:shared:4bdp", Remark::IDENTITY),
        SimOptions::default(),
    )
    .expect("valid");
    let long = add(&mut sim, 1, 30_000_000, Duration::ZERO, RC3);
    let short = add(&mut sim, 2, 70_000, ms(60), RC3);
    finish(&mut sim, 60);
    assert_eq!(rc3_of(&sim, short).sent[1..], [0, 0, 0]);
    let sent = rc3_of(&sim, long).sent;
    assert!(sent[0] >= 40 && sent[2] > sent[0], "{sent:?}");
    assert!(took(&sim, short) < ms(60), "{:?}", took(&sim, short));

    let plain = |rc3| {
        let mut sim = Simulation::new(
            dumbbell(20, mbit(200), "prio:5:shared:1bdp", Remark::IDENTITY),
            SimOptions::default(),
        )
        .expect("valid");
        let others: Vec<FlowId> = (1..=20)
            .map(|n| {
                let own = if n % 2 == 0 { rc3 } else { None };
                add(
                    &mut sim,
                    n,
                    100_000 + u64::from(n) * 30_000,
                    ms(u64::from(n) * 37),
                    own,
                )
            })
            .collect();
        finish(&mut sim, 60);
        let sum = |rest: usize| -> u64 {
            let own = others
                .iter()
                .enumerate()
                .filter(|(n, _)| (n + 1) % 2 == rest);
            own.map(|(_, flow)| took(&sim, *flow).as_micros()).sum()
        };
        (sum(1), sum(0))
    };
    let (before, others_before) = plain(None);
    let (after, others_after) = plain(RC3);
    assert!(
        after <= before + before / 100,
        "plain flows: {before} us, {after} next to RC3"
    );
    assert!(
        others_after * 10 < others_before * 6,
        "RC3's: {others_before} us, {others_after} with it"
    );
}

/// A flow aborted while its tail is queued at the host's link leaves nothing behind.
#[test]
fn case_22_a_flow_is_given_up_with_a_tail_that_waits() {
    let mut sim = Simulation::new(
        dumbbell(2, mbit(10), "prio:5:shared:1bdp", Remark::IDENTITY),
        SimOptions::default(),
    )
    .expect("valid");
    let first = add(&mut sim, 1, 5_000_000, Duration::ZERO, RC3);
    sim.run_until(Time::ZERO + ms(21)).expect("no stall");
    assert!(sim.abort(first));
    sim.run_until(Time::ZERO + Duration::from_secs(30))
        .expect("no stall");
    let second = add(&mut sim, 1, 100_000, Duration::from_secs(31), RC3);
    assert!(
        !sim.run_flows(Time::ZERO + Duration::from_secs(60))
            .expect("no stall")
            || sim.flow(second).is_some()
    );
    assert_eq!(sim.flow(second).map(|view| view.received), Some(100_000));
    sim.check().expect("packets are conserved");
}

/// Ten thousand simultaneous flows share a link: all complete, the class 0 queue does not grow, and
/// memory is bounded.
#[test]
fn ten_thousand_flows_at_once() {
    let flows = 10_000;
    let mut sim = Simulation::new(
        dumbbell(100, mbit(10_000), "prio:5:shared:1bdp", Remark::IDENTITY),
        SimOptions::default(),
    )
    .expect("valid");
    for n in 0..flows {
        let pair = n % 100 + 1;
        add(
            &mut sim,
            pair,
            60_000 + u64::from(n),
            Duration::from_micros(u64::from(n % 97)),
            RC3,
        );
    }
    let mut most = 0;
    for step in 1..400 {
        sim.run_until(Time::ZERO + ms(step * 5)).expect("no stall");
        most = most.max(sim.memory());
    }
    finish(&mut sim, 60);
    // A flow has 44 segments: 2 KB for its scoreboard, 1.5 KB for both connections and RC3 state,
    // plus its packets.
    assert!(most < flows as usize * 20_000, "{most} bytes");
    println!("{} bytes a flow at most", most / flows as usize);
    sim.check().expect("packets are conserved");
}
