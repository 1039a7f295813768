//! The transport over UDP sockets: [`Host`] is a socket with its connections, run by whoever calls [`Host::turn`].

mod ahead;
mod batch;
mod departures;
mod error;
mod flow;
mod host;
mod numbered;
mod realtime;
mod ring;
mod socket;
mod stamped;
mod stamps;

pub use error::UdpError;
pub use error::passes;
pub use flow::Congestion;
pub use host::{DATAGRAM, Host, Options};
pub(crate) use numbered::Numbered;
pub use realtime::{KernelStamp, Stamper};
pub use socket::{Inbox, LARGEST, Marks, Received, Socket, Stamped};
pub use stamped::Stamping;
pub use stamps::Delays;
