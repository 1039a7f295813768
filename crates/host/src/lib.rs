//! What touches the host's network: namespaces, TUN devices and their super-packets, queues by `tc`. No other crate makes
//! these; `linux` hangs its programs at devices that are there.
//!
//! A namespace or a device goes when its owner goes, however it ends: a [`Tun`] belongs to its file descriptor, and a
//! [`Namespace`] lives as long as its descriptor or a process inside. A name in `/run/netns` is only a link to the
//! descriptor, for `ip netns exec`; what a killed process leaves of it, [`sweep`] removes. [`queues`] are on a device of
//! somebody else's, and stay until they are removed.

mod device;
mod error;
mod frame;
mod interface;
mod namespace;
mod priority;
mod process;
pub mod queues;
mod speed;
mod timestamping;
mod unsent;

pub use device::{Offload, Tun};
pub use error::Error;
pub use frame::{Frame, Head, LONGEST_FRAME, Malformed};
pub use interface::{InterfaceStats, add_default_route, has_ipv6, interface_stats, own_network};
pub use namespace::{Namespace, inside, sweep};
pub use priority::{highest_priority, lower_priority, raise_priority, reserve};
pub use process::die_with_parent;
pub use speed::link_speed;
pub use timestamping::{Timestamping, addresses, interface_of, timestamping};
pub use unsent::unsent_bytes;
