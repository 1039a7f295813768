//! `evaluation.html`: one page with every question, its verdict, figures and pictures; no script, nothing from outside.

use std::fmt::Write;

use super::{Answer, Evaluation, Question, Verdict};
use crate::report::html::{escape, table_html};
use crate::svg;

/// The page.
pub fn page(evaluation: &Evaluation) -> String {
    let name = escape(&evaluation.algorithm);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{name} evaluated · ccplane</title>\n<style>{}</style>\n\
         <style>{}</style>\n</head>\n<body>\n<main>\n",
        include_str!("../../assets/report.css"),
        style()
    );
    let quick = if evaluation.quick { ", in short (--quick)" } else { "" };
    let _ = writeln!(
        out,
        "<header><div><h1>{name}</h1><p class=\"muted\">{} Asked what RFC 9743 asks of a new congestion control{quick}; {}, {} s of \
         traffic.</p></div></header>",
        escape(&sentence(&evaluation.about)),
        evaluation.datapath,
        evaluation.duration_s.round()
    );
    overview(&mut out, evaluation);
    warnings(&mut out, evaluation);
    for (question, answer) in &evaluation.answers {
        section(&mut out, question, answer);
    }
    let again = if evaluation.datapath == "simulator" {
        "Virtual time: the same program gives the same page, to the last byte, on any number of threads."
    } else {
        "Real packets and a real clock: two evaluations agree in their distributions, not in every packet."
    };
    let _ = writeln!(
        out,
        "<section><h2>How to see it again</h2><pre>{}</pre><p class=\"note\">{again} A verdict is a judgement by the criterion beside it, not \
         by the IETF; what each question does is in docs/evaluate.md. The figures are in <code>evaluation.json</code>, next to this \
         page.</p></section>\n<footer>Made by ccplane {}.</footer>\n</main>\n</body>\n</html>",
        escape(&evaluation.command),
        env!("CARGO_PKG_VERSION")
    );
    out
}

fn style() -> String {
    let dark = "--page: #14171b; --ink: #e7eaee; --muted: #9aa5b1; --line: #2e353d; --soft: #1c2127; --grid: #252b32; --guide: #75808c; \
                --warn: #f2b766; --warn-soft: #2c2318; --good: #6fcf97; --bad: #ff8f8f;";
    format!(
        ":root {{ --bad: #a3182b; {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} {deep} }} }}\n{}\
         .verdict {{ display: inline-block; min-width: 84px; padding: 1px 9px; border-radius: 10px; border: 1.5px solid; font-size: 13px; \
         font-weight: 600; text-align: center; }}\n.verdict.pass {{ color: var(--good); }} .verdict.caution {{ color: var(--warn); }} \
         .verdict.fail {{ color: var(--bad); }} .verdict.unanswered {{ color: var(--muted); }}\n\
         .overview td {{ white-space: normal; text-align: left; vertical-align: top; }} .overview td:first-child {{ white-space: nowrap; }}\n\
         .pictures {{ max-width: 820px; margin: 12px 0; }} section a {{ color: inherit; }} h2 .verdict {{ margin-left: 8px; vertical-align: 2px; }}\n",
        svg::STYLE,
        light = svg::LIGHT,
        deep = svg::DARK,
    )
}

fn chip(verdict: Verdict) -> String {
    format!("<span class=\"verdict {0}\">{0}</span>", verdict.word())
}

fn overview(out: &mut String, evaluation: &Evaluation) {
    let _ = write!(
        out,
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
    *out += "</tbody></table></div>";
    if !evaluation.left_out.is_empty() {
        let _ = write!(
            out,
            "<p class=\"note\">Not asked on this datapath, where they cannot run: {}.</p>",
            escape(&evaluation.left_out.join(", "))
        );
    }
    *out += "</section>\n";
}

/// Complaints that are listed; the rest is in the file of figures.
const MOST_COMPLAINTS: usize = 20;

fn warnings(out: &mut String, evaluation: &Evaluation) {
    if evaluation.complaints.is_empty() {
        return;
    }
    *out += "<div class=\"warning\" role=\"alert\">Read the figures of these runs with care:<ul>";
    for (question, run, what) in evaluation.complaints.iter().take(MOST_COMPLAINTS) {
        let _ = write!(out, "<li><b>{question}, {}</b>: {}</li>", escape(run), escape(what));
    }
    let more = evaluation.complaints.len().saturating_sub(MOST_COMPLAINTS);
    if more > 0 {
        let _ = write!(out, "<li>and {more} more, in evaluation.json</li>");
    }
    *out += "</ul></div>\n";
}

fn section(out: &mut String, question: &Question, answer: &Answer) {
    let _ = write!(
        out,
        "<section id=\"{}\"><h2>{} {}</h2><p><b>{}</b></p><p class=\"note\">{}</p>",
        question.name,
        escape(question.title),
        chip(answer.verdict),
        escape(&answer.finding),
        escape(question.about)
    );
    let (headings, rows) = &answer.table;
    if !rows.is_empty() {
        *out += &table_html(headings, rows);
    }
    if !answer.charts.is_empty() {
        let described = format!("{}: {}", question.title, answer.finding);
        let _ = write!(
            out,
            "<div class=\"pictures\">{}</div>",
            svg::inline(&answer.charts, &described)
        );
    }
    let _ = writeln!(
        out,
        "<dl><dt>criterion</dt><dd>{}</dd><dt>source</dt><dd>{}</dd></dl></section>",
        escape(question.criterion),
        escape(question.source)
    );
}

/// With a full stop.
fn sentence(text: &str) -> String {
    match text.trim_end_matches('.') {
        "" => String::new(),
        text => format!("{text}."),
    }
}
