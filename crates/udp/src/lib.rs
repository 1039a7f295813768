//! ccplane's transport over UDP. A [`UdpHost`] owns one socket and its connections; the caller
//! drives it with [`UdpHost::turn`].
//!
//! The layers below need no socket: `codec` encodes segments, `tls` seals them, and `endpoint`
//! demultiplexes datagrams, opens connections and limits the state that unverified clients can
//! create.
#![forbid(unsafe_code)]

mod queue_limit;
mod batch;
pub mod codec;
mod departures;
pub mod endpoint;
mod error;
mod flow;
mod host;
mod limiter;
mod recent_items;
mod reassembly;
mod pmtu_search;
mod clock_converter;
mod ring;
mod socket;
mod kernel_timestamps;
mod host_timestamps;
pub mod tls;

pub use error::UdpError;
pub use error::passes;
pub use flow::UdpCongestion;
pub use host::{DATAGRAM_BYTES_DEFAULT, UdpHost, UdpOptions};
pub use limiter::{GcraBucket, SourceLimiter, source_of};
pub use pmtu_search::PMTU_RAISE_TIMER;
pub use socket::{
    DATAGRAM_BYTES_MAX, DatagramMarks, FirstByte, Inbox, ReceivedBatch, Socket, StampedBatch,
};
pub use kernel_timestamps::Stamping;
pub use host_timestamps::DelayHistogram;
pub use tls::{HandshakeError, Tls};
