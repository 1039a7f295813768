//! Burst calibration: corrects time stamps by what the packets of a burst say about each other (DX,
//! slides 14 to 16).
//!
//! A stack, or a NIC that completes several packets at once, gives all packets of a burst one
//! stamp. The link carries them one after the other, each for as long as its bytes take. On a link
//! of rate C, where the i-th packet of L_i bytes is through at d_i, d_i >= d_(i-1) + L_i/C always
//! holds. So
//!
//! - stamps of departures are early, as a packet leaves after it was stamped: [`Forward`] makes
//!   t'_i = max(t_i, t'_(i-1) + L_i/C). With t_i <= d_i also t_i <= t'_i <= d_i: never worse, and
//!   exact in a burst whose first stamp is, but for [`SLACK`] of its length;
//! - stamps of arrivals are late, as a packet is noticed after it arrived: [`backward`] makes
//!   t'_(i-1) = min(t_(i-1), t'_i - L_i/C) over a batch. With t_i >= d_i also d_i <= t'_i <= t_i,
//!   and exact in a batch at line rate that is stamped as its last packet arrives. It needs the
//!   whole batch;
//! - where a packet has to be answered before the next is seen, [`Forward::spread`] spaces arrivals
//!   that share one stamp and nothing else: in a batch at line rate all are then late by as much as
//!   its first, which a minimum removes if batches are alike. Spacing those of different stamps in
//!   one pass would hold the latest of all against every packet after it.
//!
//! Packets are in the order in which they are on this host's own link. Reordering in the network
//! does not matter, nor does the peer's clock: each side calibrates its own stamps by its own
//! clock. [`OneWay`](crate::OneWay) takes care of both.

use ccplane_units::{Bytes, Duration, Rate, Time};

/// Bytes that an Ethernet frame takes beside its IP packet: header 14, check sequence 4, preamble
/// 8, gap 12 (IEEE 802.3).
const FRAME: u32 = 38;

/// The shortest frame on Ethernet, with preamble and gap, bytes.
const SHORTEST_FRAME: u32 = 84;

/// Packets are spaced by 1/1024 less than their bytes take. Less than a clock and a link may differ
/// (100 ppm each), and a link that is never idle moves the stamps off for good. More, and the
/// calibrated stamps of a burst are off by that share of its length (of 10 µs: 10 ns).
pub const SLACK: u64 = 1024;

/// A stamp that is earlier than the one before by more than this means that the clock was set back:
/// calibration begins anew. Smaller than jitter, and bursts are torn apart. Much larger, and stamps
/// are off by that much until the clock has caught up.
const SET_BACK: Duration = Duration::from_millis(1);

/// Longest burst: 64 KB take 52 ms at 10 Mbit/s. It bounds the error when the given rate is far too
/// low.
const LONGEST: Duration = Duration::from_millis(100);

/// What an IP packet of so many bytes takes on Ethernet, bytes.
pub const fn on_ethernet(packet: u32) -> u32 {
    let whole = packet.saturating_add(FRAME);
    if whole > SHORTEST_FRAME {
        whole
    } else {
        SHORTEST_FRAME
    }
}

/// How far apart packets are at least, when the later has so many bytes; zero where the rate is not
/// known (0).
fn spacing(rate: Rate, bytes: u32) -> Duration {
    if rate.bytes_per_sec() == 0 {
        return Duration::ZERO;
    }
    let takes = rate.time_for(Bytes::new(u64::from(bytes)));
    takes.saturating_sub(takes / SLACK)
}

/// How much later `a` is than `b`, ns. Stamps may wrap.
fn later(a: Time, b: Time) -> i64 {
    a.as_nanos().wrapping_sub(b.as_nanos()) as i64
}

/// `stamp` and so much more, or less. Stamps may wrap.
fn moved(stamp: Time, by: i64) -> Time {
    Time::from_nanos(stamp.as_nanos().wrapping_add_signed(by))
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Calibrates the stamps of one direction of a link in one pass, packet by packet: early ones with
/// [`calibrate`](Forward::calibrate), late ones with [`spread`](Forward::spread).
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward {
    /// The last stamp, as it was and calibrated.
    last: Option<(Time, Time)>,
}

impl Forward {
    /// The calibrated stamp of the next packet on the link, which takes so many bytes there.
    pub fn calibrate(&mut self, stamp: Time, bytes: u32, rate: Rate) -> Time {
        let calibrated = match self.last {
            Some((raw, last)) if later(stamp, raw) >= -nanos(SET_BACK) => {
                let earliest = moved(last, nanos(spacing(rate, bytes)));
                let lead = later(earliest, stamp);
                if (1..=nanos(LONGEST)).contains(&lead) {
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

    /// The same of an arrival: spaced only where it shares the stamp of the packet before.
    pub fn spread(&mut self, stamp: Time, bytes: u32, rate: Rate) -> Time {
        if self.last.is_some_and(|(raw, _)| raw != stamp) {
            self.last = None;
        }
        self.calibrate(stamp, bytes, rate)
    }
}

/// A packet on a link: its stamp, and what it takes there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passing {
    /// When it was through, as far as is known.
    pub stamp: Time,
    /// Bytes on the link.
    pub bytes: u32,
}

/// Calibrates the stamps of a batch that arrived over a link of this rate, in the order of arrival.
pub fn backward(batch: &mut [Passing], rate: Rate) {
    let mut next: Option<Passing> = None;
    for packet in batch.iter_mut().rev() {
        if let Some(next) = next {
            let latest = moved(next.stamp, -nanos(spacing(rate, next.bytes)));
            let late = later(packet.stamp, latest);
            // A stamp far beyond its successor's is of a clock that was set back in between.
            if (1..=nanos(LONGEST)).contains(&late) {
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
    const TEN_G: Rate = Rate::from_bytes_per_sec(1_250_000_000);
    const FULL: u32 = on_ethernet(1500);

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn a_frame_takes_what_ethernet_adds() {
        assert_eq!(
            (FULL, on_ethernet(40), on_ethernet(u32::MAX)),
            (1538, 84, u32::MAX)
        );
    }

    /// Slide 14: the stack hands over a burst, all of one stamp.
    #[test]
    fn a_burst_is_spread_over_what_it_takes() {
        let mut departures = Forward::default();
        let spread: Vec<u64> = (0..5)
            .map(|_| departures.calibrate(at(7_000), FULL, TEN_G).as_nanos())
            .collect();
        assert_eq!(spread, [7_000, 8_229, 9_458, 10_687, 11_916]);
        // Later than the burst takes, a stamp is what it is.
        assert_eq!(departures.calibrate(at(20_000), FULL, TEN_G), at(20_000));
        // Of arrivals, a late stamp says nothing of the next one.
        let mut arrivals = Forward::default();
        let spread =
            [7_000, 7_000, 7_001, 7_001].map(|ns| arrivals.spread(at(ns), FULL, TEN_G).as_nanos());
        assert_eq!(spread, [7_000, 8_229, 7_001, 8_230]);
    }

    /// Slide 16: a NIC stamps a batch as its last packet comes.
    #[test]
    fn a_batch_is_traced_back_from_its_last() {
        let mut batch = [Passing {
            stamp: at(50_000),
            bytes: FULL,
        }; 4];
        batch[0].stamp = at(40_000);
        backward(&mut batch, TEN_G);
        let stamps = batch.map(|packet| packet.stamp.as_nanos());
        assert_eq!(stamps, [40_000, 47_542, 48_771, 50_000]);
        backward(&mut [], TEN_G);
    }

    /// An unknown rate calibrates nothing, and neither does a clock that was set: the next stamp is
    /// believed.
    #[test]
    fn a_clock_that_was_set_is_believed() {
        let mut departures = Forward::default();
        assert_eq!(departures.calibrate(at(5), FULL, Rate::default()), at(5));
        assert_eq!(departures.calibrate(at(5), FULL, Rate::default()), at(5));
        for stamp in [
            10_000_000_000,
            5_000_000_000,
            5_000_000_000 - 1_000_001,
            u64::MAX - 5,
            40_000,
        ] {
            assert_eq!(departures.calibrate(at(stamp), FULL, TEN_G), at(stamp));
        }
        let mut batch = [2_000_000_000, 1_000_000_000].map(|ns| Passing {
            stamp: at(ns),
            bytes: FULL,
        });
        let before = batch;
        backward(&mut batch, TEN_G);
        assert_eq!(batch, before);
    }

    /// A link that is never idle, seen by a clock that is 100 ppm slow: without slack the stamps
    /// would run away by 100 µs a second.
    #[test]
    fn a_busy_link_does_not_carry_the_stamps_off() {
        let mut departures = Forward::default();
        for n in 0..2_000_000u64 {
            let true_ns = n * 12_304 / 10;
            let clock = at(true_ns - true_ns / 10_000);
            let stamp = departures.calibrate(clock, FULL, TEN_G);
            assert!(
                later(stamp, clock) <= 2_000,
                "packet {n}: {} ns",
                later(stamp, clock)
            );
        }
    }
}
