//! Builds packets from a script of arbitrary bytes, joins and segments them, and checks that the
//! same packets result, in the same order.

use ccplane_host::{FRAME_BYTES_MAX, Frame, Head, Joiner};

/// Result of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub packets: usize,
    pub frames: usize,
}

/// Maximum packets of a script.
const PACKETS_MAX: usize = 400;

// Actions of a step, besides sending the next packet of its flow.
const STEP_V6: u8 = 1;
const STEP_UDP: u8 = 2;
const STEP_RESIZE: u8 = 4;
const STEP_PUSH: u8 = 8;
const STEP_CHANGE: u8 = 16;
const STEP_SPOIL: u8 = 32;
const STEP_JUMP: u8 = 64;
const STEP_RAW: u8 = 128;

/// Runs a script: bit 0 of the first byte enables joining of UDP, and every following four bytes
/// are a step.
pub fn joins(data: &[u8]) -> Outcome {
    let Some((&first, script)) = data.split_first() else {
        return Outcome::default();
    };
    let packets = packets(script);
    let mut joiner = Joiner::new(first & 1 == 1);
    let (mut out, mut frames) = (Vec::new(), 0);
    for packet in &packets {
        let Ok(taken) = joiner.add(packet) else {
            assert!(packet.is_empty());
            continue;
        };
        if !taken {
            frames += 1;
            take_apart(&mut joiner, &mut out);
            assert!(
                joiner.add(packet).expect("as before"),
                "every packet starts a run"
            );
        } else if first & 2 == 2 && joiner.is_complete() {
            frames += 1;
            take_apart(&mut joiner, &mut out);
        }
    }
    if joiner.packets() > 0 {
        frames += 1;
        take_apart(&mut joiner, &mut out);
    }
    assert!(joiner.finish().is_none());
    let expected: Vec<_> = packets
        .into_iter()
        .filter(|packet| !packet.is_empty())
        .collect();
    assert!(out == expected, "other packets came out than went in");
    Outcome {
        packets: out.len(),
        frames,
    }
}

/// Ends the run and appends its packets to `out`.
fn take_apart(joiner: &mut Joiner, out: &mut Vec<Vec<u8>>) {
    let packets = joiner.packets();
    let bytes = joiner.finish().expect("a run");
    assert!(bytes.len() <= FRAME_BYTES_MAX);
    let frame = Frame::parse(bytes).expect("as kernels create them");
    assert_eq!(frame.packets(), packets);
    for index in 0..packets {
        let mut head = Head::default();
        let packet = frame
            .write_packet(bytes, index, false, &mut head)
            .expect("the headers are valid")
            .concat();
        assert_eq!(packet.len(), usize::from(frame.bytes(index)));
        out.push(packet);
        // The same through a frame for this packet alone.
        let mut head = Head::default();
        let single = frame
            .write_run(bytes, index..index + 1, false, &mut head)
            .concat();
        let alone = Frame::parse(&single).expect("as kernels create them");
        let mut head = Head::default();
        let again = alone
            .write_packet(&single, 0, false, &mut head)
            .expect("the headers are valid")
            .concat();
        assert_eq!(Some(&again), out.last());
    }
}

/// State of a flow.
#[derive(Clone, Copy)]
struct Flow {
    identification: u16,
    sequence: u32,
    size: usize,
}

fn packets(script: &[u8]) -> Vec<Vec<u8>> {
    let mut flows = [Flow {
        identification: 0xfff0,
        sequence: 0xffff_f000,
        size: 1_400,
    }; 4];
    let mut packets = Vec::new();
    let mut rest = script;
    while packets.len() < PACKETS_MAX
        && let Some((&[what, size, at, value], after)) = rest.split_first_chunk()
    {
        rest = after;
        if what & STEP_RAW != 0 {
            let (packet, after) = rest.split_at(usize::from(size).min(rest.len()));
            packets.push(packet.to_vec());
            rest = after;
            continue;
        }
        let (v6, udp) = (what & STEP_V6 != 0, what & STEP_UDP != 0);
        let flow = &mut flows[usize::from(what & 3)];
        if what & STEP_RESIZE != 0 {
            flow.size = usize::from(size) * 6;
        }
        if what & STEP_JUMP != 0 {
            flow.sequence = flow.sequence.wrapping_add(value.into());
            flow.identification = flow.identification.wrapping_add(at.into());
        }
        let mut packet = header(flow, v6, udp);
        let head = packet.len();
        if !udp && what & STEP_PUSH != 0 {
            packet[if v6 { 40 } else { 20 } + 13] |= value & 0x09;
        }
        packet.extend((0..flow.size).map(|i| (i as u8).wrapping_mul(value)));
        let length = packet.len();
        if what & STEP_CHANGE != 0 {
            packet[usize::from(at) % head] ^= value;
        }
        complete(&mut packet, v6, udp);
        if what & STEP_SPOIL != 0 {
            packet[usize::from(at) * 6 % length] ^= value;
        }
        flow.sequence = flow.sequence.wrapping_add(flow.size as u32);
        flow.identification = flow.identification.wrapping_add(1);
        packets.push(packet);
    }
    packets
}

fn header(flow: &Flow, v6: bool, udp: bool) -> Vec<u8> {
    let protocol = if udp { 17 } else { 6 };
    let mut packet = Vec::with_capacity(2_000);
    if v6 {
        packet.extend([0x60, 0x10, 0, 7, 0, 0, protocol, 60]);
        packet.extend(1..33);
    } else {
        packet.extend([0x45, 0, 0, 0]);
        packet.extend(flow.identification.to_be_bytes());
        packet.extend([0x40, 0, 60, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    packet.extend([0x30, 0x39, 0x14, 0x51]);
    if udp {
        packet.extend([0; 4]);
    } else {
        packet.extend(flow.sequence.to_be_bytes());
        packet.extend([
            0,
            0,
            0,
            9,
            8 << 4,
            0x10,
            1,
            0,
            0,
            0,
            0,
            0,
            1,
            1,
            8,
            10,
            0,
            0,
            0,
            5,
            0,
            0,
            0,
            6,
        ]);
    }
    packet
}

/// Fills in lengths and checksums.
fn complete(packet: &mut [u8], v6: bool, udp: bool) {
    let ip = if v6 { 40 } else { 20 };
    let length = packet.len() as u16;
    let mut set = |at: usize, value: u16| packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
    let check = ip + if udp { 6 } else { 16 };
    set(check, 0);
    if udp {
        set(ip + 4, length - ip as u16);
    }
    if v6 {
        set(4, length - 40);
    } else {
        set(2, length);
        set(10, 0);
        let sum = !sum(&[&packet[..20]]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let addresses = if v6 { 8..40 } else { 12..20 };
    let protocol = [0, if udp { 17 } else { 6 }];
    let segment = (length - ip as u16).to_be_bytes();
    let sum = match !sum(&[&packet[addresses], &protocol, &segment, &packet[ip..]]) {
        0 if udp => 0xffff,
        sum => sum,
    };
    packet[check..check + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Word by word; every piece but the last has an even length.
fn sum(pieces: &[&[u8]]) -> u16 {
    let words = pieces.iter().flat_map(|piece| piece.chunks(2));
    let mut sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
