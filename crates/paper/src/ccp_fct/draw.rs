//! The list of flows: drawn once, sent by everybody.

use ccplane_sim::SizeTable;
use ccplane_units::{Duration, Rate};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::super::replay::Message;

/// Senders, each with one connection that persists. The paper's generator, too, draws a sender for
/// each flow beforehand and sends what comes to it in its order.
pub(super) const CONNECTIONS: u32 = 50;
/// Flows of the paper.
pub(super) const FLOWS: usize = 100_000;

/// Seeds whose 100,000 sizes are composed as the paper's, each count and sum within 3 % of it:
/// about one in two hundred is, because the bytes of large flows hang on a handful of them.
pub(super) const SEEDS: [u64; 10] = [67, 167, 300, 389, 396, 446, 847, 970, 1181, 1373];

/// Bytes of a small flow at most (the paper's 10 KB).
pub(super) const SMALL: u64 = 10_000;
/// Bytes above which a flow is large (1 MB).
pub(super) const LARGE: u64 = 1_000_000;

/// The streams of random numbers: sizes do not depend on when they come.
const SIZES: u128 = 0x6663_745f_7369_7a65;
const TIMES: u128 = 0x6663_745f_7469_6d65;

/// The first `flows` flows of a seed, arriving as a Poisson process whose rate makes half of the
/// link's with the mean size of these.
pub(super) fn list(seed: u64, flows: usize, link: Rate) -> Vec<Message> {
    let Some(table) = SizeTable::named("caida") else {
        return Vec::new();
    };
    let mut random = Pcg64::new(u128::from(seed), SIZES);
    let sizes: Vec<u64> = (0..flows)
        .map(|_| table.quantile(uniform(&mut random)).get())
        .collect();
    let mean = sizes.iter().sum::<u64>() as f64 / flows.max(1) as f64;
    let gap_ns = mean / (0.5 * link.bytes_per_sec().max(1) as f64) * 1e9;
    let mut random = Pcg64::new(u128::from(seed), TIMES);
    let mut at = 0.0;
    let message = |bytes| {
        at -= gap_ns * libm::log(1.0 - uniform(&mut random));
        Message {
            at: Duration::from_nanos(at as u64),
            connection: (random.next_u64() % u64::from(CONNECTIONS)) as u32,
            bytes,
        }
    };
    sizes.into_iter().map(message).collect()
}

/// Uniform over [0, 1).
fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// What a list is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Composition {
    /// Flows of at most 10 KB, and their MB.
    pub small: (u64, f64),
    /// Flows above 1 MB, and their MB.
    pub large: (u64, f64),
    /// MB of all.
    pub all: f64,
}

impl Composition {
    /// The paper's (section 7.1.2).
    pub const PAPER: Composition = Composition {
        small: (97_606, 487.0),
        large: (95, 907.0),
        all: 1_700.0,
    };

    pub fn of(list: &[Message]) -> Composition {
        let class = |within: &dyn Fn(u64) -> bool| {
            let members = || list.iter().filter(|message| within(message.bytes));
            (
                members().count() as u64,
                members().map(|m| m.bytes).sum::<u64>() as f64 / 1e6,
            )
        };
        Composition {
            small: class(&|bytes| bytes <= SMALL),
            large: class(&|bytes| bytes > LARGE),
            all: class(&|_| true).1,
        }
    }

    /// The largest relative difference from the paper's.
    pub fn off(&self) -> f64 {
        let paper = Composition::PAPER;
        [
            (self.small.0 as f64, paper.small.0 as f64),
            (self.small.1, paper.small.1),
            (self.large.0 as f64, paper.large.0 as f64),
            (self.large.1, paper.large.1),
            (self.all, paper.all),
        ]
        .into_iter()
        .map(|(ours, theirs)| (ours / theirs - 1.0).abs())
        .fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Rate = Rate::from_bits_per_sec(192_000_000);

    #[test]
    fn every_seed_is_composed_as_the_paper_says() {
        for seed in SEEDS {
            let composition = Composition::of(&list(seed, FLOWS, LINK));
            assert!(composition.off() <= 0.03, "seed {seed}: {composition:?}");
        }
    }

    #[test]
    fn the_load_is_half_of_the_link_and_arrivals_are_a_poisson_process() {
        let list = list(SEEDS[0], FLOWS, LINK);
        let bytes: u64 = list.iter().map(|m| m.bytes).sum();
        let span = list.last().unwrap().at.as_secs_f64();
        let load = bytes as f64 / span / LINK.bytes_per_sec() as f64;
        assert!((0.49..0.51).contains(&load), "{load}");
        // Of an exponential distribution, 1/e lies above the mean.
        let gaps: Vec<f64> = list
            .windows(2)
            .map(|w| (w[1].at.as_nanos() - w[0].at.as_nanos()) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let above = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((above - 0.368).abs() < 0.005, "{above}");
        assert!(
            list.iter()
                .all(|m| m.connection < CONNECTIONS && m.bytes > 0)
        );
        assert!(list.windows(2).all(|w| w[0].at <= w[1].at));
    }
}
