//! Bundler: all traffic from one site to another forms a bundle, whose queue moves from the network
//! to the site's edge, where it can be scheduled (Cangialosi et al., EuroSys 2021).
//!
//! A [`Sendbox`] paces the traffic that leaves the site, so that the queue builds up in it. A
//! [`Receivebox`] at the other site counts what arrives. Both select the same packets as epoch
//! boundaries, for which the receivebox returns [`Feedback`]. From the feedback the sendbox
//! computes RTT and rates. A congestion control algorithm sets the sending rate; to it, the bundle
//! is a flow of a datapath. The boxes have no clock, socket or thread: the simulator and the
//! gateway drive the same code.
#![forbid(unsafe_code)]

mod boundaries;
mod epoch;
mod estimate;
mod feedback;
mod ledger;
mod mode;
mod receivebox;
mod scheduler;
mod sendbox;

pub use epoch::{EpochSize, PacketNumbering, hash};
pub use estimate::RATE_AVERAGING_TIME_MAX;
pub use feedback::{
    BoxMessage, FEEDBACK_BYTES, FEEDBACK_PORT, Feedback, FeedbackError, NOTICE_BYTES, Notice,
    PROBE_ACK_BYTES, PROBE_BYTES, Probe, ProbeAck,
};
pub use ledger::ImplausibleFeedback;
pub use mode::{ModeChange, PathObservation, Reason, SendboxMode, wants_pass_through};
pub use receivebox::Receivebox;
pub use scheduler::{CATCH_UP_TIME_MAX, ClassStatus};
pub use sendbox::{CAPABILITIES, Sendbox, SendboxConfig, SendboxTotals, Status, TICK_INTERVAL};

#[cfg(test)]
mod tests;
