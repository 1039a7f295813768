//! IPv4, TCP and UDP headers for simulated packets.

use std::collections::BTreeMap;

use ccplane_qdisc::{Ecn, marking};
use ccplane_transport::{Segment, SegmentKind, SideData};
use etherparse::{IpDscp, IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement, UdpHeader};

use super::sequence::Sequence;
use crate::trace::PacketEvent;
use crate::{FlowId, NodeId, address};

/// Length of the IPv4 header, of the TCP header, and of TCP's options at most, bytes.
const IPV4_HEADER_BYTES: u32 = 20;
const TCP_HEADER_BYTES: u32 = 20;
const TCP_OPTIONS_BYTES_MAX: usize = 40;

/// Window scale, the maximum of RFC 7323 (section 2.3): windows up to 1 GB in steps of 2^14 bytes.
const WINDOW_SCALE: u8 = 14;

/// Destination port of datagrams (discard, RFC 863).
const DISCARD_PORT: u16 = 9;

/// Builds headers. It keeps the mapping from packet numbers to sequence numbers of each flow.
#[derive(Debug, Default)]
pub(super) struct HeaderBuilder {
    flows: BTreeMap<FlowId, Directions>,
    /// Counter for the IP identification field.
    identification: u16,
}

#[derive(Debug, Default)]
struct Directions {
    forward: Sequence,
    backward: Sequence,
    /// CE packet counts of the last ACKs, of forward and backward data.
    last_ce_counts: [u32; 2],
}

impl Directions {
    fn sequence(&mut self, backward: bool) -> &mut Sequence {
        if backward {
            &mut self.backward
        } else {
            &mut self.forward
        }
    }
}

impl HeaderBuilder {
    /// Records the packet number and stream offset of a segment.
    pub fn record_segment(&mut self, seen: &PacketEvent<'_>) {
        let Some(flow) = seen.flow else { return };
        let segment = seen.segment;
        let sequence = self.flows.entry(flow).or_default().sequence(seen.backward);
        match segment.kind {
            SegmentKind::Open | SegmentKind::OpenReply => sequence.set_first_number(segment.number),
            SegmentKind::Data => {
                let length = u64::from(segment.length);
                sequence.record_segment(
                    segment.number,
                    segment.offset(),
                    length,
                    segment.has_flag(Segment::FIN_FLAG),
                );
            }
            SegmentKind::Ack
            | SegmentKind::Abort
            | SegmentKind::PathProbe
            | SegmentKind::PathReply => {}
        }
    }

    /// Returns the headers of a packet and its total length.
    pub fn build(&mut self, seen: &PacketEvent<'_>) -> (Vec<u8>, u32) {
        self.identification = self.identification.wrapping_add(1);
        match seen.flow {
            Some(flow) => self.tcp(flow, seen),
            None => self.udp(seen),
        }
    }

    fn tcp(&mut self, flow: FlowId, seen: &PacketEvent<'_>) -> (Vec<u8>, u32) {
        let segment = seen.segment;
        let opens = matches!(segment.kind, SegmentKind::Open | SegmentKind::OpenReply);
        let directions = self.flows.entry(flow).or_default();
        // An ACK refers to the data of the opposite direction.
        let acked = directions.sequence(!seen.backward);
        let ack = acked.sequence_number(segment.ack) as u32;
        let ranges = seen.side.map_or(vec![], |side| sack_ranges(side, acked));
        let sequence = match opens {
            true => 0,
            false => directions
                .sequence(seen.backward)
                .sequence_number(segment.number) as u32,
        };
        let told = &mut directions.last_ce_counts[usize::from(seen.backward)];
        let marks = segment.ce_packets != *told;
        *told = segment.ce_packets;

        let (client, server) = (
            address::client_port(flow.index() as u32),
            address::SERVER_PORT,
        );
        let (source, destination) = if seen.backward {
            (server, client)
        } else {
            (client, server)
        };
        // The window of a SYN is never scaled (RFC 7323, section 2.2).
        let scale = if opens { 0 } else { WINDOW_SCALE };
        let window = u16::try_from(segment.window >> scale).unwrap_or(u16::MAX);
        let mut tcp = TcpHeader::new(source, destination, sequence, window);
        tcp.syn = opens;
        tcp.ack = segment.kind != SegmentKind::Open;
        tcp.acknowledgment_number = if tcp.ack { ack } else { 0 };
        tcp.fin = segment.kind == SegmentKind::Data && segment.has_flag(Segment::FIN_FLAG);
        tcp.psh = tcp.fin;
        tcp.rst = segment.kind == SegmentKind::Abort;
        // As a DCTCP receiver does: ECE is set on ACKs that report new marks (RFC 8257, section
        // 3.2).
        tcp.ece = marks;
        let payload = if segment.kind == SegmentKind::Data {
            u32::from(segment.length)
        } else {
            0
        };
        // Pads the options to the simulated header size, so that the packet keeps its length.
        let fill = (seen
            .bytes
            .saturating_sub(payload + IPV4_HEADER_BYTES + TCP_HEADER_BYTES)
            as usize)
            .min(TCP_OPTIONS_BYTES_MAX);
        let options = options(segment, opens, ranges);
        let used: usize = options.iter().map(option_length).sum();
        // The options fit: four ranges take 36 bytes, the options of a SYN 10.
        if tcp.set_options(&options).is_ok() {
            let mut raw = tcp
                .options
                .as_slice()
                .get(..used)
                .unwrap_or_default()
                .to_vec();
            pad_options(&mut raw, fill.max(used.next_multiple_of(4)));
            if tcp.set_options_raw(&raw).is_err() {
                tcp.set_options(&[]).ok();
            }
        }

        let length = tcp.header_len() as u32 + payload;
        let ip = self.ip(seen, IpNumber::TCP, length);
        if let Ok(checksum) = tcp.calc_checksum_ipv4(&ip, zero_payload(payload)) {
            tcp.checksum = checksum;
        }
        let mut bytes = ip.to_bytes().to_vec();
        bytes.extend_from_slice(&tcp.to_bytes());
        (bytes, IPV4_HEADER_BYTES + length)
    }

    fn udp(&self, seen: &PacketEvent<'_>) -> (Vec<u8>, u32) {
        let length = seen
            .bytes
            .saturating_sub(IPV4_HEADER_BYTES)
            .max(UdpHeader::LEN as u32);
        let ip = self.ip(seen, IpNumber::UDP, length);
        let source = address::FIRST_CLIENT_PORT as u16;
        let mut bytes = ip.to_bytes().to_vec();
        if let Ok(udp) = UdpHeader::with_ipv4_checksum(
            source,
            DISCARD_PORT,
            &ip,
            zero_payload(length - UdpHeader::LEN as u32),
        ) {
            bytes.extend_from_slice(&udp.to_bytes());
        }
        (bytes, IPV4_HEADER_BYTES + length)
    }

    fn ip(&self, seen: &PacketEvent<'_>, protocol: IpNumber, length: u32) -> Ipv4Header {
        let length = u16::try_from(length).unwrap_or(u16::MAX - IPV4_HEADER_BYTES as u16);
        let mut ip = Ipv4Header {
            total_len: IPV4_HEADER_BYTES as u16 + length,
            identification: self.identification,
            dont_fragment: true,
            time_to_live: 64,
            protocol,
            source: address(seen.from),
            destination: address(seen.to),
            ecn: match seen.segment.ecn {
                Ecn::NotEct => IpEcn::ZERO,
                Ecn::Ect1 => IpEcn::ONE,
                Ecn::Ect0 => IpEcn::TWO,
                Ecn::Ce => IpEcn::THREE,
            },
            dscp: dscp(seen.segment.band),
            ..Ipv4Header::default()
        };
        ip.header_checksum = ip.calc_header_checksum();
        ip
    }
}

fn zero_payload(length: u32) -> &'static [u8] {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    ZEROS.get(..length as usize).unwrap_or(&ZEROS)
}

/// Returns the TCP options of a segment.
fn options(segment: &Segment, opens: bool, mut ranges: Vec<(u32, u32)>) -> Vec<TcpOptionElement> {
    if opens {
        return vec![
            TcpOptionElement::MaximumSegmentSize(segment.length),
            TcpOptionElement::WindowScale(WINDOW_SCALE),
            TcpOptionElement::Noop,
            TcpOptionElement::SelectiveAcknowledgementPermitted,
        ];
    }
    if ranges.is_empty() {
        return vec![];
    }
    let first = ranges.remove(0);
    let mut others = ranges.into_iter();
    let others = [others.next(), others.next(), others.next()];
    vec![
        TcpOptionElement::Noop,
        TcpOptionElement::Noop,
        TcpOptionElement::SelectiveAcknowledgement(first, others),
    ]
}

/// Pads the options to `length` bytes. Wireshark interprets four NOPs in a row as options removed
/// by a router, so more than three bytes become one option of the experimental kind 253 (RFC 4727)
/// with an unassigned identifier.
fn pad_options(options: &mut Vec<u8>, length: usize) {
    const OPTION_KIND_EXPERIMENT: u8 = 253;
    const OPTION_KIND_NOP: u8 = 1;
    let missing = length.saturating_sub(options.len());
    if missing > 3 {
        options.extend([OPTION_KIND_EXPERIMENT, missing as u8]);
        options.resize(length, 0);
    } else {
        options.resize(options.len() + missing, OPTION_KIND_NOP);
    }
}

fn option_length(option: &TcpOptionElement) -> usize {
    match option {
        TcpOptionElement::Noop => 1,
        TcpOptionElement::MaximumSegmentSize(_) => 4,
        TcpOptionElement::WindowScale(_) => 3,
        TcpOptionElement::SelectiveAcknowledgementPermitted => 2,
        TcpOptionElement::SelectiveAcknowledgement(_, others) => {
            10 + 8 * others.iter().flatten().count()
        }
        TcpOptionElement::Timestamp(_, _) => 10,
    }
}

/// Returns the SACK ranges as sequence numbers, with the D-SACK range first (RFC 2883, section 4).
fn sack_ranges(side: &SideData, sequence: &Sequence) -> Vec<(u32, u32)> {
    let ranges = side
        .duplicate()
        .into_iter()
        .chain(side.ranges().iter().copied());
    ranges
        .map(|range| {
            (
                sequence.sequence_number(range.start) as u32,
                sequence.sequence_number(range.end) as u32,
            )
        })
        .collect()
}

fn address(node: NodeId) -> [u8; 4] {
    address::host(node.index() as u32).octets()
}

fn dscp(class: u8) -> IpDscp {
    IpDscp::try_new(marking::dscp_of(class)).unwrap_or(IpDscp::ZERO)
}
