//! A list of messages over connections that persist, the same list whoever sends it: when, on which
//! connection, how large.
//!
//! A connection sends its messages in their order, as one stream: one that comes while another is
//! under way waits behind it. A message's completion time counts from the list's time to the
//! arrival of its last byte.

use std::collections::VecDeque;

use ccplane_sim::{App, AppId, DataDirection, FlowId, FlowSpec, SimError, WakeReason, World};
use ccplane_units::{Duration, Time};

/// A message of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// When its sender has it; the list is in the order of these.
    pub at: Duration,
    /// Which connection, from 0.
    pub connection: u32,
    /// How large it is.
    pub bytes: u64,
}

/// The list at work in a simulation.
pub(super) struct Replay {
    messages: Vec<Message>,
    next: usize,
    /// Connections to open.
    specs: Vec<FlowSpec>,
    connections: Vec<Connection>,
    /// Of each message, when its last byte came.
    done: Vec<Option<Time>>,
    begin: Time,
}

struct Connection {
    flow: Option<FlowId>,
    /// Messages that were written and have not been received, oldest first.
    waiting: VecDeque<usize>,
}

impl Replay {
    /// Opens the connections at once, and begins the list at `begin`, when they should be open.
    pub fn start(
        world: &mut World,
        specs: Vec<FlowSpec>,
        messages: Vec<Message>,
        begin: Time,
    ) -> AppId {
        let replay = Replay {
            done: vec![None; messages.len()],
            messages,
            next: 0,
            specs,
            connections: Vec::new(),
            begin,
        };
        world.add_app(Box::new(replay), Time::ZERO)
    }

    /// Opens every connection that the list uses: one without data would never finish.
    fn open(&mut self, me: AppId, world: &mut World) -> Result<(), SimError> {
        for (n, spec) in self.specs.drain(..).enumerate() {
            let used = self
                .messages
                .iter()
                .any(|message| message.connection as usize == n);
            let spec = FlowSpec {
                bytes: Some(0),
                finish: false,
                ..spec
            };
            self.connections.push(Connection {
                flow: if used {
                    Some(world.add_app_flow(me, spec)?)
                } else {
                    None
                },
                waiting: VecDeque::new(),
            });
        }
        Ok(())
    }

    /// How long each message took, from the list's time; `None` for those that have not come.
    pub fn took(&self) -> impl Iterator<Item = Option<Duration>> + '_ {
        let took = |(message, done): (&Message, &Option<Time>)| {
            Some(done.as_ref()?.since(self.begin + message.at))
        };
        self.messages.iter().zip(&self.done).map(took)
    }

    /// Whether all have come.
    pub fn finished(&self) -> bool {
        self.next == self.messages.len() && self.connections.iter().all(|c| c.waiting.is_empty())
    }
}

impl App for Replay {
    fn wake(&mut self, now: Time, me: AppId, cause: WakeReason, world: &mut World) -> Option<Time> {
        if let Err(error) = self.open(me, world) {
            world.fail(error);
            return None;
        }
        if let WakeReason::Received(flow, DataDirection::Forward) = cause {
            self.connections
                .iter_mut()
                .filter(|c| c.flow == Some(flow))
                .filter_map(|c| c.waiting.pop_front())
                .for_each(|message| self.done[message] = Some(now));
            return None;
        }
        while let Some(message) = self
            .messages
            .get(self.next)
            .filter(|m| self.begin + m.at <= now)
        {
            let connection = self.connections.get_mut(message.connection as usize);
            let open = connection.and_then(|connection| Some((connection.flow?, connection)));
            let Some((flow, connection)) = open else {
                let number = message.connection;
                world.fail(SimError::InvalidTopology(format!(
                    "the list names a connection {number} that there is not"
                )));
                return None;
            };
            if !world.write(flow, DataDirection::Forward, message.bytes, false) {
                let why = "a connection of the list is not open in time".to_owned();
                world.fail(SimError::InvalidTopology(why));
                return None;
            }
            connection.waiting.push_back(self.next);
            self.next += 1;
        }
        self.messages
            .get(self.next)
            .map(|message| self.begin + message.at)
    }
}
