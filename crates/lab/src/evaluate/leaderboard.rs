//! `leaderboard.html`: the verdicts on several algorithms next to each other, the best first.

use std::fmt::Write;

use ccplane_report::html::{escape, note};
use ccplane_report::{Page, Provenance};

use super::page::{chip, duration};
use super::question::Verdict;
use super::{Evaluation, Evaluations, QUESTIONS};

/// Name of the page of one evaluation, in the folder of its algorithm.
pub const PAGE_FILE: &str = "evaluation.html";

impl Evaluations {
    /// Returns the evaluations with the best first: the fewest failures, then the fewest cautions
    /// and open questions. Equal ones stay in their order.
    pub fn ranked(&self) -> Vec<&Evaluation> {
        let mut ranked: Vec<&Evaluation> = self.each.iter().collect();
        ranked.sort_by_key(|evaluation| {
            [Verdict::Fail, Verdict::Caution, Verdict::Unanswered]
                .map(|verdict| evaluation.count(verdict))
        });
        ranked
    }

    /// Returns the page. `folder` gives the folder of an algorithm's own page, relative to this one.
    pub fn leaderboard(
        &self,
        folder: impl Fn(&Evaluation) -> String,
        command: &str,
        provenance: &Provenance,
    ) -> String {
        let ranked = self.ranked();
        let seconds = ranked.iter().map(|evaluation| evaluation.duration_s).sum();
        let subtitle = format!(
            "Questions of RFC 9743 about {} algorithms; {} of traffic.",
            ranked.len(),
            duration(seconds)
        );
        let mut page = Page::new("Algorithms evaluated", &subtitle);
        let mut table =
            "<div class=\"scroll\"><table class=\"figures\"><thead><tr><th scope=\"col\"></th>"
                .to_owned();
        for evaluation in &ranked {
            let (href, name) = (folder(evaluation), &evaluation.algorithm);
            let (href, name) = (escape(&href), escape(name));
            let _ = write!(
                table,
                "<th scope=\"col\"><a href=\"{href}/{PAGE_FILE}\">{name}</a></th>"
            );
        }
        table += "</tr></thead><tbody>";
        for verdict in [Verdict::Pass, Verdict::Caution, Verdict::Fail] {
            let _ = write!(table, "<tr><th scope=\"row\">{}</th>", verdict.word());
            for evaluation in &ranked {
                let _ = write!(table, "<td>{}</td>", evaluation.count(verdict));
            }
            table += "</tr>";
        }
        for question in QUESTIONS {
            let answers: Vec<_> = ranked
                .iter()
                .map(|evaluation| {
                    let mut answers = evaluation.answers.iter();
                    let found = answers.find(|(asked, _)| asked.name == question.name);
                    (*evaluation, found.map(|(_, answer)| answer))
                })
                .collect();
            if answers.iter().all(|(_, answer)| answer.is_none()) {
                continue;
            }
            let _ = write!(
                table,
                "<tr><th scope=\"row\">{}</th>",
                escape(question.title)
            );
            for (evaluation, answer) in answers {
                let cell = answer.map_or(String::new(), |answer| {
                    format!(
                        "<a title=\"{}\" href=\"{}/{PAGE_FILE}#{}\">{}</a>",
                        escape(&answer.finding),
                        escape(&folder(evaluation)),
                        question.name,
                        chip(answer.verdict)
                    )
                });
                let _ = write!(table, "<td>{cell}</td>");
            }
            table += "</tr>";
        }
        table += "</tbody></table></div>";
        page.add_section("Verdicts", &(table + &note(
            "The fewest failures first, then the fewest cautions. A verdict links to its results.",
        )));
        page.set_provenance(&provenance.build().to_string());
        page.add_reproduce_section(command, "docs/evaluate.md explains questions and criteria.");
        page.finish("All runs are in <code>runs.csv</code> and <code>runs.parquet</code>.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::Answer;
    use crate::sweep::RunTable;

    #[test]
    fn the_best_algorithm_is_first_and_verdicts_link_to_their_results() {
        let evaluation = |algorithm: &str, verdicts: &[Verdict]| Evaluation {
            algorithm: algorithm.to_owned(),
            about: String::new(),
            command: String::new(),
            datapath: "simulator",
            quick: true,
            answers: QUESTIONS
                .iter()
                .zip(verdicts)
                .map(|(question, verdict)| {
                    let answer = Answer {
                        verdict: *verdict,
                        ..Answer::unanswered("found".to_owned())
                    };
                    (question, answer)
                })
                .collect(),
            left_out: Vec::new(),
            complaints: Vec::new(),
            duration_s: 60.0,
        };
        let all = Evaluations {
            each: vec![
                evaluation("bad", &[Verdict::Fail, Verdict::Pass]),
                evaluation("good", &[Verdict::Caution, Verdict::Pass]),
            ],
            runs: RunTable::default(),
        };
        let names: Vec<&str> = all.ranked().iter().map(|one| &*one.algorithm).collect();
        assert_eq!(names, ["good", "bad"]);
        let folder = |one: &Evaluation| one.algorithm.clone();
        let html = all.leaderboard(folder, "ccplane evaluate", &Provenance::default());
        let link = format!("href=\"bad/evaluation.html#{}\"", QUESTIONS[0].name);
        assert!(html.contains(&link), "{html}");
        assert!(!html.contains(QUESTIONS[2].title), "nobody was asked this");
        assert!(html.contains("2.0 min") || html.contains("2 min"), "{html}");
    }
}
