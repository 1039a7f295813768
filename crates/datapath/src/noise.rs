//! Noise of a path's RTT: changes that are not caused by queues.
//!
//! Jitter moves the RTT up and down; a queue moves it in one direction for longer. The noise is
//! therefore the mean change of the RTT from sample to sample, minus the mean change in one
//! direction.
//!
//! A path that keeps packets in order delays a packet by as much as the slowest one just before it.
//! The denser the packets, the slower and steadier the path. With the load, the mean RTT therefore
//! rises although no queue stands, and the noise falls. Their sum, [`slowest`](RttNoise::slowest),
//! stays the same: it is the RTT of the slowest packets.

/// Samples per mean: a second of samples 10 ms apart. With fewer, a slow path can look fast for a
/// moment by chance, and a minimum then keeps that value. With more, the noise of an idle path
/// counts for longer after the path is busy.
const MEAN_WINDOW_SAMPLES: f64 = 100.0;
/// Minimum samples for a mean.
const MEAN_SAMPLES_MIN: u32 = 50;
/// Distance of the slowest packets from the mean, in multiples of the noise. Delays distributed
/// evenly in both directions give 2.2 if packets are far apart, and 2.4 if they are dense. In
/// between, successive packets wait for the same slow one, so that changes are small: 3.8 at 1
/// Mbit/s and ±20 ms. With a smaller factor an idle path looks faster than a busy one. With a
/// larger one a queue of that size is not detected.
const SLOWEST_DISTANCE_NOISES: f64 = 4.0;

/// Mean and noise of an RTT, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RttNoise {
    samples: u32,
    last: f64,
    mean: f64,
    /// Mean change from sample to sample, with and without its sign.
    mean_change: f64,
    mean_abs_change: f64,
}

impl RttNoise {
    /// Adds a sample, seconds.
    pub fn add(&mut self, rtt: f64) {
        let change = if self.samples == 0 {
            0.0
        } else {
            rtt - self.last
        };
        self.samples = self.samples.saturating_add(1);
        self.last = rtt;
        let gain = 1.0 / f64::from(self.samples).min(MEAN_WINDOW_SAMPLES);
        self.mean += gain * (rtt - self.mean);
        self.mean_change += gain * (change - self.mean_change);
        self.mean_abs_change += gain * (change.abs() - self.mean_abs_change);
    }

    /// Noise, seconds.
    pub fn noise(&self) -> f64 {
        (self.mean_abs_change - self.mean_change.abs()).max(0.0)
    }

    /// Returns true if there were enough samples for a mean.
    pub fn is_known(&self) -> bool {
        self.samples >= MEAN_SAMPLES_MIN
    }

    /// Mean RTT, seconds.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// RTT of the slowest packets for a given mean, seconds.
    pub fn slowest(&self, mean: f64) -> f64 {
        mean + SLOWEST_DISTANCE_NOISES * self.noise()
    }

    /// Difference between the RTTs of the slowest and the fastest packets, seconds.
    pub fn range(&self) -> f64 {
        2.0 * SLOWEST_DISTANCE_NOISES * self.noise()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two directions that delay packets by 0 to twice the jitter, evenly and in order. Packets are
    /// `gap` seconds apart, and the RTT is sampled every 10 ms.
    fn path(jitter: f64, gap: f64) -> RttNoise {
        let (mut noise, mut state) = (RttNoise::default(), 7_u64);
        let mut draw = || {
            // A step of Knuth's MMIX generator.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            2.0 * jitter * (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut comes = [0.0_f64; 2];
        let mut sampled = 0.0;
        for n in 0..(5.0 / gap) as u32 {
            let left = f64::from(n) * gap;
            comes[0] = comes[0].max(left + draw());
            comes[1] = comes[1].max(comes[0] + 0.05 + draw());
            if left - sampled >= 0.01 {
                sampled = left;
                noise.add(comes[1] - left);
            }
        }
        noise
    }

    #[test]
    fn the_slowest_packets_are_the_same_for_every_load() {
        for jitter in [0.002, 0.005, 0.01, 0.02] {
            // 1, 5, 48 and 500 Mbit/s.
            for gap in [0.012, 0.002_4, 0.000_25, 0.000_024] {
                let noise = path(jitter, gap);
                let slowest = noise.slowest(noise.mean()) - 0.05;
                let range = 4.0 * jitter;
                assert!(
                    (0.85 * range..1.9 * range).contains(&slowest),
                    "±{jitter} s, every {gap} s: {slowest} of {range}, noise {}",
                    noise.noise()
                );
            }
        }
    }

    #[test]
    fn a_queue_that_grows_and_drains_is_no_noise() {
        let mut noise = RttNoise::default();
        let mut rtt = 0.05;
        for n in 0..1_000 {
            noise.add(rtt);
            rtt += if n % 200 < 100 { 0.001 } else { -0.001 };
            // Around a change of direction the means include both.
            assert!(noise.noise() < 0.001, "{}", noise.noise());
        }
        let mut steady = RttNoise::default();
        (0..1_000).for_each(|_| steady.add(0.05));
        assert_eq!((steady.noise(), steady.is_known()), (0.0, true));
    }

    /// The fastest packets are as far below the mean as the slowest are above it.
    #[test]
    fn the_range_is_twice_the_distance_of_the_slowest_from_the_mean() {
        let noise = path(0.01, 0.001);
        let above = noise.slowest(noise.mean()) - noise.mean();
        assert!(above > 0.0);
        assert!((noise.range() / above - 2.0).abs() < 1e-9);
    }
}
