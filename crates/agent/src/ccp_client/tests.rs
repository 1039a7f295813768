use ccplane_datapath::{Capabilities, CommandTarget, Update};
use ccplane_lang as lang;
use ccplane_units::Bytes;
use ccplane_wire::{DatapathInfo, FlowStats, Refusal};

use super::*;

const PROGRAM: &str = "(def (Report (volatile acked 0) (lost 0)) (gain 1) (volatile pace 2))
    (when true (:= Report.acked (+ Report.acked (* gain Ack.bytes_acked)))
    (:= Report.lost pace) (report))";

fn program(source: &str) -> Program {
    lang::compile(source, &lang::ProgramLimits::default())
        .expect("it compiles")
        .code()
        .clone()
}

fn ready(fallback_after: Option<Duration>) -> WireEvent<'static> {
    WireEvent::Ready {
        datapath: DatapathInfo {
            id: 9,
            kind: "test".to_owned(),
            capabilities: Capabilities::CWND,
            max_programs: 8,
            max_instrs: 256,
            max_vars: 32,
            agent_timeout: fallback_after,
        },
    }
}

fn opened(flow: u64, cwnd: u64) -> WireEvent<'static> {
    let info = FlowInfo {
        algorithm: "reno".to_owned(),
        init_cwnd: Bytes::new(10_000),
        cwnd: Bytes::new(cwnd),
        mss: Bytes::new(1000),
        local: "[2001:db8::1]:80".parse().expect("an address"),
        ..FlowInfo::default()
    };
    WireEvent::FlowOpened { flow, info }
}

fn said(foreign: &mut CcpV1Client, event: &WireEvent<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    foreign.encode_event(event, &mut out);
    assert!(out.len() <= CcpV1Client::message_len_max(event));
    out
}

fn hear(foreign: &mut CcpV1Client, write: impl FnOnce(&mut Vec<u8>)) -> Vec<WireCommand> {
    let mut out = Vec::new();
    write(&mut out);
    foreign.handle(Time::ZERO, &out).expect("a good message");
    std::iter::from_fn(|| foreign.poll()).collect()
}

#[test]
fn a_flow_is_created_set_a_program_updated_measured_and_ended() {
    let mut foreign = CcpV1Client::new("reno", None);
    foreign.on_connected(Time::ZERO);
    assert_eq!(
        said(&mut foreign, &ready(None)),
        [5, 0, 12, 0, 0, 0, 0, 0, 9, 0, 0, 0]
    );

    // The datapath's numbers have 64 bits, the agent's 32. A flow that lives goes on from its
    // window.
    let flow = 7 << 40;
    let bytes = said(&mut foreign, &opened(flow, 25_000));
    let messages: Vec<_> = v1::messages(&bytes).map(|m| m.expect("good")).collect();
    let [
        v1::V1Message::Create {
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
    assert_eq!(
        create.source.to_string(),
        "0.0.0.0:80",
        "CCP does not support IPv6"
    );

    let code = program(PROGRAM);
    let installed = hear(&mut foreign, |out| {
        v1::install(out, 3, &code).expect("sayable")
    });
    let [WireCommand::Install { algorithm, program }] = &installed[..] else {
        panic!("{installed:?}")
    };
    assert_eq!((&**algorithm, program.report_vars()), ("reno", 2));
    let uid = program.uid();

    let control = Update {
        target: CommandTarget::Var(3),
        value: 5,
    };
    let window = Update {
        target: CommandTarget::Cwnd,
        value: 12_000,
    };
    let updates: Updates = [control, window].into_iter().collect();
    let set = hear(&mut foreign, |out| {
        v1::change_program(out, 1, 3, &code, &[control, window]).expect("sayable");
    });
    assert_eq!(
        set,
        [WireCommand::SetProgram {
            flow,
            uid,
            updates: updates.clone()
        }]
    );
    let updated = hear(&mut foreign, |out| {
        v1::update_fields(out, 1, Some(&code), &[control, window]).expect("sayable");
    });
    assert_eq!(updated, [WireCommand::Update { flow, updates }]);

    let report = |program| WireEvent::Report {
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
        "a program of an earlier agent"
    );
    let ended = WireEvent::FlowClosed {
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
    let refused = WireEvent::Refused {
        flow: None,
        program: uid,
        why: Refusal::TableFull,
    };
    assert!(said(&mut foreign, &refused).is_empty());
}

#[test]
fn the_same_program_is_the_same_under_another_number_and_after_a_restart() {
    let mut foreign = CcpV1Client::new("reno", None);
    let code = program(PROGRAM);
    let mut uid_of = |number| {
        foreign.on_connected(Time::ZERO);
        match &hear(&mut foreign, |out| {
            v1::install(out, number, &code).expect("sayable")
        })[..]
        {
            [WireCommand::Install { program, .. }] => program.uid(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(uid_of(1), uid_of(4));
    let other = program("(def (Report (volatile acked 0))) (when true (report))");
    let installed = hear(&mut foreign, |out| {
        v1::install(out, 1, &other).expect("sayable")
    });
    assert!(
        !matches!(&installed[..], [WireCommand::Install { program, .. }] if program.uid() == 0)
    );
}

#[test]
fn heartbeats_follow_the_agents_liveness() {
    let ms = |n| Time::ZERO + Duration::from_millis(n);
    for (silence, beats_at) in [
        (None, vec![0, 100, 200, 300, 400, 500]),
        (
            Some(Duration::from_millis(250)),
            vec![0, 100, 200, 400, 500],
        ),
    ] {
        let mut foreign = CcpV1Client::new("reno", silence);
        assert_eq!(foreign.next_deadline(), None);
        foreign.on_connected(ms(0));
        said(&mut foreign, &ready(Some(Duration::from_millis(300))));
        let mut beats = Vec::new();
        while let Some(due) = foreign.next_deadline().filter(|due| *due <= ms(500)) {
            if due == ms(400) {
                foreign
                    .handle(ms(350), &[])
                    .expect("an empty message is valid");
            }
            foreign.on_deadline(due);
            while let Some(command) = foreign.poll() {
                assert!(
                    matches!(command, WireCommand::Heartbeat { algorithm } if &*algorithm == "reno")
                );
                beats.push(due.as_micros() / 1000);
            }
        }
        assert_eq!(beats, beats_at, "{silence:?}");
    }
}

#[test]
fn invalid_messages_are_errors_without_effect() {
    let mut foreign = CcpV1Client::new("reno", None);
    for bad in [
        &[1, 2, 3][..],
        &[9, 0, 8, 0, 0, 0, 0, 0],
        &[5, 0, 12, 0, 0, 0, 0, 0, 1, 0, 0, 0],
    ] {
        foreign
            .handle(Time::ZERO, bad)
            .expect_err("not a message of an agent");
    }
    let unknown = hear(&mut foreign, |out| {
        let code = program(PROGRAM);
        v1::change_program(out, 1, 3, &code, &[]).expect("sayable");
    });
    assert!(unknown.is_empty());
}

#[test]
fn a_datagram_may_hold_only_messages_of_an_agent() {
    let mut foreign = CcpV1Client::new("reno", None);
    let create = create_of(&FlowInfo::default());
    for (kind, message) in [
        (0, create),
        (1, measured(1, 1, &[5])),
        (5, said(&mut foreign, &ready(None))),
    ] {
        let error = foreign.handle(Time::ZERO, &message);
        assert!(
            matches!(error, Err(WireError::UnknownValue { value, .. }) if value == kind),
            "{error:?}"
        );
    }
}

fn create_of(info: &FlowInfo) -> Vec<u8> {
    let mut out = Vec::new();
    v1::create(&mut out, 1, &create(info)).expect("a short name");
    out
}

fn measured(flow: u32, program: u32, fields: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    v1::measure(&mut out, flow, program, fields).expect("short");
    out
}

/// Returns the agent's number of a flow that is announced.
fn announced(foreign: &mut CcpV1Client, flow: u64) -> u32 {
    let bytes = said(foreign, &opened(flow, 10_000));
    match v1::messages(&bytes).next() {
        Some(Ok(v1::V1Message::Create { flow, .. })) => flow,
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_of_live_flows_are_not_given_again() {
    let mut foreign = CcpV1Client::new("reno", None);
    assert_eq!(announced(&mut foreign, 100), 1);
    assert_eq!(announced(&mut foreign, 200), 2);
    assert_eq!(announced(&mut foreign, 100), 1, "announced anew");
    foreign.last_number = u32::MAX - 1;
    assert_eq!(announced(&mut foreign, 300), u32::MAX);
    assert_eq!(announced(&mut foreign, 400), 3, "0, 1 and 2 are taken");
    let ended = WireEvent::FlowClosed {
        flow: 100,
        stats: FlowStats::default(),
    };
    assert_eq!(said(&mut foreign, &ended), measured(1, 0, &[]));
    foreign.last_number = u32::MAX;
    assert_eq!(announced(&mut foreign, 500), 1, "free again");
}

#[test]
fn a_flow_that_is_announced_anew_has_no_program() {
    let mut foreign = CcpV1Client::new("reno", None);
    let code = program(PROGRAM);
    let number = announced(&mut foreign, 7);
    let commands = hear(&mut foreign, |out| {
        v1::install(out, 2, &code).expect("sayable");
        v1::change_program(out, number, 2, &code, &[]).expect("sayable");
    });
    assert_eq!(commands.len(), 2);
    assert_eq!(announced(&mut foreign, 7), number);
    let ended = WireEvent::FlowClosed {
        flow: 7,
        stats: FlowStats::default(),
    };
    assert_eq!(said(&mut foreign, &ended), measured(number, 0, &[]));
}

#[test]
fn a_new_agent_starts_empty() {
    let ms = |n| Time::ZERO + Duration::from_millis(n);
    let mut foreign = CcpV1Client::new("reno", Some(Duration::from_millis(500)));
    said(&mut foreign, &ready(Some(Duration::from_millis(300))));
    let number = announced(&mut foreign, 7);
    let code = program(PROGRAM);
    let mut out = Vec::new();
    v1::install(&mut out, 2, &code).expect("sayable");
    foreign.handle(Time::ZERO, &out).expect("good");
    foreign.on_connected(ms(1_000));
    assert!(foreign.poll().is_none());
    assert_eq!(foreign.next_deadline(), None);
    let change = |out: &mut Vec<u8>| {
        v1::change_program(out, number, 2, &code, &[]).expect("sayable");
    };
    assert!(hear(&mut foreign, change).is_empty());
    foreign.on_connected(ms(1_000));
    said(&mut foreign, &ready(Some(Duration::from_millis(300))));
    assert_eq!(
        foreign.next_deadline(),
        Some(ms(1_000)),
        "the agent was heard when it connected"
    );
    assert_eq!(announced(&mut foreign, 8), number + 1);
    assert!(hear(&mut foreign, change).is_empty(), "no such flow");
}

#[test]
fn a_report_without_fields_or_of_an_unknown_flow_is_not_sent() {
    let mut foreign = CcpV1Client::new("reno", None);
    let code = program(PROGRAM);
    let number = announced(&mut foreign, 7);
    let commands = hear(&mut foreign, |out| {
        v1::install(out, 2, &code).expect("sayable");
    });
    let [WireCommand::Install { program, .. }] = &commands[..] else {
        panic!("{commands:?}")
    };
    let report = |flow, fields| WireEvent::Report {
        flow,
        program: program.uid(),
        urgent: false,
        fields,
    };
    assert!(said(&mut foreign, &report(7, &[])).is_empty());
    assert!(said(&mut foreign, &report(8, &[1])).is_empty());
    assert_eq!(
        said(&mut foreign, &report(7, &[1, 2])),
        measured(number, 2, &[1, 2])
    );
    assert_eq!(
        CcpV1Client::message_len_max(&report(7, &[1, 2, 3])),
        16 + 24
    );
}

#[test]
fn unbounded_programs_use_bounded_memory() {
    let mut foreign = CcpV1Client::new("reno", None);
    let code = program(PROGRAM);
    let mut installed = |number| {
        let install = |out: &mut Vec<u8>| v1::install(out, number, &code).expect("sayable");
        hear(&mut foreign, install).len()
    };
    let taken: usize = (0..PROGRAMS_MAX as u32 + 1).map(&mut installed).sum();
    assert_eq!(taken, PROGRAMS_MAX);
    assert_eq!(installed(0), 1, "the program of a known number is replaced");
    assert_eq!(foreign.programs.len(), PROGRAMS_MAX);
}

#[test]
fn a_heartbeat_is_sent_when_it_is_due_and_then_a_third_of_the_silence_later() {
    let us = |n| Time::ZERO + Duration::from_micros(n);
    let mut foreign = CcpV1Client::new("reno", None);
    foreign.on_deadline(us(0));
    foreign.on_connected(us(500));
    said(&mut foreign, &ready(Some(Duration::from_micros(3_000))));
    foreign.on_deadline(us(499));
    assert!(foreign.poll().is_none());
    foreign.on_deadline(us(500));
    assert!(matches!(
        foreign.poll(),
        Some(WireCommand::Heartbeat { .. })
    ));
    assert_eq!(foreign.next_deadline(), Some(us(1_500)));
    // As short as a datapath allows, and no shorter.
    said(&mut foreign, &ready(Some(Duration::from_nanos(1))));
    foreign.on_deadline(us(2_000));
    assert_eq!(
        foreign.next_deadline(),
        Some(us(2_000) + HEARTBEAT_INTERVAL_MIN)
    );
}

#[test]
fn an_agent_is_silent_when_the_silence_has_lasted() {
    let ms = |n| Time::ZERO + Duration::from_millis(n);
    let mut foreign = CcpV1Client::new("reno", Some(Duration::from_millis(200)));
    foreign.on_connected(ms(0));
    said(&mut foreign, &ready(Some(Duration::from_millis(300))));
    let beats = [0, 100, 200, 300].map(|at| {
        foreign.on_deadline(ms(at));
        foreign.poll().is_some()
    });
    assert_eq!(beats, [true, true, false, false]);
}
