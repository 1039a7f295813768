//! Papers as files: a scenario, a grid of values that take the place of some of its words,
//! contenders, and what is to be seen of every run. docs/papers.md says how to write one; those in
//! `papers/` are part of the program.

mod bundles;
mod check;
mod each;
mod measure;
mod names;
mod rates;
mod run;
mod seen;
mod shown;
mod spans;
mod written;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ccplane_lab::scenario::{Problem, Scenario, SourceLocation, TomlNode, TomlTree, TreeSource};
use ccplane_report::TargetRange;

use crate::{Datapath, Experiment, Run};
use measure::Measure;
pub(crate) use run::run;

/// A paper, read and checked.
#[derive(Debug)]
pub struct Paper {
    name: String,
    title: String,
    source: String,
    takes: String,
    on: Vec<Datapath>,
    /// How often every run on real packets is made, in full and with `--quick`.
    repeats: (usize, usize),
    /// The paper's text, and that of the file that it is based on.
    origins: Vec<TreeSource>,
    /// Where files that are named are looked for.
    folder: PathBuf,
    /// The scenario, for problems of no word of it.
    whole: SourceLocation,
    words: TomlTree,
    quick: Vec<Put>,
    /// With `--quick`, of a dimension only these values.
    quick_only: Vec<(usize, Vec<usize>)>,
    /// The grid's axes, then the contenders, then where they run.
    dims: Vec<Dim>,
    /// What each contender runs; axes stand in braces.
    algorithms: Vec<(String, SourceLocation)>,
    /// Where axes cross and something else holds.
    excepts: Vec<Except>,
    figures: Vec<Figure>,
    tables: Vec<Table>,
    charts: Vec<Chart>,
    remarks: Vec<String>,
    deviations: Vec<String>,
}

/// A word that takes another's place.
#[derive(Clone, Debug)]
struct Put {
    path: String,
    at: SourceLocation,
    word: TomlNode,
}

/// Where something else holds: at these values of these dimensions.
#[derive(Debug)]
struct Except {
    only: Vec<(usize, Vec<usize>)>,
    puts: Vec<Put>,
    /// Nothing is run there.
    skip: bool,
}

impl Except {
    fn holds(&self, point: &Point) -> bool {
        let is = |(dim, values): &(usize, Vec<usize>)| {
            point.get(*dim).is_some_and(|value| values.contains(value))
        };
        self.only.iter().all(is)
    }
}

/// What runs differ by.
#[derive(Debug)]
struct Dim {
    name: String,
    heading: String,
    values: Vec<Choice>,
}

/// A value of a dimension.
#[derive(Debug)]
struct Choice {
    key: String,
    label: String,
    /// Where it stands on an axis.
    x: Option<f64>,
    puts: Vec<Put>,
}

/// One of each dimension's values, by their numbers.
type Point = Vec<usize>;

/// Which runs are meant: of some dimensions only these values, and those that are named in braces
/// one by one.
#[derive(Clone, Debug, Default)]
struct Meant {
    only: Vec<(usize, Vec<usize>)>,
    each: Vec<usize>,
}

impl Meant {
    /// Whether a run at this point may be meant.
    fn allows(&self, point: &Point) -> bool {
        let allowed = |(dim, values): &(usize, Vec<usize>)| {
            point.get(*dim).is_none_or(|value| values.contains(value))
        };
        self.only.iter().all(allowed)
    }
}

#[derive(Debug)]
struct Figure {
    key: String,
    what: Option<String>,
    measure: Measure,
    meant: Meant,
    /// It is a ratio to this contender, or to this place.
    over: Option<(usize, usize)>,
    /// Of several values of the dimensions that its key does not name.
    take: Option<Take>,
    /// Measures that it is taken of beside its own.
    also: Vec<Measure>,
    scale: Scale,
    paper: String,
    judged: Judged,
    least: f64,
}

/// What a figure is of several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Take {
    Max,
    Min,
    Mean,
    /// The statistic of what all of them have, taken together.
    Together,
}

/// What a figure makes of a value, or of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Times(f64),
    /// 100 · (1 − ratio).
    PercentLess,
    /// 100 · (ratio − 1).
    PercentMore,
}

impl Scale {
    fn of(self, value: f64) -> f64 {
        match self {
            Scale::Times(times) => value * times,
            Scale::PercentLess => 100.0 * (1.0 - value),
            Scale::PercentMore => 100.0 * (value - 1.0),
        }
    }
}

/// How a figure is judged.
#[derive(Clone, Copy, Debug)]
enum Judged {
    /// By its value, where something is aimed at.
    Value(Option<TargetRange>),
    /// By its whole interval, over pairs of the same seed.
    Interval(TargetRange),
    /// It is a statement: that this is less than what it is a ratio to.
    Less,
}

#[derive(Debug)]
struct Table {
    title: String,
    meant: Meant,
    rows: Vec<usize>,
    across: Option<usize>,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    heading: String,
    measure: Measure,
    digits: usize,
    times: f64,
    /// Of these dimensions this value.
    fixed: Vec<(usize, usize)>,
    /// It is a ratio to this contender, or to this place.
    over: Option<(usize, usize)>,
}

#[derive(Debug)]
struct Chart {
    caption: String,
    /// Of the caption: a picture each.
    pictures: Meant,
    title: String,
    /// Of the title: a panel each.
    panels: Vec<usize>,
    x: X,
    x_label: String,
    log: bool,
    measure: Option<Measure>,
    times: f64,
    range: Option<(f64, f64)>,
    lines: usize,
}

/// What a chart has below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum X {
    /// A dimension.
    Dim(usize),
    /// Time in the bottleneck's queue, µs; its distribution.
    Delay,
    /// Time; the rates of flows.
    Time,
}

/// Why a paper could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("the paper {file} cannot be read: {source}")]
    File {
        /// Its name.
        file: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is wrong.
    #[error(transparent)]
    Problem(Problem),
}

impl Paper {
    /// Reads a file; what it refers to is looked for beside it.
    pub fn read(path: &Path) -> Result<Paper, ReadError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ReadError::File {
            file: file.clone(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Paper::parse(&file, &text, folder).map_err(ReadError::Problem)
    }

    /// Reads a text; `file` is its name in problems, files that it refers to are looked for in
    /// `folder`.
    pub fn parse(file: &str, text: &str, folder: &Path) -> Result<Paper, Problem> {
        check::paper(file, text, folder)
    }

    /// What `ccplane paper` runs.
    pub fn experiment(&self) -> Experiment<'_> {
        Experiment {
            name: &self.name,
            title: &self.title,
            source: &self.source,
            takes: &self.takes,
            on: &self.on,
            repeats: self.on.contains(&Datapath::Linux).then_some(self.repeats.0),
            run: Run::File(self, None),
        }
    }

    /// The number of the dimension of contenders; places come after it.
    fn contenders(&self) -> usize {
        self.dims.len() - 2
    }

    fn choice(&self, dim: usize, value: usize) -> Option<&Choice> {
        self.dims.get(dim)?.values.get(value)
    }

    /// Every point that is run, the later dimensions' values first.
    fn points(&self, quick: bool, on: impl Fn(Datapath) -> bool) -> Vec<Point> {
        let places = self.on.iter().enumerate().filter(|(_, place)| on(**place));
        let mut only = vec![(
            self.dims.len() - 1,
            places.map(|(n, _)| n).collect::<Vec<_>>(),
        )];
        if quick {
            only.extend(self.quick_only.iter().cloned());
        }
        let each = (0..self.dims.len()).collect();
        let mut points = self.expand(&Meant { only, each });
        points.retain(|point| {
            !self
                .excepts
                .iter()
                .any(|except| except.skip && except.holds(point))
        });
        points
    }

    /// The points that are meant, as far as dimensions are named one by one; the others stand at
    /// their first value that is meant.
    fn expand(&self, meant: &Meant) -> Vec<Point> {
        let mut points: Vec<Point> = vec![Vec::new()];
        for (dim, all) in self.dims.iter().enumerate() {
            let allowed = |value: &usize| {
                meant
                    .only
                    .iter()
                    .all(|(of, only)| *of != dim || only.contains(value))
            };
            let values = (0..all.values.len()).filter(allowed);
            let take = if meant.each.contains(&dim) {
                usize::MAX
            } else {
                1
            };
            let values: Vec<usize> = values.take(take).collect();
            let longer = |point: &Point| {
                values
                    .iter()
                    .map(|value| [&point[..], &[*value]].concat())
                    .collect::<Vec<_>>()
            };
            points = points.iter().flat_map(longer).collect();
        }
        points
    }

    /// A text whose braces are filled: with keys, or with labels. Contenders come first, because
    /// their own texts may have axes in braces.
    fn filled(&self, text: &str, point: &Point, of: fn(&Choice) -> &str) -> String {
        let mut filled = text.to_owned();
        for (dim, value) in self.dims.iter().zip(point).rev() {
            if let Some(choice) = dim.values.get(*value) {
                filled = filled.replace(&format!("{{{}}}", dim.name), of(choice));
            }
        }
        filled
    }

    /// A label with its braces filled: without a label of its own, a contender has its algorithm's
    /// text.
    fn label(&self, choice: &Choice, point: &Point) -> String {
        self.filled(&choice.label, point, |choice| &choice.label)
    }

    /// The scenario of a point. A recorded link takes the place of every generated one.
    fn scenario(
        &self,
        point: &Point,
        quick: bool,
        trace: Option<&Path>,
    ) -> Result<Scenario, Problem> {
        let mut words = self.words.clone();
        let chosen = point
            .iter()
            .enumerate()
            .filter_map(|(dim, value)| self.choice(dim, *value));
        let excepts = self.excepts.iter().filter(|except| except.holds(point));
        let puts = self
            .quick
            .iter()
            .filter(|_| quick)
            .chain(chosen.flat_map(|choice| &choice.puts))
            .chain(excepts.flat_map(|except| &except.puts));
        for put in puts {
            words
                .set(&put.path, put.word.clone())
                .map_err(|why| self.wrong_path(put, &why))?;
        }
        let algorithm = point
            .get(self.contenders())
            .and_then(|n| self.algorithms.get(*n));
        if let Some((text, at)) = algorithm {
            let list = format!("[{:?}]", self.filled(text, point, |choice| &choice.key));
            words
                .0
                .insert("contenders".to_owned(), TomlNode::Value(list, at.clone()));
        }
        if let Some(trace) = trace {
            recorded(&mut words, trace, &self.whole);
        }
        let composed = words.compose();
        let file = self.origins.first().map_or("", |origin| &origin.file);
        Scenario::parse(file, &composed.text, &self.folder)
            .map_err(|problem| composed.locate(&problem, &self.origins, &self.whole))
    }

    fn wrong_path(&self, put: &Put, why: &str) -> Problem {
        let empty = TreeSource {
            file: String::new(),
            text: String::new(),
        };
        let origin = self.origins.get(put.at.source).unwrap_or(&empty);
        origin.source().problem(
            put.at.span.clone(),
            why,
            "this path",
            "name a word of the scenario by its tables, as `topology.dumbbell.rate`, or `workload.1.bulk.flows`",
        )
    }
}

/// Replaces every generated link by a recorded one.
fn recorded(words: &mut TomlTree, trace: &Path, at: &SourceLocation) {
    if words.0.remove("cellular").is_some() {
        let file = TomlNode::Value(format!("{:?}", trace.display().to_string()), at.clone());
        words.0.insert("trace".to_owned(), file);
    }
    for word in words.0.values_mut() {
        match word {
            TomlNode::Value(..) => {}
            TomlNode::Table(inner) => recorded(inner, trace, at),
            TomlNode::List(all) => all.iter_mut().for_each(|inner| recorded(inner, trace, at)),
        }
    }
}

macro_rules! embedded {
    ($($file:literal,)*) => {
        &[$(($file, include_str!(concat!("../../../papers/", $file)))),*]
    };
}

/// Papers that are part of the program, and their files.
const EMBEDDED: &[(&str, &str)] = embedded![
    "dx/testbed.toml",
    "dx/fattree.toml",
    "dx/senders.toml",
    "dx/noise.toml",
    "dx/fairness.toml",
    "rc3/priority.toml",
    "bundler/overview.toml",
    "bundler/connections.toml",
    "bundler/timeline.toml",
    "bundler/inelastic.toml",
    "bundler/elastic.toml",
    "bundler/two.toml",
    "bundler/sendbox-cc.toml",
    "bundler/endhost-cc.toml",
    "bundler/load.toml",
    "bundler/classes.toml",
    "bundler/multipath.toml",
    "bundler/accuracy.toml",
    "bundler/variable.toml",
    "own/sim-kernel.toml",
];

/// All of them. One that is wrong is left out: a test reads each.
pub(crate) fn embedded() -> &'static [Paper] {
    static PAPERS: OnceLock<Vec<Paper>> = OnceLock::new();
    PAPERS.get_or_init(|| {
        let read = |(file, text): &(&str, &str)| {
            Paper::parse(&format!("papers/{file}"), text, Path::new("papers")).ok()
        };
        EMBEDDED.iter().filter_map(read).collect()
    })
}

#[cfg(test)]
mod tests;
