//! Burst calibration on simulated links: arbitrary packets, late and early stamps, batches, two
//! clocks with offset and drift, and a network that reorders.

use ccplane_datapath::burst::{LinkPacket, SLACK_DIVISOR, StampCalibrator, calibrate_batch};
use ccplane_datapath::{ExchangeStamps, OneWay};
use ccplane_units::{Bytes, Duration, Rate, Time};
use proptest::prelude::*;

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

/// Returns the times at which packets are through a link; a packet is its gap to the previous one
/// and its length in bytes.
fn link_departures(packets: &[(u64, u32)], rate: Rate) -> Vec<LinkPacket> {
    let (mut comes, mut free) = (1_000_000, 0);
    let mut passed = Vec::new();
    for (gap, bytes) in packets {
        comes += gap;
        free = comes.max(free)
            + rate
                .transmission_time(Bytes::new(u64::from(*bytes)))
                .as_nanos()
            + 1;
        passed.push(LinkPacket {
            stamp: at(free),
            bytes: *bytes,
        });
    }
    passed
}

fn link() -> impl Strategy<Value = (Vec<(u64, u32)>, u64)> {
    let gap = prop_oneof![3 => Just(0u64), 1 => 0..50_000u64, 1 => 0..5_000_000u64];
    let packets = prop::collection::vec((gap, 64..9_000u32), 1..200);
    (
        packets,
        prop_oneof![
            Just(1_250_000_000),
            Just(12_500_000),
            1_000_000..2_000_000_000u64
        ],
    )
}

proptest! {
    /// Calibration moves early stamps later and late stamps earlier, but never beyond the true
    /// time.
    #[test]
    fn calibration_never_makes_a_stamp_worse(
        (packets, rate) in link(),
        errors in prop::collection::vec(0..900_000u64, 200),
    ) {
        let rate = Rate::from_bytes_per_sec(rate);
        let truth = link_departures(&packets, rate);
        let mut departures = StampCalibrator::default();
        for (packet, error) in truth.iter().zip(&errors) {
            let early = at(packet.stamp.as_nanos() - error);
            let calibrated = departures.calibrate(early, packet.bytes, rate);
            prop_assert!(early <= calibrated && calibrated <= packet.stamp);
        }
        let late: Vec<LinkPacket> = truth
            .iter()
            .zip(&errors)
            .map(|(packet, error)| LinkPacket {
                stamp: packet.stamp + Duration::from_nanos(*error),
                ..*packet
            })
            .collect();
        let mut calibrated = late.clone();
        calibrate_batch(&mut calibrated, rate);
        for ((calibrated, late), truth) in calibrated.iter().zip(&late).zip(&truth) {
            prop_assert!(truth.stamp <= calibrated.stamp && calibrated.stamp <= late.stamp);
        }
        // In one pass, batches of up to eight that share the stamp of the last: late by at most as
        // much as the first of them.
        let mut arrivals = StampCalibrator::default();
        for batch in truth.chunks(8) {
            let stamp = batch[batch.len() - 1].stamp;
            for packet in batch {
                let calibrated = arrivals.spread(stamp, packet.bytes, rate);
                prop_assert!(calibrated >= stamp);
                prop_assert!(calibrated.since(packet.stamp) <= stamp.since(batch[0].stamp));
            }
        }
    }

    /// Arbitrary stamps cause no panic.
    #[test]
    fn any_stamps_are_taken(
        stamps in prop::collection::vec((any::<u64>(), any::<u32>()), 0..50),
        rate: u64,
    ) {
        let rate = Rate::from_bytes_per_sec(rate);
        let mut forward = StampCalibrator::default();
        let mut batch = Vec::new();
        for (ns, bytes) in stamps {
            forward.calibrate(at(ns), bytes, rate);
            batch.push(LinkPacket {
                stamp: at(ns),
                bytes,
            });
        }
        calibrate_batch(&mut batch, rate);
    }
}

const LINK_RATE: Rate = Rate::from_bytes_per_sec(1_250_000_000);
const FULL_FRAME_BYTES: u32 = 1_538;
const FULL_FRAME_NANOS: u64 = 1_230;
/// Packets that a sender's stack sends at once, and the longest batch of the receiver, ns.
const BURST_PACKETS: u64 = 16;
const BATCH_NANOS_MAX: u64 = 10_000;

/// A minute of bursts over a 10 Gbit/s link and a network that delays and reorders, to a receiver
/// that stamps the arrivals of 10 µs at the end of that time. Returns the maximum error of the
/// queueing delay per packet, raw and calibrated, in ns; and the percentage of packets with an
/// error above half a packet time.
fn exchange(offset: i64, ppm: i64) -> [(u64, u64); 2] {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let peer = |t: u64| at(t.wrapping_add_signed(offset + t as i64 / 1_000_000 * ppm));
    let mut one_way = [OneWay::default(), OneWay::default()];
    let mut departures = StampCalibrator::default();
    let (mut worst, mut off, mut count) = ([0u64; 2], [0u64; 2], 0u64);
    let mut now = 5_000_000;
    for burst in 0..6_000u64 {
        now += 100_000 + draw(20_000_000);
        // (raw and calibrated t1, transmission time, arrival at the receiver's link)
        let mut flying = Vec::new();
        for n in 0..BURST_PACKETS {
            let leaves = now + (n + 1) * FULL_FRAME_NANOS;
            let calibrated =
                departures.calibrate(at(now + FULL_FRAME_NANOS), FULL_FRAME_BYTES, LINK_RATE);
            // Every few bursts the network is empty; otherwise packets queue, each on its own path,
            // and overtake each other.
            let waits = if burst % 4 == 0 { 0 } else { draw(40_000) };
            flying.push((
                at(now + FULL_FRAME_NANOS),
                calibrated,
                leaves,
                leaves + 50_000 + waits,
            ));
        }
        flying.sort_by_key(|packet| packet.3);
        // The receiver's link carries one packet at a time; a batch is stamped when its last packet
        // arrives.
        let mut free = 0;
        let mut arrived: Vec<u64> = Vec::new();
        for packet in &flying {
            free = packet.3.max(free + FULL_FRAME_NANOS);
            arrived.push(free);
        }
        let mut first = 0;
        while first < flying.len() {
            let last = (first..flying.len())
                .rfind(|n| arrived[*n] < arrived[first] + BATCH_NANOS_MAX)
                .unwrap_or(first);
            let raw = peer(arrived[last]);
            let mut batch = vec![
                LinkPacket {
                    stamp: raw,
                    bytes: FULL_FRAME_BYTES
                };
                last - first + 1
            ];
            calibrate_batch(&mut batch, LINK_RATE);
            for (n, passing) in (first..=last).zip(&batch) {
                let (t1, t1_calibrated, leaves, _) = flying[n];
                let truth = arrived[n] - leaves - 50_000;
                let t3 = arrived[last] + 3_000;
                // The return path is idle, and its stamps are exact.
                let t4 = at(t3 + 50_000);
                for (which, (t1, t2)) in [(t1, raw), (t1_calibrated, passing.stamp)]
                    .into_iter()
                    .enumerate()
                {
                    let stamps = ExchangeStamps {
                        t1,
                        t2,
                        t3: peer(t3),
                        t4,
                    };
                    assert!(one_way[which].sample(t4, &stamps));
                    let measured = one_way[which]
                        .queue_delay(t4, Duration::ZERO)
                        .expect("it is fresh");
                    let error = measured.as_nanos().abs_diff(truth);
                    if burst > 8 {
                        worst[which] = worst[which].max(error);
                        off[which] += u64::from(error > FULL_FRAME_NANOS / 2);
                        count += which as u64;
                    }
                }
            }
            first = last + 1;
        }
        now += BURST_PACKETS * FULL_FRAME_NANOS;
    }
    [
        (worst[0], off[0] * 100 / count),
        (worst[1], off[1] * 100 / count),
    ]
}

/// Uncalibrated, t1 is early by up to a burst and t2 late by up to a batch. Calibrated, t1 is exact
/// except for the slack, and t2 is late only if a batch has gaps, by less than a batch. Neither the
/// clocks' offset, nor drift up to 100 ppm, nor reordering changes that: the round-trip form bounds
/// drift if the return path is idle.
#[test]
fn bursts_batches_reordering_offset_and_drift() {
    for (offset, ppm) in [
        (0, 0),
        (1 << 40, 0),
        (-(1 << 40), 20),
        (-77, -20),
        (3_000_000, 100),
        (-3_000_000, -100),
    ] {
        let [raw, calibrated] = exchange(offset, ppm);
        let drift = ppm.unsigned_abs() * 2 / 10; // at most 2 ms between t2 and t4, and rounding
        assert!(
            raw.0 >= (BURST_PACKETS - 1) * FULL_FRAME_NANOS,
            "{offset} ns, {ppm} ppm: {raw:?}"
        );
        assert!(raw.1 >= 80, "{offset} ns, {ppm} ppm: {raw:?}");
        let bound = BATCH_NANOS_MAX + BURST_PACKETS * FULL_FRAME_NANOS / SLACK_DIVISOR + drift;
        assert!(
            calibrated.0 <= bound,
            "{offset} ns, {ppm} ppm: {calibrated:?}, bound {bound}"
        );
        // Clocks that drift together affect all packets until the network is next empty, 40 ms
        // later.
        let most = if ppm < 0 { raw.1 } else { raw.1 / 2 };
        assert!(
            calibrated.1 <= most,
            "{offset} ns, {ppm} ppm: {raw:?} {calibrated:?}"
        );
    }
}
