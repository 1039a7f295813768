//! Registered algorithms: loading the BPF objects, holding a registration in the kernel, pinning
//! it, and taking it over.

pub(crate) mod counters;
pub(crate) mod holder;
pub(crate) mod live;
pub(crate) mod load;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod paths;
pub(crate) mod pin;
pub(crate) mod programs;
pub(crate) mod remote;
