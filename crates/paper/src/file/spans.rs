//! A span of a run: two times, or the time in which a workload is there, or before, or after it.

use std::fmt;
use std::ops::Range;

use ccplane_lab::scenario::{Scenario, Workload};
use ccplane_units::Duration;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Span {
    /// `all`
    All,
    /// `60s..120s`, `1s..50%`; without the second time to the run's end.
    Times(End, Option<End>),
    /// `cross`, `before cross`, `after cross`: by the workload's `start` and `stop`.
    Of(Part, String),
}

/// A time in a run: since its beginning, or as a share of its duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    At(Duration),
    Percent(f64),
}

impl End {
    fn read(text: &str) -> Option<End> {
        match text.trim().strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse()
                .ok()
                .filter(|p| (0.0..=100.0).contains(p))
                .map(End::Percent),
            None => text.trim().parse().ok().map(End::At),
        }
    }

    fn of(self, duration: Duration) -> Duration {
        match self {
            End::At(at) => at,
            End::Percent(percent) => {
                Duration::from_nanos((duration.as_nanos() as f64 * percent / 100.0).round() as u64)
            }
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::At(at) => write!(f, "{at}"),
            End::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Which part of a run, seen from a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Before,
    While,
    After,
}

impl Span {
    pub fn read(text: &str) -> Span {
        let text = text.trim();
        if text == "all" {
            return Span::All;
        }
        let times = text.split_once("..").and_then(|(from, to)| {
            let to = to.trim();
            let to = if to.is_empty() {
                Some(None)
            } else {
                End::read(to).map(Some)
            };
            Some(Span::Times(End::read(from)?, to?))
        });
        times.unwrap_or_else(|| {
            let parts = [("before ", Part::Before), ("after ", Part::After)];
            let part = parts
                .iter()
                .find_map(|(word, part)| Some((*part, text.strip_prefix(word)?.trim())));
            let (part, name) = part.unwrap_or((Part::While, text));
            Span::Of(part, name.to_owned())
        })
    }

    /// `<= 10kB of web in 60s..120s`, `web before cross`: what stands before the span, and the
    /// span.
    pub fn split(text: &str) -> (&str, Span) {
        let words = [" in ", " before ", " after "];
        let at = words.iter().filter_map(|word| text.find(word)).min();
        at.map_or((text, Span::All), |at| {
            let (text, span) = text.split_at(at);
            let span = span.trim();
            (
                text.trim(),
                Span::read(span.strip_prefix("in ").unwrap_or(span)),
            )
        })
    }

    /// Its ends, ns; none where the scenario has no such workload.
    pub fn bounds(&self, scenario: &Scenario) -> Option<Range<u64>> {
        let end = scenario.duration;
        let (from, to) = match self {
            Span::All => (Duration::ZERO, end),
            Span::Times(from, to) => (from.of(end), to.map_or(end, |to| to.of(end))),
            Span::Of(part, name) => {
                let workload = workload(name, scenario)?;
                let stop = workload.stop.unwrap_or(end);
                match part {
                    Part::Before => (Duration::ZERO, workload.start),
                    Part::While => (workload.start, stop),
                    Part::After => (stop, end),
                }
            }
        };
        Some(from.as_nanos()..to.min(end).as_nanos())
    }

    /// What is wrong with it for runs of this scenario, and what helps.
    pub fn unfit(&self, scenario: &Scenario) -> Option<(String, String)> {
        match self.bounds(scenario) {
            None => {
                let names: Vec<&str> = scenario
                    .workloads
                    .iter()
                    .map(|workload| workload.name.as_str())
                    .collect();
                Some((
                    format!("`{self}` is no span: neither two times nor a workload"),
                    format!(
                        "write `60s..120s`, `all`, or name one of `{}`",
                        names.join("`, `")
                    ),
                ))
            }
            Some(bounds) if bounds.is_empty() => Some((
                format!("nothing of a run of {} is in `{self}`", scenario.duration),
                "give a span that begins before the run ends, or the workload a `start` or `stop`"
                    .to_owned(),
            )),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Span::All => f.write_str("all"),
            Span::Times(from, None) => write!(f, "{from}.."),
            Span::Times(from, Some(to)) => write!(f, "{from}..{to}"),
            Span::Of(Part::While, name) => f.write_str(name),
            Span::Of(Part::Before, name) => write!(f, "before {name}"),
            Span::Of(Part::After, name) => write!(f, "after {name}"),
        }
    }
}

/// The workload of this name.
pub(super) fn workload<'s>(name: &str, scenario: &'s Scenario) -> Option<&'s Workload> {
    scenario
        .workloads
        .iter()
        .find(|workload| workload.name == name)
}

#[cfg(test)]
mod tests {
    use ccplane_qdisc::QueueSpec;
    use ccplane_units::Rate;

    use super::*;

    #[test]
    fn a_span_is_two_times_or_a_workloads() {
        let seconds = Duration::from_secs;
        let rate = Rate::from_bits_per_sec(1_000_000);
        let mut scenario = Scenario::dumbbell(
            Vec::new(),
            rate,
            seconds(1),
            QueueSpec::UNLIMITED,
            seconds(60),
        );
        scenario.workloads[0].name = "cross".to_owned();
        (scenario.workloads[0].start, scenario.workloads[0].stop) =
            (seconds(20), Some(seconds(40)));
        for (text, from, to) in [
            ("all", 0, 60),
            ("10s..30s", 10, 30),
            ("10s..", 10, 60),
            ("10s..90s", 10, 60),
            ("10s..50%", 10, 30),
            ("25%..", 15, 60),
            ("cross", 20, 40),
            ("before cross", 0, 20),
            ("after cross", 40, 60),
        ] {
            let span = Span::read(text);
            assert_eq!(span.to_string(), text);
            let bounds = seconds(from).as_nanos()..seconds(to).as_nanos();
            assert_eq!(span.bounds(&scenario), Some(bounds), "{text}");
            assert_eq!(span.unfit(&scenario), None, "{text}");
        }
        let unfit = |text: &str| Span::read(text).unfit(&scenario).unwrap();
        let (what, fix) = unfit("crass");
        assert!(
            what.contains("`crass`") && fix.contains("`cross`"),
            "{what}; {fix}"
        );
        assert!(
            unfit("10s..150%").0.contains("no span"),
            "{}",
            unfit("10s..150%").0
        );
        assert!(
            unfit("70s..80s").0.contains("a run of 60s"),
            "{}",
            unfit("70s..80s").0
        );
        scenario.workloads[0].stop = None;
        assert!(Span::read("after cross").unfit(&scenario).is_some());
    }
}
