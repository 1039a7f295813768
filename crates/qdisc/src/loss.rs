//! Random loss, the same for the same seed.

use ccplane_units::Probability;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// The stream of random numbers that losses are drawn from; another purpose takes another stream, so that the two are
/// independent under one seed.
const STREAM: u64 = 0x6c6f7373;

/// Bernoulli loss: every packet is lost with the same probability, whatever became of the others.
///
/// The fate of the n-th packet depends on the seed and on n only, not on times or sizes, and each packet takes one
/// draw whatever the probability: what was lost at 1 % is lost at 2 % too.
#[derive(Clone, Debug)]
pub struct Loss {
    probability: Probability,
    draws: Pcg32,
}

impl Loss {
    /// Loss that starts with the first packet.
    pub fn new(probability: Probability, seed: u64) -> Loss {
        Loss {
            probability,
            draws: Pcg32::new(seed, STREAM),
        }
    }

    /// Whether the next packet is lost.
    pub fn next_is_lost(&mut self) -> bool {
        let draw = self.draws.next_u32();
        self.probability.hits(draw)
    }

    /// Changes the probability for the packets to come.
    pub fn set_probability(&mut self, probability: Probability) {
        self.probability = probability;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(parts: u64, seed: u64, packets: usize) -> Vec<usize> {
        let mut loss = Loss::new(Probability::from_parts(parts), seed);
        (0..packets).filter(|_| loss.next_is_lost()).collect()
    }

    #[test]
    fn the_stream_never_changes() {
        // Results published with a seed must come out again with any later version.
        let one_percent = (1 << 32) / 100;
        assert_eq!(lost(one_percent, 7, 600), GOLDEN_7);
        assert_eq!(lost(one_percent, 8, 600), GOLDEN_8);
    }

    /// From an independent PCG-XSH-RR 64/32 (O'Neill 2014, section 6.3).
    const GOLDEN_7: &[usize] = &[174, 190, 224, 530];
    const GOLDEN_8: &[usize] = &[390];

    #[test]
    fn the_share_of_lost_packets_is_the_probability() {
        let packets = 1_000_000;
        for parts in [1 << 22, 1 << 26, 1 << 31] {
            let expected = packets as f64 * Probability::from_parts(parts).as_f64();
            let count = lost(parts, 1, packets).len() as f64;
            // Five standard deviations of the binomial distribution.
            assert!(
                (count - expected).abs() < 5.0 * expected.sqrt(),
                "{count} of {expected}"
            );
        }
        assert_eq!(lost(0, 1, 1_000).len(), 0);
        assert_eq!(lost(1 << 32, 1, 1_000).len(), 1_000);
    }

    #[test]
    fn a_higher_probability_loses_the_same_packets_and_more() {
        let few = lost(1 << 24, 3, 10_000);
        let many = lost(1 << 25, 3, 10_000);
        assert!(few.len() < many.len() && few.iter().all(|packet| many.contains(packet)));
    }
}
