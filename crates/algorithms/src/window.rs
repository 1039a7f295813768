//! What loss-based algorithms share: a datapath program that acts at every ACK, and an agent that
//! steers its growth.
//!
//! The program does at once what cannot wait for an agent: slow start, one reduction at the start
//! of each recovery, and growth by whole segments, one for each `segment_every` bytes acknowledged
//! while the window limits sending. Each report, the agent sets `segment_every` anew: this is its
//! law of growth. So the window moves as smoothly as a native one, an answer that is late by an RTT
//! costs an RTT's change of the law, and nothing that the agent says can race with a reduction.
//!
//! There are two programs with the same report. `window` is for datapaths that repair losses
//! themselves ([`Capabilities::RECOVERY`]): it tells them the threshold, they bring the window
//! there. `portable` uses nothing but what CCP's datapaths have and reduces the window itself.

use std::str::FromStr;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, boxed};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Duration, Time};

use crate::repair::{DELIVERED, MAY_GROW, REMEMBER, reduce};
use crate::{AgentOnly, BadParameter, Exit, ParameterDoc, Parameters, SlowStart};

/// What differs between loss-based algorithms. Windows are in segments, fractions included.
pub trait Law: Send {
    /// State of a flow.
    type State: Send;

    /// The algorithm's name.
    fn name(&self) -> &'static str;

    /// The factor of a reduction, as a decimal of the program's text.
    fn beta(&self) -> &'static str;

    /// What its program has beside the shared text.
    fn own(&self) -> Own {
        Own::default()
    }

    /// A flow began or is taken over.
    fn open(&self, info: &FlowInfo) -> Self::State;

    /// By how many segments the window is to grow while one window is acknowledged, in congestion
    /// avoidance.
    fn growth(&self, state: &mut Self::State, round: &Round) -> f64;

    /// The flow is in slow start, where it needs no law.
    fn in_slow_start(&self, _state: &mut Self::State, _now: Time) {}

    /// The window was reduced from `before`, at the start of a recovery.
    fn reduced(&self, _state: &mut Self::State, _before: f64) {}

    /// A retransmission timeout, after `reduced` where it began a recovery.
    fn timed_out(&self, _state: &mut Self::State) {}

    /// The last reduction was spurious and the transport has undone it.
    fn undone(&self, _state: &mut Self::State) {}
}

/// A law's own part of the program.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Declarations of report variables, after the shared ones.
    pub report: String,
    /// Declarations of other variables.
    pub declarations: String,
    /// Clauses before a reduction.
    pub clauses: String,
    /// What a reduction leaves of `Report.before`, bytes; `(* Report.before BETA)` where it is
    /// empty. `MSS` stands for the segment size, which has another name in each of the two
    /// programs.
    pub kept: String,
    /// The flow offers ECN, and marks are congestion.
    pub ecn: bool,
}

impl Own {
    fn kept(&self, beta: &str, mss: &str) -> String {
        match self.kept.is_empty() {
            true => format!("(* Report.before {beta})"),
            false => self.kept.replace("MSS", mss),
        }
    }
}

/// What happened since the last report.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The present.
    pub now: Time,
    /// The window, segments.
    pub window: f64,
    /// Segments acknowledged.
    pub acked: f64,
    /// Of them those that count for growth: those of times when the window limited sending.
    pub counted: f64,
    /// Smoothed RTT, seconds; 0 when unknown.
    pub rtt: f64,
}

/// When the program reports. Losses, timeouts and undos are reported at once in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reporting {
    /// At every ACK.
    Ack,
    /// Once a smoothed RTT, but not more often than every millisecond: below that, wake-ups cost
    /// more than the law of growth changes.
    #[default]
    Rtt,
    /// At a fixed interval.
    Every(Duration),
    /// At an interval, or once a smoothed RTT where that is shorter, but not more often than every
    /// millisecond.
    AtMost(Duration),
}

/// Shortest interval that depends on the RTT. Below it, wake-ups cost more than the law of growth
/// changes; the timers of kernel TCP, of UDP and of QUIC hold a millisecond.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Interval of algorithms that steer by time, where the RTT is longer.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);

impl FromStr for Reporting {
    type Err = String;
    fn from_str(text: &str) -> Result<Reporting, String> {
        match text {
            "ack" => Ok(Reporting::Ack),
            "rtt" => Ok(Reporting::Rtt),
            "auto" => Ok(Reporting::AtMost(INTERVAL)),
            _ => match text.parse::<Duration>() {
                Ok(every) if every.as_micros() > 0 => Ok(Reporting::Every(every)),
                Ok(_) => Err("an interval is at least 1us".to_owned()),
                Err(_) => {
                    Err("it is `auto`, `ack`, `rtt`, or an interval such as `10ms`".to_owned())
                }
            },
        }
    }
}

/// Division of an algorithm between datapath and agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// The program raises the window in slow start and reduces it at losses; the agent steers its
    /// growth.
    #[default]
    Datapath,
    /// The program only measures; the agent computes every window ([`AgentOnly`]).
    Agent,
}

impl Split {
    const WORDS: [(&str, Split); 2] = [("datapath", Split::Datapath), ("agent", Split::Agent)];

    /// Reads the parameter. With `agent`, a parameter of the program is refused.
    pub(crate) fn read(parameters: &Parameters) -> Result<Split, BadParameter> {
        let split = parameters.choice("split", Split::default(), &Split::WORDS)?;
        for (name, value) in [("slow_start", "agent"), ("hystart", "off")] {
            if split == Split::Agent
                && let Some(given) = parameters.get(name).filter(|given| *given != value)
            {
                let why = format!("with split=agent the program only measures; remove `{name}`");
                return Err(BadParameter::value(name, given, why));
            }
        }
        Ok(split)
    }
}

/// Parameters of all loss-based algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowOptions {
    /// When the program reports.
    pub report: Reporting,
    /// Who raises the window in slow start.
    pub slow_start: SlowStart,
}

impl WindowOptions {
    pub(crate) const REPORT: ParameterDoc = ParameterDoc {
        name: "report",
        default: "rtt",
        values: "auto | ack | rtt | a duration such as 10ms",
        doc: "when the datapath reports, losses at once in any case; auto: each RTT, but at least every 10 ms; rtt and auto: at most every 1 ms",
    };
    pub(crate) const SLOW_START: ParameterDoc = ParameterDoc {
        name: "slow_start",
        default: "datapath",
        values: "datapath | agent",
        doc: "who raises the window in slow start",
    };

    pub(crate) const SPLIT: ParameterDoc = ParameterDoc {
        name: "split",
        default: "datapath",
        values: "datapath | agent",
        doc: "who decides: `agent` leaves only measuring to the datapath, and the agent computes every window",
    };

    /// The parameters, with this default of `report`.
    pub(crate) fn read(
        parameters: &Parameters,
        report: Reporting,
    ) -> Result<WindowOptions, BadParameter> {
        Ok(WindowOptions {
            report: parameters.read("report", report)?,
            slow_start: parameters.choice("slow_start", SlowStart::default(), &SlowStart::WORDS)?,
        })
    }
}

/// An algorithm made of a `Law`.
pub struct LossBased<L> {
    law: L,
    options: WindowOptions,
    exit: Exit,
}

/// Makes the algorithm of a law with this split. `exit` holds where the program raises the window.
pub(crate) fn made<L: Law + 'static>(
    law: L,
    split: Split,
    options: WindowOptions,
    exit: Exit,
) -> Box<dyn DynAlgorithm> {
    match split {
        Split::Datapath => boxed(LossBased::new(law, options, exit)),
        Split::Agent => boxed(AgentOnly::new(law, options.report)),
    }
}

/// State of a flow.
pub struct Flow<S> {
    law: S,
    mss: f64,
    /// What the program has now, bytes.
    segment_every: u64,
}

impl<L: Law> LossBased<L> {
    /// The algorithm of this law.
    pub fn new(law: L, options: WindowOptions, exit: Exit) -> LossBased<L> {
        LossBased { law, options, exit }
    }

    fn steer(&self, flow: &mut Flow<L::State>, segment_every: u64, control: &mut Control<'_>) {
        if segment_every != flow.segment_every {
            flow.segment_every = segment_every;
            control.set("segment_every", segment_every);
        }
    }
}

impl<L: Law> Algorithm for LossBased<L> {
    type Flow = Flow<L::State>;

    fn name(&self) -> &str {
        self.law.name()
    }

    fn programs(&self) -> Programs {
        let (beta, own) = (self.law.beta(), self.law.own());
        Programs::new()
            .with("window", program(beta, &own, self.options, self.exit))
            .with("portable", portable(beta, &own, self.options))
    }

    fn needs(&self) -> Capabilities {
        let needs = Capabilities::CWND.with(Capabilities::RTT);
        match self.law.own().ecn {
            true => needs.with(Capabilities::ECN),
            false => needs,
        }
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Self::Flow {
        if Capabilities::RECOVERY
            .missing_from(control.capabilities())
            .is_empty()
        {
            // A flow taken over may be in the middle of a recovery, whose reduction was made
            // already.
            control.program("window", &[("recovering", u64::from(info.live))]);
        } else {
            control.program("portable", &[("mss", info.mss.get())]);
        }
        Flow {
            law: self.law.open(info),
            mss: info.mss.get().max(1) as f64,
            segment_every: INFINITY,
        }
    }

    fn on_report(&mut self, flow: &mut Self::Flow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[
            acked,
            counted,
            _lost,
            timeouts,
            reductions,
            undos,
            _rtt,
            srtt,
            cwnd,
            ssthresh,
            before,
            credit,
            ..,
        ] = report.fields()
        else {
            return;
        };
        if reductions > 0 {
            self.law.reduced(&mut flow.law, before as f64 / flow.mss);
        }
        if timeouts > 0 {
            self.law.timed_out(&mut flow.law);
        }
        if undos > 0 {
            self.law.undone(&mut flow.law);
        }
        if cwnd < ssthresh {
            self.law.in_slow_start(&mut flow.law, control.now());
            let segment_every = match self.options.slow_start {
                SlowStart::Datapath => INFINITY,
                SlowStart::Agent => flow.mss as u64,
            };
            return self.steer(flow, segment_every, control);
        }
        // At the start of a recovery the window that is to grow is the one at its end.
        let window = if reductions > 0 { ssthresh } else { cwnd } as f64;
        // Credit that has not yet made a segment is part of what the law sees, else it would be
        // granted twice.
        let fraction = credit as f64 / flow.segment_every as f64;
        let round = Round {
            now: control.now(),
            window: window / flow.mss + fraction.min(1.0),
            acked: acked as f64 / flow.mss,
            counted: counted as f64 / flow.mss,
            rtt: if srtt < INFINITY {
                srtt as f64 / 1e6
            } else {
                0.0
            },
        };
        let growth = self.law.growth(&mut flow.law, &round);
        // A window's worth of ACKs covers whole segments.
        let segment_every = if growth > 0.0 {
            window / growth
        } else {
            f64::INFINITY
        };
        // At least one segment: more than one for a segment acknowledged is slow start.
        self.steer(
            flow,
            segment_every.max(flow.mss).min(INFINITY as f64) as u64,
            control,
        );
    }
}

/// The program's text. `recovering` is whether the last call was in a recovery, `in_loss` whether
/// that began with a timeout.
///
/// Growth in Linux' order. Slow start fills up to ssthresh, and the rest of the ACK counts for
/// congestion avoidance (`tcp_slow_start`, `tcp_cong_avoid_ai`). No growth while the application
/// limits sending (RFC 9438 5.8, RFC 7661). None in fast recovery, where the transport brings the
/// window to ssthresh. Slow start after a timeout.
fn program(beta: &str, own: &Own, options: WindowOptions, exit: Exit) -> String {
    let (declarations, exit, divisor) = (exit.declarations(), exit.clauses(), exit.divisor());
    // Credit was earned at the old pace.
    let reduction = reduce(
        "Report.before",
        &own.kept(beta, "Flow.mss"),
        "\n    (:= Report.credit 0)",
    );
    let again = if own.ecn { AGAIN } else { "" };
    let Own {
        report: reported,
        declarations: declared,
        clauses,
        ..
    } = own;
    let slow_start = match options.slow_start {
        SlowStart::Datapath => format!("(min (/ left {divisor}) (diff Ssthresh Cwnd))"),
        SlowStart::Agent => "0".to_owned(),
    };
    let due = due(options.report, "Flow.srtt_us");
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile counted 0) (volatile lost 0) (volatile timeouts 0) (volatile reductions 0)
        (volatile undos 0) (volatile rtt +infinity) (srtt 0) (cwnd 0) (ssthresh 0) (before 0) (credit 0){reported})
    (segment_every +infinity) (recovering false) (in_loss false) (slow 0) (left 0) (steps 0){declarations}{declared})
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (if (> (+ Ack.packets_acked Ack.packets_misordered) 0) (:= Report.rtt (min Report.rtt Flow.rtt_sample_us)))
    (:= Report.srtt Flow.srtt_us)
    (fallthrough)){clauses}{again}
{reduction}
(when Flow.undone
    (:= Report.undos (+ Report.undos 1))
    (report)
    (fallthrough)){exit}
(when {MAY_GROW}
    (:= left {DELIVERED})
    (:= slow {slow_start})
    (:= Cwnd (+ Cwnd slow))
    (:= left (diff left (* slow {divisor})))
    (:= Report.counted (+ Report.counted left))
    # At most one segment for credit that was saved while segments were dearer.
    (:= Report.credit (+ (min Report.credit segment_every) left))
    (:= steps (/ Report.credit segment_every))
    (:= Cwnd (+ Cwnd (* steps Flow.mss)))
    (:= Report.credit (diff Report.credit (* steps segment_every)))
    (fallthrough))
{REMEMBER}
(when {due}
    (:= Micros 0)
    (report))
"
    )
}

/// Where marks of every window are the rule a transport may end one reduction and begin the next in
/// one call, with no time outside of recovery in between. It shows in the threshold, which the
/// transport halves before it asks; a difference below a segment is the kernel's rounding.
const AGAIN: &str = "
(when (&& (! Flow.was_timeout) (<= Ssthresh (diff Report.ssthresh Flow.mss)))
    (:= recovering false)
    (fallthrough))";

/// The same for a datapath that knows nothing of recoveries, in the words of CCP alone. The program
/// takes it that a recovery lasts until what was in flight at its start is acknowledged (`hold`,
/// RFC 6582's "recover"), sets the window itself, and takes the window to limit sending while more
/// than half of it is in flight. Slow start ends at a loss.
fn portable(beta: &str, own: &Own, options: WindowOptions) -> String {
    let kept = own.kept(beta, "mss");
    let Own {
        report: reported,
        declarations: declared,
        clauses,
        ecn,
        ..
    } = own;
    let marked = if *ecn { " (> Ack.ecn_packets 0)" } else { "" };
    let slow_start = match options.slow_start {
        SlowStart::Datapath => "(min Ack.bytes_acked (diff Report.ssthresh Cwnd))",
        SlowStart::Agent => "0",
    };
    let due = due(options.report, "Report.srtt");
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile counted 0) (volatile lost 0) (volatile timeouts 0) (volatile reductions 0)
        (volatile undos 0) (volatile rtt +infinity) (srtt 0) (cwnd 0) (ssthresh +infinity) (before 0) (credit 0){reported})
    (segment_every +infinity) (mss 1448) (hold 0) (in_loss false) (slow 0) (left 0) (steps 0){declared})
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= hold (diff hold Ack.bytes_acked))
    (fallthrough))
(when (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.bytes_acked Ack.bytes_misordered) 0))
    (:= Report.rtt (min Report.rtt Flow.rtt_sample_us))
    (:= Report.srtt (ewma 9 Flow.rtt_sample_us))
    (fallthrough)){clauses}
(when (! Flow.was_timeout)
    (:= Report.before Cwnd)
    (fallthrough))
(when (&& (|| Flow.was_timeout (> Ack.lost_pkts_sample 0){marked}) (== hold 0))
    (:= Report.ssthresh (* mss (max 2 (/ {kept} mss))))
    (:= Cwnd Report.ssthresh)
    (:= hold (max Flow.bytes_in_flight 1))
    (:= Report.reductions (+ Report.reductions 1))
    (:= Report.credit 0)
    (report)
    (fallthrough))
(when (&& true Flow.was_timeout)
    (:= Report.timeouts (+ Report.timeouts 1))
    (:= Cwnd mss)
    (:= in_loss true)
    (report)
    (fallthrough))
(when (&& (|| in_loss (== hold 0)) (> (* 2 (+ Flow.bytes_in_flight Ack.bytes_acked)) Cwnd))
    (:= slow {slow_start})
    (:= Cwnd (+ Cwnd slow))
    (:= left (diff Ack.bytes_acked slow))
    (:= Report.counted (+ Report.counted left))
    (:= Report.credit (+ (min Report.credit segment_every) left))
    (:= steps (/ Report.credit segment_every))
    (:= Cwnd (+ Cwnd (* steps mss)))
    (:= Report.credit (diff Report.credit (* steps segment_every)))
    (fallthrough))
(when true
    (:= in_loss (&& in_loss (> hold 0)))
    (:= Report.cwnd Cwnd)
    (fallthrough))
(when {due}
    (:= Micros 0)
    (report))
"
    )
}

/// The condition of a report. `srtt` is a smoothed RTT in µs.
pub(crate) fn due(report: Reporting, srtt: &str) -> String {
    match report {
        Reporting::Ack => "(> (+ Ack.bytes_acked Ack.bytes_misordered) 0)".to_owned(),
        Reporting::Rtt => format!("(> Micros (max {srtt} {}))", INTERVAL_MIN.as_micros()),
        Reporting::Every(interval) => format!("(> Micros {})", interval.as_micros()),
        Reporting::AtMost(interval) => format!(
            "(> Micros (min {} (max {srtt} {})))",
            interval.as_micros(),
            INTERVAL_MIN.as_micros()
        ),
    }
}
