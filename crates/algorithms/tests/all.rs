//! All tests of the crate that need no process of their own, in one binary.

mod costs;
mod rounds;
