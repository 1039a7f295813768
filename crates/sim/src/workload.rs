//! Workloads inside a simulation.

use std::sync::Arc;

use ccplane_transport::Config;
use ccplane_units::Time;
use ccplane_workload::{Action, Exchange, Message, NodeId, Pairs, Running, Workload, WorkloadSpec};

use crate::app::{App, AppId, Cause};
use crate::flow::{Congestion, Direction, FlowId, FlowSpec};
use crate::{SimError, World};

/// A workload of a simulation.
#[derive(Debug)]
pub struct WorkloadApp {
    name: String,
    running: Running,
    congestion: Congestion,
    transport: Arc<Config>,
    band: u8,
    /// Flows by their slots. They were made in this order, so that their numbers rise.
    followed: Vec<FlowId>,
    opened: u64,
    /// Flows with an end that have neither arrived nor failed, of those without a slot.
    under_way: u64,
    /// When it asked to be woken.
    planned: Option<Time>,
}

impl WorkloadApp {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many flows it has opened.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Requests with their responses, in the order of their ends. Empty for workloads of another
    /// kind.
    pub fn exchanges(&self) -> &[Exchange] {
        self.running.exchanges()
    }

    /// Messages that have arrived, in the order of their ends. Empty for workloads of another kind.
    pub fn messages(&self) -> &[Message] {
        self.running.messages()
    }

    /// Requests without their responses, and messages that wait or are under way.
    pub fn unfinished(&self) -> u64 {
        self.running.unfinished()
    }

    /// Whether all of its flows with an end, requests and messages are over, and no more will come.
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
                    Direction::Backward
                } else {
                    Direction::Forward
                };
                // A flow that was given up takes no more; nothing is to be done about it.
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
    fn wake(&mut self, now: Time, me: AppId, cause: Cause, world: &mut World) -> Option<Time> {
        match cause {
            Cause::Time => {}
            Cause::Received(flow, direction) => match self.followed.binary_search(&flow) {
                Ok(slot) => {
                    self.running
                        .received(now, slot as u32, direction == Direction::Backward)
                }
                Err(_) => self.under_way = self.under_way.saturating_sub(1),
            },
            Cause::Failed(flow) => {
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
        if cause != Cause::Time && next == self.planned {
            return None;
        }
        self.planned = next;
        next
    }
}

impl World {
    /// Adds a workload. Its flows are under this control and have these settings;
    /// [`FlowView::app`](crate::FlowView) tells them from others.
    pub fn add_workload(
        &mut self,
        spec: WorkloadSpec,
        congestion: Congestion,
        transport: Arc<Config>,
    ) -> Result<AppId, SimError> {
        self.add_workload_in_band(spec, congestion, transport, 0)
    }

    /// The same with all its flows and datagrams in this [band](FlowSpec::band).
    pub fn add_workload_in_band(
        &mut self,
        spec: WorkloadSpec,
        congestion: Congestion,
        transport: Arc<Config>,
        band: u8,
    ) -> Result<AppId, SimError> {
        for node in hosts(&spec) {
            self.host_of(node)?;
        }
        let apps = (0..self.apps.len() as u32).map(AppId);
        let workloads = apps.filter(|app| self.workload(*app).is_some()).count();
        let mut app = WorkloadApp {
            name: spec.name.clone(),
            running: Running::new(spec, self.seed(), workloads as u32)?,
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

    /// A workload; `None` where the application is something else.
    pub fn workload(&self, id: AppId) -> Option<&WorkloadApp> {
        self.app(id)
    }
}

/// Every host that a workload names.
fn hosts(spec: &WorkloadSpec) -> Vec<NodeId> {
    match (&spec.kind, &spec.pairs) {
        (Workload::Trace { flows }, _) => {
            flows.iter().flat_map(|flow| [flow.from, flow.to]).collect()
        }
        (_, Pairs::Each(pairs)) => pairs.iter().flat_map(|(from, to)| [*from, *to]).collect(),
        (_, Pairs::Every { from, to }) => from.iter().chain(to).copied().collect(),
    }
}
