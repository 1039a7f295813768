//! Helpers for tests of the compiler.

use ccplane_datapath::Op;
use ccplane_lang::{DiagnosticCode, Diagnostics, Program, ProgramLimits, compile};

pub fn compiled(source: &str) -> Program {
    compile(source, &ProgramLimits::default()).unwrap_or_else(|why| panic!("{why}\n{source}"))
}

pub fn refused(source: &str) -> Diagnostics {
    match compile(source, &ProgramLimits::default()) {
        Ok(program) => panic!("compiled:\n{}", program.bytecode()),
        Err(why) => why,
    }
}

pub fn same(a: &str, b: &str) {
    assert_eq!(compiled(a).code(), compiled(b).code(), "{a}\n{b}");
}

/// Checks the one problem of a text: its code, and a part of its message or fix.
pub fn refused_for(source: &str, code: DiagnosticCode, part: &str) {
    let why = refused(source);
    let [problem] = why.problems() else {
        panic!("{why}")
    };
    assert_eq!(problem.code(), code, "{why}");
    assert!(
        format!("{why:#}").contains(part),
        "{why:#} should say {part}"
    );
}

pub fn ops(program: &Program) -> Vec<Op> {
    program
        .code()
        .instrs()
        .iter()
        .map(|instr| instr.op)
        .collect()
}
