//! The measured algorithm: the minimum that answers every report.

use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report};
use ccplane_units::Bytes;

pub(super) const ALGORITHM_NAME: &str = "answer";

/// Fold program with six report fields, the same as in `examples/portus`.
pub const PROGRAM: &str =
    "(def (Report (volatile acked 0) (volatile sacked 0) (volatile loss 0) (volatile timeout false)
     (volatile rtt 0) (volatile inflight 0)))
 (when true
     (:= Report.acked (+ Report.acked Ack.bytes_acked))
     (:= Report.sacked (+ Report.sacked Ack.packets_misordered))
     (:= Report.loss (+ Report.loss Ack.lost_pkts_sample))
     (:= Report.timeout Flow.was_timeout)
     (:= Report.rtt Flow.rtt_sample_us)
     (:= Report.inflight Flow.packets_in_flight)
     (report))";

/// Reads six fields and, if enabled, answers with a window: additive increase, halved on loss.
pub struct LoopAlgorithm {
    /// Answers reports with a window if true.
    pub updates: bool,
}

/// State of a flow.
pub struct AnswerFlow {
    cwnd: u64,
    mss: u64,
}

impl Algorithm for LoopAlgorithm {
    type Flow = AnswerFlow;

    fn name(&self) -> &str {
        ALGORITHM_NAME
    }

    fn programs(&self) -> Programs {
        Programs::new().with("fold", PROGRAM)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> AnswerFlow {
        control.set_program("fold", &[]);
        AnswerFlow {
            cwnd: info.cwnd.get(),
            mss: info.mss.get(),
        }
    }

    fn on_report(&mut self, flow: &mut AnswerFlow, report: &Report<'_>, control: &mut Control<'_>) {
        let field = |name| report.get(name).unwrap_or(0);
        let (acked, sacked, loss) = (field("acked"), field("sacked"), field("loss"));
        let (timeout, _rtt, _inflight) = (field("timeout"), field("rtt"), field("inflight"));
        flow.cwnd = match loss + sacked + timeout {
            0 => flow.cwnd + flow.mss * acked / flow.cwnd.max(1),
            _ => (flow.cwnd / 2).max(flow.mss),
        };
        if self.updates {
            control.set_cwnd(Bytes::new(flow.cwnd));
        }
    }
}
