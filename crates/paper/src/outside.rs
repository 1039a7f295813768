//! Reno altogether outside the datapath, as the paper has it: the window changes when a report is heard, and only then.
//!
//! ccplane's own Reno leaves to its program what cannot wait, slow start and the reduction at a loss. This one does not, so
//! that the paper's figures can be compared with what they were about.

use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report};
use ccplane_algorithms::Reporting;
use ccplane_units::Bytes;

/// By which flows choose it.
pub(super) const NAME: &str = "outside";

/// The algorithm.
pub(super) struct Outside {
    report: Reporting,
}

/// A flow's window and threshold, bytes.
pub(super) struct Flow {
    cwnd: u64,
    ssthresh: u64,
    mss: u64,
}

impl Outside {
    /// With reports then.
    pub fn reporting(report: Reporting) -> Outside {
        Outside { report }
    }
}

impl Algorithm for Outside {
    type Flow = Flow;

    fn name(&self) -> &str {
        NAME
    }

    /// Only measures. At a loss it keeps the transport from reducing the window by itself: its threshold is the window.
    fn programs(&self) -> Programs {
        let due = match self.report {
            Reporting::Ack => "(> (+ Ack.bytes_acked Ack.bytes_misordered) 0)".to_owned(),
            Reporting::Rtt => "(> Micros Flow.srtt_us)".to_owned(),
            Reporting::Every(interval) => format!("(> Micros {})", interval.as_micros().saturating_sub(1)),
        };
        let program = format!(
            "(def
    (Report (volatile acked 0) (volatile losses 0) (volatile timeouts 0))
    (recovering false))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (fallthrough))
(when (&& Flow.in_recovery (! recovering))
    (:= Ssthresh Cwnd)
    (:= Report.losses (+ Report.losses 1))
    (fallthrough))
(when Flow.was_timeout
    (:= Report.timeouts (+ Report.timeouts 1))
    (fallthrough))
(when true
    (:= recovering (|| Flow.in_recovery Flow.was_timeout))
    (fallthrough))
(when {due}
    (:= Micros 0)
    (report))
"
        );
        Programs::new().with("measure", program)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Flow {
        control.program("measure", &[]);
        Flow {
            cwnd: info.cwnd.get(),
            ssthresh: u64::MAX,
            mss: info.mss.get().max(1),
        }
    }

    /// RFC 5681, on what came together since the last report.
    fn on_report(&mut self, flow: &mut Flow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[acked, losses, timeouts] = report.fields() else {
            return;
        };
        if timeouts > 0 {
            flow.ssthresh = (flow.cwnd / 2).max(2 * flow.mss);
            flow.cwnd = flow.mss;
        } else if losses > 0 {
            flow.ssthresh = (flow.cwnd / 2).max(2 * flow.mss);
            flow.cwnd = flow.ssthresh;
        } else if flow.cwnd < flow.ssthresh {
            flow.cwnd = (flow.cwnd + acked).min(flow.ssthresh);
        } else {
            flow.cwnd += flow.mss * acked / flow.cwnd.max(1);
        }
        control.ssthresh(Bytes::new(flow.ssthresh.min(u64::from(u32::MAX))));
        control.cwnd(Bytes::new(flow.cwnd));
    }
}
