//! Random numbers that need not be secret.

/// SplitMix64.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Draws other numbers in every process.
    pub fn random() -> Dice {
        Dice(random())
    }

    /// Draws the same numbers for the same seed.
    #[cfg(test)]
    pub fn seeded(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `n`, which is 0 where `n` is.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % n.max(1)
    }
}

/// A random number of the system.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers TLS fails, too, and reports it.
    let _ = ccplane_identity::provider().secure_random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
