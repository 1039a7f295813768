//! Gauges: named values of a flow that an algorithm publishes for display and for drivers of the
//! datapath.

use std::collections::BTreeMap;

use crate::FlowId;

/// Maximum gauges per flow, as many as a page or table can show; further ones are dropped.
pub(crate) const MOST: usize = 16;

/// Latest gauges of every flow. They have no effect on a datapath.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    of: BTreeMap<FlowId, Vec<(&'static str, f64)>>,
}

impl Gauges {
    pub fn set(&mut self, flow: FlowId, name: &'static str, value: f64) {
        let values = self.of.entry(flow).or_default();
        if let Some((_, old)) = values.iter_mut().find(|(known, _)| *known == name) {
            *old = value;
        } else if values.len() < MOST {
            values.push((name, value));
        }
    }

    pub fn of(&self, flow: FlowId) -> &[(&'static str, f64)] {
        self.of.get(&flow).map_or(&[], Vec::as_slice)
    }

    pub fn forget(&mut self, flow: FlowId) {
        self.of.remove(&flow);
    }
}
