//! Gateway: a sendbox and a receivebox between a site and a WireGuard tunnel.
//!
//! ```text
//! site ── TUN ── classify, Sendbox ── encrypt ── UDP ── the other site
//!      ── TUN ── check source ── Receivebox ── decrypt ── UDP ──
//! ```
//!
//! [`Config`](config::GatewayConfig) is the checked configuration and [`Gateway`] runs it. The
//! gateway has one thread for sending, one for receiving and one for handshakes. Each algorithm,
//! the status server ([`status`]) and the DNS resolver for endpoint names have threads of their
//! own. Traffic to a plain WireGuard peer passes through unshaped.

#![forbid(unsafe_code)]

pub mod address;
mod batch;
pub mod config;
mod control;
mod error;
mod events;
mod forward;
pub mod fragment;
pub mod keys;
pub mod mss;
mod outer;
pub mod path_search;
mod peer;
mod peer_path;
mod report;
pub mod routes;
mod run;
pub mod status;
mod steering;
pub mod too_big;
pub mod tunnel;
mod uplink;

pub use ccplane_scenario::{Problem, SourceText};
pub use error::GatewayError;
pub use events::GatewayEvent;
pub use forward::AlgorithmFactory;
pub use peer::PeerCounts;
pub use report::{ClassReport, GatewayReport, PeerReport};
pub use run::{Gateway, GatewayListener, ReloadError};
