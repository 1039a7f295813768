//! Version 1: CCP's messages, byte for byte.
//!
//! All fields are little-endian. A header of 8 bytes (u16 type, u16 length including the header,
//! u32 flow) is followed by
//!
//! | type | direction | after the header |
//! | --- | --- | --- |
//! | 0 CREATE | to the agent | u32 window, MSS, source, port, destination, port; 64-byte algorithm |
//! | 1 MEASURE | to the agent | u32 program, u32 n, n u64 fields; n = 0: the flow closed |
//! | 2 INSTALL | to the datapath | u32 program, events, instructions; 16 bytes each: [`program`] |
//! | 3 UPDATE_FIELD | to the datapath | u32 n, n times (u8 register type, u32 index, u64 value) |
//! | 4 CHANGEPROG | to the datapath | u32 program, u32 n, n updates as in UPDATE_FIELD |
//! | 5 READY | to the agent | u32 number of the datapath |
//!
//! A datagram holds one or more messages.

mod encode;
pub mod program;
#[cfg(test)]
mod tests;

pub use encode::{
    change_program, check_expressible, create, install, measure, ready, update_fields,
};

use std::net::{Ipv4Addr, SocketAddr};

use ccplane_datapath::{CommandTarget, Program, Update, VarKind};

use crate::WireError;
use crate::message_reader::MessageReader;

/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 8;
/// Length of a CREATE, bytes.
pub const CREATE: usize = 96;
/// Length of the algorithm's name in a CREATE, bytes.
pub const ALGORITHM_NAME_BYTES: usize = 64;
/// Length of an update in an UPDATE_FIELD or CHANGEPROG, bytes.
pub const UPDATE: usize = 13;
/// Maximum length of a message that the reference datapath reads, bytes.
pub const MESSAGE_BYTES_MAX: usize = 32_678;

/// Register types in updates and programs.
pub(crate) mod class {
    pub const CONTROL: u8 = 0;
    pub const IMMEDIATE: u8 = 1;
    pub const IMPLICIT: u8 = 2;
    pub const LOCAL: u8 = 3;
    pub const PRIMITIVE: u8 = 4;
    pub const VOLATILE_REPORT: u8 = 5;
    pub const REPORT: u8 = 6;
    pub const TEMPORARY: u8 = 7;
    pub const VOLATILE_CONTROL: u8 = 8;
}

/// Implicit registers.
pub(crate) mod implicit {
    pub const FLAG: u32 = 0;
    pub const CONTINUE: u32 = 1;
    pub const REPORT: u32 = 2;
    pub const MICROS: u32 = 3;
    pub const CWND: u32 = 4;
    pub const RATE: u32 = 5;
}

pub(crate) mod kind {
    pub const CREATE: u16 = 0;
    pub const MEASURE: u16 = 1;
    pub const INSTALL: u16 = 2;
    pub const UPDATE_FIELD: u16 = 3;
    pub const CHANGEPROG: u16 = 4;
    pub const READY: u16 = 5;
}

/// Message with checked lengths.
#[derive(Clone, Copy, Debug)]
pub enum V1Message<'a> {
    /// A flow opened.
    Create {
        /// Number of the flow.
        flow: u32,
        /// Description of the flow.
        create: Create<'a>,
    },
    /// A report.
    Measure {
        /// Number of the flow.
        flow: u32,
        /// Number of the program that made it.
        program: u32,
        /// Fields of the report; none if the flow closed.
        fields: Fields<'a>,
    },
    /// A program.
    Install(program::Install<'a>),
    /// Updates of a flow's variables.
    UpdateField {
        /// Number of the flow.
        flow: u32,
        /// Updates.
        updates: RawUpdates<'a>,
    },
    /// A new program for a flow.
    ChangeProgram {
        /// Number of the flow.
        flow: u32,
        /// Number of the program.
        program: u32,
        /// Updates applied with it.
        updates: RawUpdates<'a>,
    },
    /// A datapath has started.
    Ready {
        /// Number of the datapath.
        id: u32,
    },
}

/// Body of a CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// Initial window, bytes.
    pub init_cwnd: u32,
    /// Payload of a full segment, bytes.
    pub mss: u32,
    /// Address of the sender.
    pub source: SocketAddr,
    /// Address of the receiver.
    pub destination: SocketAddr,
    /// Algorithm that the flow asks for.
    pub algorithm: &'a str,
}

/// Fields of a report: a whole number of u64.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [[u8; 8]]);

impl Fields<'_> {
    /// Values, in order of declaration.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> {
        self.0.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Updates in the wire format: a whole number of them.
#[derive(Clone, Copy, Debug)]
pub struct RawUpdates<'a>(&'a [[u8; UPDATE]]);

/// Update in the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawUpdate {
    /// Type of the register.
    pub class: u8,
    /// Index of the register.
    pub index: u32,
    /// New value.
    pub value: u64,
}

impl RawUpdate {
    /// Decodes the update for a flow that runs `program`.
    pub fn decode(&self, program: Option<&Program>) -> Result<Update, WireError> {
        let target = match (self.class, self.index) {
            (class::IMPLICIT, implicit::CWND) => Some(CommandTarget::Cwnd),
            (class::IMPLICIT, implicit::RATE) => Some(CommandTarget::Rate),
            (class::CONTROL | class::VOLATILE_CONTROL, index) => program.and_then(|program| {
                let index = program.report_vars().checked_add(index as usize)?;
                let is_control = program.vars().get(index)?.kind == VarKind::Control;
                u8::try_from(index)
                    .ok()
                    .filter(|_| is_control)
                    .map(CommandTarget::Var)
            }),
            _ => None,
        };
        let target = target.ok_or(WireError::UnknownValue {
            what: "update register type",
            value: u64::from(self.class) << 32 | u64::from(self.index),
        })?;
        Ok(Update {
            target,
            value: self.value,
        })
    }
}

impl RawUpdates<'_> {
    /// All updates.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RawUpdate> {
        self.0.iter().map(
            |&[class, i0, i1, i2, i3, v0, v1, v2, v3, v4, v5, v6, v7]| RawUpdate {
                class,
                index: u32::from_le_bytes([i0, i1, i2, i3]),
                value: u64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]),
            },
        )
    }
}

/// Iterator over the messages of a datagram. After an error there are no more.
#[derive(Clone, Debug)]
pub struct V1Messages<'a>(&'a [u8]);

/// Decodes a datagram.
pub fn messages(datagram: &[u8]) -> V1Messages<'_> {
    V1Messages(datagram)
}

impl<'a> Iterator for V1Messages<'a> {
    type Item = Result<V1Message<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let one = take(&mut self.0);
        if one.is_err() {
            self.0 = &[];
        }
        Some(one)
    }
}

fn take<'a>(bytes: &mut &'a [u8]) -> Result<V1Message<'a>, WireError> {
    let mut header = MessageReader::new("a header", bytes);
    let (kind, length, flow) = (header.u16()?, header.u16()? as usize, header.u32()?);
    if length < HEADER_BYTES {
        return Err(WireError::LengthMismatch {
            what: "a header",
            says: length,
            needs: HEADER_BYTES,
        });
    }
    let what = name(kind);
    let message = MessageReader::new(what, bytes).bytes(length)?;
    *bytes = &bytes[length..];
    let mut body = MessageReader::new(what, &message[HEADER_BYTES..]);
    match kind {
        kind::CREATE => {
            let create = read_create(&mut body)?;
            body.finish(length)?;
            Ok(V1Message::Create { flow, create })
        }
        kind::MEASURE => {
            let (program, count) = (body.u32()?, body.u32()?);
            let (fields, over) = body.into_remaining().as_chunks();
            check_count(what, length, count, fields.len(), over, 16, 8)?;
            Ok(V1Message::Measure {
                flow,
                program,
                fields: Fields(fields),
            })
        }
        kind::INSTALL => Ok(V1Message::Install(program::Install::read(body, length)?)),
        kind::UPDATE_FIELD => {
            let count = body.u32()?;
            let (updates, over) = body.into_remaining().as_chunks();
            check_count(what, length, count, updates.len(), over, 12, UPDATE)?;
            Ok(V1Message::UpdateField {
                flow,
                updates: RawUpdates(updates),
            })
        }
        kind::CHANGEPROG => {
            let (program, count) = (body.u32()?, body.u32()?);
            let (updates, over) = body.into_remaining().as_chunks();
            check_count(what, length, count, updates.len(), over, 16, UPDATE)?;
            Ok(V1Message::ChangeProgram {
                flow,
                program,
                updates: RawUpdates(updates),
            })
        }
        kind::READY => {
            let id = body.u32()?;
            body.finish(length)?;
            Ok(V1Message::Ready { id })
        }
        unknown => Err(WireError::UnknownValue {
            what: "message type",
            value: u64::from(unknown),
        }),
    }
}

/// Checks that the count agrees with the contents, and that nothing is left over.
fn check_count(
    what: &'static str,
    says: usize,
    count: u32,
    actual: usize,
    trailing: &[u8],
    fixed: usize,
    entry_len: usize,
) -> Result<(), WireError> {
    if count as usize == actual && trailing.is_empty() {
        return Ok(());
    }
    Err(WireError::LengthMismatch {
        what,
        says,
        needs: (count as usize)
            .saturating_mul(entry_len)
            .saturating_add(fixed),
    })
}

fn read_create<'a>(body: &mut MessageReader<'a>) -> Result<Create<'a>, WireError> {
    let (init_cwnd, mss) = (body.u32()?, body.u32()?);
    let source = read_address(body)?;
    let destination = read_address(body)?;
    let name = body.bytes(ALGORITHM_NAME_BYTES)?;
    let end = name
        .iter()
        .position(|b| *b == 0)
        .unwrap_or(ALGORITHM_NAME_BYTES);
    let algorithm = std::str::from_utf8(&name[..end])
        .map_err(|_| WireError::InvalidUtf8("the algorithm's name"))?;
    Ok(Create {
        init_cwnd,
        mss,
        source,
        destination,
        algorithm,
    })
}

/// Reads an address. Its bytes are in network order; the port is a little-endian number of 32 bits.
fn read_address(body: &mut MessageReader<'_>) -> Result<SocketAddr, WireError> {
    let address = Ipv4Addr::from(body.u32()?.to_le_bytes());
    let port = body.u32()?;
    let port = u16::try_from(port).map_err(|_| WireError::UnknownValue {
        what: "port",
        value: u64::from(port),
    })?;
    Ok(SocketAddr::new(address.into(), port))
}

fn name(kind: u16) -> &'static str {
    match kind {
        kind::CREATE => "CREATE",
        kind::MEASURE => "MEASURE",
        kind::INSTALL => "INSTALL",
        kind::UPDATE_FIELD => "UPDATE_FIELD",
        kind::CHANGEPROG => "CHANGEPROG",
        kind::READY => "READY",
        _ => "a message",
    }
}
