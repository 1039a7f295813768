//! How long packets took through a link: a histogram, for runs whose every crossing would be too
//! much to keep.

use ccplane_units::Duration;
use hdrhistogram::Histogram;

/// Values are kept to one part in a thousand.
const DIGITS: u8 = 3;

/// The times that packets took from coming to a link to having left its queue, each to one part in
/// a thousand.
///
/// Some hundred kilobytes at most, however many packets there are.
#[derive(Clone, Debug)]
pub struct Sojourns {
    /// In ns. `None` would be a histogram that cannot be made; three digits always can.
    times: Option<Histogram<u64>>,
}

impl Sojourns {
    pub(crate) fn new() -> Sojourns {
        Sojourns {
            times: Histogram::new(DIGITS).ok(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, sojourn: Duration) {
        if let Some(times) = &mut self.times {
            // It grows with its values, up to 2^63 ns, which no simulation reaches: there is no
            // error to be told.
            times.record(sojourn.as_nanos()).ok();
        }
    }

    /// How many packets.
    pub fn count(&self) -> u64 {
        self.times.as_ref().map_or(0, Histogram::len)
    }

    /// The time that so large a share of the packets did not exceed; `share` from 0 to 1.
    pub fn quantile(&self, share: f64) -> Duration {
        let times = self.times.as_ref().filter(|times| !times.is_empty());
        Duration::from_nanos(times.map_or(0, |times| times.value_at_quantile(share)))
    }

    /// The longest time.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.times.as_ref().map_or(0, Histogram::max))
    }

    /// Their mean, ns.
    pub fn mean(&self) -> f64 {
        self.times.as_ref().map_or(0.0, Histogram::mean)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.times
            .as_ref()
            .map_or(0, |times| times.distinct_values() * size_of::<u64>())
    }
}
