use std::sync::Arc;

use ccplane_datapath::{Capabilities, CommandTarget, Update};
use ccplane_units::{Bytes, Duration, Rate};
use proptest::prelude::*;

use super::*;
use crate::{
    DatapathInfo, FlowInfo, FlowStats, Offer, Refusal, TAGS_PER_FLOW_MAX, Tags, WireCommand,
    WireError, WireEvent,
};

/// Returns an event that owns its fields, so that events can be stored.
fn owned(event: &WireEvent<'_>) -> WireEvent<'static> {
    match event.clone() {
        WireEvent::Report {
            flow,
            program,
            urgent,
            fields,
        } => WireEvent::Report {
            flow,
            program,
            urgent,
            fields: Vec::leak(fields.to_vec()),
        },
        WireEvent::Ready { datapath } => WireEvent::Ready { datapath },
        WireEvent::FlowOpened { flow, info } => WireEvent::FlowOpened { flow, info },
        WireEvent::FlowClosed { flow, stats } => WireEvent::FlowClosed { flow, stats },
        WireEvent::Refused { flow, program, why } => WireEvent::Refused { flow, program, why },
        WireEvent::Installed { program } => WireEvent::Installed { program },
    }
}

fn events_of(packet: &PacketWriter) -> Result<Vec<WireEvent<'static>>, WireError> {
    let mut all = Vec::new();
    read_events(packet.as_bytes(), &mut Vec::new(), &mut |event| {
        all.push(owned(&event))
    })?;
    Ok(all)
}

fn commands_of(packet: &PacketWriter) -> Result<Vec<WireCommand>, WireError> {
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

fn tags() -> impl Strategy<Value = Tags> {
    let values = prop::collection::vec("[a-zäöü=0-9]{0,20}", 0..=TAGS_PER_FLOW_MAX);
    values.prop_map(|values| {
        let tags = values
            .iter()
            .enumerate()
            .map(|(n, value)| format!("key-{n}={value}"));
        Tags::new(tags.map(|text| text.parse().expect("a tag"))).expect("unique keys")
    })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<u32>().prop_map(Refusal::UnknownProgram),
        Just(Refusal::UnknownFlow),
        name().prop_map(Refusal::BadTarget),
        Just(Refusal::TableFull),
        any::<(u32, u32)>()
            .prop_map(|(needed, available)| Refusal::TooManyVars { needed, available }),
        any::<u64>().prop_map(|bits| Refusal::MissingCapabilities(Capabilities(bits))),
        name().prop_map(Refusal::InvalidProgram),
        name().prop_map(Refusal::Unsupported),
        Just(Refusal::NoRelease),
        name().prop_map(Refusal::Other),
    ]
}

fn event() -> impl Strategy<Value = WireEvent<'static>> {
    let report = (
        any::<u64>(),
        any::<u32>(),
        any::<bool>(),
        prop::collection::vec(any::<u64>(), 0..20),
    );
    let ready = (
        any::<[u32; 4]>(),
        any::<u64>(),
        prop::option::of(1..u64::MAX),
        name(),
    );
    let opened = (
        any::<[u64; 7]>(),
        address(),
        address(),
        name(),
        any::<bool>(),
        tags(),
    );
    prop_oneof![
        report.prop_map(|(flow, program, urgent, fields)| {
            WireEvent::Report {
                flow,
                program,
                urgent,
                fields: Vec::leak(fields),
            }
        }),
        ready.prop_map(
            |([id, max_programs, max_instrs, max_vars], capabilities, fallback, kind)| {
                WireEvent::Ready {
                    datapath: DatapathInfo {
                        id,
                        kind,
                        capabilities: Capabilities(capabilities),
                        max_programs,
                        max_instrs,
                        max_vars,
                        agent_timeout: fallback.map(Duration::from_nanos),
                    },
                }
            }
        ),
        opened.prop_map(
            |(
                [flow, init, mss, cwnd, ssthresh, rate, srtt],
                local,
                peer,
                algorithm,
                live,
                tags,
            )| {
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
                    tags,
                };
                WireEvent::FlowOpened { flow, info }
            }
        ),
        any::<[u64; 5]>().prop_map(|[flow, acked, packets_lost, reports, ns]| {
            let (bytes_acked, lifetime) = (Bytes::new(acked), Duration::from_nanos(ns));
            WireEvent::FlowClosed {
                flow,
                stats: FlowStats {
                    bytes_acked,
                    packets_lost,
                    reports,
                    lifetime,
                },
            }
        }),
        (prop::option::of(any::<u64>()), any::<u32>(), refusal())
            .prop_map(|(flow, program, why)| WireEvent::Refused { flow, program, why }),
        any::<u32>().prop_map(|program| WireEvent::Installed { program }),
    ]
}

fn command() -> impl Strategy<Value = WireCommand> {
    let target = prop_oneof![
        any::<u8>().prop_map(CommandTarget::Var),
        Just(CommandTarget::Cwnd),
        Just(CommandTarget::Rate),
        Just(CommandTarget::Ssthresh),
        Just(CommandTarget::Micros)
    ];
    let update = (target, any::<u64>()).prop_map(|(target, value)| Update { target, value });
    let updates =
        || prop::collection::vec(update.clone(), 0..40).prop_map(|all| all.into_iter().collect());
    let source = "(def (Report (volatile acked 0)) (c 5)) (when (> Ack.bytes_acked c) (:= Cwnd (* \
                  Cwnd 1.5)) (report))";
    let compiled = ccplane_lang::compile(source, &ccplane_lang::ProgramLimits::default())
        .expect("the program compiles");
    let code = compiled.code().clone();
    prop_oneof![
        (any::<u32>(), name()).prop_map(move |(uid, name)| WireCommand::Install {
            algorithm: name.into(),
            program: Arc::new(code.with_uid(uid))
        }),
        (any::<u64>(), any::<u32>(), updates())
            .prop_map(|(flow, uid, updates)| WireCommand::SetProgram { flow, uid, updates }),
        (any::<u64>(), updates()).prop_map(|(flow, updates)| WireCommand::Update { flow, updates }),
        any::<u64>().prop_map(|flow| WireCommand::Release { flow }),
        name().prop_map(|name| WireCommand::Heartbeat {
            algorithm: name.into()
        }),
        (name(), name(), any::<[u64; 3]>()).prop_map(|(name, kernel_name, [needs, wants, ns])| {
            WireCommand::Offer(Arc::new(Offer {
                name: name.into(),
                kernel_name,
                required: Capabilities(needs),
                requested: Capabilities(wants),
                latency: Duration::from_nanos(ns),
            }))
        }),
    ]
}

proptest! {
    #[test]
    fn events_come_back_as_they_were(events in prop::collection::vec(event(), 0..10)) {
        let mut packet = PacketWriter::new();
        for event in &events {
            packet.push_event(event).expect("room");
        }
        prop_assert_eq!(events_of(&packet).expect("good"), events);
    }

    #[test]
    fn commands_come_back_as_they_were(commands in prop::collection::vec(command(), 0..10)) {
        let mut packet = PacketWriter::new();
        for command in &commands {
            packet.push_command(command).expect("room");
        }
        prop_assert_eq!(commands_of(&packet).expect("good"), commands);
    }

    #[test]
    fn damaged_packets_are_read_without_a_panic(
        events in prop::collection::vec(event(), 1..4),
        commands in prop::collection::vec(command(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut one, mut two) = (PacketWriter::new(), PacketWriter::new());
        events.iter().for_each(|e| one.push_event(e).expect("room"));
        commands.iter().for_each(|c| two.push_command(c).expect("room"));
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
    let mut packet = PacketWriter::new();
    packet
        .push_event(&WireEvent::Report {
            flow: 0x0807,
            program: 9,
            urgent: true,
            fields: &[5],
        })
        .expect("room");
    let mut expected = vec![
        MAGIC, VERSION, 3, 1, 20, 0, 7, 8, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0,
    ];
    expected.extend([5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(packet.as_bytes(), expected);
}

#[test]
fn a_full_packet_stays_as_it_was() {
    let (mut packet, fields) = (PacketWriter::new(), [7; 60]);
    let report = WireEvent::Report {
        flow: 1,
        program: 2,
        urgent: false,
        fields: &fields,
    };
    let fits = (0..)
        .take_while(|_| packet.push_event(&report).is_ok())
        .count();
    assert_eq!(fits, (PACKET_BYTES_MAX - 2) / (4 + 12 + 480));
    assert_eq!(events_of(&packet).expect("good").len(), fits);
}

#[test]
fn another_version_is_named() {
    let refused = read_events(&[MAGIC, 3], &mut Vec::new(), &mut |_| ());
    assert_eq!(
        refused,
        Err(WireError::UnsupportedVersion { theirs: 3, ours: 2 })
    );
    let ccp = [5, 0, 12, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    assert!(matches!(
        read_events(&ccp, &mut Vec::new(), &mut |_| ()),
        Err(WireError::UnknownValue { value: 5, .. })
    ));
}

#[test]
fn words_are_cut_at_a_character() {
    let mut packet = PacketWriter::new();
    let why = Refusal::Other("ä".repeat(200));
    packet
        .push_event(&WireEvent::Refused {
            flow: None,
            program: 1,
            why,
        })
        .expect("room");
    let WireEvent::Refused {
        why: Refusal::Other(said),
        ..
    } = &events_of(&packet).expect("good")[0]
    else {
        panic!()
    };
    assert_eq!(said, &"ä".repeat(127));
}

#[test]
fn a_flow_without_tags_is_as_it_was_before_there_were_any() {
    let opened = |tags: &[&str]| {
        let tags = Tags::new(tags.iter().map(|tag| tag.parse().expect("a tag"))).expect("tags");
        let info = FlowInfo {
            tags,
            ..FlowInfo::default()
        };
        let mut packet = PacketWriter::new();
        packet
            .push_event(&WireEvent::FlowOpened { flow: 1, info })
            .expect("room");
        packet
    };
    let (none, one) = (opened(&[]), opened(&["a=b"]));
    assert_eq!(none.as_bytes().len(), 2 + 4 + 8 + 48 + 7 + 7 + 1);
    assert_eq!(one.as_bytes().len(), none.as_bytes().len() + 1 + 1 + 3);
    // More tags than the maximum, a duplicate key, and an invalid tag.
    let tagged = |tags: &[&str]| {
        let mut bytes = none.as_bytes().to_vec();
        bytes.push(tags.len() as u8);
        for tag in tags {
            bytes.push(tag.len() as u8);
            bytes.extend(tag.as_bytes());
        }
        let length = (bytes.len() - 6) as u16;
        bytes[4..6].copy_from_slice(&length.to_le_bytes());
        read_events(&bytes, &mut Vec::new(), &mut |_| ())
    };
    assert_eq!(tagged(&["a=b", "c=d"]), Ok(()));
    for (bad, says) in [
        (
            &["a=", "b=", "c=", "d=", "e=", "f=", "g=", "h=", "i="][..],
            "9 tags",
        ),
        (&["a=1", "a=2"], "twice"),
        (&["a"], "KEY=VALUE"),
    ] {
        let why = tagged(bad).expect_err("bad tags").to_string();
        assert!(why.contains(says), "{why}");
    }
}

mod page {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    use ccplane_datapath::{Clause, Instr, Op, Program, Var, VarKind};

    use super::*;
    use crate::framed::{self, Hello};

    const PAGE: &str = include_str!("../../../../docs/wire.md");

    /// Test vectors of the page: on each line, everything before two spaces is bytes.
    fn vectors() -> BTreeMap<String, Vec<u8>> {
        let mut vectors = BTreeMap::new();
        let mut current: Option<(String, Vec<u8>)> = None;
        for line in PAGE.lines() {
            match (&mut current, line.strip_prefix("```")) {
                (None, Some(head)) => {
                    if let Some(name) = head.strip_prefix("vector ") {
                        current = Some((name.to_owned(), Vec::new()));
                    }
                }
                (Some(_), Some(_)) => vectors.extend(current.take()),
                (Some((name, bytes)), None) => {
                    let hex = line.split("  ").next().unwrap_or_default();
                    let byte = |word| {
                        u8::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{name}: {line}"))
                    };
                    bytes.extend(hex.split(' ').map(byte));
                }
                (None, None) => {}
            }
        }
        vectors
    }

    fn events() -> Vec<(&'static str, WireEvent<'static>)> {
        let opened = FlowInfo {
            algorithm: "cubic".to_owned(),
            local: SocketAddr::from(([10, 0, 0, 1], 40_000)),
            peer: SocketAddr::from(([10, 0, 0, 2], 443)),
            ..FlowInfo::default()
        };
        let live = FlowInfo {
            algorithm: String::new(),
            local: "[2001:db8::1]:40000".parse().expect("an address"),
            peer: "[2001:db8::2]:443".parse().expect("an address"),
            cwnd: Bytes::new(289_600),
            ssthresh: Bytes::new(144_800),
            rate: Rate::from_bytes_per_sec(12_500_000),
            srtt: Duration::from_millis(20),
            live: true,
            tags: Tags::new(["site=paris", "class=bulk"].map(|tag| tag.parse().expect("a tag")))
                .expect("two"),
            ..opened.clone()
        };
        let capabilities = Capabilities::CWND
            .union(Capabilities::PACING)
            .union(Capabilities::RTT)
            .union(Capabilities::RECOVERY);
        let datapath = DatapathInfo {
            id: 4711,
            kind: "linux".to_owned(),
            capabilities,
            max_programs: 12,
            max_instrs: 256,
            max_vars: 64,
            agent_timeout: Some(Duration::from_millis(500)),
        };
        let report = WireEvent::Report {
            flow: 7,
            program: 3,
            urgent: true,
            fields: &[2896, 1],
        };
        let stats = FlowStats {
            bytes_acked: Bytes::new(1_000_000),
            packets_lost: 3,
            reports: 100,
            lifetime: Duration::from_secs(2),
        };
        let refused = WireEvent::Refused {
            flow: Some(7),
            program: 3,
            why: Refusal::TooManyVars {
                needed: 70,
                available: 64,
            },
        };
        vec![
            ("ready", WireEvent::Ready { datapath }),
            (
                "opened",
                WireEvent::FlowOpened {
                    flow: 7,
                    info: opened,
                },
            ),
            (
                "opened-live",
                WireEvent::FlowOpened {
                    flow: 7,
                    info: live,
                },
            ),
            ("report", report),
            ("closed", WireEvent::FlowClosed { flow: 7, stats }),
            ("refused", refused),
            ("installed", WireEvent::Installed { program: 3 }),
        ]
    }

    fn commands() -> Vec<(&'static str, WireCommand)> {
        let instr = |op, has_imm, dst, a, b, imm| Instr {
            op,
            has_imm,
            dst,
            a,
            b,
            imm,
        };
        let instrs = [
            instr(Op::Add, false, 64, 64, 0, 0),
            instr(Op::Move, true, 36, 0, 0, 1),
        ];
        let clause = Clause {
            flag: 39,
            guard_start: 0,
            body_start: 0,
            body_end: 2,
        };
        let var = Var {
            kind: VarKind::Report,
            volatile: true,
            init: 0,
        };
        let program = Arc::new(Program::check(3, &instrs, &[clause], &[var]).expect("a program"));
        let update = |target, value| Update { target, value };
        let algorithm: Arc<str> = "cubic".into();
        let offer = Offer {
            name: Arc::clone(&algorithm),
            kernel_name: "ccp_cubic".to_owned(),
            required: Capabilities::CWND,
            requested: Capabilities::CWND,
            latency: Duration::from_millis(1),
        };
        let set = WireCommand::SetProgram {
            flow: 7,
            uid: 3,
            updates: [
                update(CommandTarget::Cwnd, 28_960),
                update(CommandTarget::Var(2), 5),
            ]
            .into_iter()
            .collect(),
        };
        let change = WireCommand::Update {
            flow: 7,
            updates: [
                update(CommandTarget::Rate, 12_500_000),
                update(CommandTarget::Ssthresh, 144_800),
            ]
            .into_iter()
            .collect(),
        };
        vec![
            ("offer", WireCommand::Offer(Arc::new(offer))),
            (
                "install",
                WireCommand::Install {
                    algorithm: Arc::clone(&algorithm),
                    program,
                },
            ),
            ("set-program", set),
            ("update", change),
            ("heartbeat", WireCommand::Heartbeat { algorithm }),
            ("release", WireCommand::Release { flow: 7 }),
        ]
    }

    #[test]
    fn the_page_has_the_bytes_that_are_written_and_what_they_mean() {
        let mut vectors = vectors();
        let mut take = |name: &str, written: &[u8]| {
            let said = vectors
                .remove(name)
                .unwrap_or_else(|| panic!("docs/wire.md has no vector {name}"));
            assert_eq!(said, written, "{name}: {written:02x?}");
            said
        };
        for (name, event) in events() {
            let mut packet = PacketWriter::new();
            packet.push_event(&event).expect("room");
            let said = take(name, packet.as_bytes());
            let mut read = Vec::new();
            read_events(&said, &mut Vec::new(), &mut |event| {
                read.push(owned(&event))
            })
            .expect(name);
            assert_eq!(read, [event], "{name}");
        }
        for (name, command) in commands() {
            let mut packet = PacketWriter::new();
            packet.push_command(&command).expect("room");
            let said = take(name, packet.as_bytes());
            let mut read = Vec::new();
            read_commands(&said, &mut |command| read.push(command)).expect(name);
            assert_eq!(read, [command], "{name}");
        }
        let hello = Hello {
            process: 0x1122_3344_5566_7788,
            channel: 0x99aa_bbcc_ddee_ff00,
        };
        take("hello", &framed::encode_hello(hello));
        take("goodbye", &framed::encode_goodbye("key revoked"));
        let mut packet = PacketWriter::new();
        packet
            .push_command(&WireCommand::Release { flow: 7 })
            .expect("room");
        let framed = [
            &framed::encode_length(packet.as_bytes())[..],
            packet.as_bytes(),
        ]
        .concat();
        take("framed", &framed);
        assert!(vectors.is_empty(), "no reader for {:?}", vectors.keys());
    }

    #[test]
    fn the_page_numbers_operations_as_they_are() {
        let name = |op: &Op| format!("{op:?}").to_lowercase();
        for (number, op) in Op::ALL.iter().enumerate() {
            let cell = format!("| {number} {} |", name(op));
            assert!(PAGE.contains(&cell), "docs/wire.md: {cell}");
        }
        for (kind, name) in [
            (kind::READY, "READY"),
            (kind::FLOW_OPENED, "FLOW_OPENED"),
            (kind::REPORT, "REPORT"),
            (kind::FLOW_CLOSED, "FLOW_CLOSED"),
            (kind::REFUSED, "REFUSED"),
            (kind::INSTALLED, "INSTALLED"),
            (kind::INSTALL, "INSTALL"),
            (kind::SET_PROGRAM, "SET_PROGRAM"),
            (kind::UPDATE, "UPDATE"),
            (kind::HEARTBEAT, "HEARTBEAT"),
            (kind::OFFER, "OFFER"),
            (kind::RELEASE, "RELEASE"),
        ] {
            let row = format!("| {kind} | {name} |");
            assert!(PAGE.contains(&row), "docs/wire.md: {row}");
        }
    }
}
