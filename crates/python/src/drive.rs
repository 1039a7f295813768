//! Cost of a callback: an agent that handles reports one at a time or in batches, with no datapath.
//! Used by `ccplane.bench`.
#![expect(clippy::disallowed_methods, reason = "measures real time")]

use std::time::Instant;

use ccplane_agent::{
    Agent, Algorithm, Control, DatapathId, FlowInfo, Programs, Report, box_algorithm,
};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::Capabilities;
use ccplane_units::{Duration, Time};
use ccplane_wire::{DatapathInfo, WireEvent};
use pyo3::prelude::*;

use crate::Error;
use crate::algorithm::register;

const PROGRAM: &str =
    "(def (Report (volatile acked 0))) (when (> Ack.bytes_acked 0) (:= Report.acked 1) (report))";

/// Baseline: a Rust algorithm that does nothing.
struct Idle;

impl Algorithm for Idle {
    type Flow = ();

    fn name(&self) -> &str {
        "idle"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("all", PROGRAM)
    }

    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("all", &[]);
    }

    fn on_report(&mut self, (): &mut (), _report: &Report<'_>, _control: &mut Control<'_>) {}
}

/// Returns nanoseconds per report, for a class or for the Rust baseline if there is none. `flows`
/// flows report in turn, or all at once, `rounds` times. The first report variable is 1448, the
/// others are 0.
#[pyfunction]
#[pyo3(signature = (class, flows, together, rounds))]
pub(crate) fn drive(
    py: Python<'_>,
    class: Option<Bound<'_, PyAny>>,
    flows: u64,
    together: bool,
    rounds: u64,
) -> PyResult<f64> {
    let failed = |why: &dyn std::error::Error| Error::new_err(why.to_string());
    let algorithm = match class {
        None => box_algorithm(Idle),
        Some(class) => {
            let name: String = class.getattr("name")?.extract()?;
            let registry = register(Registry::empty(), &[class])?;
            registry
                .by_name(&name, &Parameters::new())
                .map_err(|why| failed(&why))?
        }
    };
    let mut agent = Agent::default();
    agent.add_boxed(algorithm).map_err(|why| failed(&why))?;
    py.detach(|| Ok(spent(&mut agent, flows, together, rounds)))
}

fn spent(agent: &mut Agent, flows: u64, together: bool, rounds: u64) -> f64 {
    let from = DatapathId(0);
    let all = Capabilities::keywords().filter_map(Capabilities::from_keyword);
    let datapath = DatapathInfo {
        id: 0,
        kind: "bench".to_owned(),
        capabilities: all.fold(Capabilities::default(), Capabilities::union),
        max_programs: 8,
        max_instrs: 256,
        max_vars: 32,
        agent_timeout: None,
    };
    agent.handle(Time::ZERO, from, WireEvent::Ready { datapath });
    for flow in 0..flows {
        let info = FlowInfo::default();
        agent.handle(Time::ZERO, from, WireEvent::FlowOpened { flow, info });
    }
    while agent.poll().is_some() {}
    let program = agent
        .hosted_algorithms()
        .next()
        .and_then(|hosted| hosted.programs.first());
    let (uid, count) = program.map_or((0, 0), |program| {
        (program.uid, program.report_names().len())
    });
    let mut fields = vec![0; count];
    if let Some(first) = fields.first_mut() {
        *first = 1448;
    }
    let report = |flow| WireEvent::Report {
        flow,
        program: uid,
        urgent: false,
        fields: &fields,
    };
    let events: Vec<WireEvent<'_>> = (0..flows).map(report).collect();
    let begun = Instant::now();
    for round in 0..rounds {
        let now = Time::ZERO + Duration::from_millis(round);
        if together {
            agent.handle_batch(now, from, &events);
        } else {
            for event in &events {
                agent.handle(now, from, event.clone());
            }
        }
        while agent.poll().is_some() {}
    }
    begun.elapsed().as_nanos() as f64 / (flows * rounds).max(1) as f64
}
