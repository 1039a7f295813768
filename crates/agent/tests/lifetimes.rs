//! Life cycle of algorithms, datapaths and flows.

use crate::support::{
    Bench, DATAPATH, FIRST_PROGRAM, START_TIME, Script, ScriptedAlgorithm, datapath, info,
};
use ccplane_agent::{
    AddError, Agent, AgentOptions, Algorithm, Control, DatapathInfo, FlowInfo, FlowStats, Programs,
    Report, UnknownAlgorithm,
};
use ccplane_datapath::{Capabilities, CommandTarget, Update};
use ccplane_units::{Bytes, Duration, Rate};
use ccplane_wire::{WireCommand, WireEvent};

#[test]
fn several_algorithms_each_with_its_own_program_of_the_same_name() {
    let mut agent = Agent::new(AgentOptions {
        unknown_algorithm: UnknownAlgorithm::Refuse,
    });
    for name in ["one", "two"] {
        let scripted = ScriptedAlgorithm {
            name,
            needs: Capabilities::CWND,
            script: Script::default(),
        };
        agent.add(scripted).expect("it compiles");
    }
    let uids: Vec<u32> = agent
        .hosted_algorithms()
        .flat_map(|h| &h.programs)
        .map(|p| p.uid)
        .collect();
    let mut unique = uids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 4, "{uids:?}");

    agent.handle(
        START_TIME,
        DATAPATH,
        WireEvent::Ready {
            datapath: datapath(None),
        },
    );
    let said: Vec<_> = std::iter::from_fn(|| agent.poll())
        .map(|(_, command)| match command {
            WireCommand::Offer(offer) => offer.name.to_string(),
            WireCommand::Install { algorithm, .. } => format!("a program of {algorithm}"),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = ["one", "two"].map(|name| {
        [
            name.to_owned(),
            format!("a program of {name}"),
            format!("a program of {name}"),
        ]
    });
    assert_eq!(
        said,
        expected.concat(),
        "each algorithm is offered before its programs"
    );
    for (flow, algorithm) in [(1, "two"), (2, "ccp_one"), (3, "three"), (4, "")] {
        agent.handle(
            START_TIME,
            DATAPATH,
            WireEvent::FlowOpened {
                flow,
                info: info(algorithm),
            },
        );
    }
    let set: Vec<_> = std::iter::from_fn(|| agent.poll())
        .map(|(_, command)| match command {
            WireCommand::SetProgram { flow, uid, .. } => (flow, uid),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        set,
        [(1, uids[2]), (2, uids[0]), (4, uids[0])],
        "by name, by kernel name, refused, the first one"
    );
    assert_eq!(agent.flow_count(), 3);
}

#[test]
fn an_agent_that_restarts_meets_its_programs_under_the_same_numbers() {
    let (one, two) = (Bench::new(), Bench::new());
    assert_eq!((one.first, one.second), (two.first, two.second));
}

#[test]
fn missing_capabilities_are_named_when_a_flow_opens() {
    let script = Script::default();
    let mut agent = Agent::new(AgentOptions::default());
    let needs = Capabilities::CWND.union(Capabilities::ECN);
    agent
        .add(ScriptedAlgorithm {
            name: "scripted",
            needs,
            script: script.clone(),
        })
        .expect("it compiles");
    agent.handle(
        START_TIME,
        DATAPATH,
        WireEvent::Ready {
            datapath: datapath(None),
        },
    );
    agent.handle(
        START_TIME,
        DATAPATH,
        WireEvent::FlowOpened {
            flow: 1,
            info: info("scripted"),
        },
    );
    assert_eq!(
        (
            agent.flow_count(),
            agent.stats("scripted").expect("it exists").refused_flows
        ),
        (0, 1)
    );
    assert!(script.lock().expect("no panic").log.is_empty());
}

#[test]
fn a_live_flow_is_taken_over_from_its_window() {
    let mut bench = Bench::new();
    bench.open(1);
    let live = FlowInfo {
        live: true,
        cwnd: Bytes::new(99_000),
        ..info("scripted")
    };
    bench.event(WireEvent::FlowOpened {
        flow: 1,
        info: live,
    });
    assert_eq!(
        bench.log(),
        [
            "open live=false cwnd=14480",
            "close after 0 reports, 0 bytes",
            "open live=true cwnd=99000"
        ]
    );
    assert_eq!(bench.agent.flow_count(), 1);
    assert_eq!(
        bench.agent.stats("scripted").expect("it exists").taken_over,
        1
    );
}

#[test]
fn closing_gives_the_totals_and_a_lost_datapath_closes_its_flows() {
    let mut bench = Bench::new();
    (1..=3).for_each(|flow| bench.open(flow));
    let stats = FlowStats {
        bytes_acked: Bytes::new(77),
        ..FlowStats::default()
    };
    bench.event(WireEvent::FlowClosed { flow: 2, stats });
    bench.log();
    bench.event(WireEvent::FlowClosed { flow: 2, stats });
    assert_eq!(bench.agent.orphan_events(), 1, "closed once");
    bench.agent.on_disconnect(DATAPATH);
    assert_eq!(bench.log().len(), 2);
    assert_eq!(
        (bench.agent.flow_count(), bench.commands()),
        (0, Vec::new()),
        "no command for a disconnected datapath"
    );
}

#[test]
fn a_datapath_that_says_ready_again_has_lost_its_flows() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.commands();
    bench.event(WireEvent::Ready {
        datapath: datapath(None),
    });
    assert_eq!(bench.agent.flow_count(), 0);
    assert_eq!(
        bench.commands().len(),
        3,
        "offered, and both programs are installed again"
    );
}

#[test]
fn heartbeats_come_three_times_in_the_fallback_time() {
    let mut bench = Bench::new();
    bench.event(WireEvent::Ready {
        datapath: datapath(Some(Duration::from_millis(300))),
    });
    let is_heartbeat = |command: &WireCommand| match command {
        WireCommand::Heartbeat { algorithm } => **algorithm == *"scripted",
        _ => false,
    };
    assert_eq!(
        bench.commands().iter().filter(|c| is_heartbeat(c)).count(),
        1,
        "the first at once"
    );
    let mut beats = 0;
    let mut now = START_TIME;
    while now < START_TIME + Duration::from_millis(900) {
        now = bench
            .agent
            .next_deadline()
            .expect("a heartbeat is always due");
        bench.agent.on_deadline(now);
        beats += bench.commands().iter().filter(|c| is_heartbeat(c)).count();
    }
    assert_eq!(beats, 9);
}

#[test]
fn a_datapath_that_allows_no_silence_does_not_keep_the_agent_busy() {
    let mut bench = Bench::new();
    bench.event(WireEvent::Ready {
        datapath: datapath(Some(Duration::from_nanos(1))),
    });
    let (mut calls, mut now) = (0, START_TIME);
    while now < START_TIME + Duration::from_millis(10) {
        now = bench
            .agent
            .next_deadline()
            .expect("a heartbeat is always due");
        bench.agent.on_deadline(now);
        calls += 1;
    }
    assert_eq!(calls, 100);
}

#[test]
fn a_program_with_an_error_is_named() {
    struct WrongAlgorithm;
    impl Algorithm for WrongAlgorithm {
        type Flow = ();
        fn name(&self) -> &str {
            "wrong"
        }
        fn programs(&self) -> Programs {
            Programs::new()
                .with("good", FIRST_PROGRAM)
                .with("bad", "(def) (when true (:= Cwnd (+ 1)))")
        }
        fn open(&mut self, _: &FlowInfo, _: &mut Control<'_>) {}
        fn on_report(&mut self, (): &mut (), _: &Report<'_>, _: &mut Control<'_>) {}
    }
    let mut agent = Agent::new(AgentOptions::default());
    let Err(AddError::Program {
        algorithm, program, ..
    }) = agent.add(WrongAlgorithm)
    else {
        panic!("it was accepted")
    };
    assert_eq!((&*algorithm, &*program), ("wrong", "bad"));
    assert_eq!(agent.hosted_algorithms().count(), 0);

    let scripted = || ScriptedAlgorithm {
        name: "x",
        needs: Capabilities::CWND,
        script: Script::default(),
    };
    agent.add(scripted()).expect("it compiles");
    assert!(matches!(agent.add(scripted()), Err(AddError::Duplicate(name)) if name == "x"));
}

#[test]
fn pacing_is_not_inherited() {
    for (needs, frees) in [
        (Capabilities::CWND, true),
        (Capabilities::CWND.union(Capabilities::PACING), false),
    ] {
        let mut agent = Agent::new(AgentOptions::default());
        let scripted = ScriptedAlgorithm {
            name: "one",
            needs,
            script: Script::default(),
        };
        agent.add(scripted).expect("it compiles");
        let datapath = DatapathInfo {
            capabilities: Capabilities(u64::MAX),
            ..datapath(None)
        };
        agent.handle(START_TIME, DATAPATH, WireEvent::Ready { datapath });
        while agent.poll().is_some() {}
        let rate = Rate::from_bytes_per_sec(3_000);
        for (flow, live, rate, freed) in [
            (1, true, rate, frees),
            (2, true, Rate::from_bytes_per_sec(0), false),
            (3, false, rate, false),
        ] {
            let info = FlowInfo {
                live,
                rate,
                ..info("one")
            };
            agent.handle(START_TIME, DATAPATH, WireEvent::FlowOpened { flow, info });
            let without_limit = Update {
                target: CommandTarget::Rate,
                value: u64::MAX,
            };
            let said = std::iter::from_fn(|| agent.poll()).any(|(_, command)| match command {
                WireCommand::SetProgram { updates, .. } | WireCommand::Update { updates, .. } => {
                    updates.as_slice().contains(&without_limit)
                }
                _ => false,
            });
            assert_eq!(said, freed, "flow {flow}, {needs:?}");
        }
    }
}

/// A datapath that restarts or disconnects with many flows takes a bounded time per step.
#[test]
fn a_datapath_that_begins_anew_closes_its_flows_a_few_at_a_time() {
    const FLOW_COUNT: u64 = 10_000;
    let mut bench = Bench::new();
    let other = ccplane_agent::DatapathId(DATAPATH.0 + 1);
    let datapath = datapath(None);
    bench.agent.handle(
        START_TIME,
        other,
        WireEvent::Ready {
            datapath: datapath.clone(),
        },
    );
    let info = info("");
    bench.agent.handle(
        START_TIME,
        other,
        WireEvent::FlowOpened {
            flow: 1,
            info: info.clone(),
        },
    );
    for flow in 0..FLOW_COUNT {
        bench.agent.handle(
            START_TIME,
            DATAPATH,
            WireEvent::FlowOpened {
                flow,
                info: info.clone(),
            },
        );
    }
    let closed = |agent: &Agent, before: u64| {
        let name = agent
            .hosted_algorithms()
            .next()
            .expect("added")
            .name
            .clone();
        before - agent.stats(&name).expect("added").flows
    };
    let work = bench.agent.work_units();
    bench
        .agent
        .handle(START_TIME, DATAPATH, WireEvent::Ready { datapath });
    let at_once = closed(&bench.agent, FLOW_COUNT + 1);
    assert!(at_once > 0 && at_once <= 1_024, "{at_once}");
    assert!(
        bench.agent.work_units() - work >= FLOW_COUNT,
        "its sender is charged for all flows"
    );
    assert_eq!(
        (
            bench.agent.flow_count(),
            bench.agent.retained_flows(DATAPATH) as u64
        ),
        (1, FLOW_COUNT - at_once)
    );
    // A reused number is one flow, and the flow of the other datapath is unaffected.
    bench.agent.handle(
        START_TIME,
        DATAPATH,
        WireEvent::FlowOpened {
            flow: FLOW_COUNT - 1,
            info,
        },
    );
    let mut steps = 0;
    while bench
        .agent
        .next_deadline()
        .is_some_and(|due| due <= START_TIME)
    {
        bench.agent.on_deadline(START_TIME);
        steps += 1;
    }
    assert_eq!(
        (steps, closed(&bench.agent, FLOW_COUNT + 1)),
        (9, FLOW_COUNT - 1)
    );
    assert_eq!(
        (
            bench.agent.flow_count(),
            bench.agent.retained_flows(DATAPATH)
        ),
        (2, 1)
    );
}
