//! The operator's control over registered algorithms, from a thread other than the driver's.

use ccplane_datapath::OperatorLimits;

use crate::kernel::Kernel;
use crate::map::table::FlowTable;

/// Changes limits while the algorithms run, even if one of them hangs.
#[derive(Clone)]
pub struct OperatorHandle(Vec<FlowTable>);

impl OperatorHandle {
    /// Sets new limits on window (bytes) and rate (bytes/s), for live flows too. The agent timeout
    /// is unchanged: agents learned it when they started.
    pub fn set_limits(&self, limits: &OperatorLimits) {
        for table in &self.0 {
            crate::registration::load::set_window_and_rate(table.plane(), limits);
        }
    }
}

impl Kernel {
    /// Returns a handle for changing the limits from another thread.
    pub fn operator_handle(&self) -> OperatorHandle {
        OperatorHandle(self.tables().cloned().collect())
    }
}
