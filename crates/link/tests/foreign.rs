//! The datapath's side of version 1: messages for a CCP agent, and the effects of its replies.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_agent::{
    Agent, Algorithm, Control, DatapathInfo, FlowInfo, FlowStats, Foreign, Options, Programs,
    Refusal, Report,
};
use ccplane_datapath::{Capabilities, Program, Target, Update};
use ccplane_lang as lang;
use ccplane_link::{CcpUplink, Clock, Datagram, Remote, Sent, Waiting, serve};
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{Command, Event, Updates, v1};

const PROGRAM: &str = "(def (Report (volatile acked 0) (lost 0)) (gain 1) (volatile pace 2))
    (when true (:= Report.acked (+ Report.acked (* gain Ack.bytes_acked))) (:= Report.lost pace) (report))";

fn program(source: &str) -> Program {
    lang::compile(source, &lang::Limits::default())
        .expect("it compiles")
        .code()
        .clone()
}

fn ready(fallback_after: Option<Duration>) -> Event<'static> {
    Event::Ready {
        datapath: DatapathInfo {
            id: 9,
            kind: "test".to_owned(),
            capabilities: Capabilities::CWND,
            max_programs: 8,
            max_instrs: 256,
            max_vars: 32,
            fallback_after,
        },
    }
}

fn opened(flow: u64, cwnd: u64) -> Event<'static> {
    let info = FlowInfo {
        algorithm: "reno".to_owned(),
        init_cwnd: Bytes::new(10_000),
        cwnd: Bytes::new(cwnd),
        mss: Bytes::new(1000),
        local: "[2001:db8::1]:80".parse().expect("an address"),
        ..FlowInfo::default()
    };
    Event::FlowOpened { flow, info }
}

fn said(foreign: &mut Foreign, event: &Event<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    foreign.event(event, &mut out);
    assert!(out.len() <= Foreign::most(event));
    out
}

fn hear(foreign: &mut Foreign, write: impl FnOnce(&mut Vec<u8>)) -> Vec<Command> {
    let mut out = Vec::new();
    write(&mut out);
    foreign.handle(Time::ZERO, &out).expect("a good message");
    std::iter::from_fn(|| foreign.poll()).collect()
}

#[test]
fn a_flow_is_created_set_a_program_updated_measured_and_ended() {
    let mut foreign = Foreign::new("reno", None);
    foreign.connected(Time::ZERO);
    assert_eq!(
        said(&mut foreign, &ready(None)),
        [5, 0, 12, 0, 0, 0, 0, 0, 9, 0, 0, 0]
    );

    // The datapath's flow ids have 64 bits, the agent's 32. A live flow continues from its current
    // window.
    let flow = 7 << 40;
    let bytes = said(&mut foreign, &opened(flow, 25_000));
    let messages: Vec<_> = v1::messages(&bytes).map(|m| m.expect("good")).collect();
    let [
        v1::Message::Create {
            flow: number,
            create,
        },
    ] = messages[..]
    else {
        panic!("{messages:?}")
    };
    assert_eq!(
        (number, create.init_cwnd, create.mss, create.algorithm),
        (1, 25_000, 1000, "reno")
    );
    assert_eq!(create.source.to_string(), "0.0.0.0:80", "CCP knows no IPv6");

    let code = program(PROGRAM);
    let installed = hear(&mut foreign, |out| {
        v1::install(out, 3, &code).expect("sayable")
    });
    let [Command::Install { algorithm, program }] = &installed[..] else {
        panic!("{installed:?}")
    };
    assert_eq!((&**algorithm, program.report_vars()), ("reno", 2));
    let uid = program.uid();

    let control = Update {
        target: Target::Var(3),
        value: 5,
    };
    let window = Update {
        target: Target::Cwnd,
        value: 12_000,
    };
    let updates: Updates = [control, window].into_iter().collect();
    let set = hear(&mut foreign, |out| {
        v1::change_program(out, 1, 3, &code, &[control, window]).expect("sayable");
    });
    assert_eq!(
        set,
        [Command::SetProgram {
            flow,
            uid,
            updates: updates.clone()
        }]
    );
    let updated = hear(&mut foreign, |out| {
        v1::update_fields(out, 1, Some(&code), &[control, window]).expect("sayable");
    });
    assert_eq!(updated, [Command::Update { flow, updates }]);

    let report = |program| Event::Report {
        flow,
        program,
        urgent: false,
        fields: &[1, 2],
    };
    let mut expected = Vec::new();
    v1::measure(&mut expected, 1, 3, &[1, 2]).expect("short");
    assert_eq!(said(&mut foreign, &report(uid)), expected);
    assert!(
        said(&mut foreign, &report(uid + 1)).is_empty(),
        "an earlier agent's program"
    );
    let ended = Event::FlowClosed {
        flow,
        stats: FlowStats::default(),
    };
    let mut expected = Vec::new();
    v1::measure(&mut expected, 1, 3, &[]).expect("short");
    assert_eq!(said(&mut foreign, &ended), expected);
    assert!(said(&mut foreign, &ended).is_empty());
    let late = hear(&mut foreign, |out| {
        v1::update_fields(out, 1, None, &[window]).expect("sayable")
    });
    assert!(late.is_empty(), "{late:?}");
    let refused = Event::Refused {
        flow: None,
        program: uid,
        why: Refusal::TableFull,
    };
    assert!(said(&mut foreign, &refused).is_empty());
}

#[test]
fn the_same_program_is_the_same_under_another_number_and_after_a_restart() {
    let mut foreign = Foreign::new("reno", None);
    let code = program(PROGRAM);
    let mut uid_of = |number| {
        foreign.connected(Time::ZERO);
        match &hear(&mut foreign, |out| {
            v1::install(out, number, &code).expect("sayable")
        })[..]
        {
            [Command::Install { program, .. }] => program.uid(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(uid_of(1), uid_of(4));
    let other = program("(def (Report (volatile acked 0))) (when true (report))");
    let installed = hear(&mut foreign, |out| {
        v1::install(out, 1, &other).expect("sayable")
    });
    assert!(!matches!(&installed[..], [Command::Install { program, .. }] if program.uid() == 0));
}

#[test]
fn heartbeats_come_while_the_agent_is_there_and_with_a_limit_of_silence_only_after_words() {
    let ms = |n| Time::ZERO + Duration::from_millis(n);
    for (silence, beats_at) in [
        (None, vec![0, 100, 200, 300, 400, 500]),
        (
            Some(Duration::from_millis(250)),
            vec![0, 100, 200, 400, 500],
        ),
    ] {
        let mut foreign = Foreign::new("reno", silence);
        assert_eq!(foreign.next_deadline(), None);
        foreign.connected(ms(0));
        said(&mut foreign, &ready(Some(Duration::from_millis(300))));
        let mut beats = Vec::new();
        while let Some(due) = foreign.next_deadline().filter(|due| *due <= ms(500)) {
            if due == ms(400) {
                foreign.handle(ms(350), &[]).expect("nothing is no garbage");
            }
            foreign.on_deadline(due);
            while let Some(command) = foreign.poll() {
                assert!(
                    matches!(command, Command::Heartbeat { algorithm } if &*algorithm == "reno")
                );
                beats.push(due.as_micros() / 1000);
            }
        }
        assert_eq!(beats, beats_at, "{silence:?}");
    }
}

#[test]
fn garbage_and_what_only_a_datapath_says_are_errors_and_change_nothing() {
    let mut foreign = Foreign::new("reno", None);
    for bad in [
        &[1, 2, 3][..],
        &[9, 0, 8, 0, 0, 0, 0, 0],
        &[5, 0, 12, 0, 0, 0, 0, 0, 1, 0, 0, 0],
    ] {
        foreign
            .handle(Time::ZERO, bad)
            .expect_err("no agent says so");
    }
    let unknown = hear(&mut foreign, |out| {
        let code = program(PROGRAM);
        v1::change_program(out, 1, 3, &code, &[]).expect("sayable");
    });
    assert!(unknown.is_empty());
}

/// Sets the window to the acknowledged bytes.
struct Echo;

impl Algorithm for Echo {
    type Flow = ();
    fn name(&self) -> &str {
        "echo"
    }
    fn programs(&self) -> Programs {
        Programs::new().with("fold", PROGRAM)
    }
    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) {
        control.program("fold", &[("gain", 3)]);
    }
    fn on_report(&mut self, _flow: &mut (), report: &Report<'_>, control: &mut Control<'_>) {
        control.cwnd(Bytes::new(50_000 + report.get("acked").unwrap_or(0)));
    }
}

/// An agent that serves version 1 until it is dropped.
struct Serving {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    fn at(path: &std::path::Path) -> Serving {
        let mut link = Datagram::bind(path).expect("a path of its own");
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut agent = Agent::new(Options::default());
            agent.add(Echo).expect("it compiles");
            serve(&mut agent, &mut [&mut link], Waiting::default(), &seen).expect("it serves");
        });
        Serving {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Receives commands until one matches.
fn until(uplink: &mut CcpUplink, clock: Clock, wanted: impl Fn(&Command) -> bool) -> Command {
    let mut found = None;
    while found.is_none() {
        assert!(
            clock.now() < Time::ZERO + Duration::from_secs(20),
            "no answer in time"
        );
        uplink.receive(clock.now(), &mut |command| {
            if wanted(&command) {
                found = Some(command);
            }
        });
        std::thread::yield_now();
    }
    found.expect("the loop's end")
}

#[test]
fn over_the_socket_an_agent_steers_and_one_that_comes_back_is_told_of_the_flows_again() {
    let path: PathBuf =
        std::env::temp_dir().join(format!("ccplane-foreign-{}", std::process::id()));
    let clock = Clock::new();
    let mut uplink = CcpUplink::new(&path, "echo", None);
    assert!(uplink.connect(clock.now()).is_err(), "nobody is there");
    assert_eq!(uplink.event(&ready(None)), Sent::NoAgent);
    for round in 0..2 {
        let serving = Serving::at(&path);
        // Not immediately: the uplink backs off after a failed attempt.
        while uplink.connect(clock.now()).is_err() {
            assert!(
                clock.now() < Time::ZERO + Duration::from_secs(20),
                "it is there"
            );
            std::thread::yield_now();
        }
        assert_eq!(uplink.event(&ready(None)), Sent::Yes);
        assert_eq!(uplink.event(&opened(40, 10_000)), Sent::Yes);
        assert!(uplink.flush());
        let set = until(&mut uplink, clock, |command| {
            matches!(command, Command::SetProgram { .. })
        });
        let Command::SetProgram {
            flow: 40,
            uid,
            updates,
        } = set
        else {
            panic!("{set:?}")
        };
        assert_eq!(updates.as_slice()[0].value, 3);
        let report = Event::Report {
            flow: 40,
            program: uid,
            urgent: false,
            fields: &[77 + round, 0],
        };
        assert_eq!(uplink.event(&report), Sent::Yes);
        assert!(uplink.flush());
        let update = until(&mut uplink, clock, |command| {
            matches!(command, Command::Update { .. })
        });
        let Command::Update { flow: 40, updates } = update else {
            panic!("{update:?}")
        };
        assert_eq!(updates.as_slice()[0].value, 50_077 + round);

        drop(serving);
        // The next send detects the loss.
        while uplink.is_connected() {
            let _ = uplink.event(&report);
            uplink.flush();
        }
    }
}
