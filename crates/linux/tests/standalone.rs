//! Flows with a standalone program: no agent, no heartbeat and no reader. NewReno takes over only
//! on faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration as StdDuration;

use crate::common::direct::{Sender, program, spec};
use crate::common::*;
use ccplane_datapath::{Capabilities, Program};
use ccplane_linux::{
    AlgorithmSpec, FlowView, Kernel, LoadError, Observer, StandaloneSpec, run_reader,
};
use ccplane_units::Time;
use ccplane_wire::{Refusal, WireEvent};

const WAIT_TIMEOUT: StdDuration = StdDuration::from_secs(20);

/// Keeps `count` segments in flight, or half as many if the flow ran before.
fn segments(uid: u32, count: u32) -> Arc<Program> {
    let text = format!(
        "(def (Report (volatile acked 0)) (lived false) (n {count}))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Cwnd (* (if lived (/ n 2) n) Flow.mss)) (fallthrough))
(when (> Micros 1000) (:= Micros 0) (report))"
    );
    program(uid, &text)
}

/// Index of the variable `lived`.
const LIVED_INDEX: u8 = 1;

fn alone(name: &str, program: Arc<Program>) -> AlgorithmSpec {
    AlgorithmSpec {
        standalone: Some(StandaloneSpec {
            program: program.clone(),
            resumed_var: Some(LIVED_INDEX),
            sets_rate: false,
        }),
        ..spec(name, vec![program])
    }
}

fn runs(flow: &FlowView, uid: u32, count: u64) -> bool {
    flow.program == Some(uid)
        && flow.agent_controlled
        && !flow.in_fallback
        && flow.cwnd.get() == count * flow.mss.get()
}

#[test]
fn standalone_programs_steer_and_can_be_replaced() {
    if !can_run("standalone_programs_steer_and_can_be_replaced") {
        return;
    }
    let _host = lock_host();
    // Any agent would time out before the first poll.
    let mut kernel = Kernel::load(&[alone("t_alone", segments(1, 12))], &options(1))
        .unwrap_or_else(|e| panic!("{e}"));
    let watch = kernel.observe_flows();
    let sink = Sink::start("127.0.0.1");
    let sender = Sender::start(sink.address, "ccp_t_alone");
    eventually(WAIT_TIMEOUT, "the program runs", || {
        watch.live().any(|flow| runs(&flow, 1, 12))
    });
    pause(300);
    let flow = watch.live().next().expect("it lives");
    assert!(
        runs(&flow, 1, 12) && flow.fallbacks == 0 && flow.reports > 10,
        "{flow:?}"
    );

    // Live flows switch to the replacement, with `lived` set.
    for (uid, count) in [(2, 16), (3, 20), (4, 24), (5, 28), (6, 32), (7, 36)] {
        kernel
            .replace(&alone("t_alone", segments(uid, count)))
            .unwrap_or_else(|why| panic!("{why}"));
        eventually(WAIT_TIMEOUT, "the changed program runs", || {
            watch
                .live()
                .any(|flow| runs(&flow, uid, u64::from(count) / 2))
        });
    }
    // A new flow starts with it, with `lived` clear.
    let other = Sender::start(sink.address, "ccp_t_alone");
    eventually(WAIT_TIMEOUT, "a new flow runs it", || {
        watch.live().any(|flow| runs(&flow, 7, 36))
    });
    // Program indices are reused indefinitely.
    for uid in 8..40 {
        kernel
            .replace(&alone("t_alone", segments(uid, 10)))
            .unwrap_or_else(|why| panic!("text {uid}: {why}"));
        eventually(WAIT_TIMEOUT, "both run it", || {
            watch
                .live()
                .filter(|flow| flow.program == Some(uid))
                .count()
                == 2
        });
    }
    let (_, _, counters) = kernel.counters().next().expect("it is registered");
    assert_eq!(
        (counters.fallbacks, counters.ring_lost),
        (0, 0),
        "without a reader, nothing is lost"
    );
    // Unregistering ends the program, since nothing could end it later.
    drop(kernel);
    eventually(WAIT_TIMEOUT, "NewReno controls both flows", || {
        watch.live().filter(|flow| flow.in_fallback).count() == 2
    });
    sender.join();
    other.join();
}

#[test]
fn faults_give_a_flow_to_newreno_until_the_program_changes() {
    if !can_run("faults_give_a_flow_to_newreno_until_the_program_changes") {
        return;
    }
    let _host = lock_host();
    let faulty = "(def (Report (x 0)) (lived false) (zero 0)) \
        (when true (:= Cwnd (* 8 Flow.mss)) (:= Report.x (/ 1 zero)))";
    let spec = alone("t_faulty", program(1, faulty));
    let mut kernel = Kernel::load(&[spec], &patient()).unwrap_or_else(|e| panic!("{e}"));
    let watch = kernel.observe_flows();
    let sink = Sink::start("127.0.0.1");
    let sender = Sender::start(sink.address, "ccp_t_faulty");
    eventually(WAIT_TIMEOUT, "NewReno controls the flow", || {
        watch.live().any(|flow| {
            flow.in_fallback && !flow.agent_controlled && flow.cwnd.get() > 20 * flow.mss.get()
        })
    });
    let flow = watch.live().next().expect("it lives");
    assert!(
        flow.fallbacks == 1 && flow.faults > 100 && flow.program.is_none(),
        "{flow:?}"
    );
    let (_, _, counters) = kernel.counters().next().expect("it is registered");
    assert_eq!(counters.fallbacks, 1);
    pause(1_200);
    assert!(
        watch.live().all(|flow| flow.in_fallback),
        "the program is not resumed"
    );
    let changed = alone("t_faulty", segments(2, 20));
    kernel
        .replace(&changed)
        .unwrap_or_else(|why| panic!("{why}"));
    eventually(WAIT_TIMEOUT, "the changed program runs", || {
        watch.live().any(|flow| runs(&flow, 2, 10))
    });
    sender.join();
}

/// Without an agent only the refusal would reveal it.
#[test]
fn programs_with_missing_capabilities_are_refused() {
    if !can_run("programs_with_missing_capabilities_are_refused") {
        return;
    }
    let _host = lock_host();
    for lacking in [Capabilities::ONE_WAY_DELAY, Capabilities::TIMERS] {
        let needing = |uid| AlgorithmSpec {
            needs: Capabilities::CWND.union(lacking),
            ..alone("t_needing", segments(uid, 12))
        };
        let mut kernel = Kernel::load(&[alone("t_needing", segments(1, 12))], &patient())
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            kernel.replace(&needing(2)),
            Err(Refusal::MissingCapabilities(lacking))
        );
        assert_eq!(kernel.replace(&alone("t_needing", segments(3, 12))), Ok(()));
    }
    let needing = AlgorithmSpec {
        needs: Capabilities::ONE_WAY_DELAY,
        ..alone("t_needing", segments(1, 12))
    };
    let Err(LoadError::Lacks { name, .. }) = Kernel::load(&[needing], &patient()) else {
        panic!("no time stamps are attached");
    };
    assert_eq!(name, "ccp_t_needing");
}

/// Counts opened flows and acknowledged bytes.
#[derive(Clone, Default)]
struct EventCounter(Arc<[AtomicU64; 2]>);

impl Observer for EventCounter {
    fn on_event(&mut self, _now: Time, event: &WireEvent<'_>) {
        match event {
            WireEvent::FlowOpened { .. } => drop(self.0[0].fetch_add(1, Relaxed)),
            WireEvent::Report { fields, .. } => drop(self.0[1].fetch_add(fields[0], Relaxed)),
            _ => {}
        }
    }
}

#[test]
fn readers_see_all_reports_and_never_block_flows() {
    if !can_run("readers_see_all_reports_and_never_block_flows") {
        return;
    }
    let _host = lock_host();
    let spec = alone("t_read", segments(1, 12));
    let mut kernel = Kernel::load(&[spec], &options(1)).unwrap_or_else(|e| panic!("{e}"));
    let watch = kernel.observe_flows();
    let seen = EventCounter::default();
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, mut observer) = (stop.clone(), seen.clone());
    let reader = std::thread::spawn(move || {
        run_reader(&mut kernel, &stopped, &mut observer);
        kernel
    });
    let sink = Sink::start("127.0.0.1");
    let [opened, acked] = &*seen.0;
    // The reader is running; before, flows send no records.
    eventually(WAIT_TIMEOUT, "a flow is seen", || {
        send(sink.address, "ccp_t_read", 1, &AtomicBool::new(false)).expect("it completes");
        opened.load(Relaxed) > 0
    });
    pause(100);
    let (opened_before, acked_before) = (opened.load(Relaxed), acked.load(Relaxed));
    // Loopback carries more than a megabyte in the millisecond after the last report.
    let bytes = send(
        sink.address,
        "ccp_t_read",
        200_000_000,
        &AtomicBool::new(false),
    )
    .expect("it completes");
    pause(100);
    stop.store(true, Relaxed);
    let kernel = reader.join().expect("no panic");
    let (_, _, counters) = kernel.counters().next().expect("it is registered");
    assert_eq!((counters.fallbacks, counters.ring_lost), (0, 0));
    assert_eq!(opened.load(Relaxed) - opened_before, 1);
    let acked = acked.load(Relaxed) - acked_before;
    assert!(
        acked > bytes * 9 / 10 && acked <= bytes + 10,
        "of {bytes} bytes {acked} were reported"
    );
    assert_eq!(watch.live().count(), 0);
}

#[test]
fn an_abandoned_ring_is_not_filled() {
    if !can_run("an_abandoned_ring_is_not_filled") {
        return;
    }
    let _host = lock_host();
    let spec = alone("t_unread", segments(1, 12));
    let mut kernel =
        Kernel::load(std::slice::from_ref(&spec), &options(1)).unwrap_or_else(|e| panic!("{e}"));
    let sink = Sink::start("127.0.0.1");
    let sender = Sender::start(sink.address, "ccp_t_unread");
    let drained = |kernel: &mut Kernel| {
        let (mut opened, mut reports) = (0, 0);
        kernel.drain(&mut |events| {
            for event in events {
                opened += usize::from(matches!(event, WireEvent::FlowOpened { .. }));
                reports += usize::from(matches!(event, WireEvent::Report { .. }));
            }
        });
        (opened, reports)
    };
    let (mut opened, mut reports) = (0, 0);
    eventually(WAIT_TIMEOUT, "the reader is notified", || {
        let new = drained(&mut kernel);
        (opened, reports) = (opened + new.0, reports + new.1);
        opened == 1 && reports > 10
    });
    // The reader stops here, as after an `attach` without `--metrics` that took over.
    drained(&mut kernel);
    kernel.replace(&spec).unwrap_or_else(|why| panic!("{why}"));
    pause(500);
    let (_, left) = drained(&mut kernel);
    assert!(
        left < 50,
        "{left} reports were written without a reader in half a second"
    );
    // A new reader receives reports again.
    let mut again = 0;
    eventually(WAIT_TIMEOUT, "reports arrive again", || {
        again += drained(&mut kernel).1;
        again > 10
    });
    sender.join();
}
