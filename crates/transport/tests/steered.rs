//! A connection steered by a program: the reported signals match the events, and the program's
//! outcomes are applied.

use std::sync::Arc;

use crate::wire::{Bottleneck, Delay, Pair, ms, secs};
use ccplane_agent::ProgramTables;
use ccplane_agent::datapath::{AgentChannel, DatapathCore, FlowMut, FlowState, Incoming};
use ccplane_datapath::{Capabilities, OperatorLimits, Outcome};
use ccplane_transport::{CongestionControl, ControlEvent, RecoveryPhase, TransportConfig};
use ccplane_units::{Bytes, Time};
use ccplane_wire::{WireCommand, WireEvent as Said};

/// NewReno as a program: slow start, one MSS per window, and half the window at the start of each
/// recovery.
const PROGRAM: &str = "
(def (Report (volatile acked 0) (volatile lost 0) (volatile packets 0) (volatile timeouts 0))
    (recovering false))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.packets (+ Report.packets (+ Ack.packets_acked Ack.packets_misordered)))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.timeouts (+ Report.timeouts (if Flow.was_timeout 1 0)))
    (fallthrough))
(when (&& Flow.in_recovery (! recovering))
    (:= Ssthresh (max (/ Cwnd 2) (* 2 Flow.mss)))
    (fallthrough))
(when (&& Flow.cwnd_limited (! Flow.in_recovery))
    (:= Cwnd (+ Cwnd (if (< Cwnd Ssthresh) Ack.bytes_acked (/ (* Flow.mss Ack.bytes_acked) Cwnd))))
    (fallthrough))
(when true
    (:= recovering Flow.in_recovery)
    (fallthrough))
(when (> Micros 10000)
    (:= Micros 0)
    (report))
";

#[derive(Default)]
struct Sums {
    fields: [u64; 4],
    reports: u64,
    urgent: u64,
    /// Refuses every third report for lack of room.
    refuse_third_report: bool,
}

impl AgentChannel for Sums {
    fn try_report(&mut self, _now: Time, report: &Said<'_>) -> bool {
        let Said::Report { urgent, fields, .. } = *report else {
            return false;
        };
        self.refuse_third_report = !self.refuse_third_report;
        if self.refuse_third_report {
            return false;
        }
        for (sum, field) in self.fields.iter_mut().zip(fields) {
            *sum += field;
        }
        self.reports += 1;
        self.urgent += u64::from(urgent);
        true
    }

    fn send(&mut self, _now: Time, event: Said<'static>) {
        assert!(matches!(event, Said::Installed { .. }), "{event:?}");
    }

    fn recv(&mut self, _now: Time) -> Option<Incoming> {
        None
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

/// Flow with the state that it borrows in a simulator.
struct OwnedFlow {
    flow: FlowState,
    shared: DatapathCore<Sums>,
    fallback: bool,
    /// True if a repair was in progress since the last call; and the minimum window in force during
    /// repairs.
    repairing: bool,
    least_in_repair: u64,
}

impl OwnedFlow {
    fn new(heartbeat: Time) -> OwnedFlow {
        OwnedFlow::running(PROGRAM, heartbeat)
    }

    fn running(program: &str, heartbeat: Time) -> OwnedFlow {
        OwnedFlow::within(OperatorLimits::default(), program, heartbeat)
    }

    fn within(limits: OperatorLimits, program: &str, heartbeat: Time) -> OwnedFlow {
        let compiled = ccplane_lang::compile(program, &Default::default()).expect("it compiles");
        let tables = ProgramTables::new(limits, Capabilities(u64::MAX));
        let mut shared = DatapathCore::new(0, "test", tables, Sums::default());
        let mut flow = FlowState::new(Time::ZERO, Bytes::new(14_480), ());
        let (uid, algorithm) = (1, Arc::from("program"));
        let install = WireCommand::Install {
            algorithm: Arc::clone(&algorithm),
            program: Arc::new(compiled.code().with_uid(uid)),
        };
        let set = WireCommand::SetProgram {
            flow: 1,
            uid,
            updates: std::iter::empty().collect(),
        };
        shared.apply_command(Time::ZERO, &install, |_| None::<&mut FlowState>);
        shared.apply_command(heartbeat, &WireCommand::Heartbeat { algorithm }, |_| {
            None::<&mut FlowState>
        });
        shared.apply_command(Time::ZERO, &set, |_| Some(&mut flow));
        OwnedFlow {
            flow,
            shared,
            fallback: false,
            repairing: false,
            least_in_repair: u64::MAX,
        }
    }

    fn flow_mut(&mut self) -> FlowMut<'_, Sums> {
        self.shared.flow_mut(1, &mut self.flow)
    }
}

impl CongestionControl for OwnedFlow {
    const STEERED: bool = true;

    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        let signals = event.signals();
        assert_eq!(
            signals.bytes_in_flight,
            signals.packets_in_flight * signals.mss
        );
        assert_eq!(
            signals.in_recovery != 0,
            event.connection().phase() != RecoveryPhase::Open
        );
        if signals.rtt_sample_us != 0 {
            assert!(signals.rtt_sample_us >= signals.min_rtt_us);
        }
        if signals.rate_incoming != 0 {
            assert!(
                signals.rate_incoming <= 13_000_000,
                "more than the link carries: {}",
                signals.rate_incoming
            );
        }
        let repairing = event.connection().phase() == RecoveryPhase::Recovery;
        if repairing && self.repairing {
            self.least_in_repair = self.least_in_repair.min(event.connection().cwnd());
        }
        self.repairing = repairing;
        let outcome = self.flow_mut().on_event(event);
        self.fallback |= outcome.fallback;
        outcome
    }
}

fn run(heartbeat: Time) -> (Pair<Bottleneck, OwnedFlow>, u64) {
    transfer(OwnedFlow::new(heartbeat))
}

fn transfer(control: OwnedFlow) -> (Pair<Bottleneck, OwnedFlow>, u64) {
    let bytes = 30_000_000;
    let path = Bottleneck::new(12_000_000, ms(10), 240_000);
    let controls = [control, OwnedFlow::new(Time::MAX)];
    let mut pair = Pair::new(&TransportConfig::default(), controls, path, [bytes, 0]);
    while pair.received(1) < bytes {
        assert!(pair.step(secs(60)));
    }
    while !pair.connection(0).all_acked() {
        assert!(pair.step(secs(60)));
    }
    (pair, bytes)
}

#[test]
fn signals_add_up() {
    let (pair, bytes) = run(secs(1_000));
    let owned = &pair.ends[0].control;
    let stats = pair.connection(0).stats();
    let (sums, rest) = (
        &owned.shared.channel,
        owned.shared.unreported_fields(&owned.flow),
    );
    let [acked, lost, packets, timeouts] = std::array::from_fn(|n| sums.fields[n] + rest[n]);
    assert_eq!(acked, bytes);
    assert_eq!(lost, u64::from(stats.lost));
    assert_eq!(packets, u64::from(stats.delivered));
    assert_eq!((timeouts, stats.timeouts), (0, 0));
    assert_eq!(u64::from(stats.retransmitted), pair.path.dropped);
    assert!(sums.reports > 100 && sums.urgent > 0);
    assert!(!owned.fallback);
    let best = bytes * 1500 / 1448 * 1000 / 12_000_000;
    let took = pair.now.since(Time::ZERO).as_millis();
    assert!(took < best * 105 / 100, "{took} ms instead of {best}");
}

#[test]
fn a_silent_agent_leaves_the_flow_to_the_fallback() {
    let (pair, bytes) = run(Time::ZERO);
    assert!(pair.ends[0].control.fallback);
    let best = bytes * 1500 / 1448 * 1000 / 12_000_000;
    let took = pair.now.since(Time::ZERO).as_millis();
    assert!(took < best * 110 / 100, "{took} ms instead of {best}");
}

#[test]
fn a_program_that_sets_no_threshold_keeps_its_window_while_losses_are_repaired() {
    // More than path and queue hold, regardless of losses.
    let keeps = "(def (Report (x 0)))
(when Flow.in_recovery (:= Ssthresh 18446744073709551615) (fallthrough))
(when true (:= Cwnd 600000))";
    let least = |program: &str| {
        let (pair, _) = transfer(OwnedFlow::running(program, secs(1_000)));
        assert!(pair.connection(0).stats().lost > 0);
        pair.ends[0].control.least_in_repair
    };
    assert_eq!(least(keeps), 600_000);
    let led = keeps.replace("18446744073709551615", "300000");
    assert!(
        least(&led) < 500_000,
        "with a threshold, proportional rate reduction leads there"
    );
}

/// After a timeout that program and agent do not handle, slow start leads up to the threshold, even
/// if the operator's minimum window exceeds one segment.
#[test]
fn minimum_windows_do_not_apply_after_a_timeout() {
    const MSS: u64 = 1448;
    let silent = "(def (Report (x 0)))
(when Flow.in_recovery (:= Report.x 1) (fallthrough))
(when (> Report.x 5) (report))";
    let window_at_the_end = |min_cwnd: u64| {
        let limits = OperatorLimits {
            min_cwnd,
            ..OperatorLimits::default()
        };
        let control = || OwnedFlow::within(limits, silent, secs(1_000));
        let mut pair = Pair::new(
            &TransportConfig::default(),
            [control(), control()],
            Delay(ms(10)),
            [400 * MSS, 0],
        );
        while pair.received(1) < 100 * MSS {
            assert!(pair.step(secs(1)));
        }
        // Everything is lost, including the probe; the path recovers before the timeout.
        pair.lose_all();
        let back = pair.now + ms(150);
        pair.path = Delay(secs(1_000_000).since(Time::ZERO));
        while pair.now < back && pair.step(back) {}
        pair.path = Delay(ms(10));
        while pair.received(1) < 300 * MSS {
            assert!(pair.step(secs(60)));
        }
        assert_eq!(pair.connection(0).stats().timeouts, 1);
        (pair.connection(0).cwnd(), pair.connection(0).ssthresh())
    };
    let (window, threshold) = window_at_the_end(MSS);
    assert!(
        window == threshold && threshold > 2 * MSS,
        "{window} of {threshold}"
    );
    assert_eq!(window_at_the_end(2 * MSS), (window, threshold));
}
