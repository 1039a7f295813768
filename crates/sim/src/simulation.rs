//! A network that runs: events happen, packets move, flows begin and end.

use std::ops::{Deref, DerefMut};

use ccplane_units::Time;

use crate::app::{AppId, Cause};
use crate::event::{Event, Kind, LAST};
use crate::network::Network;
use crate::trace::Tracer;
use crate::world::{SimOptions, World};
use crate::{AgentId, SimError};

/// So many events happen between two looks at whether there is any progress.
const BATCH: u32 = 1 << 12;
/// So many batches without time, or without a packet, moving on are a simulation that stands still.
const IDLE_BATCHES: u32 = 1 << 10;

/// A simulation. What can be asked of it and added to it is the [`World`]'s; this runs it.
#[derive(Debug)]
pub struct Simulation<T = ()> {
    pub(crate) world: World,
    pub(crate) tracer: T,
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
    pub fn with_tracer(
        network: Network,
        options: SimOptions,
        tracer: T,
    ) -> Result<Simulation<T>, SimError> {
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

    /// Runs until this time: what happens then has happened. A simulation that stands still is an
    /// error, and so is one in which packets came from nowhere or went nowhere.
    pub fn run_until(&mut self, until: Time) -> Result<(), SimError> {
        self.run::<false>(until, false)?;
        self.world.now = until.min(LAST);
        Ok(())
    }

    /// Runs until all of these workloads have [ended](crate::WorkloadApp::ended), but not beyond
    /// this time; whether they have. It stops with the event by which the last one did.
    pub fn run_workloads(&mut self, workloads: &[AppId], until: Time) -> Result<bool, SimError> {
        let not_ended = |app: &AppId| {
            self.world
                .workload(*app)
                .is_some_and(|workload| !workload.ended())
        };
        self.world.awaited = workloads.iter().copied().filter(not_ended).collect();
        if self.world.awaited.is_empty() {
            return Ok(true);
        }
        self.run::<true>(until, false)?;
        let ended = self.world.awaited.is_empty();
        if !ended {
            self.world.now = until.min(LAST);
        }
        Ok(ended)
    }

    /// Runs until every flow with an end has finished, and then a little longer, but not beyond
    /// this time; whether they have.
    pub fn run_flows(&mut self, until: Time) -> Result<bool, SimError> {
        self.run::<false>(until, true)?;
        if self.world.unfinished > 0 {
            self.world.now = until.min(LAST);
        }
        Ok(self.world.unfinished == 0)
    }

    /// Runs until an algorithm waits for a decision from outside
    /// ([`Algorithm::undecided`](ccplane_agent::Algorithm::undecided)), but not beyond this time:
    /// whose agent it is. What is decided then comes into force when the simulation goes on, at the
    /// same moment.
    pub fn run_until_decision(&mut self, until: Time) -> Result<Option<AgentId>, SimError> {
        let until = until.min(LAST);
        let mut still = 0;
        while let Some(event) = self.world.events.pop(until) {
            debug_assert!(event.at() >= self.world.now, "time goes back");
            still = if event.at() == self.world.now {
                still + 1
            } else {
                0
            };
            self.world.now = event.at();
            if event.kind() == Kind::Arrive {
                self.arrive(event.which());
                continue;
            }
            self.other(event)?;
            if let Some(error) = self.world.failed.take() {
                return Err(error);
            }
            if still > BATCH * IDLE_BATCHES {
                return Err(self
                    .world
                    .stalled("millions of events, but time does not move on"));
            }
            if event.kind() == Kind::Steer
                && self.world.hosts[self.world.keeper(event.which()) as usize]
                    .agent()
                    .undecided()
            {
                return Ok(Some(AgentId(event.which())));
            }
        }
        self.world.now = until;
        Ok(None)
    }

    /// One event, if it happens by `until`; whether there was one. Who runs a simulation by steps
    /// looks after its progress himself.
    pub fn step(&mut self, until: Time) -> Result<bool, SimError> {
        let Some(event) = self.world.events.pop(until) else {
            self.world.now = until.min(LAST);
            return Ok(false);
        };
        debug_assert!(event.at() >= self.world.now, "time goes back");
        self.world.now = event.at();
        self.other(event)?;
        self.world.failed.take().map_or(Ok(true), Err)
    }

    /// `AWAITS` is whether it ends when no workload is awaited any more.
    fn run<const AWAITS: bool>(&mut self, until: Time, flows: bool) -> Result<(), SimError> {
        let until = until.min(LAST);
        let mut still = 0;
        while !(flows && self.world.unfinished == 0) {
            let before = (self.world.now, self.world.packets.gone);
            let more = self.batch::<AWAITS>(until)?;
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
    fn batch<const AWAITS: bool>(&mut self, until: Time) -> Result<bool, SimError> {
        for _ in 0..BATCH {
            let Some(event) = self.world.events.pop(until) else {
                return Ok(false);
            };
            debug_assert!(event.at() >= self.world.now, "time goes back");
            self.world.now = event.at();
            if event.kind() == Kind::Arrive {
                self.arrive(event.which());
            } else {
                self.other(event)?;
            }
            if AWAITS && self.world.awaited.is_empty() {
                return Ok(false);
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
                    self.world.pass_on(which);
                    self.world.plan_agent(which);
                }
            }
            Kind::Bundle => self.on_bundle(which),
            Kind::Datagram => {
                if let Some(packet) = self.world.datagrams.next(which) {
                    let (id, place, _) = self.world.packets.place();
                    *place = packet;
                    self.world.packets.made(id, false);
                    self.forward(which, id);
                }
            }
        }
        Ok(())
    }
}
