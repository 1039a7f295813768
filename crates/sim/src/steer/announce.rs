//! Announcement of a datapath and its flows to an agent that (re)connects.

use ccplane_agent::FlowInfo;
use ccplane_units::{Bytes, Rate};

use crate::endpoint::ControllerKind;
use crate::{World, address};

impl World {
    /// Announces all flows and bundles to an agent.
    pub(super) fn announce(&mut self, agent: u32) {
        let steered = &self.steered;
        // Senders have even indices.
        let flows = self.ends.iter().step_by(2).filter_map(|end| {
            let ControllerKind::Agent(place) = end.control.get() else {
                return None;
            };
            let here = steered.get(place)?.as_ref()?.user_data == agent;
            let connection = end.connection.as_ref().filter(|_| here)?;
            let flow = self.flows.get(end.flow as usize)?;
            let (local, peer) = address::flow_addresses(end.flow, flow.from, flow.to);
            let info = FlowInfo {
                local,
                peer,
                mss: Bytes::new(connection.mss()),
                cwnd: Bytes::new(connection.cwnd()),
                ssthresh: Bytes::new(connection.ssthresh()),
                rate: Rate::from_bytes_per_sec(connection.rate()),
                srtt: connection.srtt(),
                ..FlowInfo::default()
            };
            Some((u64::from(end.flow), info))
        });
        let flows = flows.chain(self.bundles.flows_of_agent(agent));
        self.hosts[agent as usize].shared.announce(self.now, flows);
    }
}
