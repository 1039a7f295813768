//! Page of a search: the leaderboard, best first, and goodput over delay of candidates and
//! baselines. Its size is bounded, whatever the number of candidates.

use ccplane_report::chart::{Axis, CONTENDER_HUES, Chart, ChartSeries, GREY, figure, hue};
use ccplane_report::html::{escape, note};
use ccplane_report::provenance::Build;
use ccplane_report::{Page, Table};
use ccplane_units::stats;

use super::asked::{Options, Suite};
use super::score::{LinkScore, Parts, Score};
use super::standing::Standing;
use super::{ArenaResult, Check};
use crate::contender::Contender;
use crate::report::plane::axis_of;
use crate::report::verdict;

/// Maximum number of candidates in the tables.
const ROWS_MAX: usize = 100;
/// Maximum number of candidates in the chart.
const DOTS_MAX: usize = 1_000;
/// Number of candidates with a label and a colour of their own, the best ones.
const LABELS_MAX: usize = CONTENDER_HUES;
/// Maximum number of reasons.
const REASONS_MAX: usize = 20;

/// Returns the page.
pub fn page(result: &ArenaResult, options: &Options, command: &str, build: &Build) -> String {
    let ranked = ranked(&result.candidates);
    let (title, subtitle) = headings(&ranked, options);
    let mut page = Page::new(&title, &subtitle);
    page.enable_live();
    page.add(&verdict::html(
        &sentences(&ranked, &result.baselines),
        match options.suite {
            Suite::Gate => "The gate rejects broken algorithms; it does not rank the others.",
            _ => {
                "A score is the mean over the links; 1 is as good as the best baseline in every \
                  part."
            }
        },
    ));
    page.add_section("Leaderboard", &leaderboard(&ranked, result, options));
    let chart = plane(&ranked, &result.baselines);
    if let Some(chart) = chart {
        page.add_section("Goodput and delay", &chart);
    }
    if let Some((best, score)) = ranked.first().and_then(|s| Some((s, s.parts.as_ref()?))) {
        page.add_section(
            &format!("{} on each link", best.candidate),
            &(note("Each part divided by the best baseline on the same link, worst link first.")
                + &links(score).to_html()),
        );
    }
    if let Some(reasons) = reasons(&ranked) {
        page.add_section("Failed candidates", &reasons);
    }
    let about = note("Values in percent; docs/arena.md defines the checks.");
    page.add_section("Gate", &(about + &gate(&ranked)));
    page.add_reproduce_section(
        command,
        "The same candidates and options give the same page, to the last byte, on any number of \
         threads. Weights and checks are described in docs/arena.md.",
    );
    page.set_provenance(&build.to_string());
    page.finish(
        "All checks, links and parts of every candidate are printed by <code>--json</code>.",
    )
}

/// Returns the candidates by score, best first; those that failed the gate are last. Equal ones
/// stay in the given order.
fn ranked(candidates: &[Standing]) -> Vec<&Standing> {
    let mut ranked: Vec<&Standing> = candidates.iter().collect();
    ranked.sort_by(|a, b| {
        let key = |s: &Standing| (s.gate_passed, s.score.unwrap_or(0.0));
        let ((a_passed, a), (b_passed, b)) = (key(a), key(b));
        b_passed.cmp(&a_passed).then(b.total_cmp(&a))
    });
    ranked
}

fn headings(ranked: &[&Standing], options: &Options) -> (String, String) {
    let title = match ranked {
        [only] => format!("{} in the arena", only.candidate),
        several => format!("{} candidates in the arena", several.len()),
    };
    let links = match options.held_out {
        None => "published links".to_owned(),
        Some(seed) => format!("held-out links of seed {seed}"),
    };
    let subtitle = match options.suite {
        Suite::Gate => "The gate, in the simulator.".to_owned(),
        suite => format!(
            "The gate and {} {links}, in the simulator, compared with the best of {} on each link.",
            suite.links(),
            names(&options.against)
        ),
    };
    (title, subtitle)
}

fn names(contenders: &[Contender]) -> String {
    let names: Vec<String> = contenders.iter().map(Contender::to_string).collect();
    names.join(", ")
}

/// Returns the result in sentences.
fn sentences(ranked: &[&Standing], baselines: &[Standing]) -> Vec<String> {
    let mut out = Vec::new();
    let scored = |s: &&Standing| s.gate_passed && s.score.is_some();
    let mut best = ranked.iter().copied().filter(scored);
    if let Some(first) = best.next() {
        let score = |s: &Standing| format!("{} ({:.3})", s.candidate, s.score.unwrap_or(0.0));
        let second = best
            .next()
            .map(|second| format!(", then {}", score(second)));
        let baseline = baselines
            .iter()
            .max_by(|a, b| a.score.unwrap_or(0.0).total_cmp(&b.score.unwrap_or(0.0)))
            .map(|known| format!(" Best baseline: {}.", score(known)));
        out.push(format!(
            "Best score: {}{}.{}",
            score(first),
            second.unwrap_or_default(),
            baseline.unwrap_or_default()
        ));
    }
    let failed = ranked.iter().filter(|s| !s.gate_passed).count();
    out.push(match (failed, ranked.len()) {
        (0, 1) => "The candidate passed the gate.".to_owned(),
        (0, all) => format!("All {all} candidates passed the gate."),
        (1, 1) => "The candidate failed.".to_owned(),
        (failed, all) if failed == all => format!("All {all} candidates failed."),
        (failed, all) => format!("{failed} of {all} candidates failed."),
    });
    out
}

/// Returns the table of candidates and baselines, and a note on what it leaves out.
fn leaderboard(ranked: &[&Standing], result: &ArenaResult, options: &Options) -> String {
    let scored = options.suite != Suite::Gate;
    let nothing = || Table::EMPTY_CELL.to_owned();
    let row = |s: &Standing, is_baseline: bool| {
        let mut row = vec![match is_baseline {
            true => format!("{} (baseline)", s.candidate),
            false => s.candidate.clone(),
        }];
        if scored {
            row.push(s.score.map_or_else(nothing, |score| format!("{score:.3}")));
            row.extend(match &s.parts {
                Some(score) => score.parts.each().map(|part| format!("{part:.2}")).to_vec(),
                None => Parts::NAMES.map(|_| nothing()).to_vec(),
            });
        }
        row.push(match (is_baseline, s.gate_passed) {
            (true, _) => nothing(),
            (false, true) => "passed".to_owned(),
            (false, false) => "FAILED".to_owned(),
        });
        (s.score.unwrap_or(0.0), row)
    };
    let shown = ranked.iter().take(ROWS_MAX);
    let mut rows: Vec<(f64, Vec<String>)> = shown.map(|s| row(s, false)).collect();
    for known in result
        .baselines
        .iter()
        .filter(|known| known.parts.is_some())
    {
        let (score, row) = row(known, true);
        let at = rows.iter().position(|(other, _)| *other < score);
        rows.insert(at.unwrap_or(rows.len()), (score, row));
    }
    let mut headings = vec!["candidate"];
    if scored {
        headings.push("score");
        headings.extend(Parts::NAMES);
    }
    headings.push("gate");
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    Table::new(headings, rows).to_html() + &cap(ROWS_MAX, ranked.len(), "listed")
}

/// Returns a note if only the first `shown` of `all` candidates are.
fn cap(shown: usize, all: usize, done: &str) -> String {
    match all > shown {
        true => note(&format!("The best {shown} of {all} candidates are {done}.")),
        false => String::new(),
    }
}

/// Returns the means over the links: queueing delay in % of the RTT, and goodput in % of the link.
fn position(score: &Score) -> Option<(f64, f64)> {
    let mean = |of: fn(&LinkScore) -> f64| stats::mean(score.links.iter().map(of));
    Some((
        mean(|link| link.delay_p95_ms / link.rtt_ms * 100.0)?,
        mean(|link| link.goodput_mbit / link.rate_mbit * 100.0)?,
    ))
}

/// Returns the chart of goodput over delay; `None` without scores.
fn plane(ranked: &[&Standing], baselines: &[Standing]) -> Option<String> {
    let at = |s: &Standing| position(s.parts.as_ref()?);
    let placed: Vec<(&str, (f64, f64))> = ranked
        .iter()
        .filter_map(|s| Some((s.candidate.as_str(), at(s)?)))
        .collect();
    if placed.is_empty() {
        return None;
    }
    let dot = |name: String, colour: usize, at: (f64, f64)| ChartSeries {
        dots: true,
        ..ChartSeries::named(name, colour, [at])
    };
    let labelled = |line: ChartSeries| ChartSeries {
        end_label: line.name.clone(),
        ..line
    };
    // The best ones are drawn last, so that no other dot covers them.
    let candidates = placed.iter().take(DOTS_MAX).enumerate().rev();
    let candidates = candidates.map(|(n, (name, at))| match n < LABELS_MAX {
        true => labelled(dot((*name).to_owned(), hue(n), *at)),
        false => dot((*name).to_owned(), GREY, *at),
    });
    let known = baselines.iter().filter_map(|s| {
        let name = format!("{} (baseline)", s.candidate);
        Some(labelled(dot(name, GREY, at(s)?)))
    });
    let lines: Vec<ChartSeries> = known.chain(candidates).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let end = match points().map(|point| point.0).fold(0.0, f64::max) * 1.06 {
        end if end > 0.0 => end,
        _ => 1.0,
    };
    let heights: Vec<f64> = points().filter_map(|point| point.1).collect();
    let chart = Chart {
        title: "goodput, % of the link".to_owned(),
        x: Axis::linear("95th percentile of the queueing delay, % of the RTT").with_range(0.0, end),
        y: axis_of(&heights),
        lines,
        guides: Vec::new(),
    };
    let mut about =
        "One flow alone, means over the links. Up and to the left is better.".to_owned();
    if placed.len() > LABELS_MAX {
        about += &format!(
            " The best {LABELS_MAX} candidates by score have labels and colours; further ones are \
             grey."
        );
    }
    let described = "goodput and queueing delay of candidates and baselines";
    Some(
        note(&about)
            + &cap(DOTS_MAX, placed.len(), "drawn")
            + &figure(&[chart], described, "goodput-delay"),
    )
}

/// Returns the parts of a score per link, worst first.
fn links(score: &Score) -> Table {
    let mut links: Vec<&LinkScore> = score.links.iter().collect();
    links.sort_by(|a, b| a.score.total_cmp(&b.score));
    let row = |link: &&LinkScore| {
        let parts = link.parts.each().map(|part| format!("{part:.2}"));
        let score = format!("{:.3}", link.score);
        [link.link.clone(), score]
            .into_iter()
            .chain(parts)
            .collect()
    };
    let headings = ["link", "score"].into_iter().chain(Parts::NAMES);
    Table::new(headings, links.iter().map(row).collect())
}

/// Returns the reasons of failed candidates; `None` if there are none.
fn reasons(ranked: &[&Standing]) -> Option<String> {
    let failed: Vec<&&Standing> = ranked.iter().filter(|s| !s.reasons.is_empty()).collect();
    if failed.is_empty() {
        return None;
    }
    let item = |s: &&&Standing| {
        let (name, reasons) = (escape(&s.candidate), escape(&s.reasons.join("; ")));
        format!("<li><b>{name}</b>: {reasons}</li>")
    };
    let items: String = failed.iter().take(REASONS_MAX).map(item).collect();
    let more = match failed.len() > REASONS_MAX {
        true => note(&format!(
            "The first {REASONS_MAX} of {} failed candidates.",
            failed.len()
        )),
        false => String::new(),
    };
    Some(format!("<ul>{items}</ul>{more}"))
}

/// Returns the checks of the gate.
fn gate(ranked: &[&Standing]) -> String {
    let checked: Vec<&&Standing> = ranked.iter().filter(|s| !s.gate.is_empty()).collect();
    let Some(first) = checked.first() else {
        return note("No candidate ran.");
    };
    let cell = |check: &Check| match (check.value, check.passed) {
        (None, _) => "broke".to_owned(),
        (Some(value), true) => format!("{:.0}", value * 100.0),
        (Some(value), false) => format!("{:.1} FAILED", value * 100.0),
    };
    let row = |s: &&&Standing| {
        let cells = s.gate.iter().map(cell);
        std::iter::once(s.candidate.clone()).chain(cells).collect()
    };
    let headings = first
        .gate
        .iter()
        .map(|check| format!("{}\nat least {:.0} %", check.name, check.least * 100.0));
    let headings = std::iter::once("candidate".to_owned()).chain(headings);
    let table = Table::new(headings, checked.iter().take(ROWS_MAX).map(row).collect());
    table.to_html() + &cap(ROWS_MAX, checked.len(), "listed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(name: &str, score: Option<f64>) -> Standing {
        let parts = score.map(|score| Score {
            parts: super::super::WEIGHTS,
            links: vec![LinkScore {
                link: "10 Mbit/s".to_owned(),
                score,
                parts: super::super::WEIGHTS,
                goodput_mbit: 9.0,
                delay_p95_ms: 10.0 * score,
                rate_mbit: 10.0,
                rtt_ms: 40.0,
                scenario: String::new(),
                best: Default::default(),
            }],
        });
        Standing {
            candidate: name.to_owned(),
            score: score.or(Some(0.0)),
            gate_passed: score.is_some(),
            reasons: match score {
                Some(_) => Vec::new(),
                None => vec!["loss: 1.0 % <of>".to_owned()],
            },
            gate: Vec::new(),
            parts,
        }
    }

    fn options() -> Options {
        Options {
            candidates: Vec::new(),
            against: vec![Contender::ccplane("cubic")],
            suite: Suite::Quick,
            held_out: None,
            threads: 1,
        }
    }

    fn text(candidates: Vec<Standing>) -> String {
        let result = ArenaResult {
            candidates,
            baselines: vec![standing("cubic", Some(0.9))],
            runs: crate::sweep::RunTable::default(),
        };
        page(&result, &options(), "ccplane arena x", &Build::default())
    }

    #[test]
    fn the_best_candidate_is_first_and_baselines_are_among_them() {
        let html = text(vec![
            standing("worse", Some(0.5)),
            standing("broken", None),
            standing("best", Some(0.95)),
        ]);
        let at = |cell: &str| html.find(&format!("<td>{cell}</td>")).expect("a row");
        assert!(at("best") < at("cubic (baseline)") && at("cubic (baseline)") < at("worse"));
        assert!(at("worse") < at("broken"));
        let sentence =
            "Best score: best (0.950), then worse (0.500). Best baseline: cubic (0.900).";
        assert!(html.contains(sentence), "{html}");
        assert!(html.contains("1 of 3 candidates failed."), "{html}");
        assert!(
            html.contains("<b>broken</b>: loss: 1.0 % &lt;of&gt;"),
            "{html}"
        );
        // Two candidates and a baseline.
        assert_eq!(html.matches("<circle").count(), 3);
    }

    #[test]
    fn thousands_of_candidates_have_a_page_of_bounded_size() {
        let score = |n: u32| 0.2 + f64::from(n) / 5_000.0;
        let all = (0..3_000).map(|n| standing(&format!("c{n}"), Some(score(n))));
        let html = text(all.collect());
        assert!(html.contains("The best 1000 of 3000 candidates are drawn."));
        assert!(html.contains("The best 100 of 3000 candidates are listed."));
        assert_eq!(html.matches("<circle").count(), DOTS_MAX + 1);
        assert!(html.contains(">c2999</text>") && !html.contains(">c2987</text>"));
        assert!(html.len() < 600_000, "{}", html.len());
    }
}
