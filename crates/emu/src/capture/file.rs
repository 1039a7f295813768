//! Writing a packet log: pcapng (draft-ietf-opsawg-pcapng) with one interface per direction.

use std::borrow::Cow;
use std::io::{self, Write};

use ccplane_units::Duration;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use super::read::PacketComment;
use super::{LogEntry, SNAPLEN_BYTES};
use crate::EmuConfig;
use crate::control::PathDirection;

/// Resolution of timestamps, 10^-9 s (option if_tsresol, draft-ietf-opsawg-pcapng, section 4.2).
const TIMESTAMP_RESOLUTION: u8 = 9;

/// Names of the directions, as in `emu set`.
pub(super) const INTERFACE_NAMES: [&str; 2] = ["up", "down"];

/// Writer of a packet log.
pub(super) struct CaptureWriter<W: Write> {
    file: PcapNgWriter<W>,
    wall_clock_start: std::time::Duration,
    comment: String,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the file header and the description of both directions.
    pub(super) fn new(
        file: W,
        config: &EmuConfig,
        began: Duration,
        ethernet: bool,
    ) -> io::Result<CaptureWriter<W>> {
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(
                "ccplane emu",
            ))],
            ..SectionHeaderBlock::default()
        };
        let mut file = PcapNgWriter::with_section_header(file, section).map_err(reason)?;
        for way in PathDirection::ALL {
            let link = [&config.forward, &config.reverse][way.index()];
            let mut options = vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(INTERFACE_NAMES[way.index()])),
                InterfaceDescriptionOption::IfDescription(Cow::Owned(link.to_string())),
                InterfaceDescriptionOption::IfTsResol(TIMESTAMP_RESOLUTION),
            ];
            let rate = link.line.mean_rate();
            options
                .extend(rate.map(|rate| InterfaceDescriptionOption::IfSpeed(rate.bits_per_sec())));
            let interface = InterfaceDescriptionBlock {
                // libpcap (1.10) refuses a second interface of LINKTYPE_RAW.
                linktype: if ethernet {
                    DataLink::ETHERNET
                } else {
                    DataLink::IPV4
                },
                snaplen: SNAPLEN_BYTES as u32,
                options,
            };
            file.write_pcapng_block(interface).map_err(reason)?;
        }
        let began = began.to_std();
        let words = String::new();
        Ok(CaptureWriter {
            file,
            wall_clock_start: began,
            comment: words,
        })
    }

    /// Appends a packet.
    pub(super) fn write(&mut self, entry: &LogEntry) -> io::Result<()> {
        PacketComment::from_entry(entry).write(&mut self.comment);
        let packet = EnhancedPacketBlock {
            interface_id: entry.direction.index() as u32,
            timestamp: self.wall_clock_start + entry.at.since(ccplane_units::Time::ZERO).to_std(),
            original_len: entry.bytes.into(),
            data: Cow::Borrowed(entry.head()),
            options: vec![EnhancedPacketOption::Comment(Cow::Borrowed(&self.comment))],
        };
        self.file
            .write_pcapng_block(packet)
            .map_err(reason)
            .map(|_| ())
    }

    /// Flushes the file.
    pub(super) fn finish(self) -> io::Result<()> {
        self.file.into_inner().flush()
    }
}

fn reason(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(e) => e,
        other => io::Error::other(other.to_string()),
    }
}
