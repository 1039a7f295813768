//! Fuzz target: arbitrary segments from a peer must not cause a panic or unbounded memory. Runs
//! under libFuzzer (`fuzz/fuzz_targets/transport.rs`) and, with seeded random bytes, under `cargo
//! test`.

use std::sync::Arc;

use ccplane_qdisc::Ecn;
use ccplane_units::{Duration, Time};

use crate::{
    CLASS_COUNT, Connection, ConnectionState, Native, Proof, Range, Rc3, Segment, SegmentKind,
    SequenceNumber, SideData, TransportConfig,
};

/// Maximum memory of a connection, bytes: holes at receiver and sender, and a window of segments.
const MEMORY_BYTES_MAX: usize = 4 << 20;

struct TransportInput<'a>(&'a [u8]);

impl TransportInput<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Returns a number mostly near `about`, sometimes arbitrary.
    fn value_near(&mut self, about: u32) -> u32 {
        let [a, b] = [self.byte(), self.byte()];
        match a {
            0..=239 => about.wrapping_add(u32::from(a % 48)).wrapping_sub(16),
            _ => u32::from_be_bytes([a, b, self.byte(), self.byte()]),
        }
    }
}

/// Feeds a connection with the events that `data` encodes.
pub fn transport(data: &[u8]) {
    let mut input = TransportInput(data);
    let choice = input.byte();
    let shape = input.byte();
    let rc3 = Rc3 {
        levels: shape & 7,
        first_level_segments: u32::from(shape >> 3 & 3),
        distance_max: if shape & 32 != 0 { 8 } else { 1 << 17 },
        verify: shape & 64 != 0,
    };
    let config = Arc::new(TransportConfig {
        mss: 100,
        receive_buffer: if choice & 1 != 0 { 5_000 } else { 1 << 30 },
        discard: choice & 2 != 0,
        stamps: choice & 4 != 0,
        rc3: (choice & 8 != 0).then_some(rc3),
        pacing: choice & 16 != 0,
        ecn: if choice & 32 != 0 {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        },
        first_number: u32::MAX - 5,
        ..TransportConfig::default()
    });
    let mut control = match choice >> 6 {
        0 => Native::new_reno(),
        1 => Native::dctcp(),
        _ => Native::cubic(),
    };
    let mut now = Time::from_micros(1);
    let mut connection = Connection::connect(&config, now);
    if shape & 128 != 0 {
        connection.require_proof(&[input.byte(); 16]);
    }
    connection.write(u64::from(input.byte()) * 40);
    while !input.0.is_empty() {
        now += Duration::from_micros(1 << (input.byte() % 24));
        match input.byte() {
            0..=7 => connection.write(u64::from(input.byte())),
            8 => connection.finish(),
            9 => connection.abort(),
            10..=20 => {
                connection.read(u64::from(input.byte()));
            }
            21..=40 => connection.on_timeout(now, &mut control),
            kind => {
                let (segment, side) = arbitrary_segment(&mut input, kind, &connection);
                let mut proof = Proof {
                    nonce: u16::from(kind),
                    ..Proof::default()
                };
                // Most claims carry a valid proof; otherwise the first would end the connection.
                if kind % 32 != 0 {
                    (proof.sum, proof.echo) = connection
                        .expected_proof(&segment, &side)
                        .unwrap_or_default();
                }
                connection.handle_with_proof((now, now), &segment, &side, &proof, &mut control);
            }
        }
        for class in 0..CLASS_COUNT {
            let mut budget = 10_000;
            while connection.has_segment(now, class) {
                let mut side = SideData::default();
                assert!(
                    connection.transmit(now, class, &mut side).is_some(),
                    "`has` returned true"
                );
                budget -= 1;
                assert!(budget > 0, "it never stops sending");
            }
        }
        connection.receiver.check();
        // A closed connection has freed its scoreboard.
        if connection.state() != ConnectionState::Closed {
            connection.flight.check();
            let echoes = connection.rc3.as_ref().map_or(0, |rc3| rc3.echo_count());
            assert_eq!(connection.flight.echoes(), echoes);
        }
        assert!(
            connection.memory_bytes() < MEMORY_BYTES_MAX,
            "{} bytes",
            connection.memory_bytes()
        );
    }
}

fn arbitrary_segment(
    input: &mut TransportInput<'_>,
    kind: u8,
    connection: &Connection,
) -> (Segment, SideData) {
    let mut segment = Segment::default();
    segment.kind = match kind % 16 {
        0 => SegmentKind::Open,
        1 => SegmentKind::OpenReply,
        2 if kind > 240 => SegmentKind::Abort,
        3..=8 => SegmentKind::Data,
        _ => SegmentKind::Ack,
    };
    let (una, next) = (connection.una().0, connection.receiver.next.0);
    segment.number = SequenceNumber(input.value_near(next));
    segment.ack = SequenceNumber(input.value_near(una));
    segment.echo = SequenceNumber(input.value_near(una));
    segment.window = input.value_near(10_000).wrapping_mul(20);
    segment.length = u16::from(input.byte());
    segment.flags = input.byte();
    segment.class = input.byte() % 10;
    segment.band = input.byte() % 10;
    segment.echo_band = input.byte() % 8;
    segment.ecn = Ecn::from_bits(input.byte());
    segment.transmission = input.byte() % 4;
    segment.echo_transmission = input.byte() % 4;
    segment.ce_packets = u32::from(input.byte());
    segment.ce_bytes = segment.ce_packets * 50;
    let ahead = segment.number.since(connection.receiver.next);
    segment.set_offset(
        connection
            .stats()
            .received
            .wrapping_add(u64::from(ahead) * u64::from(input.byte())),
    );
    let mut side = SideData::default();
    if segment.has_side() {
        side.stamped = input.byte() & 1 != 0;
        side.t1 = Time::from_micros(u64::from(input.byte()));
        if input.byte() & 3 == 0 {
            side.set_duplicate(range(input, una));
        }
        for _ in 0..input.byte() % 5 {
            side.push(range(input, una));
        }
    }
    (segment, side)
}

fn range(input: &mut TransportInput<'_>, about: u32) -> Range {
    let start = SequenceNumber(input.value_near(about));
    Range {
        start,
        end: start.wrapping_add(u32::from(input.byte() % 20)),
    }
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;

    #[test]
    fn arbitrary_segments_do_no_harm() {
        for seed in 0..3_000 {
            let mut random = Pcg32::new(seed, 1);
            let data: Vec<u8> = (0..2_000).map(|_| random.next_u32() as u8).collect();
            super::transport(&data);
        }
    }
}
