//! DCTCP, Swift, TIMELY and DX in data-centre networks: links of 10 to 100 Gbit/s, RTTs of 20 to
//! 100 µs, and an agent delay of 20 µs (the simulator's default). Also DCTCP on kernel TCP, with
//! ECN negotiated, over an emulated link that marks.

use ccplane_lab::result::ContenderResult;
use ccplane_units::stats::mean;

use crate::common::simulate;

/// Size of a packet on the wire, bits.
const PACKET: f64 = 1500.0 * 8.0;
/// Base RTT, µs.
const BASE: f64 = 20.0;

/// Runs `flows` between two hosts over one link for `millis`.
fn link(
    contenders: &str,
    gbit: u32,
    flows: u32,
    queue: &str,
    millis: u32,
    transport: &str,
) -> Vec<ContenderResult> {
    simulate(&format!(
        "contenders = [{contenders}]\nduration = \"{millis}ms\"\nsample = \"1ms\"\n\
         [topology.dumbbell]\nrate = \"{gbit}gbit\"\nrtt = \"20us\"\nqueue = \"{queue}\"\n\
         [transport]\nmin_rto = \"4ms\"\n{transport}\n\
         [[workload]]\nbulk = {{ flows = {flows} }}\n"
    ))
    .contenders
}

/// Runs `senders` to one receiver as in scenarios/07-dctcp.toml; `bulk` is the traffic of each
/// sender.
fn incast(
    contenders: &str,
    senders: u32,
    queue: &str,
    bulk: &str,
    transport: &str,
) -> Vec<ContenderResult> {
    simulate(&format!(
        "contenders = [{contenders}]\nduration = \"200ms\"\nsample = \"1ms\"\n\
         [topology.incast]\nsenders = {senders}\nrate = \"10gbit\"\nrtt = \"100us\"\n\
         queue = \"{queue}\"\n\
         [transport]\nmin_rto = \"4ms\"\n{transport}\n\
         [[workload]]\nbulk = {{ {bulk} }}\n"
    ))
    .contenders
}

/// Returns the mean throughput in Gbit/s and queueing delay in µs over the last two thirds of a
/// run, when the flows have converged.
fn settled(c: &ContenderResult) -> (f64, f64) {
    let mean = |values: &[f64]| mean(values.iter().copied()).expect("samples");
    let (rates, delays) = (&c.series.throughput_mbit, &c.series.delay_ms);
    let delays: Vec<f64> = delays[delays.len() / 3..]
        .iter()
        .flatten()
        .copied()
        .collect();
    let (rate, delay) = (mean(&rates[rates.len() / 3..]) / 1e3, mean(&delays) * 1e3);
    println!(
        "{}: {rate:.2} Gbit/s, {delay:.2} us, {:?}",
        c.label, c.host.reports_per_s
    );
    (rate, delay)
}

fn within(what: &str, value: f64, expected: f64, percent: f64) {
    let off = (value / expected - 1.0) * 100.0;
    assert!(
        off.abs() <= percent,
        "{what}: {value:.2}, {off:+.1} % off {expected:.2}"
    );
}

/// The reference is the transport's native DCTCP.
#[test]
fn steered_dctcp_has_the_throughput_and_the_queue_of_the_native_one() {
    let contenders = r#""native:dctcp", "dctcp""#;
    let runs = [
        ("1 flow", link(contenders, 10, 1, "ecn:65p:250p", 100, "")),
        ("2 senders", incast(contenders, 2, "ecn:65p:250p", "", "")),
        ("8 senders", incast(contenders, 8, "ecn:65p:250p", "", "")),
    ];
    for (what, run) in &runs {
        let [native, steered] = [&run[0].metrics, &run[1].metrics];
        println!(
            "{what}: {:.1} {:.1} Mbit/s",
            native.goodput_mbit, steered.goodput_mbit
        );
        println!(
            "{what}: {:.2} {:.2} us",
            native.delay_mean_ms * 1e3,
            steered.delay_mean_ms * 1e3
        );
        within(what, steered.goodput_mbit, native.goodput_mbit, 0.5);
        within(what, steered.delay_mean_ms, native.delay_mean_ms, 6.0);
    }
}

/// K = 65 packets take 78 µs at 10 Gbit/s. The queue stays near the threshold (RFC 8257, 3.1).
#[test]
fn dctcp_keeps_the_queue_at_the_threshold_and_the_link_full() {
    for flows in [1, 4, 16] {
        let run = link(r#""dctcp""#, 10, flows, "ecn:65p:250p", 100, "");
        let f = &run[0].metrics;
        assert!(
            f.utilisation > 0.99 && f.queue_drops == 0 && f.retransmissions == 0,
            "{f:?}"
        );
        within("the mean queue", f.delay_mean_ms * 1e3, 78.0, 15.0);
        assert!(f.delay_p99_ms * 1e3 < 160.0, "{flows} flows: {f:?}");
    }
}

/// 40 senders of 64 kB at the same time, with a buffer for their initial windows: there is no loss
/// and no timeout.
#[test]
fn an_incast_of_forty_ends_without_a_timeout() {
    let run = incast(r#""dctcp""#, 40, "ecn:65p:800p", "bytes = \"64kB\"", "");
    let f = &run[0].metrics;
    let all = f
        .completions
        .as_ref()
        .and_then(|done| done.classes.last())
        .unwrap();
    assert_eq!(
        (all.flows, f.queue_drops, f.retransmissions),
        (40, 0, 0),
        "{f:?}"
    );
    // 40 · 64 kB take 2.1 ms at 10 Gbit/s.
    assert!(
        (2.0..3.0).contains(&all.p99_ms),
        "{} ms, where a timeout is 4",
        all.p99_ms
    );
}

/// RFC 8257, 3.4 and 3.5: window growth and loss reaction are the same as in conventional TCP.
#[test]
fn without_ecn_dctcp_is_reno() {
    let run = incast(r#""reno", "dctcp""#, 2, "droptail:150p", "", "ecn = false");
    let [reno, dctcp] = [&run[0].metrics, &run[1].metrics];
    assert!(dctcp.queue_drops > 0, "{dctcp:?}");
    within("goodput", dctcp.goodput_mbit, reno.goodput_mbit, 0.5);
    within(
        "the mean queue",
        dctcp.delay_mean_ms,
        reno.delay_mean_ms,
        5.0,
    );
}

/// Returns the equilibrium RTT, µs, of `flows` that share a link under Swift's target delay with
/// these parameters. It solves the formula of the target for the window given by this RTT and the
/// flow's share of the link.
fn swift_rests(gbit: f64, flows: f64) -> f64 {
    let alpha = 100.0 / (1.0 / 0.1_f64.sqrt() - 0.1);
    let target = |rtt: f64| {
        let window = rtt * gbit * 1e3 / PACKET / flows;
        25.0 + (alpha * (1.0 / window.sqrt() - 0.1)).clamp(0.0, 100.0)
    };
    let (mut low, mut high) = (BASE, 1000.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if target(middle) > middle {
            low = middle
        } else {
            high = middle
        }
    }
    low
}

#[test]
fn swift_holds_its_target_with_one_ten_and_a_hundred_flows() {
    for gbit in [10, 25, 100] {
        for flows in [1, 10, 100] {
            let contender = r#""swift:base=25us:fs_range=100us""#;
            let run = link(contender, gbit, flows, "droptail:10000p", 45, "");
            let (rate, delay) = settled(&run[0]);
            let expected = swift_rests(f64::from(gbit), f64::from(flows));
            let window = expected * f64::from(gbit) * 1e3 / PACKET / f64::from(flows);
            let (rtt, what) = (
                delay + BASE,
                format!("{flows} flows at {gbit} Gbit/s, windows of {window:.1}"),
            );
            println!("{what}: {rtt:.1} us, target {expected:.1}");
            assert!(rate > 0.94 * f64::from(gbit), "{what}: {rate}");
            if window > 2.0 {
                within(&what, rtt, expected, 12.0);
            } else {
                // Below one packet, an ACK adds a whole packet (algorithm 1), so the window
                // alternates between doubling per RTT and halving.
                assert!(
                    (0.9..1.8).contains(&(rtt / expected)),
                    "{what}: {rtt} instead of {expected}"
                );
            }
            assert_eq!(run[0].metrics.queue_drops, 0, "{what}");
        }
    }
}

/// T_low and T_high are 50 and 500 µs here. The rate grows below T_low and falls above T_high,
/// independently of the gradient.
#[test]
fn timely_stays_below_its_upper_threshold_and_uses_the_link() {
    for (gbit, delta) in [(10, 10), (25, 25), (100, 100)] {
        for flows in [1, 10, 100] {
            let contender = format!(r#""timely:t_low=50us:t_high=500us:delta={delta}mbit""#);
            let run = link(&contender, gbit, flows, "droptail:10000p", 60, "");
            let (rate, delay) = settled(&run[0]);
            let what = format!("{flows} flows at {gbit} Gbit/s");
            assert!(rate > 0.72 * f64::from(gbit), "{what}: {rate}");
            assert!(delay + BASE < 500.0, "{what}: {delay}");
        }
    }
}

/// Zhu et al. (CoNEXT 2016), 4.3: at the fixed point the gradient is 0 and the weight 1/2, so the
/// error is δ/(β·R).
#[test]
fn patched_timely_rests_where_its_authors_say() {
    for (gbit, flows) in [(10, 10), (25, 10), (100, 40)] {
        let contender = r#""timely:law=patched:t_low=50us:t_high=500us""#;
        let run = link(contender, gbit, flows, "droptail:10000p", 60, "");
        let (rate, delay) = settled(&run[0]);
        let share = f64::from(gbit) * 1e3 / f64::from(flows);
        let expected = 50.0 * (1.0 + 10.0 / (0.008 * share));
        within(
            &format!("{flows} flows at {gbit} Gbit/s"),
            delay + BASE,
            expected,
            8.0,
        );
        assert!(rate > 0.98 * f64::from(gbit) && run[0].metrics.jain.unwrap() > 0.99);
    }
}

/// Runs DX senders over one bottleneck. Returns the utilisation, the mean queueing delay minus a
/// packet's own transmission, in packets, and Jain's index.
fn dx(parameters: &str, rate_mbit: u32, rtt: &str, senders: u32, millis: u32) -> (f64, f64, f64) {
    let run = simulate(&format!(
        "contenders = [\"dx{parameters}\"]\nduration = \"{millis}ms\"\nsample = \"1ms\"\n\
         [topology.incast]\nsenders = {senders}\nrate = \"{rate_mbit}mbit\"\nrtt = \"{rtt}\"\n\
         queue = \"droptail:1000p\"\n\
         [[workload]]\nbulk = {{}}\n"
    ));
    let c = &run.contenders[0];
    assert!(c.audit.sound, "{:?}", c.audit);
    let (rate, delay) = settled(c);
    let packet = PACKET / f64::from(rate_mbit);
    (
        rate * 1e3 / f64::from(rate_mbit),
        delay / packet - 1.0,
        c.metrics.jain.unwrap_or(1.0),
    )
}

/// Slide 24: the windows of 20 packets of three senders fill the path. One more packet per sender
/// makes a queue of three, which the next decision removes, so the link stays full. 60 packets of
/// 1.2 µs are 72 µs.
#[test]
fn dx_goes_from_21_packets_back_to_20_and_the_link_stays_full() {
    three_senders_with_20_packets("headroom=0us", 9.95);
}

/// Decisions by one packet, one RTT after the last one, leave 0.6 % of the link.
#[test]
fn dx_does_so_by_the_papers_rules() {
    three_senders_with_20_packets("rules=paper", 9.9);
}

fn three_senders_with_20_packets(parameters: &str, rate_least: f64) {
    let run = simulate(&format!(
        "contenders = [\"dx:{parameters}\"]\nduration = \"60ms\"\nsample = \"10us\"\n\
         [topology.incast]\nsenders = 3\nrate = \"10gbit\"\nrtt = \"72us\"\n\
         queue = \"droptail:1000p\"\n\
         [[workload]]\nbulk = {{}}\n",
    ));
    let c = &run.contenders[0];
    let (rate, delay) = settled(c);
    let queue = delay / 1.2 - 1.0;
    let windows: Vec<u32> = c
        .series
        .flows
        .iter()
        .flat_map(|flow| flow[flow.len() / 3..].iter().map(|sample| sample.tcp.cwnd))
        .collect();
    let mean = mean(windows.into_iter().map(f64::from)).expect("windows");
    println!("{rate:.2} Gbit/s, {queue:.2} packets wait, {mean:.2} packets in a window");
    assert!(
        rate > rate_least && queue < 3.0,
        "{rate} Gbit/s, {queue} packets"
    );
    assert!((19.5..21.0).contains(&mean), "{mean}");
}

/// DX's queue is a few packets at 1 and at 10 Gbit/s; DCTCP's is at its threshold. The headroom is
/// a sixteenth of 100 µs (half a packet at 1 Gbit/s, five packets at 10 Gbit/s), at least one
/// packet.
#[test]
fn dx_fills_the_link_with_a_queue_of_packets() {
    for (mbit, senders, used, most) in [
        (1_000, 2, 0.98, 3.0),
        (1_000, 10, 0.98, 6.0),
        (10_000, 2, 0.98, 8.0),
        (10_000, 10, 0.99, 10.0),
        (10_000, 20, 0.99, 15.0),
        (10_000, 30, 0.99, 15.0),
    ] {
        let (share, queue, jain) = dx("", mbit, "100us", senders, 300);
        println!(
            "{senders} senders at {mbit} Mbit/s: {share:.4}, {queue:.2} packets, Jain {jain:.3}"
        );
        assert!(
            share > used && queue < most,
            "{senders} senders at {mbit} Mbit/s: {share}, {queue}"
        );
    }
}

/// Thirty flows share a path of two packets, so their windows are below one packet and DX paces.
/// With windows of one packet the queue would be 28 packets, with DCTCP's two packets 58. DX's
/// flows estimate a packet's time too coarsely here, and leave 33.
#[test]
fn dx_paces_windows_below_a_packet() {
    let (share, queue, _) = dx("", 100, "200us", 30, 3_000);
    assert!(share > 0.95 && queue < 35.0, "{share}, {queue}");
}

/// Jitter of hardware time stamps. The estimate of a packet's time is a minimum that differs
/// between flows, and so do their headrooms and shares.
#[test]
fn dx_is_fair_where_stamps_are_as_of_hardware() {
    for senders in [2, 10, 30] {
        let run = simulate(&format!(
            "contenders = [\"dx\"]\nduration = \"300ms\"\nsample = \"1ms\"\n\
             [topology.incast]\nsenders = {senders}\nrate = \"10gbit\"\nrtt = \"100us\"\n\
             queue = \"droptail:1000p\"\n\
             [stamps]\njitter = \"200ns\"\nshape = \"exponential\"\n[[workload]]\nbulk = {{}}\n"
        ));
        let jain = run.contenders[0].metrics.jain.expect("two flows or more");
        println!("{senders} senders: {jain}");
        assert!(jain > 0.95, "{senders} senders: {jain}");
    }
}

/// Without time stamps, queues are longer since RTTs have a resolution of 1 µs; the link is still
/// used.
#[test]
fn dx_by_rtt_fills_the_link_too() {
    for (senders, used, most) in [(2, 0.90, 8.0), (10, 0.95, 15.0), (30, 0.95, 30.0)] {
        let (share, queue, _) = dx(":delay=rtt", 10_000, "100us", senders, 300);
        println!("{senders} senders by RTT: {share:.4}, {queue:.2} packets");
        assert!(
            share > used && queue < most,
            "{senders} senders: {share}, {queue}"
        );
    }
}
