//! Protocol between datapath and agent: typed [`WireEvent`]s and [`WireCommand`]s, and two framings
//! of them.
//!
//! [`v1`] is CCP's, byte for byte; [`v2`] is ccplane's own. Both are pure functions of bytes: no
//! input causes a panic, and every malformed message gives a [`WireError`] that states what is
//! wrong, where and why.
#![forbid(unsafe_code)]

mod error;
mod event;
pub mod framed;
#[doc(hidden)]
pub mod fuzz;
mod message_reader;
mod tags;
pub mod v1;
pub mod v2;

pub use error::{NotExpressible, WireError};
pub use event::{
    DatapathInfo, FlowInfo, FlowStats, Offer, Refusal, Updates, WireCommand, WireEvent,
};
pub use tags::{TAG_BYTES_MAX, TAGS_PER_FLOW_MAX, Tag, TagError, Tags};
