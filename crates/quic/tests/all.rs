//! All tests of the crate that need no process of their own, in one binary.

#[cfg(feature = "noq")]
mod pair;

#[cfg(feature = "noq")]
mod noq;
mod page;
mod signals;
mod transport;
