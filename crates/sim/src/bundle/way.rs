//! The empty ways between a bundle's boxes, beside which its measurements can be set.

use ccplane_units::Duration;

use super::BundleId;
use crate::World;
use crate::network::LinkId;

/// What the ways between a bundle's boxes take without queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleWay {
    /// From the sendbox to the receivebox.
    pub there: Duration,
    /// And back.
    pub back: Duration,
    /// Of `there`, from a link's queue on.
    pub after: Duration,
}

impl World {
    /// What the ways between a bundle's boxes take without queues, and what of it comes after this
    /// link's queue. `None` where its packets do not cross that link.
    pub fn bundle_way(&self, bundle: BundleId, link: LinkId) -> Option<BundleWay> {
        let bundle = self.bundles.all.get(bundle.0 as usize)?;
        let links = |from: u32, to: u32, host: u32| -> Option<Vec<u32>> {
            let mut path = self.routing.path(&self.network, from, host, 0).ok()?;
            let end = path
                .iter()
                .position(|link| self.network.links[*link as usize].to == to)?;
            path.truncate(end + 1);
            Some(path)
        };
        let takes = |links: &[u32]| {
            links
                .iter()
                .fold(Duration::ZERO, |sum, link| sum + self.links.delay(*link))
        };
        let there = links(bundle.from, bundle.to, bundle.away)?;
        let at = there.iter().position(|on| *on == link.0)?;
        Some(BundleWay {
            there: takes(&there),
            back: takes(&links(bundle.to, bundle.from, bundle.home)?),
            after: takes(&there[at..]),
        })
    }
}
