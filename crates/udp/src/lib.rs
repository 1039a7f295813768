//! ccplane's transport over UDP. A [`UdpHost`] owns one socket and its connections; the caller
//! drives it with [`UdpHost::poll`].
//!
//! The layers below need no socket: `codec` encodes segments, `tls` seals them, and `endpoint`
//! demultiplexes datagrams, opens connections and limits the state that unverified clients can
//! create.
#![forbid(unsafe_code)]

mod batch;
mod clock_converter;
pub mod codec;
mod departures;
pub mod endpoint;
mod error;
mod flow;
mod host;
mod host_timestamps;
mod kernel_timestamps;
mod limiter;
mod pmtu_search;
mod queue_limit;
mod reassembly;
mod recent_items;
mod ring;
mod socket;
pub mod tls;

pub use clock_converter::KernelStamp;
pub use error::UdpError;
pub use error::passes;
pub use flow::UdpCongestion;
pub use host::{DATAGRAM_BYTES_DEFAULT, UdpHost, UdpOptions};
pub use host_timestamps::DelayHistogram;
pub use kernel_timestamps::Stamping;
pub use limiter::{GcraBucket, SourceLimiter, source_of};
pub use pmtu_search::PMTU_RAISE_TIMER;
pub use socket::{
    DATAGRAM_BYTES_MAX, DatagramMarks, FirstByte, Inbox, ReceivedBatch, Socket, StampedBatch,
};
pub use tls::{HandshakeError, Tls};
