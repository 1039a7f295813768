//! Limits per key, and the agent's time divided among the keys.
//!
//! The divider is deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): in a turn each key
//! may cause some work, and what a key's last read cost beyond that is taken off its next turns.

use std::collections::HashMap;

use ccplane_agent::{Agent, DatapathId};
use ccplane_units::{Duration, Time};

use crate::identity::Fingerprint;

/// Connections of one key. A process has one per algorithm that it attaches; more would let one key
/// hold all slots.
pub(super) const CONNECTIONS_MAX: usize = 32;
/// Flows of one key that are steered, twice what `attach` has room for by default. Further ones
/// stay with their datapath's fallback.
pub(super) const FLOWS_MAX: usize = 1 << 17;
/// Bytes that wait for the datapaths of one key. One connection may have a fourth of it.
pub(super) const UNSENT_MAX: usize = 4 << 20;

/// Work of all keys in a turn, in units of [`Agent::work`]. More delays answers; less makes turns
/// short, and each has a cost of its own.
const TURN_WORK: i64 = 8_192;
/// Work of one key in a turn, where there are several. With less than the lower bound, a chunk
/// takes many turns; with more than the upper one, the others wait longer for a key that never
/// pauses.
const KEY_WORK: (i64, i64) = (128, 1_024);
/// Bytes that cost as much as one event, to receive and to decrypt.
const BYTES_PER_WORK: u64 = 64;

/// Bytes of one key per second, and at once: some hundred thousand reports a second. More would let
/// one key use a core by what TLS alone costs.
const BYTES_PER_SECOND: u64 = 64 << 20;
const BYTES_BURST: u64 = 8 << 20;
/// Beginnings of one key per second, and at once: connections, and datapaths that begin anew on
/// one. A begin costs as much as hundreds of reports, as all programs are installed. The burst has
/// room for [`CONNECTIONS_MAX`] after an agent's restart.
const BEGINS_PER_SECOND: u64 = 8;
const BEGINS_BURST: u64 = 64;

/// A rate limit. The state is the time at which the bucket is full again.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    per_second: u64,
    burst: u64,
    full: Time,
}

impl Bucket {
    fn new(per_second: u64, burst: u64) -> Bucket {
        Bucket {
            per_second,
            burst,
            full: Time::ZERO,
        }
    }

    fn time_for(&self, tokens: u64) -> Duration {
        Duration::from_nanos(
            (u128::from(tokens) * 1_000_000_000 / u128::from(self.per_second)) as u64,
        )
    }

    /// Takes tokens, also more than there are.
    fn take(&mut self, now: Time, tokens: u64) {
        self.full = self.full.max(now) + self.time_for(tokens);
    }

    /// When there is a token; a past time where there is one now.
    fn ready(&self) -> Time {
        Time::ZERO + self.full.since(Time::ZERO + self.time_for(self.burst - 1))
    }
}

/// What a key has and may do.
#[derive(Debug)]
pub(super) struct Tenant {
    /// Connected datapaths.
    datapaths: Vec<DatapathId>,
    /// Datapaths whose connection ended while the agent still closes their flows.
    closing: Vec<DatapathId>,
    begins: Bucket,
    bytes: Bucket,
    /// Work that it may cause in this turn; negative where it caused more than it may.
    credit: i64,
    /// Bytes that wait for its datapaths, as counted since the last flush.
    unsent: usize,
}

impl Tenant {
    fn new() -> Tenant {
        Tenant {
            datapaths: Vec::new(),
            closing: Vec::new(),
            begins: Bucket::new(BEGINS_PER_SECOND, BEGINS_BURST),
            bytes: Bucket::new(BYTES_PER_SECOND, BYTES_BURST),
            credit: 0,
            unsent: 0,
        }
    }

    /// Takes a beginning out of the budget, or returns why there is none.
    pub fn begin(&mut self, now: Time) -> Result<(), String> {
        if self.begins.ready() > now {
            return Err(format!(
                "its key begins too often: {BEGINS_BURST} times at once and {BEGINS_PER_SECOND} times a second are allowed"
            ));
        }
        self.begins.take(now, 1);
        Ok(())
    }

    /// Allows a connection of a key that has `open` connections, or returns why not.
    pub fn connect(&mut self, now: Time, open: usize) -> Result<(), String> {
        if open >= CONNECTIONS_MAX {
            return Err(format!(
                "its key has {CONNECTIONS_MAX} connections: close one first"
            ));
        }
        self.begin(now)
    }

    /// Records the datapath of a connection that was allowed.
    pub fn connected(&mut self, datapath: DatapathId) {
        self.datapaths.push(datapath);
    }

    /// Records that a connection ended, after the agent was told.
    pub fn disconnected(&mut self, agent: &Agent, datapath: DatapathId) {
        self.datapaths.retain(|id| *id != datapath);
        self.closing.push(datapath);
        self.closing.retain(|id| agent.flows_held(*id) > 0);
    }

    /// Returns true while it may cause work in this turn.
    pub fn may_read(&self, now: Time) -> bool {
        self.credit > 0 && !self.is_throttled(now)
    }

    /// Returns true while it has sent more bytes than it may.
    pub fn is_throttled(&self, now: Time) -> bool {
        self.bytes.ready() > now
    }

    /// Charges bytes that were read, and the work that they caused.
    pub fn charge(&mut self, now: Time, bytes: usize, work: u64) {
        self.bytes.take(now, bytes as u64);
        self.credit -= (1 + bytes as u64 / BYTES_PER_WORK + work) as i64;
    }

    /// Counts bytes that wait for a datapath. False where they are too many.
    pub fn add_unsent(&mut self, bytes: usize) -> bool {
        self.unsent += bytes;
        self.unsent <= UNSENT_MAX
    }

    /// Flows of its other datapaths that take memory.
    pub fn flows_of_others(&self, agent: &Agent, datapath: DatapathId) -> usize {
        let others = self
            .datapaths
            .iter()
            .chain(&self.closing)
            .filter(|id| **id != datapath);
        others.map(|id| agent.flows_held(*id)).sum()
    }
}

/// All keys that connected since the agent started: as many as the authority signed, at most. They
/// are kept, so that a key gets no new budget by coming back.
#[derive(Debug, Default)]
pub(super) struct Tenants(HashMap<Fingerprint, Tenant>);

impl Tenants {
    /// The tenant of a key.
    pub fn of(&mut self, key: Fingerprint) -> &mut Tenant {
        self.0.entry(key).or_insert_with(Tenant::new)
    }

    pub fn get(&self, key: &Fingerprint) -> Option<&Tenant> {
        self.0.get(key)
    }

    /// Begins a turn: every key gets its part of the work. Returns how many keys share it.
    pub fn begin_turn(&mut self) -> usize {
        let connected = self
            .0
            .values()
            .filter(|tenant| !tenant.datapaths.is_empty())
            .count();
        let part = match connected {
            0 | 1 => TURN_WORK,
            several => (TURN_WORK / several as i64).clamp(KEY_WORK.0, KEY_WORK.1),
        };
        for tenant in self.0.values_mut() {
            tenant.credit = (tenant.credit + part).min(part);
        }
        connected
    }

    /// Begins the count of bytes that wait.
    pub fn begin_flush(&mut self) {
        self.0.values_mut().for_each(|tenant| tenant.unsent = 0);
    }

    /// When a throttled key may send again; `None` where no key is throttled.
    pub fn next_deadline(&self, now: Time) -> Option<Time> {
        let throttled = self
            .0
            .values()
            .filter(|tenant| !tenant.datapaths.is_empty() && tenant.is_throttled(now));
        throttled.map(|tenant| tenant.bytes.ready()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Fingerprint {
        format!("{number:02x}")
            .repeat(32)
            .parse()
            .expect("64 digits")
    }

    #[test]
    fn keys_that_never_pause_get_equal_work_and_a_debt_is_paid_back() {
        let (mut tenants, now) = (Tenants::default(), Time::ZERO);
        for number in 1..=2 {
            tenants.of(key(number)).connected(DatapathId(number.into()));
        }
        // One causes little work per chunk, the other much: per turn both get the same.
        let (costs, mut caused) = ([100, 5_000], [0u64; 2]);
        for _ in 0..1_000 {
            tenants.begin_turn();
            for (number, cost) in (1..=2).zip(costs) {
                let tenant = tenants.of(key(number));
                while tenant.may_read(now) {
                    tenant.charge(now, 0, cost - 1);
                    caused[number as usize - 1] += cost;
                }
            }
        }
        let ratio = caused[0] as f64 / caused[1] as f64;
        assert!((0.9..1.1).contains(&ratio), "{caused:?}");
        // No more than a turn's part is saved.
        for _ in 0..100 {
            tenants.begin_turn();
        }
        assert_eq!(tenants.of(key(1)).credit, KEY_WORK.1);
    }

    #[test]
    fn bytes_connections_and_beginnings_of_a_key_are_limited() {
        let (mut tenants, mut now) = (Tenants::default(), Time::from_micros(5_000_000));
        let tenant = tenants.of(key(1));
        for open in 0..CONNECTIONS_MAX {
            tenant.connect(now, open).expect("room");
            tenant.connected(DatapathId(open as u32));
        }
        assert!(
            tenant
                .connect(now, CONNECTIONS_MAX)
                .expect_err("one more")
                .contains("32 connections")
        );
        let left = (0..1_000).take_while(|_| tenant.begin(now).is_ok()).count();
        assert_eq!(left, BEGINS_BURST as usize - CONNECTIONS_MAX);
        now += Duration::from_secs(2);
        let left = (0..1_000).take_while(|_| tenant.begin(now).is_ok()).count();
        assert_eq!(left, 2 * BEGINS_PER_SECOND as usize);
        // In ten seconds the burst and ten seconds' bytes.
        let (mut bytes, until) = (0, now + Duration::from_secs(10));
        while now < until {
            match tenants.next_deadline(now) {
                Some(due) => now = due,
                None => {
                    tenants.of(key(1)).charge(now, 1 << 14, 0);
                    bytes += 1 << 14;
                }
            }
        }
        let expected = 10 * BYTES_PER_SECOND + BYTES_BURST;
        assert!(
            bytes >= expected && bytes < expected + expected / 100,
            "{bytes}"
        );
    }
}
