//! Closed-loop tests of active queue management: flows respond to its signals, and the resulting
//! queue is measured.

use std::collections::VecDeque;

use crate::common::Full;
use ccplane_qdisc::{AnyQdisc, Drops, Ecn, LineSpec, Qdisc, QueueSpec, ShapedLink};
use ccplane_units::{Duration, Rate, Time};

/// 48 Mbit/s with 1500-byte packets: 4000 packets per second.
const RATE_BYTES_PER_SEC: u64 = 6_000_000;
const RTT: Duration = Duration::from_millis(50);

/// Response of a flow to a mark or a loss.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// Halves the window once per RTT, like Reno.
    Halve,
    /// Reduces the window by half a segment per mark, the average response of a scalable congestion
    /// control.
    Scale,
}

struct Flow {
    ecn: Ecn,
    answer: Answer,
    window: f64,
    in_flight: f64,
    /// End of the recovery period; the window is not halved again before it.
    recovers: Time,
}

#[derive(Default)]
struct Sojourn {
    sum: Duration,
    packets: u64,
}

impl Sojourn {
    fn mean_ms(&self) -> f64 {
        self.sum.as_secs_f64() * 1e3 / self.packets.max(1) as f64
    }
}

struct Outcome {
    /// Indexed by the flow's ECN field: not capable or ECT(0), then ECT(1).
    sojourn: [Sojourn; 2],
    /// Bytes sent, by flow.
    sent: Vec<u64>,
    utilisation: f64,
}

/// Runs the flows through the queue for `seconds` and discards the first fifth of the time. An ACK,
/// or a loss notification, arrives one RTT after its packet left the queue.
fn run(text: &str, seconds: u64, mut flows: Vec<Flow>) -> Outcome {
    let spec: QueueSpec = text.parse().expect(text);
    let rate = Rate::from_bytes_per_sec(RATE_BYTES_PER_SEC);
    let queue: AnyQdisc<Full> = spec.build(Some(rate), RTT, 1_500, 5).expect(text);
    let mut link = ShapedLink::new(queue, &LineSpec::Constant(rate), Time::ZERO);
    let end = Time::ZERO + Duration::from_secs(seconds);
    let warm = Time::ZERO + Duration::from_secs(seconds / 5);
    let mut outcome = Outcome {
        sojourn: Default::default(),
        sent: vec![0; flows.len()],
        utilisation: 0.0,
    };
    // Feedback as (time, flow, signalled).
    let mut news: VecDeque<(Time, usize, bool)> = VecDeque::new();
    let mut arrived: Vec<Time> = Vec::new();
    let mut now = Time::ZERO;
    while now < end {
        let mut dropped = Vec::new();
        let mut drops = |packet: Full, _| dropped.push(packet);
        while let Some(&(at, index, signalled)) = news.front()
            && at <= now
        {
            news.pop_front();
            let flow = &mut flows[index];
            flow.in_flight -= 1.0;
            match (signalled, flow.answer) {
                (false, _) => flow.window += 1.0 / flow.window,
                (true, Answer::Scale) => flow.window = (flow.window - 0.5).max(2.0),
                (true, Answer::Halve) if now >= flow.recovers => {
                    flow.window = (flow.window / 2.0).max(2.0);
                    flow.recovers = now + RTT;
                }
                (true, Answer::Halve) => {}
            }
        }
        while link.next_ready().is_some_and(|ready| ready <= now) {
            let Some(packet) = link.dequeue(now, &mut drops) else {
                continue;
            };
            let flow = packet.flow as usize;
            news.push_back((now + RTT, flow, packet.ecn == Ecn::Ce));
            if now >= warm {
                let side = usize::from(flows[flow].ecn == Ecn::Ect1);
                let sojourn = &mut outcome.sojourn[side];
                sojourn.sum = sojourn.sum + now.since(arrived[packet.id as usize]);
                sojourn.packets += 1;
                outcome.sent[flow] += u64::from(packet.bytes);
            }
        }
        for (index, flow) in flows.iter_mut().enumerate() {
            // At most two packets at a time, to avoid bursts.
            for _ in 0..2 {
                if flow.in_flight + 1.0 > flow.window {
                    break;
                }
                flow.in_flight += 1.0;
                let id = arrived.len() as u32;
                arrived.push(now);
                let packet = Full {
                    flow: index as u32,
                    ecn: flow.ecn,
                    ..Full::new(id, 1_500)
                };
                enqueue(&mut link, now, packet, &mut drops);
            }
        }
        news.extend(
            dropped
                .iter()
                .map(|packet| (now + RTT, packet.flow as usize, true)),
        );
        now += Duration::from_micros(125);
    }
    let counted = end.since(warm).as_secs_f64();
    outcome.utilisation =
        outcome.sent.iter().sum::<u64>() as f64 / (RATE_BYTES_PER_SEC as f64 * counted);
    outcome
}

fn enqueue(
    link: &mut ShapedLink<Full, AnyQdisc<Full>>,
    now: Time,
    packet: Full,
    drops: &mut impl Drops<Full>,
) {
    link.enqueue(now, packet, drops);
}

fn flow(ecn: Ecn, answer: Answer) -> Flow {
    Flow {
        ecn,
        answer,
        window: 20.0,
        in_flight: 0.0,
        recovers: Time::ZERO,
    }
}

fn renos(count: usize, ecn: Ecn) -> Vec<Flow> {
    (0..count).map(|_| flow(ecn, Answer::Halve)).collect()
}

#[test]
fn codel_holds_the_queue_near_its_target() {
    // Drop-tail with two BDPs of buffer keeps a standing queue many times larger.
    let tail = run("droptail:2bdp", 60, renos(4, Ecn::NotEct));
    assert!(
        tail.sojourn[0].mean_ms() > 40.0,
        "{}",
        tail.sojourn[0].mean_ms()
    );
    for text in ["codel", "codel:ecn"] {
        let codel = run(text, 60, renos(4, Ecn::Ect0));
        let wait = codel.sojourn[0].mean_ms();
        assert!(
            (2.0..10.0).contains(&wait),
            "{text}: {wait} ms, the target is 5"
        );
        assert!(codel.utilisation > 0.9, "{text}: {}", codel.utilisation);
    }
}

#[test]
fn fq_codel_protects_flows_from_one_that_hardly_answers() {
    let share = |text: &str| {
        let mut flows = renos(3, Ecn::NotEct);
        flows.push(flow(Ecn::NotEct, Answer::Scale));
        let outcome = run(text, 60, flows);
        outcome.sent[3] as f64 / outcome.sent.iter().sum::<u64>() as f64
    };
    assert!(
        share("droptail:1bdp") > 0.6,
        "in a drop-tail queue it takes most of the link"
    );
    // A quarter of the link, plus what the other flows leave unused while they recover from CoDel's
    // drops.
    let fair = share("fq_codel");
    assert!((0.25..0.37).contains(&fair), "{fair}");
}

#[test]
fn red_keeps_the_average_low_and_the_line_busy() {
    // With windows of 70 packets the flows need one signal per 3000 packets: the average settles
    // just above `min`, 50 packets or 12.5 ms, and oscillates with the windows.
    let red = run(
        "red:min=50p:max=150p:probability=5%:limit=1000p",
        60,
        renos(4, Ecn::NotEct),
    );
    let wait = red.sojourn[0].mean_ms();
    assert!((5.0..15.0).contains(&wait), "{wait} ms");
    assert!(red.utilisation > 0.95, "{}", red.utilisation);
}

#[test]
fn dualpi2_holds_the_classic_queue_at_15_ms() {
    let pi2 = run("dualpi2", 100, renos(10, Ecn::NotEct));
    let wait = pi2.sojourn[0].mean_ms();
    assert!((wait - 15.0).abs() < 3.0, "{wait} ms");
    assert!(pi2.utilisation > 0.97, "{}", pi2.utilisation);
}

#[test]
fn dualpi2_gives_both_kinds_of_flows_alike_rates_and_l4s_no_queue() {
    let mut flows = renos(4, Ecn::NotEct);
    flows.extend((0..4).map(|_| flow(Ecn::Ect1, Answer::Scale)));
    let outcome = run("dualpi2", 100, flows);
    let classic: u64 = outcome.sent[..4].iter().sum();
    let l4s: u64 = outcome.sent[4..].iter().sum();
    let ratio = l4s as f64 / classic as f64;
    assert!(
        (0.5..2.0).contains(&ratio),
        "L4S gets {ratio} times the rate of classic"
    );
    let [classic, l4s] = &outcome.sojourn;
    assert!(l4s.mean_ms() < 1.5, "L4S waits {} ms", l4s.mean_ms());
    assert!(
        (classic.mean_ms() - 15.0).abs() < 5.0,
        "classic waits {} ms",
        classic.mean_ms()
    );
}
