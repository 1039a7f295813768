//! Example of a custom congestion-control algorithm: additive increase, multiplicative decrease.
//!
//! The datapath sums the acknowledged and lost data and reports once per RTT, and at once after a
//! loss. The agent adds a segment or halves the window. A small model of a path replaces the
//! network: `cargo run --example aimd`.

use ccplane_agent::datapath::{Datapath, DatapathCore, InlineChannel};
use ccplane_agent::{
    Agent, AgentOptions, Algorithm, Control, FlowInfo, ProgramTables, Programs, Report,
};
use ccplane_datapath::{Capabilities, OperatorLimits, Signals, SteeredFlow, Transport};
use ccplane_units::{Bytes, Duration, Time};

struct Aimd;

struct Flow {
    cwnd: u64,
    mss: u64,
}

impl Algorithm for Aimd {
    type Flow = Flow;

    fn name(&self) -> &str {
        "aimd"
    }

    fn programs(&self) -> Programs {
        Programs::new().with(
            "fold",
            "(def (Report (volatile acked 0) (volatile lost 0)))
             (when true
                 (:= Report.acked (+ Report.acked Ack.bytes_acked))
                 (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
                 (fallthrough))
             (when (|| (> Report.lost 0) (> Micros Flow.srtt_us)) (report) (:= Micros 0))",
        )
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Flow {
        control.set_program("fold", &[]);
        Flow {
            cwnd: info.cwnd.get(),
            mss: info.mss.get(),
        }
    }

    fn on_report(&mut self, flow: &mut Flow, report: &Report<'_>, control: &mut Control<'_>) {
        flow.cwnd = match report.get("lost") {
            Some(0) => flow.cwnd + flow.mss,
            _ => (flow.cwnd / 2).max(2 * flow.mss),
        };
        control.set_cwnd(Bytes::new(flow.cwnd));
    }
}

/// Segments that the path holds; one more is lost.
const PATH_CAPACITY_SEGMENTS: u64 = 40;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut agent = Agent::new(AgentOptions::default());
    agent.add(Aimd)?;
    let (flow, mss) = (1, 1448);
    let mut transport = Transport {
        cwnd: 10 * mss,
        rate: 0,
        ssthresh: u64::MAX,
        now: Time::ZERO,
    };

    let tables = ProgramTables::new(
        OperatorLimits::default(),
        Capabilities::CWND.union(Capabilities::RTT),
    );
    let mut datapath = Datapath::new(
        transport.now,
        DatapathCore::new(0, "model", tables, InlineChannel::new(agent)),
    );
    datapath.open(transport.now, flow, FlowInfo::default());
    for round in 0..60 {
        let segments = transport.cwnd / mss;
        println!("{round:3} {:#<width$}", "", width = segments as usize);
        for segment in 0..segments {
            transport.now += Duration::from_millis(20) / segments;
            let lost = u64::from(segment == PATH_CAPACITY_SEGMENTS);
            let signals = Signals {
                bytes_acked: mss * (1 - lost),
                lost_pkts_sample: lost,
                srtt_us: 20_000,
                mss,
                ..Signals::default()
            };
            // Delivers reports to the agent; its commands apply from the next call on.
            datapath.poll(transport.now);
            let mut flow = datapath.flow(flow).ok_or("it is open")?;
            let outcome = flow.on_ack(&transport, &signals);
            transport.cwnd = outcome.cwnd.unwrap_or(transport.cwnd);
            if lost > 0 {
                break;
            }
        }
    }
    Ok(())
}
