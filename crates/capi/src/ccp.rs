//! libccp's interface (`include/ccp.h`): a datapath written for CCP's library is built with ccplane
//! by changing `-I` and `-l`.
//!
//! It uses ccplane's interpreter and messages of version 1, with
//! [`Compat::Libccp`](ccplane_datapath::Compat), so that programs behave as in libccp. Messages
//! that would corrupt libccp's state are rejected and counted here, see `ccp_get_counts`. `layout`
//! contains the declarations and `functions` the calls. `shared` (state common to a datapath's
//! connections) and `connection` are in safe Rust. `hear` processes the agent's messages.

mod connection;
mod functions;
mod layout;
mod messages;
mod shared;
#[cfg(test)]
mod tests;

pub use functions::*;
pub use layout::*;
