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
    running: WorkloadGenerator,
    congestion: FlowControl,
    transport: Arc<TransportConfig>,
    band: u8,
    /// Flows by slot. Their numbers increase with the slot.
    followed: Vec<FlowId>,
    opened: u64,
    /// Finite flows without a slot that have neither arrived nor failed.
    under_way: u64,
    /// Time of the requested wake-up.
    planned: Option<Time>,
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
        self.running.exchanges()
    }

    /// Returns the received messages, ordered by completion time. Empty for other kinds of
    /// workloads.
    pub fn messages(&self) -> &[DeliveredMessage] {
        self.running.messages()
    }

    /// Returns the number of requests without a response and of messages not yet received.
    pub fn unfinished(&self) -> u64 {
        self.running.unfinished()
    }

    /// Returns true if all finite flows, requests and messages are complete and no more will start.
    pub fn ended(&self) -> bool {
        self.under_way == 0 && self.running.ended()
    }

    fn act(
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
                let flow = world.add_flow_of(me, spec)?;
                self.opened += 1;
                self.under_way += u64::from(bytes.is_some() && !follow);
                if follow {
                    self.followed.push(flow);
                }
            }
            Action::Write {
                slot,
                back,
                bytes,
                finish,
            } => {
                let direction = if back {
                    DataDirection::Backward
                } else {
                    DataDirection::Forward
                };
                // Writes to failed flows are ignored.
                if let Some(flow) = self.followed.get(slot as usize) {
                    world.write(*flow, direction, bytes, finish);
                }
            }
            Action::Abandon { slot } => {
                if let Some(flow) = self.followed.get(slot as usize) {
                    world.abort(*flow);
                }
            }
            Action::Datagram { from, to, bytes } => {
                world.datagram(me, from, to, bytes, self.band)?
            }
        }
        Ok(())
    }
}

impl App for WorkloadApp {
    fn wake(&mut self, now: Time, me: AppId, cause: WakeReason, world: &mut World) -> Option<Time> {
        match cause {
            WakeReason::Time => {}
            WakeReason::Received(flow, direction) => match self.followed.binary_search(&flow) {
                Ok(slot) => {
                    self.running
                        .received(now, slot as u32, direction == DataDirection::Backward)
                }
                Err(_) => self.under_way = self.under_way.saturating_sub(1),
            },
            WakeReason::Failed(flow) => {
                let one = u64::from(self.followed.binary_search(&flow).is_err());
                self.under_way = self.under_way.saturating_sub(one);
            }
        }
        while let Some(action) = self.running.poll(now) {
            if let Err(error) = self.act(now, me, action, world) {
                world.fail(error);
                return None;
            }
        }
        if !world.awaited.is_empty() && self.ended() {
            world.awaited.retain(|app| *app != me);
        }
        let next = self.running.next_time();
        if cause != WakeReason::Time && next == self.planned {
            return None;
        }
        self.planned = next;
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
            running: WorkloadGenerator::new(spec, self.seed(), workloads as u32)?,
            congestion,
            transport,
            band,
            followed: Vec::new(),
            opened: 0,
            under_way: 0,
            planned: None,
        };
        let first = app.running.next_time().unwrap_or(Time::MAX);
        app.planned = Some(first);
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
        (_, Pairs::Each(pairs)) => pairs.iter().flat_map(|(from, to)| [*from, *to]).collect(),
        (_, Pairs::Every { from, to }) => from.iter().chain(to).copied().collect(),
    }
}
