use std::net::SocketAddr;

use ccplane_datapath::{
    Capabilities, Command, CommandTarget, Compat, Flow, Op, OperatorLimits, Outcome, Program,
    ProgramTable, Signals, Transport, Update,
};
use ccplane_units::{Duration, Time};
use proptest::prelude::*;

use super::*;
use crate::{NotExpressible, WireError};

fn bytes(write: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).expect("a supported message");
    out
}

fn one(datagram: &[u8]) -> V1Message<'_> {
    let mut all = messages(datagram);
    let message = all.next().expect("a message").expect("a valid message");
    assert!(all.next().is_none());
    message
}

fn program(source: &str) -> Program {
    let compiled = ccplane_lang::compile(source, &ccplane_lang::ProgramLimits::default());
    compiled
        .unwrap_or_else(|why| panic!("{why}"))
        .code()
        .with_uid(9)
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn ready_byte_for_byte() {
    let mut out = Vec::new();
    ready(&mut out, 0xaa);
    assert_eq!(out, [5, 0, 12, 0, 0, 0, 0, 0, 0xaa, 0, 0, 0]);
    assert!(matches!(one(&out), V1Message::Ready { id: 0xaa }));
}

#[test]
fn create_byte_for_byte() {
    let wanted = Create {
        init_cwnd: 14_480,
        mss: 1448,
        source: address("10.1.2.3:4242"),
        destination: address("192.168.0.9:5001"),
        algorithm: "reno",
    };
    let out = bytes(|out| create(out, 0x0102_0304, &wanted));
    let mut expected = vec![0, 0, 96, 0, 4, 3, 2, 1];
    expected.extend([
        0x90, 0x38, 0, 0, 0xa8, 0x05, 0, 0, 10, 1, 2, 3, 0x92, 0x10, 0, 0, 192, 168, 0, 9, 0x89,
        0x13, 0, 0,
    ]);
    expected.extend(*b"reno");
    expected.resize(CREATE, 0);
    assert_eq!(out, expected);
    let V1Message::Create { flow, create } = one(&out) else {
        panic!("{out:?}")
    };
    assert_eq!((flow, create), (0x0102_0304, wanted));
}

#[test]
fn measure_byte_for_byte() {
    let out = bytes(|out| measure(out, 7, 9, &[1, u64::MAX]));
    let mut expected = vec![
        1, 0, 32, 0, 7, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    ];
    expected.extend([0xff; 8]);
    assert_eq!(out, expected);
    let V1Message::Measure {
        flow: 7,
        program: 9,
        fields,
    } = one(&out)
    else {
        panic!("{out:?}")
    };
    assert_eq!(fields.iter().collect::<Vec<_>>(), [1, u64::MAX]);

    let closed = bytes(|out| measure(out, 7, 9, &[]));
    assert_eq!(closed, [1, 0, 16, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn install_byte_for_byte() {
    let program = program(
        "(def (Report (volatile sum 3))) (when true (:= Report.sum (+ Report.sum \
         Ack.bytes_acked)))",
    );
    let out = bytes(|out| install(out, 9, &program));
    let expected: Vec<u8> = [
        // INSTALL of 84 bytes: program 9, 1 event, 3 instructions
        &[2, 0, 84, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0][..],
        // condition: instruction 1; body: instruction 2
        &[1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0],
        // DEF volatile report 0 = 3
        &[2, 5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 3, 0, 0, 0],
        // BIND flag = 1
        &[1, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 1, 0, 0, 0],
        // ADD volatile report 0 = volatile report 0 + primitive 0
        &[0, 5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 4, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(out, expected);
}

#[test]
fn infinity_and_the_largest_constant_byte_for_byte() {
    let program = program(
        "(def (Report (least +infinity))) (when true (:= Report.least (min Report.least \
         2147483647)))",
    );
    let out = bytes(|out| install(out, 9, &program));
    assert_eq!(
        out[36..52],
        [2, 6, 0, 0, 0, 0, 6, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]
    );
    assert_eq!(out[68 + 11..84], [1, 0xff, 0xff, 0xff, 0x7f]);
}

#[test]
fn updates_byte_for_byte() {
    let program = program(CONTROLLED_PROGRAM);
    let updates = [
        Update {
            target: CommandTarget::Var(2),
            value: 42,
        },
        Update {
            target: CommandTarget::Cwnd,
            value: 14_480,
        },
        Update {
            target: CommandTarget::Rate,
            value: u64::MAX,
        },
    ];
    let all = [
        &[0, 1, 0, 0, 0, 42, 0, 0, 0, 0, 0, 0, 0][..],
        &[2, 4, 0, 0, 0, 0x90, 0x38, 0, 0, 0, 0, 0, 0],
        &[
            2, 5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
    ]
    .concat();
    let out = bytes(|out| update_fields(out, 7, Some(&program), &updates));
    assert_eq!(
        out,
        [&[3, 0, 51, 0, 7, 0, 0, 0, 3, 0, 0, 0][..], &all].concat()
    );
    let out = bytes(|out| change_program(out, 7, 9, &program, &updates));
    assert_eq!(
        out,
        [&[4, 0, 55, 0, 7, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0][..], &all].concat()
    );
    let V1Message::ChangeProgram {
        flow: 7,
        program: 9,
        updates,
    } = one(&out)
    else {
        panic!("{out:?}")
    };
    assert_eq!(
        updates.iter().next(),
        Some(RawUpdate {
            class: 0,
            index: 1,
            value: 42
        })
    );
}

/// One report variable, two control variables.
const CONTROLLED_PROGRAM: &str = "(def (Report (volatile acked 0)) (limit 5) (pace 9))
    (when (> Ack.bytes_acked limit) (:= Report.acked (+ Report.acked pace)) (report))";

#[test]
fn two_messages_in_one_datagram() {
    let mut out = bytes(|out| measure(out, 1, 2, &[3]));
    ready(&mut out, 4);
    let all: Vec<_> = messages(&out).map(|m| m.expect("good")).collect();
    assert!(matches!(
        all[..],
        [
            V1Message::Measure { flow: 1, .. },
            V1Message::Ready { id: 4 }
        ]
    ));
}

#[test]
fn every_malformed_message_is_an_error() {
    let short_create = bytes(|out| create(out, 1, &a_create("x")));
    let install = bytes(|out| install(out, 9, &program(CONTROLLED_PROGRAM)));
    let long_text = [&short_create[..32], &[0xff; 64]].concat();
    let bad_port = {
        let mut c = short_create.clone();
        c[22] = 1;
        c
    };
    let cases: [(&str, Vec<u8>); 12] = [
        ("7 bytes", vec![5, 0, 12, 0, 0, 0, 0]),
        (
            "length below the header",
            vec![5, 0, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        ),
        (
            "length beyond the end",
            vec![5, 0, 13, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        ),
        ("unknown type", vec![6, 0, 8, 0, 0, 0, 0, 0]),
        ("READY without its number", vec![5, 0, 8, 0, 0, 0, 0, 0]),
        (
            "READY with excess bytes",
            vec![5, 0, 13, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
        ),
        (
            "short CREATE",
            [&[0, 0, 32, 0], &short_create[4..32]].concat(),
        ),
        ("CREATE with a name that is not UTF-8", long_text),
        ("CREATE with a port above 65535", bad_port),
        (
            "MEASURE whose body is no multiple of 8",
            vec![1, 0, 20, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4],
        ),
        (
            "MEASURE with a count above its contents",
            vec![1, 0, 16, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        ),
        ("INSTALL with a count above its contents", {
            let mut i = install;
            i[16] = 200;
            i
        }),
    ];
    for (case, datagram) in cases {
        let mut all = messages(&datagram);
        let error = all.next().expect("something").expect_err(case);
        assert!(!error.to_string().is_empty());
        assert!(all.next().is_none(), "{case}: nothing after an error");
    }
}

fn a_create(algorithm: &str) -> Create<'_> {
    let zero = address("0.0.0.0:0");
    Create {
        init_cwnd: 1,
        mss: 1,
        source: zero,
        destination: zero,
        algorithm,
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let mut out = vec![1, 2, 3];
    let fields = [0; 5_000];
    assert!(matches!(
        measure(&mut out, 1, 1, &fields),
        Err(WireError::TooLong { is: 40_016, .. })
    ));
    let name = "x".repeat(64);
    assert!(matches!(
        create(&mut out, 1, &a_create(&name)),
        Err(WireError::TooLong { is: 64, .. })
    ));
    let six = Create {
        source: address("[::1]:1"),
        ..a_create("x")
    };
    assert_eq!(
        create(&mut out, 1, &six),
        Err(WireError::NotExpressible(NotExpressible::Ipv6))
    );
    let ssthresh = [
        Update {
            target: CommandTarget::Cwnd,
            value: 1,
        },
        Update {
            target: CommandTarget::Ssthresh,
            value: 1,
        },
    ];
    assert_eq!(
        update_fields(&mut out, 1, None, &ssthresh),
        Err(WireError::NotExpressible(NotExpressible::Ssthresh))
    );
    let report = [Update {
        target: CommandTarget::Var(0),
        value: 1,
    }];
    let program = program(CONTROLLED_PROGRAM);
    let refused = change_program(&mut out, 1, 9, &program, &report);
    assert_eq!(
        refused,
        Err(WireError::NotExpressible(NotExpressible::Variable(0)))
    );
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn what_ccp_cannot_say_is_named() {
    let def = "(def (Report (volatile x 0)) (c 0))";
    let cases = [
        (
            "(when true (:= Report.x Flow.srtt_us))",
            NotExpressible::Signal("Flow.srtt_us"),
        ),
        (
            "(when Flow.in_recovery (report))",
            NotExpressible::Signal("Flow.in_recovery"),
        ),
        ("(when true (:= Ssthresh 5))", NotExpressible::Ssthresh),
        ("(when true (reset))", NotExpressible::Reset),
        (
            "(when true (if (> c 1) (:= Report.x (+ Report.x c))))",
            NotExpressible::Statement,
        ),
        (
            "(when true (:= Report.x (ewma 1/3 Ack.bytes_acked)))",
            NotExpressible::Weight(1, 3),
        ),
    ];
    for (clause, expected) in cases {
        let Ok(compiled) = ccplane_lang::compile(
            &format!("{def} {clause}"),
            &ccplane_lang::ProgramLimits::default(),
        ) else {
            panic!("{clause} does not compile");
        };
        let refused = install(&mut Vec::new(), 1, compiled.code());
        assert_eq!(
            refused,
            Err(WireError::NotExpressible(expected)),
            "{clause}"
        );
    }
    let empty = program("(def (c 0)) (when true (report))");
    assert_eq!(
        install(&mut Vec::new(), 1, &empty),
        Err(WireError::NotExpressible(NotExpressible::EmptyReport))
    );
    let init = program("(def (Report (volatile x 0)) (c 3000000000)) (when true (report))");
    assert_eq!(
        install(&mut Vec::new(), 1, &init),
        Err(WireError::NotExpressible(NotExpressible::Constant(
            3_000_000_000
        )))
    );
    let long = format!(
        "{def} (when true {})",
        "(:= Report.x (+ Report.x 1)) ".repeat(254)
    );
    let compiled = ccplane_lang::compile(&long, &ccplane_lang::ProgramLimits::default())
        .expect("254 statements");
    assert_eq!(
        install(&mut Vec::new(), 1, compiled.code()),
        Err(WireError::NotExpressible(NotExpressible::Instructions(257)))
    );
}

#[test]
fn a_constant_that_folding_made_large_is_put_together_from_small_ones() {
    let constants = [
        ("(* 65536 65536)", 1 << 32),
        ("2147483648", 1 << 31),
        ("(* 3 4294967295)", 3 * 0xffff_ffff),
        ("1152921504606846976", 1 << 60),
        ("18446744073709551615", u64::MAX),
    ];
    for (text, value) in constants {
        let original = program(&format!(
            "(def (Report (volatile x 0) (volatile y 0))) (when (< Ack.bytes_acked {text})
             (:= Report.x {text}) (:= Report.y (max {text} (+ Ack.bytes_acked Ack.packets_acked))) \
             (report))"
        ));
        let out = bytes(|out| install(out, 1, &original));
        let V1Message::Install(install) = one(&out) else {
            panic!("{out:?}")
        };
        let decoded = install.decode().expect("the encoded program is valid");
        let acks = [Signals::default()];
        let said = trace(&decoded, &acks);
        assert_eq!(said, trace(&original, &acks), "{text}");
        assert_eq!(said[0].1, [value, value], "{text}");
    }
}

#[test]
fn a_decoded_program_that_would_hurt_is_refused() {
    let good = bytes(|out| install(out, 9, &program(CONTROLLED_PROGRAM)));
    let change = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        bad
    };
    // A register index of 5000, a backward jump, an event beyond the end, an undefined operation.
    let far = {
        let mut bad = change(36 + 2, 0x88);
        bad[36 + 3] = 0x13;
        bad
    };
    for (case, bad) in [
        ("register", far),
        ("order", change(20, 0)),
        ("end", change(32, 90)),
        ("operation", change(84, 77)),
    ] {
        let V1Message::Install(install) = one(&bad) else {
            panic!("{case}")
        };
        assert!(install.decode().is_err(), "{case}");
    }
    let V1Message::Install(install) = one(&good) else {
        panic!()
    };
    assert!(install.decode().is_ok());
}

/// Language features that the published algorithms use, and the operators without an instruction of
/// their own.
const PROGRAMS: [&str; 5] = [
    CONTROLLED_PROGRAM,
    "(def (Report (volatile acked 0) (volatile lost 0) (volatile timeout false) (volatile rtt 0)) \
     (interval 10000))
     (when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (:= Report.rtt \
     Flow.rtt_sample_us)
         (:= Report.lost Ack.lost_pkts_sample) (:= Report.timeout Flow.was_timeout) (fallthrough))
     (when (|| Report.timeout (> Report.lost 0)) (report) (:= Micros 0))
     (when (> Micros interval) (report) (:= Micros 0))",
    "(def (Report (volatile lost 0) (volatile least +infinity) (volatile rate 0) (state 0)) (phase \
     0) (base 5000) (cap 90000))
     (when true (:= Report.lost (+ Report.lost Ack.lost_pkts_sample)) (:= Report.least (min \
     Report.least Flow.rtt_sample_us))
         (:= Report.rate (max Report.rate (min Flow.rate_outgoing Flow.rate_incoming))) \
     (fallthrough))
     (when (&& (> Micros Report.least) (== phase 0)) (:= Rate (/ base 2)) (:= phase 1) (report))
     (when (&& (> Micros (* Report.least 2)) (== phase 1)) (:= Rate base) (:= phase 2) (report))
     (when (&& (> Micros (* Report.least 8)) (== phase 2)) (:= phase 0) (:= Cwnd cap) (:= Micros \
     0) (report))",
    "(def (Report (volatile a 0) (volatile b 0) (smooth 0)) (volatile flag false) (top 7))
     (when (!= Ack.packets_acked 3) (:= Report.a (diff top Ack.packets_acked)) (:= Report.b (* \
     Cwnd 1.25)) (fallthrough))
     (when (>= Ack.packets_acked 2) (:= Report.smooth (ewma 7 Ack.bytes_acked)) (:= flag (! flag)) \
     (fallthrough))
     (when (|| (<= Ack.packets_acked 4) flag) (:= Report.a (if flag 9)) (:= Report.b (!if flag \
     Report.a)))
     (when true (:= local (+ local 1)) (:= Report.b (max local Report.b)) (report))",
    "(def (Report (x 1)))
     (when (> Ack.bytes_acked 100) (:= Report.x (diff Report.x Ack.bytes_acked)) (fallthrough))
     (when (> Ack.bytes_acked 200) (:= Report.x (diff Ack.bytes_acked Report.x)))
     (when true (:= Report.x (wrapped_max Report.x Ack.bytes_acked)) (report))",
];

/// Outcomes and reports of a datapath for a list of ACKs.
fn trace(program: &Program, acks: &[Signals]) -> Vec<(Outcome, Vec<u64>)> {
    trace_as(Compat::Documented, program, acks)
}

fn trace_as(compat: Compat, program: &Program, acks: &[Signals]) -> Vec<(Outcome, Vec<u64>)> {
    let capabilities = [
        Capabilities::PACING,
        Capabilities::RTT,
        Capabilities::DELIVERY_RATE,
        Capabilities::TIMERS,
    ];
    let all = capabilities
        .iter()
        .fold(Capabilities::CWND, |all, c| all.union(*c));
    let limits = OperatorLimits {
        agent_timeout: Duration::from_secs(1_000_000),
        ..OperatorLimits::default()
    };
    let mut table = ProgramTable::<1>::with_compat(limits, all, compat);
    table.install(program.clone()).expect("room");
    let mut flow = Flow::<64>::new(Time::ZERO, 10_000);
    flow.apply(
        Time::ZERO,
        &Command::SetProgram {
            uid: program.uid(),
            updates: &[],
        },
        &table,
    )
    .expect("installed");
    let mut transport = Transport {
        cwnd: 20_000,
        rate: 0,
        ssthresh: u64::MAX,
        now: Time::ZERO,
    };
    let mut steps = Vec::new();
    for signals in acks {
        transport.now += Duration::from_micros(1_000 + signals.bytes_acked);
        let outcome = flow.on_ack(&transport, signals, &table);
        transport.cwnd = outcome.cwnd.unwrap_or(transport.cwnd);
        transport.rate = outcome.rate.unwrap_or(transport.rate);
        let fields = flow.report(&table).to_vec();
        if outcome.report.is_some() {
            flow.report_queued(&table);
        }
        steps.push((outcome, fields));
    }
    steps
}

fn signals() -> impl Strategy<Value = Signals> {
    (0u64..500, 0u64..6, 0u64..3, 0u64..40_000, 0u64..2).prop_map(
        |(bytes, packets, lost, rtt, timeout)| Signals {
            bytes_acked: bytes,
            packets_acked: packets,
            lost_pkts_sample: lost,
            rtt_sample_us: rtt,
            was_timeout: timeout,
            rate_incoming: 1_000 + bytes,
            rate_outgoing: 900 + 2 * bytes,
            ..Signals::default()
        },
    )
}

proptest! {
    /// A program that went through CCP's encoding behaves like the original: same windows, rates
    /// and reports.
    #[test]
    fn an_encoded_program_means_the_same(
        which in 0..PROGRAMS.len(),
        acks in prop::collection::vec(signals(), 1..60),
    ) {
        let original = program(PROGRAMS[which]);
        let out = bytes(|out| install(out, 9, &original));
        let V1Message::Install(install) = one(&out) else {
            panic!("{out:?}")
        };
        let decoded = install.decode().expect("the encoded program is valid");
        prop_assert_eq!(decoded.report_vars(), original.report_vars());
        prop_assert_eq!(trace(&decoded, &acks), trace(&original, &acks));
    }

    /// The same holds for a program that uses the reference's `(fallthrough)`, on a datapath that
    /// implements it.
    #[test]
    fn an_encoded_program_of_the_references_fallthrough_keeps_it(
        which in 0..PROGRAMS.len(), acks in prop::collection::vec(signals(), 1..60)
    ) {
        let original = program(&PROGRAMS[which].replacen("(def", "(def (compat libccp)", 1));
        let out = bytes(|out| install(out, 9, &original));
        let V1Message::Install(install) = one(&out) else { panic!("{out:?}") };
        let decoded = install.decode().expect("the encoded program is valid");
        prop_assert_eq!(trace_as(Compat::Libccp, &decoded, &acks), trace(&original, &acks));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(datagram in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzz::read(&datagram);
    }

    /// Damaged messages reach deeper into the decoders than random bytes.
    #[test]
    fn damaged_messages_are_read_without_a_panic(
        which in 0..PROGRAMS.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut out = bytes(|out| install(out, 9, &program(PROGRAMS[which])));
        out.extend(bytes(|out| create(out, 3, &a_create("cubic"))));
        out.extend(bytes(|out| measure(out, 3, 9, &[1, 2, 3])));
        for (at, value) in damage {
            let at = at.index(out.len());
            out[at] = value;
        }
        crate::fuzz::read(&out);
    }

    #[test]
    fn reports_come_back_as_they_were(
        flow: u32,
        number: u32,
        fields in prop::collection::vec(any::<u64>(), 0..100),
    ) {
        let out = bytes(|out| measure(out, flow, number, &fields));
        let V1Message::Measure {
            flow: f,
            program: p,
            fields: read,
        } = one(&out)
        else {
            panic!("{out:?}")
        };
        prop_assert_eq!(
            (f, p, read.iter().collect::<Vec<_>>()),
            (flow, number, fields)
        );
    }
}

#[test]
fn the_sticky_fallthrough_of_the_reference_is_undone() {
    // In the second clause's body the flag is cleared first, so that the third clause does not run
    // after it on a CCP datapath either.
    let program = program(PROGRAMS[1]);
    let out = bytes(|out| install(out, 9, &program));
    let clear = [1, 2, 1, 0, 0, 0, 2, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    let instrs = out[20 + 3 * 16..].as_chunks::<16>().0;
    assert_eq!(instrs.iter().filter(|i| **i == clear).count(), 1);
    assert!(program.uses(Op::After));
}
