//! Conversion of a scenario's plan to a run on real packets.

use ccplane_datapath::Capabilities;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::scenario::plan::Plan;
use ccplane_network::{LinkId, NetworkChange};
use ccplane_qdisc::DelayModel;
use ccplane_qdisc::marking::dscp_of;

use super::events::{LinkChange, LinkEvent};
use super::layout::Layout;
use super::{RealPlan, RealWorkload};

impl RealPlan {
    /// Returns the plan of a run of a supported scenario. `contender` controls the workloads that
    /// name no algorithm; `wants` returns the capabilities that a control needs.
    pub(crate) fn of(
        scenario: &Scenario,
        layout: &Layout,
        plan: &Plan,
        contender: Option<&Contender>,
        seed: u64,
        buffer: usize,
        wants: impl Fn(&Contender) -> Result<Capabilities, Error>,
    ) -> Result<RealPlan, Error> {
        let mut workloads = Vec::with_capacity(plan.workloads.len());
        for workload in &plan.workloads {
            let control = workload.control(contender);
            workloads.push(RealWorkload {
                spec: workload.spec(seed),
                contender: control.cloned(),
                compared: workload.compared,
                dscp: dscp_of(workload.band),
                capabilities: control.map_or(Ok(Capabilities::default()), &wants)?,
            });
        }
        let awaited = plan.workloads.iter().enumerate();
        Ok(RealPlan {
            hosts: layout.hosts(&plan.network),
            workloads,
            seed,
            duration: scenario.duration,
            awaited_workloads: awaited
                .filter_map(|(index, workload)| workload.awaited.then_some(index))
                .collect(),
            warm_up: scenario.warm_up,
            sample_every: scenario.sample_every,
            events: link_events(plan, layout),
            socket_buffer: buffer,
        })
    }

    /// Returns the DSCP of the packets that a workload's senders send.
    pub(super) fn dscp(&self, workload: usize) -> u8 {
        let workload = self.workloads.get(workload);
        workload.map_or(0, |workload| workload.dscp)
    }
}

/// Converts the plan's events to changes of the emulator. Events of other links and of routes are
/// not supported and have been rejected earlier.
pub(crate) fn link_events(plan: &Plan, layout: &Layout) -> Vec<LinkEvent> {
    let event = |(at, change): &(_, NetworkChange)| {
        let change_of = |link: LinkId, change| {
            let side = layout.side_of(&plan.network.link_name(link))?;
            Some(LinkEvent {
                at: *at,
                direction: side.direction(),
                change,
            })
        };
        match change {
            NetworkChange::Line(link, line) => change_of(*link, LinkChange::Line(line.clone())),
            NetworkChange::Delay(link, DelayModel::Fixed(delay)) => {
                change_of(*link, LinkChange::Delay(*delay))
            }
            NetworkChange::Loss(link, loss) => change_of(*link, LinkChange::Loss(*loss)),
            NetworkChange::Up(link) => change_of(*link, LinkChange::Up(true)),
            NetworkChange::Down(link) => change_of(*link, LinkChange::Up(false)),
            NetworkChange::Delay(..) | NetworkChange::Route(..) => None,
        }
    };
    plan.events.iter().filter_map(event).collect()
}
