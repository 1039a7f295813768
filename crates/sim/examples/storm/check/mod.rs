//! Those who look after every event whether all is as it has to be. Each knows one thing, by counts
//! of its own.

pub mod counters;
pub mod end;
pub mod fallback;
pub mod limits;
pub mod stream;

/// What is wrong, in words.
pub type Wrong = String;
