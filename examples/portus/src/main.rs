//! Reno as a CCP agent. It depends on portus only, not on ccplane.
//!
//! `portus-reno NAME` serves on the socket /tmp/ccp/NAME.

use std::collections::HashMap;

use portus::ipc::{BackendBuilder, Blocking, Ipc, unix::Socket};
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};

/// Reports acknowledged bytes and losses: immediately after a loss or timeout, otherwise every
/// `interval` µs.
const PROGRAM: &str = "
    (def
        (Report (volatile acked 0) (volatile lost 0) (volatile timeout false))
        (interval 0))
    (when true
        (:= Report.acked (+ Report.acked Ack.bytes_acked))
        (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
        (:= Report.timeout Flow.was_timeout)
        (fallthrough))
    (when (|| Report.timeout (> Report.lost 0))
        (report)
        (:= Micros 0))
    (when (> Micros interval)
        (report)
        (:= Micros 0))";

struct Reno;

impl<I: Ipc> CongAlg<I> for Reno {
    type Flow = Window<I>;

    fn name() -> &'static str {
        "reno"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("fold", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut datapath: Datapath<I>, info: DatapathInfo) -> Window<I> {
        let window = u64::from(info.init_cwnd);
        let fields = [("Cwnd", info.init_cwnd), ("interval", 5_000)];
        let scope = datapath.set_program("fold", Some(&fields)).expect("it is declared");
        Window {
            datapath,
            scope,
            mss: u64::from(info.mss),
            window,
            threshold: u64::MAX,
            until_next_halving: 0,
        }
    }
}

struct Window<I: Ipc> {
    datapath: Datapath<I>,
    scope: Scope,
    mss: u64,
    window: u64,
    threshold: u64,
    /// Bytes to be acknowledged before a loss counts again: at most one reduction per RTT.
    until_next_halving: u64,
}

impl<I: Ipc> Flow for Window<I> {
    fn on_report(&mut self, _flow: u32, report: Report) {
        let field = |name| report.get_field(name, &self.scope).unwrap_or(0);
        let (acked, lost, timeout) = (field("Report.acked"), field("Report.lost"), field("Report.timeout"));
        self.until_next_halving = self.until_next_halving.saturating_sub(acked);
        if timeout > 0 {
            self.threshold = (self.window / 2).max(2 * self.mss);
            self.window = self.mss;
        } else if lost > 0 && self.until_next_halving == 0 {
            self.threshold = (self.window / 2).max(2 * self.mss);
            self.window = self.threshold;
            self.until_next_halving = self.window;
        } else if self.window < self.threshold {
            self.window += acked;
        } else {
            self.window += self.mss * acked / self.window;
        }
        let window = u32::try_from(self.window).unwrap_or(u32::MAX);
        if let Err(why) = self.datapath.update_field(&self.scope, &[("Cwnd", window)]) {
            eprintln!("the datapath does not take a window: {why:?}");
        }
    }
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "portus".to_owned());
    let sock = Socket::<Blocking>::new(&name).expect("its folder is /tmp/ccp");
    let agent = RunBuilder::new(BackendBuilder { sock }).default_alg(Reno);
    if let Err(why) = agent.run() {
        eprintln!("{why:?}");
        std::process::exit(1);
    }
}
