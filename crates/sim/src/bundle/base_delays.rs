//! Base delays between a bundle's boxes, the reference for its measurements.

use ccplane_network::LinkId;
use ccplane_units::Duration;

use super::BundleId;
use crate::World;

/// Delays of the paths between a bundle's boxes without queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleBaseDelays {
    /// From the sendbox to the receivebox.
    pub forward: Duration,
    /// From the receivebox to the sendbox.
    pub backward: Duration,
    /// Part of `there` behind the queue of a given link.
    pub after_queue: Duration,
}

impl World {
    /// Returns the delays between a bundle's boxes without queueing, and the part behind the queue
    /// of `link`. `None` if the bundle does not cross `link`.
    pub fn bundle_base_delays(&self, bundle: BundleId, link: LinkId) -> Option<BundleBaseDelays> {
        let bundle = self.bundles.all.get(bundle.0 as usize)?;
        let links = |from: u32, to: u32, host: u32| -> Option<Vec<u32>> {
            let mut path = self.routing.path(&self.network, from, host, 0).ok()?;
            let end = path.iter().position(|link| self.ends_of(*link).1.0 == to)?;
            path.truncate(end + 1);
            Some(path)
        };
        let takes = |links: &[u32]| {
            links
                .iter()
                .fold(Duration::ZERO, |sum, link| sum + self.links.delay(*link))
        };
        let there = links(bundle.from, bundle.to, bundle.receivebox_host)?;
        let at = there.iter().position(|on| *on == link.0)?;
        Some(BundleBaseDelays {
            forward: takes(&there),
            backward: takes(&links(bundle.to, bundle.from, bundle.sendbox_host)?),
            after_queue: takes(&there[at..]),
        })
    }
}
