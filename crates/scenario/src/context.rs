//! Context of the checks of a scenario file, and checks that several tables share.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use ccplane_qdisc::{LineSpec, Piecewise, PiecewiseError, QueueSpec, Trace};
use ccplane_units::{Duration, Rate};
use toml::Spanned;

use crate::file::{self, Q, Word, value_or};
use crate::{Cellular, FileLookup, Name, Problem, SourceText, ValueOrList, read_file, shipped};

/// Context of every check: the file and its packet sizes.
pub(crate) struct CheckContext<'t> {
    pub(crate) source: SourceText<'t>,
    pub(crate) files: FileLookup<'t>,
    /// Payload of a full packet, bytes.
    pub(crate) mss: u32,
    /// Largest packet, bytes.
    pub(crate) mtu: u32,
    /// Everything that the scenario was read from.
    pub(crate) content: RefCell<ScenarioContent>,
}

/// Content that a scenario was read from.
#[derive(Default)]
pub(crate) struct ScenarioContent {
    /// Hash of the text and of every file that it refers to.
    pub(crate) hasher: blake3::Hasher,
    /// Paths of the files that it refers to; empty for a shipped scenario.
    pub(crate) files: Vec<PathBuf>,
}

impl ScenarioContent {
    /// Starts with the text of the scenario.
    pub(crate) fn new(text: &str) -> RefCell<ScenarioContent> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(text.as_bytes());
        RefCell::new(ScenarioContent {
            hasher,
            files: Vec::new(),
        })
    }

    fn add(&mut self, name: &str, text: &str) {
        self.hasher.update(name.as_bytes());
        self.hasher.update(&(text.len() as u64).to_le_bytes());
        self.hasher.update(text.as_bytes());
    }
}

impl CheckContext<'_> {
    /// Reads a file that the scenario refers to.
    pub(crate) fn read_file(&self, word: &Word) -> Result<String, Problem> {
        let (path, text) = match self.files {
            FileLookup::Folder(folder) => {
                let path = folder.join(word.get_ref());
                let text = read_file(&path);
                (path, text)
            }
            FileLookup::Shipped => {
                let text = shipped::referenced_file(word.get_ref()).map(str::to_owned);
                (
                    word.get_ref().into(),
                    text.ok_or_else(|| ErrorKind::NotFound.into()),
                )
            }
        };
        let text = text.map_err(|error| {
            self.source.problem(
                word,
                format!("{} cannot be read: {error}", path.display()),
                "this file",
                "relative paths start at the scenario's folder",
            )
        })?;
        let mut content = self.content.borrow_mut();
        content.add(word.get_ref(), &text);
        if matches!(self.files, FileLookup::Folder(_)) {
            content.files.push(path);
        }
        Ok(text)
    }

    /// Checks that a count is from 1 to `count_max`.
    pub(crate) fn check_count(
        &self,
        what: &str,
        value: &Spanned<u32>,
        count_max: u32,
    ) -> Result<u32, Problem> {
        self.source.number(what, value, 1..=count_max, "")
    }

    pub(crate) fn parse_line(
        &self,
        rate: Option<&Q<Rate>>,
        trace: Option<&Word>,
        piecewise: Option<&Spanned<Vec<file::RateStepEntry>>>,
        cellular: Option<&Spanned<file::Cellular>>,
    ) -> Result<(LineSpec, String), Problem> {
        let one_only = |at: std::ops::Range<usize>| {
            self.source.problem(
                at,
                "a link has at most one of `rate`, `trace`, `piecewise` and `cellular`",
                "second one",
                "remove all but one of them",
            )
        };
        match (rate, trace, piecewise, cellular) {
            (Some(rate), None, None, None) => {
                let rate = rate.get_ref().0;
                Ok((LineSpec::Constant(rate), rate.to_string()))
            }
            (None, Some(file), None, None) => {
                let trace = Trace::parse(&self.read_file(file)?).map_err(|error| {
                    self.source.problem(
                        file,
                        format!("{}: {error}", file.get_ref()),
                        "this trace",
                        "each line is the time in ms at which a 1500-byte packet may leave",
                    )
                })?;
                Ok((LineSpec::Trace(Arc::new(trace)), file.get_ref().clone()))
            }
            (None, None, Some(steps), None) => self.parse_piecewise(steps),
            (None, None, None, Some(cellular)) => self.parse_cellular(cellular),
            (None, None, None, None) => Ok((LineSpec::Unlimited, "unlimited".to_owned())),
            (_, Some(second), None, None) => Err(one_only(second.span())),
            (_, _, Some(second), None) => Err(one_only(second.span())),
            (_, _, _, Some(second)) => Err(one_only(second.span())),
        }
    }

    fn parse_cellular(
        &self,
        written: &Spanned<file::Cellular>,
    ) -> Result<(LineSpec, String), Problem> {
        /// Maximum number of opportunities: 60 Gbit, and some hundred megabytes of memory during
        /// parsing.
        const OPPORTUNITIES_MAX: f64 = 5e6;
        let w = written.get_ref();
        let own = Cellular::default();
        let cellular = Cellular {
            mean: w.mean.get_ref().0,
            length: value_or(&w.length, own.length),
            seed: w.seed.unwrap_or(own.seed),
        };
        if let Some(length) = w
            .length
            .as_ref()
            .filter(|length| length.get_ref().0 < Duration::from_secs(1))
        {
            return Err(self.source.problem(
                length,
                format!(
                    "a trace of {} is too short for a meaningful mean rate",
                    cellular.length
                ),
                "here",
                "use at least 1s, preferably 1m",
            ));
        }
        let opportunities =
            cellular.mean.bytes_per_sec() as f64 / 1_500.0 * cellular.length.as_secs_f64();
        if opportunities > OPPORTUNITIES_MAX {
            return Err(self.source.problem(
                written,
                format!(
                    "the trace would have {opportunities:.0} packets in {}, which is too many",
                    cellular.length
                ),
                "here",
                format!("reduce `length` or `mean`: the maximum is {OPPORTUNITIES_MAX:.0} packets"),
            ));
        }
        let line = cellular.to_line().map_err(|error| {
            self.source.problem(
                written,
                error.to_string(),
                "here",
                "change `mean` or `length`",
            )
        })?;
        Ok((line, format!("cellular, {} on average", cellular.mean)))
    }

    fn parse_piecewise(
        &self,
        steps: &Spanned<Vec<file::RateStepEntry>>,
    ) -> Result<(LineSpec, String), Problem> {
        let list: Vec<(Duration, Rate)> = steps
            .get_ref()
            .iter()
            .map(|file::RateStepEntry(at, rate)| (at.get_ref().0, rate.get_ref().0))
            .collect();
        let line = Piecewise::new(&list, None).map_err(|error| {
            let step = match &error {
                PiecewiseError::FirstNotAtZero { .. } => 1,
                PiecewiseError::NotLater { step, .. } => *step,
                _ => 0,
            };
            let step = step
                .checked_sub(1)
                .and_then(|step| steps.get_ref().get(step));
            let span = step.map_or(steps.span(), |file::RateStepEntry(at, _)| at.span());
            self.source.problem_from_error(span, "here", &error)
        })?;
        let (first, last) = (list.first(), list.last());
        let name = |step: Option<&(Duration, Rate)>| {
            step.map_or(String::new(), |(_, rate)| rate.to_string())
        };
        Ok((
            LineSpec::Piecewise(Arc::new(line)),
            format!("{} … {}", name(first), name(last)),
        ))
    }

    /// Returns the queue of a link. Without one it returns `fallback`, whose errors point to `at`.
    pub(crate) fn parse_queue<T>(
        &self,
        word: Option<&Word>,
        (fallback, at): (&str, &Spanned<T>),
        line: &LineSpec,
        rtt: Duration,
    ) -> Result<QueueSpec, Problem> {
        let text = word.map_or(fallback, |word| word.get_ref());
        let span = word.map_or(at.span(), Spanned::span);
        let bad = |error: &dyn std::fmt::Display| {
            self.source
                .problem_from_error(span.clone(), "this queue", error)
        };
        let spec: QueueSpec = text.parse().map_err(|error| bad(&error))?;
        spec.limit(line.mean_rate(), rtt, self.mtu)
            .map_err(|error| bad(&error))?;
        Ok(spec)
    }
}

/// Returns the names in a setting that takes one name or a list.
pub(crate) fn names(hosts: &Spanned<ValueOrList<String>>) -> Vec<Name> {
    let one = |host: &Word| Name {
        text: host.get_ref().clone(),
        // A single name has the span of its setting.
        span: match host.span().is_empty() {
            true => hosts.span(),
            false => host.span(),
        },
    };
    hosts.get_ref().0.iter().map(one).collect()
}

/// Returns a name with its span.
pub(crate) fn name(word: &Word) -> Name {
    Name {
        text: word.get_ref().clone(),
        span: word.span(),
    }
}
