//! Program text to checked bytecode.
//!
//! The language is CCP's with extensions; `docs/language.md` describes it for the people who write programs.
//! [`compile`] goes through three forms: parentheses and atoms ([`reader`]), the typed tree ([`check`], with the names
//! from [`scope`]), bytecode ([`emit`]), which [`ccplane_datapath::Program::check`] then checks as it would check
//! bytecode from a stranger.
#![forbid(unsafe_code)]

mod check;
mod def;
mod diagnostics;
mod emit;
mod fold;
mod literal;
mod operation;
mod print;
mod program;
mod reader;
mod scope;
mod tree;
mod value;

use ccplane_datapath::{MAX_CLAUSES, MAX_INSTRS, MAX_VARS, reg};

pub use diagnostics::{Code, Diagnostics, Problem, Span};
pub use print::{Bytecode, TreeView};
pub use program::{Cost, Program};
pub use tree::Type;

use diagnostics::Problems;
use reader::Forms;

/// How large a program the datapath takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most instructions.
    pub max_instrs: usize,
    /// Most clauses.
    pub max_clauses: usize,
    /// Most variables: report, control and local ones together.
    pub max_vars: usize,
}

impl Default for Limits {
    /// The limits of ccplane's own datapaths.
    fn default() -> Limits {
        Limits {
            max_instrs: MAX_INSTRS,
            max_clauses: MAX_CLAUSES,
            max_vars: MAX_VARS,
        }
    }
}

/// Compiles a program, or says everything that is wrong with it.
pub fn compile(source: &str, limits: &Limits) -> Result<Program, Diagnostics> {
    let mut problems = Problems::default();
    let limits = Limits {
        max_vars: limits.max_vars.min(usize::from(u8::MAX - reg::VARS)),
        ..*limits
    };
    let forms = Forms::read(source, &mut problems);
    if !problems.is_empty() {
        return Err(problems.into_diagnostics(source));
    }
    program::build(&forms, &limits, &mut problems)
        .ok_or(())
        .map_err(|()| problems.into_diagnostics(source))
}
