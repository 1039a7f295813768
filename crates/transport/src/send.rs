//! The sending half of a connection, in parts: what is on its way ([`flight`]), what leaves and
//! when, and what comes back.

pub(crate) mod acknowledge;
pub(crate) mod flight;
pub(crate) mod lost;
pub(crate) mod pacer;
pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod rate;
pub(crate) mod recovery;
pub(crate) mod rtt;
mod timeout;
mod transmit;
