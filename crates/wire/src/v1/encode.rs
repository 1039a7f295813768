//! Encoding of CCP's messages. Each function appends one whole message to `out`, or leaves it
//! unchanged and returns an error.

use std::net::SocketAddr;

use ccplane_datapath::{CommandTarget, Program, Update, VarKind};

use super::{
    ALGORITHM_NAME_BYTES, Create, HEADER_BYTES, MESSAGE_BYTES_MAX, UPDATE, class, implicit, kind,
    program,
};
use crate::message_reader::PutField;
use crate::{NotExpressible, WireError};

/// Appends READY, sent by a datapath.
pub fn ready(out: &mut Vec<u8>, id: u32) {
    header(out, kind::READY, 12, 0);
    out.put_u32(id);
}

/// Appends CREATE, sent by a datapath.
pub fn create(out: &mut Vec<u8>, flow: u32, create: &Create<'_>) -> Result<(), WireError> {
    let name = create.algorithm.as_bytes();
    if name.len() >= ALGORITHM_NAME_BYTES {
        return Err(WireError::TooLong {
            what: "the algorithm's name",
            is: name.len(),
            most: ALGORITHM_NAME_BYTES - 1,
        });
    }
    let (SocketAddr::V4(source), SocketAddr::V4(destination)) = (create.source, create.destination)
    else {
        return Err(WireError::NotExpressible(NotExpressible::Ipv6));
    };
    header(out, kind::CREATE, super::CREATE as u16, flow);
    out.put_u32(create.init_cwnd);
    out.put_u32(create.mss);
    for address in [source, destination] {
        out.put(&address.ip().octets());
        out.put_u32(u32::from(address.port()));
    }
    out.put(name);
    out.resize(out.len() + ALGORITHM_NAME_BYTES - name.len(), 0);
    Ok(())
}

/// Appends MEASURE, sent by a datapath. Without fields it closes the flow.
pub fn measure(
    out: &mut Vec<u8>,
    flow: u32,
    program: u32,
    fields: &[u64],
) -> Result<(), WireError> {
    let length = length("MEASURE", 16 + 8 * fields.len())?;
    header(out, kind::MEASURE, length, flow);
    out.put_u32(program);
    out.put_u32(fields.len() as u32);
    fields.iter().for_each(|field| out.put_u64(*field));
    Ok(())
}

/// Appends INSTALL, sent by an agent, with the program's number in the datapath.
pub fn install(out: &mut Vec<u8>, number: u32, program: &Program) -> Result<(), WireError> {
    let encoded = program::EncodedProgram::new(program)?;
    let length = length(
        "INSTALL",
        HEADER_BYTES + 12 + 16 * (encoded.events.len() + encoded.instrs.len()),
    )?;
    header(out, kind::INSTALL, length, 0);
    out.put_u32(number);
    out.put_u32(encoded.events.len() as u32);
    out.put_u32(encoded.instrs.len() as u32);
    encoded.events.iter().for_each(|event| event.write(out));
    encoded.instrs.iter().for_each(|instr| instr.write(out));
    Ok(())
}

/// Checks that INSTALL can express this program.
pub fn check_expressible(program: &Program) -> Result<(), WireError> {
    install(&mut Vec::new(), 1, program)
}

/// Appends UPDATE_FIELD, sent by an agent, for a flow that runs `program`.
pub fn update_fields(
    out: &mut Vec<u8>,
    flow: u32,
    program: Option<&Program>,
    updates: &[Update],
) -> Result<(), WireError> {
    let length = length("UPDATE_FIELD", 12 + UPDATE * updates.len())?;
    truncate_on_error(out, |out| {
        header(out, kind::UPDATE_FIELD, length, flow);
        out.put_u32(updates.len() as u32);
        updates.iter().try_for_each(|u| update(out, program, u))
    })
}

/// Appends CHANGEPROG, sent by an agent: run `program`, which is installed under `number`.
pub fn change_program(
    out: &mut Vec<u8>,
    flow: u32,
    number: u32,
    program: &Program,
    updates: &[Update],
) -> Result<(), WireError> {
    let length = length("CHANGEPROG", 16 + UPDATE * updates.len())?;
    truncate_on_error(out, |out| {
        header(out, kind::CHANGEPROG, length, flow);
        out.put_u32(number);
        out.put_u32(updates.len() as u32);
        updates
            .iter()
            .try_for_each(|u| update(out, Some(program), u))
    })
}

fn update(out: &mut Vec<u8>, program: Option<&Program>, update: &Update) -> Result<(), WireError> {
    let (class, index) = match update.target {
        CommandTarget::Cwnd => (class::IMPLICIT, implicit::CWND),
        CommandTarget::Rate => (class::IMPLICIT, implicit::RATE),
        CommandTarget::Ssthresh => return Err(WireError::NotExpressible(NotExpressible::Ssthresh)),
        CommandTarget::Micros => return Err(WireError::NotExpressible(NotExpressible::Micros)),
        CommandTarget::Var(index) => control(program, index)
            .ok_or(WireError::NotExpressible(NotExpressible::Variable(index)))?,
    };
    out.put_u8(class);
    out.put_u32(index);
    out.put_u64(update.value);
    Ok(())
}

fn control(program: Option<&Program>, index: u8) -> Option<(u8, u32)> {
    let program = program?;
    let var = program
        .vars()
        .get(index as usize)
        .filter(|var| var.kind == VarKind::Control)?;
    let class = if var.volatile {
        class::VOLATILE_CONTROL
    } else {
        class::CONTROL
    };
    Some((class, u32::from(index) - program.report_vars() as u32))
}

fn header(out: &mut Vec<u8>, kind: u16, length: u16, flow: u32) {
    out.put_u16(kind);
    out.put_u16(length);
    out.put_u32(flow);
}

fn length(what: &'static str, length: usize) -> Result<u16, WireError> {
    if length > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLong {
            what,
            is: length,
            most: MESSAGE_BYTES_MAX,
        });
    }
    Ok(length as u16)
}

fn truncate_on_error(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let start = out.len();
    let done = write(out);
    if done.is_err() {
        out.truncate(start);
    }
    done
}
