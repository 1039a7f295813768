//! All tests of the crate that need no process of their own, in one binary.

mod burst;
mod check;
mod defects;
mod fallback;
mod harness;
mod limits;
mod ops;
mod random;
mod reference;
mod sticky;
mod support;
mod timers;
