//! Cost of a decision for an agent in the process that maps the kernel's memory, and for one in a
//! process of its own.
//!
//! One thread runs all parties in sequence, which excludes wake-ups and the scheduler: the
//! remainder is work, including system calls. The kernel's side is the bench's; ring, table, relay,
//! link and agent are the real ones.

use ccplane_agent::Agent;
use ccplane_datapath::OperatorLimits;
use ccplane_link::{DatapathLink, Local, Uplink};
use ccplane_units::Duration;
use ccplane_units::stats::upper_rank;
use ccplane_wire::WireEvent;

use super::{Echo, KernelSide, WARMUP_EXCHANGES};
use crate::clock;
use crate::error::LoadError;
use crate::kernel::Kernel;
use crate::map::layout;
use crate::registration::load::{AlgorithmSpec, RegistrationOptions};
use crate::relay::Relay;

/// Median time from a report in the ring to its answer in the table, ns.
#[derive(Clone, Copy, Debug)]
pub struct DecisionCost {
    /// For an agent in this process.
    pub mapped_ns: f64,
    /// For an agent behind the Unix link, including the relay.
    pub relayed_ns: f64,
}

/// Measures `decisions` decisions, in batches of `together` reports per poll.
pub fn decision_cost(decisions: usize, together: usize) -> Result<DecisionCost, LoadError> {
    let (mut agent, specs) = echo_agent()?;
    let options = RegistrationOptions {
        limits: OperatorLimits {
            agent_timeout: Duration::from_secs(10),
            ..OperatorLimits::default()
        },
        flows: 1,
        ..RegistrationOptions::default()
    };
    let mut kernel = Kernel::load(&specs, &options)?;
    let memory = kernel.bench_memory()?;
    let datapath = KernelSide::open(&memory)?;
    datapath.post(layout::REC_OPEN, 0, &[])?;
    let here = ccplane_agent::DatapathId(0);
    let ready = WireEvent::Ready {
        datapath: kernel.info(),
    };
    agent.handle(clock::now(), here, ready);
    let mapped_ns = datapath.measure_decisions(decisions, together, || {
        kernel.drain(&mut |batch| agent.handle_batch(clock::now(), here, &batch));
        while let Some((_, command)) = agent.poll() {
            kernel.apply(&command);
        }
    })?;

    let path = std::env::temp_dir().join(format!("ccplane-decision-{}", std::process::id()));
    let mut link = Local::bind(&path)
        .map_err(|error| LoadError::Mismatch(format!("the benchmark's link: {error}")))?;
    let (mut agent, _) = echo_agent()?;
    let (mut uplink, mut nobody) = (Uplink::new(&path), ());
    let mut relay = Relay::new(&mut kernel, &mut uplink, &mut nobody);
    // Connecting discards the contents of the ring. The flow is announced to the new agent as
    // resumed.
    relay.poll_once();
    datapath.post(layout::REC_RESUME, 0, &[])?;
    let relayed_ns = datapath.measure_decisions(decisions, together, || {
        relay.poll_once();
        let now = clock::now();
        link.receive(&mut agent, now);
        while let Some((to, command)) = agent.poll() {
            link.send(&mut agent, now, to, &command);
        }
        link.flush(&mut agent);
        relay.poll_once();
    })?;
    Ok(DecisionCost {
        mapped_ns,
        relayed_ns,
    })
}

fn echo_agent() -> Result<(Agent, Vec<AlgorithmSpec>), LoadError> {
    let mut agent = Agent::default();
    let added = agent.add(Echo("bench_work"));
    added.map_err(|error| LoadError::Mismatch(format!("the benchmark's program: {error}")))?;
    let specs = agent
        .hosted_algorithms()
        .map(|hosted| AlgorithmSpec::from(&**hosted))
        .collect();
    Ok((agent, specs))
}

impl KernelSide<'_> {
    /// Returns the median time of a decision in nanoseconds. `turn` must process the ring until the
    /// answers are in the table.
    fn measure_decisions(
        &self,
        decisions: usize,
        together: usize,
        mut turn: impl FnMut(),
    ) -> Result<f64, LoadError> {
        // Runs until the flow has its program.
        while !self.has_control_words() {
            turn();
        }
        self.take_control_words();
        let program = self
            .slot
            .control
            .tag
            .load(std::sync::atomic::Ordering::Relaxed);
        let mut took = Vec::with_capacity(decisions / together);
        for n in 0..(WARMUP_EXCHANGES + decisions) / together {
            for report in 0..together {
                let acked = 100_000 + (n * together + report) as u64;
                self.post(
                    layout::REC_REPORT,
                    program,
                    &[acked, 0, 20_000, 1_000_000, 10, 0],
                )?;
            }
            let from = clock::now();
            turn();
            let ns = clock::now().since(from).as_nanos();
            while !self.has_control_words() {
                turn();
            }
            self.take_control_words();
            if n >= WARMUP_EXCHANGES / together {
                took.push(ns);
            }
        }
        took.sort_unstable();
        let median = upper_rank(&took, 0.5).unwrap_or(0);
        Ok(median as f64 / together as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{missing_requirement, skip};

    #[test]
    fn an_agent_behind_a_relay_costs_more_and_answers() {
        if let Some(reason) = missing_requirement() {
            return skip("an_agent_behind_a_relay_costs_more_and_answers", &reason);
        }
        for together in [1, 16] {
            let cost = decision_cost(320, together).unwrap_or_else(|error| panic!("{error}"));
            eprintln!("{together} together: {cost:?}");
            assert!(
                cost.mapped_ns > 0.0 && cost.relayed_ns > cost.mapped_ns,
                "{cost:?}"
            );
        }
    }
}
