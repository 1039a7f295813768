//! Two namespaces joined by an emulated path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use ccplane_host::{Namespace, Tun};
use ccplane_qdisc::Limit;
use ccplane_units::Duration;

use crate::control::{EmuHandle, PathDirection};
use crate::path::{self, DeviceEnd, EmuReport, EmulatedPath};
use crate::{EmuConfig, Error};

/// Name of the device inside each namespace.
pub const DEVICE_NAME: &str = "link0";

/// Addresses of the two ends, the sender's first. They are private (RFC 1918, RFC 4193) and
/// invisible outside the two namespaces.
const ADDRESSES_V4: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)),
];
const ADDRESSES_V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)),
];

/// A running emulation between two namespaces, `ccplane-…-snd` and `ccplane-…-rcv`.
///
/// Dropping it stops the emulation and removes everything, like [`finish`](Emulator::finish). If
/// the process is killed, the kernel removes the namespaces and devices.
#[derive(Debug)]
pub struct Emulator {
    path: EmulatedPath,
    sender: Namespace,
    receiver: Namespace,
}

impl Emulator {
    /// IPv4 addresses of the sender and the receiver.
    pub const ADDRESSES: [IpAddr; 2] = ADDRESSES_V4;

    /// Creates the namespaces and devices, and starts the thread. Names left by killed emulators
    /// are removed first.
    pub fn start(config: EmuConfig) -> Result<Emulator, Error> {
        static EMULATOR_COUNT: AtomicU32 = AtomicU32::new(0);
        // Rejects invalid configurations before anything is created.
        path::limits(&config)?;
        ccplane_host::remove_stale_names();
        let id = format!(
            "{}-{}",
            std::process::id(),
            EMULATOR_COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let sender = Namespace::create(&format!("ccplane-{id}-snd"))?;
        let receiver = Namespace::create(&format!("ccplane-{id}-rcv"))?;
        let mut addresses = ADDRESSES_V4.map(|address| vec![(address, 30)]);
        if ccplane_host::has_ipv6() {
            for (end, address) in addresses.iter_mut().zip(ADDRESSES_V6) {
                end.push((address, 64));
            }
        }
        let offload = path::offload(&config);
        let devices = [
            sender.run(|| Tun::create(DEVICE_NAME, config.mtu, &addresses[0], offload))??,
            receiver.run(|| Tun::create(DEVICE_NAME, config.mtu, &addresses[1], offload))??,
        ];
        let ends = [&sender, &receiver].map(|namespace| DeviceEnd {
            namespace: Some(namespace.clone()),
            device: DEVICE_NAME.into(),
        });
        let path = EmulatedPath::start(&config, ends, devices)?;
        Ok(Emulator {
            path,
            sender,
            receiver,
        })
    }

    /// Returns the namespace of the sender.
    pub fn sender_ns(&self) -> &Namespace {
        &self.sender
    }

    /// Returns the namespace of the receiver.
    pub fn receiver_ns(&self) -> &Namespace {
        &self.receiver
    }

    /// Returns the sender's IPv4 address.
    pub fn sender_addr(&self) -> IpAddr {
        ADDRESSES_V4[0]
    }

    /// Returns the receiver's IPv4 address.
    pub fn receiver_addr(&self) -> IpAddr {
        ADDRESSES_V4[1]
    }

    /// Returns the sender's IPv6 address, for kernels with IPv6.
    pub fn sender_addr_v6(&self) -> IpAddr {
        ADDRESSES_V6[0]
    }

    /// Returns the receiver's IPv6 address, for kernels with IPv6.
    pub fn receiver_addr_v6(&self) -> IpAddr {
        ADDRESSES_V6[1]
    }

    /// Returns the capacity of a direction's queue; a size in BDP is converted.
    pub fn limit(&self, direction: PathDirection) -> Limit {
        self.path.limit(direction)
    }

    /// Returns a handle to observe and change the emulation.
    pub fn control(&self) -> EmuHandle {
        self.path.control()
    }

    /// Returns CLOCK_MONOTONIC at the start.
    pub fn epoch(&self) -> Duration {
        self.path.epoch()
    }

    /// Stops the emulation, removes everything, and returns the report.
    pub fn finish(self) -> Result<EmuReport, Error> {
        self.path.finish()
    }
}
