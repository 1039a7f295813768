//! Pairs of sender and receiver.

use rand_pcg::Pcg64;

use super::draw::{draw_below, workload_rng};
use crate::NodeId;

/// Pairs of sender and receiver.
#[derive(Clone, Debug)]
pub enum Pairs {
    /// Explicit list of pairs.
    List(Vec<(NodeId, NodeId)>),
    /// Every sender with every other receiver. Takes memory for the two lists only.
    AllToAll {
        /// Senders.
        from: Vec<NodeId>,
        /// Receivers.
        to: Vec<NodeId>,
    },
}

impl Pairs {
    /// Creates a single pair.
    pub fn one(from: NodeId, to: NodeId) -> Pairs {
        Pairs::List(vec![(from, to)])
    }

    /// Creates a random permutation without fixed points: each host sends to one other host and
    /// receives from one other host.
    ///
    /// Sattolo's algorithm (1986): a single cycle through all hosts, drawn uniformly.
    pub fn permutation(hosts: &[NodeId], seed: u64) -> Pairs {
        let mut draws = workload_rng(seed, u32::MAX);
        let mut to = hosts.to_vec();
        for i in (1..to.len()).rev() {
            to.swap(i, draw_below(&mut draws, i));
        }
        let pairs = hosts.iter().copied().zip(to);
        Pairs::List(pairs.filter(|(from, to)| from != to).collect())
    }

    /// Returns the number of places for a pair. Places that pair a host with itself are empty.
    pub(super) fn position_count(&self) -> usize {
        match self {
            Pairs::List(pairs) => pairs.len(),
            Pairs::AllToAll { from, to } => from.len().saturating_mul(to.len()),
        }
    }

    pub(super) fn get(&self, position: usize) -> Option<(NodeId, NodeId)> {
        match self {
            Pairs::List(pairs) => pairs.get(position).copied(),
            Pairs::AllToAll { from, to } => {
                let a = *from.get(position.checked_div(to.len())?)?;
                let b = *to.get(position % to.len())?;
                (a != b).then_some((a, b))
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Pairs::List(pairs) => pairs.is_empty(),
            // A single sender that differs from a receiver is enough.
            Pairs::AllToAll { from, to } => !from.iter().any(|a| to.iter().any(|b| a != b)),
        }
    }

    /// Draws a pair uniformly.
    pub(super) fn draw(&self, random: &mut Pcg64) -> Option<(u32, (NodeId, NodeId))> {
        // At least half of the places hold a pair, or there are very few hosts: a few draws find
        // one.
        for _ in 0..1_000 {
            let place = draw_below(random, self.position_count());
            if let Some(pair) = self.get(place) {
                return Some((place as u32, pair));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: u32) -> Vec<NodeId> {
        (0..count).map(NodeId).collect()
    }

    #[test]
    fn a_permutation_gives_and_takes_once_and_depends_on_the_seed() {
        let all = |seed| match Pairs::permutation(&hosts(50), seed) {
            Pairs::List(pairs) => pairs,
            Pairs::AllToAll { .. } => vec![],
        };
        let pairs = all(1);
        let mut to: Vec<NodeId> = pairs.iter().map(|pair| pair.1).collect();
        to.sort();
        assert_eq!(to, hosts(50));
        assert!(pairs.iter().all(|(from, to)| from != to));
        assert_eq!(pairs, all(1));
        assert_ne!(pairs, all(2));
        assert!(Pairs::permutation(&hosts(1), 1).is_empty());
    }

    #[test]
    fn everyone_meets_everyone_else() {
        let pairs = Pairs::AllToAll {
            from: hosts(3),
            to: hosts(4),
        };
        let found: Vec<(u32, u32)> = (0..pairs.position_count())
            .filter_map(|place| pairs.get(place))
            .map(|(a, b)| (a.0, b.0))
            .collect();
        assert_eq!(
            found,
            [
                (0, 1),
                (0, 2),
                (0, 3),
                (1, 0),
                (1, 2),
                (1, 3),
                (2, 0),
                (2, 1),
                (2, 3)
            ]
        );
        let mut random = workload_rng(7, 0);
        let mut counts = [0; 12];
        for _ in 0..9_000 {
            counts[pairs.draw(&mut random).expect("at least one pair").0 as usize] += 1;
        }
        // The expected count is 1,000 each; six standard deviations are 180.
        assert!(
            counts.iter().all(|&n| n == 0 || (820..1_180).contains(&n)),
            "{counts:?}"
        );
        assert_eq!(counts.iter().filter(|&&n| n == 0).count(), 3);
        let alone = Pairs::AllToAll {
            from: hosts(1),
            to: hosts(1),
        };
        assert!(alone.is_empty() && alone.draw(&mut random).is_none());
    }
}
