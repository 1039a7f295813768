//! Burst calibration: corrects the time stamps of a burst from the order of its packets on the link
//! (DX, slides 14 to 16).
//!
//! A stack, or a NIC that completes several packets at once, gives all packets of a burst the same
//! stamp. The link carries them one after another, each for its transmission time. On a link of
//! rate C, where the i-th packet of L_i bytes is through at d_i, d_i >= d_(i-1) + L_i/C always
//! holds. Hence
//!
//! - departure stamps are early, as a packet is sent after it was stamped: [`StampCalibrator`]
//!   computes t'_i = max(t_i, t'_(i-1) + L_i/C). With t_i <= d_i also t_i <= t'_i <= d_i: never
//!   worse, and exact in a burst whose first stamp is exact, except for [`SLACK_DIVISOR`] of its
//!   length;
//! - arrival stamps are late, as a packet is noticed after it arrived: [`calibrate_batch`] computes
//!   t'_(i-1) = min(t_(i-1), t'_i - L_i/C) over a batch. With t_i >= d_i also d_i <= t'_i <= t_i,
//!   and exact in a batch at line rate that is stamped when its last packet arrives. It needs the
//!   whole batch;
//! - if a packet must be acknowledged before the next is received, [`StampCalibrator::spread`]
//!   spaces only arrivals with the same stamp: in a batch at line rate all are then late by as much
//!   as its first, which a minimum removes if batches are alike. Spacing arrivals with different
//!   stamps in one pass would delay every packet by the lateness of the latest one before it.
//!
//! Packets are in their order on this host's own link. Neither reordering in the network nor the
//! peer's clock matters: each side calibrates its own stamps by its own clock.
//! [`OneWay`](crate::OneWay) handles both.

use ccplane_units::{Bytes, Duration, Rate, Time};

/// Ethernet overhead of an IP packet, bytes: header 14, check sequence 4, preamble 8, gap 12 (IEEE
/// 802.3).
const ETHERNET_OVERHEAD_BYTES: u32 = 38;

/// Minimum Ethernet frame including preamble and gap, bytes.
const ETHERNET_FRAME_BYTES_MIN: u32 = 84;

/// Packets are spaced by 1/1024 less than their transmission time. If the slack were below the
/// difference of clock and link (100 ppm each), a link that is never idle would move the stamps
/// away for good. A larger slack makes the calibrated stamps of a burst wrong by that share of its
/// length (for 10 µs: 10 ns).
pub const SLACK_DIVISOR: u64 = 1024;

/// A stamp that is earlier than the previous one by more than this means that the clock was set
/// back: calibration restarts. A value below the jitter splits bursts. With a much larger one,
/// stamps are wrong by that much until the clock has caught up.
const CLOCK_STEP_BACK_MIN: Duration = Duration::from_millis(1);

/// Maximum length of a burst: 64 KB take 52 ms at 10 Mbit/s. It bounds the error if the configured
/// rate is far too low.
const BURST_DURATION_MAX: Duration = Duration::from_millis(100);

/// Length of an IP packet on Ethernet, bytes.
pub const fn ethernet_bytes(packet: u32) -> u32 {
    let whole = packet.saturating_add(ETHERNET_OVERHEAD_BYTES);
    if whole > ETHERNET_FRAME_BYTES_MIN {
        whole
    } else {
        ETHERNET_FRAME_BYTES_MIN
    }
}

/// Minimum distance of two packets, if the later one has `bytes` bytes; zero if the rate is unknown
/// (0).
fn packet_spacing(rate: Rate, bytes: u32) -> Duration {
    if rate.bytes_per_sec() == 0 {
        return Duration::ZERO;
    }
    let takes = rate.transmission_time(Bytes::new(u64::from(bytes)));
    takes.saturating_sub(takes / SLACK_DIVISOR)
}

/// Returns `a - b` in ns. Stamps may wrap.
fn signed_difference(a: Time, b: Time) -> i64 {
    a.as_nanos().wrapping_sub(b.as_nanos()) as i64
}

/// Moves a stamp by `by` ns. Stamps may wrap.
fn offset_by(stamp: Time, by: i64) -> Time {
    Time::from_nanos(stamp.as_nanos().wrapping_add_signed(by))
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Calibrates the stamps of one direction of a link in one pass, packet by packet: early ones with
/// [`calibrate`](StampCalibrator::calibrate), late ones with [`spread`](StampCalibrator::spread).
#[derive(Clone, Copy, Debug, Default)]
pub struct StampCalibrator {
    /// Last stamp, raw and calibrated.
    last: Option<(Time, Time)>,
}

impl StampCalibrator {
    /// Returns the calibrated stamp of the next packet on the link, which takes `bytes` bytes
    /// there.
    pub fn calibrate(&mut self, stamp: Time, bytes: u32, rate: Rate) -> Time {
        let calibrated = match self.last {
            Some((raw, last)) if signed_difference(stamp, raw) >= -nanos(CLOCK_STEP_BACK_MIN) => {
                let earliest = offset_by(last, nanos(packet_spacing(rate, bytes)));
                let lead = signed_difference(earliest, stamp);
                if (1..=nanos(BURST_DURATION_MAX)).contains(&lead) {
                    earliest
                } else {
                    stamp
                }
            }
            _ => stamp,
        };
        self.last = Some((stamp, calibrated));
        calibrated
    }

    /// Returns the calibrated stamp of an arrival, spaced only if it shares the previous packet's
    /// stamp.
    pub fn spread(&mut self, stamp: Time, bytes: u32, rate: Rate) -> Time {
        if self.last.is_some_and(|(raw, _)| raw != stamp) {
            self.last = None;
        }
        self.calibrate(stamp, bytes, rate)
    }
}

/// Packet on a link: its stamp and length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkPacket {
    /// Estimated time at which it was through.
    pub stamp: Time,
    /// Length on the link, bytes.
    pub bytes: u32,
}

/// Calibrates the stamps of a batch that arrived over a link of this rate, in the order of arrival.
pub fn calibrate_batch(batch: &mut [LinkPacket], rate: Rate) {
    let mut next: Option<LinkPacket> = None;
    for packet in batch.iter_mut().rev() {
        if let Some(next) = next {
            let latest = offset_by(next.stamp, -nanos(packet_spacing(rate, next.bytes)));
            let late = signed_difference(packet.stamp, latest);
            // A stamp far beyond its successor's comes from a clock that was set back in between.
            if (1..=nanos(BURST_DURATION_MAX)).contains(&late) {
                packet.stamp = latest;
            }
        }
        next = Some(*packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Gbit/s: 1,538 bytes take 1,230.4 ns.
    const LINK_RATE: Rate = Rate::from_bytes_per_sec(1_250_000_000);
    const FULL_FRAME_BYTES: u32 = ethernet_bytes(1500);

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn a_frame_takes_what_ethernet_adds() {
        assert_eq!(
            (
                FULL_FRAME_BYTES,
                ethernet_bytes(40),
                ethernet_bytes(u32::MAX)
            ),
            (1538, 84, u32::MAX)
        );
    }

    /// Slide 14: the stack sends a burst with a single stamp.
    #[test]
    fn a_burst_is_spread_over_what_it_takes() {
        let mut departures = StampCalibrator::default();
        let spread: Vec<u64> = (0..5)
            .map(|_| {
                departures
                    .calibrate(at(7_000), FULL_FRAME_BYTES, LINK_RATE)
                    .as_nanos()
            })
            .collect();
        assert_eq!(spread, [7_000, 8_229, 9_458, 10_687, 11_916]);
        // A stamp after the end of the burst is unchanged.
        assert_eq!(
            departures.calibrate(at(20_000), FULL_FRAME_BYTES, LINK_RATE),
            at(20_000)
        );
        // A late arrival stamp does not affect the next one.
        let mut arrivals = StampCalibrator::default();
        let spread = [7_000, 7_000, 7_001, 7_001].map(|ns| {
            arrivals
                .spread(at(ns), FULL_FRAME_BYTES, LINK_RATE)
                .as_nanos()
        });
        assert_eq!(spread, [7_000, 8_229, 7_001, 8_230]);
    }

    /// Slide 16: a NIC stamps a batch when its last packet arrives.
    #[test]
    fn a_batch_is_traced_back_from_its_last() {
        let mut batch = [LinkPacket {
            stamp: at(50_000),
            bytes: FULL_FRAME_BYTES,
        }; 4];
        batch[0].stamp = at(40_000);
        calibrate_batch(&mut batch, LINK_RATE);
        let stamps = batch.map(|packet| packet.stamp.as_nanos());
        assert_eq!(stamps, [40_000, 47_542, 48_771, 50_000]);
        calibrate_batch(&mut [], LINK_RATE);
    }

    /// An unknown rate calibrates nothing. After a clock was set, the next stamp is taken
    /// unchanged.
    #[test]
    fn a_clock_that_was_set_is_believed() {
        let mut departures = StampCalibrator::default();
        assert_eq!(
            departures.calibrate(at(5), FULL_FRAME_BYTES, Rate::default()),
            at(5)
        );
        assert_eq!(
            departures.calibrate(at(5), FULL_FRAME_BYTES, Rate::default()),
            at(5)
        );
        for stamp in [
            10_000_000_000,
            5_000_000_000,
            5_000_000_000 - 1_000_001,
            u64::MAX - 5,
            40_000,
        ] {
            assert_eq!(
                departures.calibrate(at(stamp), FULL_FRAME_BYTES, LINK_RATE),
                at(stamp)
            );
        }
        let mut batch = [2_000_000_000, 1_000_000_000].map(|ns| LinkPacket {
            stamp: at(ns),
            bytes: FULL_FRAME_BYTES,
        });
        let before = batch;
        calibrate_batch(&mut batch, LINK_RATE);
        assert_eq!(batch, before);
    }

    /// A link that is never idle, with a clock that is 100 ppm slow: without slack the stamps would
    /// drift away by 100 µs per second.
    #[test]
    fn busy_links_do_not_bias_the_calibration() {
        let mut departures = StampCalibrator::default();
        for n in 0..2_000_000u64 {
            let true_ns = n * 12_304 / 10;
            let clock = at(true_ns - true_ns / 10_000);
            let stamp = departures.calibrate(clock, FULL_FRAME_BYTES, LINK_RATE);
            assert!(
                signed_difference(stamp, clock) <= 2_000,
                "packet {n}: {} ns",
                signed_difference(stamp, clock)
            );
        }
    }
}
