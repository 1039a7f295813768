//! Loss-based algorithms with every decision in the agent (`split=agent`), as in CCP's own Reno and
//! Cubic.
//!
//! The datapath program only measures. It reports once per interval, and at once when a recovery
//! begins, a timeout expires or a reduction is undone. The agent computes each window and ssthresh,
//! including slow start and the reduction at a loss. The window is constant between two actions.
//!
//! Loss detection, the start and end of recovery, and proportional rate reduction (RFC 9937)
//! towards the agent's ssthresh remain in the datapath's transport. Until the agent has acted on a
//! loss, the target of the reduction is the window before it, so one packet is sent per packet
//! delivered. After a timeout the transport restarts from one segment.

use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::Bytes;

use crate::Reporting;
use crate::loss_reduction::{DELIVERED_BYTES, GROWTH_CONDITION, STATE_CLAUSE};
use crate::window::{AckedRound, WindowLaw, report_condition};

/// Loss-based algorithm with growth law `L`, run entirely by the agent.
pub struct AgentOnly<L> {
    law: L,
    /// Factor applied to the window at a loss.
    beta: f64,
    report: Reporting,
    urgent: bool,
}

/// State of a flow. Windows in segments.
pub struct AgentOnlyFlow<S> {
    law: S,
    mss: f64,
    /// The datapath performs loss recovery and has its own ssthresh.
    datapath_recovery: bool,
    decision: Decision,
    /// Decision before the last reduction, restored by an undo.
    prior_decision: Decision,
    /// Window and ssthresh last sent, bytes.
    last_sent: (u64, u64),
    /// Number of actions sent, modulo 2^32.
    actions_sent: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Decision {
    window: f64,
    /// Infinite before the first loss.
    ssthresh: f64,
}

/// Minimum window after a loss, segments (RFC 5681, 3.1, equation 4).
const WINDOW_MIN_SEGMENTS: f64 = 2.0;

impl<L: WindowLaw> AgentOnly<L> {
    /// Creates the algorithm with this report schedule.
    pub fn new(law: L, report: Reporting) -> AgentOnly<L> {
        AgentOnly {
            beta: law.beta().parse().unwrap_or(0.5),
            law,
            report,
            urgent: true,
        }
    }

    /// Defers losses and timeouts to the next regular report.
    #[must_use]
    pub fn without_urgent_reports(mut self) -> AgentOnly<L> {
        self.urgent = false;
        self
    }

    /// Reduces the window at the start of a recovery. `window`: the window before it, segments.
    fn reduce(&self, flow: &mut AgentOnlyFlow<L::State>, window: f64) {
        flow.prior_decision = Decision {
            window,
            ..flow.decision
        };
        self.law.on_reduction(&mut flow.law, window);
        // Whole segments, as in a transport that counts packets. The added term keeps rounding
        // errors, such as 69.99999999999999, from losing a segment.
        let kept = libm::floor(window * self.beta + 1e-9).max(WINDOW_MIN_SEGMENTS);
        flow.decision = Decision {
            window: kept,
            ssthresh: kept,
        };
    }

    /// Applies the growth law to the data acknowledged since the last report.
    fn grow(&self, flow: &mut AgentOnlyFlow<L::State>, round: &AckedRound) {
        let Decision { window, ssthresh } = flow.decision;
        if window < ssthresh {
            self.law.in_slow_start(&mut flow.law, round.now);
            flow.decision.window = (window + round.counted).min(ssthresh);
            return;
        }
        let growth = self.law.growth(&mut flow.law, round);
        // Growth by more than a segment per segment acknowledged would be slow start.
        flow.decision.window += (growth / window).clamp(0.0, 1.0) * round.counted;
    }

    /// Sends the decision unless it is in effect or already sent. `seen`: window and ssthresh in
    /// the report. `current`: the report was made after the last action took effect.
    fn send_decision(
        &self,
        flow: &mut AgentOnlyFlow<L::State>,
        in_effect: (u64, u64),
        current: bool,
        control: &mut Control<'_>,
    ) {
        let bytes = |segments: f64| {
            (libm::floor(segments) * flow.mss).clamp(flow.mss, INFINITY as f64) as u64
        };
        let answer = (bytes(flow.decision.window), bytes(flow.decision.ssthresh));
        let near = |a: u64, b: u64| (a.abs_diff(b) as f64) < flow.mss;
        let in_force =
            near(answer.0, in_effect.0) && (!flow.datapath_recovery || near(answer.1, in_effect.1));
        if answer == flow.last_sent && (in_force || !current) {
            return;
        }
        flow.last_sent = answer;
        flow.actions_sent = flow.actions_sent.wrapping_add(1);
        if flow.datapath_recovery && answer.1.min(in_effect.1) < INFINITY {
            control.set_ssthresh(Bytes::new(answer.1));
        }
        control.set_cwnd(Bytes::new(answer.0));
        control.set_variable("answered", flow.actions_sent.into());
    }
}

impl<L: WindowLaw> Algorithm for AgentOnly<L> {
    type Flow = AgentOnlyFlow<L::State>;

    fn name(&self) -> &str {
        self.law.name()
    }

    fn programs(&self) -> Programs {
        Programs::new()
            .with("measure", measure(self.report, self.urgent))
            .with("portable", portable(self.report, self.urgent))
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND.union(Capabilities::RTT)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Self::Flow {
        let recovery = Capabilities::RECOVERY
            .missing_from(control.capabilities())
            .is_empty();
        match recovery {
            // A flow that is taken over may be in recovery. Its window has already been reduced.
            true => control.set_program("measure", &[("recovering", u64::from(info.live))]),
            false => control.set_program("portable", &[]),
        }
        // The datapath may claim any segment size. A larger one would leave no valid window between
        // one segment and the largest window.
        let mss = info.mss.get().clamp(1, INFINITY);
        let cwnd = info.cwnd.get();
        let decided = Decision {
            window: cwnd as f64 / mss as f64,
            ssthresh: f64::INFINITY,
        };
        AgentOnlyFlow {
            law: self.law.open(info),
            mss: mss as f64,
            datapath_recovery: recovery,
            decision: decided,
            prior_decision: decided,
            last_sent: (cwnd, INFINITY),
            actions_sent: 0,
        }
    }

    fn on_report(&mut self, flow: &mut Self::Flow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[
            acked,
            counted,
            _lost,
            timeouts,
            repairs,
            undos,
            srtt,
            cwnd,
            ssthresh,
            before,
            answered,
            ..,
        ] = report.fields()
        else {
            return;
        };
        let mss = flow.mss;
        let segments = |bytes: u64| bytes as f64 / mss;
        let (seen, seen_before) = (segments(cwnd), segments(before));
        let threshold = match ssthresh < INFINITY {
            true => segments(ssthresh),
            false => f64::INFINITY,
        };
        // The datapath has applied the last action. A different window means that the transport
        // changed it: after an idle period, at the operator's limit, or during a fallback.
        let current = answered == u64::from(flow.actions_sent);
        let event = timeouts > 0 || repairs > 0 || undos > 0;
        if current && !event {
            if (cwnd.abs_diff(flow.last_sent.0) as f64) >= flow.mss {
                flow.decision.window = seen.max(1.0);
            }
            if flow.datapath_recovery
                && (ssthresh.min(INFINITY).abs_diff(flow.last_sent.1) as f64) >= flow.mss
            {
                flow.decision.ssthresh = threshold;
            }
        }
        if repairs > 0 {
            let window = match current && before > 0 {
                true => seen_before.min(flow.decision.window),
                false => flow.decision.window,
            };
            self.reduce(flow, window);
        }
        if timeouts > 0 {
            self.law.on_timeout(&mut flow.law);
            flow.decision.window = 1.0;
        }
        if undos > 0 {
            self.law.on_undo(&mut flow.law);
            flow.decision = Decision {
                window: flow.prior_decision.window.max(seen),
                ..flow.prior_decision
            };
        }
        if !event {
            let round = AckedRound {
                now: control.now(),
                window: flow.decision.window,
                acked: segments(acked),
                counted: segments(counted),
                rtt: if srtt < INFINITY {
                    srtt as f64 / 1e6
                } else {
                    0.0
                },
            };
            self.grow(flow, &round);
        }
        self.send_decision(flow, (cwnd, ssthresh.min(INFINITY)), current, control);
    }
}

/// Returns the end of a clause that records an event.
fn at_once(urgent: bool) -> &'static str {
    match urgent {
        true => "\n    (report)\n    (fallthrough)",
        false => "\n    (fallthrough)",
    }
}

/// Returns the program for datapaths that perform loss recovery. It sets one value: at the start of
/// a recovery ssthresh becomes the window, so that the transport does not halve it.
fn measure(report: Reporting, urgent: bool) -> String {
    let (due, at_once) = (report_condition(report, "Flow.srtt_us"), at_once(urgent));
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile counted 0) (volatile lost 0) (volatile timeouts 0) \
        (volatile repairs 0)
        (volatile undos 0) (srtt 0) (cwnd 0) (ssthresh 0) (before 0) (answer 0))
    (recovering false) (in_loss false) (answered 0))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.srtt Flow.srtt_us)
    (:= Report.answer answered)
    (fallthrough))
(when (! (|| recovering Flow.was_timeout))
    (:= Report.before Cwnd)
    (fallthrough))
(when (&& Flow.in_recovery (! (|| recovering Flow.was_timeout)))
    (:= Ssthresh Cwnd)
    (fallthrough))
(when (&& (|| Flow.in_recovery Flow.was_timeout) (! recovering))
    (:= Report.repairs (+ Report.repairs 1)){at_once})
(when Flow.was_timeout
    (:= Report.timeouts (+ Report.timeouts 1))
    (:= in_loss true){at_once})
(when Flow.undone
    (:= Report.undos (+ Report.undos 1)){at_once})
(when {GROWTH_CONDITION}
    (:= Report.counted (+ Report.counted {DELIVERED_BYTES}))
    (fallthrough))
{STATE_CLAUSE}
(when {due}
    (:= Micros 0)
    (report))
"
    )
}

/// Returns the program for datapaths without [`Capabilities::RECOVERY`], restricted to CCP's
/// variables. A recovery lasts until the data in flight at its start is acknowledged (`hold`, RFC
/// 6582's "recover"). The flow counts as cwnd-limited while more than half of the window is in
/// flight.
fn portable(report: Reporting, urgent: bool) -> String {
    let (due, at_once) = (report_condition(report, "Report.srtt"), at_once(urgent));
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile counted 0) (volatile lost 0) (volatile timeouts 0) \
        (volatile repairs 0)
        (volatile undos 0) (srtt 0) (cwnd 0) (ssthresh +infinity) (before 0) (answer 0))
    (hold 0) (in_loss false) (answered 0))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.cwnd Cwnd)
    (:= Report.answer answered)
    (:= hold (diff hold Ack.bytes_acked))
    (:= in_loss (&& in_loss (> hold 0)))
    (fallthrough))
(when (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.bytes_acked Ack.bytes_misordered) 0))
    (:= Report.srtt (ewma 9 Flow.rtt_sample_us))
    (fallthrough))
(when (! Flow.was_timeout)
    (:= Report.before Cwnd)
    (fallthrough))
(when (&& (|| Flow.was_timeout (> Ack.lost_pkts_sample 0)) (== hold 0))
    (:= hold (max Flow.bytes_in_flight 1))
    (:= Report.repairs (+ Report.repairs 1)){at_once})
(when (&& true Flow.was_timeout)
    (:= Report.timeouts (+ Report.timeouts 1))
    (:= in_loss true){at_once})
(when (&& (|| in_loss (== hold 0)) (> (* 2 (+ Flow.bytes_in_flight Ack.bytes_acked)) Cwnd))
    (:= Report.counted (+ Report.counted Ack.bytes_acked))
    (fallthrough))
(when {due}
    (:= Micros 0)
    (report))
"
    )
}

#[cfg(test)]
mod tests {
    use ccplane_datapath::{Capabilities, Urgency};
    use ccplane_units::Duration;

    use crate::script::Script;
    use crate::{Parameters, by_name};

    const RTT: Duration = Duration::from_millis(20);
    const ACK_INTERVAL: Duration = Duration::from_micros(10);

    /// Returns a flow of 100 segments in congestion avoidance whose window the agent has adopted.
    fn steady(parameters: &str) -> Script {
        let mut script = Script::new("reno", &format!("split=agent,{parameters}"));
        (script.transport.cwnd, script.transport.ssthresh) = (100_000, 50_000);
        for _ in 0..2 {
            script.round(RTT);
        }
        assert!((100..104).contains(&script.window()), "{}", script.window());
        script.transport.cwnd = 100_000;
        let _ = script.ack(RTT, |s| s.cwnd_limited = 0);
        let _ = script.ack(ACK_INTERVAL, |s| s.cwnd_limited = 0);
        assert_eq!(script.transport.cwnd, 100_000);
        script
    }

    #[test]
    fn slow_start_doubles_once_per_report_and_the_window_stands_still_between() {
        let mut script = Script::new("reno", "split=agent");
        let mut windows = Vec::new();
        let mut changes = 0;
        for _ in 0..200 {
            let flying = script.transport.cwnd;
            let asked = script.ack(Duration::from_micros(500), |s| s.bytes_in_flight = flying);
            changes += u32::from(asked.cwnd.is_some());
            windows.push(script.window());
        }
        // 100 ms in steps of 20 ms: the actions for the four reports before the last one have taken
        // effect.
        assert!((4..=5).contains(&changes), "{windows:?}");
        // One ACK per 500 µs: each report counts about 40 segments.
        assert!((120..=180).contains(&script.window()), "{windows:?}");
        assert_eq!(script.faults(), 0);
    }

    #[test]
    fn a_round_trip_of_congestion_avoidance_adds_a_segment() {
        let mut script = steady("");
        for _ in 0..10 {
            script.round(RTT);
        }
        assert!(
            (108..=111).contains(&script.window()),
            "{}",
            script.window()
        );
    }

    #[test]
    fn a_loss_is_reported_at_once_and_the_agent_halves() {
        let mut script = steady("");
        let asked = script.ack(ACK_INTERVAL, |s| {
            (s.in_recovery, s.lost_pkts_sample, s.cwnd_limited) = (1, 1, 0);
        });
        // The datapath does not reduce the window itself.
        assert_eq!((asked.cwnd, asked.ssthresh), (None, Some(100_000)));
        assert_eq!(asked.report, Some(Urgency::Urgent));
        assert_eq!(script.orders.get("cwnd"), Some(&50_000));
        assert_eq!(script.orders.get("ssthresh"), Some(&50_000));
        // Only once per recovery.
        for _ in 0..50 {
            let _ = script.ack(RTT, |s| {
                (s.in_recovery, s.lost_pkts_sample, s.cwnd_limited) = (1, 1, 0);
            });
            assert_eq!(
                (script.transport.cwnd, script.transport.ssthresh),
                (50_000, 50_000)
            );
        }
    }

    #[test]
    fn without_urgent_reports_a_loss_waits() {
        let mut script = Script::new(
            "reno",
            &format!("split=periodic,report={}us", RTT.as_micros()),
        );
        let asked = script.ack(ACK_INTERVAL, |s| {
            (s.in_recovery, s.lost_pkts_sample) = (1, 1)
        });
        assert_eq!((asked.report, asked.ssthresh), (None, Some(10_000)));
        let asked = script.ack(RTT + ACK_INTERVAL, |s| s.in_recovery = 1);
        assert!(asked.report.is_some());
        assert_eq!(script.orders.get("cwnd"), Some(&5_000));
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_half_the_window_as_threshold() {
        let mut script = steady("");
        script.transport.cwnd = 1_000;
        script.transport.ssthresh = 50_000;
        let asked = script.ack(ACK_INTERVAL, |s| {
            (
                s.was_timeout,
                s.bytes_acked,
                s.packets_acked,
                s.cwnd_limited,
            ) = (1, 0, 0, 0);
        });
        assert_eq!(asked.report, Some(Urgency::Urgent));
        assert_eq!(script.orders.get("cwnd"), Some(&1_000));
        assert_eq!(script.orders.get("ssthresh"), Some(&50_000));
        // Another timeout in the same recovery leaves ssthresh unchanged.
        let _ = script.ack(RTT, |s| {
            (s.was_timeout, s.in_recovery, s.bytes_acked, s.packets_acked) = (1, 1, 0, 0);
        });
        assert_eq!(
            script.orders.get("ssthresh").copied().unwrap_or(50_000),
            50_000
        );
        // Slow start up to ssthresh, then one segment per round trip.
        for _ in 0..12 {
            script.round(RTT);
        }
        assert!((50..=60).contains(&script.window()), "{}", script.window());
    }

    #[test]
    fn an_undone_reduction_restores_the_window() {
        let mut script = steady("");
        let _ = script.ack(ACK_INTERVAL, |s| {
            (s.in_recovery, s.lost_pkts_sample, s.cwnd_limited) = (1, 1, 0)
        });
        let _ = script.ack(ACK_INTERVAL, |s| (s.in_recovery, s.cwnd_limited) = (1, 0));
        assert_eq!(script.window(), 50);
        (script.transport.cwnd, script.transport.ssthresh) = (100_000, 50_000);
        let _ = script.ack(ACK_INTERVAL, |s| (s.undone, s.cwnd_limited) = (1, 0));
        for _ in 0..3 {
            let _ = script.ack(RTT, |s| s.cwnd_limited = 0);
            assert_eq!(script.window(), 100);
        }
    }

    /// The transport resets the window after an idle period or at an operator's limit. The agent
    /// continues from that window.
    #[test]
    fn windows_lowered_by_the_transport_are_adopted() {
        let mut script = steady("");
        script.transport.cwnd = 10_000;
        let _ = script.ack(RTT, |s| s.cwnd_limited = 0);
        let _ = script.ack(RTT, |s| s.cwnd_limited = 0);
        assert_eq!(script.window(), 10);
        for _ in 0..4 {
            script.round(RTT);
        }
        assert!(
            (40..=60).contains(&script.window()),
            "slow start to 50: {}",
            script.window()
        );
    }

    #[test]
    fn an_application_that_limits_sending_does_not_grow_the_window() {
        let mut script = steady("");
        for _ in 0..100 {
            let _ = script.ack(RTT, |s| s.cwnd_limited = 0);
        }
        assert_eq!(script.window(), 100);
    }

    #[test]
    fn a_datapath_without_recovery_is_halved_once_per_window() {
        let few = Capabilities::CWND.union(Capabilities::RTT);
        let mut script = Script::on(few, "cubic", "split=agent")
            .expect("the datapath has the required capabilities");
        script.transport.cwnd = 100_000;
        for _ in 0..2 {
            let _ = script.ack(RTT, |s| s.bytes_in_flight = 0);
        }
        assert_eq!(script.window(), 100);
        for _ in 0..5 {
            let _ = script.ack(ACK_INTERVAL, |s| {
                (s.lost_pkts_sample, s.bytes_in_flight) = (1, 90_000)
            });
        }
        assert_eq!(script.window(), 70);
        assert_eq!(script.faults(), 0);
    }

    #[test]
    fn parameters_of_the_program_are_refused() {
        let make = |name: &str, text: &str| {
            by_name(name, &text.parse::<Parameters>().expect("well-formed")).map(drop)
        };
        for (name, text, word) in [
            ("reno", "split=agent,slow_start=datapath", "slow_start"),
            ("cubic", "split=agent,hystart=linux", "hystart"),
            (
                "reno",
                "split=periodic,slow_start=datapath",
                "split=periodic",
            ),
            ("reno", "split=kernel", "split"),
            ("dctcp", "split=agent", "split"),
        ] {
            let why = make(name, text).expect_err(text).to_string();
            assert!(why.contains(word), "{why}");
        }
        assert!(make("cubic", "split=agent,hystart=off,slow_start=agent").is_ok());
    }
}
