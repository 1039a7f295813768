//! Packet tracing. Without a tracer it is compiled out.

use ccplane_qdisc::DropReason;
use ccplane_transport::{Segment, SideData};
use ccplane_units::Time;

use crate::{FlowId, LinkId, NodeId};

/// Event of a packet at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkStep {
    /// Accepted by the link's queue.
    Queued,
    /// Dropped by the queue or lost at random, possibly after it was accepted.
    Dropped(DropReason),
    /// Delivered at the far end of the link.
    Arrived,
}

/// Packet event, as passed to a tracer.
#[derive(Clone, Copy, Debug)]
pub struct PacketEvent<'a> {
    /// Kind of event.
    pub step: LinkStep,
    /// Link of the event.
    pub link: LinkId,
    /// Packet id, unique among the packets in flight; ids are reused.
    pub id: u32,
    /// Flow of the packet; `None` for a datagram.
    pub flow: Option<FlowId>,
    /// The packet travels from the receiver to the sender.
    pub backward: bool,
    /// Sending host.
    pub from: NodeId,
    /// Receiving host.
    pub to: NodeId,
    /// Size on the wire, bytes.
    pub bytes: u32,
    /// Segment in the packet.
    pub segment: &'a Segment,
    /// SACK ranges and timestamps, if any.
    pub side: Option<&'a SideData>,
}

/// Observer of every packet at every link.
///
/// ```
/// use ccplane_sim::{
///     FlowSpec, LinkSpec, LinkStep, PacketEvent, SimOptions, Simulation, Tracer, topology,
/// };
/// use ccplane_units::{Duration, Rate, Time};
///
/// /// Counts the packets that arrive at the end of a link.
/// struct Arrivals(u64);
///
/// impl Tracer for Arrivals {
///     fn on_packet_event(&mut self, _now: Time, seen: &PacketEvent<'_>) {
///         self.0 += u64::from(seen.step == LinkStep::Arrived);
///     }
/// }
///
/// let wire = LinkSpec::wire(Duration::from_millis(5));
/// let link = LinkSpec::new(Rate::from_bits_per_sec(10_000_000), Duration::from_millis(5));
/// let network = topology::dumbbell(1, &wire, link, wire.clone())?;
/// let [left, right] = ["left1", "right1"].map(|name| network.find_node(name).expect("a host"));
/// let mut simulation = Simulation::with_tracer(network, SimOptions::default(), Arrivals(0))?;
/// simulation.add_flow(FlowSpec::new(left, right).with_bytes(100_000))?;
/// simulation.run_until(Time::ZERO + Duration::from_secs(5))?;
/// assert!(simulation.tracer().0 > 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Tracer {
    /// Enables tracing.
    const ENABLED: bool = true;

    /// Handles a packet event.
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>);
}

/// No tracing.
impl Tracer for () {
    const ENABLED: bool = false;

    fn on_packet_event(&mut self, _now: Time, _seen: &PacketEvent<'_>) {}
}
