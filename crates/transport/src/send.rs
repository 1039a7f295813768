//! Sending half of a connection: the scoreboard ([`flight`]), transmission and its schedule, and
//! the processing of acknowledgements.

pub(crate) mod acknowledge;
pub(crate) mod flight;
pub(crate) mod lost_queue;
pub(crate) mod pacer;
pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod rate;
pub(crate) mod recovery;
pub(crate) mod rtt;
mod timeout;
mod transmit;
