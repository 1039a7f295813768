//! `evaluation.html`: one page with every question, its verdict, figures and pictures; failures
//! first, nothing from outside. The script only saves charts and chooses the theme.

use std::fmt::Write;

use ccplane_report::chart::figure;
use ccplane_report::html::{definitions, escape, milliseconds, note, warning};
use ccplane_report::{Page, Provenance};

use super::Evaluation;
use super::question::{Answer, Question, Verdict};
use super::relative;

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
        "{} Asked what RFC 9743 asks of a new congestion control{quick}; {}, {} of traffic.",
        sentence(&evaluation.about),
        evaluation.datapath,
        duration(evaluation.duration_s)
    );
    let mut page = Page::new(&format!("{} evaluated", evaluation.algorithm), &subtitle);
    page.enable_live();
    page.add(&overview(evaluation));
    page.add(&warnings(evaluation));
    let answers = evaluation.answers.iter();
    let relative: Vec<_> = answers
        .flat_map(|(question, answer)| answer.relative.iter().map(|result| (question.name, result)))
        .collect();
    page.add(&relative::section(&evaluation.algorithm, &relative));
    for (question, answer) in worst_first(evaluation) {
        page.add(&section(question, answer));
    }
    let again = if evaluation.is_simulated() {
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

pub(super) fn chip(verdict: Verdict) -> String {
    format!("<span class=\"verdict {0}\">{0}</span>", verdict.word())
}

/// Returns the answers in the order of the page: failures, cautions, what could not be asked, and
/// passes, each in the order of the questions.
fn worst_first(evaluation: &Evaluation) -> Vec<&(&'static Question, Answer)> {
    let mut answers: Vec<_> = evaluation.answers.iter().collect();
    answers.sort_by_key(|(_, answer)| match answer.verdict {
        Verdict::Fail => 0,
        Verdict::Caution => 1,
        Verdict::Unanswered => 2,
        Verdict::Pass => 3,
    });
    answers
}

/// Returns the result in a sentence: which questions it fails.
fn conclusion(evaluation: &Evaluation) -> String {
    let titles = |verdict: Verdict| -> String {
        let all = evaluation.answers.iter();
        let titles = all.filter(|(_, answer)| answer.verdict == verdict);
        let titles: Vec<&str> = titles.map(|(question, _)| question.title).collect();
        titles.join("; ")
    };
    let (algorithm, counts) = (&evaluation.algorithm, evaluation.counts());
    match (titles(Verdict::Fail), titles(Verdict::Caution)) {
        (failed, _) if !failed.is_empty() => format!("{algorithm}: {counts}. It fails: {failed}."),
        (_, cautions) if !cautions.is_empty() => {
            format!("{algorithm}: {counts}. It fails nothing. Read before deploying: {cautions}.")
        }
        _ => format!("{algorithm}: {counts}."),
    }
}

/// Returns the conclusion and the table of contents.
fn overview(evaluation: &Evaluation) -> String {
    let mut out = format!(
        "<section><p><b>{}</b></p><nav aria-label=\"Questions\"><ol class=\"contents\">",
        escape(&conclusion(evaluation))
    );
    for (question, answer) in worst_first(evaluation) {
        let _ = write!(
            out,
            "<li>{}<a href=\"#{}\">{}</a><p>{}</p></li>",
            chip(answer.verdict),
            question.name,
            escape(question.title),
            escape(&sentence(&answer.finding))
        );
    }
    out += "</ol></nav>";
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
    let advice = match evaluation.is_simulated() {
        true => {
            "They are failures of the algorithm or limits of these runs: the same command gives \
             the same results."
        }
        false => {
            "Repeat these questions with --only on an idle machine before you use the answers."
        }
    };
    warning(
        "The results of some runs may be unreliable:",
        advice,
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
        escape(&sentence(&answer.finding)),
        note(question.about)
    );
    if !answer.table.rows.is_empty() {
        out += &answer.table.to_html();
    }
    if !answer.charts.is_empty() {
        let described = format!("{}: {}", question.title, answer.finding);
        out += &figure(&answer.charts, &described, question.name);
    }
    out + &definitions(&[
        ("criterion", question.criterion),
        ("source", question.source),
    ]) + "</section>"
}

/// A duration in the unit of its size.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 5_400.0 => format!("{:.1} h", s / 3_600.0),
        s if s >= 90.0 => format!("{:.0} min", s / 60.0),
        s => milliseconds(s * 1e3),
    }
}

/// With a full stop; numbers stay on one line with their percent signs.
fn sentence(text: &str) -> String {
    match text.trim_end_matches('.').replace(" %", "\u{a0}%").as_str() {
        "" => String::new(),
        text => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::QUESTIONS;

    fn evaluation(verdicts: &[Verdict]) -> Evaluation {
        let answers = QUESTIONS.iter().zip(verdicts).map(|(question, verdict)| {
            let answer = Answer {
                verdict: *verdict,
                ..Answer::unanswered(format!("found {}", question.name))
            };
            (question, answer)
        });
        Evaluation {
            algorithm: "copa".to_owned(),
            about: String::new(),
            command: "ccplane evaluate --alg copa".to_owned(),
            datapath: "simulator",
            quick: true,
            answers: answers.collect(),
            left_out: Vec::new(),
            complaints: Vec::new(),
            duration_s: 7_200.0,
        }
    }

    #[test]
    fn failures_are_first_and_contents_link_to_every_question() {
        let verdicts = [
            Verdict::Pass,
            Verdict::Fail,
            Verdict::Caution,
            Verdict::Fail,
        ];
        let html = page(&evaluation(&verdicts), &Provenance::default());
        let at = |name: &str| {
            html.find(&format!("<section id=\"{name}\""))
                .expect("a section")
        };
        let names: Vec<&str> = QUESTIONS
            .iter()
            .take(4)
            .map(|question| question.name)
            .collect();
        assert!(at(names[1]) < at(names[3]) && at(names[3]) < at(names[2]));
        assert!(at(names[2]) < at(names[0]));
        for name in names {
            assert!(html.contains(&format!("<a href=\"#{name}\">")), "{name}");
            assert!(html.contains(&format!("<p>found {name}.</p>")), "{name}");
        }
        let fails = format!("It fails: {}; {}.", QUESTIONS[1].title, QUESTIONS[3].title);
        assert!(
            html.contains(&escape(&fails)) && html.contains("2.0 h of traffic"),
            "{html}"
        );
        let passed = conclusion(&evaluation(&[Verdict::Pass]));
        assert_eq!(passed, "copa: 1 pass.");
    }

    #[test]
    fn advice_fits_the_datapath() {
        let mut evaluation = evaluation(&[Verdict::Pass]);
        evaluation
            .complaints
            .push(("aqm", "own-codel".to_owned(), "stalled".to_owned()));
        let simulated = warnings(&evaluation);
        assert!(!simulated.contains("idle machine") && simulated.contains("the same results"));
        evaluation.datapath = "linux";
        assert!(warnings(&evaluation).contains("idle machine"));
    }

    #[test]
    fn durations_have_the_unit_of_their_size() {
        assert_eq!(
            [12.0, 300.0, 5_400.0].map(duration),
            ["12.0 s", "5 min", "1.5 h"]
        );
    }
}
