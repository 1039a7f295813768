//! Frames of a TUN device: a virtio-net header followed by an IP packet, or by a super-packet of
//! several packets.
//!
//! With segmentation offload a namespace hands over up to 64 KB of one flow at once, as to a
//! network card: one set of headers, the payload of many packets, and a checksum that covers the
//! pseudo-header only (virtio 1.2, section 5.1.6). A [`Frame`] describes the packets in it, and
//! writes any contiguous run of them as a frame of its own, with the length, IPv4 identification,
//! TCP sequence number and flags that the kernel's own segmentation would give them. Checksums over
//! the payload stay partial, for the receiving kernel: it trusts that the data is unmodified, or
//! completes them if the packets go on to a wire. For packets that are encapsulated, where no
//! kernel completes checksums, [`Frame::write_packet`] does.

use std::ops::Range;

use ccplane_qdisc::Ecn;

use crate::headers::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES,
    UDP_CHECKSUM_OFFSET, UDP_HEADER_BYTES, extend_sum, fold, read_word, sum, updated_checksum,
    write_ipv4_checksum, write_word,
};

/// Length of `struct virtio_net_hdr` without the buffer count, linux/virtio_net.h.
pub(crate) const VNET_HEADER_BYTES: usize = 10;

/// Length of the longest frame: the longest IP packet and the header before it.
pub const FRAME_BYTES_MAX: usize = VNET_HEADER_BYTES + 65_535;

/// Flag: the checksum covers the pseudo-header only.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;
pub(crate) const GSO_NONE: u8 = 0;
pub(crate) const GSO_TCPV4: u8 = 1;
pub(crate) const GSO_TCPV6: u8 = 4;
pub(crate) const GSO_UDP: u8 = 5;
/// Flag in the kind: only the first packet has CWR set (RFC 3168 section 6.1.2).
pub(crate) const GSO_ECN: u8 = 0x80;

pub(crate) const FIN_PSH: u8 = 0x01 | 0x08;
pub(crate) const CWR: u8 = 0x80;

/// Longest headers of a packet that may be split: IPv6 with a hundred bytes of extensions and a
/// full TCP header.
const HEAD_BYTES_MAX: usize = 200;

/// One packet, or several of one flow, as a TUN device passes them. It does not hold the bytes:
/// every method takes the same bytes that were passed to [`Frame::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Offset of the payload, after the IP and transport headers; the whole length for a single
    /// packet.
    header_bytes: u16,
    /// Length without the virtio-net header.
    length: u16,
    /// Payload of each packet but the last; 0 for a single packet.
    segment_size: u16,
    /// Offset of the transport header if the frame may have several packets.
    transport_offset: u16,
    tcp: bool,
}

/// A frame that no kernel produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a frame of a TUN device: {0}")]
pub struct FrameError(pub(crate) &'static str);

/// Buffer for the headers of a run of packets.
pub struct Head([u8; VNET_HEADER_BYTES + HEAD_BYTES_MAX]);

impl Default for Head {
    fn default() -> Head {
        Head([0; VNET_HEADER_BYTES + HEAD_BYTES_MAX])
    }
}

impl Frame {
    /// Parses the headers of a frame.
    pub fn parse(bytes: &[u8]) -> Result<Frame, FrameError> {
        let (header, packet) = bytes
            .split_at_checked(VNET_HEADER_BYTES)
            .ok_or(FrameError("no virtio-net header"))?;
        let length =
            u16::try_from(packet.len()).map_err(|_| FrameError("longer than an IP packet"))?;
        let kind = header[1] & !GSO_ECN;
        if kind == GSO_NONE {
            return Ok(Frame {
                header_bytes: length,
                length,
                segment_size: 0,
                transport_offset: 0,
                tcp: false,
            });
        }
        let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let (size, transport) = (field(4), field(6));
        let tcp = matches!(kind, GSO_TCPV4 | GSO_TCPV6);
        if !tcp && kind != GSO_UDP {
            return Err(FrameError("segmentation of a type that was not enabled"));
        }
        if header[0] & NEEDS_CHECKSUM == 0 {
            return Err(FrameError("a super-packet with a complete checksum"));
        }
        let transport_bytes = match (tcp, packet.get(usize::from(transport) + 12)) {
            (true, Some(offset)) => usize::from(offset >> 4) * 4,
            (true, None) => return Err(FrameError("no transport header")),
            (false, _) => UDP_HEADER_BYTES,
        };
        let shortest = match packet.first().map(|first| first >> 4) {
            Some(4) => IPV4_HEADER_BYTES,
            _ => IPV6_HEADER_BYTES,
        };
        let head = usize::from(transport) + transport_bytes;
        if usize::from(transport) < shortest || tcp && transport_bytes < TCP_HEADER_BYTES {
            return Err(FrameError("overlapping headers"));
        }
        if head >= packet.len() || head > HEAD_BYTES_MAX || size == 0 {
            return Err(FrameError("headers without payload"));
        }
        Ok(Frame {
            header_bytes: head as u16,
            length,
            segment_size: size,
            transport_offset: transport,
            tcp,
        })
    }

    /// Returns the IP packet, or super-packet, in the bytes of a frame.
    pub fn packet(bytes: &[u8]) -> &[u8] {
        bytes.get(VNET_HEADER_BYTES..).unwrap_or_default()
    }

    /// Returns the length of the longest frame with a single packet of `mtu` bytes.
    pub const fn frame_bytes(mtu: u32) -> usize {
        VNET_HEADER_BYTES + mtu as usize
    }

    /// Returns the number of packets, at least one.
    pub fn packets(&self) -> u16 {
        match self.segment_size {
            0 => 1,
            size => (self.length - self.header_bytes).div_ceil(size),
        }
    }

    /// Returns the length of one of the packets in bytes, including the IP header.
    pub fn bytes(&self, index: u16) -> u16 {
        let Range { start, end } = self.payload(index..index + 1);
        self.header_bytes + (end - start)
    }

    /// Writes the packets `run` as a frame of their own, in two pieces, for
    /// [`Tun::write`](crate::Tun::write). `marked` sets their ECN field to CE ("congestion
    /// experienced"); otherwise it is unchanged.
    pub fn write_run<'a>(
        &self,
        bytes: &'a [u8],
        run: Range<u16>,
        marked: bool,
        head: &'a mut Head,
    ) -> [&'a [u8]; 2] {
        let whole =
            self.segment_size == 0 || (run.start == 0 && run.end == self.packets() && run.end > 1);
        if whole && !marked {
            return [bytes, &[]];
        }
        let (head, rest) = self.split(bytes, run, marked, head);
        [head, rest]
    }

    /// Writes one of the packets as on a wire, in two pieces: without the virtio-net header, and
    /// with a complete checksum. `marked` as in [`write_run`](Frame::write_run).
    pub fn write_packet<'a>(
        &self,
        bytes: &'a [u8],
        index: u16,
        marked: bool,
        head: &'a mut Head,
    ) -> Result<[&'a [u8]; 2], FrameError> {
        let partial = bytes
            .first()
            .is_some_and(|flags| flags & NEEDS_CHECKSUM != 0);
        if self.segment_size == 0 && !partial && !marked {
            return Ok([Frame::packet(bytes), &[]]);
        }
        let (head, rest) = self.split(bytes, index..index + 1, marked, head);
        if partial {
            let field = |at: usize| usize::from(u16::from_ne_bytes([head[at], head[at + 1]]));
            let (start, offset) = match (self.segment_size, self.tcp) {
                (0, _) => (field(6), field(8)),
                (_, true) => (self.transport_offset.into(), TCP_CHECKSUM_OFFSET),
                (_, false) => (self.transport_offset.into(), UDP_CHECKSUM_OFFSET),
            };
            complete_checksum(&mut head[VNET_HEADER_BYTES..], rest, start, offset)?;
        }
        Ok([head.get(VNET_HEADER_BYTES..).unwrap_or_default(), rest])
    }

    /// Returns a copy of the headers, adapted to the packets `run`, and their payload; for a single
    /// packet, everything after its first bytes.
    fn split<'a>(
        &self,
        bytes: &'a [u8],
        run: Range<u16>,
        marked: bool,
        head: &'a mut Head,
    ) -> (&'a mut [u8], &'a [u8]) {
        let begin = (VNET_HEADER_BYTES + usize::from(self.header_bytes).min(HEAD_BYTES_MAX))
            .min(bytes.len());
        let to = &mut head.0[..begin];
        to.copy_from_slice(&bytes[..begin]);
        if self.segment_size != 0 {
            self.adapt_headers(to, run.clone());
        }
        if marked {
            mark_ce(&mut to[VNET_HEADER_BYTES..]);
        }
        let rest = match self.segment_size {
            0 => bytes.get(begin..),
            _ => {
                let Range { start, end } = self.payload(run);
                bytes.get(
                    VNET_HEADER_BYTES + usize::from(self.header_bytes + start)
                        ..VNET_HEADER_BYTES + usize::from(self.header_bytes + end),
                )
            }
        };
        (to, rest.unwrap_or_default())
    }

    /// Returns the payload range of the packets `run`, relative to the end of the headers.
    fn payload(&self, run: Range<u16>) -> Range<u16> {
        let all = u32::from(self.length - self.header_bytes);
        let at = |index: u16| (u32::from(index) * u32::from(self.segment_size)).min(all) as u16;
        at(run.start)..at(run.end)
    }

    /// Adapts copied headers to the packets `run`.
    fn adapt_headers(&self, head: &mut [u8], run: Range<u16>) {
        let Range { start, end } = self.payload(run.clone());
        let last = run.end == self.packets();
        let (vnet, packet) = head.split_at_mut(VNET_HEADER_BYTES);
        if run.len() == 1 {
            vnet[1] = GSO_NONE;
            vnet[4..6].fill(0);
        } else if run.start > 0 {
            vnet[1] &= !GSO_ECN;
        }
        vnet[2..4].copy_from_slice(&self.header_bytes.to_ne_bytes());
        let length = self.header_bytes + (end - start);
        if packet[0] >> 4 == 4 {
            let identification = read_word(packet, 4).wrapping_add(run.start);
            write_word(packet, 2, length);
            write_word(packet, 4, identification);
            let header = usize::from(packet[0] & 0xf) * 4;
            if let Some(header) = packet.get_mut(..header.max(IPV4_HEADER_BYTES)) {
                write_ipv4_checksum(header);
            }
        } else {
            write_word(packet, 4, length - IPV6_HEADER_BYTES as u16);
        }
        let transport = usize::from(self.transport_offset);
        let segment = &mut packet[transport..];
        let check = if self.tcp {
            let sequence = [0, 1, 2, 3].map(|i| segment[4 + i]);
            let sequence = u32::from_be_bytes(sequence).wrapping_add(u32::from(start));
            segment[4..8].copy_from_slice(&sequence.to_be_bytes());
            if !last {
                segment[13] &= !FIN_PSH;
            }
            if run.start > 0 {
                segment[13] &= !CWR;
            }
            TCP_CHECKSUM_OFFSET
        } else {
            write_word(segment, 4, length - self.transport_offset);
            UDP_CHECKSUM_OFFSET
        };
        // The pseudo-header sum includes the segment's length (RFC 9293 section 3.1).
        let sum = u32::from(read_word(segment, check))
            + u32::from(!(self.length - self.transport_offset))
            + u32::from(length - self.transport_offset);
        write_word(segment, check, fold(sum));
    }
}

/// Completes the checksum of the data from `start` on. The field, at `offset` from there, contains
/// the sum over the pseudo-header and receives the complement of the total (virtio 1.2, section
/// 5.1.6.2).
fn complete_checksum(
    head: &mut [u8],
    rest: &[u8],
    start: usize,
    offset: usize,
) -> Result<(), FrameError> {
    let out_of_range = FrameError("a checksum outside the headers");
    let at = start + offset;
    if at + 2 > head.len() {
        return Err(out_of_range);
    }
    let covered = &head[start..];
    let value = match !extend_sum(sum(covered), covered.len(), rest) {
        // In UDP zero means "no checksum" and is sent as ones, which is equivalent (RFC 768).
        0 if offset == UDP_CHECKSUM_OFFSET => 0xffff,
        value => value,
    };
    write_word(head, at, value);
    Ok(())
}

/// Marks an IP packet CE.
fn mark_ce(packet: &mut [u8]) {
    set_ecn(packet, Ecn::Ce);
}

/// Sets the ECN field of an IP packet (RFC 3168 section 5) and updates the header checksum.
pub fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= IPV4_HEADER_BYTES => {
            let before = read_word(packet, 0);
            packet[1] = packet[1] & !3 | ecn as u8;
            let sum = updated_checksum(read_word(packet, 10), before, read_word(packet, 0));
            write_word(packet, 10, sum);
        }
        // Bits 4 to 11 are the traffic class, whose last two are the ECN field.
        Some(6) if packet.len() >= 2 => packet[1] = packet[1] & !0x30 | (ecn as u8) << 4,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers::{add, checksum};

    /// The CE codepoint.
    const CE: u8 = Ecn::Ce as u8;

    /// Returns a super-packet as a kernel produces it, and its payload.
    fn super_packet(v6: bool, tcp: bool, payload: usize, size: u16) -> (Vec<u8>, Vec<u8>) {
        let payload: Vec<u8> = (0..payload).map(|i| (i * 7 % 251) as u8).collect();
        let (ip, transport) = (if v6 { 40 } else { 20 }, if tcp { 32 } else { 8 });
        let length = ip + transport + payload.len();
        let mut packet = vec![0; ip + transport];
        if v6 {
            packet[0] = 0x60;
            write_word(&mut packet, 4, (length - 40) as u16);
            packet[6] = if tcp { 6 } else { 17 };
            (8..40).for_each(|i| packet[i] = i as u8);
        } else {
            (packet[0], packet[1], packet[8], packet[9]) =
                (0x45, 0b10, 64, if tcp { 6 } else { 17 });
            write_word(&mut packet, 2, length as u16);
            write_word(&mut packet, 4, 0xfffe);
            (12..20).for_each(|i| packet[i] = i as u8);
            let sum = checksum(&packet[..20]);
            write_word(&mut packet, 10, sum);
        }
        if tcp {
            packet[ip + 4..ip + 8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
            (packet[ip + 12], packet[ip + 13]) = (8 << 4, 0x10 | FIN_PSH | CWR);
        } else {
            write_word(&mut packet, ip + 4, (8 + payload.len()) as u16);
        }
        let check = ip + if tcp { 16 } else { 6 };
        let partial = !pseudo(&packet, ip);
        write_word(&mut packet, check, partial);
        packet.extend(&payload);
        let kind = match (tcp, v6) {
            (true, false) => GSO_TCPV4 | GSO_ECN,
            (true, true) => GSO_TCPV6 | GSO_ECN,
            (false, _) => GSO_UDP,
        };
        let mut bytes = vec![NEEDS_CHECKSUM, kind];
        for field in [0, size, ip as u16, (check - ip) as u16] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend(packet);
        (bytes, payload)
    }

    /// Returns the complemented checksum over the pseudo-header alone.
    fn pseudo(packet: &[u8], ip: usize) -> u16 {
        let (addresses, protocol, length) = match ip {
            40 => (&packet[8..40], packet[6], read_word(packet, 4)),
            _ => (&packet[12..20], packet[9], read_word(packet, 2) - 20),
        };
        let mut bytes = addresses.to_vec();
        bytes.extend([0, protocol]);
        bytes.extend(length.to_be_bytes());
        checksum(&bytes)
    }

    /// Returns true if the transport checksum is complete and correct.
    fn is_complete(packet: &[u8], ip: usize) -> bool {
        add(!pseudo(packet, ip), sum(&packet[ip..])) == 0xffff
    }

    fn written(frame: &Frame, bytes: &[u8], run: Range<u16>, marked: bool) -> Vec<u8> {
        frame
            .write_run(bytes, run, marked, &mut Head::default())
            .concat()
    }

    proptest! {
        #[test]
        fn a_run_is_what_the_kernel_would_have_cut(
            v6: bool,
            tcp: bool,
            marked: bool,
            payload in 1_usize..20_000,
            size in 200_u16..1_449,
            cut in 0.0..1.0_f64,
        ) {
            let (bytes, payload) = super_packet(v6, tcp, payload, size);
            let (ip, transport) = (if v6 { 40 } else { 20 }, if tcp { 32 } else { 8 });
            let frame = Frame::parse(&bytes).expect("well formed");
            let packets = frame.packets();
            prop_assert_eq!(
                usize::from(packets),
                payload.len().div_ceil(usize::from(size))
            );
            prop_assert_eq!(
                written(&frame, &bytes, 0..packets, false).len(),
                bytes.len()
            );
            let mut joined: Vec<u8> = Vec::new();
            for index in 0..packets {
                let single = written(&frame, &bytes, index..index + 1, marked);
                let alone = Frame::parse(&single).expect("well formed");
                prop_assert_eq!(alone.packets(), 1);
                let packet = Frame::packet(&single);
                prop_assert_eq!(packet.len(), usize::from(frame.bytes(index)));
                prop_assert_eq!(alone.bytes(0), frame.bytes(index));
                joined.extend(&packet[ip + transport..]);
                // The checksum remains partial, and the lengths are the packet's own.
                let check = ip + if tcp { 16 } else { 6 };
                prop_assert_eq!(
                    read_word(packet, check) % 0xffff,
                    !pseudo(packet, ip) % 0xffff
                );
                // Completed, it is the same packet except for that field.
                let mut head = Head::default();
                let mut whole = frame
                    .write_packet(&bytes, index, marked, &mut head)
                    .expect("well formed")
                    .concat();
                prop_assert!(is_complete(&whole, ip));
                prop_assert_ne!((tcp, read_word(&whole, check)), (false, 0));
                let mut head = Head::default();
                let same = alone
                    .write_packet(&single, 0, false, &mut head)
                    .expect("well formed")
                    .concat();
                prop_assert_eq!(&whole, &same, "also as a separate frame");
                whole[check..check + 2].copy_from_slice(&packet[check..check + 2]);
                prop_assert_eq!(&whole[..], packet);
                if v6 {
                    prop_assert_eq!(usize::from(read_word(packet, 4)), packet.len() - 40);
                    prop_assert_eq!(packet[1] >> 4, if marked { CE } else { 0 });
                } else {
                    prop_assert_eq!(usize::from(read_word(packet, 2)), packet.len());
                    prop_assert_eq!(read_word(packet, 4), 0xfffe_u16.wrapping_add(index));
                    prop_assert_eq!(checksum(&packet[..20]), 0);
                    prop_assert_eq!(packet[1], if marked { CE } else { 0b10 });
                }
                if tcp {
                    let sequence = u32::from_be_bytes([4, 5, 6, 7].map(|i| packet[ip + i]));
                    prop_assert_eq!(
                        sequence,
                        0xffff_ff00_u32.wrapping_add(u32::from(index) * u32::from(size))
                    );
                    let flags = packet[ip + 13];
                    prop_assert_eq!(flags & CWR != 0, index == 0);
                    prop_assert_eq!(flags & FIN_PSH != 0, index + 1 == packets);
                } else {
                    prop_assert_eq!(usize::from(read_word(packet, ip + 4)), packet.len() - ip);
                }
            }
            prop_assert_eq!(joined, payload);
            // A run is a frame of the same packets.
            let middle = (f64::from(packets) * cut) as u16;
            for run in [0..middle, middle..packets]
                .into_iter()
                .filter(|run| !run.is_empty())
            {
                let part = written(&frame, &bytes, run.clone(), marked);
                let again = Frame::parse(&part).expect("well formed");
                prop_assert_eq!(usize::from(again.packets()), run.len());
                for (n, index) in run.enumerate() {
                    let n = n as u16;
                    let twice = written(&again, &part, n..n + 1, false);
                    let once = written(&frame, &bytes, index..index + 1, marked);
                    prop_assert_eq!(Frame::packet(&twice), Frame::packet(&once));
                }
            }
        }

        #[test]
        fn no_bytes_harm_the_reader(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            kind in 0_u8..6,
        ) {
            if let Some(first) = bytes.get_mut(..2) {
                first.copy_from_slice(&[NEEDS_CHECKSUM, kind]);
            }
            if let Ok(frame) = Frame::parse(&bytes) {
                for index in 0..frame.packets() {
                    written(&frame, &bytes, index..index + 1, true);
                    let _ = frame.write_packet(&bytes, index, true, &mut Head::default());
                }
            }
        }
    }

    #[test]
    fn a_mark_keeps_the_header_s_checksum() {
        let (bytes, _) = super_packet(false, true, 10, 1_448);
        let mut single = bytes.clone();
        single[1] = GSO_NONE;
        let frame = Frame::parse(&single).expect("well formed");
        let marked = written(&frame, &single, 0..1, true);
        let packet = Frame::packet(&marked);
        assert_eq!((packet[1] & CE, checksum(&packet[..20])), (CE, 0));
        assert_eq!(packet[20..], single[30..]);
        assert_eq!(written(&frame, &single, 0..1, false), single);
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_ones_in_udp() {
        let (mut bytes, _) = super_packet(true, false, 2, 1_448);
        bytes[1] = GSO_NONE;
        let at = VNET_HEADER_BYTES + 40 + 8;
        // The payload that makes the checksum zero.
        bytes[at..at + 2].fill(0);
        let without = !sum(&bytes[VNET_HEADER_BYTES + 40..]);
        write_word(&mut bytes, at, without);
        let frame = Frame::parse(&bytes).expect("well formed");
        let mut head = Head::default();
        let packet = frame
            .write_packet(&bytes, 0, false, &mut head)
            .expect("well formed")
            .concat();
        assert_eq!(read_word(&packet, 46), 0xffff);
        assert!(is_complete(&packet, 40));
    }

    #[test]
    fn a_packet_that_is_complete_is_passed_as_it_is_and_a_field_out_of_reach_is_refused() {
        let (mut bytes, _) = super_packet(false, true, 1_000, 1_448);
        bytes[1] = GSO_NONE;
        let frame = Frame::parse(&bytes).expect("well formed");
        for start in [1_010_u16, 240, u16::MAX] {
            bytes[6..8].copy_from_slice(&start.to_ne_bytes());
            let refused = frame
                .write_packet(&bytes, 0, false, &mut Head::default())
                .map(|pieces| pieces.concat());
            assert_eq!(
                refused,
                Err(FrameError("a checksum outside the headers")),
                "{start}"
            );
        }
        bytes[0] = 0;
        let mut head = Head::default();
        let [packet, nothing] = frame
            .write_packet(&bytes, 0, false, &mut head)
            .expect("well formed");
        assert_eq!((packet, nothing), (&bytes[VNET_HEADER_BYTES..], &[][..]));
    }

    #[test]
    fn a_field_that_is_set_is_read_and_the_checksum_holds() {
        let mut v4 = vec![0; 24];
        v4[..20].copy_from_slice(&[
            0x45, 0xb8, 0, 24, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 7, 0, 1, 10, 8, 0, 1,
        ]);
        let total = |packet: &[u8]| {
            let sum: u32 = packet[..20]
                .chunks(2)
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            ((sum & 0xffff) + (sum >> 16)) as u16
        };
        let check = !total(&v4);
        v4[10..12].copy_from_slice(&check.to_be_bytes());
        let mut v6 = vec![0x6b, 0x80, 0, 0, 0, 0, 17, 64];
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            set_ecn(&mut v4, ecn);
            assert_eq!(
                (Ecn::from_bits(v4[1]), v4[1] & !3, total(&v4)),
                (ecn, 0xb8, 0xffff)
            );
            set_ecn(&mut v6, ecn);
            assert_eq!(
                (Ecn::from_bits(v6[1] >> 4), v6[0], v6[1] & !0x30),
                (ecn, 0x6b, 0x80)
            );
        }
        for short in [&mut [][..], &mut [0x45], &mut [0x60]] {
            set_ecn(short, Ecn::Ce);
        }
    }
}
