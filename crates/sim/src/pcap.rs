//! Packet logs that Wireshark reads.
//!
//! A [`PacketLog`] is a [`Tracer`] that writes a pcapng file with one interface for every watched
//! link. Each packet appears once, with the time at which it reached the link's queue, in ns. Where
//! it was dropped, then or later, a comment says why. Packets get IPv4 and TCP headers that say
//! what the simulator's packets say, so Wireshark's TCP analysis works. Datagrams are UDP. There is
//! no payload.

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

use crate::trace::{Seen, Step, Tracer};
use crate::{LinkId, Network};
use headers::Headers;

/// Time stamps count 10^-9 s (option if_tsresol, draft-ietf-opsawg-pcapng, section 4.2).
const NANOSECONDS: u8 = 9;

/// The smallest and usual number of bytes kept of a packet: headers of IPv4 and TCP with all the
/// options that there are take 100.
const SNAPLEN: u32 = 100;

/// Writes what happens to packets at some links.
///
/// ```no_run
/// use ccplane_sim::{LinkSpec, PacketLog, SimOptions, Simulation, topology};
/// use ccplane_units::{Duration, Rate};
///
/// let access = LinkSpec::new(Rate::from_bits_per_sec(1_000_000_000), Duration::ZERO);
/// let link = LinkSpec::new(Rate::from_bits_per_sec(96_000_000), Duration::from_millis(10));
/// let network = topology::dumbbell(1, &access, link.clone(), link)?;
/// let bottleneck = network.link_named("bottleneck").expect("it has one");
/// let file = std::fs::File::create("bottleneck.pcapng")?;
/// let log = PacketLog::new(std::io::BufWriter::new(file), &network, &[bottleneck])?;
/// let mut simulation = Simulation::with_tracer(network, SimOptions::default(), log)?;
/// // Flows, run_until …
/// let (_file, packets) = simulation.into_tracer().finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PacketLog<W: Write> {
    writer: PcapNgWriter<W>,
    /// Of each link: its interface.
    interfaces: Vec<Option<u32>>,
    headers: Headers,
    snaplen: u32,
    /// Packets in the order of their coming, from the first whose fate is not known.
    waiting: VecDeque<Waiting>,
    /// Of each packet whose fate is not known: how many came before it.
    undecided: BTreeMap<u32, u64>,
    packets: u64,
    /// The first thing that went wrong: nothing is written after it.
    error: Option<PcapError>,
}

/// A packet to be written.
#[derive(Debug)]
struct Waiting {
    came: Time,
    interface: u32,
    headers: Vec<u8>,
    length: u32,
    decided: bool,
    comment: Option<&'static str>,
}

/// So many packets may wait for the fate of one, at some 150 bytes each; then that one is written
/// without.
const MOST_WAITING: usize = 1 << 20;

impl<W: Write> std::fmt::Debug for PacketLog<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketLog")
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

/// Why a packet log could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PacketLogError {
    /// The file took no more.
    #[error(
        "the packet log could not be written after {packets} packets: {why}; look for room on its disk"
    )]
    Write {
        /// Packets that are in the file.
        packets: u64,
        /// What the writer said.
        why: String,
    },
    /// A link of another network.
    #[error("there is no link {number} to log; the network has {count}")]
    UnknownLink {
        /// Its number.
        number: usize,
        /// How many there are.
        count: usize,
    },
}

impl<W: Write> PacketLog<W> {
    /// A log of these links of a network, with the headers of each packet.
    pub fn new(
        writer: W,
        network: &Network,
        links: &[LinkId],
    ) -> Result<PacketLog<W>, PacketLogError> {
        PacketLog::with_snaplen(writer, network, links, SNAPLEN)
    }

    /// The same with up to so many bytes of each packet, at least all the headers; beyond them are
    /// zeros, as in the payloads of the simulation.
    pub fn with_snaplen(
        writer: W,
        network: &Network,
        links: &[LinkId],
        snaplen: u32,
    ) -> Result<PacketLog<W>, PacketLogError> {
        let snaplen = snaplen.max(SNAPLEN);
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(
                "ccplane",
            ))],
            ..SectionHeaderBlock::default()
        };
        let refused = |error: PcapError| PacketLogError::Write {
            packets: 0,
            why: reason(&error),
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
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ];
            let rate = network.spec(*link).and_then(|spec| spec.line.mean_rate());
            options
                .extend(rate.map(|rate| InterfaceDescriptionOption::IfSpeed(rate.bits_per_sec())));
            let interface = InterfaceDescriptionBlock {
                // Not LINKTYPE_RAW: libpcap (1.10) refuses a second interface of that type.
                linktype: DataLink::IPV4,
                snaplen,
                options,
            };
            writer.write_pcapng_block(interface).map_err(refused)?;
        }
        Ok(PacketLog {
            writer,
            interfaces,
            headers: Headers::default(),
            snaplen,
            waiting: VecDeque::new(),
            undecided: BTreeMap::new(),
            packets: 0,
            error: None,
        })
    }

    /// How many packets were written; those whose fate is open are not yet.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Gives the writer back, flushed, with the number of packets written; or the first error since
    /// the beginning.
    pub fn finish(mut self) -> Result<(W, u64), PacketLogError> {
        // What is still on its way at the end has no other fate.
        while let Some(packet) = self.waiting.pop_front() {
            self.write(packet);
        }
        let packets = self.packets;
        let failed = |why| PacketLogError::Write { packets, why };
        if let Some(error) = &self.error {
            return Err(failed(reason(error)));
        }
        let mut writer = self.writer.into_inner();
        match writer.flush() {
            Ok(()) => Ok((writer, packets)),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// A packet comes to a link.
    fn came(&mut self, now: Time, interface: u32, seen: &Seen<'_>) {
        let (headers, length) = self.headers.of(seen);
        self.undecided
            .insert(seen.id, self.packets + self.waiting.len() as u64);
        self.waiting.push_back(Waiting {
            came: now,
            interface,
            headers,
            length,
            decided: false,
            comment: None,
        });
    }

    /// Its fate is known; whatever waited only for it is written.
    fn decided(&mut self, id: u32, comment: Option<&'static str>) {
        let place = self
            .undecided
            .remove(&id)
            .and_then(|before| before.checked_sub(self.packets));
        if let Some(packet) = place.and_then(|place| self.waiting.get_mut(place as usize)) {
            (packet.decided, packet.comment) = (true, comment);
        }
        while let Some(first) = self.waiting.front()
            && (first.decided || self.waiting.len() > MOST_WAITING)
            && let Some(packet) = self.waiting.pop_front()
        {
            self.write(packet);
        }
    }

    fn write(&mut self, packet: Waiting) {
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
            timestamp: packet.came.since(Time::ZERO).to_std(),
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
    fn see(&mut self, now: Time, seen: &Seen<'_>) {
        // Everything that passes anywhere tells how segments are numbered, for the acknowledgements
        // that pass here.
        self.headers.learn(seen);
        let interface = self.interfaces.get(seen.link.index()).copied().flatten();
        let Some(interface) = interface.filter(|_| self.error.is_none()) else {
            return;
        };
        match seen.step {
            Step::Queued => self.came(now, interface, seen),
            Step::Arrived => self.decided(seen.id, None),
            Step::Dropped(why) => {
                if !self.undecided.contains_key(&seen.id) {
                    self.came(now, interface, seen);
                }
                self.decided(seen.id, Some(told(why)));
            }
        }
    }
}

/// Why a file could not be written.
fn reason(error: &PcapError) -> String {
    match error {
        PcapError::IoError(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// What a dropped packet's comment says.
fn told(why: DropReason) -> &'static str {
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
