//! Batches of reports: in order, delivered to the algorithm as one, without allocation.

use crate::support::{Bench, DATAPATH, FIRST_PROGRAM, START_TIME, datapath, info, targets};
use ccplane_agent::{
    Agent, AgentOptions, Algorithm, Control, FlowInfo, FlowStats, Programs, Report, ReportBatch,
};
use ccplane_units::{Bytes, Duration};
use ccplane_wire::WireEvent;
use std::ops::RangeInclusive;

#[test]
fn a_batch_notices_a_program_that_changed_within_it() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.on_report(|_, control| control.set_program("second", &[]));
    let report = |fields| WireEvent::Report {
        flow: 1,
        program: bench.first,
        urgent: true,
        fields,
    };
    bench.agent.handle_batch(
        START_TIME,
        DATAPATH,
        &[report(&[1, 1]), report(&[2, 2]), report(&[3, 3])],
    );
    assert_eq!(bench.log()[1..], ["report 1 of flow 1: [1, 1]"]);
    let stats = bench.agent.stats("scripted").expect("it exists");
    assert_eq!(
        (stats.stale_reports, stats.reports, stats.urgent_reports),
        (2, 1, 1)
    );
}

/// Returns an agent with this algorithm and live flows, and the number of its one program.
fn agent_with_flows(
    algorithm: impl Algorithm + 'static,
    fallback_after: Option<Duration>,
    flows: RangeInclusive<u64>,
) -> (Agent, u32) {
    let mut agent = Agent::new(AgentOptions::default());
    agent.add(algorithm).expect("it compiles");
    let uid = agent
        .hosted_algorithms()
        .flat_map(|h| &h.programs)
        .map(|p| p.uid)
        .next();
    let datapath = datapath(fallback_after);
    agent.handle(START_TIME, DATAPATH, WireEvent::Ready { datapath });
    flows.for_each(|flow| {
        agent.handle(
            START_TIME,
            DATAPATH,
            WireEvent::FlowOpened {
                flow,
                info: info(""),
            },
        )
    });
    while agent.poll().is_some() {}
    (agent, uid.expect("one program"))
}

/// Windows set by the agent's commands.
fn commanded_windows(agent: &mut Agent) -> Vec<u64> {
    std::iter::from_fn(|| agent.poll())
        .map(|(_, command)| targets(&command)[0].1)
        .collect()
}

/// Decides for all flows of a batch at once.
struct Together;

impl Algorithm for Together {
    type Flow = u64;

    fn name(&self) -> &str {
        "together"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("first", FIRST_PROGRAM)
    }

    fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) -> u64 {
        control.set_program("first", &[]);
        0
    }

    fn on_report(&mut self, _: &mut u64, _: &Report<'_>, _: &mut Control<'_>) {
        panic!("on_reports receives all reports");
    }

    fn on_reports(&mut self, batch: &mut ReportBatch<'_, u64>, control: &mut Control<'_>) {
        let mut total = 0;
        while let Some((sum, report)) = batch.next(control) {
            *sum += report.get("acked").unwrap_or(0);
            total += *sum;
            control.set_cwnd(Bytes::new(total));
        }
    }
}

#[test]
fn a_batch_reaches_the_algorithm_as_one() {
    let (mut agent, uid) = agent_with_flows(Together, None, 1..=3);
    let report = |flow, fields| WireEvent::Report {
        flow,
        program: uid,
        urgent: false,
        fields,
    };
    let closed = WireEvent::FlowClosed {
        flow: 2,
        stats: FlowStats::default(),
    };
    let events = [
        report(1, &[1, 0]),
        report(9, &[1, 0]),
        report(2, &[10, 0]),
        closed,
        report(2, &[1, 0]),
        report(3, &[100, 0]),
    ];
    agent.handle_batch(START_TIME, DATAPATH, &events);
    let windows = commanded_windows(&mut agent);
    assert_eq!(
        windows,
        [1, 10, 100],
        "three batches: an unknown flow and a close lie between them"
    );
    agent.handle_batch(
        START_TIME,
        DATAPATH,
        &[report(1, &[1, 0]), report(3, &[1, 0])],
    );
    let windows = commanded_windows(&mut agent);
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
            Programs::new().with("first", FIRST_PROGRAM)
        }
        fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) -> u64 {
            control.set_program("first", &[]);
            0
        }
        fn on_report(&mut self, sum: &mut u64, report: &Report<'_>, control: &mut Control<'_>) {
            *sum += report.get("acked").unwrap_or(0);
            control.set_cwnd(Bytes::new(*sum));
            control.set_variable("gain", *sum);
        }
    }
    let (mut agent, uid) = agent_with_flows(Steady, Some(Duration::from_secs(1)), 0..=999);
    let mut round = || {
        for flow in 0..1_000 {
            agent.handle(
                START_TIME,
                DATAPATH,
                WireEvent::Report {
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
