//! Packet timestamps of a host: converts kernel timestamps, spreads the timestamps of a burst, and
//! stores departure times.

use ccplane_datapath::burst::{LinkPacket, StampCalibrator, calibrate_batch, ethernet_bytes};
use ccplane_link::ThreadClock;
use ccplane_transport::SideData;
use ccplane_units::{Duration, Rate, Time};

use super::clock_converter::{ClockConverter, KernelStamp};
use super::departures::Departures;

#[derive(Debug)]
pub(super) struct HostTimestamps {
    converter: ClockConverter,
    pub departures: Departures,
    /// Rate of this host's own link, if configured.
    link_rate: Option<Rate>,
    departures_link: StampCalibrator,
    /// Packets of the batch being received.
    batch: Vec<LinkPacket>,
    trusted: Vec<bool>,
}

impl HostTimestamps {
    pub fn new(clock: ThreadClock, link: Option<Rate>) -> HostTimestamps {
        HostTimestamps {
            converter: ClockConverter::new(clock),
            departures: Departures::default(),
            link_rate: link,
            departures_link: StampCalibrator::default(),
            batch: Vec::new(),
            trusted: Vec::new(),
        }
    }

    /// Starts a batch and returns the current time.
    pub fn begin_batch(&mut self) -> Time {
        self.batch.clear();
        self.trusted.clear();
        self.converter.synchronize()
    }

    /// Records the departure of the kernel's packet `number`, whose IP and UDP headers have
    /// `headers` bytes.
    pub fn on_departed(&mut self, number: u32, stamp: KernelStamp, now: Time, headers: u32) {
        if let Some(at) = self.converter.convert(stamp, now) {
            let (link, leaving) = (self.link_rate, &mut self.departures_link);
            self.departures.on_departed(number, |bytes| match link {
                Some(rate) => leaving.calibrate(at, ethernet_bytes(bytes + headers), rate),
                None => at,
            });
        }
    }

    /// Adds the next packet of the batch, of `bytes` bytes with its headers. Without a plausible
    /// timestamp it counts as arriving now.
    pub fn on_received(&mut self, stamp: KernelStamp, now: Time, bytes: u32) {
        let at = self.converter.convert(stamp, now);
        self.trusted.push(at.is_some());
        self.batch.push(LinkPacket {
            stamp: at.unwrap_or(now),
            bytes: ethernet_bytes(bytes),
        });
    }

    /// Completes the batch and spreads its timestamps.
    pub fn complete_batch(&mut self) {
        if let Some(rate) = self.link_rate
            && self.trusted.iter().all(|trusted| *trusted)
        {
            calibrate_batch(&mut self.batch, rate);
        }
    }

    /// Returns the arrival time of the packet at index `place` of the batch.
    pub fn arrival(&self, place: usize, now: Time) -> Time {
        self.batch.get(place).map_or(now, |packet| packet.stamp)
    }

    /// Replaces the timestamp t1 echoed in an ACK with the actual departure time, or removes the
    /// sample if that is unknown.
    pub fn set_departure(&mut self, side: &mut SideData, now: Time) {
        match self.departures.departure_time(side.t1, now) {
            Some(left) => side.t1 = left,
            None => side.stamped = false,
        }
    }
}

/// Histogram of a connection's one-way queueing delays.
///
/// Each octave of nanoseconds is divided into 32 buckets, so a quantile is accurate to 2 %. The
/// range is 0 to 2^32 ns.
#[derive(Clone, Debug)]
pub struct DelayHistogram {
    counts: Box<[u32]>,
    total: u64,
}

/// log2 of the buckets per octave.
const OCTAVE_BUCKETS_LOG2: u32 = 5;
const BUCKETS: usize =
    ((32 - OCTAVE_BUCKETS_LOG2 as usize) << OCTAVE_BUCKETS_LOG2) + (1 << OCTAVE_BUCKETS_LOG2);

impl Default for DelayHistogram {
    fn default() -> DelayHistogram {
        DelayHistogram {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
        }
    }
}

impl DelayHistogram {
    /// Counts a delay.
    pub fn add(&mut self, delay: Duration) {
        let ns = delay.as_nanos().min(u64::from(u32::MAX)) as u32;
        if let Some(count) = self.counts.get_mut(range(ns)) {
            *count = count.saturating_add(1);
            self.total += 1;
        }
    }

    /// Returns the number of delays counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Returns the given quantile, 0.5 for the median, as the middle of its bucket; `None` if the
    /// histogram is empty.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                return Some(Duration::from_nanos((least(index) + least(index + 1)) / 2));
            }
        }
        None
    }
}

fn range(ns: u32) -> usize {
    let octave = (u32::BITS - ns.leading_zeros()).saturating_sub(OCTAVE_BUCKETS_LOG2 + 1);
    ((octave as usize) << OCTAVE_BUCKETS_LOG2) + (ns >> octave) as usize
}

/// Returns the lower bound of a bucket, ns.
fn least(index: usize) -> u64 {
    let octave = (index >> OCTAVE_BUCKETS_LOG2).saturating_sub(1);
    ((index - (octave << OCTAVE_BUCKETS_LOG2)) as u64) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_dense_and_narrow() {
        let mut last = 0;
        for ns in (0..1 << 16)
            .chain((16..32).map(|n| (1 << n) + 12_345))
            .chain([u32::MAX])
        {
            let index = range(ns);
            assert!(
                index < BUCKETS && (ns > 1 << 16 || index == last || index == last + 1),
                "{ns}"
            );
            assert!(
                (least(index)..least(index + 1)).contains(&u64::from(ns)),
                "{ns}"
            );
            assert!(least(index + 1) - least(index) <= (u64::from(ns) / 32).max(1));
            last = index;
        }
    }

    #[test]
    fn quantiles_match_the_samples() {
        let mut delays = DelayHistogram::default();
        assert_eq!(delays.quantile(0.5), None);
        for us in 1..=1000 {
            delays.add(Duration::from_micros(us));
        }
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (0.001, 1.0), (1.0, 1000.0)] {
            let found = delays.quantile(share).unwrap().as_nanos() as f64 / 1e3;
            assert!((found / us - 1.0).abs() < 0.03, "{share}: {found} µs");
        }
    }

    /// Short packets that follow each other faster than full ones could keep the kernel's departure
    /// times.
    #[test]
    fn departures_are_spread_by_what_each_takes() {
        let gigabit = Some(Rate::from_bits_per_sec(1_000_000_000));
        let mut stamps = HostTimestamps::new(ThreadClock::new(), gigabit);
        let begun = stamps.begin_batch();
        let now = begun + Duration::from_millis(1);
        let real = |n: u64| KernelStamp {
            software: Some(
                (begun.as_nanos() as i64 + stamps.converter.real_offset()) as u64 + n * 2_000,
            ),
            hardware: None,
        };
        let told: Vec<KernelStamp> = (0..100).map(real).collect();
        let said: Vec<Time> = (0..100)
            .map(|_| stamps.departures.unique_time(begun))
            .collect();
        for (number, (said, stamp)) in said.iter().zip(&told).enumerate() {
            // A frame of 90 bytes takes 0.7 µs.
            stamps.departures.on_sent(*said, number as u32, 24);
            stamps.on_departed(number as u32, *stamp, now, 28);
        }
        let last = stamps.departures.departure_time(said[99], now).unwrap();
        assert!(
            last.since(begun) <= Duration::from_micros(200),
            "{}",
            last.since(begun)
        );
    }

    #[test]
    fn a_batch_of_one_stamp_is_spread_where_the_link_is_known() {
        let gigabit = Some(Rate::from_bits_per_sec(1_000_000_000));
        let mut stamps = HostTimestamps::new(ThreadClock::new(), gigabit);
        let now = stamps.begin_batch();
        for _ in 0..3 {
            stamps.on_received(KernelStamp::default(), now, 1500);
        }
        stamps.complete_batch();
        assert_eq!(
            stamps.arrival(0, now),
            now,
            "user-space times are unchanged"
        );
        let at = |n: u64| now + Duration::from_micros(n);
        stamps.begin_batch();
        (stamps.batch, stamps.trusted) = (
            vec![
                LinkPacket {
                    stamp: at(100),
                    bytes: 1538
                };
                3
            ],
            vec![true; 3],
        );
        stamps.complete_batch();
        // 1,538 bytes take 12.3 µs.
        let apart = stamps
            .arrival(1, now)
            .since(stamps.arrival(0, now))
            .as_nanos();
        assert!((12_200..12_310).contains(&apart), "{apart} ns");
        assert_eq!(stamps.arrival(2, now), at(100));
    }
}
