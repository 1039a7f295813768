//! Packet logs in pcapng format, for Wireshark.
//!
//! A [`PacketLog`] is a [`Tracer`] that writes a pcapng file with one interface per watched link.
//! Each packet appears once, with the time at which it reached the link's queue, in ns. If the
//! packet is dropped, a comment gives the reason. The IPv4 and TCP headers are derived from the
//! simulated segments, so that Wireshark's TCP analysis works. Datagrams are written as UDP. The
//! payload is omitted.

mod headers;
mod sequence;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use ccplane_qdisc::DropReason;
use ccplane_units::Time;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use crate::trace::{LinkStep, PacketEvent, Tracer};
use crate::{LinkId, Network};
use headers::HeaderBuilder;

/// Timestamp resolution of 10^-9 s (option if_tsresol, draft-ietf-opsawg-pcapng, section 4.2).
const TIMESTAMP_RESOLUTION_NS: u8 = 9;

/// Minimum and default snapshot length, bytes: IPv4 and TCP headers with the maximum of options.
const SNAPLEN_MIN: u32 = 100;

/// Tracer that logs packets at selected links.
///
/// ```no_run
/// use ccplane_sim::{LinkSpec, PacketLog, SimOptions, Simulation, topology};
/// use ccplane_units::{Duration, Rate};
///
/// let access = LinkSpec::new(Rate::from_bits_per_sec(1_000_000_000), Duration::ZERO);
/// let link = LinkSpec::new(Rate::from_bits_per_sec(96_000_000), Duration::from_millis(10));
/// let network = topology::dumbbell(1, &access, link.clone(), link)?;
/// let bottleneck = network.find_link("bottleneck").expect("it has one");
/// let file = std::fs::File::create("bottleneck.pcapng")?;
/// let log = PacketLog::new(std::io::BufWriter::new(file), &network, &[bottleneck])?;
/// let mut simulation = Simulation::with_tracer(network, SimOptions::default(), log)?;
/// // Flows, run_until …
/// let (_file, packets) = simulation.into_tracer().finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PacketLog<W: Write> {
    writer: PcapNgWriter<W>,
    /// Interface of each link.
    interfaces: Vec<Option<u32>>,
    headers: HeaderBuilder,
    snaplen: u32,
    /// Packets in order of arrival, starting with the first whose fate is unknown.
    pending: VecDeque<PendingRecord>,
    /// Sequence number of each packet whose fate is unknown.
    pending_numbers: BTreeMap<u32, u64>,
    packets: u64,
    /// First error; nothing is written after it.
    error: Option<PcapError>,
}

/// Packet to be written.
#[derive(Debug)]
struct PendingRecord {
    arrival: Time,
    interface: u32,
    headers: Vec<u8>,
    length: u32,
    is_resolved: bool,
    comment: Option<&'static str>,
}

/// Maximum number of packets held back by a packet of unknown fate, about 150 bytes each. Beyond
/// it, that packet is written without a comment.
const PENDING_PACKETS_MAX: usize = 1 << 20;

impl<W: Write> std::fmt::Debug for PacketLog<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketLog")
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

/// Error from writing a packet log.
#[derive(Debug, thiserror::Error)]
pub enum PacketLogError {
    /// Writing to the file failed.
    #[error(
        "the packet log could not be written after {packets} packets: {why}; check the free space \
         of its disk"
    )]
    Write {
        /// Packets in the file.
        packets: u64,
        /// Error from the writer.
        why: String,
    },
    /// A link belongs to another network.
    #[error("link {number} cannot be logged; the network has {count} links")]
    UnknownLink {
        /// Number of the link.
        number: usize,
        /// Number of links in the network.
        count: usize,
    },
}

impl<W: Write> PacketLog<W> {
    /// Creates a log of these links with the headers of each packet.
    pub fn new(
        writer: W,
        network: &Network,
        links: &[LinkId],
    ) -> Result<PacketLog<W>, PacketLogError> {
        PacketLog::with_snaplen(writer, network, links, SNAPLEN_MIN)
    }

    /// Creates a log with up to `snaplen` bytes of each packet, but at least all headers. The
    /// payload is zeros, as in the simulation.
    pub fn with_snaplen(
        writer: W,
        network: &Network,
        links: &[LinkId],
        snaplen: u32,
    ) -> Result<PacketLog<W>, PacketLogError> {
        let snaplen = snaplen.max(SNAPLEN_MIN);
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(
                "ccplane",
            ))],
            ..SectionHeaderBlock::default()
        };
        let refused = |error: PcapError| PacketLogError::Write {
            packets: 0,
            why: error_reason(&error),
        };
        let mut writer = PcapNgWriter::with_section_header(writer, section).map_err(refused)?;
        let count = network.links().len();
        let mut interfaces = vec![None; count];
        for (number, link) in (0..).zip(links) {
            let interface =
                interfaces
                    .get_mut(link.index())
                    .ok_or(PacketLogError::UnknownLink {
                        number: link.index(),
                        count,
                    })?;
            *interface = Some(number);
            let mut options = vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(network.link_name(*link))),
                InterfaceDescriptionOption::IfTsResol(TIMESTAMP_RESOLUTION_NS),
            ];
            let rate = network.spec(*link).and_then(|spec| spec.line.mean_rate());
            options
                .extend(rate.map(|rate| InterfaceDescriptionOption::IfSpeed(rate.bits_per_sec())));
            let interface = InterfaceDescriptionBlock {
                // libpcap (1.10) rejects a second interface with LINKTYPE_RAW.
                linktype: DataLink::IPV4,
                snaplen,
                options,
            };
            writer.write_pcapng_block(interface).map_err(refused)?;
        }
        Ok(PacketLog {
            writer,
            interfaces,
            headers: HeaderBuilder::default(),
            snaplen,
            pending: VecDeque::new(),
            pending_numbers: BTreeMap::new(),
            packets: 0,
            error: None,
        })
    }

    /// Returns the number of packets written; packets of unknown fate are not written yet.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Flushes and returns the writer and the number of packets written, or the first error.
    pub fn finish(mut self) -> Result<(W, u64), PacketLogError> {
        // Packets still in flight were not dropped.
        while let Some(packet) = self.pending.pop_front() {
            self.write(packet);
        }
        let packets = self.packets;
        let failed = |why| PacketLogError::Write { packets, why };
        if let Some(error) = &self.error {
            return Err(failed(error_reason(error)));
        }
        let mut writer = self.writer.into_inner();
        match writer.flush() {
            Ok(()) => Ok((writer, packets)),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Records a packet that reached a watched link.
    fn on_arrival(&mut self, now: Time, interface: u32, seen: &PacketEvent<'_>) {
        let (headers, length) = self.headers.build(seen);
        self.pending_numbers
            .insert(seen.id, self.packets + self.pending.len() as u64);
        self.pending.push_back(PendingRecord {
            arrival: now,
            interface,
            headers,
            length,
            is_resolved: false,
            comment: None,
        });
    }

    /// Records the fate of a packet, and writes all packets that waited for it.
    fn resolve(&mut self, id: u32, comment: Option<&'static str>) {
        let place = self
            .pending_numbers
            .remove(&id)
            .and_then(|before| before.checked_sub(self.packets));
        if let Some(packet) = place.and_then(|place| self.pending.get_mut(place as usize)) {
            (packet.is_resolved, packet.comment) = (true, comment);
        }
        while let Some(first) = self.pending.front()
            && (first.is_resolved || self.pending.len() > PENDING_PACKETS_MAX)
            && let Some(packet) = self.pending.pop_front()
        {
            self.write(packet);
        }
    }

    fn write(&mut self, packet: PendingRecord) {
        if self.error.is_some() {
            return;
        }
        let mut data = packet.headers;
        data.resize(self.snaplen.min(packet.length) as usize, 0);
        let comment = packet
            .comment
            .map(|comment| EnhancedPacketOption::Comment(comment.into()));
        let block = EnhancedPacketBlock {
            interface_id: packet.interface,
            timestamp: packet.arrival.since(Time::ZERO).to_std(),
            original_len: packet.length,
            data: Cow::Owned(data),
            options: comment.into_iter().collect(),
        };
        match self.writer.write_pcapng_block(block) {
            Ok(_) => self.packets += 1,
            Err(error) => self.error = Some(error),
        }
    }
}

impl<W: Write> Tracer for PacketLog<W> {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        // Learns the sequence numbers from all links, because ACKs that pass here refer to them.
        self.headers.record_segment(seen);
        let interface = self.interfaces.get(seen.link.index()).copied().flatten();
        let Some(interface) = interface.filter(|_| self.error.is_none()) else {
            return;
        };
        match seen.step {
            LinkStep::Queued => self.on_arrival(now, interface, seen),
            LinkStep::Arrived => self.resolve(seen.id, None),
            LinkStep::Dropped(why) => {
                if !self.pending_numbers.contains_key(&seen.id) {
                    self.on_arrival(now, interface, seen);
                }
                self.resolve(seen.id, Some(drop_comment(why)));
            }
        }
    }
}

fn error_reason(error: &PcapError) -> String {
    match error {
        PcapError::IoError(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Returns the comment of a dropped packet.
fn drop_comment(why: DropReason) -> &'static str {
    match why {
        DropReason::Full => "dropped: the queue was full",
        DropReason::PushedOut => "dropped: pushed out of the queue",
        DropReason::TooLarge => "dropped: too large for the queue",
        DropReason::Aqm => "dropped by active queue management",
        DropReason::Policed => "dropped by a policer",
        DropReason::Lost => "lost at random, or the link was down",
        _ => "dropped",
    }
}

#[cfg(test)]
mod tests;
