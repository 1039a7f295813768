//! A network that runs: events happen, packets move, flows begin and end.

use ccplane_agent::{FlowInfo, FlowStats};
use ccplane_transport::{Connection, Kind as SegmentKind, Native, State};
use ccplane_units::{Bytes, Time};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::SimError;
use crate::app::{AppId, Cause};
use crate::event::{Event, Events, Kind, LAST};
use crate::flow::{Controller, Direction, End, FlowId, Nobody, Rest, Steer, Wanted};
use crate::link::Offered;
use crate::network::{LinkId, Network, NodeId};
use crate::packet::{NONE, Packets};
use crate::random;
use crate::steer::{Steered, Steering};
use crate::trace::{Seen, Step, Tracer};
use crate::world::{SimOptions, World};

/// So many events happen between two looks at whether there is any progress.
const BATCH: u32 = 1 << 12;
/// So many batches without time, or without a packet, moving on are a simulation that stands still.
const IDLE_BATCHES: u32 = 1 << 10;

/// A simulation. What can be asked of it and added to it is the [`World`]'s; this runs it.
#[derive(Debug)]
pub struct Simulation<T = ()> {
    world: World,
    tracer: T,
}

impl<T> Deref for Simulation<T> {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl<T> DerefMut for Simulation<T> {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Simulation {
    /// A network at time 0, without flows.
    pub fn new(network: Network, options: SimOptions) -> Result<Simulation, SimError> {
        Simulation::with_tracer(network, options, ())
    }
}

impl<T: Tracer> Simulation<T> {
    /// The same, with a tracer that sees every packet.
    pub fn with_tracer(network: Network, options: SimOptions, tracer: T) -> Result<Simulation<T>, SimError> {
        Ok(Simulation {
            world: World::new(network, options)?,
            tracer,
        })
    }

    /// The tracer.
    pub fn tracer(&self) -> &T {
        &self.tracer
    }

    /// The tracer, at the end.
    pub fn into_tracer(self) -> T {
        self.tracer
    }

    /// Runs until this time: what happens then has happened. A simulation that stands still is an error, and so is one in
    /// which packets came from nowhere or went nowhere.
    pub fn run_until(&mut self, until: Time) -> Result<(), SimError> {
        self.run(until, false)?;
        self.world.now = until.min(LAST);
        Ok(())
    }

    /// Runs until every flow with an end has finished, and then a little longer, but not beyond this time; whether they
    /// have.
    pub fn run_flows(&mut self, until: Time) -> Result<bool, SimError> {
        self.run(until, true)?;
        if self.world.unfinished > 0 {
            self.world.now = until.min(LAST);
        }
        Ok(self.world.unfinished == 0)
    }

    fn run(&mut self, until: Time, flows: bool) -> Result<(), SimError> {
        let until = until.min(LAST);
        let mut still = 0;
        while !(flows && self.world.unfinished == 0) {
            let before = (self.world.now, self.world.packets.gone);
            let more = self.batch(until)?;
            if let Some(error) = self.world.failed.take() {
                return Err(error);
            }
            if !more {
                break;
            }
            let after = (self.world.now, self.world.packets.gone);
            still = if before.0 == after.0 || before.1 == after.1 {
                still + 1
            } else {
                0
            };
            if still > IDLE_BATCHES {
                return Err(self
                    .world
                    .stalled("millions of events, but neither time nor packets move on"));
            }
            if self.world.events.exhausted() {
                return Err(SimError::TooLong("it has more than 2^40 events"));
            }
        }
        if self.world.events.len() == 0 && self.world.unfinished > 0 {
            return Err(self
                .world
                .stalled("flows have not finished, and nothing is going to happen"));
        }
        self.world.check()
    }

    /// Up to so many events; whether there may be more by this time.
    #[inline(never)]
    fn batch(&mut self, until: Time) -> Result<bool, SimError> {
        for _ in 0..BATCH {
            let Some(event) = self.world.events.pop(until) else {
                return Ok(false);
            };
            self.world.now = event.at();
            if event.kind() == Kind::Arrive {
                self.arrive(event.which());
            } else {
                self.other(event)?;
            }
        }
        Ok(true)
    }

    /// Everything but the arrival of a packet.
    #[inline(never)]
    fn other(&mut self, event: Event) -> Result<(), SimError> {
        let (now, which) = (self.world.now, event.which());
        match event.kind() {
            Kind::Arrive => self.arrive(which),
            Kind::NicReady => {
                self.world.nics[which as usize].armed = false;
                self.fetch(which);
            }
            Kind::Timeout => self.on_timeout(which),
            Kind::Pace => {
                let end = &mut self.world.ends[which as usize];
                if end.paced == now {
                    end.paced = Time::MAX;
                    self.pump(which);
                }
            }
            Kind::Kick => self.pump(which),
            Kind::LinkReady => self.on_link_ready(which),
            Kind::Start => self.start(which),
            Kind::App => {
                let next = &mut self.world.apps[which as usize].next;
                if *next == now {
                    *next = Time::MAX;
                    self.world.wake(which, Cause::Time);
                }
            }
            Kind::Change => {
                if let Some(change) = self.world.changes[which as usize].take() {
                    self.world.change(now, change)?;
                }
            }
            Kind::Steer => self.steer(which),
            Kind::AgentDeadline => {
                let host = &mut self.world.hosts[which as usize];
                if host.deadline == now {
                    host.deadline = Time::MAX;
                    host.on_deadline(now);
                    self.world.plan_agent(which);
                }
            }
            Kind::Datagram => {
                if let Some(packet) = self.world.datagrams.next() {
                    let (id, place, _) = self.world.packets.place();
                    *place = packet;
                    self.world.packets.made(id, false);
                    self.forward(which, id);
                }
            }
        }
        Ok(())
    }

    /// A packet comes to the end of a link.
    #[inline(always)]
    fn arrive(&mut self, link: u32) {
        let world = &mut self.world;
        let Some((id, node)) = world.links.arrive(world.now, link, &mut world.events) else {
            return;
        };
        if T::ON {
            self.see(Step::Arrived, link, id);
        }
        if self.world.packets.get(id).to == node {
            self.take(id);
        } else {
            self.forward(node, id);
        }
    }

    /// A packet at a node goes on its way.
    #[inline(always)]
    fn forward(&mut self, node: u32, id: u32) {
        let world = &mut self.world;
        let packet = world.packets.get(id);
        match world.routing.next(node, packet.to, packet.hash) {
            Some(link) => {
                let bytes = packet.bytes;
                self.offer(link, id, bytes);
            }
            None => {
                world.counters.unroutable += 1;
                world.packets.drop(id);
            }
        }
    }

    #[inline(always)]
    fn offer(&mut self, link: u32, id: u32, bytes: u32) {
        let world = &mut self.world;
        let offered = world
            .links
            .offer(world.now, link, (id, bytes), &mut world.packets, &mut world.events);
        if T::ON || !matches!(offered, Offered::Departs(_)) {
            self.note(link, id, offered);
        }
    }

    /// The tracer sees what became of a packet at a link; what was dropped is no more.
    #[cold]
    fn note(&mut self, link: u32, id: u32, offered: Offered) {
        if T::ON {
            let step = match offered {
                Offered::Departs(_) | Offered::Waits => Step::Queued,
                Offered::Dropped(why) => Step::Dropped(why),
            };
            self.see(step, link, id);
        }
        match offered {
            Offered::Departs(_) => {}
            Offered::Waits => self.drop_from(link),
            Offered::Dropped(_) => {
                self.world.counters.dropped += 1;
                self.world.packets.drop(id);
            }
        }
    }

    /// What a queue that decides at departure has dropped is no more.
    #[cold]
    fn drop_from(&mut self, link: u32) {
        while let Some((id, why)) = self.world.links.dropped(link, &self.world.packets) {
            if T::ON {
                self.see(Step::Dropped(why), link, id);
            }
            self.world.counters.dropped += 1;
            self.world.packets.drop(id);
        }
    }

    #[cold]
    fn on_link_ready(&mut self, link: u32) {
        let world = &mut self.world;
        world
            .links
            .ready(world.now, link, &mut world.packets, &mut world.events);
        self.drop_from(link);
        let nic = self.world.nic_of[link as usize];
        if nic != NONE {
            self.world.note_room(nic);
            self.fetch(nic);
        }
    }

    /// A packet has come to its host.
    #[inline(always)]
    fn take(&mut self, id: u32) {
        let world = &mut self.world;
        world.counters.taken += 1;
        let packet = world.packets.get(id);
        let side = world.packets.side(packet.side).unwrap_or(&world.packets.no_side);
        let e = packet.end;
        let Some(end) = world.ends.get_mut(e as usize).filter(|end| end.flow == packet.flow) else {
            return world.take_other(id);
        };
        let Some(connection) = &mut end.connection else {
            return self.accept(id);
        };
        let (now, segment) = (world.now, &packet.segment);
        let awaited = segment.kind == SegmentKind::Data && end.flags & (End::READS | End::AWAITS) != 0;
        match end.control.get() {
            Steer::Native(place) => connection.handle(now, segment, side, &mut world.natives[place]),
            Steer::Nobody => connection.handle(now, segment, side, &mut Nobody),
            Steer::Agent(place) => {
                let number = end.flow;
                if let Some(steered) = &mut world.steered[place] {
                    let agent = steered.host;
                    let host = &mut world.hosts[agent as usize];
                    connection.handle(now, segment, side, &mut Steering { steered, host, number });
                    if host.next_due() < host.due {
                        world.plan_agent(agent);
                    }
                }
            }
        }
        world.packets.drop(id);
        if awaited {
            self.received(e);
        }
        self.pump(e);
    }

    /// Data has come: is it all that was awaited?
    fn received(&mut self, e: u32) {
        let end = &mut self.world.ends[e as usize];
        let (reads, awaits) = (end.is(End::READS), end.is(End::AWAITS));
        let Some(connection) = &mut end.connection else { return };
        if reads {
            connection.read(u64::MAX);
        }
        if awaits && connection.stats().received >= end.written {
            self.world.all_received(e);
        }
    }

    /// A server is asked for a connection.
    #[cold]
    fn accept(&mut self, id: u32) {
        let now = self.world.now;
        let packet = *self.world.packets.get(id);
        self.world.packets.drop(id);
        let end = &mut self.world.ends[packet.end as usize];
        let config = Arc::clone(&self.world.flows[packet.flow as usize].transport);
        match Connection::accept(&config, now, &packet.segment) {
            Some(connection) => {
                end.connection = Some(connection);
                self.pump(packet.end);
            }
            None => self.world.counters.late += 1,
        }
    }

    /// An end sends what it may, and its timers are planned.
    #[inline(always)]
    fn pump(&mut self, e: u32) {
        while let Some((nic, id, offered)) = self.pump_until_rare(e) {
            self.settle(nic, id, offered);
        }
    }

    /// An end sends until something other than a departure comes of it, which is for the caller.
    #[inline(always)]
    fn pump_until_rare(&mut self, e: u32) -> Option<(u32, u32, Offered)> {
        let world = &mut self.world;
        let now = world.now;
        let end = &mut world.ends[e as usize];
        if end.flags & End::QUEUED == 0 {
            let nic = &mut world.nics[end.nic as usize];
            let latest = now + nic.slack;
            loop {
                if nic.until > latest || !nic.waiting.is_empty() {
                    if end.has(now) {
                        end.flags |= End::QUEUED;
                        nic.waiting.push_back(e);
                        nic.arm(now, end.nic, &mut world.events);
                    }
                    break;
                }
                let Some(sent) = end.send(now, e, &mut world.packets, &mut world.spray) else {
                    break;
                };
                let offered = world
                    .links
                    .offer(now, nic.link, sent, &mut world.packets, &mut world.events);
                match offered {
                    Offered::Departs(departs) if !T::ON => nic.until = departs,
                    rare => return Some((end.nic, sent.0, rare)),
                }
            }
        }
        if end.plan(now, e, &world.steered, &mut world.events) {
            world.closed(e);
        }
        None
    }

    /// What comes of a packet that a host has given its link.
    fn settle(&mut self, nic: u32, id: u32, offered: Offered) {
        let link = self.world.nics[nic as usize].link;
        self.note(link, id, offered);
        match offered {
            Offered::Departs(departs) => self.world.nics[nic as usize].until = departs,
            Offered::Waits => self.world.note_room(nic),
            Offered::Dropped(_) => {}
        }
    }

    /// A host's link takes packets from those that wait, in turn.
    fn fetch(&mut self, nic: u32) {
        let now = self.world.now;
        while self.world.nics[nic as usize].takes(now) {
            let Some(e) = self.world.nics[nic as usize].waiting.pop_front() else {
                break;
            };
            let world = &mut self.world;
            let end = &mut world.ends[e as usize];
            end.flags &= !End::QUEUED;
            if let Some(sent) = end.send(now, e, &mut world.packets, &mut world.spray) {
                if end.has(now) {
                    end.flags |= End::QUEUED;
                    world.nics[nic as usize].waiting.push_back(e);
                }
                let link = world.nics[nic as usize].link;
                let offered = world
                    .links
                    .offer(now, link, sent, &mut world.packets, &mut world.events);
                self.settle(nic, sent.0, offered);
            }
            let world = &mut self.world;
            if world.ends[e as usize].plan(now, e, &world.steered, &mut world.events) {
                world.closed(e);
            }
        }
        self.world.nics[nic as usize].arm(now, nic, &mut self.world.events);
    }

    #[cold]
    fn on_timeout(&mut self, e: u32) {
        let world = &mut self.world;
        let now = world.now;
        let end = &mut world.ends[e as usize];
        if now == end.armed {
            end.armed = std::mem::replace(&mut end.armed_later, Time::MAX);
        } else {
            return;
        }
        let Some(connection) = &mut end.connection else { return };
        let due = connection.next_timeout().is_some_and(|due| due <= now);
        match end.control.get() {
            Steer::Native(place) => {
                if due {
                    connection.on_timeout(now, &mut world.natives[place]);
                }
            }
            Steer::Nobody => {
                if due {
                    connection.on_timeout(now, &mut Nobody);
                }
            }
            Steer::Agent(place) => {
                let number = end.flow;
                if let Some(steered) = &mut world.steered[place] {
                    let agent = steered.host;
                    let host = &mut world.hosts[agent as usize];
                    let mut steering = Steering { steered, host, number };
                    if due {
                        connection.on_timeout(now, &mut steering);
                    }
                    if steering.steered.flow.next_deadline().is_some_and(|due| due <= now) {
                        connection.on_control_deadline(now, &mut steering);
                    }
                    world.plan_agent(agent);
                }
            }
        }
        self.pump(e);
    }

    /// Reports come to an agent, commands to its flows.
    fn steer(&mut self, agent: u32) {
        let now = self.world.now;
        let host = &mut self.world.hosts[agent as usize];
        if host.due != now {
            return;
        }
        host.due = Time::MAX;
        host.deliver(now);
        while let Some((number, command)) = self.world.hosts[agent as usize].next_command(now) {
            let world = &mut self.world;
            let pair = world.flows.get(number as usize).map_or(NONE, |flow| flow.ends);
            let end = world.ends.get_mut(pair as usize).filter(|end| end.flow == number);
            let place = match end.as_ref().map(|end| end.control.get()) {
                Some(Steer::Agent(place)) => place,
                _ => usize::MAX,
            };
            let host = &mut world.hosts[agent as usize];
            let Some(steered) = world.steered.get_mut(place).and_then(Option::as_mut) else {
                host.take(now, &command, None);
                continue;
            };
            host.take(now, &command, Some(steered));
            if let Some(connection) = end.and_then(|end| end.connection.as_mut())
                && matches!(connection.state(), State::Open)
            {
                connection.on_control_deadline(now, &mut Steering { steered, host, number });
                self.pump(pair);
            }
        }
        self.world.plan_agent(agent);
    }

    /// A flow begins.
    #[cold]
    fn start(&mut self, number: u32) {
        let world = &mut self.world;
        let now = world.now;
        let flow = &mut world.flows[number as usize];
        let config = Arc::clone(&flow.transport);
        let (from, to, bytes, finish) = (flow.from, flow.to, flow.bytes, flow.finish);
        let Some(Rest::Waiting(wanted)) = flow.rest.take().map(|rest| *rest) else {
            return;
        };
        let pair = world.free.pop().unwrap_or(world.ends.len() as u32);
        let control = match wanted {
            Wanted::Native(native) => world.add_native(native),
            Wanted::Steered { agent, algorithm } => {
                let window = Bytes::new(u64::from(config.initial_window) * u64::from(config.mss));
                let info = FlowInfo {
                    algorithm: algorithm.as_ref().to_owned(),
                    init_cwnd: window,
                    mss: Bytes::new(u64::from(config.mss)),
                    cwnd: window,
                    ..FlowInfo::default()
                };
                world.hosts[agent as usize].open(now, number, info);
                world.plan_agent(agent);
                world.add_steered(Steered::new(now, agent, window))
            }
        };
        let mut connection = Connection::connect(&config, now);
        if bytes > 0 {
            connection.write(bytes);
        }
        if finish {
            connection.finish();
        }
        let end = |from: u32, to: u32, backward: bool, world: &World| {
            let hash = world.hash_of(number, backward);
            let link = world.routing.next(from, to, hash);
            End {
                connection: None,
                armed: Time::MAX,
                armed_later: Time::MAX,
                paced: Time::MAX,
                written: 0,
                flow: number,
                to,
                nic: world.nic_at(from, link),
                hash,
                control: Controller::NOBODY,
                header: config.header_bytes,
                flags: if config.discard { 0 } else { End::READS },
            }
        };
        let mut sender = end(from, to, false, world);
        let mut receiver = end(to, from, true, world);
        sender.connection = Some(connection);
        sender.control = control;
        if bytes != u64::MAX {
            receiver.written = bytes;
            receiver.set(End::AWAITS, true);
        }
        world.flows[number as usize].ends = pair;
        match world.ends.get_mut(pair as usize..pair as usize + 2) {
            Some([first, second]) => (*first, *second) = (sender, receiver),
            _ => world.ends.extend([sender, receiver]),
        }
        self.pump(pair);
    }

    #[cold]
    fn see(&mut self, step: Step, link: u32, id: u32) {
        let world = &self.world;
        let packet = world.packets.get(id);
        let backward = packet.end & 1 == 0;
        let flow = world.flows.get(packet.flow as usize).filter(|_| packet.end != NONE);
        let from = match flow {
            Some(flow) if backward => flow.to,
            Some(flow) => flow.from,
            // See `World::datagram`.
            None => packet.segment.echo.0,
        };
        let seen = Seen {
            step,
            link: LinkId(link),
            id,
            flow: (packet.end != NONE).then_some(FlowId(packet.flow)),
            backward,
            from: NodeId(from),
            to: NodeId(packet.to),
            bytes: packet.bytes,
            segment: &packet.segment,
            side: world.packets.side(packet.side),
        };
        self.tracer.see(world.now, &seen);
    }
}

impl End {
    /// Whether it has something to send.
    #[inline(always)]
    fn has(&self, now: Time) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.has(now, 0))
    }

    /// The next packet that it sends, to the other end of its flow, and its bytes. With `spray`, each packet has a path of
    /// its own.
    #[inline(always)]
    fn send(&mut self, now: Time, e: u32, packets: &mut Packets, spray: &mut Option<u64>) -> Option<(u32, u32)> {
        let connection = self.connection.as_mut().filter(|connection| !connection.rests())?;
        let (id, packet, side) = packets.place();
        if !connection.transmit_into(now, 0, &mut packet.segment, side) {
            return None;
        }
        let data = match packet.segment.kind {
            SegmentKind::Data => packet.segment.length,
            _ => 0,
        };
        let bytes = u32::from(self.header) + u32::from(data);
        let with_side = packet.segment.has_side();
        (packet.bytes, packet.side) = (bytes, NONE);
        (packet.end, packet.flow, packet.to, packet.hash) = (e ^ 1, self.flow, self.to, self.hash);
        if let Some(spray) = spray {
            *spray += 1;
            packet.hash = random::mix(u64::from(packet.hash) ^ *spray) as u32;
        }
        packets.made(id, with_side);
        Some((id, bytes))
    }

    /// Sees that its deadlines have their events, and says whether it is over. A deadline that moves to later keeps its
    /// earlier event.
    #[inline(always)]
    fn plan(&mut self, now: Time, e: u32, steered: &[Option<Steered>], events: &mut Events) -> bool {
        let Some(connection) = &self.connection else {
            return false;
        };
        let mut due = connection.next_timeout().unwrap_or(Time::MAX);
        if let Steer::Agent(place) = self.control.get()
            && let Some(Some(steered)) = steered.get(place)
        {
            due = due.min(steered.flow.next_deadline().unwrap_or(Time::MAX));
        }
        if due < self.armed {
            self.armed_later = self.armed_later.min(self.armed);
            self.armed = due.max(now);
            events.push(self.armed, Kind::Timeout, e);
        }
        if let Some(next) = connection.next_send(now)
            && next < self.paced
        {
            self.paced = next;
            events.push(next, Kind::Pace, e);
        }
        connection.state() == State::Closed
    }
}

impl World {
    /// A host's link whose queue decides at departure has room for so much.
    fn note_room(&mut self, nic: u32) {
        let n = &mut self.nics[nic as usize];
        if let Some(backlog) = self.links.waiting(n.link) {
            n.until = if backlog.bytes > n.room { Time::MAX } else { Time::ZERO };
        }
    }

    /// A packet that no end of a flow takes.
    #[cold]
    fn take_other(&mut self, id: u32) {
        let packet = self.packets.get(id);
        if packet.end == NONE {
            self.datagrams.arrived(self.now, packet);
        } else {
            self.counters.late += 1;
        }
        self.packets.drop(id);
    }

    /// All that was awaited has come to an end of a flow.
    #[cold]
    fn all_received(&mut self, e: u32) {
        let end = &mut self.ends[e as usize];
        end.set(End::AWAITS, false);
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
            Direction::Forward
        } else {
            Direction::Backward
        };
        if app != NONE {
            self.wake(app, Cause::Received(FlowId(number), direction));
        }
    }

    /// An application is woken.
    fn wake(&mut self, app: u32, cause: Cause) {
        let Some(mut woken) = self
            .apps
            .get_mut(app as usize)
            .and_then(|installed| installed.app.take())
        else {
            return;
        };
        let next = woken.wake(self.now, AppId(app), cause, self);
        let installed = &mut self.apps[app as usize];
        installed.app = Some(woken);
        if let Some(next) = next {
            installed.next = next.max(self.now);
            self.events.push(installed.next, Kind::App, app);
        }
    }

    /// An end is over; when both are, their place is free.
    #[cold]
    fn closed(&mut self, e: u32) {
        let pair = e & !1;
        let number = self.ends[e as usize].flow;
        let Some([sender, receiver]) = self.ends.get(pair as usize..pair as usize + 2) else {
            return;
        };
        let over = |end: &End| end.connection.as_ref().is_none_or(|c| c.state() == State::Closed);
        if !over(sender) || !over(receiver) || sender.flow == NONE {
            return;
        }
        let view = self.flow_view(&self.flows[number as usize]);
        let flow = &mut self.flows[number as usize];
        let failed = flow.bytes != u64::MAX && flow.finished == Time::MAX;
        self.unfinished -= u64::from(failed);
        flow.rest = Some(Box::new(Rest::Over(view)));
        flow.ends = NONE;
        let app = flow.app;
        for end in [pair, pair + 1] {
            let end = &mut self.ends[end as usize];
            end.connection = None;
            end.flow = NONE;
            let control = std::mem::replace(&mut end.control, Controller::NOBODY);
            if let Steer::Native(place) = control.get() {
                self.free_natives.push(place as u32);
            }
            if let Steer::Agent(place) = control.get()
                && let Some(steered) = self.steered[place].take()
            {
                self.free_steered.push(place as u32);
                let stats = FlowStats {
                    bytes_acked: Bytes::new(view.acked),
                    packets_lost: view.lost,
                    lifetime: self.now.since(view.started),
                    ..FlowStats::default()
                };
                self.hosts[steered.host as usize].close(self.now, number, stats);
                self.plan_agent(steered.host);
            }
        }
        // One of them may still wait for its turn at a link: it has nothing to send, and is passed over.
        self.free.push(pair);
        if failed && app != NONE {
            self.wake(app, Cause::Failed(FlowId(number)));
        }
    }

    fn add_steered(&mut self, steered: Steered) -> Controller {
        Controller::agent(match self.free_steered.pop() {
            Some(place) => {
                self.steered[place as usize] = Some(steered);
                place as usize
            }
            None => {
                self.steered.push(Some(steered));
                self.steered.len() - 1
            }
        })
    }

    pub(crate) fn add_native(&mut self, native: Native) -> Controller {
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

    /// The place among the hosts' links of this one, or, where there is no way now, of the host's first.
    fn nic_at(&self, host: u32, link: Option<u32>) -> u32 {
        let links = &self.network.links;
        let first = || links.iter().position(|wire| wire.from == host).map(|link| link as u32);
        link.or_else(first)
            .and_then(|link| self.nic_of.get(link as usize).copied())
            .unwrap_or(0)
    }

    fn stalled(&self, why: &str) -> SimError {
        SimError::Stalled {
            seed: self.options.seed,
            at: self.now,
            why: why.into(),
        }
    }
}
