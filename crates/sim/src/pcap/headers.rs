//! Headers of IPv4, TCP and UDP for the simulator's packets.

use std::collections::BTreeMap;

use ccplane_qdisc::{Ecn, marking};
use ccplane_transport::{Kind, Segment, Side};
use etherparse::{IpDscp, IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement, UdpHeader};

use super::sequence::Sequence;
use crate::trace::Seen;
use crate::{FlowId, NodeId, address};

/// The IPv4 header, and TCP's with as many bytes of options as it can have.
const IP: u32 = 20;
const TCP: u32 = 20;
const MOST_OPTIONS: usize = 40;

/// Windows are shown in steps of 2^14 bytes, the largest scale of RFC 7323 (section 2.3): up to 1
/// GB.
const WINDOW_SCALE: u8 = 14;

/// Where receivers of datagrams listen.
const DISCARD_PORT: u16 = 9;

/// Makes headers. It remembers what numbers mean in each flow.
#[derive(Debug, Default)]
pub(super) struct Headers {
    flows: BTreeMap<FlowId, Directions>,
    /// Identification of the IP header, counting.
    identification: u16,
}

#[derive(Debug, Default)]
struct Directions {
    forward: Sequence,
    backward: Sequence,
    /// CE counts that the last acknowledgements told, of data forward and backward.
    told: [u32; 2],
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

impl Headers {
    /// Takes in what a packet tells about the numbers of its flow.
    pub fn learn(&mut self, seen: &Seen<'_>) {
        let Some(flow) = seen.flow else { return };
        let segment = seen.segment;
        let sequence = self.flows.entry(flow).or_default().sequence(seen.backward);
        match segment.kind {
            Kind::Open | Kind::OpenReply => sequence.begin(segment.number),
            Kind::Data => {
                let length = u64::from(segment.length);
                sequence.learn(
                    segment.number,
                    segment.offset(),
                    length,
                    segment.has(Segment::FIN),
                );
            }
            Kind::Ack | Kind::Abort | Kind::PathProbe | Kind::PathReply => {}
        }
    }

    /// A packet's headers, and the length of all of it.
    pub fn of(&mut self, seen: &Seen<'_>) -> (Vec<u8>, u32) {
        self.identification = self.identification.wrapping_add(1);
        match seen.flow {
            Some(flow) => self.tcp(flow, seen),
            None => self.udp(seen),
        }
    }

    fn tcp(&mut self, flow: FlowId, seen: &Seen<'_>) -> (Vec<u8>, u32) {
        let segment = seen.segment;
        let opens = matches!(segment.kind, Kind::Open | Kind::OpenReply);
        let directions = self.flows.entry(flow).or_default();
        // The acknowledged data goes the other way.
        let acked = directions.sequence(!seen.backward);
        let ack = acked.of(segment.ack) as u32;
        let ranges = seen.side.map_or(vec![], |side| sacked(side, acked));
        let sequence = match opens {
            true => 0,
            false => directions.sequence(seen.backward).of(segment.number) as u32,
        };
        let told = &mut directions.told[usize::from(seen.backward)];
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
        tcp.ack = segment.kind != Kind::Open;
        tcp.acknowledgment_number = if tcp.ack { ack } else { 0 };
        tcp.fin = segment.kind == Kind::Data && segment.has(Segment::FIN);
        tcp.psh = tcp.fin;
        tcp.rst = segment.kind == Kind::Abort;
        // As DCTCP's receivers do: set on the acknowledgements that tell of marks (RFC 8257,
        // section 3.2).
        tcp.ece = marks;
        let payload = if segment.kind == Kind::Data {
            u32::from(segment.length)
        } else {
            0
        };
        // What the simulator counts as headers is filled up, so that a packet is as long as it was.
        let fill = (seen.bytes.saturating_sub(payload + IP + TCP) as usize).min(MOST_OPTIONS);
        let options = options(segment, opens, ranges);
        let used: usize = options.iter().map(length).sum();
        // They fit: four ranges take 36 bytes, the options of a SYN 10.
        if tcp.set_options(&options).is_ok() {
            let mut raw = tcp
                .options
                .as_slice()
                .get(..used)
                .unwrap_or_default()
                .to_vec();
            pad(&mut raw, fill.max(used.next_multiple_of(4)));
            if tcp.set_options_raw(&raw).is_err() {
                tcp.set_options(&[]).ok();
            }
        }

        let length = tcp.header_len() as u32 + payload;
        let ip = self.ip(seen, IpNumber::TCP, length);
        if let Ok(checksum) = tcp.calc_checksum_ipv4(&ip, zeros(payload)) {
            tcp.checksum = checksum;
        }
        let mut bytes = ip.to_bytes().to_vec();
        bytes.extend_from_slice(&tcp.to_bytes());
        (bytes, IP + length)
    }

    fn udp(&self, seen: &Seen<'_>) -> (Vec<u8>, u32) {
        let length = seen.bytes.saturating_sub(IP).max(UdpHeader::LEN as u32);
        let ip = self.ip(seen, IpNumber::UDP, length);
        let source = address::FIRST_CLIENT_PORT as u16;
        let mut bytes = ip.to_bytes().to_vec();
        if let Ok(udp) = UdpHeader::with_ipv4_checksum(
            source,
            DISCARD_PORT,
            &ip,
            zeros(length - UdpHeader::LEN as u32),
        ) {
            bytes.extend_from_slice(&udp.to_bytes());
        }
        (bytes, IP + length)
    }

    fn ip(&self, seen: &Seen<'_>, protocol: IpNumber, length: u32) -> Ipv4Header {
        let length = u16::try_from(length).unwrap_or(u16::MAX - IP as u16);
        let mut ip = Ipv4Header {
            total_len: IP as u16 + length,
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

/// A payload.
fn zeros(length: u32) -> &'static [u8] {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    ZEROS.get(..length as usize).unwrap_or(&ZEROS)
}

/// What a segment says beside its fixed header.
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

/// Fills options up to `length` bytes. Four NOPs in a row would look like options that a router
/// removed, so that more than three bytes are one option of kind 253, for experiments (RFC 4727),
/// with an unassigned identifier.
fn pad(options: &mut Vec<u8>, length: usize) {
    const EXPERIMENT: u8 = 253;
    const NOP: u8 = 1;
    let missing = length.saturating_sub(options.len());
    if missing > 3 {
        options.extend([EXPERIMENT, missing as u8]);
        options.resize(length, 0);
    } else {
        options.resize(options.len() + missing, NOP);
    }
}

/// Bytes that an option takes.
fn length(option: &TcpOptionElement) -> usize {
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

/// SACK ranges in bytes; what arrived twice comes first (RFC 2883, section 4).
fn sacked(side: &Side, sequence: &Sequence) -> Vec<(u32, u32)> {
    let ranges = side
        .duplicate()
        .into_iter()
        .chain(side.ranges().iter().copied());
    ranges
        .map(|range| {
            (
                sequence.of(range.start) as u32,
                sequence.of(range.end) as u32,
            )
        })
        .collect()
}

/// A host's address.
fn address(node: NodeId) -> [u8; 4] {
    address::host(node.index() as u32).octets()
}

fn dscp(class: u8) -> IpDscp {
    IpDscp::try_new(marking::dscp_of(class)).unwrap_or(IpDscp::ZERO)
}
