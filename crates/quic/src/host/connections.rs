//! Connections of a driver by identifier.
#![expect(clippy::disallowed_methods, reason = "the time origin of a log")]

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use super::HostOptions;
use super::qlog::Qlog;

pub(super) struct ConnectionTable<C> {
    pub connections: BTreeMap<u64, C>,
    /// Accepted connections that the application has not taken yet.
    pub accepted: VecDeque<u64>,
    next_id: u64,
    qlog: Option<PathBuf>,
}

impl<C> ConnectionTable<C> {
    pub fn new(options: &HostOptions) -> ConnectionTable<C> {
        ConnectionTable {
            connections: BTreeMap::new(),
            accepted: VecDeque::new(),
            next_id: 1,
            qlog: options.qlog.clone(),
        }
    }

    /// Inserts a connection, with a log if the host has a log directory.
    pub fn insert(&mut self, client: bool, make: impl FnOnce(Qlog) -> C) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let qlog = Qlog::open(self.qlog.as_deref(), id, client, Instant::now());
        self.connections.insert(id, make(qlog));
        if !client {
            self.accepted.push_back(id);
        }
        id
    }
}
