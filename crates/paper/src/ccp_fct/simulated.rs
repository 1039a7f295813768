//! The list in the simulator.

use std::sync::Arc;

use ccplane_agent::Agent;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    FlowControl, FlowSpec, LinkSpec, Native, Network, SimError, SimOptions, Simulation,
    SteerOptions, TransportConfig, default_transport,
};
use ccplane_units::{Duration, Time};

use super::super::replay::{Message, Replay};
use super::super::simulations::{self, Job};
use super::draw::{self, CONNECTIONS};
use super::{EXPERIMENT, LINK, RTT, Who};
use ccplane_lab::Error;

/// One list under one control.
pub(super) struct Run {
    pub seed: u64,
    pub flows: usize,
    pub who: Who,
}

/// When the list begins: all connections are open.
const BEGIN: Duration = Duration::from_secs(1);
/// A flow that has not ended so long after the last one began never does.
const PATIENCE: Duration = Duration::from_secs(300);

impl Job for Run {
    /// µs that each flow took.
    type Result = Vec<u64>;

    fn name(&self) -> String {
        format!("sim-{}-{}", self.seed, self.who.name())
    }

    fn key(&self) -> String {
        format!(
            "{} flows, seed {}, {}, {LINK}, {RTT}",
            self.flows,
            self.seed,
            self.who.name()
        )
    }

    fn run(&self) -> Result<Vec<u64>, Error> {
        let list = draw::list(self.seed, self.flows, LINK);
        took(list, self.who, self.seed).map_err(simulations::broken(
            self.who.name(),
            self.seed,
            EXPERIMENT.name,
        ))
    }
}

fn took(list: Vec<Message>, who: Who, seed: u64) -> Result<Vec<u64>, SimError> {
    let mut network = Network::new();
    let (server, router, client) = (
        network.add_host("server"),
        network.add_switch("router"),
        network.add_host("client"),
    );
    network.add_link(server, router, LinkSpec::wire(Duration::ZERO));
    let queue = QueueSpec::DropTail(Size::MilliBdp(1_000));
    network.add_link(
        router,
        client,
        LinkSpec::new(LINK, RTT / 2).with_queue(queue, RTT),
    );
    network.add_link(client, server, LinkSpec::wire(RTT / 2));
    let mut sim = Simulation::new(network, SimOptions::seeded(seed))?;
    let congestion = congestion(&mut sim, who)?;
    let transport = Arc::new(TransportConfig {
        restart_after_idle: false,
        ..TransportConfig::clone(&default_transport())
    });
    let spec = FlowSpec::new(server, client)
        .with_congestion(congestion)
        .with_transport(transport);
    let last = list.last().map_or(Duration::ZERO, |message| message.at);
    let specs = vec![spec; CONNECTIONS as usize];
    let app = Replay::start(&mut sim, specs, list, Time::ZERO + BEGIN);
    let mut until = Time::ZERO + BEGIN + last;
    while !sim.app::<Replay>(app).is_some_and(Replay::finished) {
        if until.since(Time::ZERO + BEGIN + last) > PATIENCE {
            return Err(SimError::InvalidTopology(
                "flows did not end within five minutes of the last arrival".to_owned(),
            ));
        }
        until += Duration::from_secs(1);
        sim.run_until(until)?;
    }
    let took = sim.app::<Replay>(app).into_iter().flat_map(Replay::took);
    Ok(took.flatten().map(|took| took.as_micros()).collect())
}

fn congestion(sim: &mut Simulation, who: Who) -> Result<FlowControl, SimError> {
    let wrong = |error: &dyn std::fmt::Display| SimError::InvalidTopology(error.to_string());
    let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
    let (name, algorithm) = match who {
        Who::Native | Who::NativeAgain => return Ok(FlowControl::Native(Native::new_reno())),
        Who::Outside(report) | Who::Ccplane(report) => {
            let split = if matches!(who, Who::Outside(_)) {
                "agent"
            } else {
                "datapath"
            };
            let parameters = Parameters::new()
                .with("report", report.name())
                .with("split", split);
            let algorithm = Registry::builtin()
                .by_name("reno", &parameters)
                .map_err(|e| wrong(&e))?;
            ("reno", algorithm)
        }
    };
    agent.add_boxed(algorithm).map_err(|e| wrong(&e))?;
    let agent = sim.host_agent(agent, SteerOptions::default());
    Ok(FlowControl::Steered(agent, Arc::from(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ccp_fct::Every;

    /// A flow alone takes half a round trip and its bytes at the link's rate; one behind another on
    /// its connection waits.
    #[test]
    fn flows_take_what_the_path_says() {
        let at = |ms, connection, bytes| Message {
            at: Duration::from_millis(ms),
            connection,
            bytes,
        };
        let list = vec![
            at(0, 0, 1_448),
            at(500, 1, 1_000_000),
            at(501, 1, 1_448),
            at(502, 2, 1_448),
        ];
        for who in [
            Who::Native,
            Who::Ccplane(Every::Rtt),
            Who::Outside(Every::Rtt),
        ] {
            let took = took(list.clone(), who, 1).unwrap();
            assert_eq!(
                took[0], 50_062,
                "half of 100 ms, and 1,500 bytes at 192 Mbit/s"
            );
            // Slow start from ten segments: 10, 20, 40, … 691 segments are through in the seventh
            // round.
            assert!((600_000..800_000).contains(&took[1]), "{who:?} {took:?}");
            assert!(
                took[2] >= took[1] - 1_200,
                "it waits for the one before: {took:?}"
            );
            assert!(took[3] < 52_000, "{took:?}");
        }
    }

    #[test]
    fn a_small_list_is_the_same_each_time() {
        let list = draw::list(draw::SEEDS[0], 300, LINK);
        let run = || took(list.clone(), Who::Ccplane(Every::TenMs), 5).unwrap();
        let first = run();
        assert_eq!(first.len(), 300);
        assert!(first.iter().all(|us| *us >= 50_000));
        assert_eq!(first, run());
    }
}
