//! The log of every packet: the ground truth of queueing delay and throughput.

use ccplane_host::StoredFrame;
use ccplane_qdisc::DropReason;
use ccplane_units::{Duration, Time};

/// Records per piece. Pieces keep a growing log from stalling the emulator with a reallocation.
const PIECE_RECORDS: usize = 16 * 1024;

/// Record of a packet at one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// Arrival at the link.
    pub arrived: Time,
    departed: u64,
    /// Length in bytes, including the IP header.
    pub bytes: u16,
    /// Source port, 0 if it is neither TCP nor UDP.
    pub source_port: u16,
    /// Destination port, 0 if it is neither TCP nor UDP.
    pub destination_port: u16,
    dropped: Option<DropReason>,
}

/// Outcome of a packet at the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its last bit left the queue at this time; it was delivered after the link's delay.
    Departed(Time),
    /// It was dropped by the queue, or lost at random.
    Dropped(DropReason),
}

impl PacketRecord {
    /// Creates the record of a packet of a frame.
    pub(crate) fn new(frame: &StoredFrame, bytes: u16, fate: Fate) -> PacketRecord {
        let (departed, dropped) = match fate {
            Fate::Departed(time) => (time.as_nanos(), None),
            Fate::Dropped(reason) => (0, Some(reason)),
        };
        PacketRecord {
            arrived: frame.arrived,
            departed,
            bytes,
            source_port: frame.ports[0],
            destination_port: frame.ports[1],
            dropped,
        }
    }

    /// Returns the outcome.
    pub fn fate(&self) -> Fate {
        match self.dropped {
            Some(reason) => Fate::Dropped(reason),
            None => Fate::Departed(Time::from_nanos(self.departed)),
        }
    }

    /// Returns the time from arrival to departure: queueing and transmission at the bottleneck,
    /// without the link's delay. `None` for a dropped packet.
    pub fn sojourn(&self) -> Option<Duration> {
        match self.fate() {
            Fate::Departed(departed) => Some(departed.since(self.arrived)),
            Fate::Dropped(_) => None,
        }
    }
}

/// The packets of one link, in the order of their departure (a drop departs immediately).
#[derive(Clone, Debug, Default)]
pub struct LinkLog {
    chunks: Vec<Vec<PacketRecord>>,
    /// Number of further records that may be kept.
    records_left: usize,
    /// Packets without a record because the log was full.
    pub records_dropped: u64,
    /// Packets that arrived at the link.
    pub arrived: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Delivered packets that the queue marked CE.
    pub marks: u64,
    /// Deliveries, fewer than `delivered` if several packets of a super-packet were delivered
    /// together.
    pub handovers: u64,
    /// Packets dropped by the queue: it was full, made room for others, or signalled congestion.
    pub queue_drops: u64,
    /// Queue drops of ECN-capable packets, which could have been marked instead.
    pub ecn_drops: u64,
    /// Packets lost at random, or while the link was down.
    pub losses: u64,
    /// Packets still inside at the end.
    pub in_flight: u64,
}

impl LinkLog {
    /// Creates a log that keeps at most `records` records.
    pub(crate) fn new(records: usize) -> LinkLog {
        LinkLog {
            records_left: records,
            ..LinkLog::default()
        }
    }

    /// Returns the records.
    pub fn records(&self) -> impl Iterator<Item = &PacketRecord> + '_ {
        self.chunks.iter().flatten()
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(crate) fn add(&mut self, record: PacketRecord) {
        match record.fate() {
            Fate::Departed(_) => {
                self.delivered += 1;
                self.delivered_bytes += u64::from(record.bytes);
            }
            Fate::Dropped(DropReason::Lost) => self.losses += 1,
            Fate::Dropped(_) => self.queue_drops += 1,
        }
        if self.records_left == 0 {
            self.records_dropped += 1;
            return;
        }
        self.records_left -= 1;
        match self.chunks.last_mut() {
            Some(last) if last.len() < PIECE_RECORDS => last.push(record),
            _ => {
                let mut piece = Vec::with_capacity(PIECE_RECORDS);
                piece.push(record);
                self.chunks.push(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ccplane_host::{Frame, Store};

    use super::*;

    #[test]
    fn a_full_log_goes_on_counting() {
        assert_eq!(size_of::<PacketRecord>(), 24);
        let mut log = LinkLog::new(PIECE_RECORDS + 1);
        let (arrived, departed) = (Time::from_micros(1), Time::from_micros(4));
        let mut store = Store::new(1);
        store.reserve(110).expect("a block").fill(0);
        let frame = Frame::parse(store.reserved(110)).expect("a virtio-net header of zeros");
        let place = store.commit(110, frame, arrived, [1, 2]);
        let record = |fate| PacketRecord::new(store.get(place), 100, fate);
        for _ in 0..PIECE_RECORDS {
            log.add(record(Fate::Departed(departed)));
        }
        log.add(record(Fate::Dropped(DropReason::Full)));
        log.add(record(Fate::Dropped(DropReason::Lost)));
        assert_eq!((log.len(), log.records_dropped), (PIECE_RECORDS + 1, 1));
        assert_eq!(
            (log.delivered, log.queue_drops, log.losses),
            (PIECE_RECORDS as u64, 1, 1)
        );
        assert_eq!(log.delivered_bytes, PIECE_RECORDS as u64 * 100);
        let first = log.records().next().expect("it is kept");
        assert_eq!(first.sojourn(), Some(Duration::from_micros(3)));
        assert_eq!((first.source_port, first.destination_port), (1, 2));
        let last = log.records().last().expect("it is kept");
        assert_eq!(
            (last.sojourn(), last.fate()),
            (None, Fate::Dropped(DropReason::Full))
        );
    }
}
