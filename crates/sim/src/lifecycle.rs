//! Lifecycle of a flow: addition, start, writes and end.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use ccplane_agent::FlowInfo;
use ccplane_network::{
    LinkId, Spread,
    random::{self, Purpose},
};
use ccplane_transport::{CLASS_COUNT, Connection, ConnectionState, Native, SequenceNumber};
use ccplane_units::{Bytes, Time};

use crate::app::{AppId, WakeReason};
use crate::endpoint::{Controller, ControllerKind, FlowEndpoint, new_of_same_kind};
use crate::event::{EventKind, OBJECTS_MAX};
use crate::flow::{
    DataDirection, FlowControl, FlowId, FlowSpec, InactiveState, PlannedControl, SimFlow,
};
use crate::packet::NO_INDEX;
use crate::{SimError, Simulation, Tracer, World, address};

impl World {
    /// Adds a flow. If its start time has passed, it starts immediately.
    pub fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, SimError> {
        self.add(NO_INDEX, spec)
    }

    /// Adds a flow whose application is notified of received writes and of failure.
    pub fn add_app_flow(&mut self, app: AppId, spec: FlowSpec) -> Result<FlowId, SimError> {
        self.add(app.0, spec)
    }

    fn add(&mut self, app: u32, spec: FlowSpec) -> Result<FlowId, SimError> {
        let (from, to) = (self.host_index(spec.from)?, self.host_index(spec.to)?);
        let wrong = |why: &str| SimError::Flow {
            from: self.network.name(spec.from).into(),
            to: self.network.name(spec.to).into(),
            why: why.into(),
        };
        if from == to {
            return Err(wrong(
                "source and destination are the same host; choose two hosts",
            ));
        }
        if spec.transport.mss == 0 {
            return Err(wrong(
                "its segments are empty; set `mss` in the transport's settings",
            ));
        }
        if self.flows.len() + 1 >= OBJECTS_MAX / 2 {
            return Err(SimError::TooLong("it has more than 134 million flows"));
        }
        self.routing.path(&self.network, from, to, 0)?;
        self.routing.path(&self.network, to, from, 0)?;
        let control = match spec.congestion {
            FlowControl::Native(native) => PlannedControl::Native(native),
            FlowControl::Steered(agent, algorithm) => {
                let keeper = self.hosts.get(self.agent_owner(agent.0) as usize).ok_or(
                    SimError::Unknown {
                        what: "agent",
                        number: agent.0,
                        count: self.hosts.len(),
                    },
                )?;
                if !keeper.has_algorithm(&algorithm) {
                    return Err(SimError::UnknownAlgorithm(algorithm.as_ref().into()));
                }
                PlannedControl::Steered {
                    agent: agent.0,
                    algorithm,
                }
            }
        };
        let id = FlowId(self.flows.len() as u32);
        self.unfinished += u64::from(spec.bytes.is_some());
        self.flows.push(SimFlow {
            from,
            to,
            start: spec.start.max(self.now),
            finished: Time::MAX,
            bytes: spec.bytes.unwrap_or(u64::MAX),
            finish: spec.finish,
            band: spec.band.min(CLASS_COUNT - 1),
            ends: NO_INDEX,
            app,
            transport: spec.transport,
            inactive: Some(Box::new(InactiveState::Planned(control))),
        });
        self.events
            .push(spec.start.max(self.now), EventKind::Start, id.0);
        Ok(id)
    }

    /// Appends bytes to a stream of an open flow; `finish` ends the stream. Returns false if the
    /// flow has not started or has ended.
    pub fn write(
        &mut self,
        flow: FlowId,
        direction: DataDirection,
        bytes: u64,
        finish: bool,
    ) -> bool {
        let Some(pair) = self
            .flows
            .get(flow.index())
            .map(|flow| flow.ends)
            .filter(|ends| *ends != NO_INDEX)
        else {
            return false;
        };
        let (writer, reader) = match direction {
            DataDirection::Forward => (pair, pair + 1),
            DataDirection::Backward => (pair + 1, pair),
        };
        let connection = &mut self.ends[writer as usize].connection;
        let is_connected = connection.is_some();
        match connection {
            Some(connection) => {
                connection.write(bytes);
                if finish {
                    connection.finish();
                }
            }
            // The accepting endpoint has its connection from the first segment on.
            None if direction == DataDirection::Backward => {
                let (early, ends) = self.early_writes.entry(writer).or_default();
                *early = early.saturating_add(bytes);
                *ends |= finish;
            }
            None => return false,
        }
        let end = &mut self.ends[reader as usize];
        let received = end
            .connection
            .as_ref()
            .map_or(0, |connection| connection.stats().received);
        if end.has_flag(FlowEndpoint::AWAITS_WRITE) && end.awaited_write_end > received {
            if bytes > 0 {
                let later = self.writes.entry(reader).or_default();
                let total = later.back().copied().unwrap_or(end.awaited_write_end);
                later.push_back(total.saturating_add(bytes));
            }
        } else {
            end.awaited_write_end = end.awaited_write_end.saturating_add(bytes);
            end.set_flag(FlowEndpoint::AWAITS_WRITE, true);
        }
        if self.ends[writer as usize].control == Controller::RECEIVE_ONLY {
            // An endpoint that was a pure receiver gets a controller of the sender's kind.
            let native = match self.ends[pair as usize].control.get() {
                ControllerKind::Native(place) => new_of_same_kind(&self.natives[place]),
                ControllerKind::Agent(_) | ControllerKind::None => Native::cubic(),
            };
            self.ends[writer as usize].control = self.add_native(native);
        }
        if is_connected {
            self.events
                .push_end(self.now, EventKind::Kick, flow.0, writer);
        }
        true
    }

    /// Aborts a flow at its sender; a packet notifies the receiver. Returns false if the flow has
    /// not started or has ended.
    pub fn abort(&mut self, flow: FlowId) -> bool {
        let pair = self
            .flows
            .get(flow.index())
            .map_or(NO_INDEX, |flow| flow.ends);
        let sender = self
            .ends
            .get_mut(pair as usize)
            .and_then(|end| end.connection.as_mut());
        let Some(connection) = sender else {
            return false;
        };
        connection.abort();
        self.events
            .push_end(self.now, EventKind::Kick, flow.0, pair);
        true
    }
}

impl<T: Tracer> Simulation<T> {
    #[cold]
    pub(crate) fn start_flow(&mut self, number: u32) {
        let world = &mut self.world;
        let now = world.now;
        let flow = &mut world.flows[number as usize];
        let config = Arc::clone(&flow.transport);
        let (from, to, bytes, finish, band) =
            (flow.from, flow.to, flow.bytes, flow.finish, flow.band);
        let Some(InactiveState::Planned(wanted)) = flow.inactive.take().map(|rest| *rest) else {
            return;
        };
        let pair = world.free_ends.pop().unwrap_or(world.ends.len() as u32);
        let control = match wanted {
            PlannedControl::Native(native) => world.add_native(native),
            PlannedControl::Steered { agent, algorithm } => {
                let window = Bytes::new(u64::from(config.initial_window) * u64::from(config.mss));
                let (local, peer) = address::flow_addresses(number, from, to);
                let info = FlowInfo {
                    algorithm: algorithm.as_ref().to_owned(),
                    init_cwnd: window,
                    mss: Bytes::new(u64::from(config.mss)),
                    local,
                    peer,
                    cwnd: window,
                    ..FlowInfo::default()
                };
                let shared = &mut world.hosts[agent as usize].shared;
                let steered = shared.open(now, u64::from(number), info, agent);
                world.schedule_agent(agent);
                world.add_steered(steered)
            }
        };
        let mut connection = Connection::connect(&config, now);
        world.require_proof_of(pair, number, &mut connection);
        if world.packets.receipts.is_enabled() {
            let first = SequenceNumber(config.first_number);
            world.packets.receipts.start_end(pair, number, from, first);
            world
                .packets
                .receipts
                .start_end(pair + 1, number, to, first);
        }
        if bytes > 0 {
            connection.write(bytes);
        }
        if finish {
            connection.finish();
        }
        let end = |from: u32, to: u32, backward: bool, world: &World| {
            let hash = world.path_hash(number, backward);
            let link = world.routing.next_link(from, to, hash);
            FlowEndpoint {
                connection: None,
                timeout_event: Time::MAX,
                later_timeout_event: Time::MAX,
                pacing_event: Time::MAX,
                awaited_write_end: 0,
                flow: number,
                to,
                nic: world.nic_index(from, link),
                hash,
                control: Controller::RECEIVE_ONLY,
                header: config.header_bytes,
                flags: if config.discard {
                    0
                } else {
                    FlowEndpoint::READS_DATA
                },
            }
        };
        let mut sender = end(from, to, false, world);
        let mut receiver = end(to, from, true, world);
        sender.connection = Some(connection);
        sender.control = control;
        sender.set_band(band);
        let offered = match control.get() {
            ControllerKind::Native(slot) => matches!(world.natives.get(slot), Some(Native::Rcp(_))),
            _ => false,
        };
        for end in [&mut sender, &mut receiver] {
            end.set_flag(FlowEndpoint::RC3, config.rc3.is_some());
            end.set_flag(FlowEndpoint::RCP_STAMPED, offered);
        }
        if bytes != u64::MAX {
            receiver.awaited_write_end = bytes;
            receiver.set_flag(FlowEndpoint::AWAITS_WRITE, true);
        }
        world.flows[number as usize].ends = pair;
        match world.ends.get_mut(pair as usize..pair as usize + 2) {
            Some([first, second]) => (*first, *second) = (sender, receiver),
            _ => world.ends.extend([sender, receiver]),
        }
        self.pump(pair);
    }
}

impl World {
    /// Wakes the application once per write that an endpoint has received completely.
    #[cold]
    pub(crate) fn writes_received(&mut self, e: u32, received: u64) {
        while self.ends.get(e as usize).is_some_and(|end| {
            end.has_flag(FlowEndpoint::AWAITS_WRITE) && received >= end.awaited_write_end
        }) {
            self.write_received(e);
        }
    }

    fn write_received(&mut self, e: u32) {
        let mut later = None;
        if let Entry::Occupied(mut writes) = self.writes.entry(e) {
            later = writes.get_mut().pop_front();
            if writes.get().is_empty() {
                writes.remove();
            }
        }
        let end = &mut self.ends[e as usize];
        match later {
            Some(written) => end.awaited_write_end = written,
            None => end.set_flag(FlowEndpoint::AWAITS_WRITE, false),
        }
        let (number, forward) = (end.flow, e & 1 == 1);
        let flow = &mut self.flows[number as usize];
        if forward && flow.finished == Time::MAX {
            flow.finished = self.now;
            self.unfinished -= 1;
        }
        if forward
            && flow.finish
            && let Some(connection) = &mut end.connection
        {
            connection.finish();
        }
        let app = flow.app;
        let direction = if forward {
            DataDirection::Forward
        } else {
            DataDirection::Backward
        };
        if app != NO_INDEX {
            self.wake(app, WakeReason::Received(FlowId(number), direction));
        }
    }

    /// Handles the end of an endpoint. When both endpoints are closed, their slots become free.
    #[cold]
    pub(crate) fn on_closed(&mut self, e: u32) {
        let pair = e & !1;
        let number = self.ends[e as usize].flow;
        let Some([sender, receiver]) = self.ends.get(pair as usize..pair as usize + 2) else {
            return;
        };
        let over = |end: &FlowEndpoint| {
            end.connection
                .as_ref()
                .is_none_or(|c| c.state() == ConnectionState::Closed)
        };
        if !over(sender) || !over(receiver) || sender.flow == NO_INDEX {
            return;
        }
        let view = self.flow_view(&self.flows[number as usize]);
        let rc3 = self.rc3(FlowId(number)).map(Box::new);
        let flow = &mut self.flows[number as usize];
        let failed = flow.bytes != u64::MAX && flow.finished == Time::MAX;
        self.unfinished -= u64::from(failed);
        flow.inactive = Some(Box::new(InactiveState::Finished(view, rc3)));
        flow.ends = NO_INDEX;
        let app = flow.app;
        for place in [pair, pair + 1] {
            let end = &mut self.ends[place as usize];
            end.connection = None;
            end.flow = NO_INDEX;
            self.writes.remove(&place);
            self.early_writes.remove(&place);
            if end.has_flag(FlowEndpoint::QUEUED) {
                self.nics[end.nic as usize]
                    .waiting
                    .retain(|waiting| *waiting != place);
            }
            if end.has_flag(FlowEndpoint::LOW_QUEUED) {
                self.low_bands.remove_end(end.nic, place);
            }
            let control = std::mem::replace(&mut end.control, Controller::RECEIVE_ONLY);
            if let ControllerKind::Native(place) = control.get() {
                self.free_natives.push(place as u32);
            }
            if let ControllerKind::Agent(place) = control.get()
                && let Some(steered) = self.steered[place].take()
            {
                self.free_steered.push(place as u32);
                let (number, acked) = (u64::from(number), Bytes::new(view.acked));
                let shared = &mut self.hosts[steered.user_data as usize].shared;
                shared.close(self.now, number, &steered, acked, view.lost);
                self.schedule_agent(steered.user_data);
            }
        }
        self.free_ends.push(pair);
        if failed && app != NO_INDEX {
            self.wake(app, WakeReason::Failed(FlowId(number)));
        }
    }

    fn add_native(&mut self, native: Native) -> Controller {
        Controller::native(match self.free_natives.pop() {
            Some(place) => {
                self.natives[place as usize] = native;
                place as usize
            }
            None => {
                self.natives.push(native);
                self.natives.len() - 1
            }
        })
    }

    /// Returns the index of the interface of this link or, without a route, of the host's first
    /// link.
    fn nic_index(&self, host: u32, link: Option<u32>) -> u32 {
        let from_host = |link: &LinkId| self.ends_of(link.0).0.0 == host;
        let first = || self.network.links().find(from_host).map(|link| link.0);
        link.or_else(first)
            .and_then(|link| self.nic_of.get(link as usize).copied())
            .unwrap_or(0)
    }

    /// Returns the hash that selects the paths of an endpoint's packets.
    fn path_hash(&self, flow: u32, backward: bool) -> u32 {
        let which = match self.network.spread {
            Spread::Symmetric => flow * 2,
            Spread::PerFlow | Spread::PerPacket => flow * 2 + u32::from(backward),
        };
        random::seed(self.options.seed, Purpose::Paths, which) as u32
    }
}
