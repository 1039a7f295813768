//! Reads logs back with a pcapng reader, a header parser, and tshark where it is installed.

use std::collections::{BTreeMap, HashSet};
use std::process::Command;

use ccplane_qdisc::{LossModel, QueueSpec};
use ccplane_units::{Duration, Rate};
use etherparse::{NetHeaders, PacketHeaders, TcpOptionElement, TransportHeader};
use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;
use crate::topology;
use crate::{
    AppId, Carrier, Duty, FlowControl, FlowSpec, LinkSpec, Native, Pairs, SimOptions, Simulation,
    Workload, WorkloadSpec,
};

#[derive(Debug)]
struct CapturedPacket {
    interface: u32,
    at: u64,
    length: u32,
    captured: Vec<u8>,
    comment: Option<String>,
}

/// Returns the names of the interfaces and the packets.
fn read(log: &[u8]) -> (Vec<String>, Vec<CapturedPacket>) {
    let mut reader = PcapNgReader::new(log).expect("a pcapng header");
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.expect("every block is valid").into_owned() {
            Block::InterfaceDescription(interface) => {
                assert_eq!(interface.linktype, DataLink::IPV4);
                assert!(
                    interface
                        .options
                        .contains(&InterfaceDescriptionOption::IfTsResol(9))
                );
                names.extend(interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                }));
            }
            Block::EnhancedPacket(packet) => packets.push(CapturedPacket {
                interface: packet.interface_id,
                at: packet.timestamp.as_nanos() as u64,
                length: packet.original_len,
                captured: packet.data.into_owned(),
                comment: packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(comment) => Some(comment.to_string()),
                    _ => None,
                }),
            }),
            other => panic!("nothing else is written: {other:?}"),
        }
    }
    (names, packets)
}

/// Two flows of 300 kB over 10 Mbit/s and a queue of 15 packets, with random loss on the reverse
/// path, and some datagrams.
fn lossy() -> (Simulation<PacketLog<Vec<u8>>>, [LinkId; 2], AppId) {
    let ms = Duration::from_millis;
    let forward = LinkSpec::new(Rate::from_bits_per_sec(10_000_000), ms(10)).with_queue(
        "droptail:15p".parse::<QueueSpec>().expect("a queue"),
        ms(20),
    );
    let back = LinkSpec::wire(ms(10)).with_loss("1%".parse::<LossModel>().expect("a loss model"));
    let network = topology::dumbbell(2, &LinkSpec::wire(Duration::ZERO), forward, back)
        .expect("a valid network");
    let links =
        ["bottleneck", "reverse"].map(|name| network.find_link(name).expect("the link exists"));
    let log = PacketLog::new(Vec::new(), &network, &links).expect("writing to memory succeeds");
    let mut sim =
        Simulation::with_tracer(network, SimOptions::default(), log).expect("a valid network");
    let host =
        |sim: &Simulation<_>, name: &str| sim.network().find_node(name).expect("the host exists");
    for n in 1..=2 {
        let (from, to) = (
            host(&sim, &format!("left{n}")),
            host(&sim, &format!("right{n}")),
        );
        sim.add_flow(FlowSpec::new(from, to).with_bytes(300_000))
            .expect("a valid flow");
    }
    let cross = WorkloadSpec {
        name: "cross".into(),
        pairs: Pairs::one(host(&sim, "left1"), host(&sim, "right2")),
        kind: Workload::Paced {
            rate: Rate::from_bits_per_sec(800_000),
            duty: Duty::Always,
            carrier: Carrier::Datagrams {
                bytes: 1_000,
                poisson: false,
            },
        },
        start: Time::ZERO,
        stop: Some(Time::ZERO + Duration::from_secs(1)),
    };
    let cross = sim
        .add_workload(
            cross,
            FlowControl::Native(Native::cubic()),
            crate::default_transport(),
        )
        .expect("a valid workload");
    sim.run_until(Time::ZERO + Duration::from_secs(10))
        .expect("the run succeeds");
    (sim, links, cross)
}

#[test]
fn what_is_logged_is_what_happened() {
    let (sim, links, cross) = lossy();
    let views = links.map(|link| sim.link(link).expect("the link exists"));
    let flows: Vec<_> = sim.flows().filter_map(|flow| sim.flow(flow)).collect();
    let datagrams = sim.datagram_stats(cross);
    let (log, written) = sim
        .into_tracer()
        .finish()
        .expect("writing to memory succeeds");
    let (names, packets) = read(&log);
    assert_eq!(names, ["bottleneck", "reverse"]);
    assert_eq!(packets.len() as u64, written);
    assert!(packets.windows(2).all(|pair| pair[0].at <= pair[1].at));
    for (interface, view) in (0..).zip(&views) {
        let here = || {
            packets
                .iter()
                .filter(move |packet| packet.interface == interface)
        };
        let through = here().filter(|packet| packet.comment.is_none()).count() as u64;
        let said = |what: &str| {
            here()
                .filter(|packet| packet.comment.as_deref() == Some(what))
                .count() as u64
        };
        assert_eq!(through, view.delivered);
        assert_eq!(said("dropped: the queue was full"), view.queue_drops);
        assert_eq!(said("lost at random, or the link was down"), view.losses);
        assert_eq!(here().count() as u64, view.arrived);
    }
    assert!(
        views[0].queue_drops > 10 && views[1].losses > 0,
        "{views:?}"
    );

    let (mut udp, mut syns, mut fins) = (0, 0, 0);
    for packet in &packets {
        assert!(packet.captured.len() <= 100 && packet.length as usize >= packet.captured.len());
        let headers = PacketHeaders::from_ip_slice_lax(packet);
        match headers.1 {
            TransportHeader::Udp(header) => {
                udp += u64::from(packet.comment.is_none());
                assert_eq!((packet.length, header.length), (1_000, 980));
            }
            TransportHeader::Tcp(header) => {
                syns += u64::from(header.syn && !header.ack);
                fins += u64::from(header.fin);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(udp, datagrams.received);
    assert!(syns >= 2 && fins >= 4, "{syns} {fins}");
    assert!(flows.iter().all(|flow| flow.finished.is_some()));
}

/// Parser for headers of truncated packets; verifies the checksums.
trait HeaderFields {
    fn from_ip_slice_lax(packet: &CapturedPacket) -> (etherparse::Ipv4Header, TransportHeader);
}

impl HeaderFields for PacketHeaders<'_> {
    fn from_ip_slice_lax(packet: &CapturedPacket) -> (etherparse::Ipv4Header, TransportHeader) {
        // The truncated payload is zeros.
        let mut whole = packet.captured.clone();
        whole.resize(packet.length as usize, 0);
        let headers = PacketHeaders::from_ip_slice(&whole).expect("valid headers");
        let (Some(NetHeaders::Ipv4(ip, _)), Some(transport)) = (headers.net, headers.transport)
        else {
            panic!("neither TCP nor UDP");
        };
        assert_eq!(u32::from(ip.total_len), packet.length);
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        let payload = headers.payload.slice();
        match &transport {
            TransportHeader::Tcp(tcp) => {
                assert_eq!(Ok(tcp.checksum), tcp.calc_checksum_ipv4(&ip, payload))
            }
            TransportHeader::Udp(udp) => {
                assert_eq!(Ok(udp.checksum), udp.calc_checksum_ipv4(&ip, payload))
            }
            other => panic!("{other:?}"),
        }
        (ip, transport)
    }
}

/// One direction of a connection in a log.
#[derive(Debug, Default)]
struct Stream {
    /// Highest sequence numbers sent and acknowledged.
    sent: u32,
    acked: u32,
    repeated: u32,
}

#[test]
fn sequence_numbers_and_acknowledgements_fit() {
    let (sim, _, _) = lossy();
    let retransmitted: u64 = sim
        .flows()
        .filter_map(|flow| sim.flow(flow))
        .map(|view| view.retransmitted)
        .sum();
    let (log, _) = sim
        .into_tracer()
        .finish()
        .expect("writing to memory succeeds");
    let mut streams: BTreeMap<(u16, u16), Stream> = BTreeMap::new();
    let (mut sacks, mut sizes) = (0, BTreeMap::new());
    for packet in read(&log).1 {
        let (_, TransportHeader::Tcp(tcp)) = PacketHeaders::from_ip_slice_lax(&packet) else {
            continue;
        };
        *sizes.entry(packet.length).or_insert(0) += 1;
        assert!(
            !tcp.options.as_slice().windows(4).any(|four| four == [1; 4]),
            "{tcp:?}"
        );
        let payload = packet.length - 20 - tcp.header_len() as u32;
        let ends = (tcp.source_port, tcp.destination_port);
        let stream = streams.entry(ends).or_default();
        let end = tcp.sequence_number + payload + u32::from(tcp.syn) + u32::from(tcp.fin);
        // The log also has the lost packets, so new data must follow the data sent before without a
        // gap.
        if end > tcp.sequence_number {
            stream.repeated += u32::from(end <= stream.sent);
            assert!(tcp.sequence_number <= stream.sent, "{packet:?}");
            stream.sent = stream.sent.max(end);
        } else {
            assert!(tcp.sequence_number <= stream.sent, "{tcp:?} {stream:?}");
        }
        if tcp.syn {
            let options: Vec<_> = tcp.options_iterator().flatten().collect();
            assert_eq!(
                options[..2],
                [
                    TcpOptionElement::MaximumSegmentSize(1_448),
                    TcpOptionElement::WindowScale(14)
                ]
            );
            assert!(options.contains(&TcpOptionElement::SelectiveAcknowledgementPermitted));
        }
        if !tcp.ack {
            continue;
        }
        let other = streams.entry((ends.1, ends.0)).or_default();
        assert!(tcp.acknowledgment_number <= other.sent, "{tcp:?} {other:?}");
        other.acked = other.acked.max(tcp.acknowledgment_number);
        for option in tcp.options_iterator().flatten() {
            if let TcpOptionElement::SelectiveAcknowledgement(first, others) = option {
                sacks += 1;
                for (from, to) in std::iter::once(first).chain(others.into_iter().flatten()) {
                    assert!(from < to && to <= other.sent, "{tcp:?} {other:?}");
                }
            }
        }
    }
    assert_eq!(streams.len(), 4);
    let mut repeated = 0;
    for ((from, _), stream) in &streams {
        // SYN, data and FIN.
        let bytes = if *from == SERVER { 0 } else { 300_000 };
        assert_eq!(
            (stream.sent, stream.acked),
            (bytes + 2, bytes + 2),
            "{from}"
        );
        repeated += u64::from(stream.repeated);
    }
    assert!(
        repeated >= retransmitted && repeated <= retransmitted + 4,
        "{repeated} {retransmitted}"
    );
    assert!(sacks > 10, "{sacks}");
    // Full-sized segments and ACKs have their simulated sizes.
    assert!(sizes[&1_500] >= 400 && sizes[&52] > 100, "{sizes:?}");
}

const SERVER: u16 = 5_201;

#[test]
fn a_longer_snaplen_keeps_zeros() {
    let network = {
        let wire = LinkSpec::wire(Duration::from_millis(1));
        topology::dumbbell(1, &wire, wire.clone(), wire.clone()).expect("a valid network")
    };
    let link = network.find_link("bottleneck").expect("the link exists");
    let log = PacketLog::with_snaplen(Vec::new(), &network, &[link], 400)
        .expect("writing to memory succeeds");
    let (left, right) = (
        network.find_node("left1").expect("a host"),
        network.find_node("right1").expect("a host"),
    );
    let mut sim =
        Simulation::with_tracer(network, SimOptions::default(), log).expect("a valid network");
    sim.add_flow(FlowSpec::new(left, right).with_bytes(1_448))
        .expect("a valid flow");
    sim.run_until(Time::ZERO + Duration::from_secs(1))
        .expect("the run succeeds");
    let (_, packets) = read(
        &sim.into_tracer()
            .finish()
            .expect("writing to memory succeeds")
            .0,
    );
    let data = packets
        .iter()
        .find(|packet| packet.length == 1_500)
        .expect("there is one");
    assert_eq!(data.captured.len(), 400);
    // The SYN reaches the link after 1 ms, the SYN-ACK the client after 6 ms, and the data the link
    // 1 ms later.
    assert_eq!((packets[0].at, data.at), (1_000_000, 7_000_000));
}

/// Writer that accepts a limited number of bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or_else(|| std::io::Error::other("no space left on device"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_at_the_end() {
    let wire = LinkSpec::wire(Duration::from_millis(1));
    let network =
        topology::dumbbell(1, &wire, wire.clone(), wire.clone()).expect("a valid network");
    let link = network.find_link("bottleneck").expect("the link exists");
    let (left, right) = (
        network.find_node("left1").expect("a host"),
        network.find_node("right1").expect("a host"),
    );
    assert!(PacketLog::new(Full(10), &network, &[link]).is_err());
    let log = PacketLog::new(Full(1_000), &network, &[link]).expect("space for the headers");
    let mut sim =
        Simulation::with_tracer(network, SimOptions::default(), log).expect("a valid network");
    sim.add_flow(FlowSpec::new(left, right).with_bytes(100_000))
        .expect("a valid flow");
    sim.run_until(Time::ZERO + Duration::from_secs(1))
        .expect("the flow fits");
    let packets = sim.tracer().packets();
    let error = sim
        .into_tracer()
        .finish()
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(packets > 3, "{packets}");
    assert!(
        error.contains(&format!("after {packets} packets")) && error.contains("no space left"),
        "{error}"
    );
}

/// tshark also reports retransmissions within one RTT as out of order; here the same bytes occur
/// earlier in the log.
#[test]
fn wireshark_finds_no_reordering_where_packets_are_dropped() {
    let (sim, _, _) = lossy();
    let (log, _) = sim
        .into_tracer()
        .finish()
        .expect("writing to memory succeeds");
    let path = std::env::temp_dir().join(format!("ccplane-order-{}.pcapng", std::process::id()));
    std::fs::write(&path, log).expect("space on the disk");
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-nr")
        .arg(&path)
        .args(["-Y", "tcp.len > 0", "-T", "fields"]);
    for field in [
        "tcp.stream",
        "tcp.seq",
        "tcp.analysis.out_of_order",
        "frame.comment",
    ] {
        tshark.args(["-e", field]);
    }
    let output = tshark.output();
    std::fs::remove_file(&path).expect("exists");
    let Ok(output) = output else {
        let skipped = "SKIPPED: wireshark_finds_no_reordering_where_packets_are_dropped: no \
                       tshark; `scripts/setup test` installs it";
        assert!(
            std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|value| value != "1"),
            "{skipped}"
        );
        eprintln!("{skipped}");
        return;
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (mut sent, mut drops, mut flagged) = (HashSet::new(), 0, 0);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [stream, sequence, out_of_order, comment] = fields[..] else {
            panic!("four fields: {line}")
        };
        let is_new = sent.insert((stream.to_owned(), sequence.to_owned()));
        assert!(
            out_of_order.is_empty() || !is_new,
            "false reordering: {line}"
        );
        flagged += usize::from(!out_of_order.is_empty());
        drops += usize::from(comment.contains("dropped"));
    }
    assert!(
        drops > 10 && flagged <= drops,
        "{drops} drops, {flagged} out of order"
    );
}

/// Wireshark's and tcpdump's readers have to agree where they are installed.
#[test]
fn other_readers_agree() {
    let (sim, _, _) = lossy();
    let (log, written) = sim
        .into_tracer()
        .finish()
        .expect("writing to memory succeeds");
    let path = std::env::temp_dir().join(format!("ccplane-{}.pcapng", std::process::id()));
    std::fs::write(&path, log).expect("space on the disk");
    // Output lines of a program for the packets that pass a filter.
    let lines = |program: &str, filter: &[&str]| {
        let output = Command::new(program)
            .arg("-nr")
            .arg(&path)
            .args(filter)
            .output()
            .ok()?;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Some(String::from_utf8_lossy(&output.stdout).lines().count() as u64)
    };
    let tshark = |filter| lines("tshark", &["-Y", filter]);
    let found = [
        tshark("frame"),
        tshark("_ws.malformed"),
        tshark("tcp.analysis.ack_lost_segment"),
        tshark("tcp.analysis.retransmission"),
        tshark("tcp.nop"),
    ];
    let tcpdump = [lines("tcpdump", &[]), lines("tcpdump", &["udp"])];
    std::fs::remove_file(&path).expect("exists");
    if let [
        Some(frames),
        Some(malformed),
        Some(unseen),
        Some(retransmissions),
        Some(suspect),
    ] = found
    {
        assert_eq!((frames, malformed, unseen, suspect), (written, 0, 0, 0));
        assert!(retransmissions > 10, "{retransmissions}");
    }
    if let [Some(all), Some(udp)] = tcpdump {
        // 100 packets per second for one second.
        assert_eq!((all, udp), (written, 100));
    }
}
