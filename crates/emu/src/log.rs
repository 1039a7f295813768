//! What happened to every packet: the ground truth of queueing delay and throughput.

use ccplane_host::Stored;
use ccplane_qdisc::DropReason;
use ccplane_units::{Duration, Time};

/// Records are kept in pieces of this many, so that a growing log never stops the emulator to copy
/// itself.
const PIECE: usize = 16 * 1024;

/// One packet at one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it came to the link.
    pub arrived: Time,
    departed: u64,
    /// Its size, IP header included.
    pub bytes: u16,
    /// Port of its sender, 0 if it is neither TCP nor UDP.
    pub source_port: u16,
    /// Port of its receiver, 0 if it is neither TCP nor UDP.
    pub destination_port: u16,
    dropped: Option<DropReason>,
}

/// How a packet left the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its last bit left the queue then, and it was handed over after the link's delay.
    Departed(Time),
    /// It was dropped, by the queue or at random.
    Dropped(DropReason),
}

impl Record {
    /// A packet of this size of a frame, at its end.
    pub(crate) fn new(frame: &Stored, bytes: u16, fate: Fate) -> Record {
        let (departed, dropped) = match fate {
            Fate::Departed(time) => (time.as_nanos(), None),
            Fate::Dropped(reason) => (0, Some(reason)),
        };
        Record {
            arrived: frame.arrived,
            departed,
            bytes,
            source_port: frame.ports[0],
            destination_port: frame.ports[1],
            dropped,
        }
    }

    /// How it left.
    pub fn fate(&self) -> Fate {
        match self.dropped {
            Some(reason) => Fate::Dropped(reason),
            None => Fate::Departed(Time::from_nanos(self.departed)),
        }
    }

    /// Time between arrival and departure: waiting and transmission at the bottleneck, without the
    /// link's delay. `None` for a packet that was dropped.
    pub fn sojourn(&self) -> Option<Duration> {
        match self.fate() {
            Fate::Departed(departed) => Some(departed.since(self.arrived)),
            Fate::Dropped(_) => None,
        }
    }
}

/// The packets of one link, in the order in which they left it (a drop leaves at once).
#[derive(Clone, Debug, Default)]
pub struct LinkLog {
    pieces: Vec<Vec<Record>>,
    /// How many more records may be kept.
    room: usize,
    /// Packets that are not in [`records`](LinkLog::records) because the log was full.
    pub not_kept: u64,
    /// Packets that came to the link.
    pub arrived: u64,
    /// Packets that were handed over.
    pub delivered: u64,
    /// Bytes that were handed over.
    pub delivered_bytes: u64,
    /// Delivered packets that the queue marked "congestion experienced" on their way.
    pub marks: u64,
    /// In how many pieces packets were handed over: fewer than `delivered` where several of one
    /// super-packet left together.
    pub handovers: u64,
    /// Packets that the queue dropped: it was full, made room for others, or signalled congestion.
    pub queue_drops: u64,
    /// Of those, packets that it could have marked instead: their ends understand marks.
    pub ecn_drops: u64,
    /// Packets lost at random, or while the link was down.
    pub losses: u64,
    /// Packets still inside at the end.
    pub inside: u64,
}

impl LinkLog {
    /// A log that keeps at most `records`.
    pub(crate) fn new(records: usize) -> LinkLog {
        LinkLog {
            room: records,
            ..LinkLog::default()
        }
    }

    /// All that was kept.
    pub fn records(&self) -> impl Iterator<Item = &Record> + '_ {
        self.pieces.iter().flatten()
    }

    /// The number of records kept.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    /// Whether nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn add(&mut self, record: Record) {
        match record.fate() {
            Fate::Departed(_) => {
                self.delivered += 1;
                self.delivered_bytes += u64::from(record.bytes);
            }
            Fate::Dropped(DropReason::Lost) => self.losses += 1,
            Fate::Dropped(_) => self.queue_drops += 1,
        }
        if self.room == 0 {
            self.not_kept += 1;
            return;
        }
        self.room -= 1;
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE => last.push(record),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(record);
                self.pieces.push(piece);
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
        assert_eq!(size_of::<Record>(), 24);
        let mut log = LinkLog::new(PIECE + 1);
        let (arrived, departed) = (Time::from_micros(1), Time::from_micros(4));
        let mut store = Store::new(1);
        store.room(110).expect("a block").fill(0);
        let frame = Frame::of(store.arrived(110)).expect("a virtio-net header of zeros");
        let place = store.keep(110, frame, arrived, [1, 2]);
        let record = |fate| Record::new(store.get(place), 100, fate);
        for _ in 0..PIECE {
            log.add(record(Fate::Departed(departed)));
        }
        log.add(record(Fate::Dropped(DropReason::Full)));
        log.add(record(Fate::Dropped(DropReason::Lost)));
        assert_eq!((log.len(), log.not_kept), (PIECE + 1, 1));
        assert_eq!(
            (log.delivered, log.queue_drops, log.losses),
            (PIECE as u64, 1, 1)
        );
        assert_eq!(log.delivered_bytes, PIECE as u64 * 100);
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
