//! What may stand between flows and their agents: a link that loses messages, agents that die, tests.

use ccplane_agent::FlowInfo;
use ccplane_units::{Bytes, Rate, Time};
use ccplane_wire::{Command, Event};

use crate::World;
use crate::end::Steer;

/// Stands in the place of an agent that hears everything in time. It hears what the datapath says, and brings what the
/// datapath is to do, when it likes.
pub trait Between: std::fmt::Debug + Send {
    /// The datapath says something. False when nobody takes it: a report stays in its flow then, and is offered again.
    fn say(&mut self, now: Time, event: &Event<'_>) -> bool;

    /// When [`bring`](Between::bring) is to be called, or later.
    fn next_due(&self) -> Time;

    /// The next of what comes to the datapath by now. It is called until there is nothing.
    fn bring(&mut self, now: Time) -> Option<Brought>;
}

/// What comes to a datapath.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and a box would allocate per command"
)]
pub enum Brought {
    /// An agent is there that may be new: the datapath announces itself and every flow that lives, before anything else
    /// is brought.
    Agent,
    /// A command.
    Command(Command),
}

/// The number of the flow that a command is for; none has the highest.
pub(super) fn flow_of(command: &Command) -> u32 {
    match command {
        Command::SetProgram { flow, .. } | Command::Update { flow, .. } => u32::try_from(*flow).unwrap_or(u32::MAX),
        Command::Offer(_) | Command::Install { .. } | Command::Heartbeat { .. } => u32::MAX,
    }
}

impl World {
    /// Tells an agent that may be new what there is.
    pub(super) fn announce(&mut self, agent: u32) {
        let now = self.now;
        let host = &mut self.hosts[agent as usize];
        let datapath = host.tables.describe(agent, "sim");
        host.tell(now, Event::Ready { datapath });
        // Senders are at even places.
        for end in self.ends.iter().step_by(2) {
            let Steer::Agent(place) = end.control.get() else {
                continue;
            };
            let steered = self.steered.get(place).and_then(Option::as_ref);
            let Some(connection) = end
                .connection
                .as_ref()
                .filter(|_| steered.is_some_and(|s| s.host == agent))
            else {
                continue;
            };
            let mss = Bytes::new(connection.mss());
            let info = FlowInfo {
                mss,
                cwnd: Bytes::new(connection.cwnd()),
                ssthresh: Bytes::new(connection.ssthresh()),
                rate: Rate::from_bytes_per_sec(connection.rate()),
                srtt: connection.srtt(),
                live: true,
                ..FlowInfo::default()
            };
            host.open(now, end.flow, info);
        }
    }
}
