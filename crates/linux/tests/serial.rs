//! Tests on real packets that hold the lock of the host, in one binary.

mod common;

#[path = "loop.rs"]
mod agent_loop;
mod attached;
mod datapath;
mod idle;
mod kill;
mod packet;
mod recovery;
mod release;
mod select;
mod shares;
mod signals;
mod stamps;
mod standalone;
mod timers;
