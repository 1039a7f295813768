//! Feeds arbitrary bytes as a packet to the shipped device programs (`bpf/stamp.bpf.c`) in the
//! running kernel, and compares them with a model that walks the TCP options one by one (RFC 9293,
//! section 3.1).

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};

const OBJECT: &[u8] = include_bytes!("../../bpf/prebuilt/stamp.bpf.o");
/// Longest packet: an Ethernet frame.
const PACKET_BYTES_MAX: usize = 1514;

/// The device programs, loaded but not attached.
pub struct Device {
    object: Object,
}

/// Result of a program for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// Too short for the kernel to run the program.
    Nothing,
    /// Left unchanged.
    Passed,
    /// Stamped, with its checksum updated.
    Stamped,
}

impl Device {
    pub fn load() -> Device {
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .expect("it is an object");
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(name.starts_with("depart") || name.starts_with("arrive"));
        }
        Device {
            object: open.load().expect("the verifier takes them"),
        }
    }

    /// Runs a program on a packet. The first byte selects it: bit 0 arrivals, bit 1 devices without
    /// a link-layer header. The rest is the packet.
    pub fn shows(&self, data: &[u8]) -> PacketFate {
        let Some((which, packet)) = data.split_first() else {
            return PacketFate::Nothing;
        };
        let packet = &packet[..packet.len().min(PACKET_BYTES_MAX)];
        // A non-empty frame, with a complete IP header if its type announces one.
        let least = match packet.get(12..14) {
            Some([0x08, 0x00]) => 14 + 20,
            Some([0x86, 0xdd]) => 14 + 40,
            _ => 14 + 1,
        };
        if packet.len() < least {
            return PacketFate::Nothing;
        }
        let (arrives, bare) = (which & 1 == 1, which & 2 == 2);
        let name = match (arrives, bare) {
            (false, false) => "depart_ether",
            (false, true) => "depart_ip",
            (true, false) => "arrive_ether",
            (true, true) => "arrive_ip",
        };
        let mut after = vec![0; packet.len()];
        let program = self
            .object
            .progs_mut()
            .find(|p| p.name() == name)
            .expect("the object has the program");
        let returned = program
            .test_run(ProgramInput {
                data_in: Some(packet),
                data_out: Some(&mut after),
                ..ProgramInput::default()
            })
            .expect("the program runs on the packet")
            .return_value;
        // TC_ACT_UNSPEC: the next program decides in any case.
        assert_eq!(returned as i32, -1, "{name} decided about a packet");

        let Some((tcp, at)) = option(packet, if bare { 0 } else { 14 }) else {
            assert_eq!(
                after, packet,
                "{name} wrote into a packet without the option"
            );
            return PacketFate::Passed;
        };
        let [id, sent, echo, arrived] = words(packet, at);
        if id != WIRE_OPTION_ID || (!arrives && sent != 0) {
            assert_eq!(after, packet, "{name} stamped a second time");
            return PacketFate::Passed;
        }
        let [new_id, new_sent, new_echo, new_arrived] = words(&after, at);
        if arrives {
            let forward = if echo != 0 && arrived != 0 {
                arrived.wrapping_sub(echo).max(1)
            } else {
                0
            };
            assert_eq!(
                [new_id, new_sent, new_echo],
                [STAMPED_OPTION_ID, sent, forward],
                "{name}"
            );
            assert_ne!(new_arrived, 0, "{name}: 0 says that there is no stamp");
        } else {
            assert_eq!(
                [new_id, new_echo, new_arrived],
                [id, echo, arrived],
                "{name}"
            );
            assert_ne!(new_sent, 0, "{name}: 0 says that there is no stamp");
        }
        assert_eq!(
            sum(&after[tcp..]),
            sum(&packet[tcp..]),
            "{name}: the checksum does not follow"
        );
        // Nothing else changed.
        let checksum = tcp + 16;
        after[at..at + OPTION_BYTES].copy_from_slice(&packet[at..at + OPTION_BYTES]);
        after[checksum..checksum + 2].copy_from_slice(&packet[checksum..checksum + 2]);
        assert_eq!(
            after, packet,
            "{name} wrote outside its option and the checksum"
        );
        PacketFate::Stamped
    }
}

const OPTION_BYTES: usize = 16;
const WIRE_OPTION_ID: u32 = 0xfd10_4458;
const STAMPED_OPTION_ID: u32 = 0xfd10_4478;

/// Returns the offsets of the TCP header and our option, if the packet has both.
fn option(packet: &[u8], link: usize) -> Option<(usize, usize)> {
    let ip = packet.get(link..)?;
    let tcp = match (packet.get(12..14)?, ip) {
        // IPv4 without options: a header length of 5 words.
        ([0x08, 0x00], [0x45, _, _, _, _, _, _, _, _, 6, ..]) => link + 20,
        ([0x86, 0xdd], [_, _, _, _, _, _, 6, ..]) => link + 40,
        _ => return None,
    };
    let header = packet.get(tcp..)?;
    let length = usize::from(header.get(12)? >> 4) * 4;
    let options = header.get(20..length)?;
    let (kinds, last) = walk(options)?;
    let known = matches!(
        kinds[..],
        [253] | [1, 1, 8, 253] | [1, 1, 5, 253] | [1, 1, 8, 1, 1, 5, 253]
    );
    let ours = |option: &[u8]| {
        option.len() == OPTION_BYTES && matches!(option, [253, 16, 0x44, 0x58 | 0x78, ..])
    };
    (known && ours(&options[last..])).then_some((tcp, tcp + 20 + last))
}

/// Returns the kinds of the options, in order, and the offset of the last one. `None` if the
/// lengths do not add up, or differ from those of the kinds that Linux writes before ours.
fn walk(options: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut kinds, mut at, mut last) = (Vec::new(), 0, 0);
    while at < options.len() {
        let kind = options[at];
        let length = match kind {
            1 => 1,
            _ => usize::from(*options.get(at + 1)?),
        };
        let fits = match kind {
            0 => false,
            8 => length == 10,
            5 => (2..=34).contains(&length),
            1 => true,
            _ => length >= 2,
        };
        if !fits || at + length > options.len() {
            return None;
        }
        kinds.push(kind);
        last = at;
        at += length;
    }
    (!kinds.is_empty()).then_some((kinds, last))
}

fn words(packet: &[u8], at: usize) -> [u32; 4] {
    [0, 4, 8, 12]
        .map(|n| u32::from_be_bytes(packet[at + n..at + n + 4].try_into().expect("four bytes")))
}

/// Returns the TCP checksum (RFC 1071) without its pseudo-header, which is invariant if the
/// checksum was updated correctly. 0 and 0xffff are equal here.
fn sum(segment: &[u8]) -> u32 {
    let words = segment
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low)));
    words.sum::<u32>() % 0xffff
}
