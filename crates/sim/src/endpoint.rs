//! Endpoint of a flow: arriving packets, timers and transmission.

use std::sync::Arc;

use ccplane_datapath::Outcome;
use ccplane_network::random;
use ccplane_transport::{
    CLASS_COUNT, CongestionControl, Connection, ConnectionState, ControlEvent as Happened, Native,
    Proof, Segment, SegmentKind, SideData,
};
use ccplane_units::{Duration, Time};

use crate::event::{EventKind, EventQueue};
use crate::packet::{NO_INDEX, PacketArena};
use crate::stamps::{self, Clocks};
use crate::steer::HostedFlow;
use crate::{Simulation, Tracer, World};

/// Endpoint of a flow.
#[derive(Debug)]
pub(crate) struct FlowEndpoint {
    /// `None` at the receiver before the first segment arrives.
    pub connection: Option<Connection>,
    /// Time of the earliest scheduled timeout event, and of a later one that is also scheduled.
    pub timeout_event: Time,
    pub later_timeout_event: Time,
    /// Time of the scheduled pacing event.
    pub pacing_event: Time,
    /// End of the oldest write of the peer that has not arrived, in bytes; later writes are in
    /// [`World::writes`].
    pub awaited_write_end: u64,
    pub flow: u32,
    /// Host of the peer, and the link on which this endpoint sends.
    pub to: u32,
    pub nic: u32,
    /// Flow hash, which selects the path.
    pub hash: u32,
    pub control: Controller,
    /// Header bytes.
    pub header: u16,
    /// Set of the `FlowEndpoint::` constants.
    pub flags: u16,
}

/// Bit positions in [`FlowEndpoint::flags`] of the band and of the queued flags of lower classes.
const BAND_SHIFT: u32 = 4;
const LOW_QUEUED_SHIFT: u32 = 7;

impl FlowEndpoint {
    /// Queued at the host's link with a packet of class 0.
    pub const QUEUED: u16 = 1;
    /// Data has to be read by the application on arrival.
    pub const READS_DATA: u16 = 2;
    /// An application awaits the arrival of a write.
    pub const AWAITS_WRITE: u16 = 4;
    /// May send in classes below class 0: RC3's low-priority data, and ACKs of the peer's.
    pub const RC3: u16 = 8;
    /// Bits of the band for packets of class 0.
    pub const BAND: u16 = 7 << BAND_SHIFT;
    /// May send in bands below the highest.
    pub const USES_LOW_BANDS: u16 = FlowEndpoint::RC3 | FlowEndpoint::BAND;
    /// The flow is controlled by RCP: packets carry rate stamps.
    pub const RCP_STAMPED: u16 = 1 << 15;
    /// Queued at the host's link with packets of lower bands; one flag per class.
    pub const LOW_QUEUED: u16 = 0x7f80;

    /// Returns the queued flag of this class in the lower bands.
    #[inline(always)]
    pub fn low_queued(class: u8) -> u16 {
        1 << (LOW_QUEUED_SHIFT + u32::from(class & (CLASS_COUNT - 1)))
    }

    /// Returns the band for packets of class 0.
    #[inline(always)]
    pub fn band(&self) -> u8 {
        ((self.flags & FlowEndpoint::BAND) >> BAND_SHIFT) as u8
    }

    /// Sets the band, 0 to 7.
    pub fn set_band(&mut self, band: u8) {
        self.flags =
            self.flags & !FlowEndpoint::BAND | u16::from(band) << BAND_SHIFT & FlowEndpoint::BAND;
    }

    #[inline(always)]
    pub fn has_flag(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline(always)]
    pub fn set_flag(&mut self, flag: u16, to: bool) {
        self.flags = if to {
            self.flags | flag
        } else {
            self.flags & !flag
        };
    }

    /// Returns true if there is something to send in this class.
    #[inline(always)]
    pub fn has_data(&self, now: Time, class: u8) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.has_segment(now, class))
    }

    /// Returns a bit mask of the classes that have something to send in a lower band and are not
    /// queued yet.
    pub fn low_classes(&self, now: Time) -> u8 {
        let classes = self
            .connection
            .as_ref()
            .map_or(0, |connection| connection.classes(now));
        let low = if self.has_flag(FlowEndpoint::BAND) {
            classes
        } else {
            classes & !1
        };
        low & !(self.flags >> LOW_QUEUED_SHIFT) as u8
    }

    /// Creates the next packet of this class, addressed to the peer. Returns its id and size. With
    /// `spray`, each packet hashes to its own path.
    #[inline(always)]
    pub fn send(
        &mut self,
        now: Time,
        (e, class): (u32, u8),
        packets: &mut PacketArena,
        clocks: &mut Clocks,
        spray: bool,
    ) -> Option<(u32, u32)> {
        let connection = self.connection.as_mut();
        let connection =
            connection.filter(|connection| class != 0 || !connection.has_only_acks())?;
        let (id, packet, side) = packets.next_slot();
        if !connection.transmit_into(now, class, &mut packet.segment, side) {
            return None;
        }
        packet.segment.band = (packet.segment.band + self.band()).min(CLASS_COUNT - 1);
        let data = match packet.segment.kind {
            SegmentKind::Data => packet.segment.length,
            _ => 0,
        };
        let bytes = u32::from(self.header) + u32::from(data);
        let with_side = packet.segment.has_side();
        if with_side && side.stamped && !clocks.is_exact() {
            let left = clocks.departure(self.nic, now, bytes);
            match packet.segment.kind {
                // A late timestamp delays nothing, so an ACK may carry a later one.
                SegmentKind::Ack => side.t3 = stamps::later_stamp(left, side.t2),
                _ => side.t1 = left,
            }
        }
        (packet.bytes, packet.side) = (bytes, NO_INDEX);
        (packet.end, packet.flow, packet.to, packet.hash) = (e ^ 1, self.flow, self.to, self.hash);
        if spray {
            let number = u64::from(packet.segment.number.0) << 32;
            packet.hash =
                random::mix(number ^ u64::from(packet.hash) ^ random::mix(now.as_nanos())) as u32;
        }
        packets.allocate(id, with_side);
        if packets.receipts.is_enabled()
            && let Some(connection) = &self.connection
        {
            packets.attach_proof(id, e, connection);
        }
        if self.has_flag(FlowEndpoint::RCP_STAMPED) {
            let rtt = self
                .connection
                .as_ref()
                .map_or(Duration::ZERO, Connection::srtt);
            packets.rcp_headers.stamp(now, id, e, rtt);
        }
        Some((id, bytes))
    }

    /// Schedules events for the deadlines; returns true if the connection is closed. A deadline
    /// that moves later keeps its earlier event.
    #[inline(always)]
    pub fn schedule_deadlines(
        &mut self,
        now: Time,
        e: u32,
        steered: &[Option<HostedFlow>],
        events: &mut EventQueue,
    ) -> bool {
        let Some(connection) = &self.connection else {
            return false;
        };
        let mut due = connection.next_timeout().unwrap_or(Time::MAX);
        if let ControllerKind::Agent(place) = self.control.get()
            && runs_program(connection)
            && let Some(Some(steered)) = steered.get(place)
        {
            due = due.min(steered.flow().next_deadline().unwrap_or(Time::MAX));
        }
        if due < self.timeout_event {
            self.later_timeout_event = self.later_timeout_event.min(self.timeout_event);
            self.timeout_event = due.max(now);
            events.push_end(self.timeout_event, EventKind::Timeout, self.flow, e);
        }
        if let Some(next) = connection.next_send(now)
            && next < self.pacing_event
        {
            self.pacing_event = next;
            events.push_end(next, EventKind::Pace, self.flow, e);
        }
        connection.state() == ConnectionState::Closed
    }
}

impl<T: Tracer> Simulation<T> {
    /// Handles a packet that arrived at its host.
    #[inline(always)]
    pub(crate) fn receive_packet(&mut self, id: u32) {
        if self.world.packets.receipts.is_enabled() {
            self.receive_checked(id);
        } else {
            self.receive_as::<false>(id);
        }
    }

    #[cold]
    #[inline(never)]
    fn receive_checked(&mut self, id: u32) {
        self.world.packets.record_arrival(id);
        self.receive_as::<true>(id);
    }

    /// `CHECKED`: packets carry nonces, or receivers conceal losses.
    #[inline(always)]
    fn receive_as<const CHECKED: bool>(&mut self, id: u32) {
        let world = &mut self.world;
        world.counters.received += 1;
        if world.packets.rcp_headers.has_headers() {
            world.receive_stamp(id);
        }
        if world.packets.get(id).segment.class != 0 {
            world.make_band_relative(id);
        }
        let proof = match CHECKED {
            true => world.packets.receipts.proof(id),
            false => Proof::default(),
        };
        let packet = world.packets.get(id);
        let side = world
            .packets
            .side(packet.side)
            .unwrap_or(&world.packets.no_side);
        let e = packet.end;
        let Some(end) = world
            .ends
            .get_mut(e as usize)
            .filter(|end| end.flow == packet.flow)
        else {
            return world.receive_unmatched(id);
        };
        let Some(connection) = &mut end.connection else {
            return self.accept(id);
        };
        let (now, segment) = (world.now, &packet.segment);
        let arrived = match packet.side != NO_INDEX && side.stamped && !world.clocks.is_exact() {
            true => world.clocks.arrival(packet.to, now, packet.bytes),
            false => now,
        };
        let awaited = segment.kind == SegmentKind::Data
            && end.flags & (FlowEndpoint::READS_DATA | FlowEndpoint::AWAITS_WRITE) != 0;
        match end.control.get() {
            ControllerKind::Native(place) => {
                handle::<CHECKED>(
                    connection,
                    (now, arrived),
                    (segment, side),
                    &proof,
                    &mut world.natives[place],
                );
            }
            ControllerKind::None => handle::<CHECKED>(
                connection,
                (now, arrived),
                (segment, side),
                &proof,
                &mut ReceiverControl,
            ),
            ControllerKind::Agent(place) => {
                let number = u64::from(end.flow);
                if let Some(steered) = &mut world.steered[place] {
                    let agent = steered.user_data;
                    let host = &mut world.hosts[agent as usize];
                    let mut lent = host.shared.flow_mut(number, steered);
                    handle::<CHECKED>(
                        connection,
                        (now, arrived),
                        (segment, side),
                        &proof,
                        &mut lent,
                    );
                    if host.next_due() < host.due {
                        world.schedule_agent(agent);
                    }
                }
            }
        }
        world.packets.release(id);
        if awaited {
            self.on_data(e);
        }
        self.pump(e);
    }

    /// Reads arrived data and reports completed writes.
    fn on_data(&mut self, e: u32) {
        let end = &mut self.world.ends[e as usize];
        let (reads, awaits) = (
            end.has_flag(FlowEndpoint::READS_DATA),
            end.has_flag(FlowEndpoint::AWAITS_WRITE),
        );
        let Some(connection) = &mut end.connection else {
            return;
        };
        if reads {
            connection.read(u64::MAX);
        }
        let received = connection.stats().received;
        if awaits && received >= end.awaited_write_end {
            self.world.writes_received(e, received);
        }
    }

    /// Creates a server's connection for its first segment.
    #[cold]
    fn accept(&mut self, id: u32) {
        let now = self.world.now;
        let packet = *self.world.packets.get(id);
        self.world.packets.release(id);
        let config = Arc::clone(&self.world.flows[packet.flow as usize].transport);
        match Connection::accept(&config, now, &packet.segment) {
            Some(mut connection) => {
                self.world
                    .require_proof_of(packet.end, packet.flow, &mut connection);
                if let Some((bytes, finish)) = self.world.early_writes.remove(&packet.end) {
                    connection.write(bytes);
                    if finish {
                        connection.finish();
                    }
                }
                self.world.ends[packet.end as usize].connection = Some(connection);
                self.pump(packet.end);
            }
            None => self.world.counters.late += 1,
        }
    }

    #[cold]
    pub(crate) fn on_timeout(&mut self, e: u32) {
        let world = &mut self.world;
        let now = world.now;
        let end = &mut world.ends[e as usize];
        if now == end.timeout_event {
            end.timeout_event = std::mem::replace(&mut end.later_timeout_event, Time::MAX);
        } else {
            return;
        }
        let Some(connection) = &mut end.connection else {
            return;
        };
        let due = connection.next_timeout().is_some_and(|due| due <= now);
        match end.control.get() {
            ControllerKind::Native(place) => {
                if due {
                    connection.on_timeout(now, &mut world.natives[place]);
                }
            }
            ControllerKind::None => {
                if due {
                    connection.on_timeout(now, &mut ReceiverControl);
                }
            }
            ControllerKind::Agent(place) => {
                let number = u64::from(end.flow);
                if let Some(steered) = &mut world.steered[place] {
                    let agent = steered.user_data;
                    let mut lent = world.hosts[agent as usize].shared.flow_mut(number, steered);
                    if due {
                        connection.on_timeout(now, &mut lent);
                    }
                    if runs_program(connection)
                        && lent.next_deadline().is_some_and(|due| due <= now)
                    {
                        connection.on_control_deadline(now, &mut lent);
                    }
                    world.schedule_agent(agent);
                }
            }
        }
        self.pump(e);
    }
}

impl World {
    /// Makes the band of a packet relative to its sender's own band: bands belong to the network,
    /// and a connection only knows classes relative to class 0.
    #[cold]
    fn make_band_relative(&mut self, id: u32) {
        let packet = self.packets.get_mut(id);
        let forward = packet.end & 1 == 1;
        if let Some(flow) = self.flows.get(packet.flow as usize).filter(|_| forward) {
            packet.segment.band = packet.segment.band.saturating_sub(flow.band);
        }
    }

    /// Handles a packet without an endpoint: a datagram, or a segment of a finished flow.
    #[cold]
    fn receive_unmatched(&mut self, id: u32) {
        let packet = self.packets.get(id);
        if packet.end == NO_INDEX {
            self.datagrams.record_arrival(self.now, packet);
        } else {
            self.counters.late += 1;
        }
        self.packets.release(id);
    }
}

/// Passes a segment to a connection. Without `CHECKED` there are no nonces.
#[inline(always)]
fn handle<const CHECKED: bool>(
    connection: &mut Connection,
    (now, arrived): (Time, Time),
    (segment, side): (&Segment, &SideData),
    proof: &Proof,
    control: &mut impl CongestionControl,
) {
    if CHECKED {
        connection.handle_with_proof((now, arrived), segment, side, proof, control);
    } else {
        connection.handle_at(now, arrived, segment, side, control);
    }
}

/// Returns true if the flow's program still runs its timers. Once both streams are complete there
/// is nothing to send or measure; among thousands of short flows, most are in that state.
#[inline(always)]
fn runs_program(connection: &Connection) -> bool {
    !matches!(
        connection.state(),
        ConnectionState::Draining | ConnectionState::Closed
    )
}

/// Congestion controller of an endpoint, packed into four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Controller(u32);

/// Unpacked [`Controller`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerKind {
    /// None: the endpoint only receives.
    None,
    /// Index of the native controller.
    Native(usize),
    /// Index of the steered flow.
    Agent(usize),
}

impl Controller {
    pub const RECEIVE_ONLY: Controller = Controller(u32::MAX);
    const AGENT_FLAG: u32 = 1 << 31;

    pub fn native(place: usize) -> Controller {
        Controller(place as u32)
    }

    pub fn agent(place: usize) -> Controller {
        Controller(place as u32 | Controller::AGENT_FLAG)
    }

    #[inline(always)]
    pub fn get(self) -> ControllerKind {
        if self.0 & Controller::AGENT_FLAG == 0 {
            ControllerKind::Native(self.0 as usize)
        } else if self == Controller::RECEIVE_ONLY {
            ControllerKind::None
        } else {
            ControllerKind::Agent((self.0 & !Controller::AGENT_FLAG) as usize)
        }
    }
}

/// Controller of an endpoint that only receives; the FIN of its empty stream is all that it sends.
pub(crate) struct ReceiverControl;

impl CongestionControl for ReceiverControl {
    #[inline(always)]
    fn on_event(&mut self, _event: &Happened<'_>) -> Outcome {
        Outcome::default()
    }
}

/// Returns a new controller of the same kind.
pub(crate) fn new_of_same_kind(native: &Native) -> Native {
    match native {
        Native::NewReno(_) => Native::new_reno(),
        Native::Cubic(_) => Native::cubic(),
        Native::Dctcp(_) => Native::dctcp(),
        Native::Rcp(_) => Native::rcp(),
    }
}
