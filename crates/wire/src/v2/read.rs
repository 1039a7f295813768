//! Decoding of packets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ccplane_datapath::{Capabilities, CommandTarget, Update, VARS_MAX};
use ccplane_units::{Bytes, Duration, Rate};

use super::{MAGIC, URGENT_OR_LIVE_FLAG, VERSION, kind, program, reason, target};
use crate::message_reader::MessageReader;
use crate::{
    DatapathInfo, FlowInfo, FlowStats, Offer, Refusal, Tags, Updates, WireCommand, WireError,
    WireEvent,
};

/// Passes each event of a packet to `sink`. `fields` is a buffer for the values of a report, owned
/// by the caller so that decoding does not allocate. On an error, the events before it have been
/// passed.
pub fn read_events(
    packet: &[u8],
    fields: &mut Vec<u64>,
    sink: &mut dyn FnMut(WireEvent<'_>),
) -> Result<(), WireError> {
    messages(packet, |kind, flags, body| {
        let event = match kind {
            kind::REPORT => {
                let (flow, program) = (body.u64()?, body.u32()?);
                let (values, over) = body.bytes(body.remaining_len())?.as_chunks();
                if !over.is_empty() {
                    return Err(WireError::Truncated {
                        what: "a report's field",
                        needs: 8,
                        has: over.len(),
                    });
                }
                fields.clear();
                fields.extend(values.iter().map(|v| u64::from_le_bytes(*v)));
                WireEvent::Report {
                    flow,
                    program,
                    urgent: flags & URGENT_OR_LIVE_FLAG != 0,
                    fields,
                }
            }
            kind::READY => WireEvent::Ready {
                datapath: read_ready(body)?,
            },
            kind::FLOW_OPENED => WireEvent::FlowOpened {
                flow: body.u64()?,
                info: read_flow_info(body, flags)?,
            },
            kind::FLOW_CLOSED => WireEvent::FlowClosed {
                flow: body.u64()?,
                stats: read_stats(body)?,
            },
            kind::REFUSED => {
                let flow = body.u64()?;
                let flow = (flags & URGENT_OR_LIVE_FLAG != 0).then_some(flow);
                WireEvent::Refused {
                    flow,
                    program: body.u32()?,
                    why: read_refusal(body)?,
                }
            }
            kind::INSTALLED => WireEvent::Installed {
                program: body.u32()?,
            },
            unknown => {
                return Err(WireError::UnknownValue {
                    what: "event kind",
                    value: u64::from(unknown),
                });
            }
        };
        sink(event);
        Ok(())
    })
}

/// Passes each command of a packet to `sink`. On an error, the commands before it have been passed.
pub fn read_commands(packet: &[u8], sink: &mut dyn FnMut(WireCommand)) -> Result<(), WireError> {
    messages(packet, |kind, _, body| {
        let command = match kind {
            kind::OFFER => WireCommand::Offer(Arc::new(read_offer(body)?)),
            kind::INSTALL => {
                let algorithm = Arc::from(read_text(body)?);
                WireCommand::Install {
                    algorithm,
                    program: Arc::new(program::read(body)?),
                }
            }
            kind::SET_PROGRAM => WireCommand::SetProgram {
                flow: body.u64()?,
                uid: body.u32()?,
                updates: read_updates(body)?,
            },
            kind::UPDATE => WireCommand::Update {
                flow: body.u64()?,
                updates: read_updates(body)?,
            },
            kind::RELEASE => WireCommand::Release { flow: body.u64()? },
            kind::HEARTBEAT => WireCommand::Heartbeat {
                algorithm: Arc::from(read_text(body)?),
            },
            unknown => {
                return Err(WireError::UnknownValue {
                    what: "command kind",
                    value: u64::from(unknown),
                });
            }
        };
        sink(command);
        Ok(())
    })
}

fn messages(
    packet: &[u8],
    mut on_message: impl FnMut(u8, u8, &mut MessageReader<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut packet = MessageReader::new("a packet", packet);
    let (magic, version) = (packet.u8()?, packet.u8()?);
    if magic != MAGIC {
        return Err(WireError::UnknownValue {
            what: "packet type",
            value: u64::from(magic),
        });
    }
    if version != VERSION {
        return Err(WireError::UnsupportedVersion {
            theirs: u16::from(version),
            ours: u16::from(VERSION),
        });
    }
    while packet.remaining_len() > 0 {
        let (kind, flags, length) = (packet.u8()?, packet.u8()?, packet.u16()? as usize);
        let mut body = MessageReader::new("a message", packet.bytes(length)?);
        on_message(kind, flags, &mut body)?;
        body.finish(length)?;
    }
    Ok(())
}

fn read_ready(body: &mut MessageReader<'_>) -> Result<DatapathInfo, WireError> {
    Ok(DatapathInfo {
        id: body.u32()?,
        capabilities: Capabilities(body.u64()?),
        max_programs: body.u32()?,
        max_instrs: body.u32()?,
        max_vars: body.u32()?,
        agent_timeout: match body.u64()? {
            0 => None,
            ns => Some(Duration::from_nanos(ns)),
        },
        kind: read_text(body)?.to_owned(),
    })
}

fn read_offer(body: &mut MessageReader<'_>) -> Result<Offer, WireError> {
    Ok(Offer {
        required: Capabilities(body.u64()?),
        requested: Capabilities(body.u64()?),
        latency: Duration::from_nanos(body.u64()?),
        name: Arc::from(read_text(body)?),
        kernel_name: read_text(body)?.to_owned(),
    })
}

fn read_flow_info(body: &mut MessageReader<'_>, flags: u8) -> Result<FlowInfo, WireError> {
    Ok(FlowInfo {
        init_cwnd: Bytes::new(body.u64()?),
        mss: Bytes::new(body.u64()?),
        cwnd: Bytes::new(body.u64()?),
        ssthresh: Bytes::new(body.u64()?),
        rate: Rate::from_bytes_per_sec(body.u64()?),
        srtt: Duration::from_nanos(body.u64()?),
        local: read_address(body)?,
        peer: read_address(body)?,
        algorithm: read_text(body)?.to_owned(),
        live: flags & URGENT_OR_LIVE_FLAG != 0,
        tags: read_tags(body)?,
    })
}

/// Reads the tags: nothing from a peer without tags, otherwise a u8 count and as many texts.
fn read_tags(body: &mut MessageReader<'_>) -> Result<Tags, WireError> {
    if body.remaining_len() == 0 {
        return Ok(Tags::default());
    }
    let count = body.u8()?;
    let tags = (0..count)
        .map(|_| Ok(read_text(body)?.parse()?))
        .collect::<Result<Vec<_>, WireError>>()?;
    Ok(Tags::new(tags)?)
}

fn read_stats(body: &mut MessageReader<'_>) -> Result<FlowStats, WireError> {
    Ok(FlowStats {
        bytes_acked: Bytes::new(body.u64()?),
        packets_lost: body.u64()?,
        reports: body.u64()?,
        lifetime: Duration::from_nanos(body.u64()?),
    })
}

fn read_address(body: &mut MessageReader<'_>) -> Result<SocketAddr, WireError> {
    let ip = match body.u8()? {
        4 => IpAddr::from(body.u32()?.to_le_bytes()),
        6 => {
            let (low, high) = (body.u64()?.to_le_bytes(), body.u64()?.to_le_bytes());
            let mut octets = [0; 16];
            octets[..8].copy_from_slice(&low);
            octets[8..].copy_from_slice(&high);
            IpAddr::from(octets)
        }
        family => {
            return Err(WireError::UnknownValue {
                what: "address family",
                value: u64::from(family),
            });
        }
    };
    Ok(SocketAddr::new(ip, body.u16()?))
}

fn read_text<'a>(body: &mut MessageReader<'a>) -> Result<&'a str, WireError> {
    let length = body.u8()? as usize;
    std::str::from_utf8(body.bytes(length)?).map_err(|_| WireError::InvalidUtf8("a name"))
}

fn read_updates(body: &mut MessageReader<'_>) -> Result<Updates, WireError> {
    let mut updates = Updates::new();
    // Each target occurs at most once.
    let most = VARS_MAX + 4;
    if body.remaining_len() > most * 10 {
        return Err(WireError::TooLong {
            what: "a list of updates",
            is: body.remaining_len() / 10,
            most,
        });
    }
    while body.remaining_len() > 0 {
        let (kind, index) = (body.u8()?, body.u8()?);
        let target = match kind {
            target::VAR => CommandTarget::Var(index),
            target::CWND => CommandTarget::Cwnd,
            target::RATE => CommandTarget::Rate,
            target::SSTHRESH => CommandTarget::Ssthresh,
            target::MICROS => CommandTarget::Micros,
            unknown => {
                return Err(WireError::UnknownValue {
                    what: "update target",
                    value: u64::from(unknown),
                });
            }
        };
        updates.push(Update {
            target,
            value: body.u64()?,
        });
    }
    Ok(updates)
}

fn read_refusal(body: &mut MessageReader<'_>) -> Result<Refusal, WireError> {
    let (code, number) = (body.u8()?, body.u64()?);
    let said = read_text(body)?.to_owned();
    Ok(match code {
        reason::UNKNOWN_PROGRAM => Refusal::UnknownProgram(number as u32),
        reason::UNKNOWN_FLOW => Refusal::UnknownFlow,
        reason::BAD_TARGET => Refusal::BadTarget(said),
        reason::TABLE_FULL => Refusal::TableFull,
        reason::TOO_MANY_VARS => Refusal::TooManyVars {
            needed: (number >> 32) as u32,
            available: number as u32,
        },
        reason::MISSING => Refusal::MissingCapabilities(Capabilities(number)),
        reason::INVALID => Refusal::InvalidProgram(said),
        reason::UNSUPPORTED => Refusal::Unsupported(said),
        reason::NO_RELEASE => Refusal::NoRelease,
        reason::OTHER => Refusal::Other(said),
        unknown => {
            return Err(WireError::UnknownValue {
                what: "refusal reason",
                value: u64::from(unknown),
            });
        }
    })
}
