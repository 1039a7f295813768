//! ccplane for datapaths written in C: the functions of `ccplane.h`, and libccp's `ccp.h`.
//!
//! `types`, `handle` and `functions` define the header; cbindgen generates `include/ccplane.h` from
//! them. `caller_memory` validates data from C. `plane` implements the functions in safe Rust: a
//! datapath of [`ccplane_agent::datapath`] and the algorithm that controls it. `ccp` implements the
//! interface of CCP's library with the same interpreter and messages.
//!
//! This is one of the few crates with `unsafe`: pointers from C are trusted if nothing can check
//! them. `docs/c.md` lists what callers must guarantee, and what is checked.
#![deny(unsafe_op_in_unsafe_fn)]

#[doc(hidden)]
pub mod bench;
mod caller_memory;
mod ccp;
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
