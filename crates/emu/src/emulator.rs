//! Two namespaces joined by an emulated path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use ccplane_host::{Namespace, Tun};
use ccplane_qdisc::Limit;
use ccplane_units::Duration;

use crate::control::{Control, Way};
use crate::path::{self, EmuReport, End, Path};
use crate::{Config, Error};

/// The name of the device inside each namespace.
pub const DEVICE: &str = "link0";

/// Addresses of the two ends, the sender's first. Both are private (RFC 1918, RFC 4193), and nobody
/// outside the two namespaces sees them.
const V4: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)),
];
const V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)),
];

/// A running emulation between two namespaces, `ccplane-…-snd` and `ccplane-…-rcv`.
///
/// Dropping it stops it and removes everything, as [`finish`](Emulator::finish) does; if the
/// process is killed, the kernel does.
#[derive(Debug)]
pub struct Emulator {
    path: Path,
    sender: Namespace,
    receiver: Namespace,
}

impl Emulator {
    /// Makes the namespaces, the devices and the thread. Names that killed emulators left behind
    /// are removed first.
    pub fn start(config: Config) -> Result<Emulator, Error> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        // What cannot be is refused before anything is made.
        path::limits(&config)?;
        ccplane_host::sweep();
        let id = format!(
            "{}-{}",
            std::process::id(),
            STARTED.fetch_add(1, Ordering::Relaxed)
        );
        let sender = Namespace::create(&format!("ccplane-{id}-snd"))?;
        let receiver = Namespace::create(&format!("ccplane-{id}-rcv"))?;
        let mut addresses = V4.map(|address| vec![(address, 30)]);
        if ccplane_host::has_ipv6() {
            for (end, address) in addresses.iter_mut().zip(V6) {
                end.push((address, 64));
            }
        }
        let offload = path::offload(&config);
        let devices = [
            sender.run(|| Tun::create(DEVICE, config.mtu, &addresses[0], offload))??,
            receiver.run(|| Tun::create(DEVICE, config.mtu, &addresses[1], offload))??,
        ];
        let ends = [&sender, &receiver].map(|namespace| End {
            namespace: Some(namespace.clone()),
            device: DEVICE.into(),
        });
        let path = Path::start(&config, ends, devices)?;
        Ok(Emulator {
            path,
            sender,
            receiver,
        })
    }

    /// The namespace where the forward direction begins.
    pub fn sender_ns(&self) -> &Namespace {
        &self.sender
    }

    /// The namespace where the forward direction ends.
    pub fn receiver_ns(&self) -> &Namespace {
        &self.receiver
    }

    /// The sender's IPv4 address.
    pub fn sender_addr(&self) -> IpAddr {
        V4[0]
    }

    /// The receiver's IPv4 address.
    pub fn receiver_addr(&self) -> IpAddr {
        V4[1]
    }

    /// The sender's IPv6 address, on a kernel that has IPv6.
    pub fn sender_addr_v6(&self) -> IpAddr {
        V6[0]
    }

    /// The receiver's IPv6 address, on a kernel that has IPv6.
    pub fn receiver_addr_v6(&self) -> IpAddr {
        V6[1]
    }

    /// What a direction's queue holds, after a size in BDP has been worked out.
    pub fn limit(&self, way: Way) -> Limit {
        self.path.limit(way)
    }

    /// A handle to watch and change the emulation.
    pub fn control(&self) -> Control {
        self.path.control()
    }

    /// CLOCK_MONOTONIC at the start.
    pub fn epoch(&self) -> Duration {
        self.path.epoch()
    }

    /// Stops, removes everything, and says what happened.
    pub fn finish(self) -> Result<EmuReport, Error> {
        self.path.finish()
    }
}
