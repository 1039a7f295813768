//! Memory that the kernel's programs and this process share: its layout, the flow table, the ring
//! of reports, and sums.

pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod totals;
