//! Warning about samples that are counted, added or averaged again in a run by timer, which reads
//! the last ACK's sample.

use super::CompiledSource;
use crate::diagnostics::{DiagnosticCode, Problem, Problems};

/// Signals of the last ACK that a run by timer reads again.
const SAMPLE_SIGNALS: [&str; 3] = [
    "Flow.rtt_sample_us",
    "Flow.rate_incoming",
    "Flow.rate_outgoing",
];
/// Words that are neither variables nor events.
const STATE_WORDS: [&str; 6] = ["Micros", "Cwnd", "Rate", "Ssthresh", "true", "false"];

pub(super) fn check_repeated_samples(text: &CompiledSource<'_, '_>, problems: &mut Problems) {
    let clauses: Vec<Vec<u32>> = text
        .forms
        .top_level()
        .skip(1)
        .map(|when| text.forms.children(when).skip(1).collect())
        .collect();
    let guards = clauses.iter().filter_map(|clause| clause.first());
    if !guards
        .into_iter()
        .any(|&guard| any(text, guard, &|word| word == "Micros"))
    {
        return;
    }
    for clause in &clauses {
        let Some((&guard, body)) = clause.split_first() else {
            continue;
        };
        let way = ConditionPath::default().with_condition(text, guard);
        for &statement in body {
            walk(text, statement, way, problems);
        }
    }
}

/// Kinds of words in the conditions around a statement.
#[derive(Clone, Copy, Default)]
struct ConditionPath {
    /// An event, which is 0 in a run by timer, or a variable, which may be set from one.
    event: bool,
    sample: bool,
}

impl ConditionPath {
    fn with_condition(self, text: &CompiledSource<'_, '_>, condition: u32) -> ConditionPath {
        ConditionPath {
            event: self.event || any(text, condition, &is_event),
            sample: self.sample || any(text, condition, &is_sample),
        }
    }
}

fn is_sample(word: &str) -> bool {
    SAMPLE_SIGNALS.contains(&word)
}

fn is_event(word: &str) -> bool {
    let event = word.starts_with("Ack.") && word != "Ack.now"
        || ["Flow.was_timeout", "Flow.undone"].contains(&word);
    let variable = word.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && (!word.starts_with("Flow.") && !word.starts_with("Ack."))
        && !STATE_WORDS.contains(&word);
    event || variable
}

/// Returns true if `is` holds for any atom of a value, except heads.
fn any(text: &CompiledSource<'_, '_>, index: u32, matches: &dyn Fn(&str) -> bool) -> bool {
    match text.list(index) {
        Some((_, parts)) => parts.into_iter().any(|part| any(text, part, matches)),
        None => matches(text.text(index)),
    }
}

fn walk(text: &CompiledSource<'_, '_>, index: u32, path: ConditionPath, problems: &mut Problems) {
    let Some((head, parts)) = text.list(index) else {
        return;
    };
    match (head, parts.as_slice()) {
        ("if" | "!if", [condition, rest @ ..]) => {
            let way = path.with_condition(text, *condition);
            for &part in rest {
                walk(text, part, way, problems);
            }
        }
        (":=" | "bind", &[target, value])
            if !path.event && accumulates(text, target, value, path.sample) =>
        {
            let message = "a timer run reads the last sample again, so it counts twice".to_owned();
            let help = "use samples of new acknowledgements only: (if (> (+ Ack.packets_acked \
                Ack.packets_misordered) 0) (:= …))";
            problems.push(
                Problem::new(
                    DiagnosticCode::RepeatedSample,
                    text.span(value),
                    message,
                    "counts twice",
                )
                .with_help(help.to_owned()),
            );
        }
        (":=" | "bind", _) => {}
        (_, rest) => {
            for &part in rest {
                walk(text, part, path, problems);
            }
        }
    }
}

/// Returns true if `value` adds a sample, or a count of samples, to `target`.
fn accumulates(text: &CompiledSource<'_, '_>, target: u32, value: u32, sampled: bool) -> bool {
    match text.list(value) {
        Some(("ewma", parts)) => parts
            .iter()
            .skip(1)
            .any(|&part| contains_sample(text, part)),
        Some(("+" | "add", parts)) => {
            let (own, added): (Vec<u32>, Vec<u32>) = parts
                .iter()
                .partition(|&&part| text.text(part) == text.text(target));
            let counts = |&part: &u32| text.list(part).is_none() && !is_event(text.text(part));
            !own.is_empty()
                && added
                    .iter()
                    .any(|part| contains_sample(text, *part) || (sampled && counts(part)))
        }
        _ => false,
    }
}

/// Returns true if a value contains a sample and none of its own conditions checks for an event.
fn contains_sample(text: &CompiledSource<'_, '_>, value: u32) -> bool {
    match text.list(value) {
        Some(("if" | "!if", parts))
            if parts
                .first()
                .is_some_and(|&condition| any(text, condition, &is_event)) =>
        {
            false
        }
        Some((_, parts)) => parts.iter().any(|&part| contains_sample(text, part)),
        None => is_sample(text.text(value)),
    }
}
