use ccplane_datapath::{CommandTarget, Update};
use ccplane_units::Duration;
use ccplane_wire::Updates;

use super::*;
use crate::{AgentOptions, Algorithm, Control, FlowId, Programs, Report};

const START_TIME: Time = Time::from_micros(1_000);
const ID: DatapathId = DatapathId(4);

/// Sets a window that says how much was acknowledged.
struct Echo;

impl Algorithm for Echo {
    type Flow = ();

    fn name(&self) -> &str {
        "echo"
    }

    fn programs(&self) -> Programs {
        Programs::new()
            .with(
                "fold",
                "(def (Report (volatile acked 0)) (gain 1)) (when true (report))",
            )
            .with(
                "other",
                "(def (Report (volatile rtt 0)) (probe 1)) (when true (report))",
            )
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("fold", &[("gain", info.cwnd.get())]);
    }

    fn on_report(&mut self, (): &mut (), report: &Report<'_>, control: &mut Control<'_>) {
        control.set_cwnd(Bytes::new(50_000 + report.get("acked").unwrap_or(0)));
        control.set_variable("gain", 3);
    }
}

/// An agent and a CCP datapath of it, with what the datapath is sent.
struct Pair {
    agent: Agent,
    ccp: CcpDatapath,
}

impl Pair {
    /// A pair after READY and the installs that answer it.
    fn ready() -> Pair {
        let mut agent = Agent::new(AgentOptions::default());
        agent.add(Echo).expect("it compiles");
        let mut pair = Pair {
            agent,
            ccp: CcpDatapath::new(ID),
        };
        assert_eq!(pair.ccp.id(), ID);
        let heard = pair.say(|out| v1::ready(out, 9));
        assert_eq!(
            heard,
            Ok(DatagramContents {
                messages: 1,
                ready: true
            })
        );
        let sent = pair.sent();
        assert_eq!(installs(&sent), [1, 2]);
        pair
    }

    fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<DatagramContents, WireError> {
        let mut datagram = Vec::new();
        write(&mut datagram);
        self.ccp.handle(START_TIME, &datagram, &mut self.agent)
    }

    fn create(&mut self, flow: u32) {
        let address = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port));
        let create = v1::Create {
            init_cwnd: 14_000,
            mss: 1_400,
            source: address(1),
            destination: address(2),
            algorithm: "echo",
        };
        self.say(|out| v1::create(out, flow, &create).expect("short"))
            .expect("good");
    }

    fn measure(&mut self, flow: u32, program: u32, fields: &[u64]) {
        self.say(|out| v1::measure(out, flow, program, fields).expect("short"))
            .expect("good");
    }

    /// All that the agent has for the datapath, as messages.
    fn sent(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some((to, command)) = self.agent.poll() {
            assert_eq!(to, ID);
            self.ccp
                .encode_command(START_TIME, &command, &mut self.agent, &mut out);
        }
        out
    }

    fn command(&mut self, command: &WireCommand) -> Vec<u8> {
        let mut out = Vec::new();
        self.ccp
            .encode_command(START_TIME, command, &mut self.agent, &mut out);
        out
    }

    fn uid(&self, program: usize) -> u32 {
        let hosted = self.agent.hosted_algorithms().next().expect("it was added");
        hosted.programs[program].uid
    }

    fn refusals(&self) -> u64 {
        self.agent.stats("echo").expect("it was added").refusals
    }
}

fn installs(datagram: &[u8]) -> Vec<u32> {
    let numbers = v1::messages(datagram).filter_map(|message| match message {
        Ok(v1::V1Message::Install(install)) => Some(install.program),
        _ => None,
    });
    numbers.collect()
}

/// Flow, number of the program and updates of a datagram with one CHANGEPROG or UPDATE_FIELD.
fn change(datagram: &[u8]) -> (u32, Option<u32>, Vec<(u8, u32, u64)>) {
    let raw = |updates: v1::RawUpdates<'_>| {
        let updates = updates.iter().map(|u| (u.class, u.index, u.value));
        updates.collect()
    };
    match v1::messages(datagram).collect::<Vec<_>>()[..] {
        [
            Ok(v1::V1Message::ChangeProgram {
                flow,
                program,
                updates,
            }),
        ] => (flow, Some(program), raw(updates)),
        [Ok(v1::V1Message::UpdateField { flow, updates })] => (flow, None, raw(updates)),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_flow_is_opened_set_a_program_answered_and_closed() {
    let mut pair = Pair::ready();
    pair.create(70_000);
    let id = FlowId {
        datapath: ID,
        flow: 70_000,
    };
    assert!(pair.agent.is_open(id));
    // Control variables are class 0, the window is number 4 of class 2.
    assert_eq!(
        change(&pair.sent()),
        (70_000, Some(1), vec![(0, 0, 14_000)])
    );
    pair.measure(70_000, 1, &[77]);
    assert_eq!(
        change(&pair.sent()),
        (70_000, None, vec![(2, 4, 50_077), (0, 0, 3)])
    );
    pair.measure(70_000, 1, &[]);
    assert!(!pair.agent.is_open(id));
    let stats = pair.agent.stats("echo").expect("it was added");
    assert_eq!((stats.flows, stats.reports, stats.taken_over), (0, 1, 0));
    let late = WireCommand::Update {
        flow: 70_000,
        updates: Updates::default(),
    };
    assert!(pair.command(&late).is_empty(), "the flow ended");
}

#[test]
fn a_flow_that_lived_before_its_agent_is_known_by_its_reports() {
    let mut pair = Pair::ready();
    pair.measure(5, 1, &[77]);
    let stats = pair.agent.stats("echo").expect("it was added");
    assert_eq!((stats.opened, stats.taken_over), (1, 1));
    assert_eq!(
        stats.reports, 1,
        "of the program that it gets when it opens"
    );
    pair.measure(5, 0, &[77]);
    pair.measure(5, 2, &[77]);
    pair.measure(5, 3, &[77]);
    let stats = pair.agent.stats("echo").expect("it was added");
    assert_eq!((stats.opened, stats.reports), (1, 1), "of other programs");
    pair.measure(5, 1, &[77]);
    assert_eq!(pair.agent.stats("echo").expect("it was added").reports, 2);
}

#[test]
fn a_datapath_that_is_ready_again_has_lost_flows_and_programs() {
    let mut pair = Pair::ready();
    pair.create(5);
    pair.sent();
    let heard = pair.say(|out| {
        v1::measure(out, 5, 1, &[77]).expect("short");
        v1::ready(out, 9);
    });
    let expected = DatagramContents {
        messages: 2,
        ready: true,
    };
    assert_eq!(heard, Ok(expected));
    assert_eq!(pair.agent.flow_count(), 0);
    assert_eq!(installs(&pair.sent()), [1, 2], "from number 1 on");
}

#[test]
fn a_program_keeps_its_number_and_the_flow_its_program() {
    let mut pair = Pair::ready();
    pair.create(5);
    pair.sent();
    let other = pair.uid(1);
    let hosted = pair
        .agent
        .hosted_algorithms()
        .next()
        .expect("it was added")
        .clone();
    let again = WireCommand::Install {
        algorithm: "echo".into(),
        program: hosted.programs[1].code.clone(),
    };
    let sent = pair.command(&again);
    assert_eq!(installs(&sent), [2]);
    assert_eq!(pair.ccp.programs.len(), 2);
    let variable = Update {
        target: CommandTarget::Var(1),
        value: 8,
    };
    let set = WireCommand::SetProgram {
        flow: 5,
        uid: other,
        updates: [variable].into_iter().collect(),
    };
    let sent = pair.command(&set);
    assert_eq!(change(&sent), (5, Some(2), vec![(0, 0, 8)]));
    assert_eq!(pair.ccp.flows[&5], Some(1));
}

#[test]
fn programs_beyond_version_1_are_refused() {
    let mut pair = Pair::ready();
    pair.create(5);
    pair.sent();
    let ssthresh = Update {
        target: CommandTarget::Ssthresh,
        value: 1,
    };
    let refused = [
        WireCommand::Update {
            flow: 5,
            updates: [ssthresh].into_iter().collect(),
        },
        WireCommand::Release { flow: 5 },
        WireCommand::SetProgram {
            flow: 5,
            uid: pair.uid(0) ^ pair.uid(1) ^ 1,
            updates: Updates::default(),
        },
    ];
    for (n, command) in refused.iter().enumerate() {
        assert!(pair.command(command).is_empty(), "{command:?}");
        assert_eq!(pair.refusals(), n as u64 + 1, "{command:?}");
    }
    // These need no message, and a flow of more than 32 bits is not the datapath's.
    let algorithm = "echo".into();
    for command in [
        WireCommand::Heartbeat { algorithm },
        WireCommand::Update {
            flow: (1 << 32) + 5,
            updates: Updates::default(),
        },
    ] {
        assert!(pair.command(&command).is_empty(), "{command:?}");
    }
    assert_eq!(pair.refusals(), 3);
}

#[test]
fn only_messages_of_a_datapath_are_taken() {
    let mut pair = Pair::ready();
    let hosted = pair
        .agent
        .hosted_algorithms()
        .next()
        .expect("it was added")
        .clone();
    let code = &hosted.programs[0].code;
    type Write<'a> = &'a dyn Fn(&mut Vec<u8>);
    let writes: [(u64, Write<'_>); 3] = [
        (2, &|out| v1::install(out, 1, code).expect("sayable")),
        (3, &|out| {
            v1::update_fields(out, 5, None, &[]).expect("sayable");
        }),
        (4, &|out| {
            v1::change_program(out, 5, 1, code, &[]).expect("sayable");
        }),
    ];
    for (kind, write) in writes {
        let error = pair.say(write);
        assert!(
            matches!(error, Err(WireError::UnknownValue { value, .. }) if value == kind),
            "{error:?}"
        );
        let mut datagram = Vec::new();
        write(&mut datagram);
        assert_eq!(check_datagram(&datagram).err(), error.err());
    }
    let mut datagram = Vec::new();
    v1::ready(&mut datagram, 1);
    v1::measure(&mut datagram, 5, 1, &[]).expect("short");
    assert_eq!(check_datagram(&datagram), Ok(()));
    assert!(check_datagram(&datagram[1..]).is_err());
}

/// Version 1 defines what its datapaths can do. Recovery, timers and the rest came later.
#[test]
fn a_ccp_datapath_has_what_version_1_defines() {
    let info = ccp_datapath(9);
    let names: Vec<_> = info.capabilities.names().collect();
    assert_eq!(
        names,
        [
            "a congestion window",
            "pacing",
            "RTT samples",
            "delivery-rate samples",
            "ECN counts"
        ]
    );
    assert_eq!((info.id, info.kind.as_str()), (9, "ccp"));
    assert_eq!(info.agent_timeout, None::<Duration>);
}
