//! Datapath and agent in the same thread: events that are due together are delivered together,
//! without allocation.

use std::sync::{Arc, Mutex};

use ccplane_agent::datapath::{
    AgentChannel, Datapath, DatapathCore, Delays, Incoming, InlineChannel, record_outcome,
};
use ccplane_agent::{
    Agent, AgentOptions, Algorithm, Control, DatapathId, FlowInfo, FlowStats, ProgramTables,
    Programs, Report, ReportBatch,
};
use ccplane_datapath::{Capabilities, OperatorLimits, Outcome, Signals, SteeredFlow, Transport};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{Updates, WireCommand, WireEvent};

/// Program that reports at every ACK.
const PROGRAM: &str = "(def (Report (volatile acked 0)))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (report))";

/// Sets the window to the reported value, and records the batch sizes and the final statistics.
#[derive(Default)]
struct Keeper {
    batches: Arc<Mutex<Vec<usize>>>,
    ends: Arc<Mutex<Vec<FlowStats>>>,
}

impl Algorithm for Keeper {
    type Flow = ();

    fn name(&self) -> &str {
        "keeper"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("fold", PROGRAM)
    }

    fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("fold", &[]);
    }

    fn on_report(&mut self, (): &mut (), report: &Report<'_>, control: &mut Control<'_>) {
        control.set_cwnd(Bytes::new(report.value(0).unwrap_or(0)));
    }

    fn on_reports(&mut self, batch: &mut ReportBatch<'_, ()>, control: &mut Control<'_>) {
        let mut together = 0;
        while let Some((flow, report)) = batch.next(control) {
            self.on_report(flow, &report, control);
            together += 1;
        }
        self.batches.lock().unwrap().push(together);
    }

    fn on_close(&mut self, (): (), last: &FlowStats) {
        self.ends.lock().unwrap().push(*last);
    }
}

/// Returns a datapath with three flows, at 1 ms.
fn datapath_with_three_flows(keeper: Keeper, delays: Delays) -> (Datapath<InlineChannel>, Time) {
    let mut agent = Agent::new(AgentOptions::default());
    agent.add(keeper).expect("it compiles");
    let way = InlineChannel::with_delays(agent, DatapathId(0), delays);
    let mut now = Time::from_micros(1_000);
    let tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
    let mut datapath = Datapath::new(now, DatapathCore::new(1, "test", tables, way));
    for flow in 1..=3 {
        datapath.open(now, flow, FlowInfo::default());
    }
    // Announcement, start, programs for the flows, answer: one delay each.
    for _ in 0..4 {
        now += delays.to_agent.max(delays.from_agent);
        datapath.poll(now);
    }
    (datapath, now)
}

fn transport_at(now: Time) -> Transport {
    Transport {
        cwnd: 1_000_000,
        rate: 0,
        ssthresh: u64::MAX,
        now,
    }
}

fn ack(datapath: &mut Datapath<InlineChannel>, now: Time, flow: u64, bytes_acked: u64) -> Outcome {
    let transport = transport_at(now);
    let signals = Signals {
        bytes_acked,
        mss: 1_000,
        ..Signals::default()
    };
    let mut flow = datapath.flow(flow).expect("it is open");
    flow.on_ack(&transport, &signals)
}

#[test]
fn events_due_together_are_delivered_together() {
    let (keeper, us) = (Keeper::default(), Duration::from_micros);
    let batches = Arc::clone(&keeper.batches);
    let delays = Delays {
        to_agent: us(20),
        from_agent: us(10),
    };
    let (mut datapath, now) = datapath_with_three_flows(keeper, delays);
    for flow in 1..=3 {
        let _ = ack(&mut datapath, now, flow, 50_000 + flow);
    }
    let _ = ack(&mut datapath, now + us(1), 1, 60_000);
    assert_eq!(datapath.next_deadline(), Some(now + us(20)));
    datapath.poll(now + us(19));
    assert_eq!(*batches.lock().unwrap(), []);
    datapath.poll(now + us(20));
    assert_eq!(*batches.lock().unwrap(), [3], "the fourth is not due");
    datapath.poll(now + us(21));
    assert_eq!(*batches.lock().unwrap(), [3, 1]);
    datapath.poll(now + us(30));
    assert_eq!(ack(&mut datapath, now + us(30), 3, 0).cwnd, Some(50_003));
    assert_eq!(ack(&mut datapath, now + us(30), 1, 0).cwnd, Some(50_001));
    datapath.poll(now + us(31));
    assert_eq!(ack(&mut datapath, now + us(31), 1, 0).cwnd, Some(60_000));
}

#[test]
fn the_end_of_a_flow_says_what_it_did() {
    let keeper = Keeper::default();
    let ends = Arc::clone(&keeper.ends);
    let (mut datapath, now) = datapath_with_three_flows(keeper, Delays::default());
    for _ in 0..5 {
        let _ = ack(&mut datapath, now, 2, 1_000);
    }
    let later = now + Duration::from_secs(3);
    datapath.close(later, 2, Bytes::new(5_000), 7);
    let expected = FlowStats {
        bytes_acked: Bytes::new(5_000),
        packets_lost: 7,
        reports: 5,
        lifetime: Duration::from_secs(3),
    };
    assert_eq!(*ends.lock().unwrap(), [expected]);
    assert!(datapath.flow(2).is_none() && datapath.flow(3).is_some());
}

#[test]
fn a_report_and_its_answer_allocate_nothing() {
    let keeper = Keeper::default();
    keeper.batches.lock().unwrap().reserve(10_000);
    let (mut datapath, now) = datapath_with_three_flows(keeper, Delays::default());
    let mut round = || {
        for flow in 1..=3 {
            let outcome = ack(&mut datapath, now, flow, 1_448);
            assert!(outcome.report.is_some());
        }
        datapath.poll(now);
    };
    round();
    let counted = allocation_counter::measure(|| (0..1_000).for_each(|_| round()));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

/// A datapath may have its way behind a pointer.
#[test]
fn a_boxed_channel_behaves_the_same() {
    let keeper = Keeper::default();
    let (batches, ends) = (Arc::clone(&keeper.batches), Arc::clone(&keeper.ends));
    let mut agent = Agent::new(AgentOptions::default());
    agent.add(keeper).expect("it compiles");
    let way: Box<dyn AgentChannel> = Box::new(InlineChannel::new(agent));
    let now = Time::from_micros(1_000);
    let tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
    let mut datapath = Datapath::new(now, DatapathCore::new(1, "test", tables, way));
    datapath.open(now, 1, FlowInfo::default());
    datapath.poll(now);
    datapath.poll(now);
    assert!(datapath.next_deadline().is_some(), "a heartbeat");
    let transport = transport_at(now);
    let signals = Signals {
        bytes_acked: 70_000,
        lost_pkts_sample: 1,
        mss: 1_000,
        ..Signals::default()
    };
    let mut flow = datapath.flow(1).expect("it is open");
    assert!(flow.on_ack(&transport, &signals).report.is_some());
    // The report was taken: it is not offered again.
    assert_eq!((datapath.reports(1), datapath.reports(2)), (Some(1), None));
    datapath.flush(now);
    assert_eq!(*batches.lock().unwrap(), [1]);
    let mut flow = datapath.flow(1).expect("it is open");
    assert_eq!(
        flow.next_deadline(),
        flow.next_deadline().min(Some(now + Duration::from_secs(1)))
    );
    assert_eq!(flow.on_deadline(&transport).cwnd, None, "not delivered yet");
    datapath.poll(now);
    let mut flow = datapath.flow(1).expect("it is open");
    assert_eq!(flow.on_deadline(&transport).cwnd, Some(70_000));
    datapath.close(now, 1, Bytes::new(1), 0);
    assert_eq!(ends.lock().unwrap().len(), 1);
}

#[test]
fn reports_are_counted_by_flow_and_together() {
    let (mut datapath, now) = datapath_with_three_flows(Keeper::default(), Delays::default());
    for (flow, acks) in [(1, 2), (3, 5)] {
        for _ in 0..acks {
            let _ = ack(&mut datapath, now, flow, 1_000);
        }
    }
    let counts = [1, 2, 3, 4].map(|flow| datapath.reports(flow));
    assert_eq!(counts, [Some(2), Some(0), Some(5), None]);
    assert_eq!(datapath.total_reports(), 7);
}

#[test]
fn a_flow_is_on_the_fallback_once_its_agent_is_silent() {
    let (mut datapath, now) = datapath_with_three_flows(Keeper::default(), Delays::default());
    let _ = ack(&mut datapath, now, 1, 1_000);
    assert_eq!(datapath.in_fallback(1), Some(false));
    let _ = ack(&mut datapath, now + Duration::from_secs(9), 1, 1_000);
    assert_eq!(datapath.in_fallback(1), Some(true));
    assert_eq!(datapath.in_fallback(4), None);
}

/// A new agent learns what is in force: what a call changed, and what it left.
#[test]
fn results_of_calls_are_kept_for_a_new_agent() {
    let mut info = FlowInfo::default();
    let transport = Transport {
        cwnd: 1,
        rate: 2,
        ssthresh: 3,
        now: Time::ZERO,
    };
    record_outcome(&mut info, &transport, &Outcome::default());
    let noted = |info: &FlowInfo| (info.cwnd, info.rate, info.ssthresh);
    let values = |cwnd, rate, ssthresh| {
        let rate = Rate::from_bytes_per_sec(rate);
        (Bytes::new(cwnd), rate, Bytes::new(ssthresh))
    };
    assert_eq!(noted(&info), values(1, 2, 3));
    let outcome = Outcome {
        cwnd: Some(4),
        rate: Some(5),
        ssthresh: Some(6),
        ..Outcome::default()
    };
    record_outcome(&mut info, &transport, &outcome);
    assert_eq!(noted(&info), values(4, 5, 6));
}

/// What was measured since the last report waits in the flow while the way has no room.
#[test]
fn unreported_values_can_be_read() {
    struct FullChannel;
    impl AgentChannel for FullChannel {
        fn try_report(&mut self, _: Time, _: &WireEvent<'_>) -> bool {
            false
        }
        fn send(&mut self, _: Time, _: WireEvent<'static>) {}
        fn recv(&mut self, _: Time) -> Option<Incoming> {
            None
        }
        fn next_deadline(&self) -> Option<Time> {
            None
        }
    }
    let now = Time::from_micros(1_000);
    let tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
    let mut shared = DatapathCore::new(1, "test", tables, FullChannel);
    let mut local = shared.open(now, 1, FlowInfo::default(), ());
    assert_eq!(shared.unreported_fields(&local), [0; 0]);
    let program = ccplane_lang::compile(PROGRAM, &ccplane_lang::ProgramLimits::default());
    let program = Arc::new(program.expect("it compiles").code().with_uid(5));
    let algorithm: Arc<str> = "keeper".into();
    for command in [
        WireCommand::Install {
            algorithm: Arc::clone(&algorithm),
            program,
        },
        WireCommand::Heartbeat { algorithm },
        WireCommand::SetProgram {
            flow: 1,
            uid: 5,
            updates: Updates::default(),
        },
    ] {
        shared.apply_command(now, &command, |_| Some(&mut local));
    }
    let transport = transport_at(now);
    let signals = Signals {
        bytes_acked: 700,
        ..Signals::default()
    };
    for _ in 0..2 {
        let outcome = shared.flow_mut(1, &mut local).on_ack(&transport, &signals);
        assert!(outcome.report.is_some());
    }
    assert_eq!(shared.unreported_fields(&local), [1_400]);
}
