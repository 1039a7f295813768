//! The transport over UDP sockets: [`Host`] is a socket with its connections, run by whoever calls [`Host::turn`].

mod batch;
mod error;
mod flow;
mod host;
mod ring;
mod socket;
mod steer;

pub use error::UdpError;
pub use flow::Congestion;
pub use host::{DATAGRAM, Host, Options};
pub use socket::{Inbox, LARGEST, Marks, Received, Socket};
pub use steer::Steering;
