//! ccplane's transport over UDP: a [`Host`] is a socket with its connections, run by whoever calls
//! [`Host::turn`].
//!
//! Below it lie the parts that need no socket: `codec` puts bytes around segments, `tls` seals
//! them, `endpoint` finds a datagram's connection, opens new ones and keeps strangers within
//! bounds.
#![forbid(unsafe_code)]

mod ahead;
mod batch;
pub mod codec;
mod departures;
pub mod endpoint;
mod error;
mod flow;
mod host;
mod limiter;
mod numbered;
mod parts;
mod path;
mod realtime;
mod ring;
mod socket;
mod stamped;
mod stamps;
pub mod tls;

pub use error::UdpError;
pub use error::passes;
pub use flow::Congestion;
pub use host::{DATAGRAM, Host, Options};
pub use limiter::{Bucket, SourceLimiter, source_of};
pub use path::RAISE;
pub use socket::{FirstByte, Inbox, LARGEST, Marks, Received, Socket, Stamped};
pub use stamped::Stamping;
pub use stamps::Delays;
pub use tls::{Refused, Tls};
