//! Warning about averages of a time that may be unknown, which `+infinity` corrupts.

use super::CompiledSource;
use crate::diagnostics::{DiagnosticCode, Problem, Problems};

/// Signals that read as `+infinity` if they are unknown.
const POSSIBLY_UNKNOWN_SIGNALS: [&str; 8] = [
    "Flow.rtt_sample_us",
    "Flow.srtt_us",
    "Flow.min_rtt_us",
    "Ack.owd_ns",
    "Ack.rtt_ns",
    "Flow.min_owd_ns",
    "Flow.min_rtt_ns",
    "Flow.queue_delay_ns",
];
/// Validity signal of the queueing delay.
const QUEUE_DELAY_VALIDITY_SIGNAL: &str = "Flow.queue_delay_valid";

pub(super) fn check_infinite_averages(text: &CompiledSource<'_, '_>, problems: &mut Problems) {
    // Signals mentioned in an enclosing condition, which is assumed to check that they are known.
    let mut asked = Vec::new();
    for when in text.forms.top_level().skip(1) {
        let mut parts = text.forms.children(when).skip(1);
        let Some(guard) = parts.next() else { continue };
        let before = asked.len();
        collect_signals(text, guard, &mut asked);
        let body: Vec<u32> = parts.collect();
        for &statement in &body {
            walk(text, statement, &mut asked, problems);
        }
        // Clauses after one without (fallthrough) run only if its guard is false, so they need not
        // repeat its checks.
        let falls = text.forms.iter().any(|(index, form)| {
            (when..text.forms.get(when).next_sibling).contains(&index)
                && text.forms.text(form) == "fallthrough"
        });
        if falls {
            asked.truncate(before);
        }
    }
}

/// Collects the signals in a value.
fn collect_signals<'s>(text: &CompiledSource<'_, 's>, index: u32, found: &mut Vec<&'s str>) {
    if text.list(index).is_none() {
        let word = text.text(index);
        if POSSIBLY_UNKNOWN_SIGNALS.contains(&word) || word == QUEUE_DELAY_VALIDITY_SIGNAL {
            found.push(word);
        }
        return;
    }
    for part in text.forms.children(index) {
        collect_signals(text, part, found);
    }
}

fn walk<'s>(
    text: &CompiledSource<'_, 's>,
    index: u32,
    checked: &mut Vec<&'s str>,
    problems: &mut Problems,
) {
    let Some((head, parts)) = text.list(index) else {
        return;
    };
    match (head, parts.as_slice()) {
        ("if" | "!if", [condition, rest @ ..]) => {
            let before = checked.len();
            collect_signals(text, *condition, checked);
            for &part in rest {
                walk(text, part, checked, problems);
            }
            checked.truncate(before);
        }
        (":=" | "bind", &[_, value]) => match text.list(value) {
            Some(("ewma", averaged)) => {
                for &part in averaged.iter().skip(1) {
                    warn(text, part, checked, "an average", problems);
                }
            }
            _ => walk(text, value, checked, problems),
        },
        (_, rest) => {
            for &part in rest {
                walk(text, part, checked, problems);
            }
        }
    }
}

/// Warns if `value` may be infinite because of a signal that no condition checked.
fn warn<'s>(
    text: &CompiledSource<'_, 's>,
    value: u32,
    checked: &[&'s str],
    what: &str,
    problems: &mut Problems,
) {
    match text.list(value) {
        // A minimum is known if one of its operands is.
        Some(("min" | "if" | "!if", _)) => {}
        Some((_, parts)) => {
            for part in parts {
                warn(text, part, checked, what, problems);
            }
        }
        None => {
            let signal = text.text(value);
            let known = checked.contains(&signal)
                || (signal.ends_with("queue_delay_ns")
                    && checked.contains(&QUEUE_DELAY_VALIDITY_SIGNAL));
            if !POSSIBLY_UNKNOWN_SIGNALS.contains(&signal) || known {
                return;
            }
            let message =
                format!("`{signal}` is +infinity while it is unknown, which would distort {what}");
            let help = match signal {
                "Flow.queue_delay_ns" => {
                    format!("check first: (if {QUEUE_DELAY_VALIDITY_SIGNAL} (:= …))")
                }
                _ => format!("check first: (if (< {signal} +infinity) (:= …))"),
            };
            problems.push(
                Problem::new(
                    DiagnosticCode::Infinite,
                    text.span(value),
                    message,
                    "may be unknown",
                )
                .with_help(help),
            );
        }
    }
}
