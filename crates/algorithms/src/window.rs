//! Common part of the loss-based algorithms: a datapath program that acts on every ACK, and an
//! agent that sets its growth.
//!
//! The program does what cannot wait for the agent: slow start, one reduction at the start of each
//! recovery, and growth by whole segments, one per `segment_every` bytes acknowledged while the
//! flow is cwnd-limited. On each report the agent recomputes `segment_every` from its growth law.
//! The window therefore moves as smoothly as a native one. An action that is an RTT late costs one
//! RTT's change of the growth rate, and no action can race with a reduction.
//!
//! Two programs share one report layout. `window` is for datapaths that perform loss recovery
//! themselves ([`Capabilities::RECOVERY`]): it sets ssthresh, and the datapath reduces the window
//! to it. `portable` uses only what CCP's datapaths provide and reduces the window itself.

use std::str::FromStr;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Duration, Time};

use crate::loss_reduction::{DELIVERED_BYTES, GROWTH_CONDITION, STATE_CLAUSE, reduction_clauses};
use crate::{AgentOnly, BadParameter, ParameterDoc, Parameters, SlowStart, SlowStartExit};

/// Growth law and reduction of a loss-based algorithm. Windows are in segments, with fractions.
pub trait WindowLaw: Send {
    /// State of a flow.
    type State: Send;

    /// Name of the algorithm.
    fn name(&self) -> &'static str;

    /// Multiplicative decrease factor, as a decimal literal for the program.
    fn beta(&self) -> &'static str;

    /// Additions to the shared program.
    fn additions(&self) -> LawProgram {
        LawProgram::default()
    }

    /// Called when a flow opens or is taken over.
    fn open(&self, info: &FlowInfo) -> Self::State;

    /// Returns the growth in segments per window acknowledged, in congestion avoidance.
    fn growth(&self, state: &mut Self::State, round: &AckedRound) -> f64;

    /// Called instead of [`growth`](WindowLaw::growth) for reports from slow start.
    fn in_slow_start(&self, _state: &mut Self::State, _now: Time) {}

    /// Called at the start of a recovery; `before` is the window before the reduction.
    fn on_reduction(&self, _state: &mut Self::State, _before: f64) {}

    /// Called at a retransmission timeout, after `on_reduction` if the timeout began the recovery.
    fn on_timeout(&self, _state: &mut Self::State) {}

    /// Called when the transport has undone the last reduction as spurious.
    fn on_undo(&self, _state: &mut Self::State) {}
}

/// Additions of one algorithm to the shared program.
#[derive(Clone, Debug, Default)]
pub struct LawProgram {
    /// Declarations of report variables, placed after the shared ones.
    pub report: String,
    /// Declarations of other variables.
    pub declarations: String,
    /// Clauses that run before the reduction.
    pub clauses: String,
    /// Window after a reduction, bytes; `(* Report.before BETA)` if empty. `MSS` is replaced by the
    /// segment size, whose name differs between the two programs.
    pub reduced_window: String,
    /// The flow negotiates ECN, and CE marks are congestion signals.
    pub ecn: bool,
}

impl LawProgram {
    fn reduced_window(&self, beta: &str, mss: &str) -> String {
        match self.reduced_window.is_empty() {
            true => format!("(* Report.before {beta})"),
            false => self.reduced_window.replace("MSS", mss),
        }
    }
}

/// Measurements since the last report.
#[derive(Clone, Copy, Debug)]
pub struct AckedRound {
    /// Current time.
    pub now: Time,
    /// Window, segments.
    pub window: f64,
    /// Segments acknowledged.
    pub acked: f64,
    /// Acknowledged segments that count for growth: those acknowledged while cwnd-limited.
    pub counted: f64,
    /// Smoothed RTT, seconds; 0 if unknown.
    pub rtt: f64,
}

/// Schedule of reports. Losses, timeouts and undos are always reported at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reporting {
    /// On every ACK.
    Ack,
    /// Once per smoothed RTT, at most once per millisecond.
    #[default]
    Rtt,
    /// At a fixed interval.
    Every(Duration),
    /// At this interval, or once per smoothed RTT if that is shorter; at most once per millisecond.
    AtMost(Duration),
}

/// Lower bound of RTT-based intervals. Below it, wake-ups cost more than the growth rate changes.
/// The timers of kernel TCP, UDP and QUIC have millisecond resolution.
const RTT_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Interval of algorithms that depend on time, if the RTT is longer.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_millis(10);

impl FromStr for Reporting {
    type Err = String;
    fn from_str(text: &str) -> Result<Reporting, String> {
        match text {
            "ack" => Ok(Reporting::Ack),
            "rtt" => Ok(Reporting::Rtt),
            "auto" => Ok(Reporting::AtMost(REPORT_INTERVAL)),
            _ => match text.parse::<Duration>() {
                Ok(every) if every.as_micros() > 0 => Ok(Reporting::Every(every)),
                Ok(_) => Err("the interval must be at least 1us".to_owned()),
                Err(_) => {
                    Err("expected `auto`, `ack`, `rtt` or an interval such as `10ms`".to_owned())
                }
            },
        }
    }
}

/// Division of an algorithm between datapath and agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// The program grows the window in slow start and reduces it at losses. The agent sets the
    /// growth rate.
    #[default]
    Datapath,
    /// The program only measures, and the agent computes every window ([`AgentOnly`]).
    Agent,
    /// Like `Agent`, but losses and timeouts wait for the next regular report.
    Periodic,
}

impl Split {
    const WORDS: [(&str, Split); 3] = [
        ("datapath", Split::Datapath),
        ("agent", Split::Agent),
        ("periodic", Split::Periodic),
    ];

    /// Reads the parameter. Rejects parameters of the program unless it computes the window.
    pub(crate) fn read(parameters: &Parameters) -> Result<Split, BadParameter> {
        let split = parameters.choice("split", Split::default(), &Split::WORDS)?;
        for (name, value) in [("slow_start", "agent"), ("hystart", "off")] {
            if split != Split::Datapath
                && let Some(given) = parameters.get(name).filter(|given| *given != value)
            {
                let written = parameters.get("split").unwrap_or_default();
                let why = format!(
                    "not supported with split={written}, where the program only measures; remove \
                     `{name}`"
                );
                return Err(BadParameter::value(name, given, why));
            }
        }
        Ok(split)
    }
}

/// Parameters common to the loss-based algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowOptions {
    /// Schedule of reports.
    pub report: Reporting,
    /// Side that grows the window in slow start.
    pub slow_start: SlowStart,
}

impl WindowOptions {
    pub(crate) const REPORT: ParameterDoc = ParameterDoc {
        name: "report",
        default: "rtt",
        values: "auto | ack | rtt | a duration such as 10ms",
        doc: "report interval of the datapath, which always reports losses immediately; auto: \
            each RTT, but at least every 10 ms; rtt and auto: at most every 1 ms",
    };
    pub(crate) const SLOW_START: ParameterDoc = ParameterDoc {
        name: "slow_start",
        default: "datapath",
        values: "datapath | agent",
        doc: "side that raises the window in slow start",
    };

    pub(crate) const SPLIT: ParameterDoc = ParameterDoc {
        name: "split",
        default: "datapath",
        values: "datapath | agent | periodic",
        doc: "side that computes windows; `agent`: the datapath only measures, and the agent \
            computes every window; `periodic`: also losses wait for the next regular report",
    };

    /// Reads the parameters, with `report` as that parameter's default.
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

/// Loss-based algorithm with growth law `L`.
pub struct LossBasedAlgorithm<L> {
    law: L,
    options: WindowOptions,
    exit: SlowStartExit,
}

/// Builds the algorithm. `exit` applies only if the program grows the window.
pub(crate) fn made<L: WindowLaw + 'static>(
    law: L,
    split: Split,
    options: WindowOptions,
    exit: SlowStartExit,
) -> Box<dyn DynAlgorithm> {
    match split {
        Split::Datapath => box_algorithm(LossBasedAlgorithm::new(law, options, exit)),
        Split::Agent => box_algorithm(AgentOnly::new(law, options.report)),
        Split::Periodic => {
            box_algorithm(AgentOnly::new(law, options.report).without_urgent_reports())
        }
    }
}

/// State of a flow.
pub struct WindowFlow<S> {
    law: S,
    mss: f64,
    /// Value installed in the program, bytes.
    segment_every: u64,
}

impl<L: WindowLaw> LossBasedAlgorithm<L> {
    /// Creates the algorithm.
    pub fn new(law: L, options: WindowOptions, exit: SlowStartExit) -> LossBasedAlgorithm<L> {
        LossBasedAlgorithm { law, options, exit }
    }

    fn steer(
        &self,
        flow: &mut WindowFlow<L::State>,
        segment_every: u64,
        control: &mut Control<'_>,
    ) {
        if segment_every != flow.segment_every {
            flow.segment_every = segment_every;
            control.set_variable("segment_every", segment_every);
        }
    }
}

impl<L: WindowLaw> Algorithm for LossBasedAlgorithm<L> {
    type Flow = WindowFlow<L::State>;

    fn name(&self) -> &str {
        self.law.name()
    }

    fn programs(&self) -> Programs {
        let (beta, own) = (self.law.beta(), self.law.additions());
        Programs::new()
            .with("window", program(beta, &own, self.options, self.exit))
            .with("portable", portable(beta, &own, self.options))
    }

    fn required_capabilities(&self) -> Capabilities {
        let needs = Capabilities::CWND.union(Capabilities::RTT);
        match self.law.additions().ecn {
            true => needs.union(Capabilities::ECN),
            false => needs,
        }
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Self::Flow {
        if Capabilities::RECOVERY
            .missing_from(control.capabilities())
            .is_empty()
        {
            // A flow that is taken over may be in recovery. Its window has already been reduced.
            control.set_program("window", &[("recovering", u64::from(info.live))]);
        } else {
            control.set_program("portable", &[("mss", info.mss.get())]);
        }
        WindowFlow {
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
            self.law
                .on_reduction(&mut flow.law, before as f64 / flow.mss);
        }
        if timeouts > 0 {
            self.law.on_timeout(&mut flow.law);
        }
        if undos > 0 {
            self.law.on_undo(&mut flow.law);
        }
        if cwnd < ssthresh {
            self.law.in_slow_start(&mut flow.law, control.now());
            let segment_every = match self.options.slow_start {
                SlowStart::Datapath => INFINITY,
                SlowStart::Agent => flow.mss as u64,
            };
            return self.steer(flow, segment_every, control);
        }
        // At the start of a recovery, growth applies to the window at its end.
        let window = if reductions > 0 { ssthresh } else { cwnd } as f64;
        // The law's window includes credit for the unfinished segment. Otherwise that growth would
        // be granted twice.
        let fraction = credit as f64 / flow.segment_every as f64;
        let round = AckedRound {
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
        // `segment_every` divides the window into `growth` equal parts.
        let segment_every = if growth > 0.0 {
            window / growth
        } else {
            f64::INFINITY
        };
        // At least one segment: faster growth would be slow start.
        self.steer(
            flow,
            segment_every.max(flow.mss).min(INFINITY as f64) as u64,
            control,
        );
    }
}

/// Returns the program. `recovering`: the previous run was in recovery. `in_loss`: that recovery
/// began with a timeout.
///
/// Growth follows Linux. Slow start fills the window up to ssthresh, and the rest of the ACK counts
/// for congestion avoidance (`tcp_slow_start`, `tcp_cong_avoid_ai`). The window does not grow while
/// the flow is application-limited (RFC 9438, 5.8; RFC 7661), nor in fast recovery, where the
/// transport brings it to ssthresh. After a timeout it grows by slow start.
fn program(beta: &str, own: &LawProgram, options: WindowOptions, exit: SlowStartExit) -> String {
    let (declarations, exit, divisor) = (exit.declarations(), exit.clauses(), exit.divisor());
    // Credit was earned at the rate before the reduction.
    let reduction = reduction_clauses(
        "Report.before",
        &own.reduced_window(beta, "Flow.mss"),
        "\n    (:= Report.credit 0)",
    );
    let again = if own.ecn {
        REPEATED_REDUCTION_CLAUSE
    } else {
        ""
    };
    let LawProgram {
        report: reported,
        declarations: declared,
        clauses,
        ..
    } = own;
    let slow_start = match options.slow_start {
        SlowStart::Datapath => format!("(min (/ left {divisor}) (diff Ssthresh Cwnd))"),
        SlowStart::Agent => "0".to_owned(),
    };
    let due = report_condition(options.report, "Flow.srtt_us");
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile counted 0) (volatile lost 0) (volatile timeouts 0) \
        (volatile reductions 0)
        (volatile undos 0) (volatile rtt +infinity) (srtt 0) (cwnd 0) (ssthresh 0) (before 0) \
        (credit 0){reported})
    (segment_every +infinity) (recovering false) (in_loss false) (slow 0) (left 0) \
    (steps 0){declarations}{declared})
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (if (> (+ Ack.packets_acked Ack.packets_misordered) 0) \
        (:= Report.rtt (min Report.rtt Flow.rtt_sample_us)))
    (:= Report.srtt Flow.srtt_us)
    (fallthrough)){clauses}{again}
{reduction}
(when Flow.undone
    (:= Report.undos (+ Report.undos 1))
    (report)
    (fallthrough)){exit}
(when {GROWTH_CONDITION}
    (:= left {DELIVERED_BYTES})
    (:= slow {slow_start})
    (:= Cwnd (+ Cwnd slow))
    (:= left (diff left (* slow {divisor})))
    (:= Report.counted (+ Report.counted left))
    # At most one segment for credit saved while a segment cost more.
    (:= Report.credit (+ (min Report.credit segment_every) left))
    (:= steps (/ Report.credit segment_every))
    (:= Cwnd (+ Cwnd (* steps Flow.mss)))
    (:= Report.credit (diff Report.credit (* steps segment_every)))
    (fallthrough))
{STATE_CLAUSE}
(when {due}
    (:= Micros 0)
    (report))
"
    )
}

/// Clause for marks in every window: a transport can end one reduction and begin the next within
/// one call, so the program never runs outside of recovery. The new reduction shows in ssthresh,
/// which the transport halves before it runs the program. A difference below one segment is
/// rounding in the kernel.
const REPEATED_REDUCTION_CLAUSE: &str = "
(when (&& (! Flow.was_timeout) (<= Ssthresh (diff Report.ssthresh Flow.mss)))
    (:= recovering false)
    (fallthrough))";

/// Returns the program for datapaths without [`Capabilities::RECOVERY`], restricted to CCP's
/// variables. It treats a recovery as lasting until the data in flight at its start is acknowledged
/// (`hold`, RFC 6582's "recover"). It sets the window itself, and treats the flow as cwnd-limited
/// while more than half of the window is in flight. Slow start ends at a loss.
fn portable(beta: &str, own: &LawProgram, options: WindowOptions) -> String {
    let kept = own.reduced_window(beta, "mss");
    let LawProgram {
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
    let due = report_condition(options.report, "Report.srtt");
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile counted 0) (volatile lost 0) (volatile timeouts 0) \
        (volatile reductions 0)
        (volatile undos 0) (volatile rtt +infinity) (srtt 0) (cwnd 0) (ssthresh +infinity) \
        (before 0) (credit 0){reported})
    (segment_every +infinity) (mss 1448) (hold 0) (in_loss false) (slow 0) (left 0) \
    (steps 0){declared})
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

/// Returns the condition for a report. `srtt` is the name of the smoothed RTT variable, µs.
pub(crate) fn report_condition(report: Reporting, srtt: &str) -> String {
    match report {
        Reporting::Ack => "(> (+ Ack.bytes_acked Ack.bytes_misordered) 0)".to_owned(),
        Reporting::Rtt => format!("(> Micros (max {srtt} {}))", RTT_INTERVAL_MIN.as_micros()),
        Reporting::Every(interval) => format!("(> Micros {})", interval.as_micros()),
        Reporting::AtMost(interval) => format!(
            "(> Micros (min {} (max {srtt} {})))",
            interval.as_micros(),
            RTT_INTERVAL_MIN.as_micros()
        ),
    }
}
