//! The reference's library, by its own declarations (`include/ccp.h`): a datapath written against
//! it is built with this one by changing `-I` and `-l`.
//!
//! Beneath are this project's interpreter and messages of version 1, with
//! [`Compat::Libccp`](ccplane_datapath::Compat): programs do what they do there. What goes wrong
//! there is refused and counted here: `ccp_get_counts`. `layout` has the declarations, `shared`
//! what the connections of a datapath have in common, in safe Rust, `connection` one of them,
//! `functions` the calls, `hear` what the agent says.

mod connection;
mod functions;
mod hear;
mod layout;
mod shared;
#[cfg(test)]
mod tests;

pub use functions::*;
pub use layout::*;
