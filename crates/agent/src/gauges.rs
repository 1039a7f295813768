//! Gauges: named values of a flow that an algorithm shows to people and to drivers of the datapath.

use std::collections::BTreeMap;

use crate::FlowId;

/// Values that a flow has room for: what a page or a table can show. One more is dropped.
pub(crate) const MOST: usize = 16;

/// The latest value of everything that algorithms said of their flows. Nothing of it has an effect
/// on a datapath.
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
