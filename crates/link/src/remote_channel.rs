//! Channel to an agent in another process, over any [`AgentConnection`].

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use ccplane_agent::datapath::{AgentChannel, Incoming};
use ccplane_units::{Duration, Time};
use ccplane_wire::WireEvent;

use crate::{AgentConnection, LinkError, Pollable, SendOutcome, connect_blocking};

/// Retry interval while the agent does not keep up. A shorter one would take CPU time the agent may
/// need; a longer one would delay new flows.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Replies to commands are dropped above this queue length. A lower limit would lose replies to a
/// burst of commands; without one, an agent that sends commands but does not read could exhaust
/// memory.
const QUEUED_REPLIES_MAX: usize = 1024;

/// Channel to an agent in another process, with automatic reconnection.
///
/// Messages that the agent cannot take yet are queued here: openings and closings of flows, bounded
/// by the number of flows, and replies up to a limit. A refused report stays in its flow; reports
/// never overtake queued messages.
pub struct RemoteChannel {
    connection: Box<dyn AgentConnection>,
    queued: VecDeque<WireEvent<'static>>,
    received: VecDeque<Incoming>,
    /// Time of the next attempt to send queued messages.
    next_send: Time,
    /// Time of the next attempt to connect.
    next_connect: Time,
}

impl RemoteChannel {
    /// Connects to an agent; fails if there is none. Blocks until the attempt has succeeded or
    /// failed, which can take seconds for an agent on another host.
    pub fn connect(
        mut remote: Box<dyn AgentConnection>,
        now: Time,
    ) -> Result<RemoteChannel, LinkError> {
        connect_blocking(&mut *remote, now)?;
        Ok(RemoteChannel::new(remote))
    }

    /// Creates a channel to an agent that may start later.
    pub fn new(remote: Box<dyn AgentConnection>) -> RemoteChannel {
        RemoteChannel {
            connection: remote,
            queued: VecDeque::new(),
            received: VecDeque::new(),
            next_send: Time::MAX,
            next_connect: Time::ZERO,
        }
    }

    /// Returns whether an agent is connected, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    /// Returns the RTT to an agent on another host.
    pub fn round_trip(&self) -> Option<Duration> {
        self.connection.round_trip()
    }

    /// Removes the queued opening of a closed flow. Returns whether there was one.
    fn cancel_opening(&mut self, closed: u64) -> bool {
        let before = self.queued.len();
        self.queued.retain(
            |event| !matches!(event, WireEvent::FlowOpened { flow, .. } if *flow == closed),
        );
        self.queued.len() < before
    }

    /// Sends queued messages, as far as there is room.
    fn send_queued(&mut self) {
        while let Some(event) = self.queued.front() {
            match self.connection.queue_event(event) {
                SendOutcome::Queued => drop(self.queued.pop_front()),
                SendOutcome::Full => return,
                // All live flows are announced to the next agent anyway.
                SendOutcome::NoAgent => self.queued.clear(),
            }
        }
    }
}

impl AgentChannel for RemoteChannel {
    fn try_report(&mut self, _now: Time, report: &WireEvent<'_>) -> bool {
        self.queued.is_empty() && self.connection.queue_event(report) == SendOutcome::Queued
    }

    fn send(&mut self, _now: Time, event: WireEvent<'static>) {
        match event {
            // The agent need not know of a flow that ended before its opening was sent.
            WireEvent::FlowClosed { flow, .. } if self.cancel_opening(flow) => {}
            WireEvent::Installed { .. } | WireEvent::Refused { .. }
                if self.queued.len() >= QUEUED_REPLIES_MAX => {}
            event => self.queued.push_back(event),
        }
        self.send_queued();
    }

    fn poll(&mut self, now: Time) {
        if !self.connection.is_connected() && now >= self.next_connect {
            match self.connection.connect(now) {
                Ok(()) => {
                    self.queued.clear();
                    self.received.push_back(Incoming::AgentConnected);
                }
                Err(_) => self.next_connect = now + self.connection.next_attempt(now),
            }
        }
        let come = &mut self.received;
        self.connection.receive(now, &mut |command| {
            come.push_back(Incoming::Command(command))
        });
    }

    fn recv(&mut self, _now: Time) -> Option<Incoming> {
        self.received.pop_front()
    }

    fn flush(&mut self, now: Time) {
        self.send_queued();
        self.next_send = if self.queued.is_empty() {
            Time::MAX
        } else {
            now + RETRY_INTERVAL
        };
        self.connection.flush();
    }

    fn next_deadline(&self) -> Option<Time> {
        if !self.connection.is_connected() {
            return Some(self.next_connect);
        }
        let due = self
            .connection
            .next_deadline()
            .unwrap_or(Time::MAX)
            .min(self.next_send);
        (due != Time::MAX).then_some(due)
    }
}

impl Pollable for RemoteChannel {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ccplane_agent::ProgramTables;
    use ccplane_agent::datapath::{Datapath, DatapathCore};
    use ccplane_datapath::{Capabilities, OperatorLimits};
    use ccplane_units::Bytes;
    use ccplane_wire::{FlowInfo, WireCommand};

    use super::*;

    /// An agent that accepts a limited number of events.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<(usize, Vec<String>)>>);

    impl Slow {
        fn allow(&self, events: usize) {
            self.0.lock().unwrap().0 = events;
        }

        fn heard(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap().1)
        }
    }

    impl AgentConnection for Slow {
        fn connect(&mut self, _now: Time) -> Result<(), LinkError> {
            Ok(())
        }

        fn next_attempt(&self, _now: Time) -> Duration {
            Duration::from_millis(100)
        }

        fn is_connected(&self) -> bool {
            true
        }

        fn queue_event(&mut self, event: &WireEvent<'_>) -> SendOutcome {
            let (room, heard) = &mut *self.0.lock().unwrap();
            if *room == 0 {
                return SendOutcome::Full;
            }
            *room -= 1;
            heard.push(match event {
                WireEvent::Ready { .. } => "ready".to_owned(),
                WireEvent::FlowOpened { flow, .. } => format!("{flow} opened"),
                WireEvent::FlowClosed { flow, .. } => format!("{flow} closed"),
                WireEvent::Report { flow, .. } => format!("{flow} reports"),
                other => format!("{other:?}"),
            });
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

    /// Returns a datapath connected to this agent.
    fn connect(slow: &Slow, now: Time) -> Datapath<RemoteChannel> {
        let link = RemoteChannel::connect(Box::new(slow.clone()), now).unwrap();
        let tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
        Datapath::new(now, DatapathCore::new(1, "test", tables, link))
    }

    #[test]
    fn a_blocked_agent_later_learns_every_live_flow_and_every_end() {
        let (slow, now) = (Slow::default(), Time::from_micros(1));
        slow.allow(2);
        let mut datapath = connect(&slow, now);
        for flow in 1..=3 {
            datapath.open(now, flow, FlowInfo::default());
        }
        assert_eq!(slow.heard(), ["ready", "1 opened"]);
        // A report does not overtake its flow's opening; it stays in the flow.
        let report = WireEvent::Report {
            flow: 1,
            program: 1,
            urgent: false,
            fields: &[1],
        };
        assert!(!datapath.channel_mut().try_report(now, &report));
        let nothing = Bytes::new(0);
        datapath.close(now, 1, nothing, 0);
        datapath.close(now, 2, nothing, 0);
        assert_eq!(slow.heard(), [] as [&str; 0]);
        datapath.poll(now);
        assert_eq!(datapath.next_deadline(), Some(now + RETRY_INTERVAL));
        slow.allow(100);
        datapath.poll(now + RETRY_INTERVAL);
        assert_eq!(slow.heard(), ["3 opened", "1 closed"]);
        assert_eq!(datapath.next_deadline(), None);
        assert!(datapath.channel_mut().try_report(now, &report));
    }

    #[test]
    fn an_agent_that_never_reads_uses_bounded_memory() {
        let (slow, now) = (Slow::default(), Time::from_micros(1));
        slow.allow(1);
        let mut datapath = connect(&slow, now);
        for flow in 0..10 * QUEUED_REPLIES_MAX as u64 {
            // The flows do not exist, so each command is refused.
            let uid = 1;
            let updates = Default::default();
            let command = WireCommand::SetProgram { flow, uid, updates };
            datapath
                .channel_mut()
                .received
                .push_back(Incoming::Command(command));
            datapath.poll(now);
        }
        assert_eq!(datapath.channel().queued.len(), QUEUED_REPLIES_MAX);
    }
}
