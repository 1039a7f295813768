//! Detection of paths with an RTT of zero, such as between hosts on the same side of a dumbbell
//! without access rates. A transport on such a path would never advance virtual time.

use ccplane_network::{LinkSpec, Network, NodeId};
use ccplane_qdisc::{DelayModel, LineSpec};
use ccplane_units::Duration;
use ccplane_workload::Pairs;

/// Lowest node number in the zero-RTT component of each node.
pub(super) struct ZeroRttGroups(Vec<usize>);

impl ZeroRttGroups {
    pub(super) fn new(network: &Network) -> ZeroRttGroups {
        let instant = |link: &_| network.spec(*link).is_some_and(takes_no_time);
        let mut ways: Vec<(usize, usize)> = network
            .links()
            .filter(instant)
            .filter_map(|link| network.endpoints(link))
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
        ZeroRttGroups(lowest)
    }

    fn same_group(&self, a: NodeId, b: NodeId) -> bool {
        a != b && self.0[a.index()] == self.0[b.index()]
    }

    /// Returns a pair whose hosts have an RTT of zero.
    pub(super) fn find_in_pairs(&self, pairs: &Pairs) -> Option<(NodeId, NodeId)> {
        match pairs {
            Pairs::List(pairs) => pairs.iter().copied().find(|(a, b)| self.same_group(*a, *b)),
            Pairs::AllToAll { from, to } => self.find_between(from, to),
        }
    }

    /// Returns a pair with an RTT of zero, of a host in `from` and a host in `to`.
    pub(super) fn find_between(&self, from: &[NodeId], to: &[NodeId]) -> Option<(NodeId, NodeId)> {
        let mut ends = to.iter();
        ends.find_map(|b| {
            from.iter()
                .find(|a| self.same_group(**a, *b))
                .map(|a| (*a, *b))
        })
    }
}

fn takes_no_time(spec: &LinkSpec) -> bool {
    matches!(spec.line, LineSpec::Unlimited) && spec.delay == DelayModel::Fixed(Duration::ZERO)
}
