//! Access to the host's network: namespaces, TUN devices and wires with super-packets, routes,
//! address translation, and `tc` queues. No other crate creates these; `linux` only attaches
//! programs to existing devices.
//!
//! A device yields [`Frame`]s: a packet, or a super-packet of many. [`Store`] keeps frames while
//! their [`FramePacket`]s are queued, [`IpHeaders`] identifies flow and class, and [`Joiner`]
//! builds super-packets.
//!
//! A namespace or a device ends with its owner, even a killed one: a [`Tun`] is bound to its file
//! descriptor, unless it is [persistent](Tun::persistent), and a [`Namespace`] lives as long as its
//! descriptor or a process inside. A name in `/run/netns` is only a link to the descriptor, for `ip
//! netns exec`; [`remove_stale_names`] removes names left by killed processes. [`queues`] are set
//! on an existing device and stay until removed.

mod device;
mod error;
mod frame;
pub mod headers;
mod interface;
mod join;
mod namespace;
mod nat;
mod pacing;
mod packet;
mod path;
mod priority;
mod process;
pub mod queues;
mod route;
mod speed;
mod store;
mod tap;
mod timestamping;
mod unsent;
mod wire;

pub use device::{Offload, Tun};
pub use error::Error;
pub use frame::{FRAME_BYTES_MAX, Frame, FrameError, Head, set_ecn};
pub use interface::{
    InterfaceStats, add_address, add_local_network, has_ipv6, interface_stats, mtu, set_mtu,
};
pub use join::Joiner;
pub use namespace::{Namespace, remove_stale_names, run_in_namespace};
pub use nat::Masquerade;
pub use pacing::pace;
pub use packet::{FramePacket, IpHeaders};
pub use path::path_mtu;
pub use priority::{highest_priority, lower_priority, raise_priority, reserve_cpu};
pub use process::{bind_mount_over, die_with_parent, system_program};
pub use route::{MainRoute, add_default_route};
pub use speed::link_speed;
pub use store::{Store, StoredFrame};
pub use tap::{TapDirection, packet_tap};
pub use timestamping::{Timestamping, interface_of, timestamping};
pub use unsent::unsent_bytes;
pub use wire::{LINK_HEADER_BYTES, Wire};
