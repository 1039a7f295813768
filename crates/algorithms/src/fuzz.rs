//! Feeds arbitrary reports and events to every algorithm behind an agent and checks for panics and
//! overflow. Runs under libFuzzer (`fuzz/fuzz_targets/agent.rs`) and, with seeded random bytes,
//! under `cargo test`.

use std::net::SocketAddr;

use ccplane_agent::{Agent, AgentOptions, DatapathId, DatapathInfo, FlowInfo, FlowStats, Refusal};
use ccplane_datapath::Capabilities;
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{WireCommand, WireEvent};

use crate::{Parameters, Registry};

const FLOW_COUNT: usize = 3;
const DATAPATH_ID: DatapathId = DatapathId(1);

struct AlgorithmInput<'a>(&'a [u8]);

impl AlgorithmInput<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Returns a number of any magnitude, with values next to integer limits over-represented.
    fn number(&mut self) -> u64 {
        const BOUNDARY_VALUES: [u64; 8] = [
            0,
            1,
            1448,
            u32::MAX as u64,
            1 << 32,
            1 << 60,
            i64::MAX as u64,
            u64::MAX,
        ];
        let kind = self.byte();
        match kind {
            0..=63 => BOUNDARY_VALUES[usize::from(kind % 8)],
            64..=79 => BOUNDARY_VALUES[usize::from(kind % 8)].wrapping_add(1),
            _ => {
                let bytes = [(); 8].map(|()| self.byte());
                u64::from_be_bytes(bytes) >> (kind % 64)
            }
        }
    }

    fn duration(&mut self) -> Duration {
        Duration::from_nanos(self.number())
    }
}

/// Runs one algorithm on the events encoded in `data`. The first byte selects the algorithm.
pub fn agent(data: &[u8]) {
    let mut input = AlgorithmInput(data);
    let registry = Registry::builtin();
    let docs: Vec<_> = registry.docs().collect();
    let doc = docs[usize::from(input.byte()) % docs.len()];
    let mut parameters = Parameters::new();
    let choice = input.byte();
    // Sets one parameter to one of its documented words. Most of the words are valid values.
    if choice & 1 != 0 && !doc.parameters.is_empty() {
        let parameter = &doc.parameters[usize::from(choice >> 1) % doc.parameters.len()];
        let words: Vec<_> = parameter.values.split(" | ").collect();
        let word = words[usize::from(input.byte()) % words.len()];
        parameters = parameters.with(parameter.name, word);
    }
    let Ok(algorithm) = registry.by_name(doc.name, &parameters) else {
        return;
    };
    let mut agent = Agent::new(AgentOptions::default());
    if agent.add_boxed(algorithm).is_err() {
        return;
    }
    let programs: Vec<(u32, usize)> = agent
        .hosted_algorithms()
        .flat_map(|hosted| &hosted.programs)
        .map(|program| (program.uid, program.compiled.report_names().count()))
        .collect();
    let mut now = Time::from_micros(1);
    let datapath = DatapathInfo {
        id: 1,
        kind: "fuzz".to_owned(),
        capabilities: match input.byte() {
            0..=199 => Capabilities(u64::MAX),
            // Without RECOVERY, as on a gateway: some algorithms take a different branch there.
            200..=227 => Capabilities(!Capabilities::RECOVERY.0),
            bits => Capabilities(u64::from(bits) << (bits % 8)),
        },
        max_programs: 64,
        max_instrs: 1024,
        max_vars: 64,
        agent_timeout: Some(Duration::from_secs(1)),
    };
    agent.handle(now, DATAPATH_ID, WireEvent::Ready { datapath });
    // Program currently installed on each flow.
    let mut running = [programs[0].0; FLOW_COUNT];
    while !input.0.is_empty() {
        let what = input.byte();
        let flow = usize::from(what >> 4) % FLOW_COUNT;
        match what & 15 {
            0 => {
                let info = info(&mut input, doc.name);
                let flow = flow as u64;
                agent.handle(now, DATAPATH_ID, WireEvent::FlowOpened { flow, info });
            }
            1 => {
                let stats = FlowStats {
                    bytes_acked: Bytes::new(input.number()),
                    packets_lost: input.number(),
                    reports: input.number(),
                    lifetime: input.duration(),
                };
                let flow = flow as u64;
                agent.handle(now, DATAPATH_ID, WireEvent::FlowClosed { flow, stats });
            }
            2 => {
                let why = Refusal::UnknownProgram(running[flow]);
                let (flow, program) = (Some(flow as u64), running[flow]);
                agent.handle(now, DATAPATH_ID, WireEvent::Refused { flow, program, why });
            }
            // Large steps reach the end of the time range.
            3 if flow == 0 => now += Duration::from_nanos(input.number()),
            3 => now += Duration::from_nanos(input.number() >> 24),
            4 => now += Duration::from_millis(u64::from(input.byte())),
            _ => {
                now += Duration::from_micros(u64::from(what) * 100);
                let program = running[flow];
                let fields = programs
                    .iter()
                    .find(|(uid, _)| *uid == program)
                    .map_or(0, |(_, n)| *n);
                let fields: Vec<u64> = (0..fields).map(|_| input.number()).collect();
                let report = WireEvent::Report {
                    flow: flow as u64,
                    program,
                    urgent: what & 1 != 0,
                    fields: &fields,
                };
                agent.handle(now, DATAPATH_ID, report);
            }
        }
        if agent.next_deadline().is_some_and(|due| due <= now) {
            agent.on_deadline(now);
        }
        while let Some((_, command)) = agent.poll() {
            if let WireCommand::SetProgram { flow, uid, .. } = command {
                running[flow as usize % FLOW_COUNT] = uid;
            }
        }
    }
}

fn info(input: &mut AlgorithmInput<'_>, algorithm: &str) -> FlowInfo {
    let address = SocketAddr::from(([192, 0, 2, input.byte()], u16::from(input.byte())));
    FlowInfo {
        algorithm: algorithm.to_owned(),
        init_cwnd: Bytes::new(input.number()),
        mss: Bytes::new(input.number()),
        local: address,
        peer: address,
        cwnd: Bytes::new(input.number()),
        ssthresh: Bytes::new(input.number()),
        rate: Rate::from_bytes_per_sec(input.number()),
        srtt: input.duration(),
        live: input.byte() & 1 != 0,
        ..FlowInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use ccplane_agent::rng::SplitMix64;

    #[test]
    fn arbitrary_reports_do_not_overflow_algorithms() {
        let mut failed = Vec::new();
        for algorithm in 0..crate::names().len() as u8 {
            let outcome = std::panic::catch_unwind(|| {
                for seed in 0..800u64 {
                    let mut dice = SplitMix64(seed);
                    let mut data = vec![algorithm];
                    data.extend((0..1_500).map(|_| dice.below(256) as u8));
                    // Seeds alternate in pairs between no parameter and one. The first event opens
                    // a flow.
                    let with_parameter = seed / 2 % 2;
                    data[1] = data[1] & !1 | with_parameter as u8;
                    let at = 2 + with_parameter as usize;
                    // Even seeds run on a transport, odd ones on a gateway (200 clears RECOVERY).
                    (data[at], data[at + 1]) = (if seed % 2 == 0 { 0 } else { 200 }, 0);
                    super::agent(&data);
                }
            });
            if outcome.is_err() {
                failed.push(crate::names()[usize::from(algorithm)].clone());
            }
        }
        assert!(failed.is_empty(), "{failed:?}");
    }
}
