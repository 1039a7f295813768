//! Histogram of sojourn times, for runs with too many packets to record each.

use ccplane_units::Duration;
use hdrhistogram::Histogram;

/// Significant digits of the histogram.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Sojourn times of the packets of a link, with a resolution of one part in a thousand.
///
/// Takes some hundred kilobytes at most, however many packets there are.
#[derive(Clone, Debug)]
pub struct Sojourns {
    /// Times in ns. Creating a histogram with three digits never fails, so this is never `None`.
    times: Option<Histogram<u64>>,
}

impl Sojourns {
    pub(crate) fn new() -> Sojourns {
        Sojourns {
            times: Histogram::new(SIGNIFICANT_DIGITS).ok(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, sojourn: Duration) {
        if let Some(times) = &mut self.times {
            // The histogram resizes up to 2^63 ns, which no simulation reaches, so recording never
            // fails.
            times.record(sojourn.as_nanos()).ok();
        }
    }

    /// Returns the number of packets.
    pub fn count(&self) -> u64 {
        self.times.as_ref().map_or(0, Histogram::len)
    }

    /// Returns the quantile `share` (0 to 1) of the sojourn times.
    pub fn quantile(&self, share: f64) -> Duration {
        let times = self.times.as_ref().filter(|times| !times.is_empty());
        Duration::from_nanos(times.map_or(0, |times| times.value_at_quantile(share)))
    }

    /// Returns the maximum sojourn time.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.times.as_ref().map_or(0, Histogram::max))
    }

    /// Returns the mean sojourn time, ns.
    pub fn mean(&self) -> f64 {
        self.times.as_ref().map_or(0.0, Histogram::mean)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.times
            .as_ref()
            .map_or(0, |times| times.distinct_values() * size_of::<u64>())
    }
}
