//! Programs in version 2: the bytecode itself, checked again on arrival.

use ccplane_datapath::{Clause, Instr, Op, Program, Var, VarKind};

use crate::WireError;
use crate::message_reader::{MessageReader, PutField};

const VOLATILE_BIT: u8 = 0x80;

/// Writes u32 number, u16 instructions, u8 clauses, u8 variables, then their contents.
pub(super) fn write(out: &mut Vec<u8>, program: &Program) {
    out.put_u32(program.uid());
    out.put_u16(program.instrs().len() as u16);
    out.put_u8(program.clauses().len() as u8);
    out.put_u8(program.vars().len() as u8);
    for instr in program.instrs() {
        out.put(&[
            instr.op as u8,
            u8::from(instr.has_imm),
            instr.dst,
            instr.a,
            instr.b,
        ]);
        out.put_u64(instr.imm);
    }
    for clause in program.clauses() {
        out.put_u8(clause.flag);
        [clause.guard_start, clause.body_start, clause.body_end]
            .into_iter()
            .for_each(|n| out.put_u16(n));
    }
    for var in program.vars() {
        out.put_u8(var.kind as u8 | if var.volatile { VOLATILE_BIT } else { 0 });
        out.put_u64(var.init);
    }
}

pub(super) fn read(body: &mut MessageReader<'_>) -> Result<Program, WireError> {
    let (uid, instrs, clauses, vars) = (body.u32()?, body.u16()?, body.u8()?, body.u8()?);
    let instrs = (0..instrs)
        .map(|_| read_instr(body))
        .collect::<Result<Vec<_>, _>>()?;
    let clauses = (0..clauses)
        .map(|_| read_clause(body))
        .collect::<Result<Vec<_>, _>>()?;
    let vars = (0..vars)
        .map(|_| read_var(body))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Program::check(uid, &instrs, &clauses, &vars)?)
}

fn read_instr(body: &mut MessageReader<'_>) -> Result<Instr, WireError> {
    let number = body.u8()?;
    let op = Op::ALL.get(number as usize).copied();
    let op = op.ok_or(WireError::UnknownValue {
        what: "operation",
        value: u64::from(number),
    })?;
    Ok(Instr {
        op,
        has_imm: body.u8()? != 0,
        dst: body.u8()?,
        a: body.u8()?,
        b: body.u8()?,
        imm: body.u64()?,
    })
}

fn read_clause(body: &mut MessageReader<'_>) -> Result<Clause, WireError> {
    let flag = body.u8()?;
    Ok(Clause {
        flag,
        guard_start: body.u16()?,
        body_start: body.u16()?,
        body_end: body.u16()?,
    })
}

fn read_var(body: &mut MessageReader<'_>) -> Result<Var, WireError> {
    let bits = body.u8()?;
    let kind = match bits & !VOLATILE_BIT {
        0 => VarKind::Report,
        1 => VarKind::Control,
        2 => VarKind::Local,
        unknown => {
            return Err(WireError::UnknownValue {
                what: "variable kind",
                value: u64::from(unknown),
            });
        }
    };
    Ok(Var {
        kind,
        volatile: bits & VOLATILE_BIT != 0,
        init: body.u64()?,
    })
}
