//! One sentence per contender on top of a page: goodput and delay compared with a reference.
//!
//! With several runs, a sentence claims a difference only if the intervals of the means do not
//! overlap.

use ccplane_report::html::escape;

use crate::result::{Columns, ContenderResult, MeanInterval, RunResult};

/// Relative difference that is about nothing: of one simulation, and of one run on real packets.
const SAME_SIMULATED: f64 = 0.001;
const SAME_REAL: f64 = 0.02;
/// Maximum number of sentences; more contenders are summarised.
const SENTENCES_MAX: usize = 4;

/// Maximum number of names of equally good contenders in a sentence, besides the number of others.
const NAMES_MAX: usize = 4;

/// A contender as it is compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Name in the sentence.
    pub name: String,
    goodput: Estimate,
    delay: Estimate,
    /// Share of a value below which a difference is about nothing.
    same: f64,
}

/// A value and the interval of its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    value: f64,
    low: f64,
    high: f64,
}

impl Candidate {
    /// Takes the goodput and the mean queueing delay of a contender.
    pub fn new(name: impl Into<String>, result: &RunResult, c: &ContenderResult) -> Candidate {
        let estimate = |value: f64, of: fn(&Columns) -> f64| {
            let (low, high) = match &c.spread {
                None => (value, value),
                Some(spread) => match (spread.interval, &spread.low, &spread.high) {
                    (MeanInterval::Same, ..) => (value, value),
                    (MeanInterval::Range, Some(low), Some(high)) => (of(low), of(high)),
                    _ => (value - of(&spread.half), value + of(&spread.half)),
                },
            };
            Estimate { value, low, high }
        };
        let several = c.spread.is_some();
        Candidate {
            name: name.into(),
            goodput: estimate(c.metrics.goodput_mbit, |columns| columns.goodput_mbit),
            delay: estimate(c.metrics.delay_mean_ms, |columns| columns.delay_mean_ms),
            same: match several || result.simulated() {
                true => SAME_SIMULATED,
                false => SAME_REAL,
            },
        }
    }

    /// Compares this contender with a reference, as a sentence.
    pub fn against(&self, reference: &Candidate) -> String {
        let name = &self.name;
        if self.goodput.value <= 0.0 || reference.goodput.value <= 0.0 {
            let silent = match self.goodput.value <= 0.0 {
                true => name,
                false => &reference.name,
            };
            return format!("{name}: no comparison, because {silent} delivered nothing.");
        }
        let same = self.same.max(reference.same);
        let goodput = match self.goodput.ratio(&reference.goodput, same) {
            None => format!("about the same goodput as {}", reference.name),
            Some(ratio) if ratio >= 2.0 => {
                format!(
                    "{} times the goodput of {}",
                    two_digits(ratio),
                    reference.name
                )
            }
            Some(ratio) => format!("{} goodput than {}", percent(ratio), reference.name),
        };
        let delay = match self.delay.ratio(&reference.delay, same) {
            _ if reference.delay.value <= 0.0 => String::new(),
            None => " at about the same queueing delay".to_owned(),
            Some(ratio) if ratio >= 2.0 => {
                format!(" at {} times its queueing delay", two_digits(ratio))
            }
            Some(ratio) if ratio <= 0.0 => " and no queueing delay".to_owned(),
            Some(ratio) if ratio <= 0.1 => {
                format!(" at 1/{:.0} of its queueing delay", round(1.0 / ratio, 2))
            }
            Some(ratio) => format!(" and {} queueing delay", percent(ratio)),
        };
        format!("{name}: {goodput}{delay}.")
    }
}

impl Estimate {
    /// Returns the quotient of two values; `None` if they are about the same.
    fn ratio(&self, other: &Estimate, same: f64) -> Option<f64> {
        let apart = self.low > other.high || self.high < other.low;
        let far = (self.value - other.value).abs() > same * other.value.abs();
        (apart && far).then_some(self.value / other.value)
    }
}

/// Rounds to this many significant digits.
fn round(value: f64, digits: i32) -> f64 {
    let scale = libm::pow(
        10.0,
        f64::from(digits - 1) - libm::log10(value.abs()).floor(),
    );
    (value * scale).round() / scale
}

/// Formats a factor of at least 2: 2.3, 17, 340.
fn two_digits(ratio: f64) -> String {
    round(ratio, 2).to_string()
}

/// Formats a ratio as a difference: `12 % less`.
fn percent(ratio: f64) -> String {
    let (by, word) = match ratio < 1.0 {
        true => ((1.0 - ratio) * 100.0, "less"),
        false => ((ratio - 1.0) * 100.0, "more"),
    };
    match by < 9.95 {
        true => format!("{by:.1} % {word}"),
        false => format!("{by:.0} % {word}"),
    }
}

/// Returns the sentences of a run; none for a single contender.
pub(crate) fn of_run(result: &RunResult) -> Vec<String> {
    let contenders = &result.contenders;
    let all: Vec<Candidate> = contenders
        .iter()
        .map(|c| Candidate::new(&c.label, result, c))
        .collect();
    if contenders.len() > SENTENCES_MAX + 1 {
        return summary(&all);
    }
    let mut out = Vec::new();
    for (at, c) in contenders.iter().enumerate() {
        let reference = reference(contenders, at);
        if let Some((own, reference)) = all.get(at).zip(reference.and_then(|at| all.get(at))) {
            // A reference has no sentence, unless it is compared with one of its own.
            if !(c.native && reference.name == own.name) {
                out.push(own.against(reference));
            }
        }
    }
    out
}

/// Returns the contender that another one is compared with: the native one of the same algorithm,
/// otherwise the first native one, otherwise Cubic, otherwise the first one. A reference itself has
/// none.
fn reference(contenders: &[ContenderResult], at: usize) -> Option<usize> {
    let own = contenders.get(at)?;
    let find = |is: &dyn Fn(&ContenderResult) -> bool| contenders.iter().position(is);
    let natives = contenders.iter().filter(|c| c.native).count();
    if own.native && natives < contenders.len() {
        return None;
    }
    let counterpart = find(&|c| c.native && c.algorithm == own.algorithm).filter(|_| !own.native);
    let native = find(&|c| c.native).filter(|_| natives < contenders.len());
    let found = counterpart
        .or(native)
        .or_else(|| find(&|c| c.label == "cubic" || c.label == "native:cubic"))
        .unwrap_or(0);
    (found != at).then_some(found)
}

/// Names the best of many contenders.
fn summary(all: &[Candidate]) -> Vec<String> {
    let delivered = || all.iter().filter(|c| c.goodput.value > 0.0);
    let most = delivered().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value));
    let least = delivered().min_by(|a, b| a.delay.value.total_cmp(&b.delay.value));
    let Some((most, least)) = most.zip(least) else {
        return vec!["No contender delivered anything.".to_owned()];
    };
    let as_good = |c: &&Candidate| c.goodput.ratio(&most.goodput, c.same).is_none();
    let as_short = |c: &&Candidate| c.delay.ratio(&least.delay, c.same).is_none();
    let names = |chosen: Vec<&Candidate>| -> String {
        let names: Vec<&str> = chosen.iter().map(|c| c.name.as_str()).collect();
        first_names(&names, NAMES_MAX)
    };
    vec![format!(
        "Highest goodput: {} ({:.1} Mbit/s). Shortest mean queueing delay: {} ({}).",
        names(delivered().filter(as_good).collect()),
        most.goodput.value,
        names(delivered().filter(as_short).collect()),
        ccplane_report::html::milliseconds(least.delay.value)
    )]
}

/// Joins names; of more than `most`, the first ones and the number of the others.
pub(crate) fn first_names(names: &[&str], most: usize) -> String {
    match names.get(..most) {
        Some(first) if names.len() > most + 1 => {
            format!("{} and {} others", first.join(", "), names.len() - most)
        }
        _ => names.join(", "),
    }
}

/// Renders sentences above a page's first section; `note` says how far they hold.
pub(crate) fn html(sentences: &[String], note: &str) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let all: String = sentences
        .iter()
        .map(|sentence| format!("<p>{}</p>", escape(sentence)))
        .collect();
    format!(
        "<div class=\"verdicts\">{all}</div><p class=\"note\">{}</p>",
        escape(note)
    )
}

/// Returns the scope of the sentences of a run.
pub(crate) fn note(result: &RunResult) -> &'static str {
    let mut kinds = result
        .contenders
        .iter()
        .filter_map(|c| Some(c.spread.as_ref()?.interval));
    let kind = kinds
        .clone()
        .find(|kind| *kind != MeanInterval::Same)
        .or(kinds.next());
    match kind {
        None if result.simulated() => {
            "One seed, so these differences hold for this seed only; --seeds adds intervals."
        }
        None => "One run each; smaller differences are chance. --seeds adds intervals.",
        Some(MeanInterval::Same) => "All runs gave the same results.",
        Some(MeanInterval::Range) => {
            "Differences are named only where the ranges of the two runs do not overlap."
        }
        Some(MeanInterval::StudentT) => {
            "Differences are named only where the intervals of the means do not overlap."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Audit, ContenderMetrics, SimulationAudit, Spread};

    fn contender(label: &str, goodput: f64, delay: f64, half: Option<f64>) -> ContenderResult {
        let bare = label.strip_prefix("native:");
        ContenderResult {
            label: label.to_owned(),
            algorithm: bare.unwrap_or(label).to_owned(),
            native: bare.is_some(),
            metrics: ContenderMetrics {
                goodput_mbit: goodput,
                delay_mean_ms: delay,
                ..ContenderMetrics::default()
            },
            audit: Audit {
                simulation: Some(SimulationAudit::default()),
                ..Audit::default()
            },
            spread: half.map(|half| Spread {
                seeds: 5,
                half: Columns {
                    goodput_mbit: half,
                    delay_mean_ms: half,
                    ..Columns::default()
                },
                ..Spread::default()
            }),
            ..ContenderResult::default()
        }
    }

    fn sentences(contenders: Vec<ContenderResult>) -> Vec<String> {
        of_run(&RunResult {
            contenders,
            ..RunResult::default()
        })
    }

    #[test]
    fn contenders_are_compared_with_their_reference() {
        let all = vec![
            contender("copa", 91.5, 0.31, None),
            contender("cubic", 91.9, 9.3, None),
        ];
        assert_eq!(
            sentences(all),
            ["copa: 0.4 % less goodput than cubic at 1/30 of its queueing delay."]
        );
        let all = vec![
            contender("reno", 91.9, 9.0, None),
            contender("copa", 45.0, 4.0, None),
            contender("native:reno", 92.0, 3.0, None),
        ];
        assert_eq!(
            sentences(all),
            [
                "reno: 0.1 % less goodput than native:reno at 3 times its queueing delay.",
                "copa: 51 % less goodput than native:reno and 33 % more queueing delay."
            ]
        );
        assert!(sentences(vec![contender("reno", 1.0, 1.0, None)]).is_empty());
    }

    #[test]
    fn overlapping_intervals_are_no_difference() {
        let runs = |half: f64| {
            sentences(vec![
                contender("copa", 90.0, 5.0, Some(half)),
                contender("native:cubic", 92.0, 8.0, Some(half)),
            ])
        };
        assert_eq!(
            runs(2.0),
            ["copa: about the same goodput as native:cubic at about the same queueing delay."]
        );
        assert_eq!(
            runs(0.5),
            ["copa: 2.2 % less goodput than native:cubic and 38 % less queueing delay."]
        );
    }

    #[test]
    fn a_single_real_run_does_not_claim_small_differences() {
        let mut all = vec![
            contender("reno", 91.0, 9.0, None),
            contender("native:reno", 92.0, 9.1, None),
        ];
        for c in &mut all {
            c.audit.simulation = None;
        }
        assert_eq!(
            sentences(all),
            ["reno: about the same goodput as native:reno at about the same queueing delay."]
        );
    }

    #[test]
    fn silence_and_many_contenders_have_sentences() {
        let all = vec![
            contender("reno", 0.0, 0.0, None),
            contender("cubic", 92.0, 9.1, None),
        ];
        assert_eq!(
            sentences(all),
            ["reno: no comparison, because reno delivered nothing."]
        );
        let all = (1..=6)
            .map(|n| contender(&format!("a{n}"), 80.0 + f64::from(n), f64::from(n), None))
            .collect();
        assert_eq!(
            sentences(all),
            ["Highest goodput: a6 (86.0 Mbit/s). Shortest mean queueing delay: a1 (1.0 ms)."]
        );
        let all = (1..=9).map(|n| contender(&format!("a{n}"), 80.0, 1.0, None));
        let sentence = sentences(all.collect()).remove(0);
        assert!(
            sentence.starts_with("Highest goodput: a1, a2, a3, a4 and 5 others (80.0 Mbit/s)."),
            "{sentence}"
        );
    }
}
