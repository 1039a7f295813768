//! Main loop: handles events in order of time.

use std::ops::{Deref, DerefMut};

use ccplane_network::Network;
use ccplane_units::Time;

use crate::app::{AppId, WakeReason};
use crate::event::{EventKind, SimEvent, TIME_MAX};
use crate::trace::Tracer;
use crate::world::{SimOptions, World};
use crate::{AgentId, SimError};

/// Number of events between two checks for progress.
const BATCH_EVENTS: u32 = 1 << 12;
/// Number of batches without progress in time or packets after which the simulation counts as
/// stalled.
const IDLE_BATCHES_MAX: u32 = 1 << 10;

/// Simulation. It dereferences to the [`World`], which has the state; this type runs it.
#[derive(Debug)]
pub struct Simulation<T = ()> {
    pub(crate) world: World,
    pub(crate) tracer: T,
}

/// Entry points of the simulation without a tracer. The static makes this crate compile them, with
/// its own optimisation level, once for all dependents. Otherwise `lab` compiles them, which the
/// tests' profile does not optimise: its golden test then takes 43 s of CPU time instead of 19 s. A
/// missing entry point only costs time.
#[used]
#[expect(clippy::type_complexity, reason = "a list of function types")]
static UNTRACED: (
    fn(&mut Simulation, Time) -> Result<(), SimError>,
    fn(&mut Simulation, &[AppId], Time) -> Result<bool, SimError>,
    fn(&mut Simulation, Time) -> Result<bool, SimError>,
    fn(&mut Simulation, Time) -> Result<Option<AgentId>, SimError>,
    fn(&mut Simulation, Time) -> Result<bool, SimError>,
) = (
    Simulation::run_until,
    Simulation::run_workloads,
    Simulation::run_flows,
    Simulation::run_until_decision,
    Simulation::step,
);

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
    /// Creates a simulation of a network at time 0, without flows.
    pub fn new(network: Network, options: SimOptions) -> Result<Simulation, SimError> {
        Simulation::with_tracer(network, options, ())
    }
}

impl<T: Tracer> Simulation<T> {
    /// Creates a simulation with a tracer that sees every packet.
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

    /// Returns the tracer.
    pub fn tracer(&self) -> &T {
        &self.tracer
    }

    /// Returns the tracer by value.
    pub fn into_tracer(self) -> T {
        self.tracer
    }

    /// Runs until this time, including its events. Fails if the simulation stalls or does not
    /// conserve packets.
    pub fn run_until(&mut self, until: Time) -> Result<(), SimError> {
        self.run::<false>(until, false)?;
        self.world.now = until.min(TIME_MAX);
        Ok(())
    }

    /// Runs until all of these workloads have [ended](crate::WorkloadApp::has_ended), but at most
    /// until this time. Returns true if they have. Stops at the event that ended the last one.
    pub fn run_workloads(&mut self, workloads: &[AppId], until: Time) -> Result<bool, SimError> {
        let not_ended = |app: &AppId| {
            self.world
                .workload(*app)
                .is_some_and(|workload| !workload.has_ended())
        };
        self.world.awaited = workloads.iter().copied().filter(not_ended).collect();
        if self.world.awaited.is_empty() {
            return Ok(true);
        }
        self.run::<true>(until, false)?;
        let ended = self.world.awaited.is_empty();
        if !ended {
            self.world.now = until.min(TIME_MAX);
        }
        Ok(ended)
    }

    /// Runs until every flow with a size has finished, up to the end of the batch of events, but at
    /// most until this time. Returns true if they have.
    pub fn run_flows(&mut self, until: Time) -> Result<bool, SimError> {
        self.run::<false>(until, true)?;
        if self.world.unfinished > 0 {
            self.world.now = until.min(TIME_MAX);
        }
        Ok(self.world.unfinished == 0)
    }

    /// Runs until an algorithm waits for an external decision
    /// ([`Algorithm::pending_numbers`](ccplane_agent::Algorithm::awaiting_action)), but at most
    /// until this time. Returns its agent. The decision takes effect when the simulation continues,
    /// at the same simulated time.
    pub fn run_until_decision(&mut self, until: Time) -> Result<Option<AgentId>, SimError> {
        let until = until.min(TIME_MAX);
        let mut still = 0;
        while let Some(event) = self.world.events.pop(until) {
            debug_assert!(event.at() >= self.world.now, "time goes back");
            still = if event.at() == self.world.now {
                still + 1
            } else {
                0
            };
            self.world.now = event.at();
            if event.kind() == EventKind::Arrive {
                self.on_arrival(event.object_index());
                continue;
            }
            self.handle_event(event)?;
            if let Some(error) = self.world.error.take() {
                return Err(error);
            }
            if still > BATCH_EVENTS * IDLE_BATCHES_MAX {
                return Err(self
                    .world
                    .stalled_error("millions of events, but time does not advance"));
            }
            if event.kind() == EventKind::Steer
                && self.world.hosts[self.world.agent_owner(event.object_index()) as usize]
                    .agent()
                    .awaiting_action()
            {
                return Ok(Some(AgentId(event.object_index())));
            }
        }
        self.world.now = until;
        Ok(None)
    }

    /// Handles one event if it is due by `until`; returns true if there was one. The caller is
    /// responsible for detecting a stall.
    pub fn step(&mut self, until: Time) -> Result<bool, SimError> {
        let Some(event) = self.world.events.pop(until) else {
            self.world.now = until.min(TIME_MAX);
            return Ok(false);
        };
        debug_assert!(event.at() >= self.world.now, "time goes back");
        self.world.now = event.at();
        self.handle_event(event)?;
        self.world.error.take().map_or(Ok(true), Err)
    }

    /// `AWAITS`: stops when no awaited workload is left.
    fn run<const AWAITS: bool>(&mut self, until: Time, flows: bool) -> Result<(), SimError> {
        let until = until.min(TIME_MAX);
        let mut still = 0;
        while !(flows && self.world.unfinished == 0) {
            let before = (self.world.now, self.world.packets.freed);
            let more = self.run_batch::<AWAITS>(until)?;
            if let Some(error) = self.world.error.take() {
                return Err(error);
            }
            if !more {
                break;
            }
            let after = (self.world.now, self.world.packets.freed);
            still = if before.0 == after.0 || before.1 == after.1 {
                still + 1
            } else {
                0
            };
            if still > IDLE_BATCHES_MAX {
                return Err(self
                    .world
                    .stalled_error("millions of events, but neither time nor packets advance"));
            }
        }
        if self.world.events.len() == 0 && self.world.unfinished > 0 {
            return Err(self
                .world
                .stalled_error("flows have not finished, but no events are left"));
        }
        self.world.check()
    }

    /// Handles a batch of events; returns false if none is left by this time.
    #[inline(never)]
    fn run_batch<const AWAITS: bool>(&mut self, until: Time) -> Result<bool, SimError> {
        for _ in 0..BATCH_EVENTS {
            let Some(event) = self.world.events.pop(until) else {
                return Ok(false);
            };
            debug_assert!(event.at() >= self.world.now, "time goes back");
            self.world.now = event.at();
            if event.kind() == EventKind::Arrive {
                self.on_arrival(event.object_index());
            } else {
                self.handle_event(event)?;
            }
            if AWAITS && self.world.awaited.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Handles all events except the arrival of a packet.
    #[inline(never)]
    fn handle_event(&mut self, event: SimEvent) -> Result<(), SimError> {
        let (now, which) = (self.world.now, event.object_index());
        match event.kind() {
            EventKind::Arrive => self.on_arrival(which),
            EventKind::NicReady => {
                self.world.nics[which as usize].event_scheduled = false;
                self.send_waiting(which);
            }
            EventKind::Timeout => self.on_timeout(which),
            EventKind::Pace => {
                let end = &mut self.world.ends[which as usize];
                if end.pacing_event == now {
                    end.pacing_event = Time::MAX;
                    self.pump(which);
                }
            }
            EventKind::Kick => self.pump(which),
            EventKind::LinkReady => self.on_link_ready(which),
            EventKind::Start => self.start_flow(which),
            EventKind::App => {
                let next = &mut self.world.apps[which as usize].next_wake;
                if *next == now {
                    *next = Time::MAX;
                    self.world.wake(which, WakeReason::Timer);
                }
            }
            EventKind::Change => {
                if let Some(change) = self.world.changes[which as usize].take() {
                    self.world.change(now, change)?;
                }
            }
            EventKind::Steer => self.steer(which),
            EventKind::AgentDeadline => {
                let host = &mut self.world.hosts[which as usize];
                if host.deadline == now {
                    host.deadline = Time::MAX;
                    host.on_deadline(now);
                    self.world.forward_commands(which);
                    self.world.schedule_agent(which);
                }
            }
            EventKind::Bundle => self.on_bundle(which),
            EventKind::Datagram => {
                if let Some(packet) = self.world.datagrams.pop_next(which) {
                    let (id, place, _) = self.world.packets.next_slot();
                    *place = packet;
                    self.world.packets.allocate(id, false);
                    self.forward(which, id);
                }
            }
        }
        Ok(())
    }
}
