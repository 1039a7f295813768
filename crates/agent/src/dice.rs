//! Deterministic pseudo-random numbers.

/// SplitMix64's finalizer: a change of one bit changes half of the output bits on average.
pub fn scatter(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// SplitMix64 generator seeded by flow. Flows must differ, or all would probe at the same time;
/// runs must not differ.
#[derive(Clone, Copy, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Creates the generator of a flow.
    pub fn of(flow: crate::FlowId) -> Dice {
        Dice((u64::from(flow.datapath.0) << 48) ^ flow.flow)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scatter(self.0) % n.max(1)
    }
}
