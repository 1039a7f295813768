//! Compiler from program source to checked bytecode.
//!
//! The language is CCP's with extensions; `docs/language.md` describes it for authors of programs.
//! [`compile`] has three stages: parentheses and atoms (`reader`), the typed tree (`check` and
//! `value`, with the names of `def` and `scope`), and bytecode (`emit`).
//! [`ccplane_datapath::Program::check`] then checks the bytecode as if it came from an untrusted
//! source.
//!
//! ```
//! use ccplane_lang::{ProgramLimits, compile};
//!
//! let text = "
//!     (def (Report (volatile acked 0)) (interval 10ms))
//!     (when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (fallthrough))
//!     (when (> Micros interval) (report) (:= Micros 0))";
//! let program = compile(text, &ProgramLimits::default())?;
//! assert_eq!(program.report_names().collect::<Vec<_>>(), ["acked"]);
//! assert_eq!(program.code().vars()[1].init, 10_000); // times are in µs
//!
//! let wrong = "(def) (when true (:= Cwnd (+ Cwnd Ack.bytes_akced)))";
//! let wrong = compile(wrong, &ProgramLimits::default());
//! let why = wrong.expect_err("a name is misspelt");
//! assert_eq!(why.problems()[0].fix(), Some("did you mean `Ack.bytes_acked`?"));
//! # Ok::<(), ccplane_lang::Diagnostics>(())
//! ```
#![forbid(unsafe_code)]

mod algorithm;
mod check;
mod definitions;
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
mod warn;

use ccplane_datapath::{CLAUSES_MAX, INSTRS_MAX, VARS_MAX, reg};

pub use algorithm::{BadValue, CountedClause, InstrumentedProgram, ProgramFile, ProgramParameter};
pub use diagnostics::{DiagnosticCode, Diagnostics, Problem, Span};
pub use print::{Bytecode, TreeView};
pub use program::{Cost, Program};
pub use tree::Type;

use diagnostics::Problems;
use reader::Forms;

/// Maximum size of a program in a datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramLimits {
    /// Maximum instructions.
    pub max_instrs: usize,
    /// Maximum clauses.
    pub max_clauses: usize,
    /// Maximum variables, including report, control and local ones.
    pub max_vars: usize,
}

impl Default for ProgramLimits {
    /// The limits of ccplane's own datapaths.
    fn default() -> ProgramLimits {
        ProgramLimits {
            max_instrs: INSTRS_MAX,
            max_clauses: CLAUSES_MAX,
            max_vars: VARS_MAX,
        }
    }
}

/// Compiles a program, or returns all its errors.
pub fn compile(source: &str, limits: &ProgramLimits) -> Result<Program, Diagnostics> {
    let mut problems = Problems::default();
    let limits = ProgramLimits {
        max_vars: limits.max_vars.min(usize::from(u8::MAX - reg::VARS)),
        ..*limits
    };
    let forms = Forms::read(source, &mut problems);
    if !problems.is_empty() {
        return Err(problems.into_diagnostics(source));
    }
    match program::build(&forms, &limits, &mut problems) {
        Some(program) => Ok(program),
        None => Err(problems.into_diagnostics(source)),
    }
}
