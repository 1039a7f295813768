use std::sync::Arc;

use ccplane_datapath::{Capabilities, Target, Update};
use ccplane_units::{Bytes, Duration, Rate};
use proptest::prelude::*;

use super::*;
use crate::{Command, DatapathInfo, Event, FlowInfo, FlowStats, Offer, Refusal, WireError};

/// An event that owns its fields, so that events can be kept.
fn owned(event: &Event<'_>) -> Event<'static> {
    match event.clone() {
        Event::Report {
            flow,
            program,
            urgent,
            fields,
        } => Event::Report {
            flow,
            program,
            urgent,
            fields: Vec::leak(fields.to_vec()),
        },
        Event::Ready { datapath } => Event::Ready { datapath },
        Event::FlowOpened { flow, info } => Event::FlowOpened { flow, info },
        Event::FlowClosed { flow, stats } => Event::FlowClosed { flow, stats },
        Event::Refused { flow, program, why } => Event::Refused { flow, program, why },
        Event::Installed { program } => Event::Installed { program },
    }
}

fn events_of(packet: &Packet) -> Result<Vec<Event<'static>>, WireError> {
    let mut all = Vec::new();
    read_events(packet.as_bytes(), &mut Vec::new(), &mut |event| all.push(owned(&event)))?;
    Ok(all)
}

fn commands_of(packet: &Packet) -> Result<Vec<Command>, WireError> {
    let mut all = Vec::new();
    read_commands(packet.as_bytes(), &mut |command| all.push(command))?;
    Ok(all)
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Zäöü0-9_.]{0,20}"
}

fn address() -> impl Strategy<Value = std::net::SocketAddr> {
    (any::<std::net::IpAddr>(), any::<u16>()).prop_map(std::net::SocketAddr::from)
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<u32>().prop_map(Refusal::UnknownProgram),
        Just(Refusal::UnknownFlow),
        name().prop_map(Refusal::BadTarget),
        Just(Refusal::TableFull),
        any::<(u32, u32)>().prop_map(|(needed, available)| Refusal::TooManyVars { needed, available }),
        any::<u64>().prop_map(|bits| Refusal::Missing(Capabilities(bits))),
        name().prop_map(Refusal::Invalid),
        name().prop_map(Refusal::Unsupported),
        Just(Refusal::NoRelease),
        name().prop_map(Refusal::Other),
    ]
}

fn event() -> impl Strategy<Value = Event<'static>> {
    let report = (
        any::<u64>(),
        any::<u32>(),
        any::<bool>(),
        prop::collection::vec(any::<u64>(), 0..20),
    );
    let ready = (any::<[u32; 4]>(), any::<u64>(), prop::option::of(1..u64::MAX), name());
    let opened = (any::<[u64; 7]>(), address(), address(), name(), any::<bool>());
    prop_oneof![
        report.prop_map(|(flow, program, urgent, fields)| {
            Event::Report {
                flow,
                program,
                urgent,
                fields: Vec::leak(fields),
            }
        }),
        ready.prop_map(
            |([id, max_programs, max_instrs, max_vars], capabilities, fallback, kind)| Event::Ready {
                datapath: DatapathInfo {
                    id,
                    kind,
                    capabilities: Capabilities(capabilities),
                    max_programs,
                    max_instrs,
                    max_vars,
                    fallback_after: fallback.map(Duration::from_nanos),
                }
            }
        ),
        opened.prop_map(
            |([flow, init, mss, cwnd, ssthresh, rate, srtt], local, peer, algorithm, live)| {
                let info = FlowInfo {
                    algorithm,
                    init_cwnd: Bytes::new(init),
                    mss: Bytes::new(mss),
                    local,
                    peer,
                    cwnd: Bytes::new(cwnd),
                    ssthresh: Bytes::new(ssthresh),
                    rate: Rate::from_bytes_per_sec(rate),
                    srtt: Duration::from_nanos(srtt),
                    live,
                };
                Event::FlowOpened { flow, info }
            }
        ),
        any::<[u64; 5]>().prop_map(|[flow, acked, packets_lost, reports, ns]| {
            let (bytes_acked, lifetime) = (Bytes::new(acked), Duration::from_nanos(ns));
            Event::FlowClosed {
                flow,
                stats: FlowStats {
                    bytes_acked,
                    packets_lost,
                    reports,
                    lifetime,
                },
            }
        }),
        (prop::option::of(any::<u64>()), any::<u32>(), refusal()).prop_map(|(flow, program, why)| Event::Refused {
            flow,
            program,
            why
        }),
        any::<u32>().prop_map(|program| Event::Installed { program }),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let target = prop_oneof![
        any::<u8>().prop_map(Target::Var),
        Just(Target::Cwnd),
        Just(Target::Rate),
        Just(Target::Ssthresh),
        Just(Target::Micros)
    ];
    let update = (target, any::<u64>()).prop_map(|(target, value)| Update { target, value });
    let updates = || prop::collection::vec(update.clone(), 0..40).prop_map(|all| all.into_iter().collect());
    let source = "(def (Report (volatile acked 0)) (c 5)) (when (> Ack.bytes_acked c) (:= Cwnd (* Cwnd 1.5)) (report))";
    let compiled = ccplane_lang::compile(source, &ccplane_lang::Limits::default()).expect("it compiles");
    let code = compiled.code().clone();
    prop_oneof![
        (any::<u32>(), name()).prop_map(move |(uid, name)| Command::Install {
            algorithm: name.into(),
            program: Arc::new(code.with_uid(uid))
        }),
        (any::<u64>(), any::<u32>(), updates()).prop_map(|(flow, uid, updates)| Command::SetProgram {
            flow,
            uid,
            updates
        }),
        (any::<u64>(), updates()).prop_map(|(flow, updates)| Command::Update { flow, updates }),
        any::<u64>().prop_map(|flow| Command::Release { flow }),
        name().prop_map(|name| Command::Heartbeat { algorithm: name.into() }),
        (name(), name(), any::<[u64; 3]>()).prop_map(|(name, kernel_name, [needs, wants, ns])| {
            Command::Offer(Arc::new(Offer {
                name: name.into(),
                kernel_name,
                needs: Capabilities(needs),
                wants: Capabilities(wants),
                latency: Duration::from_nanos(ns),
            }))
        }),
    ]
}

proptest! {
    #[test]
    fn events_come_back_as_they_were(events in prop::collection::vec(event(), 0..10)) {
        let mut packet = Packet::new();
        for event in &events {
            packet.event(event).expect("room");
        }
        prop_assert_eq!(events_of(&packet).expect("good"), events);
    }

    #[test]
    fn commands_come_back_as_they_were(commands in prop::collection::vec(command(), 0..10)) {
        let mut packet = Packet::new();
        for command in &commands {
            packet.command(command).expect("room");
        }
        prop_assert_eq!(commands_of(&packet).expect("good"), commands);
    }

    #[test]
    fn damaged_packets_are_read_without_a_panic(
        events in prop::collection::vec(event(), 1..4),
        commands in prop::collection::vec(command(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut one, mut two) = (Packet::new(), Packet::new());
        events.iter().for_each(|e| one.event(e).expect("room"));
        commands.iter().for_each(|c| two.command(c).expect("room"));
        for packet in [one, two] {
            let mut bytes = packet.as_bytes().to_vec();
            for (at, value) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            crate::fuzz::read(&bytes);
            crate::fuzz::read(&bytes[..bytes.len() / 2]);
        }
    }
}

#[test]
fn a_report_byte_for_byte() {
    let mut packet = Packet::new();
    packet
        .event(&Event::Report {
            flow: 0x0807,
            program: 9,
            urgent: true,
            fields: &[5],
        })
        .expect("room");
    let mut expected = vec![MAGIC, VERSION, 3, 1, 20, 0, 7, 8, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0];
    expected.extend([5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(packet.as_bytes(), expected);
}

#[test]
fn a_full_packet_stays_as_it_was() {
    let (mut packet, fields) = (Packet::new(), [7; 60]);
    let report = Event::Report {
        flow: 1,
        program: 2,
        urgent: false,
        fields: &fields,
    };
    let fits = (0..).take_while(|_| packet.event(&report).is_ok()).count();
    assert_eq!(fits, (MAX_PACKET - 2) / (4 + 12 + 480));
    assert_eq!(events_of(&packet).expect("good").len(), fits);
}

#[test]
fn another_version_is_named() {
    let refused = read_events(&[MAGIC, 3], &mut Vec::new(), &mut |_| ());
    assert_eq!(refused, Err(WireError::Version { theirs: 3, ours: 2 }));
    let ccp = [5, 0, 12, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    assert!(matches!(
        read_events(&ccp, &mut Vec::new(), &mut |_| ()),
        Err(WireError::Unknown { value: 5, .. })
    ));
}

#[test]
fn words_are_cut_at_a_character() {
    let mut packet = Packet::new();
    let why = Refusal::Other("ä".repeat(200));
    packet
        .event(&Event::Refused {
            flow: None,
            program: 1,
            why,
        })
        .expect("room");
    let Event::Refused {
        why: Refusal::Other(said),
        ..
    } = &events_of(&packet).expect("good")[0]
    else {
        panic!()
    };
    assert_eq!(said, &"ä".repeat(127));
}
