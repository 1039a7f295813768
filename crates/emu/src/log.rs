//! What happened to every packet: the ground truth of queueing delay and throughput.

use ccplane_units::{Duration, Time};

/// Records are kept in pieces of this many, so that a growing log never stops the emulator to copy itself.
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
    fate: u8,
}

/// How a packet left the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its last bit left the queue then, and it was handed over after the link's delay.
    Departed(Time),
    /// It found the queue full.
    QueueFull,
    /// It was lost at random.
    Lost,
}

const DEPARTED: u8 = 0;
const QUEUE_FULL: u8 = 1;
const LOST: u8 = 2;

impl Record {
    pub(crate) fn new(arrived: Time, packet: Summary, fate: Fate) -> Record {
        let (departed, fate) = match fate {
            Fate::Departed(time) => (time.as_nanos(), DEPARTED),
            Fate::QueueFull => (0, QUEUE_FULL),
            Fate::Lost => (0, LOST),
        };
        Record {
            arrived,
            departed,
            bytes: packet.bytes,
            source_port: packet.source_port,
            destination_port: packet.destination_port,
            fate,
        }
    }

    /// How it left.
    pub fn fate(&self) -> Fate {
        match self.fate {
            QUEUE_FULL => Fate::QueueFull,
            LOST => Fate::Lost,
            _ => Fate::Departed(Time::from_nanos(self.departed)),
        }
    }

    /// Time between arrival and departure: waiting and transmission at the bottleneck, without the link's delay.
    /// `None` for a packet that was dropped.
    pub fn sojourn(&self) -> Option<Duration> {
        match self.fate() {
            Fate::Departed(departed) => Some(departed.since(self.arrived)),
            Fate::QueueFull | Fate::Lost => None,
        }
    }
}

/// What a record says of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) bytes: u16,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
}

impl Summary {
    /// Reads it from an IP packet.
    pub(crate) fn of(packet: &[u8]) -> Summary {
        let (source_port, destination_port) = ports(packet).unwrap_or_default();
        Summary {
            bytes: u16::try_from(packet.len()).unwrap_or(u16::MAX),
            source_port,
            destination_port,
        }
    }
}

/// Ports of a TCP or UDP packet; for IPv6 without extension headers.
fn ports(packet: &[u8]) -> Option<(u16, u16)> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let first = *packet.first()?;
    let (protocol, header) = match first >> 4 {
        4 => (*packet.get(9)?, usize::from(first & 0xf) * 4),
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    // A later fragment has no ports.
    let fragment = first >> 4 == 4 && u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff != 0;
    if fragment || (protocol != TCP && protocol != UDP) {
        return None;
    }
    let at = |i: usize| {
        Some(u16::from_be_bytes([
            *packet.get(header + i)?,
            *packet.get(header + i + 1)?,
        ]))
    };
    Some((at(0)?, at(2)?))
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
    /// Packets that found the queue full.
    pub queue_drops: u64,
    /// Packets lost at random.
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
            Fate::QueueFull => self.queue_drops += 1,
            Fate::Lost => self.losses += 1,
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
    use super::*;

    fn packet(header: &[u8], at: usize, ports: [u8; 4]) -> Vec<u8> {
        let mut packet = header.to_vec();
        packet.resize(at, 0);
        packet.extend(ports);
        packet
    }

    #[test]
    fn ports_are_found_where_there_are_any() {
        let ports_of = |packet: &[u8]| {
            let summary = Summary::of(packet);
            (summary.source_port, summary.destination_port)
        };
        let tcp = packet(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6], 20, [0x30, 0x39, 0x14, 0x51]);
        assert_eq!(ports_of(&tcp), (12_345, 5_201));
        let with_options = packet(&[0x47, 0, 0, 0, 0, 0, 0, 0, 64, 17], 28, [0, 1, 0, 2]);
        assert_eq!(ports_of(&with_options), (1, 2));
        let v6 = packet(&[0x60, 0, 0, 0, 0, 0, 17, 64], 40, [0, 3, 0, 4]);
        assert_eq!(ports_of(&v6), (3, 4));
        let fragment = packet(&[0x45, 0, 0, 0, 0, 0, 0, 1, 64, 6], 20, [9, 9, 9, 9]);
        let icmp = packet(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1], 20, [9, 9, 9, 9]);
        for other in [&fragment[..], &icmp, &tcp[..22], &tcp[..5], &[0x45], &[], &[0x10; 60]] {
            assert_eq!(ports_of(other), (0, 0), "{other:?}");
        }
    }

    #[test]
    fn a_full_log_goes_on_counting() {
        assert_eq!(size_of::<Record>(), 24);
        let mut log = LinkLog::new(PIECE + 1);
        let summary = Summary {
            bytes: 100,
            ..Summary::default()
        };
        let (arrived, departed) = (Time::from_micros(1), Time::from_micros(4));
        for _ in 0..PIECE {
            log.add(Record::new(arrived, summary, Fate::Departed(departed)));
        }
        log.add(Record::new(arrived, summary, Fate::QueueFull));
        log.add(Record::new(arrived, summary, Fate::Lost));
        assert_eq!((log.len(), log.not_kept), (PIECE + 1, 1));
        assert_eq!((log.delivered, log.queue_drops, log.losses), (PIECE as u64, 1, 1));
        assert_eq!(log.delivered_bytes, PIECE as u64 * 100);
        let first = log.records().next().expect("it is kept");
        assert_eq!(first.sojourn(), Some(Duration::from_micros(3)));
        assert_eq!(log.records().last().expect("it is kept").sojourn(), None);
    }
}
