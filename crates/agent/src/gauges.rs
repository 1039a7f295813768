//! Gauges: named values of a flow that an algorithm publishes for display and for drivers of the
//! datapath.

use std::collections::BTreeMap;

use crate::FlowId;

/// Maximum gauges per flow, as many as a page or table can show; further ones are dropped.
pub(crate) const GAUGES_PER_FLOW_MAX: usize = 16;

/// Latest gauges of every flow. They have no effect on a datapath.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    by_flow: BTreeMap<FlowId, Vec<(&'static str, f64)>>,
}

impl Gauges {
    pub fn set(&mut self, flow: FlowId, name: &'static str, value: f64) {
        let values = self.by_flow.entry(flow).or_default();
        if let Some((_, old)) = values.iter_mut().find(|(known, _)| *known == name) {
            *old = value;
        } else if values.len() < GAUGES_PER_FLOW_MAX {
            values.push((name, value));
        }
    }

    pub fn get(&self, flow: FlowId) -> &[(&'static str, f64)] {
        self.by_flow.get(&flow).map_or(&[], Vec::as_slice)
    }

    pub fn remove(&mut self, flow: FlowId) {
        self.by_flow.remove(&flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_the_latest_value_of_sixteen_names() {
        let (mut gauges, flow) = (Gauges::default(), FlowId::default());
        const NAMES: [&str; GAUGES_PER_FLOW_MAX + 1] = [
            "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q",
        ];
        for name in NAMES {
            gauges.set(flow, name, 1.0);
        }
        gauges.set(flow, "b", 2.0);
        let names: Vec<_> = gauges.get(flow).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, NAMES[..GAUGES_PER_FLOW_MAX]);
        assert_eq!(gauges.get(flow)[..3], [("a", 1.0), ("b", 2.0), ("c", 1.0)]);
        gauges.remove(flow);
        assert!(gauges.get(flow).is_empty());
    }
}
