//! Properties of both versions under arbitrary input, and of their programs on a path.

use std::collections::BTreeMap;

use ccplane_agent::{Agent, AgentOptions, DynAlgorithm};
use ccplane_datapath::{Capabilities, Signals};
use ccplane_units::Duration;
use proptest::prelude::*;

use super::ControlSink;
use crate::script::{MSS, Script};
use crate::{Parameters, Registry};

/// Latest value of each command.
#[derive(Debug, Default)]
pub(super) struct Recorder(BTreeMap<&'static str, u64>);

impl Recorder {
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl ControlSink for Recorder {
    fn set_variable(&mut self, variable: &'static str, value: u64) {
        self.0.insert(variable, value);
    }

    fn set_window(&mut self, bytes: u64) {
        self.0.insert("window", bytes);
    }

    fn set_pacing_rate(&mut self, rate: u64) {
        self.0.insert("pace", rate);
    }
}

fn made(name: &str, parameters: &str) -> Box<dyn DynAlgorithm> {
    let parameters: Parameters = parameters.parse().expect("well-formed");
    Registry::builtin()
        .by_name(name, &parameters)
        .expect("built in")
}

#[test]
fn the_programs_fit_every_datapath() {
    for name in ["bbr", "bbr3"] {
        let mut agent = Agent::new(AgentOptions::default());
        agent
            .add_boxed(made(name, ""))
            .unwrap_or_else(|why| panic!("{name}: {why:?}"));
        for hosted in agent.hosted_algorithms() {
            assert!(hosted.kernel_name.len() <= 15 && hosted.kernel_name.starts_with("ccp_"));
            for program in &hosted.programs {
                let cost = program.compiled.cost();
                println!("{name}: {cost:?}");
                assert!(cost.vars <= 32, "{name}: {cost:?}");
            }
        }
    }
}

#[test]
fn an_interval_below_a_second_is_refused_with_the_reason() {
    let parameters = "probe_rtt_interval=10ms"
        .parse::<Parameters>()
        .expect("well-formed");
    for name in ["bbr", "bbr3"] {
        let why = Registry::builtin()
            .by_name(name, &parameters)
            .err()
            .expect("refused");
        assert!(why.to_string().contains("at least 1s"), "{why}");
    }
}

fn report() -> impl Strategy<Value = Vec<u64>> {
    let number = prop_oneof![
        3 => 0u64..100,
        3 => 0u64..10_000_000,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => Just(0xffff_ffffu64),
    ];
    prop::collection::vec(number, 14)
}

proptest! {
    /// Reports with arbitrary fields cause no panic, and commands keep the program within its
    /// arithmetic.
    #[test]
    fn arbitrary_reports_do_no_harm(reports in prop::collection::vec(report(), 1..60)) {
        let mut orders = Recorder::default();
        let bbr = super::v1::Bbr::standard();
        let mut one = super::v1::BbrFlow::new(1448, super::SplitMix64(7), 10_000_000);
        let mut three = super::v3::Bbr3Flow::new(1448, super::SplitMix64(7), 10_000_000);
        for fields in reports {
            if let Some(seen) = super::report::BbrReport::read(&fields[..10]) {
                bbr.decide(&mut one, &seen, &mut orders);
            }
            if let Some(seen) = super::report::BbrReport::read(&fields) {
                three.update_on_report(&seen, &mut orders);
            }
            prop_assert!(
                orders
                    .get("gain")
                    .is_none_or(|gain| (1..=28_561).contains(&gain))
            );
            prop_assert!(
                orders
                    .get("cwnd_gain")
                    .is_none_or(|gain| (20_000..=28_850).contains(&gain))
            );
            prop_assert!(orders.get("cap").is_none_or(|cap| cap >= 4 * 1448));
            prop_assert!(orders.get("phase").is_none_or(|phase| phase <= 8));
            prop_assert!(orders.get("pace").is_none_or(|rate| rate > 0));
            prop_assert!(
                orders
                    .get("min_rtt")
                    .is_none_or(|us| us > 0 && us <= u64::from(u32::MAX))
            );
        }
    }
}

/// Flow over a path that delivers 5 MB/s at 20 ms: 100 segments, with an ACK of five segments per
/// millisecond.
struct Path {
    script: Script,
    flight: u64,
}

const BW_BYTES_PER_SECOND: u64 = 5_000_000;
const BDP_BYTES: u64 = 100_000;
const MS: Duration = Duration::from_millis(1);

impl Path {
    fn new(algorithm: &str) -> Path {
        Path {
            script: Script::new(algorithm, ""),
            flight: BDP_BYTES,
        }
    }

    fn ack(&mut self, change: impl FnOnce(&mut Signals)) {
        let flight = self.flight;
        self.script.ack(MS, |s| {
            (s.bytes_acked, s.packets_acked) = (5 * MSS, 5);
            (s.rate_incoming, s.rate_outgoing) = (BW_BYTES_PER_SECOND, BW_BYTES_PER_SECOND + 1);
            (s.bytes_in_flight, s.bytes_pending) = (flight, 1 << 20);
            change(s);
        });
    }

    /// Runs until the pipe is full and the queue is drained.
    fn cruising(algorithm: &str) -> Path {
        let mut path = Path::new(algorithm);
        (0..200).for_each(|_| path.ack(|_| ()));
        path
    }

    fn rate(&self) -> u64 {
        self.script.transport.rate
    }
}

#[test]
fn it_starts_with_a_gain_and_grows_by_what_is_acknowledged() {
    for (algorithm, gain) in [("bbr", 28_561), ("bbr3", 27_423)] {
        let mut path = Path::new(algorithm);
        assert_eq!(path.rate(), 0);
        path.ack(|_| ());
        path.ack(|_| ());
        assert_eq!(
            path.rate(),
            BW_BYTES_PER_SECOND * gain / 10_000,
            "{algorithm}"
        );
        assert_eq!(path.script.window(), 10 + 2 * 5);
        // An application-limited sample does not count unless it is the maximum.
        path.ack(|s| (s.rate_incoming, s.app_limited) = (BW_BYTES_PER_SECOND / 2, 1));
        assert_eq!(path.rate(), BW_BYTES_PER_SECOND * gain / 10_000);
        path.ack(|s| {
            (s.rate_incoming, s.rate_outgoing, s.app_limited) =
                (2 * BW_BYTES_PER_SECOND, 2 * BW_BYTES_PER_SECOND, 1)
        });
        assert_eq!(path.rate(), 2 * BW_BYTES_PER_SECOND * gain / 10_000);
    }
}

#[test]
fn reports_arrive_once_per_round() {
    for algorithm in ["bbr", "bbr3"] {
        let mut path = Path::cruising(algorithm);
        let before = path.script.reports;
        (0..200).for_each(|_| path.ack(|_| ()));
        // A round is the 100 segments in flight and the next one. Version 1 sends no other reports;
        // version 3 may end DOWN.
        assert!(
            (9..=11).contains(&(path.script.reports - before)),
            "{algorithm}: {}",
            path.script.reports - before
        );
    }
}

#[test]
fn the_gain_cycle_takes_eight_times_the_shortest_rtt() {
    let mut path = Path::cruising("bbr");
    let (up, down, even) = (
        BW_BYTES_PER_SECOND * 12_375 / 10_000,
        BW_BYTES_PER_SECOND * 7_425 / 10_000,
        BW_BYTES_PER_SECOND * 9_900 / 10_000,
    );
    let mut rates = Vec::new();
    for _ in 0..1_000 {
        // Sending faster raises the data in flight, and sending slower lowers it.
        path.flight = if path.rate() == up {
            2 * BDP_BYTES
        } else {
            BDP_BYTES + 30_000
        };
        path.ack(|_| ());
        rates.push(path.rate());
    }
    assert!(
        rates.iter().all(|rate| [up, down, even].contains(rate)),
        "{rates:?}"
    );
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for rate in rates {
        match runs.last_mut() {
            Some((last, n)) if *last == rate => *n += 1,
            _ => runs.push((rate, 1)),
        }
    }
    let whole = &runs[1..runs.len() - 1];
    assert!(whole.len() > 12, "{runs:?}");
    for (rate, acks) in whole {
        let expected = if *rate == even { 6 * 21 } else { 21 };
        assert_eq!(
            *acks, expected,
            "a phase is over when more than the RTT has passed: {runs:?}"
        );
    }
}

#[test]
fn the_window_is_two_bdp_and_what_offloading_and_aggregation_need() {
    for algorithm in ["bbr", "bbr3"] {
        let path = Path::cruising(algorithm);
        let window = path.script.transport.cwnd;
        // Aggregation: the five segments that arrive at once. Offloading: three bursts of a
        // millisecond, in version 1 only.
        assert!(
            (2 * BDP_BYTES..=2 * BDP_BYTES + 10_000 + 25_000).contains(&window),
            "{algorithm}: {window}"
        );
    }
}

#[test]
fn a_flow_that_starts_behind_a_full_queue_takes_the_path_from_the_handshake() {
    for algorithm in ["bbr", "bbr3"] {
        let mut path = Path::new(algorithm);
        (0..200).for_each(|_| path.ack(|s| (s.rtt_sample_us, s.min_rtt_us) = (40_000, 20_000)));
        let window = path.script.transport.cwnd;
        assert!(
            (2 * BDP_BYTES..=2 * BDP_BYTES + 35_000).contains(&window),
            "{algorithm}: {window}, where the data's RTT makes it {}",
            4 * BDP_BYTES
        );
    }
}

#[test]
fn version_1_subtracts_losses_from_the_window_in_startup() {
    let mut path = Path::new("bbr");
    path.ack(|_| ());
    let before = path.script.window();
    path.ack(|s| s.lost_pkts_sample = 8);
    assert_eq!(path.script.window(), before - 8 + 5);
    // In the first round of recovery the window equals the data in flight; then losses reduce it as
    // before.
    (0..30).for_each(|_| path.ack(|s| s.in_recovery = 1));
    let before = path.script.window();
    path.ack(|s| (s.in_recovery, s.lost_pkts_sample) = (1, 8));
    assert_eq!(path.script.window(), before - 8 + 5);
}

#[test]
fn a_loss_that_begins_or_ends_the_interval_of_a_policer_is_reported_at_once() {
    let mut path = Path::cruising("bbr");
    let mut reported = |lost: u64| {
        let before = path.script.reports;
        path.ack(|s| s.lost_pkts_sample = lost);
        path.script.reports - before
    };
    let each: Vec<usize> = (0..100)
        .map(|ack| reported(u64::from(ack % 2 == 1) * 3))
        .collect();
    let early = each[..80].iter().sum::<usize>();
    // The first loss starts the interval. Then there is one report per round until the next loss,
    // four rounds later, ends it.
    assert_eq!(each[1], 1, "{each:?}");
    assert!((4..=7).contains(&early), "{each:?}");
    let mut without = Path::new("bbr");
    without.script = Script::new("bbr", "policer=false");
    (0..200).for_each(|_| without.ack(|_| ()));
    let before = without.script.reports;
    (0..10).for_each(|_| without.ack(|s| s.lost_pkts_sample = 3));
    assert!(without.script.reports - before <= 1);
}

#[test]
fn recovery_reduces_only_version_1_and_for_one_round() {
    for (algorithm, conserves) in [("bbr", true), ("bbr3", false)] {
        let mut path = Path::cruising(algorithm);
        let window = path.script.transport.cwnd;
        path.script.transport.ssthresh = window / 2;
        path.ack(|s| (s.in_recovery, s.lost_pkts_sample) = (1, 1));
        assert_eq!(
            path.script.transport.ssthresh,
            u64::MAX,
            "{algorithm}: the window is in force"
        );
        let expected = if conserves {
            BDP_BYTES + 5 * MSS
        } else {
            window
        };
        assert_eq!(path.script.transport.cwnd, expected, "{algorithm}");
        (0..19).for_each(|_| path.ack(|s| s.in_recovery = 1));
        assert_eq!(path.script.transport.cwnd, expected, "{algorithm}: a round");
        // In version 3 the loss round ends here and takes effect.
        if !conserves {
            continue;
        }
        (0..3).for_each(|_| path.ack(|s| s.in_recovery = 1));
        assert!(path.script.transport.cwnd > expected, "it grows again");
        path.ack(|_| ());
        let after = path.script.transport.cwnd;
        assert!(
            after >= window - 10 * MSS,
            "{algorithm}: {after}, before {window}"
        );
        assert_eq!(path.script.transport.ssthresh, after);
    }
}

#[test]
fn after_a_timeout_the_window_grows_from_one_segment_and_returns_with_the_repair() {
    for algorithm in ["bbr", "bbr3"] {
        let mut path = Path::cruising(algorithm);
        let window = path.script.transport.cwnd;
        path.ack(|s| {
            (s.was_timeout, s.in_recovery, s.lost_pkts_sample) = (1, 1, 100);
            (s.packets_acked, s.bytes_acked, s.bytes_in_flight) = (0, 0, 0);
        });
        // The datapath's minimum window is two segments here.
        assert!(
            path.script.transport.cwnd <= 2 * MSS,
            "{algorithm}: {}",
            path.script.transport.cwnd
        );
        path.ack(|s| (s.in_recovery, s.packets_acked) = (1, 3));
        assert!(
            (4..=5).contains(&path.script.window()),
            "{algorithm}: {}",
            path.script.window()
        );
        path.ack(|_| ());
        let after = path.script.transport.cwnd;
        assert!(
            after.abs_diff(window) <= 20 * MSS,
            "{algorithm}: {after} after {window}"
        );
    }
}

#[test]
fn a_datapath_without_pacing_is_refused() {
    let cannot = Capabilities::CWND
        .union(Capabilities::RTT)
        .union(Capabilities::DELIVERY_RATE);
    for algorithm in ["bbr", "bbr3"] {
        assert!(Script::on(cannot, algorithm, "").is_none());
    }
    let suffices = cannot.union(Capabilities::PACING);
    assert!(
        Script::on(suffices, "bbr", "").is_some(),
        "timers and repairs are no condition"
    );
    assert!(Script::on(suffices.union(Capabilities::ECN), "bbr3", "").is_some());
}
