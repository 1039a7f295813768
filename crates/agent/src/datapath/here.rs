//! An agent in the datapath's own thread, which hears everything and is heard at once, or after a
//! delay each way.

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};
use ccplane_wire::{Command, Event};

use super::message::{Message, recycle_events};
use super::{Brought, Way};
use crate::{Agent, DatapathId};

/// What lies between an agent and its flows. None where time is real: there an agent takes the time
/// that it takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// How old a report is when the agent sees it.
    pub to_agent: Duration,
    /// How long a command takes to its flow.
    pub from_agent: Duration,
}

/// The way to an agent of this thread. It runs between the calls of flows, in [`look`](Way::look)
/// and [`flush`](Way::flush): one that takes long keeps them waiting. What waits for the agent is
/// what flows report in a turn, or in the delay.
pub struct Here {
    /// The agent.
    pub agent: Agent,
    id: DatapathId,
    delays: Delays,
    to_agent: VecDeque<(Time, Message)>,
    from_agent: VecDeque<(Time, Command)>,
    /// What the agent said to other datapaths of it.
    elsewhere: VecDeque<(DatapathId, Command)>,
    /// Room for what is handed over together. Empty between calls.
    together: Vec<Event<'static>>,
}

impl Here {
    /// The way of the agent's one datapath, without delays.
    pub fn new(agent: Agent) -> Here {
        Here::after(agent, DatapathId(0), Delays::default())
    }

    /// The way of one of its datapaths, with delays.
    pub fn after(agent: Agent, id: DatapathId, delays: Delays) -> Here {
        Here {
            agent,
            id,
            delays,
            to_agent: VecDeque::new(),
            from_agent: VecDeque::new(),
            elsewhere: VecDeque::new(),
            together: Vec::new(),
        }
    }

    /// When something reaches either side next.
    #[inline]
    pub fn next_due(&self) -> Time {
        let agent = self.to_agent.front().map_or(Time::MAX, |(due, _)| *due);
        let flows = self.from_agent.front().map_or(Time::MAX, |(due, _)| *due);
        agent.min(flows)
    }

    /// The agent gets what is due by now, all of it together. `see` looks on.
    pub fn deliver(&mut self, now: Time, see: impl FnMut(&Event<'_>)) {
        let waiting = (&mut self.to_agent, &mut self.together);
        hand_over(&mut self.agent, self.id, now, waiting, see);
        self.collect(now);
    }

    /// The same for an agent that is kept with another of its datapaths, which
    /// [collects](Here::collect) what it answers.
    pub fn deliver_to(&mut self, agent: &mut Agent, now: Time, see: impl FnMut(&Event<'_>)) {
        hand_over(
            agent,
            self.id,
            now,
            (&mut self.to_agent, &mut self.together),
            see,
        );
    }

    /// Takes what the agent says to this datapath.
    pub fn take(&mut self, now: Time, command: Command) {
        self.from_agent
            .push_back((now + self.delays.from_agent, command));
    }

    /// The next of what the agent said to other datapaths of it.
    pub fn next_elsewhere(&mut self) -> Option<(DatapathId, Command)> {
        self.elsewhere.pop_front()
    }

    /// The agent's deadline has come.
    pub fn on_deadline(&mut self, now: Time) {
        self.agent.on_deadline(now);
        self.collect(now);
    }

    /// Takes what the agent has said; what is for other datapaths is [kept for
    /// them](Here::next_elsewhere).
    pub fn collect(&mut self, now: Time) {
        while let Some((to, command)) = self.agent.poll() {
            match to == self.id {
                true => self.take(now, command),
                false => self.elsewhere.push_back((to, command)),
            }
        }
    }
}

/// What is due leaves `to_agent` for the agent. `together` is room.
fn hand_over(
    agent: &mut Agent,
    id: DatapathId,
    now: Time,
    (to_agent, together): (&mut VecDeque<(Time, Message)>, &mut Vec<Event<'static>>),
    see: impl FnMut(&Event<'_>),
) {
    let due = to_agent.iter().take_while(|(due, _)| *due <= now).count();
    if due == 0 {
        return;
    }
    let mut events = recycle_events(std::mem::take(together));
    events.extend(
        to_agent
            .iter()
            .take(due)
            .map(|(_, message)| message.event()),
    );
    events.iter().for_each(see);
    agent.handle_all(now, id, &events);
    *together = recycle_events(events);
    to_agent.drain(..due);
}

impl Way for Here {
    #[inline]
    fn report(&mut self, now: Time, report: &Event<'_>) -> bool {
        let due = now + self.delays.to_agent;
        self.to_agent
            .extend(Message::of_report(report).map(|message| (due, message)));
        true
    }

    fn tell(&mut self, now: Time, event: Event<'static>) {
        self.to_agent
            .push_back((now + self.delays.to_agent, Message::Other(event)));
    }

    fn look(&mut self, now: Time) {
        if self.agent.next_deadline().is_some_and(|due| due <= now) {
            self.on_deadline(now);
        }
        self.deliver(now, |_| ());
    }

    fn bring(&mut self, now: Time) -> Option<Brought> {
        self.from_agent.front().filter(|(due, _)| *due <= now)?;
        Some(Brought::Command(self.from_agent.pop_front()?.1))
    }

    fn flush(&mut self, now: Time) {
        self.deliver(now, |_| ());
    }

    fn next_deadline(&self) -> Option<Time> {
        let due = self
            .next_due()
            .min(self.agent.next_deadline().unwrap_or(Time::MAX));
        (due != Time::MAX).then_some(due)
    }
}
