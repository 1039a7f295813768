//! SplitMix64 (Steele, Lea and Flood 2014, figure 16, with David Stafford's constants "Mix13").

/// Increment of the generator's state.
pub const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the output for a state, the finaliser: a change of one bit changes half of the output
/// bits on average. Zero gives zero.
#[inline(always)]
pub const fn finalize(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Mixes the bits of a seed: the first output of the generator with this seed.
#[inline(always)]
pub const fn mix(seed: u64) -> u64 {
    finalize(seed.wrapping_add(INCREMENT))
}

/// SplitMix64 generator with its state.
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Returns the next number.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        finalize(self.0)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % if n == 0 { 1 } else { n }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of SplitMix64 with seed 1234567, as Rosetta Code lists them.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut rng = SplitMix64(1_234_567);
        assert_eq!(mix(rng.0), 6_457_827_717_110_365_317);
        let outputs = [0; 3].map(|_| rng.next_u64());
        assert_eq!(
            outputs,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
        assert_eq!(finalize(0), 0);
    }

    #[test]
    fn numbers_are_below_their_bound() {
        let mut rng = SplitMix64(5);
        let mut counts = [0; 6];
        for _ in 0..1_000 {
            counts[rng.below(6) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (120..220).contains(count)),
            "{counts:?}"
        );
        assert_eq!((rng.below(1), rng.below(0)), (0, 0));
    }
}
