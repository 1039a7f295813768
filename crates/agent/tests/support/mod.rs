//! Shared test support: an algorithm with scripted callbacks, and an agent that hosts it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::{Arc, Mutex};

use ccplane_agent::{
    Agent, AgentOptions, Algorithm, Control, DatapathId, DatapathInfo, FlowInfo, FlowStats,
    Programs, Refusal, Report,
};
use ccplane_datapath::{Capabilities, CommandTarget};
use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

pub const DATAPATH: DatapathId = DatapathId(0);
pub const START_TIME: Time = Time::from_micros(1_000);

/// Scripted callbacks and the log of events; shared between the test and the algorithm.
pub type Script = Arc<Mutex<State>>;

#[derive(Default)]
pub struct State {
    pub on_report: Option<fn(&Report<'_>, &mut Control<'_>)>,
    pub on_timer: Option<fn(&mut Control<'_>)>,
    pub log: Vec<String>,
}

pub struct ScriptedAlgorithm {
    pub name: &'static str,
    pub needs: Capabilities,
    pub script: Script,
}

pub const FIRST_PROGRAM: &str =
    "(def (Report (volatile acked 0) (volatile lost 0)) (gain 1) (pace 2))
    (when true (:= Report.acked (+ Report.acked gain))
    (:= Report.lost (+ Report.lost pace)) (report))";
pub const SECOND_PROGRAM: &str =
    "(def (Report (volatile rtt 0)) (probe 3)) (when true (:= Report.rtt probe) (report))";

impl ScriptedAlgorithm {
    fn say(&self, what: impl Into<String>) {
        self.script.lock().expect("no panic").log.push(what.into());
    }
}

impl Algorithm for ScriptedAlgorithm {
    type Flow = u64;

    fn name(&self) -> &str {
        self.name
    }

    fn programs(&self) -> Programs {
        Programs::new()
            .with("first", FIRST_PROGRAM)
            .with("second", SECOND_PROGRAM)
    }

    fn required_capabilities(&self) -> Capabilities {
        self.needs
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> u64 {
        self.say(format!("open live={} cwnd={}", info.live, info.cwnd.get()));
        control.set_program("first", &[("gain", 5)]);
        0
    }

    fn on_report(&mut self, seen: &mut u64, report: &Report<'_>, control: &mut Control<'_>) {
        *seen += 1;
        self.say(format!(
            "report {} of flow {}: {:?}",
            seen,
            report.flow().flow,
            report.fields()
        ));
        let on_report = self.script.lock().expect("no panic").on_report;
        if let Some(on_report) = on_report {
            on_report(report, control);
        }
    }

    fn on_timer(&mut self, control: &mut Control<'_>) {
        self.say(format!("timer at {}", control.now().as_micros()));
        let on_timer = self.script.lock().expect("no panic").on_timer;
        if let Some(on_timer) = on_timer {
            on_timer(control);
        }
    }

    fn on_refused(&mut self, _: &mut u64, why: &Refusal, _: &mut Control<'_>) {
        self.say(format!("refused: {why}"));
    }

    fn on_close(&mut self, seen: u64, last: &FlowStats) {
        self.say(format!(
            "close after {seen} reports, {} bytes",
            last.bytes_acked.get()
        ));
    }
}

pub struct Bench {
    pub agent: Agent,
    pub script: Script,
    pub first: u32,
    pub second: u32,
}

pub fn datapath(fallback_after: Option<Duration>) -> DatapathInfo {
    DatapathInfo {
        id: 1,
        kind: "test".to_owned(),
        capabilities: Capabilities::CWND,
        max_programs: 8,
        max_instrs: 256,
        max_vars: 64,
        agent_timeout: fallback_after,
    }
}

pub fn info(algorithm: &str) -> FlowInfo {
    FlowInfo {
        algorithm: algorithm.to_owned(),
        ..FlowInfo::default()
    }
}

impl Bench {
    /// Creates an agent with one algorithm, and a datapath that has sent READY.
    pub fn new() -> Bench {
        let script = Script::default();
        let mut agent = Agent::new(AgentOptions::default());
        let scripted = ScriptedAlgorithm {
            name: "scripted",
            needs: Capabilities::CWND,
            script: script.clone(),
        };
        agent.add(scripted).expect("it compiles");
        let uids: Vec<u32> = agent
            .hosted_algorithms()
            .flat_map(|h| &h.programs)
            .map(|p| p.uid)
            .collect();
        let mut bench = Bench {
            agent,
            script,
            first: uids[0],
            second: uids[1],
        };
        bench.event(WireEvent::Ready {
            datapath: datapath(None),
        });
        bench.commands();
        bench
    }

    pub fn event(&mut self, event: WireEvent<'_>) {
        self.agent.handle(START_TIME, DATAPATH, event);
    }

    pub fn open(&mut self, flow: u64) {
        self.event(WireEvent::FlowOpened {
            flow,
            info: info("scripted"),
        });
    }

    pub fn report(&mut self, flow: u64, program: u32, fields: &[u64]) {
        self.event(WireEvent::Report {
            flow,
            program,
            urgent: false,
            fields,
        });
    }

    pub fn commands(&mut self) -> Vec<WireCommand> {
        std::iter::from_fn(|| self.agent.poll())
            .map(|(_, command)| command)
            .collect()
    }

    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.script.lock().expect("no panic").log)
    }

    pub fn on_report(&self, what: fn(&Report<'_>, &mut Control<'_>)) {
        self.script.lock().expect("no panic").on_report = Some(what);
    }
}

pub fn targets(command: &WireCommand) -> Vec<(CommandTarget, u64)> {
    match command {
        WireCommand::SetProgram { updates, .. } | WireCommand::Update { updates, .. } => updates
            .as_slice()
            .iter()
            .map(|u| (u.target, u.value))
            .collect(),
        other => panic!("{other:?}"),
    }
}
