//! Workloads in a simulation.

use std::sync::Arc;

use ccplane_transport::TransportConfig;
use ccplane_units::Time;
use ccplane_workload::{
    Action, DeliveredMessage, Exchange, NodeId, Pairs, Workload, WorkloadGenerator, WorkloadSpec,
};

use crate::app::{App, AppId, WakeReason};
use crate::flow::{DataDirection, FlowControl, FlowId, FlowSpec};
use crate::{SimError, World};

/// Workload of a simulation.
#[derive(Debug)]
pub struct WorkloadApp {
    name: String,
    generator: WorkloadGenerator,
    congestion: FlowControl,
    transport: Arc<TransportConfig>,
    band: u8,
    /// Flows by slot. Their numbers increase with the slot.
    flows_by_slot: Vec<FlowId>,
    opened: u64,
    /// Finite flows without a slot that have neither arrived nor failed.
    outstanding: u64,
    /// Time of the requested wake-up.
    next_wake: Option<Time>,
}

impl WorkloadApp {
    /// Returns the name of the workload.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of flows opened.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns the completed exchanges, ordered by completion time. Empty for other kinds of
    /// workloads.
    pub fn exchanges(&self) -> &[Exchange] {
        self.generator.exchanges()
    }

    /// Returns the received messages, ordered by completion time. Empty for other kinds of
    /// workloads.
    pub fn messages(&self) -> &[DeliveredMessage] {
        self.generator.messages()
    }

    /// Returns the number of requests without a response and of messages not yet received.
    pub fn unfinished(&self) -> u64 {
        self.generator.unfinished()
    }

    /// Returns true if all finite flows, requests and messages are complete and no more will start.
    pub fn has_ended(&self) -> bool {
        self.outstanding == 0 && self.generator.has_ended()
    }

    fn execute_action(
        &mut self,
        now: Time,
        me: AppId,
        action: Action,
        world: &mut World,
    ) -> Result<(), SimError> {
        match action {
            Action::Open {
                from,
                to,
                bytes,
                finish,
                follow,
            } => {
                let spec = FlowSpec {
                    from,
                    to,
                    start: now,
                    bytes,
                    finish,
                    congestion: self.congestion.clone(),
                    transport: self.transport.clone(),
                    band: self.band,
                };
                let flow = world.add_app_flow(me, spec)?;
                self.opened += 1;
                self.outstanding += u64::from(bytes.is_some() && !follow);
                if follow {
                    self.flows_by_slot.push(flow);
                }
            }
            Action::Write {
                slot,
                backward: back,
                bytes,
                finish,
            } => {
                let direction = if back {
                    DataDirection::Backward
                } else {
                    DataDirection::Forward
                };
                // Writes to failed flows are ignored.
                if let Some(flow) = self.flows_by_slot.get(slot as usize) {
                    world.write(*flow, direction, bytes, finish);
                }
            }
            Action::Abort { slot } => {
                if let Some(flow) = self.flows_by_slot.get(slot as usize) {
                    world.abort(*flow);
                }
            }
            Action::Datagram { from, to, bytes } => {
                world.send_datagram(me, from, to, bytes, self.band)?
            }
        }
        Ok(())
    }
}

impl App for WorkloadApp {
    fn wake(&mut self, now: Time, me: AppId, cause: WakeReason, world: &mut World) -> Option<Time> {
        match cause {
            WakeReason::Timer => {}
            WakeReason::Received(flow, direction) => {
                match self.flows_by_slot.binary_search(&flow) {
                    Ok(slot) => self.generator.on_received(
                        now,
                        slot as u32,
                        direction == DataDirection::Backward,
                    ),
                    Err(_) => self.outstanding = self.outstanding.saturating_sub(1),
                }
            }
            WakeReason::Failed(flow) => {
                let one = u64::from(self.flows_by_slot.binary_search(&flow).is_err());
                self.outstanding = self.outstanding.saturating_sub(one);
            }
        }
        while let Some(action) = self.generator.poll(now) {
            if let Err(error) = self.execute_action(now, me, action, world) {
                world.fail(error);
                return None;
            }
        }
        if !world.awaited.is_empty() && self.has_ended() {
            world.awaited.retain(|app| *app != me);
        }
        let next = self.generator.next_time();
        if cause != WakeReason::Timer && next == self.next_wake {
            return None;
        }
        self.next_wake = next;
        next
    }
}

impl World {
    /// Adds a workload with this congestion control and transport configuration.
    /// [`FlowView::app`](crate::FlowView) identifies its flows.
    pub fn add_workload(
        &mut self,
        spec: WorkloadSpec,
        congestion: FlowControl,
        transport: Arc<TransportConfig>,
    ) -> Result<AppId, SimError> {
        self.add_workload_in_band(spec, congestion, transport, 0)
    }

    /// Adds a workload whose flows and datagrams use this [band](FlowSpec::band).
    pub fn add_workload_in_band(
        &mut self,
        spec: WorkloadSpec,
        congestion: FlowControl,
        transport: Arc<TransportConfig>,
        band: u8,
    ) -> Result<AppId, SimError> {
        for node in hosts(&spec) {
            self.host_index(node)?;
        }
        let apps = (0..self.apps.len() as u32).map(AppId);
        let workloads = apps.filter(|app| self.workload(*app).is_some()).count();
        let mut app = WorkloadApp {
            name: spec.name.clone(),
            generator: WorkloadGenerator::new(spec, self.seed(), workloads as u32)?,
            congestion,
            transport,
            band,
            flows_by_slot: Vec::new(),
            opened: 0,
            outstanding: 0,
            next_wake: None,
        };
        let first = app.generator.next_time().unwrap_or(Time::MAX);
        app.next_wake = Some(first);
        Ok(self.add_app(Box::new(app), first))
    }

    /// Returns a workload, or `None` if the application is something else.
    pub fn workload(&self, id: AppId) -> Option<&WorkloadApp> {
        self.app(id)
    }
}

fn hosts(spec: &WorkloadSpec) -> Vec<NodeId> {
    match (&spec.kind, &spec.pairs) {
        (Workload::Trace { flows }, _) => {
            flows.iter().flat_map(|flow| [flow.from, flow.to]).collect()
        }
        (_, Pairs::List(pairs)) => pairs.iter().flat_map(|(from, to)| [*from, *to]).collect(),
        (_, Pairs::AllToAll { from, to }) => from.iter().chain(to).copied().collect(),
    }
}
