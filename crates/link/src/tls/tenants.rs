//! Limits per key, and fair sharing of the agent's time between keys.
//!
//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): in each turn, every key gets a
//! budget of work, and an overdraft by its last read reduces its next budgets.

use std::collections::HashMap;

use ccplane_agent::{Agent, DatapathId};
use ccplane_units::{Duration, Time};

use crate::identity::Fingerprint;

/// Connections per key. A process has one per algorithm it attaches; with more, a single key could
/// occupy all slots.
pub(super) const CONNECTIONS_MAX: usize = 32;
/// Flows per key that the agent controls, twice the default limit of `attach`. Further flows run
/// their datapath's fallback.
pub(super) const FLOWS_MAX: usize = 1 << 17;
/// Limit of bytes queued for the datapaths of one key. A single connection may use a quarter of it.
pub(super) const UNSENT_BYTES_MAX: usize = 4 << 20;

/// Work budget of all keys per turn, in units of [`Agent::work`]. A larger budget delays replies; a
/// smaller one increases the overhead per turn.
const TURN_WORK: i64 = 8_192;
/// Bounds of a key's budget per turn if several keys are connected. Below the lower bound a chunk
/// would take many turns; above the upper one, other keys would wait longer for a key that never
/// pauses.
const KEY_WORK_BOUNDS: (i64, i64) = (128, 1_024);
/// Bytes whose reception and decryption cost as much as one event.
const BYTES_PER_WORK: u64 = 64;

/// Rate (per second) and burst of bytes received per key: some hundred thousand reports per second.
/// Above it, one key could use a whole core for TLS alone.
const BYTES_PER_SECOND: u64 = 64 << 20;
const BYTES_BURST: u64 = 8 << 20;
/// Rate (per second) and burst of starts per key: connections, and restarts of a datapath on a
/// connection. A start costs as much as hundreds of reports, because all programs are installed.
/// The burst covers [`CONNECTIONS_MAX`] reconnections after a restart of the agent.
const STARTS_PER_SECOND: u64 = 8;
const STARTS_BURST: u64 = 64;

/// Token bucket, stored as the time at which it is full again.
#[derive(Clone, Copy, Debug)]
struct TenantBucket {
    per_second: u64,
    burst: u64,
    full_at: Time,
}

impl TenantBucket {
    fn new(per_second: u64, burst: u64) -> TenantBucket {
        TenantBucket {
            per_second,
            burst,
            full_at: Time::ZERO,
        }
    }

    fn time_for(&self, tokens: u64) -> Duration {
        Duration::from_nanos(
            (u128::from(tokens) * 1_000_000_000 / u128::from(self.per_second)) as u64,
        )
    }

    /// Takes tokens, even more than are available.
    fn take(&mut self, now: Time, tokens: u64) {
        self.full_at = self.full_at.max(now) + self.time_for(tokens);
    }

    /// Returns the time at which a token is available; a past time if one is available now.
    fn ready_at(&self) -> Time {
        Time::ZERO
            + self
                .full_at
                .since(Time::ZERO + self.time_for(self.burst - 1))
    }
}

/// Resources and budgets of a key.
#[derive(Debug)]
pub(super) struct Tenant {
    /// Connected datapaths.
    datapaths: Vec<DatapathId>,
    /// Disconnected datapaths whose flows the agent is still closing.
    closing: Vec<DatapathId>,
    starts: TenantBucket,
    bytes: TenantBucket,
    /// Work it may still cause in this turn; negative after an overdraft.
    credit: i64,
    /// Bytes queued for its datapaths, counted during the current flush.
    unsent: usize,
}

impl Tenant {
    fn new() -> Tenant {
        Tenant {
            datapaths: Vec::new(),
            closing: Vec::new(),
            starts: TenantBucket::new(STARTS_PER_SECOND, STARTS_BURST),
            bytes: TenantBucket::new(BYTES_PER_SECOND, BYTES_BURST),
            credit: 0,
            unsent: 0,
        }
    }

    /// Charges a start. Returns an error if the budget is exhausted.
    pub fn charge_start(&mut self, now: Time) -> Result<(), String> {
        if self.starts.ready_at() > now {
            return Err(format!(
                "its key connects too often; the limit is {STARTS_PER_SECOND} per second, in \
                bursts of {STARTS_BURST}"
            ));
        }
        self.starts.take(now, 1);
        Ok(())
    }

    /// Admits a connection of a key that has `open` connections, or returns the reason for refusing
    /// it.
    pub fn admit(&mut self, now: Time, open: usize) -> Result<(), String> {
        if open >= CONNECTIONS_MAX {
            return Err(format!(
                "its key already has {CONNECTIONS_MAX} connections, the maximum; close one first"
            ));
        }
        self.charge_start(now)
    }

    /// Records the datapath of an admitted connection.
    pub fn connected(&mut self, datapath: DatapathId) {
        self.datapaths.push(datapath);
    }

    /// Records the end of a connection, after the agent was notified.
    pub fn disconnected(&mut self, agent: &Agent, datapath: DatapathId) {
        self.datapaths.retain(|id| *id != datapath);
        self.closing.push(datapath);
        self.closing.retain(|id| agent.retained_flows(*id) > 0);
    }

    /// Returns whether the key may cause more work in this turn.
    pub fn may_read(&self, now: Time) -> bool {
        self.credit > 0 && !self.is_throttled(now)
    }

    /// Returns whether the key has exceeded its byte rate.
    pub fn is_throttled(&self, now: Time) -> bool {
        self.bytes.ready_at() > now
    }

    /// Charges bytes read and the work they caused.
    pub fn charge(&mut self, now: Time, bytes: usize, work: u64) {
        self.bytes.take(now, bytes as u64);
        self.credit -= (1 + bytes as u64 / BYTES_PER_WORK + work) as i64;
    }

    /// Counts bytes queued for a datapath. Returns false if the key exceeds its limit.
    pub fn add_unsent(&mut self, bytes: usize) -> bool {
        self.unsent += bytes;
        self.unsent <= UNSENT_BYTES_MAX
    }

    /// Returns the number of flows that the agent holds for the key's other datapaths.
    pub fn flows_of_other_datapaths(&self, agent: &Agent, datapath: DatapathId) -> usize {
        let others = self
            .datapaths
            .iter()
            .chain(&self.closing)
            .filter(|id| **id != datapath);
        others.map(|id| agent.retained_flows(*id)).sum()
    }
}

/// Budgets of all keys that connected since the agent started, at most as many as the CA signed.
/// Kept after a disconnect, so that reconnecting does not renew a budget.
#[derive(Debug, Default)]
pub(super) struct Tenants(HashMap<Fingerprint, Tenant>);

impl Tenants {
    /// Returns the tenant of a key.
    pub fn entry(&mut self, key: Fingerprint) -> &mut Tenant {
        self.0.entry(key).or_insert_with(Tenant::new)
    }

    pub fn get(&self, key: &Fingerprint) -> Option<&Tenant> {
        self.0.get(key)
    }

    /// Starts a turn and assigns the work budgets. Returns the number of keys that share it.
    pub fn begin_turn(&mut self) -> usize {
        let connected = self
            .0
            .values()
            .filter(|tenant| !tenant.datapaths.is_empty())
            .count();
        let part = match connected {
            0 | 1 => TURN_WORK,
            several => (TURN_WORK / several as i64).clamp(KEY_WORK_BOUNDS.0, KEY_WORK_BOUNDS.1),
        };
        for tenant in self.0.values_mut() {
            tenant.credit = (tenant.credit + part).min(part);
        }
        connected
    }

    /// Starts a new count of queued bytes.
    pub fn begin_flush(&mut self) {
        self.0.values_mut().for_each(|tenant| tenant.unsent = 0);
    }

    /// Returns the time at which the first throttled key may send again; `None` if no key is
    /// throttled.
    pub fn next_deadline(&self, now: Time) -> Option<Time> {
        let throttled = self
            .0
            .values()
            .filter(|tenant| !tenant.datapaths.is_empty() && tenant.is_throttled(now));
        throttled.map(|tenant| tenant.bytes.ready_at()).min()
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
            tenants
                .entry(key(number))
                .connected(DatapathId(number.into()));
        }
        // One key causes little work per chunk, the other much; per turn both get the same.
        let (costs, mut caused) = ([100, 5_000], [0u64; 2]);
        for _ in 0..1_000 {
            tenants.begin_turn();
            for (number, cost) in (1..=2).zip(costs) {
                let tenant = tenants.entry(key(number));
                while tenant.may_read(now) {
                    tenant.charge(now, 0, cost - 1);
                    caused[number as usize - 1] += cost;
                }
            }
        }
        let ratio = caused[0] as f64 / caused[1] as f64;
        assert!((0.9..1.1).contains(&ratio), "{caused:?}");
        // Unused budget is limited to one turn's share.
        for _ in 0..100 {
            tenants.begin_turn();
        }
        assert_eq!(tenants.entry(key(1)).credit, KEY_WORK_BOUNDS.1);
    }

    #[test]
    fn bytes_connections_and_starts_of_a_key_are_limited() {
        let (mut tenants, mut now) = (Tenants::default(), Time::from_micros(5_000_000));
        let tenant = tenants.entry(key(1));
        for open in 0..CONNECTIONS_MAX {
            tenant.admit(now, open).expect("room");
            tenant.connected(DatapathId(open as u32));
        }
        assert!(
            tenant
                .admit(now, CONNECTIONS_MAX)
                .expect_err("one more")
                .contains("32 connections")
        );
        let left = (0..1_000)
            .take_while(|_| tenant.charge_start(now).is_ok())
            .count();
        assert_eq!(left, STARTS_BURST as usize - CONNECTIONS_MAX);
        now += Duration::from_secs(2);
        let left = (0..1_000)
            .take_while(|_| tenant.charge_start(now).is_ok())
            .count();
        assert_eq!(left, 2 * STARTS_PER_SECOND as usize);
        // Burst plus ten seconds at the byte rate.
        let (mut bytes, until) = (0, now + Duration::from_secs(10));
        while now < until {
            match tenants.next_deadline(now) {
                Some(due) => now = due,
                None => {
                    tenants.entry(key(1)).charge(now, 1 << 14, 0);
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
