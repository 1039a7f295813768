//! End-to-end test with an existing CCP datapath: it understands only version-1 messages, behaves
//! like the reference library, and is controlled over a socket.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_agent::{
    Agent, AgentOptions, Algorithm, CcpDatapath, Control, DatapathId, FlowInfo, Programs, Report,
};
use ccplane_datapath::{
    self as datapath, Capabilities, CommandTarget, Compat, OperatorLimits, ProgramTable, Signals,
    Transport, Update,
};
use ccplane_link::{Datagram, WaitStrategy, serve};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{WireCommand, WireEvent, v1};

/// The message handling of CCP's library, on ccplane's datapath engine.
struct Ccp {
    socket: UnixDatagram,
    agent: PathBuf,
    table: ProgramTable<8>,
    flows: Vec<(u32, datapath::Flow<64>, Transport)>,
}

impl Ccp {
    fn new(own: &std::path::Path, agent: &std::path::Path) -> Ccp {
        let socket = UnixDatagram::bind(own).expect("a path of its own");
        socket
            .set_read_timeout(Some(std::time::Duration::from_secs(20)))
            .expect("a time-out");
        let all = [
            Capabilities::PACING,
            Capabilities::RTT,
            Capabilities::DELIVERY_RATE,
            Capabilities::ECN,
        ];
        let capabilities = all
            .into_iter()
            .fold(Capabilities::CWND, |all, one| all.union(one));
        let limits = OperatorLimits {
            agent_timeout: Duration::from_secs(1_000_000),
            ..OperatorLimits::default()
        };
        let table = ProgramTable::with_compat(limits, capabilities, Compat::Libccp);
        let ccp = Ccp {
            socket,
            agent: agent.to_owned(),
            table,
            flows: Vec::new(),
        };
        ccp.send(|out| v1::ready(out, 1));
        ccp
    }

    fn send(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.socket
            .send_to(&out, &self.agent)
            .expect("the agent is there");
    }

    /// Processes messages of the agent until one matches.
    fn take_until(&mut self, wanted: impl Fn(&v1::V1Message<'_>) -> bool) {
        let mut buffer = vec![0; v1::MESSAGE_BYTES_MAX];
        loop {
            let length = self.socket.recv(&mut buffer).expect("an answer in time");
            // The reference reads one message per datagram.
            let message = v1::messages(&buffer[..length])
                .next()
                .expect("a message")
                .expect("a good one");
            self.take(&message);
            if wanted(&message) {
                return;
            }
        }
    }

    fn take(&mut self, message: &v1::V1Message<'_>) {
        match message {
            v1::V1Message::Install(install) => {
                self.table
                    .install(install.decode().expect("a good program"))
                    .expect("the table has room");
            }
            v1::V1Message::ChangeProgram {
                flow,
                program,
                updates,
            } => {
                let vars = self
                    .table
                    .get(*program)
                    .expect("it was installed")
                    .report_vars();
                let updates: Vec<Update> = updates.iter().map(|raw| update(raw, vars)).collect();
                self.apply(
                    *flow,
                    &datapath::Command::SetProgram {
                        uid: *program,
                        updates: &updates,
                    },
                );
            }
            v1::V1Message::UpdateField { flow, updates } => {
                let (_, state, _) = self.flows.iter().find(|f| f.0 == *flow).expect("it lives");
                let vars = state
                    .program_uid()
                    .and_then(|uid| self.table.get(uid))
                    .map_or(0, |p| p.report_vars());
                let updates: Vec<Update> = updates.iter().map(|raw| update(raw, vars)).collect();
                self.apply(*flow, &datapath::Command::Update(&updates));
            }
            other => panic!("{other:?} is not for a datapath"),
        }
    }

    fn apply(&mut self, flow: u32, command: &datapath::Command<'_>) {
        let (_, state, transport) = self
            .flows
            .iter_mut()
            .find(|f| f.0 == flow)
            .expect("it lives");
        state
            .apply(transport.now, command, &self.table)
            .expect("the command is accepted");
    }

    fn open(&mut self, flow: u32) {
        let transport = Transport {
            cwnd: 10_000,
            rate: 0,
            ssthresh: u64::MAX,
            now: Time::ZERO,
        };
        self.flows
            .push((flow, datapath::Flow::new(Time::ZERO, 10_000), transport));
        let zero = ([0, 0, 0, 0], 0).into();
        let create = v1::Create {
            init_cwnd: 10_000,
            mss: 1000,
            source: zero,
            destination: zero,
            algorithm: "x",
        };
        self.send(|out| v1::create(out, flow, &create).expect("it fits"));
        self.take_until(|message| match message {
            v1::V1Message::ChangeProgram { flow: of, .. } => *of == flow,
            _ => false,
        });
    }

    /// Processes an ACK after `ms` milliseconds. Returns whether it triggered a report.
    fn ack(&mut self, flow: u32, ms: u64) -> bool {
        let (_, state, transport) = self
            .flows
            .iter_mut()
            .find(|f| f.0 == flow)
            .expect("it lives");
        transport.now += Duration::from_millis(ms);
        let signals = Signals {
            bytes_acked: 5,
            rtt_sample_us: 2,
            packets_in_flight: 100,
            ..Signals::default()
        };
        let outcome = state.on_ack(transport, &signals, &self.table);
        transport.cwnd = outcome.cwnd.unwrap_or(transport.cwnd);
        transport.rate = outcome.rate.unwrap_or(transport.rate);
        if outcome.report.is_none() {
            return false;
        }
        let (program, fields) = (
            state.program_uid().expect("one is set"),
            state.report(&self.table).to_vec(),
        );
        state.report_queued(&self.table);
        self.send(|out| v1::measure(out, flow, program, &fields).expect("it fits"));
        true
    }

    fn window(&self, flow: u32) -> (u64, u64) {
        let (_, _, transport) = self.flows.iter().find(|f| f.0 == flow).expect("it lives");
        (transport.cwnd, transport.rate)
    }
}

fn update(raw: v1::RawUpdate, report_vars: usize) -> Update {
    let target = match (raw.class, raw.index) {
        (0 | 8, index) => CommandTarget::Var((report_vars + index as usize) as u8),
        (2, 4) => CommandTarget::Cwnd,
        (2, 5) => CommandTarget::Rate,
        other => panic!("{other:?} cannot be set"),
    };
    Update {
        target,
        value: raw.value,
    }
}

/// Program that reports the acknowledged bytes every fifth ACK. The algorithm sets windows, with a
/// step of its own for each flow.
struct Steps;

impl Algorithm for Steps {
    type Flow = u64;

    fn name(&self) -> &str {
        "steps"
    }

    fn programs(&self) -> Programs {
        Programs::new()
            .with("unused", "(def (Report (x 0))) (when true (report))")
            .with(
                "count",
                "(def (Report (volatile acked 0) (total 0) (volatile step 0)) (step 1) (count 0))
             (when true
                 (:= Report.acked (+ Report.acked Ack.bytes_acked))
                 (:= Report.total (+ Report.total step))
                 (:= Report.step step)
                 (:= count (+ count 1))
                 (fallthrough))
             (when (== count 5) (:= count 0) (report))",
            )
    }

    fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) -> u64 {
        let flow = control.flow_id().map_or(0, |this| this.flow);
        control.set_program("count", &[("step", 10 * flow)]);
        0
    }

    fn on_report(&mut self, reports: &mut u64, report: &Report<'_>, control: &mut Control<'_>) {
        *reports += 1;
        assert_eq!(
            report.get("acked"),
            Some(25),
            "volatile: of these five ACKs only"
        );
        let step = report.get("step").expect("it exists");
        let flow = report.flow().flow;
        assert_eq!(
            step,
            10 * flow + (*reports - 1),
            "each flow has its own value, which follows the updates"
        );
        control.set_variable("step", step + 1);
        control.set_cwnd(Bytes::new(20_000 + report.get("total").expect("it exists")));
        control.set_rate(Rate::from_bytes_per_sec(6_000_000_000));
    }
}

#[test]
fn a_ccp_datapath_is_steered() {
    let place = std::env::temp_dir().join(format!("ccplane-ccp-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a temporary directory");
    let path = place.join("agent");
    let mut link = Datagram::bind(&path).expect("it binds");
    let stop = AtomicBool::new(false);
    let stats = thread::scope(|scope| {
        let agent = scope.spawn(|| {
            let mut agent = Agent::new(AgentOptions::default());
            agent.add(Steps).expect("it compiles");
            serve(&mut agent, &mut [&mut link], WaitStrategy::default(), &stop).expect("it serves");
            agent.stats("steps").expect("it exists")
        });
        let mut ccp = Ccp::new(&place.join("datapath"), &path);
        ccp.open(1);
        ccp.open(2);
        let mut total = [0, 0];
        for round in 0..10 {
            for flow in [1, 2] {
                for ack in 1..=5 {
                    assert_eq!(ccp.ack(flow, 1), ack == 5);
                }
                ccp.take_until(|message| match message {
                    v1::V1Message::UpdateField { flow: of, .. } => *of == flow,
                    _ => false,
                });
                total[flow as usize - 1] += 5 * (10 * u64::from(flow) + round);
            }
        }
        for flow in [1, 2] {
            ccp.ack(flow, 1);
            assert_eq!(
                ccp.window(flow),
                (20_000 + total[flow as usize - 1], 6_000_000_000),
                "beyond 32 bits"
            );
        }
        ccp.send(|out| v1::measure(out, 1, 2, &[]).expect("it fits"));
        // When the new flow has its program, the close has been processed too.
        ccp.open(3);
        stop.store(true, Ordering::Relaxed);
        agent.join().expect("the algorithm agrees")
    });
    assert_eq!(
        (
            stats.opened,
            stats.flows,
            stats.reports,
            stats.stale_reports
        ),
        (3, 2, 20, 0)
    );
    drop(link);
    std::fs::remove_dir_all(&place).expect("the file is ours");
}

#[test]
fn a_flow_cannot_be_given_back_in_version_1() {
    let (mut agent, now, id) = (
        Agent::new(AgentOptions::default()),
        Time::from_micros(1),
        DatapathId(0),
    );
    agent.add(Steps).expect("it compiles");
    let (mut ccp, mut ready, mut out) = (CcpDatapath::new(id), Vec::new(), Vec::new());
    v1::ready(&mut ready, 1);
    ccp.handle(now, &ready, &mut agent)
        .expect("the report is complete");
    let info = FlowInfo::default();
    agent.handle(now, id, WireEvent::FlowOpened { flow: 1, info });
    ccp.encode_command(now, &WireCommand::Release { flow: 1 }, &mut agent, &mut out);
    assert!(out.is_empty(), "no message is sent");
    assert_eq!(
        agent.stats("steps").expect("it exists").refusals,
        1,
        "the agent has the flow"
    );
}
