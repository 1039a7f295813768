//! The emulator's audit of its own lateness and drops.

use ccplane_units::Duration;
use hdrhistogram::Histogram;

/// Bounds of the audit. A run beyond them is not trustworthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest 99th percentile of lateness. If too small, every run on a busy machine fails; if too
    /// large, the emulator's own delay hides in the measured one.
    pub lateness_p99: Duration,
    /// Maximum packets that the emulator or its devices may drop unintentionally.
    pub drops: u64,
}

impl Default for Bounds {
    /// One millisecond, the resolution of Mahimahi, and no drops.
    fn default() -> Bounds {
        Bounds {
            lateness_p99: Duration::from_millis(1),
            drops: 0,
        }
    }
}

/// Deviation of the emulator from the configured links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Audit {
    /// Median time from a packet's due time to its delivery.
    pub lateness_p50: Duration,
    /// 99th percentile of the lateness.
    pub lateness_p99: Duration,
    /// Maximum lateness.
    pub lateness_max: Duration,
    /// Share of packets later than [`Bounds::lateness_p99`].
    pub late_fraction: f64,
    /// Packets that the emulator dropped for lack of memory, or that a device refused.
    pub emulator_drops: u64,
    /// Packets that the kernel dropped before the emulator read them.
    pub tun_drops: u64,
    /// The run is within the bounds.
    pub passed: bool,
}

/// Histogram of the packets' lateness.
#[derive(Debug)]
pub(crate) struct Lateness(Histogram<u64>);

/// One minute; anything later is recorded as this.
const LATENESS_NS_MAX: u64 = 60_000_000_000;

impl Lateness {
    pub(crate) fn new() -> Lateness {
        let histogram = Histogram::new_with_bounds(1, LATENESS_NS_MAX, 3);
        Lateness(
            histogram.expect("constant bounds are valid: 1 <= low, 2 low <= high, digits <= 5"),
        )
    }

    pub(crate) fn record(&mut self, late: Duration) {
        self.0.saturating_record(late.as_nanos());
    }

    /// Returns the audit, given the drop counts.
    pub(crate) fn audit(&self, own_drops: u64, tun_drops: u64, bounds: &Bounds) -> Audit {
        let quantile = |q| Duration::from_nanos(self.0.value_at_quantile(q));
        let in_time = self.0.percentile_below(bounds.lateness_p99.as_nanos()) / 100.0;
        let lateness_p99 = quantile(0.99);
        Audit {
            lateness_p50: quantile(0.5),
            lateness_p99,
            lateness_max: Duration::from_nanos(self.0.max()),
            late_fraction: if self.0.is_empty() {
                0.0
            } else {
                1.0 - in_time
            },
            emulator_drops: own_drops,
            tun_drops,
            passed: lateness_p99 <= bounds.lateness_p99 && own_drops + tun_drops <= bounds.drops,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_and_drops_beyond_the_bounds_fail_the_audit() {
        let mut lateness = Lateness::new();
        let bounds = Bounds::default();
        assert!(lateness.audit(0, 0, &bounds).passed, "nothing happened");
        for _ in 0..990 {
            lateness.record(Duration::from_micros(20));
        }
        for _ in 0..10 {
            lateness.record(Duration::from_millis(5));
        }
        let audit = lateness.audit(0, 0, &bounds);
        assert!(
            audit.passed && (audit.late_fraction - 0.01).abs() < 1e-9,
            "{audit:?}"
        );
        assert_eq!(audit.lateness_p50.as_micros(), 20);
        assert_eq!(audit.lateness_max.as_millis(), 5);
        assert!(!lateness.audit(1, 0, &bounds).passed && !lateness.audit(0, 1, &bounds).passed);
        assert!(lateness.audit(1, 1, &Bounds { drops: 2, ..bounds }).passed);
        lateness.record(Duration::from_millis(5));
        assert!(
            !lateness.audit(0, 0, &bounds).passed,
            "the 99th percentile is late"
        );
    }
}
