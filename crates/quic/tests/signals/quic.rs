//! The same packets on a [`QuicPath`]: a QUIC stack next to the simulated sender numbers the
//! packets and treats received ACKs as ACKs of the packets that had arrived.

use std::collections::BTreeMap;

use ccplane_datapath::{Outcome, Signals};
use ccplane_quic::QuicPath;
use ccplane_units::{Duration, Time};

use super::{Case, HANDSHAKE_US, MSS, Moment, Row};

/// Packet threshold of loss detection (RFC 9002, section 6.1.1).
const THRESHOLD: u64 = 3;

struct Packet {
    segment: u32,
    transmission: u8,
    at: Time,
    /// Declared lost by the stack.
    lost: bool,
}

struct Stack {
    path: QuicPath,
    /// Unacknowledged packets by number.
    packets: BTreeMap<u64, Packet>,
    next: u64,
    largest_acked: Option<u64>,
    latest_rtt: Duration,
    /// First transmission that arrived, per segment.
    arrived: BTreeMap<u32, u8>,
    marks: u32,
    window: u64,
    /// Packets written by the application until 1 s, and after.
    written: [u64; 2],
    segments: u64,
    rows: Vec<Row>,
}

/// Returns the signals of each call of a path for these packets; calls at the same time are merged
/// into one row.
pub fn rows(case: &Case, moments: &[(Time, Moment)]) -> Vec<Row> {
    let (begun, _) = moments.first().expect("something is sent");
    let handshake = Duration::from_micros(HANDSHAKE_US);
    let length = case.length.unwrap_or(u64::MAX);
    let mut stack = Stack {
        path: QuicPath::new(*begun - handshake, MSS as u16),
        packets: BTreeMap::new(),
        next: 1,
        largest_acked: None,
        latest_rtt: handshake,
        arrived: BTreeMap::new(),
        marks: 0,
        window: case.window * MSS,
        written: [length, length.saturating_add(case.later)],
        segments: 0,
        rows: Vec::new(),
    };
    // The handshake, after which the program sets the window.
    stack.path.on_sent(*begun - handshake, 0, 52);
    stack.path.on_acked(*begun, 0, *begun - handshake);
    stack.end_of_event(*begun);
    stack.rows.clear();
    for (now, moment) in moments {
        stack.timer(*now);
        match moment {
            Moment::Sent {
                number,
                transmission,
            } => stack.sent(*now, *number, *transmission),
            Moment::Arrived {
                number,
                transmission,
            } => {
                stack.arrived.entry(*number).or_insert(*transmission);
            }
            Moment::Heard {
                ack,
                sacked,
                echo,
                marks,
            } => stack.heard(*now, *ack, sacked, *echo, *marks),
        }
    }
    stack.rows
}

impl Stack {
    fn sent(&mut self, now: Time, segment: u32, transmission: u8) {
        self.path.on_sent(now, self.next, MSS as u16);
        self.packets.insert(
            self.next,
            Packet {
                segment,
                transmission,
                at: now,
                lost: false,
            },
        );
        self.next += 1;
        self.segments = self.segments.max(u64::from(segment) + 1);
    }

    fn heard(&mut self, now: Time, ack: u32, sacked: &[(u32, u32)], echo: (u32, u8), marks: u32) {
        let covered = |segment: u32| {
            segment < ack
                || sacked
                    .iter()
                    .any(|(start, end)| (*start..*end).contains(&segment))
        };
        let new = |packet: &&u64| {
            let Some(packet) = self.packets.get(packet) else {
                return false;
            };
            let first = self.arrived.get(&packet.segment) == Some(&packet.transmission);
            let again = echo == (packet.segment, packet.transmission) && !first;
            covered(packet.segment) && (first || again)
        };
        let newly: Vec<u64> = self.packets.keys().filter(new).copied().collect();
        for number in &newly {
            let packet = self.packets.remove(number).expect("it exists");
            self.path.on_acked(now, *number, packet.at);
            if self.largest_acked.is_none_or(|largest| largest < *number) {
                self.largest_acked = Some(*number);
                self.latest_rtt = now.since(packet.at);
            }
        }
        let ce = marks.wrapping_sub(std::mem::replace(&mut self.marks, marks));
        if ce > 0 {
            self.path.on_ce_marks(ce, u64::from(ce) * MSS);
        }
        self.end_of_event(now);
        self.detect(now);
    }

    fn timer(&mut self, now: Time) {
        let Some(due) = self.due() else { return };
        if due <= now {
            self.detect(due);
        }
    }

    fn longest(&self) -> Duration {
        (self.path.srtt().max(self.latest_rtt) / 8 * 9).max(Duration::from_millis(1))
    }

    fn due(&self) -> Option<Time> {
        let largest = self.largest_acked?;
        let longest = self.longest();
        let open = self
            .packets
            .range(..largest)
            .filter(|(_, packet)| !packet.lost);
        open.map(|(_, packet)| packet.at + longest).min()
    }

    /// Runs loss detection (RFC 9002, sections 6.1 and 7.6).
    fn detect(&mut self, now: Time) {
        let Some(largest) = self.largest_acked else {
            return;
        };
        let longest = self.longest();
        let mut lost = Vec::new();
        for (number, packet) in self.packets.range_mut(..largest) {
            if !packet.lost && (largest - number >= THRESHOLD || packet.at + longest <= now) {
                packet.lost = true;
                lost.push((*number, packet.at));
            }
        }
        let Some((_, first)) = lost.first().copied() else {
            return;
        };
        let last = lost.last().map_or(first, |(_, at)| *at);
        for (number, _) in &lost {
            self.path.on_lost(now, *number, MSS as u16);
        }
        // RTT variation is omitted, since the path does not expose it.
        if last.since(first) > self.path.srtt() * 6 {
            self.path.on_persistent_congestion();
        }
        self.end_of_event(now);
    }

    fn end_of_event(&mut self, now: Time) {
        let later = now.as_nanos() >= 1_000_000_000;
        let written = self.written[usize::from(later)];
        let (mut row, window) = (None, self.window);
        self.path
            .finish_event(now, self.segments >= written, |_, signals| {
                row = Some(as_row(now, signals));
                Outcome {
                    cwnd: Some(window),
                    ..Outcome::default()
                }
            });
        let Some(row) = row else { return };
        match self
            .rows
            .last_mut()
            .filter(|last| last["Ack.now"] == row["Ack.now"])
        {
            Some(last) => merge(last, &row),
            None => self.rows.push(row),
        }
    }
}

/// Merges the row of the losses that an ACK reveals into the row of the ACK.
fn merge(into: &mut Row, more: &Row) {
    for (name, value) in more {
        let known = into.get_mut(name).expect("all rows have all signals");
        let adds = name.starts_with("Ack.") && *name != "Ack.now"
            || matches!(*name, "Flow.was_timeout" | "Flow.undone");
        let sampled = matches!(
            *name,
            "Flow.rtt_sample_us" | "Flow.rate_incoming" | "Flow.rate_outgoing" | "Flow.app_limited"
        );
        match (adds, sampled) {
            (true, _) => *known += value,
            (_, true) => *known = (*known).max(*value),
            _ => *known = *value,
        }
    }
}

fn as_row(now: Time, signals: &Signals) -> Row {
    Row::from([
        ("Ack.now", now.as_nanos() / 1_000),
        ("Ack.bytes_acked", signals.bytes_acked),
        ("Ack.bytes_misordered", signals.bytes_misordered),
        ("Ack.ecn_bytes", signals.ecn_bytes),
        ("Ack.ecn_packets", signals.ecn_packets),
        ("Ack.lost_pkts_sample", signals.lost_pkts_sample),
        ("Ack.packets_acked", signals.packets_acked),
        ("Ack.packets_misordered", signals.packets_misordered),
        ("Flow.bytes_in_flight", signals.bytes_in_flight),
        ("Flow.bytes_pending", signals.bytes_pending),
        ("Flow.packets_in_flight", signals.packets_in_flight),
        ("Flow.rate_incoming", signals.rate_incoming),
        ("Flow.rate_outgoing", signals.rate_outgoing),
        ("Flow.rtt_sample_us", signals.rtt_sample_us),
        ("Flow.was_timeout", signals.was_timeout),
        ("Flow.srtt_us", signals.srtt_us),
        ("Flow.min_rtt_us", signals.min_rtt_us),
        ("Flow.mss", signals.mss),
        ("Flow.app_limited", signals.app_limited),
        ("Flow.in_recovery", signals.in_recovery),
        ("Flow.undone", signals.undone),
        ("Flow.cwnd_limited", signals.cwnd_limited),
        ("Flow.paced", signals.paced),
    ])
}
