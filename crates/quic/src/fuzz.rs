//! Fuzz harness of a path under arbitrary sequences of calls: no panic, a window within bounds,
//! nothing counted twice. Runs under libFuzzer (`fuzz/fuzz_targets/quic_path.rs`) and, with seeded
//! random bytes, under `cargo test`.

use ccplane_datapath::Outcome;
use ccplane_units::{Duration, Time};

use crate::QuicPath;

/// Packet as the stack stores it.
#[derive(Clone, Copy)]
struct StackPacket {
    number: u64,
    at: Time,
    bytes: u16,
    /// Set while the stack considers it in flight.
    out: bool,
}

/// Calls a path as encoded in `data`.
pub fn quic_path(data: &[u8]) {
    let mut input = data.iter().copied();
    let mut byte = || input.next();
    let mut now = Time::from_micros(1);
    let mut path = QuicPath::new(now, u16::from(byte().unwrap_or(0)) * 16);
    let mut sent: Vec<StackPacket> = Vec::new();
    let (mut next, mut told, mut sum) = (0u64, 0u64, 0u64);
    while let (Some(what), Some(which)) = (byte(), byte()) {
        now += Duration::from_micros(1 << (which % 21));
        let chosen = (!sent.is_empty()).then(|| sent.len() - 1 - usize::from(which) % sent.len());
        match what {
            0..=99 => {
                // Numbers sometimes restart, as in another packet number space, and some are
                // skipped.
                next = if what == 0 {
                    0
                } else {
                    next + 1 + u64::from(what % 50 == 1)
                };
                let bytes = u16::from(which) * 8;
                path.on_sent(now, next, bytes);
                let out = u64::from(bytes) <= path.mss();
                sent.push(StackPacket {
                    number: next,
                    at: now,
                    bytes,
                    out,
                });
            }
            100..=169 => {
                if let Some(packet) = chosen.and_then(|at| sent.get_mut(at)) {
                    path.on_acked(now, packet.number, packet.at);
                    told += if packet.out {
                        u64::from(packet.bytes)
                    } else {
                        0
                    };
                    packet.out = false;
                }
            }
            170..=189 => {
                if let Some(packet) = chosen.and_then(|at| sent.get_mut(at)) {
                    path.on_lost(now, packet.number, packet.bytes);
                }
            }
            190 => {
                let (number, at) = (u64::from(which), Time::from_micros(u64::from(which)));
                path.on_acked(now, number, at);
                // It may match a packet that was sent.
                if let Some(packet) = sent
                    .iter_mut()
                    .find(|packet| (packet.number, packet.at) == (number, at))
                {
                    told += if packet.out {
                        u64::from(packet.bytes)
                    } else {
                        0
                    };
                    packet.out = false;
                }
            }
            191 => path.on_lost(now, u64::MAX - u64::from(which), which.into()),
            203 => path.on_lost_until(now, now, u64::from(which) * 50),
            204 => {
                // Any packet sent at that time may be chosen.
                if let Some(packet) = chosen.and_then(|at| sent.get(at)) {
                    path.on_acked_sent_at(now, packet.at);
                    told += u64::from(u16::MAX);
                }
            }
            205 => {
                if let Some(packet) = chosen.and_then(|at| sent.get(at)) {
                    let rest =
                        path.on_acked_up_to(now, packet.number, packet.at, i64::from(which) * 40);
                    assert!(rest <= 0 && rest > -i64::from(u16::MAX), "{rest}");
                    told += u64::from(which) * 40 + u64::from(u16::MAX);
                }
            }
            206 => {
                if let Some(packet) = chosen.and_then(|at| sent.get(at)) {
                    path.on_lost_up_to(now, packet.number, packet.at);
                }
            }
            207 => path.on_discarded(u64::from(which) * 40),
            192..=194 => path.on_ce_marks(which.into(), u64::from(which) * 1_000),
            195 => path.on_ce_marks(u32::MAX, u64::MAX),
            196 => path.on_persistent_congestion(),
            197..=198 => path.on_spurious_loss(),
            199 => path.set_mss(u16::from(which) * 257),
            200 => path.on_cwnd_limited(),
            // A clock that runs backwards.
            201 => path.on_acked(Time::ZERO, next, Time::MAX),
            202 => path = path.migrate(),
            _ => {
                let wanted = match which % 8 {
                    0 => Outcome {
                        cwnd: Some(u64::MAX),
                        rate: Some(u64::MAX),
                        ..Outcome::default()
                    },
                    1 => Outcome {
                        cwnd: Some(0),
                        rate: Some(0),
                        ssthresh: Some(0),
                        ..Outcome::default()
                    },
                    2 => Outcome {
                        ssthresh: Some(u64::MAX),
                        ..Outcome::default()
                    },
                    3 => Outcome {
                        ssthresh: Some(u64::from(what) << 12),
                        ..Outcome::default()
                    },
                    4 => Outcome {
                        cwnd: Some(u64::from(what) << 10),
                        ..Outcome::default()
                    },
                    _ => Outcome::default(),
                };
                path.finish_event(now, what & 1 == 0, |transport, signals| {
                    sum += signals.bytes_acked;
                    assert!(
                        transport.cwnd >= 2 * signals.mss,
                        "a window of {}",
                        transport.cwnd
                    );
                    assert!(signals.bytes_pending >= signals.bytes_in_flight);
                    wanted
                });
            }
        }
        let out: u64 = sent
            .iter()
            .filter(|packet| packet.out)
            .map(|packet| u64::from(packet.bytes))
            .sum();
        assert!(
            path.bytes_in_flight() <= out,
            "{} in flight of {out}",
            path.bytes_in_flight()
        );
        assert!(path.window() >= 2 * path.mss());
        assert!(path.send_quantum() >= 2_400 && path.acked_bytes() <= told);
        assert!(
            sum <= told,
            "{sum} bytes acknowledged in order of {told} in all"
        );
        assert!(
            path.memory_bytes() <= 4_096 + 2 * 48 * (sent.len() + 8),
            "{} bytes",
            path.memory_bytes()
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn forged_acknowledgements_of_sent_packets_are_tolerated() {
        super::quic_path(b"K3i\xbe\xbe\xbe\xbe\xbe\x02\0\0\0\0\0\0\0\xef");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn any_order_of_calls_does_no_harm(
            data in proptest::collection::vec(any::<u8>(), 0..1_500),
        ) {
            super::quic_path(&data);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        #[ignore = "long: five times as many"]
        fn any_order_of_more_calls_does_no_harm(
            data in proptest::collection::vec(any::<u8>(), 0..1_500),
        ) {
            super::quic_path(&data);
        }
    }
}
