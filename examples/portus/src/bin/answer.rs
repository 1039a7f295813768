//! Minimal portus agent for `ccplane bench agent --portus` and `control-loop --portus`: it reads
//! every report and, with `--updates`, answers each with a window.
//!
//! `portus-answer NAME [--updates]` serves on the socket /tmp/ccp/NAME.

use std::collections::HashMap;

use portus::ipc::{BackendBuilder, Blocking, Ipc, unix::Socket};
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};

/// Same program as `ccplane bench` uses for ccplane's agent.
const PROGRAM: &str = "
    (def (Report (volatile acked 0) (volatile sacked 0) (volatile loss 0) (volatile timeout false)
        (volatile rtt 0) (volatile inflight 0)))
    (when true
        (:= Report.acked (+ Report.acked Ack.bytes_acked))
        (:= Report.sacked (+ Report.sacked Ack.packets_misordered))
        (:= Report.loss (+ Report.loss Ack.lost_pkts_sample))
        (:= Report.timeout Flow.was_timeout)
        (:= Report.rtt Flow.rtt_sample_us)
        (:= Report.inflight Flow.packets_in_flight)
        (report))";

struct Answer {
    updates: bool,
}

impl<I: Ipc> CongAlg<I> for Answer {
    type Flow = Window<I>;

    fn name() -> &'static str {
        "answer"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("fold", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut datapath: Datapath<I>, info: DatapathInfo) -> Window<I> {
        let scope = datapath.set_program("fold", None).expect("it is declared");
        Window {
            datapath,
            scope,
            updates: self.updates,
            mss: u64::from(info.mss),
            window: u64::from(info.init_cwnd),
        }
    }
}

struct Window<I: Ipc> {
    datapath: Datapath<I>,
    scope: Scope,
    updates: bool,
    mss: u64,
    window: u64,
}

impl<I: Ipc> Flow for Window<I> {
    fn on_report(&mut self, _flow: u32, report: Report) {
        let field = |name| report.get_field(name, &self.scope).unwrap_or(0);
        let (acked, sacked, loss) = (field("Report.acked"), field("Report.sacked"), field("Report.loss"));
        let (timeout, _rtt, _inflight) = (field("Report.timeout"), field("Report.rtt"), field("Report.inflight"));
        self.window = match loss + sacked + timeout {
            0 => self.window + self.mss * acked / self.window.max(1),
            _ => (self.window / 2).max(self.mss),
        };
        if self.updates {
            let window = u32::try_from(self.window).unwrap_or(u32::MAX);
            let _ = self.datapath.update_field(&self.scope, &[("Cwnd", window)]);
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "portus".to_owned());
    let updates = arguments.any(|argument| argument == "--updates");
    let sock = Socket::<Blocking>::new(&name).expect("its folder is /tmp/ccp");
    let agent = RunBuilder::new(BackendBuilder { sock }).default_alg(Answer { updates });
    if let Err(why) = agent.run() {
        eprintln!("{why:?}");
        std::process::exit(1);
    }
}
