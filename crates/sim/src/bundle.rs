//! Bundles between switches: a sendbox at one switch, a receivebox at another, and the tunnel
//! between them.
//!
//! The boxes are the gateway's, from `ccplane-bundle`. A packet that arrives at the sendbox's
//! switch for a host behind the receivebox queues in the sendbox, leaves with a packet number, and
//! is recorded at the receivebox. Feedback is sent back as a packet of the network, which can be
//! queued and lost. To its agent, a bundle is a flow.

mod base_delays;
mod packet_data;

use ccplane_agent::{DatapathId, FlowId as AgentFlow, FlowInfo};
use ccplane_bundle::{
    FEEDBACK_BYTES, ModeChange, NOTICE_BYTES, PacketNumbering, Receivebox, Sendbox, SendboxConfig,
    Status, hash, wants_pass_through,
};
use ccplane_datapath::SteeredFlow;
use ccplane_network::NodeId;
use ccplane_qdisc::{DropReason, Ecn};
use ccplane_transport::{Segment, SequenceNumber};
use ccplane_units::{Bytes, Time};

pub use base_delays::BundleBaseDelays;
pub(crate) use packet_data::{BundlePacketData, BundlePacketTable};

use crate::event::EventKind;
use crate::link::QueuedPacket;
use crate::packet::{NO_INDEX, SimPacket};
use crate::steer::{AgentId, HostedFlow};
use crate::{SimError, Simulation, Tracer, World};

/// Bundle, numbered in the order of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId(pub(crate) u32);

/// Description of a bundle: its boxes and its agent.
#[derive(Clone, Debug)]
pub struct BundleSpec {
    /// Switch of the sendbox.
    pub from: NodeId,
    /// Switch of the receivebox.
    pub to: NodeId,
    /// Agent and name of the algorithm; `None` for a bundle that only measures.
    pub agent: Option<(AgentId, String)>,
    /// Queue, limits and packet numbering.
    pub sendbox: SendboxConfig,
    /// Bytes that the tunnel adds to each packet. 0 as in the paper; WireGuard over IPv4 adds 60.
    pub overhead: u32,
}

/// First flow number of a bundle; flows have 32-bit numbers.
pub(crate) const BUNDLE_FLOW_NUMBER_MIN: u64 = 1 << 32;

/// Number of flow hashes whose paths are checked when a bundle is added. With two equal-cost paths,
/// all hashes take the same one with probability 2^-63.
const PATH_CHECK_HASHES: u32 = 64;

/// IPv4 and UDP headers of a message between the boxes, bytes.
const MESSAGE_HEADER_BYTES: u32 = 28;

#[derive(Debug, Default)]
pub(crate) struct Bundles {
    all: Vec<SimBundle>,
    /// Per switch with a sendbox: the bundle of each destination host, or [`NO_INDEX`].
    by_switch: Vec<Option<Box<[u32]>>>,
    /// Messages that boxes created and consumed, in packets.
    pub messages_created: u64,
    pub messages_consumed: u64,
    /// Packets dropped by sendboxes.
    pub dropped: u64,
}

#[derive(Debug)]
struct SimBundle {
    from: u32,
    to: u32,
    /// Destination hosts of messages, which lie behind the sendbox and behind the receivebox.
    sendbox_host: u32,
    receivebox_host: u32,
    overhead: u32,
    /// MTU, bytes.
    mtu: u32,
    numbering: PacketNumbering,
    agent: u32,
    /// `None` without an agent.
    flow: Option<HostedFlow>,
    sendbox: Sendbox<QueuedPacket>,
    receivebox: Receivebox,
    next_number: u64,
    /// Time of the next event.
    next_event: Time,
    changes: Vec<ModeChange>,
}

impl Bundles {
    #[inline(always)]
    pub fn has_bundles(&self) -> bool {
        !self.all.is_empty()
    }

    /// Returns the number of packets queued in sendboxes.
    pub fn queued_packets(&self) -> u64 {
        self.all
            .iter()
            .map(|bundle| bundle.sendbox.backlog().packets)
            .sum()
    }

    /// Returns true if there is a box at this switch.
    pub fn has_box_at(&self, node: u32) -> bool {
        self.all
            .iter()
            .any(|bundle| bundle.from == node || bundle.to == node)
    }

    fn bundle_for(&self, node: u32, to: u32) -> Option<u32> {
        let hosts = self.by_switch.get(node as usize)?.as_ref()?;
        hosts
            .get(to as usize)
            .copied()
            .filter(|bundle| *bundle != NO_INDEX)
    }

    /// Returns the bundles of an agent, to be announced when the agent (re)connects.
    pub fn flows_of_agent(&self, agent: u32) -> impl Iterator<Item = (u64, FlowInfo)> {
        let mine = move |bundle: &&SimBundle| bundle.agent == agent && bundle.flow.is_some();
        self.all
            .iter()
            .enumerate()
            .filter(move |(_, bundle)| mine(bundle))
            .map(|(index, bundle)| {
                (
                    BUNDLE_FLOW_NUMBER_MIN + index as u64,
                    info(&bundle.sendbox, bundle.mtu, ""),
                )
            })
    }
}

fn info(sendbox: &Sendbox<QueuedPacket>, mtu: u32, algorithm: &str) -> FlowInfo {
    let transport = sendbox.transport(Time::ZERO);
    FlowInfo {
        algorithm: algorithm.to_owned(),
        init_cwnd: Bytes::new(transport.cwnd),
        mss: Bytes::new(u64::from(mtu)),
        cwnd: Bytes::new(transport.cwnd),
        ..FlowInfo::default()
    }
}

impl World {
    /// Adds a bundle. It starts open; its algorithm limits the rate once there is a queue to move.
    pub fn add_bundle(&mut self, spec: BundleSpec) -> Result<BundleId, SimError> {
        let refused = |why: String| Err(SimError::Bundle(why));
        let nodes = self.network.nodes().len();
        for node in [spec.from, spec.to] {
            self.known_node(node)?;
            if self.network.is_host(node) {
                return refused(format!(
                    "`{}` is a host; put the boxes of a bundle at switches",
                    self.network.name(node)
                ));
            }
        }
        let (from, to) = (spec.from.0, spec.to.0);
        let name = |node: u32| self.network.name(NodeId(node)).to_owned();
        let hosts: Vec<u32> = self.network.hosts().map(|host| host.0).collect();
        // Counts the paths from `at` to `host` that cross `by`, over the flow hashes. Hosts without
        // a path are in no bundle.
        let ways = |at: u32, host: u32, by: u32| {
            let over = |hash: &u32| {
                let path =
                    self.routing
                        .path(&self.network, at, host, hash.wrapping_mul(0x9e37_79b9));
                path.is_ok_and(|path| path.iter().any(|link| self.ends_of(*link).1.0 == by))
            };
            (0..PATH_CHECK_HASHES).filter(over).count() as u32
        };
        let mut behind = vec![NO_INDEX; nodes];
        let (mut home, mut away) = (NO_INDEX, NO_INDEX);
        let index = self.bundles.all.len() as u32;
        for &host in &hosts {
            match (ways(from, host, to), ways(to, host, from)) {
                (PATH_CHECK_HASHES, _) => {
                    behind[host as usize] = index;
                    away = away.min(host);
                }
                (0, PATH_CHECK_HASHES) => home = home.min(host),
                (0, _) => {}
                _ => {
                    return refused(format!(
                        "only some paths from `{}` to `{}` cross `{}`; put the boxes on all paths",
                        name(from),
                        name(host),
                        name(to)
                    ));
                }
            }
        }
        if away == NO_INDEX || home == NO_INDEX {
            return refused(format!(
                "no host is behind `{}` as seen from `{}`, or vice versa; put the boxes on a path \
                 between hosts",
                name(to),
                name(from)
            ));
        }
        let members = || {
            behind
                .iter()
                .enumerate()
                .filter(|(_, bundle)| **bundle != NO_INDEX)
        };
        if let Some((host, _)) =
            members().find(|(host, _)| self.bundles.bundle_for(from, *host as u32).is_some())
        {
            return refused(format!(
                "the traffic from `{}` to `{}` would be in two bundles",
                name(from),
                name(host as u32)
            ));
        }
        let sendbox = Sendbox::new(self.now, &spec.sendbox)
            .map_err(|why| SimError::Bundle(why.to_string()))?;
        let (agent, flow) = match &spec.agent {
            None => (NO_INDEX, None),
            Some((agent, algorithm)) => {
                let count = self.hosts.len();
                let Some(host) = self.hosts.get_mut(agent.0 as usize) else {
                    return Err(SimError::Unknown {
                        what: "agent",
                        number: agent.0,
                        count,
                    });
                };
                if !host.has_algorithm(algorithm) {
                    return Err(SimError::UnknownAlgorithm(algorithm.clone()));
                }
                let info = info(&sendbox, spec.sendbox.mtu, algorithm);
                let number = BUNDLE_FLOW_NUMBER_MIN + u64::from(index);
                let flow = host.shared.open(self.now, number, info, agent.0);
                (agent.0, Some(flow))
            }
        };
        // No errors are possible from here on.
        if self.bundles.by_switch.len() < nodes {
            self.bundles.by_switch.resize(nodes, None);
        }
        let entry = self.bundles.by_switch[from as usize]
            .get_or_insert_with(|| vec![NO_INDEX; nodes].into_boxed_slice());
        for (host, mine) in behind
            .iter()
            .enumerate()
            .filter(|(_, bundle)| **bundle != NO_INDEX)
        {
            entry[host] = *mine;
        }
        self.bundles.all.push(SimBundle {
            from,
            to,
            sendbox_host: home,
            receivebox_host: away,
            overhead: spec.overhead,
            mtu: spec.sendbox.mtu,
            numbering: spec.sendbox.numbering,
            agent,
            flow,
            sendbox,
            receivebox: Receivebox::new(spec.sendbox.numbering),
            next_number: 0,
            next_event: Time::MAX,
            changes: Vec::new(),
        });
        if agent != NO_INDEX {
            self.schedule_agent(agent);
        }
        self.plan_bundle(index);
        Ok(BundleId(index))
    }

    /// Returns the state of a bundle.
    pub fn bundle(&self, bundle: BundleId) -> Option<Status> {
        Some(
            self.bundles
                .all
                .get(bundle.0 as usize)?
                .sendbox
                .status(self.now),
        )
    }

    /// Returns the mode changes of a bundle so far.
    pub fn bundle_changes(&self, bundle: BundleId) -> &[ModeChange] {
        self.bundles
            .all
            .get(bundle.0 as usize)
            .map_or(&[], |bundle| &bundle.changes)
    }

    /// Returns the gauges reported by a bundle's algorithm, by name.
    pub fn bundle_gauges(&self, bundle: BundleId) -> &[(&'static str, f64)] {
        let agent = self
            .bundles
            .all
            .get(bundle.0 as usize)
            .map_or(NO_INDEX, |bundle| bundle.agent);
        let flow = BUNDLE_FLOW_NUMBER_MIN + u64::from(bundle.0);
        self.hosts.get(agent as usize).map_or(&[], |host| {
            let datapath = DatapathId(agent);
            host.agent().gauges(AgentFlow { datapath, flow })
        })
    }

    /// Schedules the next event of a bundle, if it is earlier than the planned one.
    fn plan_bundle(&mut self, index: u32) {
        let Some(bundle) = self.bundles.all.get_mut(index as usize) else {
            return;
        };
        let flow = bundle
            .flow
            .as_ref()
            .and_then(|flow| flow.flow().next_deadline());
        let next = [bundle.receivebox.next_deadline(), flow]
            .into_iter()
            .flatten()
            .fold(bundle.sendbox.next_deadline(), Time::min)
            .max(self.now);
        if next < bundle.next_event {
            bundle.next_event = next;
            self.events.push(next, EventKind::Bundle, index);
        }
    }

    /// Creates the packet of a message between the boxes.
    fn create_message(&mut self, from: u32, to: u32, bytes: u32) -> u32 {
        let mut segment = Segment::default();
        // The source, as in a datagram; a message has no flow to derive it from.
        segment.echo = SequenceNumber(from);
        let (id, place, _) = self.packets.next_slot();
        *place = SimPacket {
            segment,
            end: NO_INDEX,
            // No flow: the packet never reaches a host.
            flow: NO_INDEX,
            to,
            hash: 0,
            side: NO_INDEX,
            bytes,
        };
        self.packets.allocate(id, false);
        self.bundles.messages_created += 1;
        id
    }
}

impl<T: Tracer> Simulation<T> {
    /// Handles a packet at a switch while there are bundles. Returns true if a box queued or
    /// consumed it.
    #[cold]
    pub(crate) fn handle_at_box(&mut self, node: u32, id: u32) -> bool {
        let world = &mut self.world;
        let now = world.now;
        match world.packets.bundle_data.get(id) {
            BundlePacketData::Feedback {
                bundle: index,
                index: place,
            } => {
                let bundle = &mut world.bundles.all[index as usize];
                if bundle.from != node {
                    return false;
                }
                if let Some(feedback) = world.packets.bundle_data.feedback_at(place) {
                    // The sendbox counts implausible feedback, so the result is not needed.
                    let _ = bundle.sendbox.on_feedback(now, &feedback);
                }
                self.consume_message(id);
                self.run_sendbox(index);
                return true;
            }
            BundlePacketData::Notice {
                bundle: index,
                number,
                notice,
            } => {
                let bundle = &mut world.bundles.all[index as usize];
                if bundle.to != node {
                    return false;
                }
                let bytes = world.packets.get(id).bytes;
                bundle.receivebox.on_notice(&notice);
                bundle.receivebox.on_packet(now, number, bytes, Ecn::NotEct);
                self.consume_message(id);
                self.send_feedback(index);
                return true;
            }
            BundlePacketData::Number {
                bundle: index,
                number,
            } => {
                let bundle = &mut world.bundles.all[index as usize];
                if bundle.to != node {
                    // A packet inside a tunnel enters no other tunnel: it can carry one number
                    // only.
                    return false;
                }
                let packet = world.packets.get_mut(id);
                bundle
                    .receivebox
                    .on_packet(now, number, packet.bytes, packet.segment.ecn);
                packet.bytes -= bundle.overhead;
                world.packets.bundle_data.set(id, BundlePacketData::None);
                self.send_feedback(index);
            }
            BundlePacketData::None => {}
        }
        let world = &mut self.world;
        let packet = world.packets.get(id);
        let Some(index) = world.bundles.bundle_for(node, packet.to) else {
            return false;
        };
        let bundle = &mut world.bundles.all[index as usize];
        let waiting = QueuedPacket {
            id,
            bytes: packet.bytes + bundle.overhead,
            hash: packet.hash,
            class: packet.segment.band,
            ecn: packet.segment.ecn,
            enqueued_at: now,
            stamp: None,
        };
        let mut dropped = std::mem::take(&mut world.box_drops);
        let _ = bundle
            .sendbox
            .enqueue(now, waiting, &mut |packet: QueuedPacket, why| {
                dropped.push((packet.id, why))
            });
        self.record_box_drops(dropped);
        self.run_sendbox(index);
        true
    }

    /// Removes a message that reached its box.
    fn consume_message(&mut self, id: u32) {
        self.world.bundles.messages_consumed += 1;
        self.world.packets.release(id);
    }

    /// Removes and counts the packets that a sendbox dropped.
    fn record_box_drops(&mut self, mut dropped: Vec<(u32, DropReason)>) {
        for (id, _) in dropped.drain(..) {
            self.world.counters.dropped += 1;
            self.world.bundles.dropped += 1;
            self.world.packets.release(id);
        }
        self.world.box_drops = dropped;
    }

    #[cold]
    pub(crate) fn on_bundle(&mut self, index: u32) {
        let bundle = &mut self.world.bundles.all[index as usize];
        if bundle.next_event != self.world.now {
            return;
        }
        bundle.next_event = Time::MAX;
        self.send_feedback(index);
        self.run_sendbox(index);
    }

    /// Sends feedback of the receivebox that is due.
    fn send_feedback(&mut self, index: u32) {
        let world = &mut self.world;
        let bundle = &mut world.bundles.all[index as usize];
        if let Some(feedback) = bundle.receivebox.poll(world.now) {
            let (at, home, away, overhead) = (
                bundle.to,
                bundle.sendbox_host,
                bundle.receivebox_host,
                bundle.overhead,
            );
            let id = world.create_message(
                away,
                home,
                FEEDBACK_BYTES as u32 + MESSAGE_HEADER_BYTES + overhead,
            );
            world
                .packets
                .bundle_data
                .attach_feedback(id, index, feedback);
            self.forward(at, id);
        }
        self.world.plan_bundle(index);
    }

    /// Runs everything that is due at the sendbox: its program, notices and departures.
    fn run_sendbox(&mut self, index: u32) {
        let world = &mut self.world;
        let now = world.now;
        let bundle = &mut world.bundles.all[index as usize];
        if bundle.sendbox.next_deadline() <= now {
            bundle.sendbox.on_deadline(now);
        }
        match &mut bundle.flow {
            Some(flow) => {
                let host = &mut world.hosts[bundle.agent as usize];
                let mut lent = host
                    .shared
                    .flow_mut(BUNDLE_FLOW_NUMBER_MIN + u64::from(index), flow);
                let ticks = bundle.sendbox.drive(now, &mut lent);
                if ticks {
                    let flow = AgentFlow {
                        datapath: DatapathId(bundle.agent),
                        flow: BUNDLE_FLOW_NUMBER_MIN + u64::from(index),
                    };
                    bundle
                        .sendbox
                        .set_pass_through(now, wants_pass_through(host.agent().gauges(flow)));
                }
                if ticks || host.next_due() < host.due {
                    let agent = bundle.agent;
                    world.schedule_agent(agent);
                }
            }
            None => {
                if bundle.sendbox.next_tick() <= now {
                    // There is no agent to notify; the measurements are available in the status.
                    let _ = bundle.sendbox.tick(now);
                }
            }
        }
        self.send_due_packets(index);
        let world = &mut self.world;
        let bundle = &mut world.bundles.all[index as usize];
        while let Some(change) = bundle.sendbox.next_mode_change() {
            bundle.changes.push(change);
        }
        world.plan_bundle(index);
    }

    /// Sends the notices and packets that may leave the sendbox by now.
    fn send_due_packets(&mut self, index: u32) {
        let now = self.world.now;
        loop {
            let world = &mut self.world;
            let bundle = &mut world.bundles.all[index as usize];
            let from = bundle.from;
            if let Some(notice) = bundle.sendbox.poll_notice(now) {
                let (home, away) = (bundle.sendbox_host, bundle.receivebox_host);
                let bytes = NOTICE_BYTES as u32 + MESSAGE_HEADER_BYTES + bundle.overhead;
                let number = bundle.next_packet_number();
                bundle.sendbox.on_sent(now, number, bytes);
                let id = world.create_message(home, away, bytes);
                world.packets.bundle_data.set(
                    id,
                    BundlePacketData::Notice {
                        bundle: index,
                        number,
                        notice,
                    },
                );
                self.forward(from, id);
                continue;
            }
            let mut dropped = std::mem::take(&mut world.box_drops);
            let packet = bundle
                .sendbox
                .dequeue(now, &mut |packet: QueuedPacket, why| {
                    dropped.push((packet.id, why))
                });
            let Some(waiting) = packet else {
                self.record_box_drops(dropped);
                return;
            };
            let number = bundle.next_packet_number();
            bundle.sendbox.on_sent(now, number, waiting.bytes);
            let packet = world.packets.get_mut(waiting.id);
            packet.bytes = waiting.bytes;
            packet.segment.ecn = waiting.ecn;
            world.packets.bundle_data.set(
                waiting.id,
                BundlePacketData::Number {
                    bundle: index,
                    number,
                },
            );
            self.record_box_drops(dropped);
            self.forward(from, waiting.id);
        }
    }

    /// Handles an agent's command for a bundle.
    pub(crate) fn steer_bundle(
        &mut self,
        agent: u32,
        number: u64,
        command: &ccplane_wire::WireCommand,
    ) {
        let world = &mut self.world;
        let now = world.now;
        let index = number.wrapping_sub(BUNDLE_FLOW_NUMBER_MIN);
        let host = &mut world.hosts[agent as usize];
        let bundle = usize::try_from(index)
            .ok()
            .and_then(|index| world.bundles.all.get_mut(index))
            .filter(|bundle| bundle.agent == agent);
        let Some(SimBundle {
            flow: Some(flow),
            sendbox,
            ..
        }) = bundle
        else {
            host.execute(now, command, None);
            return;
        };
        host.execute(now, command, Some(flow));
        let outcome = host
            .shared
            .flow_mut(number, flow)
            .on_deadline(&sendbox.transport(now));
        sendbox.apply_outcome(now, &outcome);
        self.run_sendbox(index as u32);
    }
}

impl SimBundle {
    fn next_packet_number(&mut self) -> u64 {
        let count = self.next_number;
        self.next_number += 1;
        match self.numbering {
            PacketNumbering::Counter => count,
            PacketNumbering::Hash => hash(count.to_be_bytes()),
        }
    }
}
