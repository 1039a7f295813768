//! Agent in the datapath's own thread, without delay or with a fixed delay in each direction.

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

use super::agent_event::{AgentEvent, recycle_events};
use super::{AgentChannel, Incoming};
use crate::{Agent, DatapathId};

/// Delays between an agent and its flows, in simulation. With a real clock both are zero, as the
/// agent's own delay is real.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// Age of a report when the agent receives it.
    pub to_agent: Duration,
    /// Time that a command takes from the agent to the flow.
    pub from_agent: Duration,
}

/// Channel to an agent of this thread. The agent runs between the calls of flows, in
/// [`poll`](AgentChannel::poll) and [`flush`](AgentChannel::flush): a slow agent delays them. The
/// queue holds at most the reports of a turn, or of the delay.
pub struct InlineChannel {
    /// The agent.
    pub agent: Agent,
    id: DatapathId,
    delays: Delays,
    to_agent: VecDeque<(Time, AgentEvent)>,
    from_agent: VecDeque<(Time, WireCommand)>,
    /// Commands of the agent for its other datapaths.
    other_commands: VecDeque<(DatapathId, WireCommand)>,
    /// Buffer for events delivered together. Empty between calls.
    batch: Vec<WireEvent<'static>>,
}

impl InlineChannel {
    /// Creates the channel of the agent's only datapath, without delays.
    pub fn new(agent: Agent) -> InlineChannel {
        InlineChannel::with_delays(agent, DatapathId(0), Delays::default())
    }

    /// Creates the channel of one of its datapaths, with delays.
    pub fn with_delays(agent: Agent, id: DatapathId, delays: Delays) -> InlineChannel {
        InlineChannel {
            agent,
            id,
            delays,
            to_agent: VecDeque::new(),
            from_agent: VecDeque::new(),
            other_commands: VecDeque::new(),
            batch: Vec::new(),
        }
    }

    /// Time of the next delivery in either direction.
    #[inline]
    pub fn next_delivery(&self) -> Time {
        let agent = self.to_agent.front().map_or(Time::MAX, |(due, _)| *due);
        let flows = self.from_agent.front().map_or(Time::MAX, |(due, _)| *due);
        agent.min(flows)
    }

    /// Delivers all events due by now to the agent in one batch. `observe` is called for each.
    pub fn deliver(&mut self, now: Time, observe: impl FnMut(&WireEvent<'_>)) {
        let waiting = (&mut self.to_agent, &mut self.batch);
        deliver_due(&mut self.agent, self.id, now, waiting, observe);
        self.collect_commands(now);
    }

    /// Delivers due events to an agent that is stored with another of its datapaths, whose channel
    /// [collects](InlineChannel::collect_commands) the commands.
    pub fn deliver_to(
        &mut self,
        agent: &mut Agent,
        now: Time,
        observe: impl FnMut(&WireEvent<'_>),
    ) {
        deliver_due(
            agent,
            self.id,
            now,
            (&mut self.to_agent, &mut self.batch),
            observe,
        );
    }

    /// Queues a command of the agent for this datapath.
    pub fn push_command(&mut self, now: Time, command: WireCommand) {
        self.from_agent
            .push_back((now + self.delays.from_agent, command));
    }

    /// Returns the next command of the agent for its other datapaths.
    pub fn next_other_command(&mut self) -> Option<(DatapathId, WireCommand)> {
        self.other_commands.pop_front()
    }

    /// Runs the agent's deadline.
    pub fn on_deadline(&mut self, now: Time) {
        self.agent.on_deadline(now);
        self.collect_commands(now);
    }

    /// Collects the agent's commands. Those for other datapaths are returned by
    /// [`next_other_command`](InlineChannel::next_other_command).
    pub fn collect_commands(&mut self, now: Time) {
        while let Some((to, command)) = self.agent.poll() {
            match to == self.id {
                true => self.push_command(now, command),
                false => self.other_commands.push_back((to, command)),
            }
        }
    }
}

/// Moves due events from `to_agent` to the agent. `together` is a reusable buffer.
fn deliver_due(
    agent: &mut Agent,
    id: DatapathId,
    now: Time,
    (to_agent, batch): (
        &mut VecDeque<(Time, AgentEvent)>,
        &mut Vec<WireEvent<'static>>,
    ),
    observe: impl FnMut(&WireEvent<'_>),
) {
    let due = to_agent.iter().take_while(|(due, _)| *due <= now).count();
    if due == 0 {
        return;
    }
    let mut events = recycle_events(std::mem::take(batch));
    events.extend(
        to_agent
            .iter()
            .take(due)
            .map(|(_, message)| message.event()),
    );
    events.iter().for_each(observe);
    agent.handle_batch(now, id, &events);
    *batch = recycle_events(events);
    to_agent.drain(..due);
}

impl AgentChannel for InlineChannel {
    #[inline]
    fn try_report(&mut self, now: Time, report: &WireEvent<'_>) -> bool {
        let due = now + self.delays.to_agent;
        self.to_agent
            .extend(AgentEvent::from_report(report).map(|message| (due, message)));
        true
    }

    fn send(&mut self, now: Time, event: WireEvent<'static>) {
        self.to_agent
            .push_back((now + self.delays.to_agent, AgentEvent::Other(event)));
    }

    fn poll(&mut self, now: Time) {
        if self.agent.next_deadline().is_some_and(|due| due <= now) {
            self.on_deadline(now);
        }
        self.deliver(now, |_| ());
    }

    fn recv(&mut self, now: Time) -> Option<Incoming> {
        self.from_agent.front().filter(|(due, _)| *due <= now)?;
        Some(Incoming::Command(self.from_agent.pop_front()?.1))
    }

    fn flush(&mut self, now: Time) {
        self.deliver(now, |_| ());
    }

    fn next_deadline(&self) -> Option<Time> {
        let due = self
            .next_delivery()
            .min(self.agent.next_deadline().unwrap_or(Time::MAX));
        (due != Time::MAX).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use ccplane_wire::FlowInfo;

    use super::*;
    use crate::{AgentOptions, Algorithm, Control, Programs, Report};

    const MS: Duration = Duration::from_millis(1);

    /// Sets a window on another flow each millisecond.
    struct Ticker;

    impl Algorithm for Ticker {
        type Flow = ();
        fn name(&self) -> &str {
            "ticker"
        }
        fn programs(&self) -> Programs {
            Programs::new()
        }
        fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) {
            control.set_cwnd(ccplane_units::Bytes::new(1));
            control.set_timer(MS);
        }
        fn on_report(&mut self, (): &mut (), _: &Report<'_>, _: &mut Control<'_>) {}
        fn on_timer(&mut self, control: &mut Control<'_>) {
            let (datapath, flow) = (DatapathId(0), 1);
            if let Some(mut flow) = control.flow(crate::FlowId { datapath, flow }) {
                flow.set_cwnd(ccplane_units::Bytes::new(2));
            }
        }
    }

    /// Announces a datapath and its flow. The agent answers with an offer and a window.
    fn announce(here: &mut InlineChannel, now: Time) {
        let datapath = crate::ccp_datapath(1);
        here.send(now, WireEvent::Ready { datapath });
        let (flow, info) = (1, FlowInfo::default());
        here.send(now, WireEvent::FlowOpened { flow, info });
    }

    fn here(delays: Delays) -> InlineChannel {
        let mut agent = Agent::new(AgentOptions::default());
        agent.add(Ticker).expect("the flow has no program");
        InlineChannel::with_delays(agent, DatapathId(0), delays)
    }

    fn brought(here: &mut InlineChannel, now: Time) -> usize {
        std::iter::from_fn(|| here.recv(now)).count()
    }

    #[test]
    fn events_and_commands_take_their_delays() {
        let at = |ms: u64| Time::from_micros(ms * 1_000);
        let mut here = here(Delays {
            to_agent: MS * 3,
            from_agent: MS * 2,
        });
        announce(&mut here, at(10));
        assert_eq!(here.next_deadline(), Some(at(13)));
        here.poll(at(12));
        assert_eq!(here.agent.flow_count(), 0);
        here.poll(at(13));
        assert_eq!((here.agent.flow_count(), here.next_delivery()), (1, at(15)));
        assert_eq!(
            (brought(&mut here, at(14)), brought(&mut here, at(15))),
            (0, 2)
        );
    }

    #[test]
    fn polls_respect_the_agents_deadline() {
        let at = |ms: u64| Time::from_micros(ms * 1_000);
        let mut here = here(Delays::default());
        announce(&mut here, at(10));
        here.poll(at(10));
        assert_eq!(
            (brought(&mut here, at(10)), here.next_deadline()),
            (2, Some(at(11)))
        );
        here.poll(at(10));
        assert_eq!(brought(&mut here, at(10)), 0, "not due");
        here.poll(at(11));
        assert_eq!(
            (brought(&mut here, at(11)), here.next_deadline()),
            (1, None)
        );
    }

    /// An agent of several datapaths: what it has for another one is handed on.
    #[test]
    fn commands_for_another_datapath_are_kept_for_it() {
        let now = Time::from_micros(1_000);
        let mut first = here(Delays::default());
        let mut other = InlineChannel::with_delays(
            Agent::new(AgentOptions::default()),
            DatapathId(1),
            Delays::default(),
        );
        announce(&mut other, now);
        other.deliver_to(&mut first.agent, now, |_| ());
        assert_eq!((first.agent.flow_count(), other.agent.flow_count()), (1, 0));
        first.collect_commands(now);
        assert_eq!(brought(&mut first, now), 0);
        for _ in 0..2 {
            let (to, command) = first.next_other_command().expect("an offer and a window");
            assert_eq!(to, DatapathId(1));
            other.push_command(now, command);
        }
        assert!(first.next_other_command().is_none());
        assert_eq!(brought(&mut other, now), 2);
    }
}
