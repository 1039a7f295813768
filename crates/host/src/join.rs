//! Joins consecutive packets of a flow to one super-packet, the inverse of
//! [`Frame::run`](crate::Frame::run): the receiving kernel then pays the cost of a packet only once
//! per super-packet.
//!
//! Packets are joined only if segmentation reproduces the same bytes: packets of one flow whose
//! headers differ only as a segmenting kernel would make them differ. The rules are the ones of the
//! kernel's receive offload (net/ipv4/tcp_offload.c, udp_offload.c) with one exception: IPv4
//! identifications must count up. The kernel also joins packets with equal identifications, which
//! segmentation would change to consecutive ones.

use std::fmt;

use crate::frame::{
    CWR, FIN_PSH, GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP, NEEDS_CHECKSUM, VNET_HEADER_BYTES,
};
use crate::headers::{
    DONT_FRAGMENT, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, TCP, TCP_CHECKSUM_OFFSET,
    TCP_HEADER_BYTES, UDP, UDP_CHECKSUM_OFFSET, UDP_HEADER_BYTES, checksum, pseudo_header_sum,
    read_word, transport_checksum, write_ipv4_checksum, write_word,
};
use crate::{FRAME_BYTES_MAX, FrameError};

const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// Maximum packets in a UDP super-packet, `UDP_MAX_SEGMENTS`: 64 before Linux 6.9, 128 since.
const UDP_PACKETS_MAX: u16 = 64;

/// Joins packets, one run at a time, in a buffer of its own.
///
/// ```
/// # fn main() -> Result<(), ccplane_host::FrameError> {
/// # let (packets, write): ([&[u8]; 0], fn(&[u8])) = ([], |_| {});
/// let mut joiner = ccplane_host::Joiner::new(true);
/// for packet in packets {
///     if !joiner.add(packet)? {
///         if let Some(frame) = joiner.finish() {
///             write(frame);
///         }
///         joiner.add(packet)?;
///     }
/// }
/// // When there are no more for now.
/// if let Some(frame) = joiner.finish() {
///     write(frame);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Joiner {
    /// The frame: the first packet, followed by the payloads of the others.
    buffer: Box<[u8]>,
    udp: bool,
    run: Option<JoinedRun>,
}

/// The packets in the buffer.
#[derive(Clone, Copy, Debug)]
struct JoinedRun {
    /// Headers of the first packet; `None` if it is of a kind that is not joined.
    first: Option<JoinHeaders>,
    /// Length of the buffer's contents without the virtio-net header.
    length: usize,
    packets: u16,
    /// The last packet is shorter than the others, or has PSH or FIN set, so nothing may follow.
    complete: bool,
    /// FIN and PSH of the last packet.
    end_flags: u8,
    /// The first packet's checksum was verified, which is deferred until another packet can be
    /// joined.
    first_verified: bool,
}

/// Headers of a packet that may be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JoinHeaders {
    tcp: bool,
    /// Offsets of transport header and payload.
    transport_offset: usize,
    payload_offset: usize,
    /// Payload length in bytes, at least one.
    payload_bytes: usize,
    /// TCP flags.
    flags: u8,
}

impl Joiner {
    /// Allocates the buffer of 64 KB. With `udp` also joins UDP packets, for a device that [accepts
    /// them](crate::Tun::supports_udp_segmentation).
    pub fn new(udp: bool) -> Joiner {
        Joiner {
            buffer: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            udp,
            run: None,
        }
    }

    /// Adds an IP packet with complete checksums to the run. Returns false, without adding it, if
    /// the packet does not continue the run: [`finish`](Joiner::finish) the run and add the packet
    /// again to start the next one. Any packet can start a run, even one that cannot be joined; its
    /// checksums are left to the receiver.
    pub fn add(&mut self, packet: &[u8]) -> Result<bool, FrameError> {
        let Some(length) = (1..=FRAME_BYTES_MAX - VNET_HEADER_BYTES)
            .contains(&packet.len())
            .then_some(packet.len())
        else {
            return Err(FrameError("the length is not valid for an IP packet"));
        };
        let next = JoinHeaders::parse(packet, self.udp);
        let Some(mut run) = self.run else {
            self.buffer[..VNET_HEADER_BYTES].fill(0);
            self.buffer[VNET_HEADER_BYTES..VNET_HEADER_BYTES + length].copy_from_slice(packet);
            self.run = Some(JoinedRun {
                first: next,
                length,
                packets: 1,
                complete: next.is_none_or(|next| next.flags & FIN_PSH != 0),
                end_flags: 0,
                first_verified: false,
            });
            return Ok(true);
        };
        let (Some(first), Some(next)) = (run.first, next) else {
            return Ok(false);
        };
        let before = &self.buffer[VNET_HEADER_BYTES..VNET_HEADER_BYTES + run.length];
        if run.complete
            || !first.continues(before, &run, packet, &next)
            || !next.has_valid_checksum(packet)
        {
            return Ok(false);
        }
        if !run.first_verified && !first.has_valid_checksum(before) {
            run.complete = true;
            self.run = Some(run);
            return Ok(false);
        }
        let end = VNET_HEADER_BYTES + run.length;
        self.buffer[end..end + next.payload_bytes].copy_from_slice(&packet[next.payload_offset..]);
        run.length += next.payload_bytes;
        run.packets += 1;
        run.end_flags = next.flags & FIN_PSH;
        run.complete = next.payload_bytes < first.payload_bytes || run.end_flags != 0;
        run.first_verified = true;
        self.run = Some(run);
        Ok(true)
    }

    /// Returns the number of packets in the run.
    pub fn packets(&self) -> u16 {
        self.run.map_or(0, |run| run.packets)
    }

    /// Returns true if no packet can be added, so the run may be [finished](Joiner::finish) without
    /// waiting for the next packet.
    pub fn is_complete(&self) -> bool {
        self.run.is_some_and(|run| run.complete)
    }

    /// Ends the run and returns it as a frame for [`Tun::write`](crate::Tun::write); `None` if
    /// there is no run. A single packet is unchanged, after an empty virtio-net header.
    pub fn finish(&mut self) -> Option<&[u8]> {
        let run = self.run.take()?;
        let frame = &mut self.buffer[..VNET_HEADER_BYTES + run.length];
        if let Some(first) = run.first.filter(|_| run.packets > 1) {
            first.write_headers(frame, &run);
        }
        Some(frame)
    }
}

impl fmt::Debug for Joiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joiner")
            .field("udp", &self.udp)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl JoinHeaders {
    /// Parses the headers of a packet that may be joined, without verifying the transport checksum.
    fn parse(packet: &[u8], udp: bool) -> Option<JoinHeaders> {
        let (transport, protocol, length) = match packet.first()? {
            // IPv4 without options.
            0x45 => {
                let header = packet.get(..IPV4_HEADER_BYTES)?;
                // The other bits and the offset mark a fragment, or are reserved.
                let whole = read_word(header, 6) & !DONT_FRAGMENT == 0;
                // The other representation of the same sum would not be reproduced.
                let sound = checksum(header) == 0 && read_word(header, 10) != 0xffff;
                (
                    IPV4_HEADER_BYTES,
                    header[9],
                    usize::from((whole && sound).then_some(read_word(header, 2))?),
                )
            }
            0x60..=0x6f => {
                let header = packet.get(..IPV6_HEADER_BYTES)?;
                let length = IPV6_HEADER_BYTES + usize::from(read_word(header, 4));
                (IPV6_HEADER_BYTES, header[6], length)
            }
            _ => return None,
        };
        let segment = &packet[transport..];
        let (header, flags) = match protocol {
            TCP => {
                let header = segment.get(..TCP_HEADER_BYTES)?;
                let known = header[13] & !(ACK | ECE | CWR | FIN_PSH) == 0 && header[13] & ACK != 0;
                (
                    known.then_some(usize::from(header[12] >> 4) * 4)?,
                    header[13],
                )
            }
            UDP if udp => (UDP_HEADER_BYTES, 0),
            _ => return None,
        };
        if protocol == TCP && header < TCP_HEADER_BYTES
            || protocol == UDP
                && usize::from(read_word(segment.get(..UDP_HEADER_BYTES)?, 4)) != segment.len()
        {
            return None;
        }
        let size = segment.len().checked_sub(header).filter(|&size| size > 0)?;
        (length == packet.len()).then_some(JoinHeaders {
            tcp: protocol == TCP,
            transport_offset: transport,
            payload_offset: transport + header,
            payload_bytes: size,
            flags,
        })
    }

    /// Returns true if `packet` directly follows the packets in the buffer, whose headers are
    /// `self`.
    fn continues(&self, before: &[u8], run: &JoinedRun, packet: &[u8], next: &JoinHeaders) -> bool {
        let same = |range: std::ops::Range<usize>| before[range.clone()] == packet[range];
        let kind = (self.tcp, self.transport_offset, self.payload_offset)
            == (next.tcp, next.transport_offset, next.payload_offset);
        let fits = next.payload_bytes <= self.payload_bytes
            && run.length + next.payload_bytes <= FRAME_BYTES_MAX - VNET_HEADER_BYTES;
        if !kind || !fits {
            return false;
        }
        let network = match self.transport_offset {
            IPV4_HEADER_BYTES => {
                let identification = read_word(before, 4).wrapping_add(run.packets);
                // Version, type of service; DF, time to live, protocol; addresses.
                same(0..2) && read_word(packet, 4) == identification && same(6..10) && same(12..20)
            }
            // Version, traffic class, flow label; next header, hop limit, addresses.
            _ => same(0..4) && same(6..40),
        };
        let at = self.transport_offset;
        if !network || !same(at..at + 4) {
            return false;
        }
        if !self.tcp {
            return run.packets < UDP_PACKETS_MAX;
        }
        let number = |bytes: &[u8]| u32::from_be_bytes([4, 5, 6, 7].map(|i| bytes[at + i]));
        let sequence = number(before).wrapping_add((run.length - self.payload_offset) as u32);
        // CWR is allowed only in the first packet of a run, PSH and FIN only in the last.
        let flags = next.flags & !FIN_PSH == self.flags & !CWR;
        // Acknowledgement and data offset; window; urgent pointer and options.
        number(packet) == sequence
            && flags
            && same(at + 8..at + 13)
            && same(at + 14..at + 16)
            && same(at + 18..self.payload_offset)
    }

    /// Returns true if the transport checksum is correct, and in the form that
    /// [`Frame::completed`](crate::Frame::completed) writes.
    fn has_valid_checksum(&self, packet: &[u8]) -> bool {
        // In UDP zero means no checksum; in TCP all ones is another form of zero.
        let other = if self.tcp { 0xffff } else { 0 };
        transport_checksum(packet, self.transport_offset, self.protocol()) == 0
            && read_word(packet, self.checksum_offset()) != other
    }

    /// Makes the headers of a frame cover all packets of the run.
    fn write_headers(&self, frame: &mut [u8], run: &JoinedRun) {
        let (vnet, packet) = frame.split_at_mut(VNET_HEADER_BYTES);
        let v4 = self.transport_offset == IPV4_HEADER_BYTES;
        let kind = match (self.tcp, v4) {
            (true, true) => GSO_TCPV4,
            (true, false) => GSO_TCPV6,
            (false, _) => GSO_UDP,
        };
        let reduced = if self.flags & CWR == 0 { 0 } else { GSO_ECN };
        vnet[..2].copy_from_slice(&[NEEDS_CHECKSUM, kind | reduced]);
        let fields = [
            self.payload_offset,
            self.payload_bytes,
            self.transport_offset,
            self.checksum_offset() - self.transport_offset,
        ];
        for (place, field) in vnet[2..].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&(field as u16).to_ne_bytes());
        }
        if v4 {
            write_word(packet, 2, run.length as u16);
            write_ipv4_checksum(&mut packet[..IPV4_HEADER_BYTES]);
        } else {
            write_word(packet, 4, (run.length - IPV6_HEADER_BYTES) as u16);
        }
        let segment = run.length - self.transport_offset;
        if self.tcp {
            packet[self.transport_offset + 13] |= run.end_flags;
        } else {
            write_word(packet, self.transport_offset + 4, segment as u16);
        }
        let partial = pseudo_header_sum(packet, self.protocol(), segment as u16);
        write_word(packet, self.checksum_offset(), partial);
    }

    fn protocol(&self) -> u8 {
        if self.tcp { TCP } else { UDP }
    }

    fn checksum_offset(&self) -> usize {
        self.transport_offset
            + if self.tcp {
                TCP_CHECKSUM_OFFSET
            } else {
                UDP_CHECKSUM_OFFSET
            }
    }
}

#[cfg(test)]
mod tests;
