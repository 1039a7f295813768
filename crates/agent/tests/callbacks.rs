//! Arguments of callbacks, and the effect of what they set.

use crate::support::{Bench, DATAPATH, START_TIME, targets};
use ccplane_agent::{FlowId, FlowStats, Refusal};
use ccplane_datapath::CommandTarget;
use ccplane_units::{Bytes, Duration, Rate};
use ccplane_wire::{WireCommand, WireEvent};

#[test]
fn settings_of_a_callback_form_one_command() {
    let mut bench = Bench::new();
    bench.open(1);
    let open = bench.commands();
    assert_eq!(open.len(), 1);
    assert!(matches!(open[0], WireCommand::SetProgram { flow: 1, uid, .. } if uid == bench.first));
    assert_eq!(targets(&open[0]), [(CommandTarget::Var(2), 5)]);

    bench.on_report(|report, control| {
        assert_eq!(
            (
                report.get("acked"),
                report.get("Report.lost"),
                report.get("gain")
            ),
            (Some(3), Some(4), None)
        );
        control.set_cwnd(Bytes::new(10));
        control.set_rate(Rate::from_bytes_per_sec(u64::MAX));
        control.set_ssthresh(Bytes::new(12));
        control.set_variable("pace", 13);
        control.set_cwnd(Bytes::new(14));
    });
    bench.report(1, bench.first, &[3, 4]);
    let all = [
        (CommandTarget::Cwnd, 14),
        (CommandTarget::Rate, u64::MAX),
        (CommandTarget::Ssthresh, 12),
        (CommandTarget::Var(3), 13),
    ];
    let commands = bench.commands();
    assert_eq!(commands.len(), 1);
    assert_eq!(targets(&commands[0]), all);
}

#[test]
fn gauges_of_a_flow_are_kept_until_it_closes() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.commands();
    bench.on_report(|_, control| {
        const NAMES: [&str; 20] = [
            "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q",
            "r", "s", "t",
        ];
        NAMES.iter().for_each(|name| control.gauge(name, 1.0));
        control.gauge("b", 2.5);
    });
    bench.report(1, bench.first, &[1, 1]);
    let flow = FlowId {
        datapath: DATAPATH,
        flow: 1,
    };
    let gauges = bench.agent.gauges(flow);
    assert_eq!(
        (gauges[1], gauges.len()),
        (("b", 2.5), 16),
        "and no more than the limit"
    );
    assert!(bench.commands().is_empty(), "it causes no command");
    let stats = FlowStats::default();
    bench.agent.handle(
        START_TIME,
        DATAPATH,
        WireEvent::FlowClosed { flow: 1, stats },
    );
    assert!(bench.agent.gauges(flow).is_empty());
}

#[test]
fn a_report_that_crossed_a_change_of_program_is_dropped_and_counted() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| {
        control.set_variable("gain", 9);
        control.set_program("second", &[("probe", 8)]);
        control.set_variable("probe", 7);
    });
    bench.report(1, bench.first, &[1, 1]);
    let commands: Vec<_> = bench.commands().into_iter().skip(1).collect();
    assert_eq!(
        targets(&commands[0]),
        [(CommandTarget::Var(2), 9)],
        "of the old program, before the change"
    );
    assert_eq!(
        targets(&commands[1]),
        [(CommandTarget::Var(1), 7)],
        "of the new program, with the change"
    );
    bench.log();

    bench.report(1, bench.first, &[1, 1]);
    bench.report(1, 4711, &[1, 1]);
    assert_eq!(bench.log(), Vec::<String>::new());
    bench.report(1, bench.second, &[6]);
    assert_eq!(bench.log(), ["report 2 of flow 1: [6]"]);
    let stats = bench.agent.stats("scripted").expect("it exists");
    assert_eq!((stats.stale_reports, stats.reports), (2, 2));
}

#[test]
fn reports_with_the_wrong_fields_and_of_unknown_flows_are_counted() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.report(1, bench.first, &[1]);
    bench.report(1, bench.first, &[1, 2, 3]);
    bench.report(2, bench.first, &[1, 2]);
    bench.event(WireEvent::FlowClosed {
        flow: 3,
        stats: FlowStats::default(),
    });
    let stats = bench.agent.stats("scripted").expect("it exists");
    assert_eq!((stats.malformed_reports, stats.reports), (2, 0));
    assert_eq!(bench.agent.orphan_events(), 2);
}

#[test]
fn names_that_do_not_exist_change_nothing() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| {
        control.set_variable("gian", 1);
        control.set_variable("Report.acked", 1);
        control.set_program("third", &[]);
    });
    bench.commands();
    bench.report(1, bench.first, &[1, 1]);
    assert_eq!(bench.commands(), []);
    assert_eq!(
        bench
            .agent
            .stats("scripted")
            .expect("it exists")
            .unknown_names,
        3
    );
}

#[test]
fn a_refusal_reaches_the_flow_it_is_for() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.log();
    bench.event(WireEvent::Refused {
        flow: Some(1),
        program: bench.first,
        why: Refusal::TableFull,
    });
    bench.event(WireEvent::Refused {
        flow: None,
        program: bench.first,
        why: Refusal::TableFull,
    });
    bench.event(WireEvent::Refused {
        flow: Some(8),
        program: bench.first,
        why: Refusal::TableFull,
    });
    // A flow of an earlier agent.
    bench.event(WireEvent::Refused {
        flow: Some(1),
        program: 0,
        why: Refusal::UnknownFlow,
    });
    let log = bench.log();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("table is full"), "{log:?}");
    assert_eq!(
        bench.agent.stats("scripted").expect("it exists").refusals,
        1
    );
}

#[test]
fn a_refused_program_leaves_the_old_one_running() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| control.set_program("second", &[]));
    bench.report(1, bench.first, &[1, 1]);
    bench.event(WireEvent::Refused {
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
    bench.on_report(|_, control| control.set_timer(Duration::from_millis(5)));
    bench.script.lock().expect("no panic").on_timer = Some(|control| {
        assert_eq!(control.flow_id(), None);
        control.set_cwnd(Bytes::new(1));
        assert!(
            control
                .flow(FlowId {
                    datapath: DATAPATH,
                    flow: 2
                })
                .is_none()
        );
        let mut flow = control
            .flow(FlowId {
                datapath: DATAPATH,
                flow: 1,
            })
            .expect("it lives");
        flow.set_cwnd(Bytes::new(5));
    });
    bench.report(1, bench.first, &[1, 1]);
    let due = START_TIME + Duration::from_millis(5);
    assert_eq!(bench.agent.next_deadline(), Some(due));
    bench
        .agent
        .on_deadline(START_TIME + Duration::from_millis(4));
    assert_eq!(bench.commands(), []);
    bench.agent.on_deadline(due);
    let commands = bench.commands();
    assert_eq!(
        commands.len(),
        1,
        "a callback without a flow of its own sets nothing"
    );
    assert_eq!(targets(&commands[0]), [(CommandTarget::Cwnd, 5)]);
    assert_eq!(bench.agent.next_deadline(), None);
}

#[test]
fn a_released_flow_is_silent_until_it_gets_a_program() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| {
        control.set_cwnd(Bytes::new(9_000));
        control.set_program("second", &[]);
        control.release();
        control.set_cwnd(Bytes::new(8_000));
    });
    bench.commands();
    bench.report(1, bench.first, &[1, 1]);
    assert_eq!(bench.commands(), [WireCommand::Release { flow: 1 }]);
    bench.log();
    // A report in flight at the release is dropped.
    bench.report(1, bench.first, &[1, 1]);
    assert_eq!((bench.log(), bench.commands()), (Vec::new(), Vec::new()));
    // A datapath without support for release refuses it for each flow.
    for _ in 0..2 {
        bench.event(WireEvent::Refused {
            flow: Some(1),
            program: 0,
            why: Refusal::NoRelease,
        });
    }
    let log = bench.log();
    assert!(
        log.len() == 2 && log[0].contains("its window is unchanged"),
        "{log:?}"
    );

    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| {
        control.release();
        control.set_program("second", &[]);
    });
    bench.commands();
    bench.report(1, bench.first, &[1, 1]);
    let commands = bench.commands();
    assert!(
        matches!(
            &commands[..],
            [WireCommand::SetProgram { flow: 1, uid, .. }] if *uid == bench.second
        ),
        "{commands:?}"
    );
}
