//! The owner's control over registered algorithms, from another thread than theirs.

use ccplane_datapath::Limits;

use crate::kernel::Kernel;
use crate::map::table::Table;

/// Changes what an owner may change while the algorithms run, also while one hangs.
#[derive(Clone)]
pub struct Owner(Vec<Table>);

impl Owner {
    /// Puts other limits on window (bytes) and rate (bytes/s) into force, for live flows too. The
    /// time of silence stays: the agents were told of it when they began.
    pub fn set_limits(&self, limits: &Limits) {
        for table in &self.0 {
            crate::registration::load::set_window_and_rate(table.plane(), limits);
        }
    }
}

impl Kernel {
    /// Its owner's hand.
    pub fn owner(&self) -> Owner {
        Owner(self.tables().cloned().collect())
    }
}
