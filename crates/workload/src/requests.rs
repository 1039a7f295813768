//! Closed-loop requests over persistent connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ccplane_units::{Bytes, Time};
use rand_pcg::Pcg64;

use super::{Action, ActiveTime, DurationDistribution, Pairs, RECORDS_MAX, SizeTable};

/// Request and response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Connection, numbered in the order in which the workload opened them.
    pub connection: u32,
    /// Time at which the request was written.
    pub started: Time,
    /// Time at which the last byte of the response was received.
    pub finished: Time,
    /// Size of the request.
    pub request: Bytes,
    /// Size of the response.
    pub response: Bytes,
}

/// Closed-loop clients and servers.
#[derive(Debug)]
pub(super) struct Requests {
    request: SizeTable,
    response: SizeTable,
    think_time: DurationDistribution,
    span: ActiveTime,
    random: Pcg64,
    /// Connections per pair, and the number of connections considered for opening so far.
    connections: u64,
    considered: u64,
    open: Vec<RequestConnection>,
    /// Connections in their think time: its end, and the slot.
    thinking: BinaryHeap<Reverse<(Time, u32)>>,
    ready: VecDeque<Action>,
    /// Number of connections closed in both directions.
    closed_count: usize,
    completed: Vec<Exchange>,
}

#[derive(Clone, Copy, Debug)]
struct RequestConnection {
    state: RequestState,
    started: Time,
    request: Bytes,
    response: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    /// The request is in flight.
    RequestInFlight,
    /// The response is in flight.
    ResponseInFlight,
    /// Idle.
    Idle,
}

impl Requests {
    pub fn new(
        connections: u32,
        request: SizeTable,
        response: SizeTable,
        think: DurationDistribution,
        span: ActiveTime,
        random: Pcg64,
    ) -> Requests {
        Requests {
            request,
            response,
            think_time: think,
            span,
            random,
            connections: connections.into(),
            considered: 0,
            open: Vec::new(),
            thinking: BinaryHeap::new(),
            ready: VecDeque::new(),
            closed_count: 0,
            completed: Vec::new(),
        }
    }

    pub fn next_time(&self) -> Option<Time> {
        if self.considered == 0 && !self.span.is_over(self.span.start) {
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
        let places = pairs.position_count() as u64;
        while self.considered < places * self.connections && !self.span.is_over(self.span.start) {
            let place = self.considered % places;
            self.considered += 1;
            if let Some((from, to)) = pairs.get(place as usize) {
                let request = self.new_request(now);
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
            if self.span.is_over(now) {
                self.close_connection(slot);
                return self.ready.pop_front();
            }
            let request = self.new_request(now);
            if let Some(connection) = self.open.get_mut(slot as usize) {
                *connection = request;
                return Some(write(slot, false, request.request.get(), false));
            }
        }
        None
    }

    /// Handles the delivery of a request to the server (`back` is false) or of a response to the
    /// client.
    pub fn on_received(&mut self, now: Time, slot: u32, back: bool) {
        let Some(connection) = self.open.get_mut(slot as usize) else {
            return;
        };
        match (connection.state, back) {
            (RequestState::RequestInFlight, false) => {
                connection.state = RequestState::ResponseInFlight;
                connection.response = self.response.draw(&mut self.random);
                self.ready
                    .push_back(write(slot, true, connection.response.get(), false));
            }
            (RequestState::ResponseInFlight, true) => {
                connection.state = RequestState::Idle;
                if self.completed.len() < RECORDS_MAX {
                    self.completed.push(Exchange {
                        connection: slot,
                        started: connection.started,
                        finished: now,
                        request: connection.request,
                        response: connection.response,
                    });
                }
                if self.span.is_over(now) {
                    self.close_connection(slot);
                } else {
                    let again = now + self.think_time.draw(&mut self.random);
                    self.thinking.push(Reverse((again, slot)));
                }
            }
            _ => {}
        }
    }

    pub fn completed(&self) -> &[Exchange] {
        &self.completed
    }

    /// Returns the number of requests without a response.
    pub fn unfinished(&self) -> u64 {
        let open = self
            .open
            .iter()
            .filter(|connection| connection.state != RequestState::Idle);
        open.count() as u64
    }

    /// Returns true if no more requests will be sent and all have been answered.
    pub fn has_ended(&self) -> bool {
        self.span.is_over(self.span.start)
            || (self.considered > 0 && self.closed_count == self.open.len())
    }

    /// Creates the state of a request written now.
    fn new_request(&mut self, now: Time) -> RequestConnection {
        RequestConnection {
            state: RequestState::RequestInFlight,
            started: now,
            request: self.request.draw(&mut self.random),
            response: Bytes::new(0),
        }
    }

    /// Ends both directions of a connection.
    fn close_connection(&mut self, slot: u32) {
        self.closed_count += 1;
        self.ready.push_back(write(slot, false, 0, true));
        self.ready.push_back(write(slot, true, 0, true));
    }
}

fn write(slot: u32, back: bool, bytes: u64, finish: bool) -> Action {
    Action::Write {
        slot,
        backward: back,
        bytes,
        finish,
    }
}
