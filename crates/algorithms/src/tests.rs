//! Properties of every algorithm and every parameter value: programs compile within the limits, and
//! no report breaks them.

use ccplane_agent::{Agent, AgentOptions, DatapathId, DatapathInfo, FlowInfo};
use ccplane_datapath::Capabilities;
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

use crate::script::{Script, everything};
use crate::{Parameters, Registry};

/// Returns one parameter set per documented word of each parameter, and one with a report interval.
fn variants(name: &str) -> Vec<Parameters> {
    let registry = Registry::builtin();
    let doc = registry
        .docs()
        .find(|doc| doc.name == name)
        .expect("it is built in");
    let words = doc
        .parameters
        .iter()
        .flat_map(|p| p.values.split(" | ").map(|word| (p.name, word)));
    let single = words.filter(|(_, word)| !word.contains(' '));
    single
        .chain([("report", "10ms")])
        .map(|(name, word)| Parameters::new().with(name, word))
        .collect()
}

#[test]
fn every_variant_compiles_within_the_limits() {
    for name in ["reno", "cubic", "dctcp"] {
        for parameters in variants(name) {
            let mut agent = Agent::new(AgentOptions::default());
            let algorithm = Registry::builtin()
                .by_name(name, &parameters)
                .expect("documented values are accepted");
            agent
                .add_boxed(algorithm)
                .unwrap_or_else(|why| panic!("{name} {parameters:?}: {why:?}"));
            for hosted in agent.hosted_algorithms() {
                for program in &hosted.programs {
                    let cost = program.compiled.cost();
                    println!("{name} {parameters:?} {}: {cost:?}", program.name);
                    assert!(cost.vars <= 32, "{name} {parameters:?}: {cost:?}");
                    if program.name == "portable" {
                        let said = ccplane_wire::v1::install(&mut Vec::new(), 1, &program.code);
                        assert_eq!(said, Ok(()), "a CCP datapath understands it");
                    }
                }
            }
        }
    }
}

#[test]
fn built_in_programs_have_no_warnings() {
    for doc in Registry::builtin().docs() {
        let mut agent = Agent::new(AgentOptions::default());
        let Ok(algorithm) = Registry::builtin().by_name(doc.name, &Parameters::new()) else {
            panic!("{} has defaults", doc.name)
        };
        agent.add_boxed(algorithm).expect("its programs compile");
        for program in agent
            .hosted_algorithms()
            .flat_map(|hosted| &hosted.programs)
        {
            if let Some(warnings) = program.compiled.warnings() {
                panic!(
                    "{}, {}: {warnings:#}\n{}",
                    doc.name,
                    program.name,
                    program.compiled.source()
                );
            }
        }
    }
}

/// Sends reports to a flow with this segment size at the given times: each value in all fields,
/// then in all fields but one, which is 0.
fn tell(name: &str, mss: u64, times: &[Time], values: &[u64]) {
    let (began, datapath) = (Time::from_micros(1), DatapathId(0));
    let mut agent = Agent::new(AgentOptions::default());
    let algorithm = Registry::builtin().by_name(name, &Parameters::new());
    let algorithm = algorithm.expect("it is built in");
    agent.add_boxed(algorithm).expect("its programs compile");
    let info = DatapathInfo {
        id: 0,
        kind: "test".into(),
        capabilities: Capabilities(u64::MAX),
        max_programs: 8,
        max_instrs: 1_024,
        max_vars: 64,
        agent_timeout: Some(Duration::from_millis(500)),
    };
    agent.handle(began, datapath, WireEvent::Ready { datapath: info });
    let info = FlowInfo {
        mss: Bytes::new(mss),
        ..FlowInfo::default()
    };
    agent.handle(began, datapath, WireEvent::FlowOpened { flow: 1, info });
    let mut running = None;
    let mut programs = Vec::new();
    for &now in times {
        for &value in values {
            while let Some((_, command)) = agent.poll() {
                match command {
                    WireCommand::Install { program, .. } => programs.push(program),
                    WireCommand::SetProgram { uid, .. } => running = Some(uid),
                    WireCommand::Offer(_)
                    | WireCommand::Update { .. }
                    | WireCommand::Release { .. }
                    | WireCommand::Heartbeat { .. } => {}
                }
            }
            let running = programs
                .iter()
                .find(|program| Some(program.uid()) == running);
            let running = running.expect("the flow was set a program");
            for zero in 0..=running.report_vars() {
                let mut fields = vec![value; running.report_vars()];
                if let Some(field) = fields.get_mut(zero) {
                    *field = 0;
                }
                let (program, fields) = (running.uid(), &fields[..]);
                let report = WireEvent::Report {
                    flow: 1,
                    program,
                    urgent: false,
                    fields,
                };
                agent.handle(now, datapath, report);
            }
        }
        if agent.next_deadline().is_some_and(|due| due <= now) {
            agent.on_deadline(now);
        }
    }
}

/// The datapath supplies the segment size, so it is untrusted.
#[test]
fn no_segment_size_ends_a_window_based_algorithm() {
    for name in ["reno", "cubic", "dctcp"] {
        for mss in [0, 1, 1 << 40, u64::MAX] {
            tell(name, mss, &[Time::from_micros(1)], &[0, 1, 1_000, u64::MAX]);
        }
    }
}

/// A datapath supplies the clock, so it is untrusted.
#[test]
fn deadlines_stay_within_the_clock() {
    let before = Time::from_nanos(u64::MAX - 5_000_000);
    for doc in Registry::builtin().docs() {
        tell(
            doc.name,
            1_448,
            &[Time::from_micros(9), before, Time::MAX, Time::MAX],
            &[1, 20_000, 3],
        );
    }
}

/// A run without an acknowledgement, whether by timer or because a datapath repeats its state,
/// takes no RTT sample: the outcome is the same whether or not the previous sample is repeated.
#[test]
fn samples_are_not_counted_twice() {
    let all = everything();
    let without_recovery = Capabilities(all.0 & !Capabilities::RECOVERY.0);
    // BBR's programs have no timers and rely on the datapath to present each sample once.
    let mut cases: Vec<(Capabilities, String, &str)> = Registry::builtin()
        .names()
        .filter(|name| !name.starts_with("bbr"))
        .map(|name| (all, name.to_owned(), ""))
        .collect();
    for (capabilities, name, parameters) in [
        (all, "cubic", "hystart=rfc9406"),
        (all, "cubic", "report=ack"),
        (all, "cubic", "split=agent"),
        (without_recovery, "reno", "split=agent"),
        (without_recovery, "reno", ""),
        (without_recovery, "cubic", ""),
    ] {
        cases.push((capabilities, name.to_owned(), parameters));
    }
    for (capabilities, name, parameters) in cases {
        let lives = [true, false].map(|repeats| life(capabilities, &name, parameters, repeats));
        let [with, without] = &lives;
        let differs = with.iter().zip(without).position(|(a, b)| a != b);
        if let Some(run) = differs {
            panic!(
                "{name} {parameters}: run {run}: {:?}, not {:?}",
                with[run], without[run]
            );
        }
    }
}

/// Returns a flow's state after each run. The RTT varies between 20 and 50 ms, and each window is
/// followed by runs without an acknowledgement. With `repeats`, those runs see the last sample
/// again.
fn life(
    capabilities: Capabilities,
    name: &str,
    parameters: &str,
    repeats: bool,
) -> Vec<(u64, u64, u64, Vec<u64>)> {
    let mut script =
        Script::on(capabilities, name, parameters).expect("the datapath has the capabilities");
    let mut life = Vec::new();
    for window in 0..60u64 {
        let mut rtt = 20_000;
        for ack in 0..12u64 {
            rtt = 20_000 + (window % 7) * 4_000 + ack * 500;
            let _ = script.ack(Duration::from_micros(900), |s| s.rtt_sample_us = rtt);
            life.push(state(&script));
        }
        let _ = script.ack(Duration::from_micros(900), |s| {
            (s.bytes_acked, s.packets_acked) = (0, 0);
            s.rtt_sample_us = if repeats { rtt } else { 0 };
        });
        for _ in 0..10 {
            let _ = script.timer(Duration::from_millis(11));
            life.push(state(&script));
        }
    }
    life
}

fn state(script: &Script) -> (u64, u64, u64, Vec<u64>) {
    let transport = &script.transport;
    (
        transport.cwnd,
        transport.rate,
        transport.ssthresh,
        script.report(),
    )
}
