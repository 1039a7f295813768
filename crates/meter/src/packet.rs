//! The datagrams of the delay meter.
//!
//! All of them have this header and zeros behind it up to their length; integers are big-endian.
//!
//! | offset | bytes | field | in |
//! | --- | --- | --- | --- |
//! | 0 | 4 | `ccpm` | all |
//! | 4 | 1 | version, 1 | all |
//! | 5 | 1 | kind: 0 hello, 1 answer, 2 probe, 3 reply | all |
//! | 6 | 2 | length of the datagram | all |
//! | 8 | 8 | the client's random identifier, not 0 | all |
//! | 16 | 8 | the responder's identifier, which proves the client's address; 0 in a hello | all |
//! | 24 | 4 | number: which probe this is, or answers; from 0 | probe, reply |
//! | 28 | 4 | which reply this is, from 1 | reply |
//! | 32 | 4 | probes of this client that had come | reply |
//! | 36 | 4 | of them left without a reply, by the limit | reply |
//! | 40 | 8 | when the probe came, by the kernel's stamp, ns of the responder's clock; 0: unknown | reply |
//! | 48 | 8 | when the responder had it in hand | reply |
//! | 56 | 8 | when the reply was made; in an answer, real time less the responder's clock, ns | reply, answer |
//! | 64 | 4 | number of an earlier reply's probe | reply, where the next is not 0 |
//! | 68 | 8 | when that reply left, by the kernel's stamp | reply |
//! | 76 | 1 | bit 0: the stamps are the network interface's | reply |
//! | 77 | 3 | 0 | all |
//! | 80 | 16 | with a key: keyed hash of the datagram with this field zero | all |

use crate::key::Key;

/// Bytes of the header, and of the shortest datagram.
pub const HEADER: usize = 96;
/// Bytes of the longest.
pub const LONGEST: usize = 9000;

const MAGIC: [u8; 4] = *b"ccpm";
const VERSION: u8 = 1;
const TAG: std::ops::Range<usize> = 80..HEADER;
const INTERFACE: u8 = 1;

/// What a datagram is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A client asks for an identifier.
    #[default]
    Hello,
    /// It has one.
    Answer,
    /// It measures.
    Probe,
    /// The responder answers.
    Reply,
}

/// A datagram, without its padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// What it is for.
    pub kind: Kind,
    /// The client's identifier.
    pub client: u64,
    /// The responder's.
    pub server: u64,
    /// Which probe.
    pub number: u32,
    /// Which reply.
    pub reply: u32,
    /// Probes that had come.
    pub received: u32,
    /// Of them left without a reply.
    pub refused: u32,
    /// When the probe came, by the kernel's stamp.
    pub came: u64,
    /// When the responder had it.
    pub taken: u64,
    /// When the reply was made.
    pub made: u64,
    /// An earlier reply's probe, and when that reply left.
    pub earlier: (u32, u64),
    /// The stamps are the interface's.
    pub interface: bool,
}

/// Why bytes are no datagram of the meter's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Too short, too long, or not as long as it says.
    #[error("a datagram of the wrong length")]
    Length,
    /// Something else.
    #[error("not one of the meter's")]
    Foreign,
    /// Another version.
    #[error("a datagram of version {0}, where {VERSION} is known")]
    Version(u8),
    /// No such kind, no identifier, or reserved bits set.
    #[error("a datagram with fields that mean nothing")]
    Fields,
    /// Another key, a key on one side only, or changed on its way.
    #[error("a datagram of somebody without the same key")]
    Forged,
}

impl Packet {
    /// Writes it as a datagram of `out.len()` bytes; false where that is no length of one.
    pub fn write(&self, key: Option<&Key>, out: &mut [u8]) -> bool {
        if !(HEADER..=LONGEST).contains(&out.len()) {
            return false;
        }
        out.fill(0);
        let length = (out.len() as u16).to_be_bytes();
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&[VERSION, self.kind as u8]);
        put(&length);
        put(&self.client.to_be_bytes());
        put(&self.server.to_be_bytes());
        for field in [self.number, self.reply, self.received, self.refused] {
            put(&field.to_be_bytes());
        }
        for field in [self.came, self.taken, self.made] {
            put(&field.to_be_bytes());
        }
        put(&self.earlier.0.to_be_bytes());
        put(&self.earlier.1.to_be_bytes());
        put(&[if self.interface { INTERFACE } else { 0 }]);
        if let Some(key) = key {
            let tag = tag(key, out);
            out[TAG].copy_from_slice(&tag);
        }
        true
    }

    /// Reads a datagram. With a key it has to have been written with the same one, without it with none.
    pub fn read(key: Option<&Key>, datagram: &[u8]) -> Result<Packet, Malformed> {
        let (header, _) = datagram.split_first_chunk::<HEADER>().ok_or(Malformed::Length)?;
        let mut rest = Reader(header);
        if rest.take::<4>() != MAGIC {
            return Err(Malformed::Foreign);
        }
        let [version, kind] = rest.take();
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        if usize::from(u16::from_be_bytes(rest.take())) != datagram.len() || datagram.len() > LONGEST {
            return Err(Malformed::Length);
        }
        let kind = match kind {
            0 => Kind::Hello,
            1 => Kind::Answer,
            2 => Kind::Probe,
            3 => Kind::Reply,
            _ => return Err(Malformed::Fields),
        };
        let packet = Packet {
            kind,
            client: rest.u64(),
            server: rest.u64(),
            number: rest.u32(),
            reply: rest.u32(),
            received: rest.u32(),
            refused: rest.u32(),
            came: rest.u64(),
            taken: rest.u64(),
            made: rest.u64(),
            earlier: (rest.u32(), rest.u64()),
            interface: false,
        };
        let [flags, reserved @ ..] = rest.take::<4>();
        if packet.client == 0
            || (packet.server == 0) != (kind == Kind::Hello)
            || flags & !INTERFACE != 0
            || reserved != [0; 3]
        {
            return Err(Malformed::Fields);
        }
        let found = rest.take::<16>();
        let wanted = key.map_or([0; 16], |key| tag(key, datagram));
        // Every bit is looked at, so that the time it takes tells nothing.
        let differs = found.iter().zip(&wanted).fold(0, |bits, (a, b)| bits | (a ^ b));
        if differs != 0 {
            return Err(Malformed::Forged);
        }
        Ok(Packet {
            interface: flags & INTERFACE != 0,
            ..packet
        })
    }
}

/// Of all but the place of the tag itself.
fn tag(key: &Key, datagram: &[u8]) -> [u8; 16] {
    let (before, after) = (&datagram[..TAG.start], &datagram[TAG.end..]);
    key.tag(&[b"ccplane measure 1", before, &[0; 16], after])
}

/// Takes fields from the front of a header, whose length says that they are there.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((taken, rest)) => {
                self.0 = rest;
                *taken
            }
            None => [0; N],
        }
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

/// The harness of the fuzz target: any bytes are read without a panic, and what is read is written back as it was, but for the padding.
#[doc(hidden)]
pub fn any_bytes(datagram: &[u8]) {
    let key = Key::from_bytes([7; 32]);
    for key in [None, Some(&key)] {
        if let Ok(packet) = Packet::read(key, datagram) {
            let mut again = vec![0; datagram.len()];
            assert!(packet.write(key, &mut again));
            assert_eq!(again[..TAG.start], datagram[..TAG.start]);
            assert_eq!(Packet::read(key, &again), Ok(packet));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packets() -> impl Strategy<Value = Packet> {
        let kind = prop_oneof![
            Just(Kind::Hello),
            Just(Kind::Answer),
            Just(Kind::Probe),
            Just(Kind::Reply)
        ];
        let numbers = any::<[u32; 5]>();
        (
            kind,
            1..u64::MAX,
            1..u64::MAX,
            numbers,
            any::<[u64; 4]>(),
            any::<bool>(),
        )
            .prop_map(
                |(
                    kind,
                    client,
                    server,
                    [number, reply, received, refused, before],
                    [came, taken, made, left],
                    interface,
                )| Packet {
                    kind,
                    client,
                    server: if kind == Kind::Hello { 0 } else { server },
                    number,
                    reply,
                    received,
                    refused,
                    came,
                    taken,
                    made,
                    earlier: (before, left),
                    interface,
                },
            )
    }

    proptest! {
        #[test]
        fn a_packet_is_read_as_it_was_written(packet in packets(), length in HEADER..2000, keyed: bool, flip in 0usize..16_000) {
            let key = keyed.then(|| Key::from_bytes([9; 32]));
            let mut datagram = vec![0; length];
            prop_assert!(packet.write(key.as_ref(), &mut datagram));
            prop_assert_eq!(Packet::read(key.as_ref(), &datagram), Ok(packet));
            super::any_bytes(&datagram);
            // The other side has another key, or none.
            prop_assert!(Packet::read(Some(&Key::from_bytes([1; 32])), &datagram).is_err());
            if keyed {
                prop_assert_eq!(Packet::read(None, &datagram), Err(Malformed::Forged));
                let bit = flip % (8 * length);
                datagram[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(Packet::read(key.as_ref(), &datagram).is_err());
            }
        }

        #[test]
        fn any_bytes_do_no_harm(mut datagram in proptest::collection::vec(any::<u8>(), 0..300), plausible: bool) {
            if plausible && datagram.len() >= HEADER {
                let length = (datagram.len() as u16).to_be_bytes();
                datagram[..4].copy_from_slice(&MAGIC);
                datagram[4] = VERSION;
                datagram[6..8].copy_from_slice(&length);
            }
            super::any_bytes(&datagram);
        }
    }

    #[test]
    fn what_is_no_packet_is_told_by_kind() {
        let packet = Packet {
            client: 1,
            ..Packet::default()
        };
        let mut good = vec![0; 200];
        assert!(packet.write(None, &mut good));
        let bad = |at: usize, byte: u8| {
            let mut datagram = good.clone();
            datagram[at] = byte;
            Packet::read(None, &datagram)
        };
        assert_eq!(bad(0, b'x'), Err(Malformed::Foreign));
        assert_eq!(bad(4, 2), Err(Malformed::Version(2)));
        assert_eq!(bad(5, 4), Err(Malformed::Fields));
        assert_eq!(bad(15, 0), Err(Malformed::Fields), "no identifier");
        assert_eq!(bad(7, 1), Err(Malformed::Length));
        assert_eq!(bad(78, 1), Err(Malformed::Fields));
        assert_eq!(bad(90, 1), Err(Malformed::Forged));
        assert_eq!(Packet::read(None, &good[..HEADER]), Err(Malformed::Length));
        assert!(!packet.write(None, &mut [0; HEADER - 1]) && !packet.write(None, &mut vec![0; LONGEST + 1]));
    }
}
