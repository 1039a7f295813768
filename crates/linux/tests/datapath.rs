//! The kernel datapath over loopback: programs, control words, limits, wake-ups and refusals.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant};

use crate::common::direct::*;
use crate::common::*;
use ccplane_datapath::{CommandTarget, Update};
use ccplane_emu::Emulator;
use ccplane_linux::{Kernel, LoadError, RegistrationOptions, attached, detach};
use ccplane_units::Duration;
use ccplane_wire::{Refusal, WireCommand, WireEvent};

#[test]
fn a_program_installed_later_is_interpreted_then_compiled() {
    if !can_run("a_program_installed_later_is_interpreted_then_compiled") {
        return;
    }
    let _host = lock_host();
    let mut direct = Direct::new("t_later", vec![program(1, WATCHER_PROGRAM)], 1, &patient());
    let sink = Sink::start("127.0.0.1");
    let sender = Sender::start(sink.address, &direct.kernel_name());
    direct.turn_until("reports of the first program", |direct| {
        direct.reports.len() > 5
    });
    let flow = direct.opened[0].0;
    let algorithm: Arc<str> = "t_later".into();
    direct.kernel.apply(&WireCommand::Install {
        algorithm,
        program: program(2, WATCHER_PROGRAM),
    });
    let updates = [Update {
        target: CommandTarget::Var(INTERVAL_INDEX),
        value: 5000,
    }];
    direct.kernel.apply(&WireCommand::SetProgram {
        flow,
        uid: 2,
        updates: updates.into_iter().collect(),
    });
    let by = |direct: &Direct, uid| direct.reports.iter().filter(|(_, u, ..)| *u == uid).count();
    direct.turn_until("reports of the second", |direct| by(direct, 2) > 20);
    let first = by(&direct, 1);
    direct.turn_for(50);
    assert_eq!(by(&direct, 1), first, "the first program is replaced");
    // The name now refers to an object with the compiled program; the old flow continues in the old
    // object.
    assert!(direct.kernel.is_compiled(1));
    direct.turn_until("the second is compiled", |direct| {
        direct.kernel.is_compiled(2)
    });
    assert!(available("ccp_t_later"));
    direct.uid = 2;
    let other = Sender::start(sink.address, &direct.kernel_name());
    direct.turn_until("a flow in the new object", |direct| {
        direct.opened.len() == 2
    });
    let [old, new] = [direct.opened[0].0, direct.opened[1].0];
    assert_ne!(old, new);
    direct.reports.clear();
    let of = |direct: &Direct, flow| {
        direct
            .reports
            .iter()
            .filter(|r| r.0 == flow && r.1 == 2 && r.3[ACKED_FIELD] > 0)
            .count()
    };
    direct.turn_until("both report", |direct| {
        of(direct, old) > 10 && of(direct, new) > 10
    });
    other.tell();
    direct.turn_until("the transfer ends", |_| other.is_done());
    other.join();
    let faults: u64 = direct.kernel.flows().map(|flow| flow.faults).sum();
    assert_eq!(faults, 0);
    assert!(
        direct
            .reports
            .iter()
            .all(|report| report.3[MSS_FIELD] > 1000)
    );
    // Twelve programs fit; further ones, and impossible commands, are refused by name.
    for uid in 10..21 {
        let algorithm: Arc<str> = "t_later".into();
        direct.kernel.apply(&WireCommand::Install {
            algorithm,
            program: program(uid, WATCHER_PROGRAM),
        });
    }
    direct.kernel.apply(&WireCommand::SetProgram {
        flow,
        uid: 99,
        updates: Default::default(),
    });
    direct.kernel.apply(&WireCommand::Update {
        flow,
        updates: [Update {
            target: CommandTarget::Var(0),
            value: 1,
        }]
        .into_iter()
        .collect(),
    });
    direct.kernel.apply(&WireCommand::Update {
        flow: flow + (1 << 32),
        updates: Default::default(),
    });
    direct.turn();
    assert!(
        direct.refused.contains(&Refusal::TableFull),
        "{:?}",
        direct.refused
    );
    assert!(direct.refused.contains(&Refusal::UnknownProgram(99)));
    assert!(
        direct.refused.contains(&Refusal::UnknownFlow),
        "another generation is another flow"
    );
    assert!(
        direct
            .refused
            .iter()
            .any(|r| matches!(r, Refusal::BadTarget(_))),
        "report variables are the program's"
    );
    direct.end(sender);
}

/// Reports from before a fallback are in the ring together with the flow's return. Commands derived
/// from them are refused as late, not as errors of the program.
#[test]
fn commands_from_before_a_fallback_are_too_late() {
    if !can_run("commands_from_before_a_fallback_are_too_late") {
        return;
    }
    let _host = lock_host();
    let mut direct = Direct::new(
        "t_late",
        vec![program(1, WATCHER_PROGRAM)],
        1,
        &options(200),
    );
    let sink = Sink::start("127.0.0.1");
    let sender = Sender::start(sink.address, &direct.kernel_name());
    direct.turn_until("reports", |direct| direct.reports.len() > 5);
    let flow = direct.opened[0].0;
    let sooner = WireCommand::Update {
        flow,
        updates: [Update {
            target: CommandTarget::Var(INTERVAL_INDEX),
            value: 5000,
        }]
        .into_iter()
        .collect(),
    };
    let answer = |direct: &mut Direct| {
        direct.kernel.apply(&sooner);
        direct.turn();
        direct.refused.pop()
    };
    assert_eq!(answer(&mut direct), None);
    eventually(StdDuration::from_secs(10), "the flow falls back", || {
        direct.kernel.flows().any(|flow| flow.in_fallback)
    });
    let mut back = false;
    eventually(
        StdDuration::from_secs(10),
        "the flow is steered again",
        || {
            direct.kernel.heartbeat("t_late");
            direct.kernel.poll(Duration::from_millis(2), &mut |events| {
            let anew = |event: &WireEvent<'_>| {
                matches!(event, WireEvent::FlowOpened { flow: of, .. } if *of == flow)
            };
            back |= events.iter().any(anew);
        });
            back
        },
    );
    assert_eq!(answer(&mut direct), Some(Refusal::UnknownFlow));
    direct.kernel.apply(&WireCommand::SetProgram {
        flow,
        uid: 1,
        updates: Default::default(),
    });
    assert_eq!(
        answer(&mut direct),
        None,
        "a command for the current state of the flow"
    );
    direct.end(sender);
}

#[test]
fn operator_limits_and_agent_rates_are_kept() {
    if !can_run("operator_limits_and_agent_rates_are_kept") {
        return;
    }
    let _host = lock_host();
    let mut options = patient();
    options.limits.max_cwnd = 300_000;
    let mut direct = Direct::new("t_limit", vec![program(1, WATCHER_PROGRAM)], 1, &options);
    direct.updates = vec![
        Update {
            target: CommandTarget::Cwnd,
            value: 100_000_000,
        },
        Update {
            target: CommandTarget::Rate,
            value: 2_500_000,
        },
    ];
    let sink = Sink::start("127.0.0.1");
    let sender = Sender::start(sink.address, &direct.kernel_name());
    direct.turn_until("the rate holds", |direct| {
        direct
            .kernel
            .flows()
            .any(|flow| flow.rate.bytes_per_sec() == 2_500_000)
    });
    direct.turn_for(200); // data already in the socket's buffer
    let (before, started) = (sink.received(), Instant::now());
    direct.turn_for(1000);
    let rate = (sink.received() - before) as f64 / started.elapsed().as_secs_f64();
    assert!(rate < 2_500_000.0 * 1.3, "{rate} bytes/s");
    if !emulated() {
        assert!(rate > 2_500_000.0 * 0.6, "{rate} bytes/s");
    }
    let flow = direct.kernel.flows().next().expect("one flow");
    assert!(flow.cwnd.get() <= 300_000, "{flow:?}");
    // The operator changes the limits while the flow runs.
    let mut limits = options.limits;
    limits.max_rate = 500_000;
    direct.kernel.set_limits(&limits);
    direct.turn_for(300);
    let (before, started) = (sink.received(), Instant::now());
    direct.turn_for(1000);
    let rate = (sink.received() - before) as f64 / started.elapsed().as_secs_f64();
    assert!(rate < 500_000.0 * 1.5, "{rate} bytes/s");
    direct.kernel.set_limits(&options.limits);
    direct.end(sender);
}

#[test]
fn a_full_table_sends_new_flows_to_the_fallback() {
    if !can_run("a_full_table_sends_new_flows_to_the_fallback") {
        return;
    }
    let _host = lock_host();
    let mut few = patient();
    few.flows = 2;
    let mut direct = Direct::new("t_full", vec![program(1, WATCHER_PROGRAM)], 1, &few);
    let sink = Sink::start("127.0.0.1");
    let connect = |direct: &Direct| {
        let mut stream = TcpStream::connect(sink.address).expect("it listens");
        choose(&stream, &direct.kernel_name()).expect("registered");
        stream.write_all(&[1; 20_000]).expect("room in the buffer");
        stream
    };
    let first: Vec<TcpStream> = (0..3).map(|_| connect(&direct)).collect();
    direct.turn_until("two opened", |direct| direct.opened.len() == 2);
    eventually(StdDuration::from_secs(5), "all three deliver", || {
        sink.received() == 60_000
    });
    let counters = |direct: &Direct| direct.kernel.counters().next().expect("one").2;
    assert_eq!(
        (counters(&direct).table_full, counters(&direct).flows),
        (1, 3)
    );
    let before: Vec<u64> = direct.opened.iter().map(|(flow, _)| *flow).collect();
    drop(first);
    direct.turn_until("two closed", |direct| direct.closed.len() == 2);
    let second = connect(&direct);
    direct.turn_until("a slot is free again", |direct| direct.opened.len() == 3);
    let (again, _) = direct.opened[2];
    assert!(!before.contains(&again), "numbers are not reused");
    assert!(
        before
            .iter()
            .any(|flow| flow & 0xff_ffff == again & 0xff_ffff),
        "slots are reused"
    );
    direct.kernel.apply(&WireCommand::Update {
        flow: before[0],
        updates: Default::default(),
    });
    direct.turn();
    assert_eq!(direct.refused, [Refusal::UnknownFlow]);
    drop(second);
}

#[test]
fn a_flow_beyond_the_table_is_steered_once_a_slot_is_free_and_is_counted_until_then() {
    if !can_run("a_flow_beyond_the_table_is_steered_once_a_slot_is_free_and_is_counted_until_then")
    {
        return;
    }
    let _host = lock_host();
    let mut few = patient();
    few.flows = 2;
    let mut direct = Direct::new("t_beyond", vec![program(1, WATCHER_PROGRAM)], 1, &few);
    let sink = Sink::start("127.0.0.1");
    let connect = |_| {
        let stream = TcpStream::connect(sink.address).expect("it listens");
        choose(&stream, &direct.kernel_name()).expect("registered");
        stream
    };
    let mut flows: Vec<TcpStream> = (0..6).map(connect).collect();
    let counters = |direct: &Direct| direct.kernel.counters().next().expect("one").2;
    direct.turn_until("two opened", |direct| direct.opened.len() == 2);
    let full = counters(&direct);
    assert_eq!((full.flows, full.without_slot, full.table_full), (6, 4, 4));
    // Flows with a slot end; others take their slots on later ACKs.
    drop(flows.drain(..2));
    direct.turn_until("two of the others opened", |direct| {
        for stream in &mut flows {
            stream.write_all(&[1; 100]).expect("connected");
        }
        std::thread::sleep(StdDuration::from_millis(20));
        direct.opened.len() == 4
    });
    let later = counters(&direct);
    assert_eq!(
        (later.flows, later.without_slot, later.table_full),
        (4, 2, 4)
    );
    drop(flows);
}

#[test]
fn only_urgent_reports_wake_the_agent_at_once() {
    if !can_run("only_urgent_reports_wake_the_agent_at_once") {
        return;
    }
    let _host = lock_host();
    let mut lazy = spec("t_wake", vec![program(1, WATCHER_PROGRAM)]);
    // Longer than pauses of a busy host, so that immediate and delayed wake-ups are distinguishable
    // there too.
    lazy.latency = Duration::from_millis(1_500);
    let kernel = Kernel::load(&[lazy], &patient()).unwrap_or_else(|error| panic!("{error}"));
    let mut direct = Direct::over(kernel, "t_wake", 1);
    // Without events it sleeps for the timeout rather than the latency.
    let started = Instant::now();
    direct.kernel.sleep(Duration::from_secs(2), false);
    assert!(
        started.elapsed() >= StdDuration::from_secs(2),
        "{:?}",
        started.elapsed()
    );

    // Half of what fits the emulated path: nothing is lost, and a busy host causes no apparent
    // loss.
    direct.updates = vec![Update {
        target: CommandTarget::Cwnd,
        value: 25_000,
    }];
    let emulator = Emulator::start(link()).expect("it starts");
    let sink = Sink::behind(&emulator);

    // An opening flow is urgent: it ends a sleep between reports.
    let name = direct.kernel_name();
    let address = sink.address;
    let stream = emulator
        .sender_ns()
        .run(|| {
            std::thread::spawn(move || {
                std::thread::sleep(StdDuration::from_millis(50));
                Sender::start(address, &name)
            })
        })
        .expect("inside");
    let started = Instant::now();
    direct.kernel.sleep(Duration::from_secs(5), true);
    assert!(
        started.elapsed() < StdDuration::from_millis(1_450),
        "{:?}",
        started.elapsed()
    );
    let sender = stream.join().expect("no panic");
    direct.turn_until("reports", |direct| direct.reports.len() > 5);

    // Reports every 10 ms are not urgent: they accumulate for as long as the algorithm allows. (A
    // wake-up pending from the last sleep may end the first one at once; a timeout after a pause of
    // the host, another.)
    let slept = (0..4).any(|_| {
        direct.turn();
        let started = Instant::now();
        direct.kernel.sleep(Duration::from_secs(5), true);
        started.elapsed() >= StdDuration::from_millis(1_450)
    });
    assert!(slept, "woken by reports that were not urgent");
    let before = direct.reports.len();
    direct.turn();
    let gathered = direct.reports.len() - before;
    assert!(gathered > 5, "{gathered} reports in 1.5 s");

    // The first report after a quiet period wakes immediately.
    direct.turn();
    let started = Instant::now();
    direct.kernel.sleep(Duration::from_secs(5), false);
    assert!(
        started.elapsed() < StdDuration::from_millis(1_450),
        "{:?}",
        started.elapsed()
    );
    direct.end(sender);
    emulator.finish().expect("it ends");
}

#[test]
fn missing_privileges_are_named_and_are_not_needed_after_loading() {
    if !can_run("missing_privileges_are_named_and_are_not_needed_after_loading") {
        return;
    }
    let _host = lock_host();
    let kernel = Kernel::load(
        &[spec("t_drop", vec![program(1, WATCHER_PROGRAM)])],
        &patient(),
    );
    let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
    let sink = Sink::start("127.0.0.1");
    // Capabilities are per thread: this one drops them, the test's others keep theirs.
    let thread = std::thread::spawn(move || {
        ccplane_linux::drop_capabilities().expect("dropping capabilities is always allowed");
        match Kernel::load(
            &[spec("t_dropped", vec![])],
            &RegistrationOptions::default(),
        )
        .map(drop)
        {
            Err(LoadError::NotPermitted { missing }) => assert_eq!(missing, "CAP_BPF, CAP_PERFMON"),
            other => panic!("{other:?}"),
        }
        let mut direct = Direct::over(kernel, "t_drop", 1);
        let sender = Sender::start(sink.address, &direct.kernel_name());
        direct.turn_until("reports", |direct| direct.reports.len() > 10);
        // The compiling thread has the capabilities of the thread that loaded.
        direct.kernel.apply(&WireCommand::Install {
            algorithm: "t_drop".into(),
            program: program(2, WATCHER_PROGRAM),
        });
        direct.turn_until("a later program is compiled", |direct| {
            direct.kernel.is_compiled(2)
        });
        direct.uid = 2;
        let later = Sender::start(sink.address, &direct.kernel_name());
        direct.turn_until("it reports", |direct| {
            direct.reports.iter().any(|(_, uid, ..)| *uid == 2)
        });
        for sender in [sender, later] {
            direct.end(sender);
        }
        direct
    });
    drop(thread.join().expect("a valid program"));
    assert!(!available("ccp_t_drop"));
}

#[test]
fn failed_loads_state_the_reason_and_leave_nothing() {
    if !can_run("failed_loads_state_the_reason_and_leave_nothing") {
        return;
    }
    let _host = lock_host();
    let load = |name: &str| {
        Kernel::load(
            &[spec(name, vec![program(1, WATCHER_PROGRAM)])],
            &RegistrationOptions::default(),
        )
    };
    for bad in ["", "with space", "dash-ed", "much_too_long"] {
        assert!(
            matches!(load(bad), Err(LoadError::BadName(_))) || bad.is_empty(),
            "{bad}"
        );
    }
    let kernel = load("t_twice").unwrap_or_else(|error| panic!("{error}"));
    // Another instance in the same process is refused by the lock.
    match load("t_twice").map(drop) {
        Err(LoadError::Running { name, pid }) => {
            assert_eq!(
                (name.as_str(), pid),
                ("ccp_t_twice", std::process::id().to_string())
            );
        }
        other => panic!("{other:?}"),
    }
    // If one of two fails, neither stays.
    let both = [spec("t_other", vec![]), spec("t_twice", vec![])];
    assert!(Kernel::load(&both, &RegistrationOptions::default()).is_err());
    assert!(available("ccp_t_twice") && !available("ccp_t_other"));
    // The kernel's own congestion controls cannot be replaced.
    let mut taken = spec("t_taken", vec![]);
    taken.kernel_name = "cubic".to_owned();
    match Kernel::load(&[taken], &RegistrationOptions::default()).map(drop) {
        Err(LoadError::NameTaken(name)) => assert_eq!(name, "cubic"),
        other => panic!("{other:?}"),
    }
    drop(kernel);
    assert!(!available("ccp_t_twice"));
    match Kernel::adopt(
        &[spec("t_twice", vec![])],
        &RegistrationOptions::default().limits,
    )
    .map(drop)
    {
        Err(error @ LoadError::NotAttached { .. }) => {
            assert!(error.to_string().contains("ccplane attach"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

/// The kernel releases a reset connection and then calls set_state, which must not start a flow
/// that never ends.
#[test]
fn reset_connections_leave_no_flow_behind() {
    if !can_run("reset_connections_leave_no_flow_behind") {
        return;
    }
    const FLOW_COUNT: usize = 30;
    let _host = lock_host();
    let mut direct = Direct::new("t_reset", vec![program(1, WATCHER_PROGRAM)], 1, &patient());
    let sink = Sink::start("127.0.0.1");
    let streams: Vec<TcpStream> = (0..FLOW_COUNT)
        .map(|_| {
            let mut stream = TcpStream::connect(sink.address).expect("it listens");
            choose(&stream, &direct.kernel_name()).expect("registered");
            stream.write_all(&[1; 20_000]).expect("room in the buffer");
            stream
        })
        .collect();
    direct.turn_until("all open", |direct| direct.opened.len() == FLOW_COUNT);
    for stream in streams {
        reset_on_close(&stream);
    }
    direct.turn_until("all closed", |direct| direct.closed.len() == FLOW_COUNT);
    direct.turn_for(50);
    let (_, _, counters) = direct.kernel.counters().next().expect("one");
    assert_eq!((counters.opened, counters.flows), (FLOW_COUNT as u64, 0));
    assert_eq!(direct.kernel.flows().count(), 0);
}

#[test]
fn a_pinned_registration_outlives_its_process_and_is_adopted() {
    if !can_run("a_pinned_registration_outlives_its_process_and_is_adopted") {
        return;
    }
    let _host = lock_host();
    let mut pinned = patient();
    pinned.pin = true;
    let name = "ccp_t_pin";
    let _however_it_ends = DetachOnDrop(name);
    let specs = [spec("t_pin", vec![program(1, WATCHER_PROGRAM)])];
    let mut direct = Direct::new("t_pin", vec![program(1, WATCHER_PROGRAM)], 1, &pinned);
    let sink = Sink::start("127.0.0.1");
    let sender = Sender::start(sink.address, name);
    direct.turn_until("reports", |direct| direct.reports.len() > 5);
    let first = direct.opened[0].0;
    // An orderly exit, as on SIGTERM; the registration stays until it is detached.
    drop(direct);
    assert!(available(name) && attached().contains(&name.to_owned()));
    match Kernel::load(&specs, &pinned).map(drop) {
        Err(error @ LoadError::Attached { .. }) => {
            assert!(error.to_string().contains("ccplane detach"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    let kernel = Kernel::adopt(&specs, &pinned.limits).unwrap_or_else(|error| panic!("{error}"));
    assert!(kernel.is_compiled(1), "its program is already in the pad");
    let mut direct = Direct::over(kernel, "t_pin", 1);
    direct.turn_until("the flow is announced as live", |direct| {
        direct.opened.len() == 1
    });
    assert_eq!(direct.opened[0].0, first);
    assert!(direct.opened[0].1.live);
    direct.turn_until("reports", |direct| direct.reports.len() > 5);
    direct.end(sender);
    drop(direct);
    assert_eq!(detach(Some(name)).expect("it works"), [name]);
    assert!(!available(name) && !attached().contains(&name.to_owned()));
    assert_eq!(
        detach(Some(name)).expect("an empty pass is not an error"),
        [""; 0]
    );
}

#[test]
fn ipv6_flows_are_seen_with_their_addresses() {
    const TEST: &str = "ipv6_flows_are_seen_with_their_addresses";
    if !can_run(TEST) || !has_ipv6(TEST) {
        return;
    }
    let _host = lock_host();
    let mut direct = Direct::new("t_six", vec![program(1, WATCHER_PROGRAM)], 1, &patient());
    let sink = Sink::start("::1");
    let mut stream = TcpStream::connect(sink.address).expect("it listens");
    choose(&stream, &direct.kernel_name()).expect("registered");
    stream.write_all(&[1; 20_000]).expect("room");
    direct.turn_until("it opens", |direct| direct.opened.len() == 1);
    let info = &direct.opened[0].1;
    assert_eq!(
        (info.local, info.peer),
        (stream.local_addr().expect("bound"), sink.address)
    );
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("connected");
    let _ = stream.read(&mut [0]);
}
