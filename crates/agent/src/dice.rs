//! Numbers that look random and are the same in every run.

/// SplitMix64's finalizer: a change of one bit changes half of the others.
pub fn scatter(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Numbers by flow and by how many it drew (SplitMix64). Flows have to differ, or they would all
/// probe at the same time; runs must not.
#[derive(Clone, Copy, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Numbers of a flow.
    pub fn of(flow: crate::FlowId) -> Dice {
        Dice((u64::from(flow.datapath.0) << 48) ^ flow.flow)
    }

    /// A number below `n`, which is 0 where `n` is.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scatter(self.0) % n.max(1)
    }
}
