//! Warnings about unreachable clauses, and programs that never report.

use ccplane_datapath::reg;

use super::CompiledSource;
use crate::diagnostics::{DiagnosticCode, Problem, Problems, Span};
use crate::tree::{Clause, Stmt};

pub(super) fn check_reachability(text: &CompiledSource<'_, '_>, problems: &mut Problems) {
    unreachable(text, problems);
    let reports = |stmt: &Stmt| matches!(stmt, Stmt::Set(reg::SHOULD_REPORT));
    if !text.tree.stmts.iter().any(reports) {
        let whole = text
            .forms
            .top_level()
            .last()
            .map_or(Span::new(0, 0), |last| text.span(last));
        let end = Span {
            start: whole.end.saturating_sub(1),
            end: whole.end,
        };
        let problem = Problem::new(
            DiagnosticCode::NeverReports,
            end,
            "this program never reports",
            "the agent would get no reports",
        );
        problems.push(
            problem.with_help("report regularly: (when (> Micros 10ms) (report) (:= Micros 0))"),
        );
    }
}

fn unreachable(text: &CompiledSource<'_, '_>, problems: &mut Problems) {
    let mut fell = false;
    for (n, clause) in text.tree.clauses.iter().enumerate() {
        let falls = falls_through(text, clause);
        fell |= falls;
        match text.tree.constant(clause.guard) {
            Some(0) => {
                let problem = Problem::new(
                    DiagnosticCode::Unreachable,
                    clause.span,
                    "this clause never runs",
                    "its condition is always false",
                );
                problems.push(problem.with_help("remove it"));
            }
            // In CCP's datapath, one earlier fallthrough lets all later clauses run as well.
            Some(_) if !(falls || text.sticky && fell) => {
                for after in &text.tree.clauses[n + 1..] {
                    let what = "this clause is unreachable";
                    let problem = Problem::new(
                        DiagnosticCode::Unreachable,
                        after.span,
                        what,
                        "never evaluated",
                    )
                    .with_secondary_label(clause.span, "always true, without (fallthrough)")
                    .with_help("end the earlier clause with (fallthrough)");
                    problems.push(problem);
                }
                return;
            }
            _ => {}
        }
    }
}

fn falls_through(text: &CompiledSource<'_, '_>, clause: &Clause) -> bool {
    let body = clause.body_start as usize..clause.body_end as usize;
    let falls = |stmt: &Stmt| matches!(stmt, Stmt::Set(reg::SHOULD_CONTINUE));
    text.tree.stmts[body].iter().any(falls)
}
