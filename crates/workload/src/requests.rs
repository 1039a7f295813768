//! A closed loop over persistent connections: request, response, pause, again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ccplane_units::{Bytes, Time};
use rand_pcg::Pcg64;

use super::{Action, MOST_RECORDS, Pairs, Pause, SizeTable, Span};

/// A request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The connection, in the order in which the workload opened them.
    pub connection: u32,
    /// When the request was written.
    pub started: Time,
    /// When the last byte of the response arrived.
    pub finished: Time,
    /// Size of the request.
    pub request: Bytes,
    /// Size of the response.
    pub response: Bytes,
}

/// Clients and servers of one workload.
#[derive(Debug)]
pub(super) struct Requests {
    request: SizeTable,
    response: SizeTable,
    think: Pause,
    span: Span,
    random: Pcg64,
    /// Connections a pair, and how many of all were looked at for opening.
    connections: u64,
    considered: u64,
    open: Vec<Connection>,
    /// Connections in their pause: its end, and the slot.
    thinking: BinaryHeap<Reverse<(Time, u32)>>,
    ready: VecDeque<Action>,
    /// Connections whose both ends have said that nothing more comes.
    ended: usize,
    done: Vec<Exchange>,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    state: State,
    started: Time,
    request: Bytes,
    response: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The request is under way.
    Asking,
    /// The response is under way.
    Answering,
    /// Neither.
    Quiet,
}

impl Requests {
    pub fn new(
        connections: u32,
        request: SizeTable,
        response: SizeTable,
        think: Pause,
        span: Span,
        random: Pcg64,
    ) -> Requests {
        Requests {
            request,
            response,
            think,
            span,
            random,
            connections: connections.into(),
            considered: 0,
            open: Vec::new(),
            thinking: BinaryHeap::new(),
            ready: VecDeque::new(),
            ended: 0,
            done: Vec::new(),
        }
    }

    pub fn next_time(&self) -> Option<Time> {
        if self.considered == 0 && !self.span.over(self.span.start) {
            return Some(self.span.start);
        }
        self.thinking.peek().map(|Reverse((at, _))| *at)
    }

    pub fn poll(&mut self, now: Time, pairs: &Pairs) -> Option<Action> {
        if let Some(action) = self.ready.pop_front() {
            return Some(action);
        }
        if now < self.span.start {
            return None;
        }
        let places = pairs.places() as u64;
        while self.considered < places * self.connections && !self.span.over(self.span.start) {
            let place = self.considered % places;
            self.considered += 1;
            if let Some((from, to)) = pairs.get(place as usize) {
                let request = self.ask(now);
                self.open.push(request);
                return Some(Action::Open {
                    from,
                    to,
                    bytes: Some(request.request.get()),
                    finish: false,
                    follow: true,
                });
            }
        }
        while let Some(Reverse((_, slot))) = self
            .thinking
            .peek()
            .copied()
            .filter(|Reverse((at, _))| *at <= now)
        {
            self.thinking.pop();
            if self.span.over(now) {
                self.end(slot);
                return self.ready.pop_front();
            }
            let request = self.ask(now);
            if let Some(connection) = self.open.get_mut(slot as usize) {
                *connection = request;
                return Some(write(slot, false, request.request.get(), false));
            }
        }
        None
    }

    /// The request reached the server, or the response the client.
    pub fn received(&mut self, now: Time, slot: u32, back: bool) {
        let Some(connection) = self.open.get_mut(slot as usize) else {
            return;
        };
        match (connection.state, back) {
            (State::Asking, false) => {
                connection.state = State::Answering;
                connection.response = self.response.draw(&mut self.random);
                self.ready
                    .push_back(write(slot, true, connection.response.get(), false));
            }
            (State::Answering, true) => {
                connection.state = State::Quiet;
                if self.done.len() < MOST_RECORDS {
                    self.done.push(Exchange {
                        connection: slot,
                        started: connection.started,
                        finished: now,
                        request: connection.request,
                        response: connection.response,
                    });
                }
                if self.span.over(now) {
                    self.end(slot);
                } else {
                    let again = now + self.think.draw(&mut self.random);
                    self.thinking.push(Reverse((again, slot)));
                }
            }
            _ => {}
        }
    }

    pub fn done(&self) -> &[Exchange] {
        &self.done
    }

    /// Requests without their responses.
    pub fn unfinished(&self) -> u64 {
        let open = self
            .open
            .iter()
            .filter(|connection| connection.state != State::Quiet);
        open.count() as u64
    }

    /// Whether no request is to come, and none is without its response.
    pub fn ended(&self) -> bool {
        self.span.over(self.span.start) || (self.considered > 0 && self.ended == self.open.len())
    }

    /// A request to be written now.
    fn ask(&mut self, now: Time) -> Connection {
        Connection {
            state: State::Asking,
            started: now,
            request: self.request.draw(&mut self.random),
            response: Bytes::new(0),
        }
    }

    /// Both ends have nothing more to say.
    fn end(&mut self, slot: u32) {
        self.ended += 1;
        self.ready.push_back(write(slot, false, 0, true));
        self.ready.push_back(write(slot, true, 0, true));
    }
}

fn write(slot: u32, back: bool, bytes: u64, finish: bool) -> Action {
    Action::Write {
        slot,
        back,
        bytes,
        finish,
    }
}
