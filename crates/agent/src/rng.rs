//! Deterministic pseudo-random numbers.

use ccplane_units::splitmix::INCREMENT;
pub use ccplane_units::splitmix::finalize as mix64;

/// SplitMix64 generator seeded by flow. Flows must differ, or all would probe at the same time;
/// runs must not differ.
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Creates the generator of a flow.
    pub fn for_flow(flow: crate::FlowId) -> SplitMix64 {
        SplitMix64((u64::from(flow.datapath.0) << 48) ^ flow.flow)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mix64(self.0) % n.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DatapathId, FlowId};

    /// The first outputs of SplitMix64 with seed 1234567, as Rosetta Code lists them.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut dice = SplitMix64(1_234_567);
        let drawn = [0; 3].map(|_| dice.below(u64::MAX));
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
        assert_eq!(mix64(0), 0);
    }

    #[test]
    fn numbers_are_below_their_bound() {
        let mut dice = SplitMix64(5);
        let drawn: Vec<u64> = (0..1_000).map(|_| dice.below(6)).collect();
        for n in 0..6 {
            let count = drawn.iter().filter(|&&drawn| drawn == n).count();
            assert!((120..220).contains(&count), "{n}: {count}");
        }
        assert_eq!((dice.below(1), dice.below(0)), (0, 0));
    }

    #[test]
    fn flows_of_all_datapaths_differ() {
        let seed = |datapath, flow| {
            let datapath = DatapathId(datapath);
            SplitMix64::for_flow(FlowId { datapath, flow }).0
        };
        assert_eq!(seed(0, 7), 7);
        assert_eq!(seed(3, 7), (3 << 48) + 7);
        assert_eq!(seed(1, 1 << 48), 0, "the bits are combined with XOR");
    }
}
