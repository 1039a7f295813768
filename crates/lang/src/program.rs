//! Compiled program: bytecode, names, tree and cost.

use ccplane_datapath as datapath;
use ccplane_datapath::VarKind;

use crate::ProgramLimits;
use crate::check;
use crate::definitions;
use crate::diagnostics::{DiagnosticCode, Diagnostics, Problem, Problems, Span};
use crate::emit::{self, TooDeep};
use crate::print::{Bytecode, TreeView};
use crate::reader::Forms;
use crate::tree::{Symbol, Tree};
use crate::warn;

/// Cost of a program in a datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Number of instructions.
    pub instrs: usize,
    /// Maximum number of instructions that one ACK can execute, including the search for the next
    /// deadline.
    pub instrs_worst: usize,
    /// Variables, each 8 bytes of state per flow.
    pub vars: usize,
}

/// Compiled and checked program; immutable, shared by all flows that run it.
#[derive(Debug)]
pub struct Program {
    source: Box<str>,
    pub(crate) code: Box<datapath::Program>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) tree: Tree,
    cost: Cost,
}

pub(crate) fn build(
    forms: &Forms<'_>,
    limits: &ProgramLimits,
    problems: &mut Problems,
) -> Option<Program> {
    let mut top = forms.top_level();
    let def = top.next();
    let is_def = |index| {
        forms
            .children(index)
            .next()
            .is_some_and(|head| forms.text(forms.get(head)) == "def")
    };
    let Some(def) = def.filter(|&def| is_def(def)) else {
        let span = def.map_or(Span::new(0, 0), |index| forms.get(index).span);
        let span = Span {
            start: span.start,
            end: span.end.min(span.start + 1),
        };
        problems.push(
            Problem::new(
                DiagnosticCode::Syntax,
                span,
                "a program must start with (def …)",
                "expected (def …)",
            )
            .with_help(
                "declare its variables first, as (def (Report (volatile acked 0)) \
                 (interval 10ms)); (def) declares none",
            ),
        );
        return None;
    };
    let (mut scope, sticky) = definitions::read(forms, def, limits, problems);
    if top.clone().next().is_none() {
        let span = forms.get(def).span;
        problems.push(
            Problem::new(
                DiagnosticCode::Syntax,
                Span {
                    start: span.end,
                    end: span.end,
                },
                "the program has no clause",
                "expected (when condition statement …)",
            )
            .with_help("(when true …) runs on every ACK"),
        );
    }
    scope.find_locals(forms);
    let tree = check::check(forms, top, &mut scope, problems);
    if !problems.is_empty() {
        return None;
    }
    let code = match emit::emit(&tree) {
        Ok(code) => code,
        Err(TooDeep { clause }) => {
            problems.push(
                Problem::new(
                    DiagnosticCode::Limit,
                    tree.clauses[clause].span,
                    "a statement is nested too deeply",
                    "in this clause",
                )
                .with_help("name intermediate values with (:= name …)"),
            );
            return None;
        }
    };
    if !fits(limits, &code, &tree, problems) {
        return None;
    }
    let checked = datapath::Program::check(0, &code.instrs, &code.clauses, &scope.vars);
    let checked = checked.and_then(|checked| match sticky {
        true => checked.with_sticky_fallthrough(),
        false => Ok(checked),
    });
    let checked = match checked {
        Ok(checked) => Box::new(checked),
        Err(why) => {
            let whole = Span::new(0, 0);
            problems.push(Problem::new(
                DiagnosticCode::Limit,
                whole,
                why.to_string(),
                "the datapath rejects this program",
            ));
            return None;
        }
    };
    let guards_again = if checked.uses_timers() {
        code.guards
    } else {
        0
    };
    let cost = Cost {
        instrs: checked.instrs().len(),
        // With the reference's fallthrough any clause may run after any other.
        instrs_worst: if sticky {
            checked.instrs().len()
        } else {
            code.worst
        } + guards_again,
        vars: checked.vars().len(),
    };
    let source = forms.source.into();
    Some(Program {
        source,
        code: checked,
        symbols: scope.symbols,
        tree,
        cost,
    })
}

/// Returns false, and reports a problem at the first clause beyond the limit, if a program is too
/// large.
fn fits(
    limits: &ProgramLimits,
    code: &emit::EmittedCode,
    tree: &Tree,
    problems: &mut Problems,
) -> bool {
    let ends = |clause: &datapath::Clause| usize::from(clause.body_end);
    let (what, found, most, fitting) = if code.instrs.len() > limits.max_instrs {
        let fitting = code
            .clauses
            .iter()
            .take_while(|clause| ends(clause) <= limits.max_instrs)
            .count();
        (
            "instructions",
            code.instrs.len(),
            limits.max_instrs,
            fitting,
        )
    } else if code.clauses.len() > limits.max_clauses {
        (
            "clauses",
            code.clauses.len(),
            limits.max_clauses,
            limits.max_clauses,
        )
    } else {
        return true;
    };
    let span = tree
        .clauses
        .get(fitting)
        .map_or(Span::new(0, 0), |clause| clause.span);
    let what = format!("{found} {what}, but the datapath's limit is {most}");
    problems.push(
        Problem::new(
            DiagnosticCode::Limit,
            span,
            what,
            "limit exceeded from here on",
        )
        .with_help(
            "split the work into several programs: the agent can change a flow's program at any \
             time",
        ),
    );
    false
}

impl Program {
    /// Bytecode, under number 0.
    pub fn code(&self) -> &datapath::Program {
        &self.code
    }

    /// Source that it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Cost in a datapath.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the warnings: unreachable clauses, units that do not fit, averages of values that
    /// may be infinite. They are computed at each call.
    pub fn warnings(&self) -> Option<Diagnostics> {
        warn::warnings(self)
    }

    /// Typed tree, for printing.
    pub fn tree(&self) -> TreeView<'_> {
        TreeView(self)
    }

    /// Bytecode, for printing.
    pub fn bytecode(&self) -> Bytecode<'_> {
        Bytecode(self)
    }

    /// Index of a variable in the bytecode: `interval`, `Report.acked`, or `acked` if that is not a
    /// control variable.
    pub fn var_index(&self, name: &str) -> Option<u8> {
        let find = |report, bare| {
            let symbol = self
                .symbols
                .iter()
                .find(|symbol| symbol.report == report && self.name(symbol) == bare);
            symbol.map(|symbol| symbol.reg - datapath::reg::VARS)
        };
        match name.strip_prefix("Report.") {
            Some(bare) => find(true, bare),
            None => find(false, name).or_else(|| find(true, name)),
        }
    }

    /// Names of the report fields, in the order in which they are sent, without `Report.`
    pub fn report_names(&self) -> impl Iterator<Item = &str> {
        self.names(VarKind::Report)
    }

    /// Names of the variables that the agent can set.
    pub fn control_names(&self) -> impl Iterator<Item = &str> {
        self.names(VarKind::Control)
    }

    fn names(&self, kind: VarKind) -> impl Iterator<Item = &str> {
        let of_kind = self
            .symbols
            .iter()
            .zip(self.code.vars())
            .filter(move |(_, var)| var.kind == kind);
        of_kind.map(|(symbol, _)| self.name(symbol))
    }

    /// Name of a variable; without `Report.` for a report variable.
    pub(crate) fn name(&self, symbol: &Symbol) -> &str {
        &self.source[symbol.name.start as usize..symbol.name.end as usize]
    }
}
