//! From a scenario, whose names the simulator's plan has resolved, to what runs on real packets.

use ccplane_datapath::Capabilities;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::scenario::{Change, Ends, Scenario, Until};
use ccplane_lab::sim::Plan;
use ccplane_qdisc::LineSpec;
use ccplane_units::Time;

use super::events::{LinkChange, LinkEvent};
use super::layout::Layout;
use super::{RealPlan, RealWorkload};

impl RealPlan {
    /// A run of a scenario of which nothing is refused. `contender` is who runs the workloads that
    /// name no algorithm, `wants` what has to be switched on for one.
    pub(crate) fn of(
        scenario: &Scenario,
        layout: &Layout,
        network: &Plan,
        contender: Option<&Contender>,
        seed: u64,
        buffer: usize,
        wants: impl Fn(&Contender) -> Result<Capabilities, Error>,
    ) -> Result<RealPlan, Error> {
        let mut workloads = Vec::with_capacity(scenario.workloads.len());
        for (index, workload) in scenario.workloads.iter().enumerate() {
            let own = workload.algorithm.as_ref().or(contender);
            let own = own.filter(|_| !workload.heeds_nothing());
            workloads.push(RealWorkload {
                spec: network.spec(index, workload, seed),
                contender: own.cloned(),
                compared: workload.is_compared(&scenario.contenders),
                wants: own.map_or(Ok(Capabilities::default()), &wants)?,
            });
        }
        let awaited = |(index, workload): (usize, &ccplane_lab::scenario::Workload)| {
            (workload.is_compared(&scenario.contenders) && workload.ends() == Ends::All)
                .then_some(index)
        };
        let nodes = network.network.hosts();
        Ok(RealPlan {
            hosts: layout.hosts(nodes.map(|node| (node, network.network.name(node)))),
            workloads,
            seed,
            duration: scenario.duration,
            until: match scenario.until {
                Until::Duration => Vec::new(),
                Until::FlowsDone => scenario
                    .workloads
                    .iter()
                    .enumerate()
                    .filter_map(awaited)
                    .collect(),
            },
            warm: scenario.warm,
            sample_every: scenario.sample_every,
            events: link_events(scenario, layout),
            buffer,
        })
    }
}

/// The scenario's events, as the emulator knows them.
pub(crate) fn link_events(scenario: &Scenario, layout: &Layout) -> Vec<LinkEvent> {
    let event = |event: &ccplane_lab::scenario::Event| {
        let change = match &event.change {
            Change::Rate(rate) => LinkChange::Line(LineSpec::Constant(*rate)),
            Change::Delay(delay) => LinkChange::Delay(*delay),
            Change::Loss(loss) => LinkChange::Loss(*loss),
            Change::Up(up) => LinkChange::Up(*up),
            // Refused.
            Change::Route(_) => return None,
        };
        Some(LinkEvent {
            at: Time::ZERO + event.at,
            // Refused where it is of another link.
            way: layout.side_of(&event.link.text)?.sends(),
            change,
        })
    };
    scenario.events.iter().filter_map(event).collect()
}
