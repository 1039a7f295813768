//! The agent as a state machine: what goes in, what comes out.

use std::sync::{Arc, Mutex};

use ccplane_agent::{
    AddError, Agent, Algorithm, Batch, Control, DatapathId, DatapathInfo, FlowId, FlowInfo, FlowStats, Options,
    Programs, Refusal, Report, UnknownAlgorithm,
};
use ccplane_datapath::{Capabilities, Target};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{Command, Event};

const HERE: DatapathId = DatapathId(0);
const NOW: Time = Time::from_micros(1_000);

/// What the algorithm under test does at each callback; the test sets it and reads what happened.
type Script = Arc<Mutex<State>>;

#[derive(Default)]
struct State {
    on_report: Option<fn(&Report<'_>, &mut Control<'_>)>,
    on_timer: Option<fn(&mut Control<'_>)>,
    log: Vec<String>,
}

struct Scripted {
    name: &'static str,
    needs: Capabilities,
    script: Script,
}

const FIRST: &str = "(def (Report (volatile acked 0) (volatile lost 0)) (gain 1) (pace 2))
    (when true (:= Report.acked (+ Report.acked gain)) (:= Report.lost (+ Report.lost pace)) (report))";
const SECOND: &str = "(def (Report (volatile rtt 0)) (probe 3)) (when true (:= Report.rtt probe) (report))";

impl Scripted {
    fn say(&self, what: impl Into<String>) {
        self.script.lock().expect("no panic").log.push(what.into());
    }
}

impl Algorithm for Scripted {
    type Flow = u64;

    fn name(&self) -> &str {
        self.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("first", FIRST).with("second", SECOND)
    }

    fn needs(&self) -> Capabilities {
        self.needs
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> u64 {
        self.say(format!("open live={} cwnd={}", info.live, info.cwnd.get()));
        control.program("first", &[("gain", 5)]);
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
        self.say(format!("close after {seen} reports, {} bytes", last.bytes_acked.get()));
    }
}

struct Bench {
    agent: Agent,
    script: Script,
    first: u32,
    second: u32,
}

fn datapath(fallback_after: Option<Duration>) -> DatapathInfo {
    DatapathInfo {
        id: 1,
        kind: "test".to_owned(),
        capabilities: Capabilities::CWND,
        max_programs: 8,
        max_instrs: 256,
        max_vars: 64,
        fallback_after,
    }
}

fn info(algorithm: &str) -> FlowInfo {
    FlowInfo {
        algorithm: algorithm.to_owned(),
        ..FlowInfo::default()
    }
}

impl Bench {
    /// An agent with one algorithm, and a datapath that is ready.
    fn new() -> Bench {
        let script = Script::default();
        let mut agent = Agent::new(Options::default());
        let scripted = Scripted {
            name: "scripted",
            needs: Capabilities::CWND,
            script: script.clone(),
        };
        agent.add(scripted).expect("it compiles");
        let uids: Vec<u32> = agent.hosted().flat_map(|h| &h.programs).map(|p| p.uid).collect();
        let mut bench = Bench {
            agent,
            script,
            first: uids[0],
            second: uids[1],
        };
        bench.event(Event::Ready {
            datapath: datapath(None),
        });
        bench.commands();
        bench
    }

    fn event(&mut self, event: Event<'_>) {
        self.agent.handle(NOW, HERE, event);
    }

    fn open(&mut self, flow: u64) {
        self.event(Event::FlowOpened {
            flow,
            info: info("scripted"),
        });
    }

    fn report(&mut self, flow: u64, program: u32, fields: &[u64]) {
        self.event(Event::Report {
            flow,
            program,
            urgent: false,
            fields,
        });
    }

    fn commands(&mut self) -> Vec<Command> {
        std::iter::from_fn(|| self.agent.poll())
            .map(|(_, command)| command)
            .collect()
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.script.lock().expect("no panic").log)
    }

    fn on_report(&self, what: fn(&Report<'_>, &mut Control<'_>)) {
        self.script.lock().expect("no panic").on_report = Some(what);
    }
}

fn targets(command: &Command) -> Vec<(Target, u64)> {
    match command {
        Command::SetProgram { updates, .. } | Command::Update { updates, .. } => {
            updates.as_slice().iter().map(|u| (u.target, u.value)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_callback_sets_is_one_command() {
    let mut bench = Bench::new();
    bench.open(1);
    let open = bench.commands();
    assert_eq!(open.len(), 1);
    assert!(matches!(open[0], Command::SetProgram { flow: 1, uid, .. } if uid == bench.first));
    assert_eq!(targets(&open[0]), [(Target::Var(2), 5)]);

    bench.on_report(|report, control| {
        assert_eq!(
            (report.get("acked"), report.get("Report.lost"), report.get("gain")),
            (Some(3), Some(4), None)
        );
        control.cwnd(Bytes::new(10));
        control.rate(Rate::from_bytes_per_sec(u64::MAX));
        control.ssthresh(Bytes::new(12));
        control.set("pace", 13);
        control.cwnd(Bytes::new(14));
    });
    bench.report(1, bench.first, &[3, 4]);
    let all = [
        (Target::Cwnd, 14),
        (Target::Rate, u64::MAX),
        (Target::Ssthresh, 12),
        (Target::Var(3), 13),
    ];
    let commands = bench.commands();
    assert_eq!(commands.len(), 1);
    assert_eq!(targets(&commands[0]), all);
}

#[test]
fn a_report_that_crossed_a_change_of_program_is_dropped_and_counted() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| {
        control.set("gain", 9);
        control.program("second", &[("probe", 8)]);
        control.set("probe", 7);
    });
    bench.report(1, bench.first, &[1, 1]);
    let commands: Vec<_> = bench.commands().into_iter().skip(1).collect();
    assert_eq!(
        targets(&commands[0]),
        [(Target::Var(2), 9)],
        "of the old program, before the change"
    );
    assert_eq!(
        targets(&commands[1]),
        [(Target::Var(1), 7)],
        "of the new program, with the change"
    );
    bench.log();

    bench.report(1, bench.first, &[1, 1]);
    bench.report(1, 4711, &[1, 1]);
    assert_eq!(bench.log(), Vec::<String>::new());
    bench.report(1, bench.second, &[6]);
    assert_eq!(bench.log(), ["report 2 of flow 1: [6]"]);
    let stats = bench.agent.stats("scripted").expect("it is there");
    assert_eq!((stats.stale_reports, stats.reports), (2, 2));
}

#[test]
fn a_batch_notices_a_program_that_changed_within_it() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| control.program("second", &[]));
    let report = |fields| Event::Report {
        flow: 1,
        program: bench.first,
        urgent: true,
        fields,
    };
    bench
        .agent
        .handle_all(NOW, HERE, vec![report(&[1, 1]), report(&[2, 2]), report(&[3, 3])]);
    assert_eq!(bench.log()[1..], ["report 1 of flow 1: [1, 1]"]);
    let stats = bench.agent.stats("scripted").expect("it is there");
    assert_eq!((stats.stale_reports, stats.reports, stats.urgent_reports), (2, 1, 1));
}

#[test]
fn reports_with_the_wrong_fields_and_of_unknown_flows_are_counted() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.report(1, bench.first, &[1]);
    bench.report(1, bench.first, &[1, 2, 3]);
    bench.report(2, bench.first, &[1, 2]);
    bench.event(Event::FlowClosed {
        flow: 3,
        stats: FlowStats::default(),
    });
    let stats = bench.agent.stats("scripted").expect("it is there");
    assert_eq!((stats.malformed_reports, stats.reports), (2, 0));
    assert_eq!(bench.agent.orphan_events(), 2);
}

#[test]
fn names_that_do_not_exist_change_nothing() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| {
        control.set("gian", 1);
        control.set("Report.acked", 1);
        control.program("third", &[]);
    });
    bench.commands();
    bench.report(1, bench.first, &[1, 1]);
    assert_eq!(bench.commands(), []);
    assert_eq!(bench.agent.stats("scripted").expect("it is there").unknown_names, 3);
}

#[test]
fn several_algorithms_each_with_its_own_program_of_the_same_name() {
    let mut agent = Agent::new(Options {
        unknown: UnknownAlgorithm::Refuse,
    });
    for name in ["one", "two"] {
        let scripted = Scripted {
            name,
            needs: Capabilities::CWND,
            script: Script::default(),
        };
        agent.add(scripted).expect("it compiles");
    }
    let uids: Vec<u32> = agent.hosted().flat_map(|h| &h.programs).map(|p| p.uid).collect();
    let mut unique = uids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 4, "{uids:?}");

    agent.handle(
        NOW,
        HERE,
        Event::Ready {
            datapath: datapath(None),
        },
    );
    let installed: Vec<_> = std::iter::from_fn(|| agent.poll()).collect();
    assert_eq!(installed.len(), 4);
    for (flow, algorithm) in [(1, "two"), (2, "ccp_one"), (3, "three"), (4, "")] {
        agent.handle(
            NOW,
            HERE,
            Event::FlowOpened {
                flow,
                info: info(algorithm),
            },
        );
    }
    let set: Vec<_> = std::iter::from_fn(|| agent.poll())
        .map(|(_, command)| match command {
            Command::SetProgram { flow, uid, .. } => (flow, uid),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        set,
        [(1, uids[2]), (2, uids[0]), (4, uids[0])],
        "by name, by kernel name, refused, the first"
    );
    assert_eq!(agent.flows(), 3);
}

#[test]
fn an_agent_that_restarts_meets_its_programs_under_the_same_numbers() {
    let (one, two) = (Bench::new(), Bench::new());
    assert_eq!((one.first, one.second), (two.first, two.second));
}

#[test]
fn what_a_datapath_lacks_is_named_when_a_flow_opens() {
    let script = Script::default();
    let mut agent = Agent::new(Options::default());
    let needs = Capabilities::CWND.with(Capabilities::ECN);
    agent
        .add(Scripted {
            name: "scripted",
            needs,
            script: script.clone(),
        })
        .expect("it compiles");
    agent.handle(
        NOW,
        HERE,
        Event::Ready {
            datapath: datapath(None),
        },
    );
    agent.handle(
        NOW,
        HERE,
        Event::FlowOpened {
            flow: 1,
            info: info("scripted"),
        },
    );
    assert_eq!(
        (
            agent.flows(),
            agent.stats("scripted").expect("it is there").refused_flows
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
    bench.event(Event::FlowOpened { flow: 1, info: live });
    assert_eq!(
        bench.log(),
        [
            "open live=false cwnd=14480",
            "close after 0 reports, 0 bytes",
            "open live=true cwnd=99000"
        ]
    );
    assert_eq!(bench.agent.flows(), 1);
    assert_eq!(bench.agent.stats("scripted").expect("it is there").taken_over, 1);
}

#[test]
fn closing_gives_the_totals_and_a_lost_datapath_closes_its_flows() {
    let mut bench = Bench::new();
    (1..=3).for_each(|flow| bench.open(flow));
    let stats = FlowStats {
        bytes_acked: Bytes::new(77),
        ..FlowStats::default()
    };
    bench.event(Event::FlowClosed { flow: 2, stats });
    bench.log();
    bench.event(Event::FlowClosed { flow: 2, stats });
    assert_eq!(bench.agent.orphan_events(), 1, "closed once");
    bench.agent.disconnected(HERE);
    assert_eq!(bench.log().len(), 2);
    assert_eq!(
        (bench.agent.flows(), bench.commands()),
        (0, Vec::new()),
        "nothing for a datapath that is gone"
    );
}

#[test]
fn a_datapath_that_says_ready_again_has_lost_its_flows() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.commands();
    bench.event(Event::Ready {
        datapath: datapath(None),
    });
    assert_eq!(bench.agent.flows(), 0);
    assert_eq!(bench.commands().len(), 2, "both programs are installed again");
}

#[test]
fn a_refusal_reaches_the_flow_it_is_for() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.log();
    bench.event(Event::Refused {
        flow: Some(1),
        program: bench.first,
        why: Refusal::TableFull,
    });
    bench.event(Event::Refused {
        flow: None,
        program: bench.first,
        why: Refusal::TableFull,
    });
    bench.event(Event::Refused {
        flow: Some(8),
        program: bench.first,
        why: Refusal::TableFull,
    });
    let log = bench.log();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("table is full"), "{log:?}");
    assert_eq!(bench.agent.stats("scripted").expect("it is there").refusals, 1);
}

#[test]
fn a_flow_whose_new_program_is_refused_goes_on_with_the_old_one() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| control.program("second", &[]));
    bench.report(1, bench.first, &[1, 1]);
    bench.event(Event::Refused {
        flow: Some(1),
        program: bench.second,
        why: Refusal::UnknownProgram(bench.second),
    });
    bench.log();
    bench.report(1, bench.first, &[2, 2]);
    assert_eq!(bench.log(), ["report 2 of flow 1: [2, 2]"]);
}

#[test]
fn the_timer_comes_once_at_its_time_and_steers_flows_by_number() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.commands();
    bench.on_report(|_, control| control.after(Duration::from_millis(5)));
    bench.script.lock().expect("no panic").on_timer = Some(|control| {
        assert_eq!(control.this(), None);
        control.cwnd(Bytes::new(1));
        assert!(
            control
                .flow(FlowId {
                    datapath: HERE,
                    flow: 2
                })
                .is_none()
        );
        let mut flow = control
            .flow(FlowId {
                datapath: HERE,
                flow: 1,
            })
            .expect("it lives");
        flow.cwnd(Bytes::new(5));
    });
    bench.report(1, bench.first, &[1, 1]);
    let due = NOW + Duration::from_millis(5);
    assert_eq!(bench.agent.next_deadline(), Some(due));
    bench.agent.on_deadline(NOW + Duration::from_millis(4));
    assert_eq!(bench.commands(), []);
    bench.agent.on_deadline(due);
    let commands = bench.commands();
    assert_eq!(commands.len(), 1, "a callback without a flow of its own sets nothing");
    assert_eq!(targets(&commands[0]), [(Target::Cwnd, 5)]);
    assert_eq!(bench.agent.next_deadline(), None);
}

#[test]
fn heartbeats_come_three_times_in_the_fallback_time() {
    let mut bench = Bench::new();
    bench.event(Event::Ready {
        datapath: datapath(Some(Duration::from_millis(300))),
    });
    let is_heartbeat =
        |command: &Command| matches!(command, Command::Heartbeat { algorithm } if **algorithm == *"scripted");
    assert_eq!(
        bench.commands().iter().filter(|c| is_heartbeat(c)).count(),
        1,
        "the first at once"
    );
    let mut beats = 0;
    let mut now = NOW;
    while now < NOW + Duration::from_millis(900) {
        now = bench.agent.next_deadline().expect("there are always heartbeats");
        bench.agent.on_deadline(now);
        beats += bench.commands().iter().filter(|c| is_heartbeat(c)).count();
    }
    assert_eq!(beats, 9);
}

#[test]
fn a_program_with_an_error_is_named() {
    struct Wrong;
    impl Algorithm for Wrong {
        type Flow = ();
        fn name(&self) -> &str {
            "wrong"
        }
        fn programs(&self) -> Programs {
            Programs::new()
                .with("good", FIRST)
                .with("bad", "(def) (when true (:= Cwnd (+ 1)))")
        }
        fn open(&mut self, _: &FlowInfo, _: &mut Control<'_>) {}
        fn on_report(&mut self, (): &mut (), _: &Report<'_>, _: &mut Control<'_>) {}
    }
    let mut agent = Agent::new(Options::default());
    let Err(AddError::Program { algorithm, program, .. }) = agent.add(Wrong) else {
        panic!("it was accepted")
    };
    assert_eq!((&*algorithm, &*program), ("wrong", "bad"));
    assert_eq!(agent.hosted().count(), 0);

    let scripted = || Scripted {
        name: "x",
        needs: Capabilities::CWND,
        script: Script::default(),
    };
    agent.add(scripted()).expect("it compiles");
    assert!(matches!(agent.add(scripted()), Err(AddError::Duplicate(name)) if name == "x"));
}

/// Decides over all flows of a batch together.
struct Together;

impl Algorithm for Together {
    type Flow = u64;

    fn name(&self) -> &str {
        "together"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("first", FIRST)
    }

    fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) -> u64 {
        control.program("first", &[]);
        0
    }

    fn on_report(&mut self, _: &mut u64, _: &Report<'_>, _: &mut Control<'_>) {
        panic!("on_reports takes all");
    }

    fn on_reports(&mut self, batch: &mut Batch<'_, u64>, control: &mut Control<'_>) {
        let mut total = 0;
        while let Some((sum, report)) = batch.next(control) {
            *sum += report.get("acked").unwrap_or(0);
            total += *sum;
            control.cwnd(Bytes::new(total));
        }
    }
}

#[test]
fn a_batch_reaches_the_algorithm_as_one() {
    let mut agent = Agent::new(Options::default());
    agent.add(Together).expect("it compiles");
    let uid = agent
        .hosted()
        .flat_map(|h| &h.programs)
        .map(|p| p.uid)
        .next()
        .expect("one program");
    agent.handle(
        NOW,
        HERE,
        Event::Ready {
            datapath: datapath(None),
        },
    );
    (1..=3).for_each(|flow| agent.handle(NOW, HERE, Event::FlowOpened { flow, info: info("") }));
    while agent.poll().is_some() {}
    let report = |flow, fields| Event::Report {
        flow,
        program: uid,
        urgent: false,
        fields,
    };
    let closed = Event::FlowClosed {
        flow: 2,
        stats: FlowStats::default(),
    };
    let events = vec![
        report(1, &[1, 0]),
        report(9, &[1, 0]),
        report(2, &[10, 0]),
        closed,
        report(2, &[1, 0]),
        report(3, &[100, 0]),
    ];
    agent.handle_all(NOW, HERE, events);
    let windows: Vec<u64> = std::iter::from_fn(|| agent.poll())
        .map(|(_, c)| targets(&c)[0].1)
        .collect();
    assert_eq!(
        windows,
        [1, 10, 100],
        "three batches: an unknown flow and a close lie between them"
    );
    agent.handle_all(NOW, HERE, vec![report(1, &[1, 0]), report(3, &[1, 0])]);
    let windows: Vec<u64> = std::iter::from_fn(|| agent.poll())
        .map(|(_, c)| targets(&c)[0].1)
        .collect();
    assert_eq!(windows, [2, 103]);
    assert_eq!(agent.orphan_events(), 2);
}

#[test]
fn a_report_and_its_answer_allocate_nothing() {
    struct Steady;
    impl Algorithm for Steady {
        type Flow = u64;
        fn name(&self) -> &str {
            "steady"
        }
        fn programs(&self) -> Programs {
            Programs::new().with("first", FIRST)
        }
        fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) -> u64 {
            control.program("first", &[]);
            0
        }
        fn on_report(&mut self, sum: &mut u64, report: &Report<'_>, control: &mut Control<'_>) {
            *sum += report.get("acked").unwrap_or(0);
            control.cwnd(Bytes::new(*sum));
            control.set("gain", *sum);
        }
    }
    let mut agent = Agent::new(Options::default());
    agent.add(Steady).expect("it compiles");
    let uid = agent
        .hosted()
        .flat_map(|h| &h.programs)
        .map(|p| p.uid)
        .next()
        .expect("one program");
    agent.handle(
        NOW,
        HERE,
        Event::Ready {
            datapath: datapath(Some(Duration::from_secs(1))),
        },
    );
    (0..1_000).for_each(|flow| agent.handle(NOW, HERE, Event::FlowOpened { flow, info: info("") }));
    while agent.poll().is_some() {}
    let mut round = || {
        for flow in 0..1_000 {
            agent.handle(
                NOW,
                HERE,
                Event::Report {
                    flow,
                    program: uid,
                    urgent: false,
                    fields: &[1, 2],
                },
            );
            while agent.poll().is_some() {}
        }
    };
    round();
    let counted = allocation_counter::measure(round);
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
