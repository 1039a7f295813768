//! Network namespaces and TUN devices: the only place in ccplane that opens them.
//!
//! Everything made here goes when its owner goes, however it ends: a [`Tun`] belongs to its file descriptor, and a
//! [`Namespace`] lives as long as its descriptor or a process inside. A name in `/run/netns` is only a link to the
//! descriptor, for `ip netns exec`; what a killed process leaves of it, [`sweep`] removes.

mod device;
mod error;
mod frame;
mod interface;
mod namespace;
mod priority;
mod process;
mod speed;
mod timestamping;
mod unsent;

pub use device::{Offload, Tun};
pub use error::Error;
pub use frame::{Frame, Head, LONGEST_FRAME, Malformed};
pub use interface::{InterfaceStats, add_default_route, has_ipv6, interface_stats};
pub use namespace::{Namespace, inside, sweep};
pub use priority::{highest_priority, lower_priority, raise_priority, reserve};
pub use process::die_with_parent;
pub use speed::link_speed;
pub use timestamping::{Timestamping, addresses, interface_of, timestamping};
pub use unsent::unsent_bytes;
