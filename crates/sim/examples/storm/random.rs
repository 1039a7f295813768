//! Random numbers: a separate stream per purpose, so that dropping one fault does not affect the
//! others.

use ccplane_units::splitmix::SplitMix64;

/// Random number stream.
#[derive(Clone, Debug)]
pub struct Draw(SplitMix64);

impl Draw {
    /// Creates the stream of a seed for this purpose.
    pub fn new(seed: u64, purpose: u64) -> Draw {
        let mut draw = Draw(SplitMix64(
            seed ^ purpose.wrapping_mul(0xd134_2543_de82_ef95),
        ));
        draw.next();
        draw
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }

    /// Draws a number from `least` to `most`.
    pub fn from(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Draws a number from `least` to `most`, with equal weight for each power of two.
    pub fn log(&mut self, least: u64, most: u64) -> u64 {
        let doublings = (most / least).max(1).ilog2();
        let low = least << self.below(u64::from(doublings) + 1);
        self.from(low, low.saturating_mul(2).min(most).max(low))
    }

    /// Returns true with probability `of_thousand` / 1000.
    pub fn hits(&mut self, of_thousand: u64) -> bool {
        self.below(1_000) < of_thousand
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}
