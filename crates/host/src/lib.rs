//! What touches the host's network: namespaces, TUN devices and wires with their super-packets,
//! routes, address translation, queues by `tc`. No other crate makes these; `linux` hangs its
//! programs at devices that are there.
//!
//! What comes out of a device is a [`Frame`]: a packet, or a super-packet that stands for many.
//! [`Store`] keeps frames while their [`Packet`]s are in queues, [`Headers`] says of whom they are,
//! [`Joiner`] makes super-packets of packets.
//!
//! A namespace or a device goes when its owner goes, however it ends: a [`Tun`] belongs to its file
//! descriptor, unless it was made to stay ([`Tun::persistent`]), and a [`Namespace`] lives as long
//! as its descriptor or a process inside. A name in `/run/netns` is only a link to the descriptor,
//! for `ip netns exec`; what a killed process leaves of it, [`sweep`] removes. [`queues`] are on a
//! device of somebody else's, and stay until they are removed.

pub mod checksum;
mod device;
mod error;
mod frame;
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
mod timestamping;
mod unsent;
mod wire;

pub use device::{Offload, Tun};
pub use error::Error;
pub use frame::{Frame, Head, LONGEST_FRAME, Malformed, set_ecn};
pub use interface::{
    InterfaceStats, add_address, has_ipv6, interface_stats, mtu, own_network, set_mtu,
};
pub use join::Joiner;
pub use namespace::{Namespace, inside, sweep};
pub use nat::Masquerade;
pub use pacing::pace;
pub use packet::{Headers, Packet};
pub use path::path_mtu;
pub use priority::{highest_priority, lower_priority, raise_priority, reserve};
pub use process::{die_with_parent, system_program, with_file_over};
pub use route::{Route, add_default_route};
pub use speed::link_speed;
pub use store::{Store, Stored};
pub use timestamping::{Timestamping, interface_of, timestamping};
pub use unsent::unsent_bytes;
pub use wire::{LINK_HEADER, Wire};
