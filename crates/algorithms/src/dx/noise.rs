//! How much of what is measured is noise.

use ccplane_datapath::INFINITY;

/// Reports in half of the time over which the least counts.
const HALF: u32 = 32;

/// The least of some reports.
#[derive(Clone, Copy, Debug)]
struct Least {
    value: u64,
    recent: u64,
}

impl Default for Least {
    fn default() -> Least {
        Least {
            value: INFINITY,
            recent: INFINITY,
        }
    }
}

impl Least {
    fn update(&mut self, value: u64, turn: bool) {
        if turn {
            self.value = self.recent;
            self.recent = INFINITY;
        }
        self.recent = self.recent.min(value);
        self.value = self.value.min(value);
    }
}

/// What is known of the noise of one flow's samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    reports: u32,
    mean: Least,
    spread: Least,
}

impl Noise {
    /// Takes the least mean and the least spread of a report, ns; the headroom that the noise asks for.
    pub fn update(&mut self, mean: u64, spread: u64, packets: f64) -> u64 {
        self.reports += 1;
        let turn = self.reports >= HALF;
        if turn {
            self.reports = 0;
        }
        self.mean.update(mean, turn);
        self.spread.update(spread, turn);
        if self.mean.value >= INFINITY || self.spread.value >= INFINITY {
            return 0;
        }
        let sigma = self.spread.value as f64;
        let headroom = (self.mean.value as f64).min(4.0 * sigma) + 2.0 * sigma / libm::sqrt(packets);
        libm::rint(headroom) as u64
    }
}
