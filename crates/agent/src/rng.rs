//! Deterministic pseudo-random numbers.

pub use ccplane_units::splitmix::{SplitMix64, finalize, mix};

/// Returns the generator of a flow. Flows must differ, or all would probe at the same time; runs
/// must not differ.
pub fn for_flow(flow: crate::FlowId) -> SplitMix64 {
    SplitMix64((u64::from(flow.datapath.0) << 48) ^ flow.flow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DatapathId, FlowId};

    #[test]
    fn flows_of_all_datapaths_differ() {
        let seed = |datapath, flow| {
            let datapath = DatapathId(datapath);
            for_flow(FlowId { datapath, flow }).0
        };
        assert_eq!(seed(0, 7), 7);
        assert_eq!(seed(3, 7), (3 << 48) + 7);
        assert_eq!(seed(1, 1 << 48), 0, "the bits are combined with XOR");
    }
}
