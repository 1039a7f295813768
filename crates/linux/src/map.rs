//! Memory shared by the kernel's programs and this process: its layout, the flow table, the ring of
//! reports, and the totals.

pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod totals;
