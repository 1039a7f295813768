//! The work that `scripts/instructions` counts instructions of: hops, ACKs or reports.
//! `instructions hop|ack|report LENGTH` prints how many there were.

use std::hint::black_box;
use std::sync::Arc;

use ccplane_agent::{Agent, AgentOptions, DatapathId};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::{
    Capabilities, Command as Order, Flow, OperatorLimits, ProgramTable, Signals, Transport,
};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    FlowControl, FlowSpec, LinkSpec, NodeId, SimOptions, Simulation, default_transport, topology,
};
use ccplane_transport::Native;
use ccplane_units::{Duration, Rate, Time};
use ccplane_wire::{DatapathInfo, FlowInfo, WireCommand, WireEvent};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Senders of the incast.
const SENDERS: u32 = 50;
/// Flows of the ACKs and the reports.
const FLOWS: u64 = 10;
/// Time between two ACKs of a flow: a delayed ACK on 192 Mbit/s, so that one ACK in 160 reports.
const ACK_GAP: Duration = Duration::from_micros(125);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, length] = words.as_slice() else {
        return Err("usage: instructions hop|ack|report LENGTH".into());
    };
    let length = length.parse()?;
    let done = match what.as_str() {
        "hop" => hops(length)?,
        "ack" => acks(length)?,
        "report" => reports(length)?,
        other => {
            return Err(format!("unknown operation `{other}`; choose hop, ack or report").into());
        }
    };
    println!("{done}");
    Ok(())
}

/// Packets over links in so many µs of an incast at 10 Gbit/s under native Cubic.
fn hops(length_us: u64) -> Outcome<u64> {
    let link = LinkSpec::new(
        Rate::from_bits_per_sec(10_000_000_000),
        Duration::from_micros(5),
    );
    let queue = QueueSpec::DropTail(Size::Packets(250));
    let bottleneck = link.clone().with_queue(queue, Duration::ZERO);
    let network = topology::incast(SENDERS, &link, bottleneck)?;
    let mut sim = Simulation::new(network, SimOptions::default())?;
    let hosts: Vec<NodeId> = sim.network().hosts().collect();
    let config = default_transport();
    for (number, sender) in (0..).zip(&hosts[1..]) {
        let flow = FlowSpec::new(*sender, hosts[0])
            .starting_at(Time::from_nanos(number * 10_000))
            .with_congestion(FlowControl::Native(Native::cubic()))
            .with_transport(Arc::clone(&config));
        sim.add_flow(flow)?;
    }
    sim.run_until(Time::from_micros(length_us))?;
    Ok(sim.counters().hops)
}

/// An agent with Reno.
fn agent() -> Outcome<Agent> {
    let mut agent = Agent::new(AgentOptions::default());
    agent.add_boxed(Registry::builtin().by_name("reno", &Parameters::new())?)?;
    Ok(agent)
}

/// ACKs of flows under Reno's program, which reports once per RTT.
fn acks(length: u64) -> Outcome<u64> {
    let agent = agent()?;
    let hosted = agent
        .hosted_algorithms()
        .next()
        .ok_or("the agent hosts no algorithm")?;
    let program = hosted
        .programs
        .first()
        .ok_or("the algorithm has no program")?;
    let limits = OperatorLimits {
        agent_timeout: Duration::MAX,
        ..OperatorLimits::default()
    };
    let mut table: ProgramTable = ProgramTable::new(limits, Capabilities(u64::MAX));
    table
        .install(program.compiled.code().with_uid(1))
        .map_err(|why| why.to_string())?;
    table.record_heartbeat(Time::ZERO);
    let mut flow: Flow<32> = Flow::new(Time::ZERO, 14_480);
    let set = Order::SetProgram {
        uid: 1,
        updates: &[],
    };
    flow.apply(Time::ZERO, &set, &table)
        .map_err(|why| why.to_string())?;
    let mut flows = vec![flow; FLOWS as usize];
    let signals = Signals {
        bytes_acked: 2_896,
        packets_acked: 2,
        packets_in_flight: 160,
        bytes_in_flight: 231_680,
        rate_incoming: 12_000_000,
        rate_outgoing: 12_000_000,
        rtt_sample_us: 20_000,
        srtt_us: 20_000,
        min_rtt_us: 20_000,
        mss: 1_448,
        ..Signals::default()
    };
    let mut reports = 0;
    for number in 0..length {
        let transport = Transport {
            cwnd: 231_680,
            rate: 12_000_000,
            ssthresh: u64::MAX,
            now: Time::ZERO + ACK_GAP * (number / FLOWS),
        };
        let flow = &mut flows[(number % FLOWS) as usize];
        let outcome = flow.on_ack(black_box(&transport), black_box(&signals), &table);
        if outcome.report.is_some() {
            reports += 1;
            black_box(flow.report(&table));
            flow.report_queued(&table);
        }
        let _ = black_box(outcome);
    }
    match reports {
        0 => Err("the program sent no report".into()),
        _ => Ok(length),
    }
}

/// Reports of flows to Reno, each of which it answers with a window.
fn reports(length: u64) -> Outcome<u64> {
    const DATAPATH: DatapathId = DatapathId(1);
    let mut agent = agent()?;
    let datapath = DatapathInfo {
        id: 1,
        kind: "counted".to_owned(),
        capabilities: Capabilities(u64::MAX),
        max_programs: 0,
        max_instrs: 0,
        max_vars: 0,
        agent_timeout: None,
    };
    agent.handle(Time::ZERO, DATAPATH, WireEvent::Ready { datapath });
    for flow in 0..FLOWS {
        let info = FlowInfo {
            algorithm: "reno".to_owned(),
            ..FlowInfo::default()
        };
        agent.handle(Time::ZERO, DATAPATH, WireEvent::FlowOpened { flow, info });
    }
    let mut set = None;
    while let Some((_, command)) = agent.poll() {
        if let WireCommand::SetProgram { uid, .. } = command {
            set = Some(uid);
        }
    }
    let program = set.ok_or("Reno set no program")?;
    let hosted = agent
        .hosted_algorithms()
        .next()
        .ok_or("the agent hosts no algorithm")?;
    let fields = hosted.programs.iter().find(|one| one.uid == program);
    let count = fields.map_or(0, |one| one.compiled.report_names().count());
    let fields = vec![1_448; count];
    let mut commands = 0;
    for number in 0..length {
        let report = WireEvent::Report {
            flow: number % FLOWS,
            program,
            urgent: false,
            fields: black_box(&fields),
        };
        agent.handle(Time::from_micros(2_000 * number), DATAPATH, report);
        while let Some(command) = agent.poll() {
            commands += 1;
            black_box(command);
        }
    }
    match commands {
        0 => Err("Reno sent no command for any report".into()),
        _ => Ok(length),
    }
}
