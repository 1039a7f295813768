//! `evaluation.html`: one page with every question, its verdict, figures and pictures; no script,
//! nothing from outside.

use std::fmt::Write;

use ccplane_report::html::{definitions, escape, note, warning};
use ccplane_report::{Page, Provenance, chart};

use super::Evaluation;
use super::question::{Answer, Question, Verdict};

/// Verdicts as coloured words, and the overview, whose cells are sentences.
const STYLE: &str = "\
.verdict { display: inline-block; min-width: 84px; padding: 1px 9px; border-radius: 10px; \
    border: 1.5px solid; font-size: 13px;
  font-weight: 600; text-align: center; }
.verdict.pass { color: var(--good); } .verdict.caution { color: var(--warn); } \
.verdict.fail { color: var(--bad); }
.verdict.unanswered { color: var(--muted); }
.overview td { white-space: normal; text-align: left; vertical-align: top; } \
.overview td:first-child { white-space: nowrap; }
section a { color: inherit; } h2 .verdict { margin-left: 8px; vertical-align: 2px; }
";

/// Complaints that are listed; the rest is in the file of figures.
const MOST_COMPLAINTS: usize = 20;

/// The page.
pub fn page(evaluation: &Evaluation, provenance: &Provenance) -> String {
    let quick = if evaluation.quick {
        ", in short (--quick)"
    } else {
        ""
    };
    let subtitle = format!(
        "{} Asked what RFC 9743 asks of a new congestion control{quick}; {}, {} s of traffic.",
        sentence(&evaluation.about),
        evaluation.datapath,
        evaluation.duration_s.round()
    );
    let mut page = Page::new(&format!("{} evaluated", evaluation.algorithm), &subtitle);
    page.add_style(STYLE);
    page.add(&overview(evaluation));
    page.add(&warnings(evaluation));
    for (question, answer) in &evaluation.answers {
        page.add(&section(question, answer));
    }
    let again = if evaluation.datapath == "simulator" {
        page.set_provenance(&provenance.build().to_string());
        "Virtual time: the same program gives the same page, to the last byte, on any number of \
         threads."
    } else {
        page.set_provenance(&provenance.describe_environment());
        "Real packets and a real clock: two evaluations agree in their distributions, not in every \
         packet."
    };
    page.add_reproduce_section(
        &evaluation.command,
        &format!(
            "{again} A verdict is a judgement by the criterion beside it, not by the IETF; what \
             each question does is in docs/evaluate.md."
        ),
    );
    page.finish("The figures are in <code>evaluation.json</code>, next to this page.")
}

fn chip(verdict: Verdict) -> String {
    format!("<span class=\"verdict {0}\">{0}</span>", verdict.word())
}

fn overview(evaluation: &Evaluation) -> String {
    let mut out = format!(
        "<section><p><b>{}</b></p><div class=\"scroll\"><table class=\"figures overview\"><tbody>",
        evaluation.counts()
    );
    for (question, answer) in &evaluation.answers {
        let _ = write!(
            out,
            "<tr><td>{}</td><td><a href=\"#{}\">{}</a></td><td>{}</td></tr>",
            chip(answer.verdict),
            question.name,
            escape(question.title),
            escape(&answer.finding)
        );
    }
    out += "</tbody></table></div>";
    if !evaluation.left_out.is_empty() {
        out += &note(&format!(
            "Not asked on this datapath, where they cannot run: {}.",
            evaluation.left_out.join(", ")
        ));
    }
    out + "</section>"
}

fn warnings(evaluation: &Evaluation) -> String {
    let complaints = evaluation.complaints.iter();
    let complaints: Vec<(String, &str)> = complaints
        .map(|(question, run, what)| (format!("{question}, {run}"), what.as_str()))
        .collect();
    warning(
        "Read the figures of these runs with care:",
        &complaints,
        MOST_COMPLAINTS,
        "evaluation.json",
    )
}

fn section(question: &Question, answer: &Answer) -> String {
    let mut out = format!(
        "<section id=\"{}\"><h2>{} {}</h2><p><b>{}</b></p>{}",
        question.name,
        escape(question.title),
        chip(answer.verdict),
        escape(&answer.finding),
        note(question.about)
    );
    if !answer.table.rows.is_empty() {
        out += &answer.table.to_html();
    }
    if !answer.charts.is_empty() {
        let described = format!("{}: {}", question.title, answer.finding);
        let _ = write!(
            out,
            "<div class=\"pictures\">{}</div>",
            chart::inline(&answer.charts, &described)
        );
    }
    out + &definitions(&[
        ("criterion", question.criterion),
        ("source", question.source),
    ]) + "</section>"
}

/// With a full stop.
fn sentence(text: &str) -> String {
    match text.trim_end_matches('.') {
        "" => String::new(),
        text => format!("{text}."),
    }
}
