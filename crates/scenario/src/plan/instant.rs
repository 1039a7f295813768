//! Detection of paths with an RTT of zero, such as between hosts on the same side of a dumbbell
//! without access rates. A transport on such a path would never advance virtual time.

use ccplane_network::{LinkSpec, Network, NodeId};
use ccplane_qdisc::{DelayModel, LineSpec};
use ccplane_units::Duration;
use ccplane_workload::Pairs;

/// Lowest node number in the zero-RTT component of each node.
pub(super) struct Instant(Vec<usize>);

impl Instant {
    pub(super) fn of(network: &Network) -> Instant {
        let instant = |link: &_| network.spec(*link).is_some_and(takes_no_time);
        let mut ways: Vec<(usize, usize)> = network
            .links()
            .filter(instant)
            .filter_map(|link| network.ends(link))
            .map(|(from, to)| (from.index(), to.index()))
            .collect();
        ways.sort_unstable();
        let both = |way: &(usize, usize)| ways.binary_search(&(way.1, way.0)).is_ok();
        let mut lowest: Vec<usize> = (0..network.nodes().len()).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (from, to) in ways.iter().copied().filter(both) {
                changed |= lowest[to] > lowest[from];
                lowest[to] = lowest[to].min(lowest[from]);
            }
        }
        Instant(lowest)
    }

    fn joins(&self, a: NodeId, b: NodeId) -> bool {
        a != b && self.0[a.index()] == self.0[b.index()]
    }

    /// Returns a pair whose hosts have an RTT of zero.
    pub(super) fn among(&self, pairs: &Pairs) -> Option<(NodeId, NodeId)> {
        match pairs {
            Pairs::Each(pairs) => pairs.iter().copied().find(|(a, b)| self.joins(*a, *b)),
            Pairs::Every { from, to } => self.between(from, to),
        }
    }

    /// Returns a pair with an RTT of zero, of a host in `from` and a host in `to`.
    pub(super) fn between(&self, from: &[NodeId], to: &[NodeId]) -> Option<(NodeId, NodeId)> {
        let mut ends = to.iter();
        ends.find_map(|b| from.iter().find(|a| self.joins(**a, *b)).map(|a| (*a, *b)))
    }
}

fn takes_no_time(spec: &LinkSpec) -> bool {
    matches!(spec.line, LineSpec::Unlimited) && spec.delay == DelayModel::Fixed(Duration::ZERO)
}
