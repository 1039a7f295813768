//! Probes: accuracy, memory limit, and no effect on the simulation.

use ccplane_qdisc::QueueSpec;
use ccplane_sim::{
    AppId, FlowSpec, LinkId, LinkSpec, ProbeSpec, ProbeTarget, SimError, SimOptions, Simulation,
    topology,
};
use ccplane_units::stats::{mean, nearest_rank};
use ccplane_units::{Duration, Rate, Time};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// 96 Mbit/s, 20 ms, one BDP; one endless flow, and one of 1 MB that starts after a second.
fn network() -> (Simulation, LinkId) {
    let bottleneck = LinkSpec::new(Rate::from_bits_per_sec(96_000_000), ms(10)).with_queue(
        "droptail:1bdp".parse::<QueueSpec>().expect("a queue"),
        ms(20),
    );
    let access = LinkSpec::wire(Duration::ZERO);
    let network = topology::dumbbell(2, &access, bottleneck, LinkSpec::wire(ms(10)))
        .expect("a valid network");
    let link = network.find_link("bottleneck").expect("the link exists");
    let mut sim = Simulation::new(network, SimOptions::default()).expect("a valid network");
    for (n, start) in [(1, 0), (2, 1_000)] {
        let host = |name: String| sim.network().find_node(&name).expect("the host exists");
        let mut flow = FlowSpec::new(host(format!("left{n}")), host(format!("right{n}")))
            .starting_at(at(start));
        if n == 2 {
            flow = flow.with_bytes(1_000_000);
        }
        sim.add_flow(flow).expect("a valid flow");
    }
    (sim, link)
}

fn probed(spec: ProbeSpec, until: u64) -> (Simulation, AppId) {
    let (mut sim, link) = network();
    let probe = sim
        .add_probe(spec.link(link).flows(ProbeTarget::First(2)))
        .expect("a valid probe");
    sim.run_until(at(until)).expect("the run succeeds");
    (sim, probe)
}

#[test]
fn columns_say_what_the_counters_say() {
    let (sim, probe) = probed(ProbeSpec::new(ms(10)), 10_000);
    let probe = sim.probe(probe).expect("exists");
    let link = &probe.links()[0];
    assert_eq!(
        link.time,
        (1..=1_000).map(|n| n * 10_000_000).collect::<Vec<u64>>()
    );
    let view = sim.link(link.link).expect("the link exists");
    assert_eq!(link.accepted.last(), Some(&view.accepted));
    assert_eq!(link.dropped.last(), Some(&view.queue_drops));
    assert_eq!(link.sojourn_sum.last(), Some(&view.sojourn_sum.as_nanos()));
    assert_eq!(link.backlog_bytes.last(), Some(&view.backlog.bytes));
    // Once the window is open the link is busy; a sample may see a packet half sent.
    let used: Vec<f64> = link
        .utilisation()
        .map(|share| share.expect("the link has a rate"))
        .collect();
    assert_eq!(used.len(), 999);
    assert!(
        used[100..].iter().all(|share| (0.98..1.02).contains(share)),
        "{used:?}"
    );
    // The queue holds at most 20 ms, and the transmission takes 125 µs.
    let waited: Vec<f64> = link.mean_sojourn().flatten().collect();
    assert!(
        waited[100..]
            .iter()
            .all(|ns| (125_000.0..20_200_000.0).contains(ns))
    );
    assert!(link.backlog_packets.iter().all(|packets| *packets <= 161));

    let [long, short] = probe.flows() else {
        panic!("there are two flows")
    };
    assert_eq!(long.time.len(), 1_000);
    let flow = sim.flow(long.flow).expect("the flow exists");
    assert_eq!(long.received.last(), Some(&flow.received));
    assert_eq!(long.cwnd.last(), Some(&flow.cwnd));
    assert_eq!(long.srtt.last(), Some(&flow.srtt.as_nanos()));
    let rates: Vec<f64> = long.goodput().collect();
    let mean = mean(rates).expect("rates");
    let (first, last) = (long.received[0], long.received[999]);
    assert!((mean - (last - first) as f64 / 9.99).abs() < 1.0);
    // The series of the short flow covers its lifetime, and the last sample includes all its data.
    let flow = sim.flow(short.flow).expect("the flow exists");
    assert_eq!(short.time.first(), Some(&1_010_000_000));
    let over = short.time.last().expect("at least one sample");
    let finished = flow.finished.expect("the flow finished").as_nanos();
    assert!(
        (finished..finished + 10_000_000).contains(over),
        "{over} {finished}"
    );
    assert_eq!(short.received.last(), Some(&1_000_000));
}

#[test]
fn a_full_probe_keeps_every_second_look() {
    let (all, every) = probed(ProbeSpec::new(ms(10)), 10_000);
    let all = all.probe(every).expect("exists");
    // Memory for 100 samples of 8 bytes: 9 columns of a link, and 7 of each flow.
    let spec = ProbeSpec {
        memory_limit: 100 * 8 * (9 + 14),
        ..ProbeSpec::new(ms(10))
    };
    let (sim, probe) = probed(spec, 10_000);
    let probe = sim.probe(probe).expect("exists");
    assert_eq!(probe.interval(), ms(160));
    let link = &probe.links()[0];
    assert_eq!(
        link.time,
        (1..=62).map(|n| n * 160_000_000).collect::<Vec<u64>>()
    );
    // Its rows are a subset of the other probe's.
    for (row, time) in link.time.iter().enumerate() {
        let other = all.links()[0]
            .time
            .binary_search(time)
            .expect("the other has looked then");
        assert_eq!(
            link.departed_bytes[row],
            all.links()[0].departed_bytes[other]
        );
        assert_eq!(link.backlog_bytes[row], all.links()[0].backlog_bytes[other]);
    }
    assert!(link.time.capacity() <= 100 && probe.flows()[0].time.capacity() <= 100);
    assert_eq!(probe.flows()[0].time.len(), 62);
}

#[test]
fn looking_changes_nothing() {
    let outcome = |probe: bool| {
        let (mut sim, link) = network();
        if probe {
            let spec = ProbeSpec::new(Duration::from_micros(77)).link(link);
            sim.add_probe(spec.flows(ProbeTarget::First(2)))
                .expect("a valid probe");
        }
        sim.run_until(at(5_000)).expect("the run succeeds");
        let flows: Vec<_> = sim.flows().map(|flow| sim.flow(flow)).collect();
        (flows, sim.link(link), sim.counters().hops)
    };
    assert_eq!(outcome(false), outcome(true));
}

#[test]
fn what_cannot_be_probed_is_refused() {
    let (mut sim, link) = network();
    let refused = |sim: &mut Simulation, spec| sim.add_probe(spec).unwrap_err().to_string();
    assert_eq!(
        refused(&mut sim, ProbeSpec::new(Duration::ZERO)),
        "invalid probe: its interval is 0; give a time above 0"
    );
    let many = ProbeSpec::new(ms(1))
        .link(link)
        .flows(ProbeTarget::First(1_000_000));
    assert_eq!(
        refused(&mut sim, many),
        "a probe of 1 links and 1000000 flows would need about 897 MB of memory, but the limit is \
         64 MB; make it smaller, or raise `memory_limit`"
    );
    // A flow of another simulation.
    let (mut other, _) = network();
    let host = |sim: &Simulation, name| sim.network().find_node(name).expect("the host exists");
    let flow = FlowSpec::new(host(&other, "left1"), host(&other, "right1"));
    let foreign = other.add_flow(flow).expect("a valid flow");
    let error = sim
        .add_probe(ProbeSpec::new(ms(1)).flows(ProbeTarget::List(vec![foreign])))
        .unwrap_err();
    assert_eq!(
        error,
        SimError::Unknown {
            what: "flow",
            number: 2,
            count: 2
        }
    );
}

#[test]
fn sojourns_are_those_of_the_crossings() {
    for queue in ["droptail:1bdp", "codel"] {
        let bottleneck = LinkSpec::new(Rate::from_bits_per_sec(96_000_000), ms(10))
            .with_queue(queue.parse::<QueueSpec>().expect("a queue"), ms(20));
        let access = LinkSpec::wire(Duration::ZERO);
        let network = topology::dumbbell(1, &access, bottleneck, LinkSpec::wire(ms(10)))
            .expect("a valid network");
        let link = network.find_link("bottleneck").expect("the link exists");
        let (left, right) = (
            network.find_node("left1").expect("a host"),
            network.find_node("right1").expect("a host"),
        );
        let mut sim = Simulation::new(network, SimOptions::default()).expect("a valid network");
        sim.add_flow(FlowSpec::new(left, right))
            .expect("a valid flow");
        sim.record_crossings(link).expect("nothing has passed");
        assert!(sim.sojourns(link).is_none());
        sim.record_sojourns(link).expect("nothing has passed");
        sim.run_until(at(5_000)).expect("the run succeeds");
        let mut times: Vec<u64> = sim
            .crossings(link)
            .iter()
            .map(|crossing| crossing.sojourn.as_nanos())
            .collect();
        times.sort_unstable();
        let sojourns = sim.sojourns(link).expect("the link is observed");
        assert_eq!(sojourns.count(), times.len() as u64);
        assert!(times.len() > 35_000, "{}", times.len());
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let exact = nearest_rank(&times, share).expect("crossings") as f64;
            let kept = sojourns.quantile(share).as_nanos() as f64;
            assert!(
                (kept / exact - 1.0).abs() < 0.001,
                "{queue} {share}: {kept} is not {exact}"
            );
        }
        let mean = mean(times.iter().map(|time| *time as f64)).expect("crossings");
        assert!((sojourns.mean() / mean - 1.0).abs() < 0.001);
        assert!(sojourns.max().as_nanos() >= times[times.len() - 1]);
        // The link has already carried packets.
        assert!(matches!(
            sim.record_sojourns(link),
            Err(SimError::LateChange(_))
        ));
    }
}
