//! Failover between several agents, of which one is active.

use std::os::fd::BorrowedFd;

use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

use super::{AgentConnection, LinkError, SendOutcome};

/// Transports to several agents. The first that answers becomes active; when it is lost, they are
/// tried again from the first on. There is no failback while the active agent is connected, because
/// a switch puts every flow on the fallback for a moment.
pub struct Failover {
    agents: Vec<AgentSlot>,
    /// Index of the active agent.
    active: Option<usize>,
}

struct AgentSlot {
    connection: Box<dyn AgentConnection>,
    /// True if it was tried since the last agent was lost and did not answer.
    failed: bool,
}

impl Failover {
    /// Creates the transport. Agents are tried in this order.
    pub fn new(agents: Vec<Box<dyn AgentConnection>>) -> Failover {
        let one = |remote| AgentSlot {
            connection: remote,
            failed: false,
        };
        Failover {
            agents: agents.into_iter().map(one).collect(),
            active: None,
        }
    }

    fn current(&self) -> Option<&dyn AgentConnection> {
        Some(&*self.agents.get(self.active?)?.connection)
    }

    fn current_mut(&mut self) -> Option<&mut Box<dyn AgentConnection>> {
        Some(&mut self.agents.get_mut(self.active?)?.connection)
    }

    /// Returns how many agents are being tried: the first, and each whose predecessors all failed.
    fn agents_tried(&self) -> usize {
        let failed = self.agents.iter().take_while(|one| one.failed).count();
        (failed + 1).min(self.agents.len())
    }
}

impl AgentConnection for Failover {
    fn connect(&mut self, now: Time) -> Result<(), LinkError> {
        if self.is_connected() {
            return Ok(());
        }
        if self.active.take().is_some() {
            self.agents.iter_mut().for_each(|one| one.failed = false);
        }
        let (mut first, mut connecting, mut index) = (None, false, 0);
        while index < self.agents_tried() {
            let one = &mut self.agents[index];
            match one.connection.connect(now) {
                Ok(()) => {
                    self.active = Some(index);
                    return Ok(());
                }
                Err(LinkError::Connecting) => connecting = true,
                Err(why) => {
                    one.failed = true;
                    first.get_or_insert(why);
                }
            }
            index += 1;
        }
        match first {
            Some(why) if !connecting => Err(why),
            _ => Err(LinkError::Connecting),
        }
    }

    fn next_attempt(&self, now: Time) -> Duration {
        let all = self.agents.iter().take(self.agents_tried());
        all.map(|one| one.connection.next_attempt(now))
            .min()
            .unwrap_or(Duration::from_secs(1))
    }

    fn round_trip(&self) -> Option<Duration> {
        self.current()?.round_trip()
    }

    fn is_connected(&self) -> bool {
        self.current().is_some_and(AgentConnection::is_connected)
    }

    fn queue_event(&mut self, event: &WireEvent<'_>) -> SendOutcome {
        self.current_mut()
            .map_or(SendOutcome::NoAgent, |one| one.queue_event(event))
    }

    fn flush(&mut self) -> bool {
        self.current_mut().is_some_and(|one| one.flush())
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(WireCommand)) {
        if let Some(one) = self.current_mut() {
            one.receive(now, sink);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.current()?.next_deadline()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.current()?.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::ThreadClock;

    /// Agents that are reachable or not, and the recipients of events.
    #[derive(Clone, Default)]
    struct World {
        there: [Arc<AtomicBool>; 2],
        heard: Arc<Mutex<Vec<usize>>>,
    }

    struct Agent(World, usize, bool);

    impl AgentConnection for Agent {
        fn connect(&mut self, _now: Time) -> Result<(), LinkError> {
            self.2 = self.0.there[self.1].load(Ordering::Relaxed);
            match self.2 {
                true => Ok(()),
                false => Err(LinkError::Wait(nix::errno::Errno::ENOENT)),
            }
        }

        fn next_attempt(&self, _now: Time) -> Duration {
            Duration::from_millis(100)
        }

        fn is_connected(&self) -> bool {
            self.2 && self.0.there[self.1].load(Ordering::Relaxed)
        }

        fn queue_event(&mut self, _event: &WireEvent<'_>) -> SendOutcome {
            self.0.heard.lock().unwrap().push(self.1);
            SendOutcome::Queued
        }

        fn flush(&mut self) -> bool {
            true
        }

        fn receive(&mut self, _now: Time, _sink: &mut dyn FnMut(WireCommand)) {}

        fn as_fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn the_second_agent_steers_while_the_first_is_absent() {
        let (world, now) = (World::default(), ThreadClock::new().now());
        let agent =
            |index| Box::new(Agent(world.clone(), index, false)) as Box<dyn AgentConnection>;
        let mut several = Failover::new(vec![agent(0), agent(1)]);
        let is_there = |index: usize, is: bool| world.there[index].store(is, Ordering::Relaxed);
        let event = WireEvent::Installed { program: 1 };
        assert!(
            several.connect(now).is_err() && several.queue_event(&event) == SendOutcome::NoAgent
        );
        is_there(1, true);
        assert!(several.connect(now).is_ok());
        assert_eq!(several.queue_event(&event), SendOutcome::Queued);
        // The first agent returns; there is no failback.
        is_there(0, true);
        assert!(several.connect(now).is_ok());
        assert_eq!(several.queue_event(&event), SendOutcome::Queued);
        is_there(1, false);
        assert!(!several.is_connected() && several.connect(now).is_ok());
        assert_eq!(several.queue_event(&event), SendOutcome::Queued);
        is_there(0, false);
        assert!(several.connect(now).is_err());
        assert_eq!(*world.heard.lock().unwrap(), [1, 1, 0]);
    }
}
