//! Programs of the shape that the published CCP algorithms use, written anew.

use ccplane_lang::{Limits, Program, compile};

fn compiled(source: &str) -> Program {
    compile(source, &Limits::default()).unwrap_or_else(|why| panic!("{why}"))
}

/// Reno and Cubic, a report every `interval` µs and at once on loss or timeout.
const INTERVAL: &str = "
(def
    (Report (volatile acked 0) (volatile sacked 0) (volatile loss 0) (volatile timeout false) (volatile rtt 0) (volatile inflight 0))
    (interval 0))
(when true
    (:= Report.inflight Flow.packets_in_flight)
    (:= Report.rtt Flow.rtt_sample_us)
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.sacked (+ Report.sacked Ack.packets_misordered))
    (:= Report.loss Ack.lost_pkts_sample)
    (:= Report.timeout Flow.was_timeout)
    (fallthrough))
(when (|| Report.timeout (> Report.loss 0)) (report) (:= Micros 0))
(when (> Micros interval) (report) (:= Micros 0))
";

#[test]
fn reno_interval() {
    let program = compiled(INTERVAL);
    assert_eq!(
        program.report_names().collect::<Vec<_>>(),
        ["acked", "sacked", "loss", "timeout", "rtt", "inflight"]
    );
    assert_eq!(program.control_names().collect::<Vec<_>>(), ["interval"]);
    assert_eq!(program.var_index("interval"), Some(6));
    assert_eq!(program.var_index("Report.acked"), Some(0));
    assert_eq!(program.var_index("acked"), Some(0));
    assert_eq!(program.var_index("nothing"), None);
    assert_eq!(program.cost().instrs, 14);
}
