//! All tests of the crate that need no process of their own, in one binary.

mod behaviour;
mod pacing;
mod proof;
mod property;
mod rc3;
mod rounds;
mod steered;
mod transfer;
mod wire;
