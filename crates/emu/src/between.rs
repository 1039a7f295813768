//! A link between two interfaces of this host, as a bridge that delays, queues and loses.

use ccplane_host::Wire;
use ccplane_qdisc::Limit;

use crate::path::{self, EmuReport, End, Path};
use crate::remote::Remote;
use crate::{Config, Error, Way};

/// A running emulation between two interfaces. Whatever comes in on one leaves by the other, in
/// both directions; this host's own packets take no part. Dropping it stops it, and leaves both
/// interfaces up.
#[derive(Debug)]
pub struct Between {
    path: Path,
    id: String,
    _remote: Remote,
}

impl Between {
    /// Joins them, forward being from the first to the second. An interface with a default route is
    /// refused.
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

    /// Its name, for [`remote::ask`](crate::remote::ask).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What a direction's queue holds.
    pub fn limit(&self, way: Way) -> Limit {
        self.path.limit(way)
    }

    /// Stops, and says what happened.
    pub fn finish(self) -> Result<EmuReport, Error> {
        self.path.finish()
    }
}
