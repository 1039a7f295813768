//! What a datapath and an agent say to each other: typed [`Event`]s and [`Command`]s, and two
//! framings of them.
//!
//! [`v1`] is CCP's, byte for byte; [`v2`] is ccplane's own. Both are pure functions of bytes: no
//! input panics, every malformed message is a [`WireError`] that says what, where and why.
#![forbid(unsafe_code)]

mod bytes;
mod error;
mod event;
pub mod framed;
#[doc(hidden)]
pub mod fuzz;
mod tags;
pub mod v1;
pub mod v2;

pub use error::{Unsayable, WireError};
pub use event::{Command, DatapathInfo, Event, FlowInfo, FlowStats, Offer, Refusal, Updates};
pub use tags::{BadTag, LONGEST_TAG, MOST_TAGS, Tag, Tags};
