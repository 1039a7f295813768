use std::sync::Mutex;

use super::*;
use crate::{FlowId, Programs, Report, StandaloneProgram};

const START_TIME: Time = Time::from_micros(1_000);
const ID: DatapathId = DatapathId(4);

/// What callbacks saw, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Writes down what its callbacks see.
#[derive(Clone, Default)]
struct Probe {
    name: &'static str,
    kernel_name: &'static str,
    undecided: bool,
    log: Log,
}

impl Probe {
    fn named(name: &'static str, kernel_name: &'static str) -> Probe {
        Probe {
            name,
            kernel_name,
            ..Probe::default()
        }
    }
}

impl Algorithm for Probe {
    type Flow = ();

    fn name(&self) -> &str {
        self.name
    }

    fn kernel_name(&self) -> String {
        self.kernel_name.to_owned()
    }

    fn programs(&self) -> Programs {
        let program = "(def (Report (volatile acked 0)) (gain 1) (lived 0)) (when true (report))";
        let other = "(def (Report (volatile rtt 0)) (gain 1)) (when true (report))";
        Programs::new().with("fold", program).with("other", other)
    }

    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("fold", &[]);
    }

    fn on_report(&mut self, (): &mut (), report: &Report<'_>, control: &mut Control<'_>) {
        let line = format!(
            "{} urgent={} at {} for {:?} on {} capabilities",
            report.program().name,
            report.is_urgent(),
            control.now().as_micros(),
            control.tenant(),
            control.capabilities().names().count()
        );
        self.log.lock().expect("no panic").push(line);
        control.count_exception();
    }

    fn awaiting_action(&self) -> bool {
        self.undecided
    }

    fn standalone(&self) -> Option<StandaloneProgram> {
        Some(StandaloneProgram {
            program: "fold",
            live_flag: Some("lived"),
        })
    }
}

fn ready() -> WireEvent<'static> {
    let datapath = DatapathInfo {
        id: 1,
        kind: "test".to_owned(),
        capabilities: Capabilities::CWND,
        max_programs: 8,
        max_instrs: 256,
        max_vars: 64,
        agent_timeout: None,
    };
    WireEvent::Ready { datapath }
}

fn opened(flow: u64) -> WireEvent<'static> {
    let info = FlowInfo::default();
    WireEvent::FlowOpened { flow, info }
}

fn report(flow: u64, program: u32, urgent: bool) -> WireEvent<'static> {
    WireEvent::Report {
        flow,
        program,
        urgent,
        fields: &[5],
    }
}

/// An agent with one algorithm, what that sees, and the numbers of its programs.
fn agent() -> (Agent, Log, [u32; 2]) {
    let probe = Probe::named("probe", "ccp_probe");
    let log = probe.log.clone();
    let mut agent = Agent::new(AgentOptions::default());
    agent.add(probe).expect("it compiles");
    let programs = [0, 1].map(|n| {
        let hosted = agent.hosted_algorithms().next().expect("it was added");
        hosted.programs[n].uid
    });
    (agent, log, programs)
}

fn drain(agent: &mut Agent) -> usize {
    std::iter::from_fn(|| agent.poll()).count()
}

#[test]
fn work_counts_events_commands_and_flows_that_ended() {
    let (mut agent, _, [fold, _]) = agent();
    agent.handle(START_TIME, ID, ready());
    // READY, an offer and two installs.
    assert_eq!((agent.work_units(), drain(&mut agent)), (4, 3));
    for flow in 1..=3 {
        agent.handle(START_TIME, ID, opened(flow));
    }
    assert_eq!((agent.work_units(), drain(&mut agent)), (10, 3));
    agent.handle(START_TIME, ID, report(1, fold, false));
    assert_eq!(agent.work_units(), 11);
    agent.handle_batch(
        START_TIME,
        ID,
        &[report(1, fold, false), report(2, fold, false)],
    );
    assert_eq!(agent.work_units(), 13);
    agent.handle(START_TIME, ID, ready());
    // The same again, and three flows that ended.
    assert_eq!((agent.work_units(), drain(&mut agent)), (20, 3));
}

#[test]
fn a_report_brings_its_urgency_the_time_and_the_tenant() {
    let (mut agent, log, [fold, _]) = agent();
    agent.handle(START_TIME, ID, ready());
    agent.handle(START_TIME, ID, opened(1));
    agent.handle(START_TIME, ID, report(1, fold, false));
    agent.set_tenant(ID, "site".into());
    let later = START_TIME + Duration::from_micros(7);
    agent.handle(later, ID, report(1, fold, true));
    assert_eq!(
        *log.lock().expect("no panic"),
        [
            "fold urgent=false at 1000 for None on 1 capabilities",
            "fold urgent=true at 1007 for Some(\"site\") on 1 capabilities"
        ]
    );
    let stats = agent.stats("probe").expect("it was added");
    assert_eq!(
        (stats.reports, stats.urgent_reports, stats.exceptions),
        (2, 1, 2)
    );
    agent.on_disconnect(ID);
    assert_eq!(agent.core.tenant(ID), None);
}

#[test]
fn names_and_kernel_names_are_taken_once() {
    let (mut agent, ..) = agent();
    let mut add = |name, kernel_name| agent.add(Probe::named(name, kernel_name));
    assert!(add("probe", "ccp_other").is_err());
    assert!(add("other", "ccp_probe").is_err());
    assert!(add("other", "ccp_other").is_ok());
}

#[test]
fn an_agent_waits_for_a_decision_while_one_of_its_algorithms_does() {
    let (mut agent, ..) = agent();
    assert!(!agent.awaiting_action());
    let waiting = Probe {
        undecided: true,
        ..Probe::named("other", "ccp_other")
    };
    agent.add(waiting).expect("it compiles");
    assert!(agent.awaiting_action());
}

/// By default an algorithm is decided, and none of its programs does without an agent.
#[test]
fn unspecified_settings_have_defaults() {
    struct Plain;
    impl Algorithm for Plain {
        type Flow = ();
        fn name(&self) -> &str {
            "a plain-name_of.many letters"
        }
        fn programs(&self) -> Programs {
            Programs::new()
        }
        fn open(&mut self, _: &FlowInfo, _: &mut Control<'_>) {}
        fn on_report(&mut self, (): &mut (), _: &Report<'_>, _: &mut Control<'_>) {}
    }
    let plain = box_algorithm(Plain);
    assert!(!plain.awaiting_action());
    assert_eq!(plain.standalone(), None);
    assert_eq!(plain.kernel_name(), "ccp_aplainname_");
    assert_eq!(
        (
            plain.required_capabilities(),
            plain.requested_capabilities()
        ),
        (Capabilities::CWND, Capabilities::CWND)
    );
    assert_eq!(plain.latency(), Duration::from_millis(1));
}

#[test]
fn a_program_that_decides_everything_is_offered_with_its_variable() {
    let (agent, ..) = agent();
    let hosted = agent.hosted_algorithms().next().expect("it was added");
    let (program, lived) = hosted.standalone_program().expect("it has one");
    // After the report variable and `gain`.
    assert_eq!((program.name.as_str(), lived), ("fold", Some(2)));
}

#[test]
fn only_the_current_program_is_reverted_on_refusal() {
    let (mut agent, log, [fold, other]) = agent();
    agent.handle(START_TIME, ID, ready());
    agent.handle(START_TIME, ID, opened(1));
    let refused = |program| WireEvent::Refused {
        flow: Some(1),
        program,
        why: Refusal::TableFull,
    };
    let reports = |agent: &mut Agent| {
        agent.handle(START_TIME, ID, report(1, fold, false));
        log.lock().expect("no panic").len()
    };
    agent.handle(START_TIME, ID, refused(other));
    agent.handle(START_TIME, ID, refused(0));
    assert_eq!(reports(&mut agent), 1, "the flow keeps its program");
    agent.handle(START_TIME, ID, refused(fold));
    assert_eq!(reports(&mut agent), 1, "the flow has no program");
    assert_eq!(agent.stats("probe").expect("it was added").refusals, 3);
}

#[test]
fn commands_to_absent_datapaths_are_dropped() {
    let (mut agent, ..) = agent();
    // This one did not announce itself, but has a flow.
    agent.options.unknown_algorithm = UnknownAlgorithm::First;
    agent.core.flows.insert(FlowEntry {
        id: FlowId {
            datapath: ID,
            flow: 1,
        },
        algorithm: 0,
        slot: 0,
        program: None,
        previous: None,
    });
    let beat = || WireCommand::Heartbeat {
        algorithm: "probe".into(),
    };
    agent.core.push_command(ID, beat());
    agent.core.push_command(DatapathId(5), beat());
    assert_eq!(agent.poll().map(|(to, _)| to), Some(ID));
    assert!(agent.poll().is_none());
}

/// A datapath that cannot release flows refuses each of them: the log has one line of it.
#[test]
fn a_release_that_cannot_be_done_is_logged_once_and_other_refusals_each_time() {
    let lines_left = |refusals: &[Refusal]| {
        let (mut agent, ..) = agent();
        agent.handle(START_TIME, ID, ready());
        agent.handle(START_TIME, ID, opened(1));
        for why in refusals {
            let (flow, why) = (Some(1), why.clone());
            let program = 0;
            agent.handle(START_TIME, ID, WireEvent::Refused { flow, program, why });
        }
        std::iter::from_fn(|| agent.take_log_permit(START_TIME, ID)).count()
    };
    let all = lines_left(&[]);
    assert_eq!(lines_left(&[const { Refusal::NoRelease }; 3]), all - 1);
    assert_eq!(lines_left(&[const { Refusal::TableFull }; 3]), all - 3);
}
