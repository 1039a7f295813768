//! Why a candidate has no better score: its worst run around the moment where it differs most from
//! a baseline's, and what was in force then.

use std::path::Path;
use std::sync::Arc;

use ccplane_algorithms::Registry;
use ccplane_lang::ProgramFile;
use ccplane_units::stats;
use serde::Serialize;

use super::asked::Options;
use super::standing::Standing;
use super::suspect::{Judged, Suspect};
use super::{gate, score};
use crate::contender::Contender;
use crate::error::Error;
use crate::evaluate::Run;
use crate::progress::{NoProgress, Progress};
use crate::result::{ContenderResult, Sample};
use crate::run as runner;
use crate::scenario::Scenario;
use crate::sim::Sim;

/// A look around the event takes this part of a run, a row of the trace half of it.
const LOOKS: u64 = 30;
/// Rows of the trace before the event ends, and behind it.
const ROWS: (u64, u64) = (8, 4);

/// A candidate's worst run.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// How it did.
    #[serde(flatten)]
    pub standing: Standing,
    /// Its worst run; absent where it cannot be made, or broke there.
    pub worst: Option<Worst>,
}

/// A run, and what happened in it.
#[derive(Clone, Debug, Serialize)]
pub struct Worst {
    /// The place in words.
    pub place: String,
    /// What is bad about it.
    pub figure: String,
    /// The file of the run: `ccplane run FILE`.
    pub scenario: String,
    /// Who ran there for comparison.
    pub baseline: String,
    /// The stretch of time in which the two differ most, s.
    pub event_s: [f64; 2],
    /// In what they differ.
    pub event: String,
    /// Around the event.
    pub trace: Vec<Row>,
    /// What steered the candidate in the event.
    pub in_force: Vec<InForce>,
}

/// A stretch of time in both runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// When it ends, s.
    pub time_s: f64,
    /// The candidate's flow.
    pub candidate: Look,
    /// The baseline's in its place.
    pub baseline: Look,
}

/// A flow and its link in a stretch of time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Look {
    /// The window at its end.
    pub window_bytes: u64,
    /// What the flow delivered.
    pub goodput_mbit: f64,
    /// Mean queueing delay of the link; absent where it delivered nothing.
    pub delay_ms: Option<f64>,
    /// Segments that the flow sent again.
    pub sent_again: u64,
}

/// A clause of a text, or a callback.
#[derive(Clone, Debug, Serialize)]
pub struct InForce {
    /// The clause's guard, or the callback's name with what it was told last.
    pub what: String,
    /// The clause's line in its file.
    pub line: Option<usize>,
    /// How often it ran in the event.
    pub times: u64,
}

/// Scores a candidate, and looks into its worst run: of the checks of the gate that it failed, or
/// of the links.
pub fn explain(
    candidate: &Contender,
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Explained, Error> {
    let options = Options {
        candidates: vec![candidate.clone()],
        ..options.clone()
    };
    let mut standings = super::run(&options, registry, &(), progress)?.candidates;
    // One for each candidate.
    let standing = standings.pop().ok_or(Error::NoContender)?;
    let suspect = match standing.gate_passed {
        true => score::suspect(candidate, &options, &standing),
        false => gate::suspect(candidate, &options.against, &standing),
    };
    let worst = match suspect {
        Some(suspect) => look(candidate, suspect, registry)?,
        None => None,
    };
    Ok(Explained { standing, worst })
}

fn look(
    candidate: &Contender,
    suspect: Suspect,
    registry: &Registry,
) -> Result<Option<Worst>, Error> {
    let (own, other) = match (
        Seen::of(candidate, &suspect.run, registry)?,
        Seen::of(&suspect.baseline, &suspect.beside, registry)?,
    ) {
        (Some(own), Some(other)) => (own, other),
        _ => return Ok(None),
    };
    let end = own.end;
    let step = (end / LOOKS / 2).max(1);
    let first = ((suspect.from * 2.0 * LOOKS as f64) as u64).min(2 * LOOKS - 2);
    let (mut event, mut most) = (first * step, f64::NEG_INFINITY);
    for from in (first..=2 * LOOKS - 2).map(|n| n * step) {
        let worse = suspect.judged.worse(&own, &other, from, from + 2 * step);
        if worse > most {
            (event, most) = (from, worse);
        }
    }
    let (from, to) = (event, event + 2 * step);
    let baseline = suspect.baseline.to_string();
    let before = (to / step).min(ROWS.0);
    let rows = (0..before + ROWS.1).map(|n| to + (n + 1) * step - before * step);
    let trace = rows.filter(|at| *at <= end).map(|at| Row {
        time_s: at as f64 / 1e9,
        candidate: own.look(own.late(), at - step, at),
        baseline: other.look(other.late(), at - step, at),
    });
    Ok(Some(Worst {
        place: suspect.place,
        figure: suspect.figure,
        event_s: [from, to].map(|at| at as f64 / 1e9),
        event: suspect.judged.said(&own, &other, &baseline, from, to),
        trace: trace.collect(),
        in_force: in_force(candidate, &suspect.run, &own, from, to)?,
        scenario: suspect.run.scenario.text,
        baseline,
    }))
}

impl Judged {
    /// By how much the candidate is worse there.
    fn worse(self, own: &Seen, other: &Seen, from: u64, to: u64) -> f64 {
        let [mine, theirs] = self.numbers(own, other, from, to);
        match self {
            Judged::Goodput | Judged::Other => theirs - mine,
            Judged::Delay | Judged::Loss => mine - theirs,
            Judged::Share => mine,
        }
    }

    fn numbers(self, own: &Seen, other: &Seen, from: u64, to: u64) -> [f64; 2] {
        [own, other].map(|seen| {
            let (early, late) = (seen.look(0, from, to), seen.look(seen.late(), from, to));
            match self {
                Judged::Goodput => late.goodput_mbit,
                Judged::Delay => late.delay_ms.unwrap_or_default(),
                Judged::Loss => late.sent_again as f64,
                Judged::Other => early.goodput_mbit,
                Judged::Share => (early.goodput_mbit - late.goodput_mbit).abs(),
            }
        })
    }

    fn said(self, own: &Seen, other: &Seen, baseline: &str, from: u64, to: u64) -> String {
        let [mine, theirs] = self.numbers(own, other, from, to);
        let (what, unit) = match self {
            Judged::Goodput => ("it has", " Mbit/s"),
            Judged::Delay => ("packets wait", " ms"),
            Judged::Loss => ("it sends again", " segments"),
            Judged::Other => ("the Cubic beside it has", " Mbit/s"),
            Judged::Share => ("its two flows are apart by", " Mbit/s"),
        };
        format!("{what} {mine:.1}{unit}; with {baseline}: {theirs:.1}{unit}")
    }
}

/// A run of which everything was kept.
struct Seen {
    result: ContenderResult,
    /// Its flows, in the order in which they began.
    flows: Vec<usize>,
    /// Its length, ns.
    end: u64,
}

impl Seen {
    /// Runs it; nothing where it breaks. The contender is told apart from the others, so that what
    /// it hears is kept.
    fn of(contender: &Contender, run: &Run, registry: &Registry) -> Result<Option<Seen>, Error> {
        let named = format!("algorithm = \"{contender}\"\n");
        let text = format!(
            "contenders = [\"{contender}\"]\n{}",
            run.scenario.text.replace(&named, "")
        );
        let scenario = Scenario::parse(&run.key, &text, Path::new(".")).map_err(Error::Scenario)?;
        let once = runner::RunOptions::single(1, "");
        let mut result = match runner::run(&Sim::default(), &scenario, registry, &once, &NoProgress)
        {
            Ok(result) => result,
            Err(Error::Internal { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let result = result.contenders.pop().ok_or(Error::NoContender)?;
        let count = result.series.flows.len() + result.series.others.len();
        let mut flows: Vec<usize> = (0..count).collect();
        let mut seen = Seen {
            result,
            flows: Vec::new(),
            end: scenario.duration.as_nanos(),
        };
        flows.sort_by_key(|flow| {
            seen.samples(*flow)
                .first()
                .map_or(u64::MAX, |sample| sample.at_ns)
        });
        seen.flows = flows;
        Ok(Some(seen))
    }

    /// The place in [`flows`](Seen::flows) of the flow that is looked at: the last to begin.
    fn late(&self) -> usize {
        self.flows.len().saturating_sub(1)
    }

    fn samples(&self, flow: usize) -> &[Sample] {
        let series = &self.result.series;
        let mut all = series.flows.iter().chain(&series.others);
        all.nth(flow).map_or(&[], Vec::as_slice)
    }

    fn look(&self, at: usize, from: u64, to: u64) -> Look {
        let samples = self
            .flows
            .get(at)
            .map_or(&[][..], |flow| self.samples(*flow));
        let by = |time: u64| {
            let behind = samples.partition_point(|sample| sample.at_ns <= time);
            samples.get(behind.checked_sub(1)?)
        };
        let (begun, ended) = (by(from), by(to));
        let grown =
            |of: fn(&Sample) -> u64| ended.map_or(0, of).saturating_sub(begun.map_or(0, of));
        let series = &self.result.series;
        let bins = [from, to].map(|time| (time / series.bin_ns.max(1)) as usize);
        let waited = series
            .delay_ms
            .get(bins[0]..(bins[1].max(bins[0] + 1)).min(series.delay_ms.len()));
        Look {
            window_bytes: ended.map_or(0, |sample| {
                u64::from(sample.tcp.cwnd) * u64::from(sample.tcp.mss)
            }),
            goodput_mbit: grown(|sample| sample.received) as f64 * 8e3 / (to - from).max(1) as f64,
            delay_ms: stats::mean(waited.unwrap_or_default().iter().flatten().copied()),
            sent_again: grown(|sample| u64::from(sample.tcp.retrans)),
        }
    }

    /// What the candidate's last flow reported, by time: the program's number and the fields.
    fn reports(&self) -> impl DoubleEndedIterator<Item = &crate::result::LoggedReport> {
        let heard = &self.result.series.heard;
        let flow = self.flows.last().and_then(|flow| *heard.flows.get(*flow)?);
        heard
            .reports
            .iter()
            .filter(move |report| Some(report.flow) == flow)
    }

    fn names(&self, report: &crate::result::LoggedReport) -> &[String] {
        let programs = &self.result.series.heard.programs;
        programs
            .iter()
            .find(|program| program.uid == report.program)
            .map_or(&[], |program| program.fields.as_slice())
    }
}

/// What steered the candidate between two times, what ran most first.
fn in_force(
    candidate: &Contender,
    run: &Run,
    own: &Seen,
    from: u64,
    to: u64,
) -> Result<Vec<InForce>, Error> {
    let file = candidate.algorithm();
    let text = std::fs::read_to_string(file)
        .ok()
        .filter(|_| file.ends_with(".ccp"));
    if let Some(text) = text.and_then(|text| ProgramFile::read(&text).ok()) {
        return clauses(candidate, run, &text, from, to);
    }
    let (times, last) = {
        let inside = || {
            own.reports()
                .filter(|report| (from..to).contains(&report.at_ns))
        };
        (inside().count() as u64, inside().next_back())
    };
    // A native control has none.
    let Some(last) = last.or_else(|| own.reports().rfind(|report| report.at_ns < to)) else {
        return Ok(Vec::new());
    };
    let fields = own
        .names(last)
        .iter()
        .zip(&last.fields)
        .map(|(name, value)| format!("{name} {value}"));
    let urgent = if last.urgent { ", urgent" } else { "" };
    Ok(vec![InForce {
        what: format!(
            "on_report, last at {:.3} s{urgent}: {}",
            last.at_ns as f64 / 1e9,
            fields.collect::<Vec<_>>().join(", ")
        ),
        line: None,
        times,
    }])
}

/// The clauses of a text that ran between two times, in a run of the same text that counts them.
fn clauses(
    candidate: &Contender,
    run: &Run,
    text: &ProgramFile,
    from: u64,
    to: u64,
) -> Result<Vec<InForce>, Error> {
    let Some(counted) = text.instrumented() else {
        return Ok(Vec::new());
    };
    let source: Arc<str> = counted.source.into();
    let registry = Registry::builtin().with_files(move |_| Ok(source.to_string()));
    let Some(seen) = Seen::of(candidate, run, &registry)? else {
        return Ok(Vec::new());
    };
    let value = |report: Option<&crate::result::LoggedReport>, counter: &str| {
        let report = report?;
        let at = seen.names(report).iter().position(|name| name == counter)?;
        report.fields.get(at).copied()
    };
    let before = seen.reports().rfind(|report| report.at_ns <= from);
    // The first that knows of all of it.
    let after = seen.reports().find(|report| report.at_ns >= to);
    let after = after.or_else(|| seen.reports().next_back());
    let ran = counted.clauses.into_iter().filter_map(|clause| {
        let times = value(after, &clause.counter)?
            .saturating_sub(value(before, &clause.counter).unwrap_or(0));
        (times > 0).then_some(InForce {
            what: clause.guard,
            line: Some(clause.line),
            times,
        })
    });
    let mut ran: Vec<InForce> = ran.collect();
    ran.sort_by_key(|clause| std::cmp::Reverse(clause.times));
    Ok(ran)
}
