//! All that one site sends to another, as a bundle: its queue moves from the network to the site's
//! own box, where it can be scheduled (Cangialosi et al., Bundler, EuroSys 2021).
//!
//! A [`Sendbox`] holds back what leaves the site, so that the queue stands in it. A [`Receivebox`]
//! at the other site counts what arrives. Both recognise the same packets as boundaries, and the
//! receivebox answers those with [`Feedback`]. The sendbox derives RTT and rates from it. An
//! algorithm sets its rate: to the algorithm the bundle is a flow of a datapath. Neither box has a
//! clock, a socket or a thread. The simulator and the gateway drive the same boxes.
#![forbid(unsafe_code)]

mod estimate;
mod feedback;
mod ledger;
mod mark;
mod mode;
mod receivebox;
mod scheduler;
mod sendbox;
mod sent;

pub use estimate::RATES_OVER;
pub use feedback::{
    FEEDBACK_BYTES, Feedback, Malformed, Message, NOTICE_BYTES, Notice, PORT, PROBE_ACK_BYTES,
    PROBE_BYTES, Probe, ProbeAck,
};
pub use ledger::Unlikely;
pub use mark::{Every, Marks, hash};
pub use mode::{Mode, ModeChange, Reason, Seen, passes};
pub use receivebox::Receivebox;
pub use scheduler::{CATCH_UP, ClassStatus};
pub use sendbox::{CAPABILITIES, Sendbox, SendboxConfig, Status, TICK, Totals};

#[cfg(test)]
mod tests;
