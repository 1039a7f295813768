//! Sweep files: a scenario, and a grid of values that replace its settings. docs/sweeps.md is the
//! reference.
//!
//! [`Sweep::read`] returns a sweep whose file is valid. [`Sweep::points`] lists the combinations of
//! values, and [`Sweep::scenario`] returns the checked scenario of one of them.

mod axis;
mod file;
mod placeholders;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use axis::AxisTarget;
pub use axis::{AxisQuantity, AxisValue, SweepAxis};

use crate::{
    FileLookup, Problem, ReadError, Scenario, Seeds, SourceLocation, SourceText, TomlNode,
    TomlTree, TreeSource, check, read_file, toml_list,
};

/// Maximum number of runs of a sweep. More suggest a mistake in the grid, and their identities
/// alone would take a gigabyte.
pub const SWEEP_RUNS_MAX: u64 = 1_000_000;

/// Index of the sweep's own file in its sources.
const SWEEP_SOURCE: usize = 0;
/// Index of the scenario's file.
const SCENARIO_SOURCE: usize = 1;

/// Variant of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SweepSize {
    /// The sweep as written.
    #[default]
    Full,
    /// With the values of its table `[quick]`, for a first look.
    Quick,
}

/// Sweep: a scenario with a grid of values.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Title of the page; `None`: the name of the file.
    pub title: Option<String>,
    /// Axes of the grid in the order of the file, then the settings of the cases. The contenders
    /// are an axis of the name `contender`.
    pub axes: Vec<SweepAxis>,
    /// Seeds of every point, one run each.
    pub seeds: Seeds,
    /// Number of runs of every point on real packets, which seeds do not determine; `None`: one per
    /// seed.
    pub repeats: Option<u32>,
    /// Number of axes of the grid; the rest belong to the cases.
    grid_axes: usize,
    /// Explicit combinations: for each axis of the cases, the index of its value, or `None` for the
    /// scenario's own.
    cases: Vec<Vec<Option<usize>>>,
    sources: Vec<TreeSource>,
    /// Line of the file that names the scenario, for problems of no value.
    scenario_line: SourceLocation,
    base: TomlTree,
    folder: ScenarioFolder,
    /// Folder of the sweep file, to which paths of contenders are relative.
    contender_folder: PathBuf,
}

/// Location of the files that the scenario refers to.
#[derive(Clone, Debug)]
enum ScenarioFolder {
    Folder(PathBuf),
    Shipped,
}

impl ScenarioFolder {
    fn lookup(&self) -> FileLookup<'_> {
        match self {
            ScenarioFolder::Folder(folder) => FileLookup::Folder(folder),
            ScenarioFolder::Shipped => FileLookup::Shipped,
        }
    }
}

/// Combination of values: for each axis the index of its value, or `None` if the axis does not
/// affect the run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SweepPoint {
    values: Vec<Option<usize>>,
}

impl SweepPoint {
    /// Returns the value of an axis; `None` if the axis does not affect the run.
    pub fn value<'s>(&self, axis: usize, sweep: &'s Sweep) -> Option<&'s AxisValue> {
        let index = self.values.get(axis).copied().flatten()?;
        sweep.axes.get(axis)?.values.get(index)
    }
}

impl Sweep {
    /// Reads a sweep file. The path of its scenario, and those in the scenario, are relative to the
    /// folder of the file that contains them.
    pub fn read(path: &Path) -> Result<Sweep, ReadError> {
        Sweep::read_with(path, SweepSize::Full)
    }

    /// Reads a sweep file of the given size.
    pub fn read_with(path: &Path, size: SweepSize) -> Result<Sweep, ReadError> {
        let file = path.display().to_string();
        let text = read_file(path).map_err(|source| ReadError::File {
            file: file.clone(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Sweep::parse_with(&file, &text, folder, size).map_err(ReadError::Problem)
    }

    /// Parses a text. `file` is its name in problems; the scenario is looked for in `folder`.
    pub fn parse(file: &str, text: &str, folder: &Path) -> Result<Sweep, Problem> {
        Sweep::parse_with(file, text, folder, SweepSize::Full)
    }

    /// Parses a text as a sweep of the given size.
    pub fn parse_with(
        file: &str,
        text: &str,
        folder: &Path,
        size: SweepSize,
    ) -> Result<Sweep, Problem> {
        file::parse(SourceText { file, text }, folder, size)
    }

    /// Returns the seeds of runs on real packets: as many as there are repeats.
    pub fn real_seeds(&self) -> Seeds {
        match self.repeats {
            Some(repeats) => Seeds::consecutive(self.seeds.first(), repeats.into()),
            None => self.seeds,
        }
    }

    /// Returns a file of the sweep, for problems.
    fn source(&self, index: usize) -> SourceText<'_> {
        let empty = SourceText { file: "", text: "" };
        self.sources.get(index).map_or(empty, TreeSource::source)
    }

    /// Returns the name of the sweep's file.
    pub fn file(&self) -> &str {
        self.sources
            .get(SWEEP_SOURCE)
            .map_or("", |source| &source.file)
    }

    /// Returns the path of the scenario's file; `None` for a shipped scenario.
    pub fn scenario_file(&self) -> Option<&Path> {
        let source = self.sources.get(SCENARIO_SOURCE)?;
        matches!(self.folder, ScenarioFolder::Folder(_)).then(|| Path::new(&source.file))
    }

    /// Returns the sweep's own text, and the scenario's.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| &*source.text)
    }

    /// Returns all points: the product of the grid's axes in the order of the file, the last axis
    /// first, each with every case. Combinations that differ only in values that they do not use
    /// are one point: `cubic` has no `{back}`.
    pub fn points(&self) -> Result<Vec<SweepPoint>, Problem> {
        self.check_count()?;
        let mut points = vec![Vec::new()];
        for axis in self.axes.iter().take(self.grid_axes) {
            let longer = |point: &Vec<Option<usize>>| {
                let with = |value| [&point[..], &[Some(value)]].concat();
                (0..axis.values.len()).map(with).collect::<Vec<_>>()
            };
            points = points.iter().flat_map(longer).collect();
        }
        let with_cases = |point: &Vec<Option<usize>>| {
            let with = |case: &Vec<Option<usize>>| [&point[..], case].concat();
            self.cases.iter().map(with).collect::<Vec<_>>()
        };
        let mut known = BTreeSet::new();
        let mut distinct = Vec::new();
        for values in points.iter().flat_map(with_cases) {
            let point = self.without_unused(SweepPoint { values });
            if known.insert(point.clone()) {
                distinct.push(point);
            }
        }
        Ok(distinct)
    }

    /// Checks the number of runs before the points are listed.
    fn check_count(&self) -> Result<(), Problem> {
        let grid = self.axes.iter().take(self.grid_axes);
        let counts = grid.map(|axis| axis.values.len() as u64);
        let factors = counts.chain([self.cases.len() as u64, self.seeds.count()]);
        let runs = factors.fold(1_u64, u64::saturating_mul);
        if runs <= SWEEP_RUNS_MAX {
            return Ok(());
        }
        let Some(source) = self.sources.get(SWEEP_SOURCE) else {
            return Ok(());
        };
        Err(source.source().problem(
            self.scenario_line.span.clone(),
            format!("the sweep has {runs} runs"),
            "this sweep",
            format!("reduce the grid or the seeds: the maximum is {SWEEP_RUNS_MAX}"),
        ))
    }

    /// Removes the values of parameters that no other value of the point contains.
    fn without_unused(&self, point: SweepPoint) -> SweepPoint {
        let mut point = point;
        // A parameter can be used by another parameter, which is unused itself.
        loop {
            let used: BTreeSet<&str> = (0..self.axes.len())
                .filter_map(|axis| point.value(axis, self))
                .flat_map(|value| placeholders::names_in(&value.node))
                .collect();
            let unused = |axis: &SweepAxis| {
                axis.target == AxisTarget::Parameter && !axis.names().any(|n| used.contains(n))
            };
            let mut changed = false;
            for (axis, value) in self.axes.iter().zip(&mut point.values) {
                if value.is_some() && unused(axis) {
                    *value = None;
                    changed = true;
                }
            }
            if !changed {
                return point;
            }
        }
    }

    /// Returns the checked scenario of a point, with one contender at most. A problem names the
    /// line of the file in which the wrong value is written.
    pub fn scenario(&self, point: &SweepPoint) -> Result<Scenario, Problem> {
        let mut tree = self.base.clone();
        // They are the sweep's.
        tree.0.remove("title");
        tree.0.remove("seeds");
        for (axis, settings) in self.axes.iter().enumerate() {
            let Some(value) = point.value(axis, self) else {
                continue;
            };
            let node = self.filled(&value.node, point)?;
            match (&settings.target, node) {
                (AxisTarget::Contender, TomlNode::Value(text, location)) => {
                    let list = TomlNode::Value(format!("[{text}]"), location);
                    tree.0.insert("contenders".to_owned(), list);
                }
                (AxisTarget::Setting(path), node) => tree
                    .set(path, node)
                    .map_err(|reason| self.path_problem(value, &reason))?,
                // The values of other axes contain it.
                (AxisTarget::Parameter | AxisTarget::CaseName | AxisTarget::Contender, _) => {}
            }
        }
        let composed = tree.compose();
        let source = SourceText {
            file: self.file(),
            text: &composed.text,
        };
        let mut scenario = check::scenario(source, self.folder.lookup())
            .map_err(|problem| composed.locate(&problem, &self.sources, &self.scenario_line))?;
        // The text, which identifies the run, keeps the path as written.
        for contender in &mut scenario.contenders {
            contender.resolve_file(&self.contender_folder);
        }
        Ok(scenario)
    }

    /// Converts a problem of the scenario's network, found after its text was checked.
    pub fn locate(&self, point: &SweepPoint, problem: &Problem) -> Problem {
        let place = self.describe(point);
        let source = self.source(SWEEP_SOURCE);
        source.problem(
            self.scenario_line.span.clone(),
            format!("{}{}", problem.message(), place),
            "this scenario",
            problem.fix().unwrap_or_default(),
        )
    }

    /// Returns the values of a point in words: ` (with rate = 10mbit, back = 0.5)`.
    fn describe(&self, point: &SweepPoint) -> String {
        let values = self.axes.iter().enumerate().filter_map(|(axis, settings)| {
            let value = point.value(axis, self)?;
            Some(format!("{} = {}", settings.column, value.text))
        });
        let values: Vec<String> = values.collect();
        match values.as_slice() {
            [] => String::new(),
            values => format!(" (with {})", values.join(", ")),
        }
    }

    /// Returns the name of a point's contender with its placeholders filled, as the algorithm
    /// registry takes it.
    pub fn contender(&self, point: &SweepPoint) -> Result<Option<String>, Problem> {
        let axis = self
            .axes
            .iter()
            .position(|axis| axis.target == AxisTarget::Contender);
        let Some(value) = axis.and_then(|axis| point.value(axis, self)) else {
            return Ok(None);
        };
        let node = self.filled(&value.node, point)?;
        Ok(Some(axis::text_of(&node)))
    }

    /// Replaces the placeholders in a value.
    fn filled(&self, node: &TomlNode, point: &SweepPoint) -> Result<TomlNode, Problem> {
        placeholders::fill(node, &|name| {
            let axis = self
                .axes
                .iter()
                .position(|axis| axis.names().any(|n| n == name))?;
            let value = point.value(axis, self)?;
            Some(value.text.clone())
        })
        .map_err(|(name, location)| self.placeholder_problem(&name, &location))
    }

    fn placeholder_problem(&self, name: &str, location: &SourceLocation) -> Problem {
        let known: Vec<&str> = self.axes.iter().flat_map(SweepAxis::names).collect();
        let source = self.source(location.source);
        file::unknown_placeholder(source, name, &location.span, &known)
    }

    fn path_problem(&self, value: &AxisValue, reason: &str) -> Problem {
        let source = self.source(SWEEP_SOURCE);
        source.problem(
            value.key_span.clone(),
            reason,
            "this path",
            "name a setting of the scenario by its tables, such as `topology.dumbbell.rate` or \
             `workload.1.bulk.flows`",
        )
    }
}

/// Contenders of a scenario as the values of an axis.
fn contenders_of(base: &TomlTree) -> Option<(Vec<String>, SourceLocation)> {
    let TomlNode::Value(text, location) = base.0.get("contenders")? else {
        return None;
    };
    let parsed: toml::Table = toml::from_str(&format!("contenders = {text}")).ok()?;
    let list = parsed.get("contenders")?.as_array()?;
    if list.is_empty() {
        return None;
    }
    let names = list
        .iter()
        .filter_map(|name| Some(name.as_str()?.to_owned()));
    Some((names.collect(), location.clone()))
}

/// Formats one contender as a TOML string.
fn contender_node(name: &str, location: SourceLocation) -> TomlNode {
    // The list's brackets are added again when the scenario is composed.
    let text = toml_list([name]);
    TomlNode::Value(text.trim_matches(['[', ']']).to_owned(), location)
}

#[cfg(test)]
mod tests;
