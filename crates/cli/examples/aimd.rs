//! AIMD, to start an algorithm of your own from: one segment more each round trip, half the window after a loss.
//!
//! `cargo run --release -- run --alg aimd --vs native:reno --rate 48mbit --rtt 20ms`

use ccplane::agent::{Algorithm, Control, FlowInfo, Programs, Report, boxed};
use ccplane::units::Bytes;
use ccplane::{AlgorithmDoc, Registry};

/// Runs in the datapath at every ACK, and reports once a round trip, or at once when losses begin.
const FOLD: &str = "
(def (Report (volatile lost false)) (repairing false))
(when (|| Flow.was_timeout (&& Flow.in_recovery (! repairing)))   # losses: once an episode
    (:= Report.lost true)
    (:= repairing true)
    (:= Micros 0)
    (report))
(when (> Micros Flow.srtt_us)                                     # a round trip has passed
    (:= repairing Flow.in_recovery)
    (:= Micros 0)
    (report))
";

struct Aimd;

/// What is kept for each flow: bytes.
struct Window {
    cwnd: u64,
    mss: u64,
}

impl Algorithm for Aimd {
    type Flow = Window;

    fn name(&self) -> &str {
        "aimd"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("fold", FOLD)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Window {
        control.program("fold", &[]);
        Window {
            cwnd: info.cwnd.get(),
            mss: info.mss.get(),
        }
    }

    fn on_report(&mut self, flow: &mut Window, report: &Report<'_>, control: &mut Control<'_>) {
        if report.get("lost") == Some(1) {
            flow.cwnd = (flow.cwnd / 2).max(2 * flow.mss);
            control.ssthresh(Bytes::new(flow.cwnd)); // where the datapath's recovery brings the window
        } else {
            flow.cwnd += flow.mss;
        }
        control.cwnd(Bytes::new(flow.cwnd));
    }
}

const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "aimd",
    doc: "additive increase, multiplicative decrease",
    parameters: &[],
};

fn main() -> std::process::ExitCode {
    ccplane::main_with(Registry::builtin().add(DOC, |_| Ok(boxed(Aimd))))
}
