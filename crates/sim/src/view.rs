//! Read access to a simulation: flows, links, counters and the digest.

use ccplane_network::{LinkId, NetworkPath, NodeId};
use ccplane_transport::{Connection, ConnectionError, Native, OneWay, Rc3Arrivals, Rc3Stats};
use ccplane_units::{Duration, Time};

use crate::app::AppId;
use crate::digest::Digest;
use crate::endpoint::{ControllerKind, FlowEndpoint};
use crate::flow::{FlowId, FlowView, InactiveState, SimFlow};
use crate::host::Nic;
use crate::link::{Crossing, LinkView};
use crate::packet::NO_INDEX;
use crate::probe::Sojourns;
use crate::steer::HostedFlow;
use crate::{SimError, World};

/// Counters of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Events handled.
    pub events: u64,
    /// Hops: packets delivered by links.
    pub hops: u64,
    /// Packets sent by hosts.
    pub sent: u64,
    /// Packets received by hosts.
    pub received: u64,
    /// Packets dropped by links.
    pub dropped: u64,
    /// Packets discarded by switches without a route.
    pub unroutable: u64,
    /// Packets of flows that had ended.
    pub late: u64,
}

impl World {
    /// Starts to record every packet that crosses this link ([`World::crossings`]). Must be called
    /// before the link's first packet.
    pub fn record_crossings(&mut self, link: LinkId) -> Result<(), SimError> {
        self.check_link(link)?;
        if self.links.has_traffic(link.0) {
            return Err(SimError::LateChange(self.network.link_name(link)));
        }
        self.links.record_crossings(link.0);
        Ok(())
    }

    /// Starts to record a histogram of this link's sojourn times ([`World::sojourns`]). Must be
    /// called before the link's first packet.
    pub fn record_sojourns(&mut self, link: LinkId) -> Result<(), SimError> {
        self.check_link(link)?;
        if self.links.has_traffic(link.0) {
            return Err(SimError::LateChange(self.network.link_name(link)));
        }
        self.links.record_sojourns(link.0);
        Ok(())
    }

    /// Returns the sojourn times of a link; `None` if they are not recorded.
    pub fn sojourns(&self, link: LinkId) -> Option<&Sojourns> {
        self.links.sojourns(link.0)
    }

    /// Returns the packets that crossed an observed link, in order.
    pub fn crossings(&self, link: LinkId) -> &[Crossing] {
        self.links.crossings(link.0)
    }

    /// Returns the counters of a link; `None` for a link of another simulation.
    pub fn link(&self, link: LinkId) -> Option<LinkView> {
        self.check_link(link).ok()?;
        Some(self.links.view(self.now, link.0))
    }

    /// Returns the state of a flow; `None` for a flow of another simulation.
    pub fn flow(&self, flow: FlowId) -> Option<FlowView> {
        let flow = self.flows.get(flow.index())?;
        Some(match flow.inactive.as_deref() {
            Some(InactiveState::Finished(view, _)) => *view,
            _ => self.flow_view(flow),
        })
    }

    /// Returns the one-way queueing delays that a flow's sender derives from timestamps; `None`
    /// before the flow's start and after its end.
    pub fn one_way_delay(&self, flow: FlowId) -> Option<OneWay> {
        let ends = self.flows.get(flow.index())?.ends;
        let sender = self.ends.get(ends as usize)?;
        Some(sender.connection.as_ref()?.one_way())
    }

    /// Returns the connections of an open flow: the sender's, and the receiver's once it exists.
    pub fn connections(&self, flow: FlowId) -> Option<(&Connection, Option<&Connection>)> {
        let pair = self.flows.get(flow.index())?.ends as usize;
        let [sender, receiver] = self.ends.get(pair..pair.checked_add(2)?)? else {
            return None;
        };
        Some((sender.connection.as_ref()?, receiver.connection.as_ref()))
    }

    /// Returns true if an open flow is controlled by its datapath's fallback; `None` if no agent
    /// controls it.
    pub fn in_fallback(&self, flow: FlowId) -> Option<bool> {
        let pair = self.flows.get(flow.index())?.ends as usize;
        match self.ends.get(pair)?.control.get() {
            ControllerKind::Agent(place) => {
                Some(self.steered.get(place)?.as_ref()?.flow().in_fallback())
            }
            _ => None,
        }
    }

    /// Returns the numbers of resources in use: packets in flight, open endpoints, native
    /// controllers and steered flows.
    pub fn resources_in_use(&self) -> [(&'static str, usize); 4] {
        [
            ("packets", self.packets.len()),
            ("ends", self.ends.len() - 2 * self.free_ends.len()),
            ("controls", self.natives.len() - self.free_natives.len()),
            ("steered flows", self.steered.iter().flatten().count()),
        ]
    }

    /// Returns all flows.
    pub fn flows(&self) -> impl ExactSizeIterator<Item = FlowId> + use<> {
        (0..self.flows.len() as u32).map(FlowId)
    }

    /// Returns the path of most flows between two hosts, without queueing.
    pub fn path(&self, from: NodeId, to: NodeId) -> Result<NetworkPath, SimError> {
        let (from, to) = (self.host_index(from)?, self.host_index(to)?);
        let links = self.routing.path(&self.network, from, to, 0)?;
        Ok(NetworkPath::from_links(
            &links,
            |link| self.links.delay(link),
            |link| self.links.rate(link),
        ))
    }

    /// Returns the counters of the simulation.
    pub fn counters(&self) -> SimCounters {
        SimCounters {
            events: self.events.handled(),
            hops: self.links.hops(),
            sent: self.packets.created,
            ..self.counters
        }
    }

    /// Returns the memory of the simulation in bytes, from the capacities of its containers.
    pub fn memory(&self) -> usize {
        let live = self.ends.iter().filter_map(|end| end.connection.as_ref());
        let connections: usize = live
            .map(|c| c.memory_bytes() - size_of::<Connection>())
            .sum();
        self.network.memory()
            + self.routing.memory()
            + self.links.memory()
            + self.packets.memory()
            + self.clocks.heap_bytes()
            + self.events.memory()
            + self
                .nics
                .iter()
                .map(|nic| size_of::<Nic>() + nic.waiting.capacity() * 4)
                .sum::<usize>()
            + self.low_bands.heap_bytes()
            + self.nic_of.capacity() * 4
            + self.ends.capacity() * size_of::<FlowEndpoint>()
            + connections
            + self.flows.capacity() * size_of::<SimFlow>()
            + self.natives.capacity() * size_of::<Native>()
            + self.steered.capacity() * size_of::<Option<HostedFlow>>()
    }

    /// Returns the heap memory, in bytes, of the connections of these flows, given by number.
    pub fn connection_heap_bytes(&self, flows: std::ops::Range<usize>) -> usize {
        let pairs = self
            .flows
            .get(flows)
            .unwrap_or_default()
            .iter()
            .map(|flow| flow.ends as usize);
        let ends = pairs
            .filter_map(|pair| self.ends.get(pair..pair + 2))
            .flatten();
        let live = ends.filter_map(|end| end.connection.as_ref());
        live.map(|c| c.memory_bytes() - size_of::<Connection>())
            .sum()
    }

    /// Returns the digest of the simulation: equal for equal scenarios and seeds on every platform.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        let counters = self.counters();
        digest.add(self.now.as_nanos());
        for value in [
            counters.events,
            counters.hops,
            counters.sent,
            counters.received,
            counters.dropped,
        ] {
            digest.add(value);
        }
        for link in 0..self.network.links().len() as u32 {
            let view = self.links.view(self.now, link);
            for value in [
                view.arrived,
                view.delivered,
                view.accepted_bytes,
                view.queue_drops,
                view.losses,
                view.marked,
                view.backlog.bytes,
                view.sojourn_sum.as_nanos(),
                view.sojourn_max.as_nanos(),
            ] {
                digest.add(value);
            }
        }
        for id in self.flows() {
            let Some(view) = self.flow(id) else { continue };
            for value in [
                view.started.as_nanos(),
                view.finished.map_or(u64::MAX, Time::as_nanos),
                view.received,
                view.acked,
                view.retransmitted,
                view.timeouts,
                view.cwnd,
                view.ssthresh,
                view.srtt.as_nanos(),
                view.min_rtt.as_nanos(),
                view.rate,
            ] {
                digest.add(value);
            }
        }
        digest.value()
    }

    pub(crate) fn flow_view(&self, flow: &SimFlow) -> FlowView {
        let mut view = FlowView {
            from: NodeId(flow.from),
            to: NodeId(flow.to),
            started: flow.start,
            finished: (flow.finished != Time::MAX).then_some(flow.finished),
            failure: None,
            bytes: (flow.bytes != u64::MAX).then_some(flow.bytes),
            app: (flow.app != NO_INDEX).then_some(AppId(flow.app)),
            received: 0,
            acked: 0,
            retransmitted: 0,
            lost: 0,
            timeouts: 0,
            cwnd: 0,
            ssthresh: u64::MAX,
            srtt: Duration::ZERO,
            min_rtt: Duration::ZERO,
            rate: 0,
            in_flight: 0,
            in_fallback: false,
        };
        let pair = self
            .ends
            .get(flow.ends as usize..flow.ends.saturating_add(2) as usize);
        if let Some([sender, receiver]) = pair {
            if let Some(connection) = &sender.connection {
                let stats = connection.stats();
                // The endpoint that aborted the connection has the reason.
                let failure = connection.failure();
                let given_up = receiver
                    .connection
                    .as_ref()
                    .filter(|_| failure == Some(ConnectionError::Reset));
                view.failure = given_up.and_then(Connection::failure).or(failure);
                view.acked = stats.acked;
                view.retransmitted = u64::from(stats.retransmitted);
                view.lost = u64::from(stats.lost);
                view.timeouts = u64::from(stats.timeouts);
                view.cwnd = connection.cwnd();
                view.ssthresh = connection.ssthresh();
                view.srtt = connection.srtt();
                view.min_rtt = connection.min_rtt();
                view.rate = connection.rate();
                view.in_flight = connection.in_flight();
            }
            view.received = receiver
                .connection
                .as_ref()
                .map_or(0, |c| c.stats().received);
            if let ControllerKind::Agent(place) = sender.control.get() {
                let steered = self.steered.get(place).and_then(Option::as_ref);
                view.in_fallback = steered.is_some_and(|steered| steered.flow().in_fallback());
            }
        }
        view
    }

    /// Returns the statistics of RC3's low-priority loop at a flow's sender and receiver. `None` if
    /// the loop never sent.
    pub fn rc3(&self, flow: FlowId) -> Option<(Rc3Stats, Rc3Arrivals)> {
        let flow = self.flows.get(flow.index())?;
        if let Some(InactiveState::Finished(_, rc3)) = flow.inactive.as_deref() {
            return rc3.as_deref().copied();
        }
        let at = |e: u32| self.ends.get(e as usize)?.connection.as_ref();
        let sent = at(flow.ends)?.rc3_stats()?;
        let arrivals =
            at(flow.ends.saturating_add(1)).and_then(|connection| connection.rc3_arrivals());
        Some((*sent, arrivals.unwrap_or_default()))
    }
}
