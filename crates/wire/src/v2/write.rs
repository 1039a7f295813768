//! Encoding of packets.

use std::net::{IpAddr, SocketAddr};

use ccplane_datapath::CommandTarget;

use super::{MAGIC, PACKET_BYTES_MAX, URGENT_OR_LIVE_FLAG, VERSION, kind, program, reason, target};
use crate::message_reader::PutField;
use crate::{DatapathInfo, FlowInfo, Refusal, Updates, WireCommand, WireError, WireEvent};

/// Packet under construction; if reused, it does not allocate.
#[derive(Clone, Debug)]
pub struct PacketWriter {
    bytes: Vec<u8>,
}

impl Default for PacketWriter {
    fn default() -> PacketWriter {
        PacketWriter::new()
    }
}

impl PacketWriter {
    /// Creates an empty packet.
    pub fn new() -> PacketWriter {
        PacketWriter {
            bytes: vec![MAGIC, VERSION],
        }
    }

    /// Bytes of the packet.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns true if it has no message.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() <= 2
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.bytes.truncate(2);
    }

    /// Adds an event. On an error the packet is unchanged: if it is full ([`WireError::TooLong`]),
    /// send it, clear it, and add the event again.
    pub fn push_event(&mut self, event: &WireEvent<'_>) -> Result<(), WireError> {
        match event {
            WireEvent::Ready { datapath } => {
                self.message(kind::READY, 0, |out| put_datapath_info(out, datapath))
            }
            WireEvent::FlowOpened { flow, info } => self.message(
                kind::FLOW_OPENED,
                u8::from(info.live) * URGENT_OR_LIVE_FLAG,
                |out| {
                    out.put_u64(*flow);
                    put_flow_info(out, info)
                },
            ),
            WireEvent::Report {
                flow,
                program,
                urgent,
                fields,
            } => self.message(
                kind::REPORT,
                u8::from(*urgent) * URGENT_OR_LIVE_FLAG,
                |out| {
                    out.put_u64(*flow);
                    out.put_u32(*program);
                    fields.iter().for_each(|f| out.put_u64(*f));
                    Ok(())
                },
            ),
            WireEvent::FlowClosed { flow, stats } => self.message(kind::FLOW_CLOSED, 0, |out| {
                let lifetime = stats.lifetime.as_nanos();
                let all = [
                    *flow,
                    stats.bytes_acked.get(),
                    stats.packets_lost,
                    stats.reports,
                    lifetime,
                ];
                all.into_iter().for_each(|n| out.put_u64(n));
                Ok(())
            }),
            WireEvent::Refused { flow, program, why } => self.message(
                kind::REFUSED,
                u8::from(flow.is_some()) * URGENT_OR_LIVE_FLAG,
                |out| {
                    out.put_u64(flow.unwrap_or(0));
                    out.put_u32(*program);
                    put_refusal(out, why);
                    Ok(())
                },
            ),
            WireEvent::Installed { program } => self.message(kind::INSTALLED, 0, |out| {
                out.put_u32(*program);
                Ok(())
            }),
        }
    }

    /// Adds a command; see [`PacketWriter::push_event`] for errors.
    pub fn push_command(&mut self, command: &WireCommand) -> Result<(), WireError> {
        match command {
            WireCommand::Offer(offer) => self.message(kind::OFFER, 0, |out| {
                let numbers = [
                    offer.required.0,
                    offer.requested.0,
                    offer.latency.as_nanos(),
                ];
                numbers.into_iter().for_each(|n| out.put_u64(n));
                put_text(out, &offer.name)?;
                put_text(out, &offer.kernel_name)
            }),
            WireCommand::Install { algorithm, program } => self.message(kind::INSTALL, 0, |out| {
                put_text(out, algorithm)?;
                program::write(out, program);
                Ok(())
            }),
            WireCommand::SetProgram { flow, uid, updates } => {
                self.message(kind::SET_PROGRAM, 0, |out| {
                    out.put_u64(*flow);
                    out.put_u32(*uid);
                    put_updates(out, updates);
                    Ok(())
                })
            }
            WireCommand::Update { flow, updates } => self.message(kind::UPDATE, 0, |out| {
                out.put_u64(*flow);
                put_updates(out, updates);
                Ok(())
            }),
            WireCommand::Release { flow } => self.message(kind::RELEASE, 0, |out| {
                out.put_u64(*flow);
                Ok(())
            }),
            WireCommand::Heartbeat { algorithm } => {
                self.message(kind::HEARTBEAT, 0, |out| put_text(out, algorithm))
            }
        }
    }

    fn message(
        &mut self,
        kind: u8,
        flags: u8,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let start = self.bytes.len();
        self.bytes.put(&[kind, flags, 0, 0]);
        let written = write(&mut self.bytes).and_then(|()| {
            let length = self.bytes.len() - start - 4;
            let length = u16::try_from(length)
                .ok()
                .filter(|_| self.bytes.len() <= PACKET_BYTES_MAX);
            length.ok_or(WireError::TooLong {
                what: "a packet",
                is: self.bytes.len(),
                most: PACKET_BYTES_MAX,
            })
        });
        match written {
            Ok(length) => {
                self.bytes[start + 2..start + 4].copy_from_slice(&length.to_le_bytes());
                Ok(())
            }
            Err(why) => {
                self.bytes.truncate(start);
                Err(why)
            }
        }
    }
}

fn put_datapath_info(out: &mut Vec<u8>, info: &DatapathInfo) -> Result<(), WireError> {
    out.put_u32(info.id);
    out.put_u64(info.capabilities.0);
    out.put_u32(info.max_programs);
    out.put_u32(info.max_instrs);
    out.put_u32(info.max_vars);
    out.put_u64(info.agent_timeout.map_or(0, |d| d.as_nanos().max(1)));
    put_text(out, &info.kind)
}

fn put_flow_info(out: &mut Vec<u8>, info: &FlowInfo) -> Result<(), WireError> {
    let numbers = [
        info.init_cwnd.get(),
        info.mss.get(),
        info.cwnd.get(),
        info.ssthresh.get(),
    ];
    numbers.into_iter().for_each(|n| out.put_u64(n));
    out.put_u64(info.rate.bytes_per_sec());
    out.put_u64(info.srtt.as_nanos());
    put_address(out, info.local);
    put_address(out, info.peer);
    put_text(out, &info.algorithm)?;
    // Omitted if there are none: peers without support for tags can read the message.
    if !info.tags.is_empty() {
        let tags = info.tags.as_slice();
        out.put_u8(tags.len() as u8);
        tags.iter()
            .try_for_each(|tag| put_text(out, tag.as_str()))?;
    }
    Ok(())
}

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.put_u8(4);
            out.put(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.put_u8(6);
            out.put(&ip.octets());
        }
    }
    out.put_u16(address.port());
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Result<(), WireError> {
    let length = u8::try_from(text.len());
    out.put_u8(length.map_err(|_| WireError::TooLong {
        what: "a name",
        is: text.len(),
        most: 255,
    })?);
    out.put(text.as_bytes());
    Ok(())
}

/// Appends text for users, which is cut rather than refused.
fn put_text_truncated(out: &mut Vec<u8>, words: &str) {
    let mut end = words.len().min(255);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    out.put_u8(end as u8);
    out.put(&words.as_bytes()[..end]);
}

fn put_updates(out: &mut Vec<u8>, updates: &Updates) {
    for update in updates.as_slice() {
        let (kind, index) = match update.target {
            CommandTarget::Var(index) => (target::VAR, index),
            CommandTarget::Cwnd => (target::CWND, 0),
            CommandTarget::Rate => (target::RATE, 0),
            CommandTarget::Ssthresh => (target::SSTHRESH, 0),
            CommandTarget::Micros => (target::MICROS, 0),
        };
        out.put(&[kind, index]);
        out.put_u64(update.value);
    }
}

fn put_refusal(out: &mut Vec<u8>, why: &Refusal) {
    let (code, number, said): (u8, u64, &str) = match why {
        Refusal::UnknownProgram(uid) => (reason::UNKNOWN_PROGRAM, u64::from(*uid), ""),
        Refusal::UnknownFlow => (reason::UNKNOWN_FLOW, 0, ""),
        Refusal::BadTarget(said) => (reason::BAD_TARGET, 0, said),
        Refusal::TableFull => (reason::TABLE_FULL, 0, ""),
        Refusal::TooManyVars { needed, available } => (
            reason::TOO_MANY_VARS,
            u64::from(*needed) << 32 | u64::from(*available),
            "",
        ),
        Refusal::MissingCapabilities(missing) => (reason::MISSING, missing.0, ""),
        Refusal::InvalidProgram(said) => (reason::INVALID, 0, said),
        Refusal::Unsupported(said) => (reason::UNSUPPORTED, 0, said),
        Refusal::NoRelease => (reason::NO_RELEASE, 0, ""),
        Refusal::Other(said) => (reason::OTHER, 0, said),
    };
    out.put_u8(code);
    out.put_u64(number);
    put_text_truncated(out, said);
}
