//! Reading a packet log.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use ccplane_host::IpHeaders;
use ccplane_qdisc::DropReason;
use ccplane_units::{Duration, Rate, Time};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

use super::LogEntry;
use super::file::INTERFACE_NAMES;
use crate::Error;
use crate::control::PathDirection;
use ccplane_host::headers::ETHERNET_HEADER_BYTES;

/// Contents of a packet log.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Description of the link, per direction, forward first.
    pub links: [String; 2],
    /// Mean rate of the link, per direction, if it had one.
    pub rates: [Option<Rate>; 2],
    /// Packets in file order.
    pub packets: Vec<LoggedPacket>,
}

/// A packet of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoggedPacket {
    /// Direction of the packet.
    pub direction: PathDirection,
    /// Departure from the queue, since the first packet of the log; for a dropped packet, the
    /// departure of the packets of its flow ahead of it.
    pub at: Time,
    /// Time from the drop to `at`.
    pub early: Duration,
    /// Time in the queue and on the line.
    pub queued: Duration,
    /// Backlog in bytes, without this packet.
    pub backlog: u64,
    /// Reason of the drop, if the packet was dropped.
    pub dropped: Option<DropReason>,
    /// Length in bytes, including the IP header.
    pub bytes: u32,
    /// Source and destination port, 0 if it is neither TCP nor UDP.
    pub ports: [u16; 2],
}

/// Contents of a packet's comment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PacketComment {
    queued: Duration,
    early: Duration,
    backlog: u64,
    dropped: Option<DropReason>,
}

/// Names of the drop reasons in a log.
const DROP_REASON_NAMES: [(DropReason, &str); 6] = [
    (DropReason::Full, "full"),
    (DropReason::PushedOut, "pushed-out"),
    (DropReason::TooLarge, "too-large"),
    (DropReason::Aqm, "aqm"),
    (DropReason::Policed, "policed"),
    (DropReason::Lost, "lost"),
];

impl PacketComment {
    pub(super) fn from_entry(sight: &LogEntry) -> PacketComment {
        PacketComment {
            queued: sight.queued,
            early: sight.early,
            backlog: sight.backlog,
            dropped: sight.dropped,
        }
    }

    pub(super) fn write(&self, to: &mut String) {
        to.clear();
        let named = |dropped| {
            DROP_REASON_NAMES
                .iter()
                .find(|(reason, _)| *reason == dropped)
        };
        if let Some((_, name)) = self.dropped.and_then(named) {
            let _ = write!(to, "dropped={name} ");
        }
        if self.early > Duration::ZERO {
            let _ = write!(to, "early_us={} ", self.early.as_nanos() as f64 / 1e3);
        }
        let (queued, backlog) = (self.queued.as_nanos() as f64 / 1e3, self.backlog);
        let _ = write!(to, "queued_us={queued} backlog_bytes={backlog}");
    }

    fn read(text: &str) -> Option<PacketComment> {
        let mut words = PacketComment {
            queued: Duration::ZERO,
            early: Duration::ZERO,
            backlog: 0,
            dropped: None,
        };
        let duration = |us: &str| {
            let us = us
                .parse::<f64>()
                .ok()
                .filter(|us| (0.0..1e12).contains(us))?;
            Some(Duration::from_nanos((us * 1e3).round() as u64))
        };
        let mut seen = 0;
        for word in text.split_ascii_whitespace() {
            match word.split_once('=')? {
                ("queued_us", us) => {
                    words.queued = duration(us)?;
                    seen += 1;
                }
                ("early_us", us) => words.early = duration(us)?,
                ("backlog_bytes", bytes) => {
                    words.backlog = bytes.parse().ok()?;
                    seen += 1;
                }
                ("dropped", name) => {
                    words.dropped = Some(
                        DROP_REASON_NAMES
                            .iter()
                            .find(|(_, other)| *other == name)?
                            .0,
                    )
                }
                _ => return None,
            }
        }
        (seen == 2).then_some(words)
    }
}

/// Reads a packet log. A truncated file, left by a killed emulator, is read as far as it goes.
///
/// # Errors
/// The file is not a packet log. The message has the number of the offending packet.
pub fn read(path: &Path) -> Result<Capture, Error> {
    let wrong = |reason: String| Error::NoLog {
        path: path.into(),
        reason,
    };
    let file = File::open(path).map_err(|source| Error::Log {
        path: path.into(),
        source,
    })?;
    let not_ours = "create a packet log with `ccplane emu --log FILE`";
    let mut reader = PcapNgReader::new(std::io::BufReader::new(file))
        .map_err(|e| wrong(format!("not a pcapng file ({e}); {not_ours}")))?;
    let mut captured = Capture::default();
    let mut ways = Vec::new();
    let mut first = None;
    while let Some(block) = reader.next_block() {
        let number = captured.packets.len() + 1;
        let packet = match block {
            Ok(Block::EnhancedPacket(packet)) => packet,
            Ok(Block::InterfaceDescription(interface)) => {
                ways.push(parse_interface(&interface, &mut captured));
                continue;
            }
            Ok(_) => continue,
            Err(PcapError::IncompleteBuffer) => break,
            Err(PcapError::IoError(e)) if e.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(wrong(format!("packet {number}: {e}"))),
        };
        let comment = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(text) => Some(text),
            _ => None,
        });
        let words = comment.and_then(|text| PacketComment::read(text));
        let way = ways.get(packet.interface_id as usize).copied().flatten();
        let (Some(words), Some((way, lead))) = (words, way) else {
            return Err(wrong(format!(
                "packet {number} has no comment with its queueing delay, so this is not a log of \
                the emulator; {not_ours}"
            )));
        };
        let first = *first.get_or_insert(packet.timestamp);
        captured.packets.push(LoggedPacket {
            direction: way,
            at: Time::ZERO
                + Duration::from_nanos(packet.timestamp.saturating_sub(first).as_nanos() as u64),
            early: words.early,
            queued: words.queued,
            backlog: words.backlog,
            dropped: words.dropped,
            bytes: packet.original_len,
            ports: IpHeaders::parse(packet.data.get(lead..).unwrap_or_default()).ports,
        });
    }
    Ok(captured)
}

/// Returns the direction of an interface and the length of its link header. Stores its description
/// of the link.
fn parse_interface(
    interface: &InterfaceDescriptionBlock<'_>,
    captured: &mut Capture,
) -> Option<(PathDirection, usize)> {
    let name = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfName(name) => Some(name.as_ref()),
        _ => None,
    })?;
    let way = PathDirection::ALL
        .into_iter()
        .find(|way| INTERFACE_NAMES[way.index()] == name)?;
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfDescription(text) => {
                captured.links[way.index()] = text.to_string()
            }
            InterfaceDescriptionOption::IfSpeed(bits) => {
                captured.rates[way.index()] = Some(Rate::from_bits_per_sec(*bits));
            }
            _ => {}
        }
    }
    let lead = if interface.linktype == DataLink::ETHERNET {
        ETHERNET_HEADER_BYTES
    } else {
        0
    };
    Some((way, lead))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packet_logs_round_trip(
            ns in 0_u64..1 << 49,
            early in 0_u64..1 << 49,
            backlog: u64,
            drop in 0..7_usize,
        ) {
            let early = Duration::from_nanos(early);
            let queued = Duration::from_nanos(ns);
            let words = PacketComment {
                queued,
                early,
                backlog,
                dropped: DROP_REASON_NAMES.get(drop).map(|(reason, _)| *reason),
            };
            let mut text = String::from("an unrelated file");
            words.write(&mut text);
            prop_assert_eq!(PacketComment::read(&text), Some(words), "{}", text);
        }

        #[test]
        fn parsers_accept_any_text(text in ".{0,60}") {
            let _ = PacketComment::read(&text);
        }
    }

    #[test]
    fn files_that_are_not_packet_logs_are_refused() {
        let path = std::env::temp_dir().join(format!("ccplane-{}-no-log", std::process::id()));
        std::fs::write(&path, "a log without packets").expect("a temporary file");
        let refused = read(&path).expect_err("not a pcapng").to_string();
        std::fs::remove_file(&path).expect("it exists");
        assert!(
            refused.contains("not a pcapng file") && refused.contains("emu --log"),
            "{refused}"
        );
    }
}
