//! What a host knows of its packets' time stamps: converts the kernel's, spreads those of a burst,
//! remembers departures.

use ccplane_datapath::burst::{Forward, Passing, backward, on_ethernet};
use ccplane_link::Clock;
use ccplane_transport::Side;
use ccplane_units::{Duration, Rate, Time};

use super::departures::Departures;
use super::realtime::{KernelStamp, Stamper};

/// Time stamps of one host.
#[derive(Debug)]
pub(super) struct HostStamps {
    stamper: Stamper,
    pub departures: Departures,
    /// The rate of this host's own link, where it was told.
    link: Option<Rate>,
    leaving: Forward,
    /// Of the batch that is being received.
    batch: Vec<Passing>,
    trusted: Vec<bool>,
}

impl HostStamps {
    pub fn new(clock: Clock, link: Option<Rate>) -> HostStamps {
        HostStamps {
            stamper: Stamper::new(clock),
            departures: Departures::default(),
            link,
            leaving: Forward::default(),
            batch: Vec::new(),
            trusted: Vec::new(),
        }
    }

    /// A batch begins: the present.
    pub fn begin(&mut self) -> Time {
        self.batch.clear();
        self.trusted.clear();
        self.stamper.look()
    }

    /// The kernel's packet `number`, with so many bytes of headers of IP and UDP, left.
    pub fn left(&mut self, number: u32, stamp: KernelStamp, now: Time, headers: u32) {
        if let Some(at) = self.stamper.convert(stamp, now) {
            let (link, leaving) = (self.link, &mut self.leaving);
            self.departures.left(number, |bytes| match link {
                Some(rate) => leaving.calibrate(at, on_ethernet(bytes + headers), rate),
                None => at,
            });
        }
    }

    /// The next packet of the batch, of `bytes` with its headers. Without a stamp that can be
    /// believed it came now.
    pub fn came(&mut self, stamp: KernelStamp, now: Time, bytes: u32) {
        let at = self.stamper.convert(stamp, now);
        self.trusted.push(at.is_some());
        self.batch.push(Passing {
            stamp: at.unwrap_or(now),
            bytes: on_ethernet(bytes),
        });
    }

    /// The batch is complete.
    pub fn complete(&mut self) {
        if let Some(rate) = self.link
            && self.trusted.iter().all(|trusted| *trusted)
        {
            backward(&mut self.batch, rate);
        }
    }

    /// When the packet at this place of the batch arrived.
    pub fn arrival(&self, place: usize, now: Time) -> Time {
        self.batch.get(place).map_or(now, |packet| packet.stamp)
    }

    /// An acknowledgement says t1 of what it answers: the true one instead, or no sample where that
    /// is not known.
    pub fn correct(&mut self, side: &mut Side, now: Time) {
        match self.departures.of(side.t1, now) {
            Some(left) => side.t1 = left,
            None => side.stamped = false,
        }
    }
}

/// Queueing delays of one connection, as its packets' stamps tell: how many fell into each of some
/// ranges.
///
/// 32 ranges to an octave of nanoseconds: a quantile is right to within 2 %. All delays below 2^32
/// ns fit.
#[derive(Clone, Debug)]
pub struct Delays {
    counts: Box<[u32]>,
    total: u64,
}

/// log2 of the ranges to an octave.
const FINE: u32 = 5;
const RANGES: usize = ((32 - FINE as usize) << FINE) + (1 << FINE);

impl Default for Delays {
    fn default() -> Delays {
        Delays {
            counts: vec![0; RANGES].into_boxed_slice(),
            total: 0,
        }
    }
}

impl Delays {
    /// Counts a delay.
    pub fn add(&mut self, delay: Duration) {
        let ns = delay.as_nanos().min(u64::from(u32::MAX)) as u32;
        if let Some(count) = self.counts.get_mut(range(ns)) {
            *count = count.saturating_add(1);
            self.total += 1;
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The delay that this share of all does not exceed, 0.5 for the median: the middle of its
    /// range. `None` without any.
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
    let octave = (u32::BITS - ns.leading_zeros()).saturating_sub(FINE + 1);
    ((octave as usize) << FINE) + (ns >> octave) as usize
}

/// The least delay of a range.
fn least(index: usize) -> u64 {
    let octave = (index >> FINE).saturating_sub(1);
    ((index - (octave << FINE)) as u64) << octave
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
                index < RANGES && (ns > 1 << 16 || index == last || index == last + 1),
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
    fn quantiles_are_those_of_what_was_added() {
        let mut delays = Delays::default();
        assert_eq!(delays.quantile(0.5), None);
        for us in 1..=1000 {
            delays.add(Duration::from_micros(us));
        }
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (0.001, 1.0), (1.0, 1000.0)] {
            let found = delays.quantile(share).unwrap().as_nanos() as f64 / 1e3;
            assert!((found / us - 1.0).abs() < 0.03, "{share}: {found} µs");
        }
    }

    /// Short packets, closer together than full ones could be, left when the kernel says.
    #[test]
    fn departures_are_spread_by_what_each_takes() {
        let gigabit = Some(Rate::from_bits_per_sec(1_000_000_000));
        let mut stamps = HostStamps::new(Clock::new(), gigabit);
        let begun = stamps.begin();
        let now = begun + Duration::from_millis(1);
        let real = |n: u64| KernelStamp {
            software: Some(
                (begun.as_nanos() as i64 + stamps.stamper.real_offset()) as u64 + n * 2_000,
            ),
            hardware: None,
        };
        let told: Vec<KernelStamp> = (0..100).map(real).collect();
        let said: Vec<Time> = (0..100).map(|_| stamps.departures.name(begun)).collect();
        for (number, (said, stamp)) in said.iter().zip(&told).enumerate() {
            // 90 bytes of a frame take 0.7 µs.
            stamps.departures.sent(*said, number as u32, 24);
            stamps.left(number as u32, *stamp, now, 28);
        }
        let last = stamps.departures.of(said[99], now).unwrap();
        assert!(
            last.since(begun) <= Duration::from_micros(200),
            "{}",
            last.since(begun)
        );
    }

    #[test]
    fn a_batch_of_one_stamp_is_spread_where_the_link_is_known() {
        let gigabit = Some(Rate::from_bits_per_sec(1_000_000_000));
        let mut stamps = HostStamps::new(Clock::new(), gigabit);
        let now = stamps.begin();
        for _ in 0..3 {
            stamps.came(KernelStamp::default(), now, 1500);
        }
        stamps.complete();
        assert_eq!(
            stamps.arrival(0, now),
            now,
            "user space's times are left as they are"
        );
        let at = |n: u64| now + Duration::from_micros(n);
        stamps.begin();
        (stamps.batch, stamps.trusted) = (
            vec![
                Passing {
                    stamp: at(100),
                    bytes: 1538
                };
                3
            ],
            vec![true; 3],
        );
        stamps.complete();
        // 1,538 bytes take 12.3 µs.
        let apart = stamps
            .arrival(1, now)
            .since(stamps.arrival(0, now))
            .as_nanos();
        assert!((12_200..12_310).contains(&apart), "{apart} ns");
        assert_eq!(stamps.arrival(2, now), at(100));
    }
}
