//! A link between two interfaces of this host: a bridge with queue, delay and loss.

use ccplane_host::Wire;
use ccplane_qdisc::Limit;

use crate::path::{self, EmuReport, End, Path};
use crate::remote::Remote;
use crate::{Config, Error, Way};

/// A running emulation between two interfaces. Packets that arrive on one leave by the other, in
/// both directions; this host's own packets are not involved. Dropping it stops the emulation and
/// leaves both interfaces up.
#[derive(Debug)]
pub struct Between {
    path: Path,
    id: String,
    _remote: Remote,
}

impl Between {
    /// Starts the emulation; forward is from the first interface to the second. An interface with a
    /// default route is refused.
    pub fn start(config: &Config, interfaces: [&str; 2]) -> Result<Between, Error> {
        path::limits(config)?;
        if interfaces[0] == interfaces[1] {
            return Err(Error::OneInterface {
                name: interfaces[0].into(),
            });
        }
        let devices = [Wire::open(interfaces[0])?, Wire::open(interfaces[1])?];
        let ends = interfaces.map(|name| End {
            namespace: None,
            device: name.into(),
        });
        let path = Path::start(config, ends, devices.map(crate::device::Device::Wire))?;
        let id = std::process::id().to_string();
        let remote = Remote::serve(&id, path.control())?;
        Ok(Between {
            path,
            id,
            _remote: remote,
        })
    }

    /// Returns the name of the emulation, for [`remote::ask`](crate::remote::ask).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the capacity of a direction's queue.
    pub fn limit(&self, way: Way) -> Limit {
        self.path.limit(way)
    }

    /// Stops the emulation and returns its report.
    pub fn finish(self) -> Result<EmuReport, Error> {
        self.path.finish()
    }
}
