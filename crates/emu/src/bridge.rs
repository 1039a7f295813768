//! A link between two interfaces of this host: a bridge with queue, delay and loss.

use ccplane_host::Wire;
use ccplane_qdisc::Limit;

use crate::path::{self, DeviceEnd, EmuReport, EmulatedPath};
use crate::remote::ControlSocket;
use crate::{EmuConfig, Error, PathDirection};

/// A running emulation between two interfaces. Packets that arrive on one leave by the other, in
/// both directions; this host's own packets are not involved. Dropping it stops the emulation and
/// leaves both interfaces up.
#[derive(Debug)]
pub struct InterfaceBridge {
    path: EmulatedPath,
    id: String,
    _remote: ControlSocket,
}

impl InterfaceBridge {
    /// Starts the emulation; forward is from the first interface to the second. An interface with a
    /// default route is refused.
    pub fn start(config: &EmuConfig, interfaces: [&str; 2]) -> Result<InterfaceBridge, Error> {
        path::limits(config)?;
        if interfaces[0] == interfaces[1] {
            return Err(Error::OneInterface {
                name: interfaces[0].into(),
            });
        }
        let devices = [Wire::open(interfaces[0])?, Wire::open(interfaces[1])?];
        let ends = interfaces.map(|name| DeviceEnd {
            namespace: None,
            device: name.into(),
        });
        let path = EmulatedPath::start(config, ends, devices.map(crate::device::EmuDevice::Wire))?;
        let id = std::process::id().to_string();
        let remote = ControlSocket::serve(&id, path.control())?;
        Ok(InterfaceBridge {
            path,
            id,
            _remote: remote,
        })
    }

    /// Returns the name of the emulation, for [`remote::request`](crate::remote::request).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the capacity of a direction's queue.
    pub fn limit(&self, direction: PathDirection) -> Limit {
        self.path.limit(direction)
    }

    /// Stops the emulation and returns its report.
    pub fn finish(self) -> Result<EmuReport, Error> {
        self.path.finish()
    }
}
