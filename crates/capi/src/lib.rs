//! ccplane for datapaths that are written in C: the functions of `ccplane.h`, and the reference's
//! `ccp.h`.
//!
//! `types` and `functions` are the header: cbindgen makes `include/ccplane.h` of them. `foreign`
//! looks at what comes from C before anything else does. `plane` is what the functions call, in
//! safe Rust: a datapath of [`ccplane_agent::datapath`], and the algorithm beside it. `ccp` has the
//! declarations of CCP's library over the same interpreter and messages.
//!
//! This is one of the few crates with `unsafe`: C's pointers are taken at their word where nothing
//! can check them. `docs/c.md` has what a caller owes, and what is checked instead of trusted.
#![deny(unsafe_op_in_unsafe_fn)]

#[doc(hidden)]
pub mod bench;
mod ccp;
mod foreign;
mod functions;
#[doc(hidden)]
pub mod fuzz;
mod handle;
mod plane;
mod types;

pub use ccp::*;
pub use functions::*;
pub use handle::ccplane_datapath;
pub use types::*;
