//! The program and the agent together, ACK by ACK.

use ccplane_datapath::Capabilities;
use ccplane_units::Duration;
use ccplane_units::stats::mean;

use crate::script::{MSS, Script, everything};

const RTT_US: u64 = 20_000;
/// Capacity of the path, bytes/s: 96 Mbit/s.
const CAPACITY_BYTES_PER_SECOND: f64 = 12e6;

/// Path with one queue behind a flow that sends at its rate, with one ACK per 0.5 ms. The delay
/// follows from the queue one RTT ago, when the packet was sent. Losses are detected after one RTT.
struct Path {
    script: Script,
    queue: f64,
    past: std::collections::VecDeque<(f64, f64)>,
    now_us: u64,
    /// Random loss rate.
    loss: f64,
    owed: f64,
    sent: f64,
    rates: Vec<f64>,
    /// Maximum of the uniform jitter added to each RTT, µs.
    jitter_us: u64,
    /// Steps of 0.5 ms between ACKs. Steps, packets and losses since the last ACK.
    steps_per_ack: u32,
    waiting: (u32, f64, f64),
}

impl Path {
    fn new(parameters: &str) -> Path {
        let mut script = Script::new("vivace", parameters);
        script.usual.min_rtt_us = RTT_US;
        Path {
            script,
            queue: 0.0,
            past: vec![(0.0, 0.0); 40].into(),
            now_us: 0,
            loss: 0.0,
            owed: 0.0,
            sent: 0.0,
            rates: Vec::new(),
            jitter_us: 0,
            steps_per_ack: 1,
            waiting: (0, 0.0, 0.0),
        }
    }

    fn run(&mut self, seconds: f64) -> &mut Path {
        for _ in 0..(seconds / 0.0005) as u32 {
            let rate = self.script.transport.rate as f64;
            self.queue =
                (self.queue + (rate - CAPACITY_BYTES_PER_SECOND) * 0.0005).clamp(0.0, 480_000.0);
            // Packets count as delivered as soon as they are sent. Nothing is in flight, so the
            // program counts the same packets.
            self.sent += rate * 0.0005 / MSS as f64;
            let packets = self.sent.floor();
            self.sent -= packets;
            self.owed += packets * self.loss;
            let owed = self.owed.floor();
            self.owed -= owed;
            self.past.push_back((self.queue, owed));
            let (queue, lost) = self.past.pop_front().unwrap_or_default();
            let jitter = ccplane_agent::rng::finalize(self.now_us) % (self.jitter_us + 1);
            let rtt = RTT_US + (queue / CAPACITY_BYTES_PER_SECOND * 1e6) as u64 + jitter;
            self.now_us += 500;
            self.rates.push(rate);
            let (steps, delivered, losses) = &mut self.waiting;
            (*steps, *delivered, *losses) =
                (*steps + 1, *delivered + packets - lost, *losses + lost);
            if *steps < self.steps_per_ack {
                continue;
            }
            let (steps, delivered, losses) = std::mem::take(&mut self.waiting);
            let _ = self
                .script
                .ack(Duration::from_micros(500) * u64::from(steps), |s| {
                    (s.rtt_sample_us, s.srtt_us) = (rtt, rtt);
                    (s.packets_acked, s.lost_pkts_sample) =
                        (delivered.max(0.0) as u64, losses as u64);
                });
        }
        self
    }

    /// Mean rate of the last second over the capacity.
    fn utilisation(&self) -> f64 {
        let last = &self.rates[self.rates.len() - 2000..];
        mean(last.iter().copied()).expect("rates") / CAPACITY_BYTES_PER_SECOND
    }
}

#[test]
fn vivace_starts_with_its_window_and_doubles() {
    let mut path = Path::new("");
    path.run(0.002);
    // Ten segments of 1000 bytes per 20 ms are 500,000 bytes/s.
    assert_eq!(path.script.transport.rate, 500_000);
    let mut seen = vec![500_000.0];
    path.run(0.25);
    for rate in &path.rates {
        if *rate > 1.5 * seen[seen.len() - 1] {
            seen.push(*rate);
        }
    }
    assert_eq!(seen[..5], [500e3, 1e6, 2e6, 4e6, 8e6], "{seen:?}");
}

#[test]
fn rates_of_a_pair_are_five_percent_apart_on_either_side_and_one_interval_long() {
    let mut path = Path::new("");
    path.run(3.0);
    path.rates.clear();
    path.run(0.5);
    let mut steps: Vec<(f64, u32)> = Vec::new();
    for rate in &path.rates {
        match steps.last_mut() {
            Some((last, count)) if last == rate => *count += 1,
            _ => steps.push((*rate, 1)),
        }
    }
    // Finds one rate, another 10 % higher or lower, and the base rate between them.
    let pair = steps[1..].windows(3).find(|w| {
        let [first, second, middle] = [w[0], w[1], w[2]];
        [first, second]
            .iter()
            .all(|step| (0.049..0.051).contains(&(step.0 / middle.0 - 1.0).abs()))
    });
    let pair = pair.unwrap_or_else(|| panic!("{steps:?}"));
    let (up, down) = (pair[0].0.max(pair[1].0), pair[0].0.min(pair[1].0));
    assert!((up / down - 1.05 / 0.95).abs() < 1e-3, "{pair:?}");
    // 20 ms in steps of 0.5 ms, plus the queueing delay.
    assert!(
        pair[..2].iter().all(|(_, count)| (40..=45).contains(count)),
        "{pair:?}"
    );
}

#[test]
fn vivace_fills_the_path_but_not_the_queue() {
    let mut path = Path::new("");
    path.run(10.0);
    assert!(
        (0.9..1.02).contains(&path.utilisation()),
        "{}",
        path.utilisation()
    );
    assert!(
        path.queue < 0.005 * CAPACITY_BYTES_PER_SECOND,
        "{} ms",
        path.queue / CAPACITY_BYTES_PER_SECOND * 1e3
    );
}

#[test]
fn vivace_tolerates_one_percent_loss_but_not_a_fifth() {
    let mut path = Path::new("");
    path.loss = 0.01;
    path.run(10.0);
    assert!(path.utilisation() > 0.85, "{}", path.utilisation());
    path.loss = 0.2;
    path.run(10.0);
    assert!(path.utilisation() < 0.5, "{}", path.utilisation());
}

#[test]
fn a_timeout_halves() {
    let mut path = Path::new("");
    path.run(5.0);
    let before = path.script.transport.rate as f64;
    let _ = path
        .script
        .ack(Duration::from_millis(200), |s| s.was_timeout = 1);
    path.run(0.001);
    let ratio = path.script.transport.rate as f64 / before;
    assert!((0.4..0.6).contains(&ratio), "{ratio}");
}

#[test]
fn two_runs_are_the_same() {
    let rates = || {
        let mut path = Path::new("");
        path.run(3.0);
        path.rates
    };
    assert!(rates() == rates());
}

#[test]
fn without_pacing_it_is_refused() {
    for missing in [Capabilities::PACING, Capabilities::RTT] {
        let rest = Capabilities(everything().0 & !missing.0);
        assert!(
            Script::on(rest, "vivace", "").is_none(),
            "{:?}",
            missing.names().next()
        );
    }
    let rest = Capabilities(everything().0 & !Capabilities::TIMERS.0 & !Capabilities::ECN.0);
    assert!(Script::on(rest, "vivace", "").is_some());
}

/// Up to 4 ms of jitter, uniform and independent per packet.
#[test]
fn jitter_does_not_hold_it_back() {
    let mut path = Path::new("");
    path.jitter_us = 4_000;
    path.run(15.0);
    assert!(
        (0.8..1.1).contains(&path.utilisation()),
        "{}",
        path.utilisation()
    );
}

/// One ACK covers the packets of 10 ms: at most three ACKs per round trip.
#[test]
fn stretch_acks_do_not_hold_it_back() {
    let mut path = Path::new("");
    path.steps_per_ack = 20;
    path.run(15.0);
    assert!(
        (0.8..1.1).contains(&path.utilisation()),
        "{}",
        path.utilisation()
    );
}
