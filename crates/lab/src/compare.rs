//! Comparison of finished runs from their folders: the differences of their setups, and all metrics
//! in one table and one chart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ccplane_report::chart::{self, Chart, Theme, figure, file_name, hue};
use ccplane_report::html::{definitions, note, warning};
use ccplane_report::{Page, Provenance, Table};
use serde_json::{Value, json};

use crate::files::{SCHEMA_VERSION, SUMMARY_FILE};
use crate::report::plane::{self, Spot};
use crate::report::verdict::{self, Candidate};
use crate::report::{advice, set_up};
use crate::result::{EachRun, RunResult};
use crate::table;

/// Error of a folder that cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The folder has no results.
    #[error("there is no folder {0}")]
    Absent(PathBuf),
    /// The folder has results of something else.
    #[error("{folder} has no {SUMMARY_FILE}, so that it is not the folder of a run{is}")]
    NoRun {
        /// The folder.
        folder: PathBuf,
        /// Kind of the results, if it is known.
        is: &'static str,
    },
    /// The results have another version.
    #[error(
        "{folder} is of another version of ccplane: its {SUMMARY_FILE} has schema {found}, and \
         this one reads {SCHEMA_VERSION}"
    )]
    Schema {
        /// The folder.
        folder: PathBuf,
        /// Version; `none` before schemas had numbers.
        found: String,
    },
    /// A file cannot be read.
    #[error("{path} cannot be read: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Reason, with the place in the file.
        why: String,
    },
    /// A folder was given twice.
    #[error("{0} is named twice")]
    Twice(PathBuf),
}

/// Finished run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Folder as given.
    pub name: String,
    /// Results without time series, which are in other files, and without the cost.
    pub result: RunResult,
    /// Results as in the file.
    summary: Value,
    /// Delay in ms and goodput in Mbit/s of every seed or repeat of each contender, if there are
    /// several.
    each: Vec<Vec<(f64, f64)>>,
}

/// Maximum number of sentences at the top of the page, besides one on the number of further ones.
const COMPARED_MAX: usize = 6;
/// Scope of the sentences.
const SENTENCES_NOTE: &str = "With several seeds or repeats, differences are named only where the \
    intervals of the means, or the ranges of two runs, do not overlap. A single run holds for its seed only.";

/// Chart of a comparison, on its page and as files.
#[derive(Clone, Debug)]
pub struct ComparisonChart {
    /// Heading on the page.
    section: &'static str,
    /// Text above the chart.
    caption: &'static str,
    /// Name of its files without the extension.
    pub file: String,
    /// Description for readers who do not see it.
    pub described: String,
    panels: Vec<Chart>,
}

impl ComparisonChart {
    /// Renders a self-contained SVG file.
    pub fn svg(&self) -> String {
        chart::export(&self.panels, &self.described, Theme::Light)
    }

    /// Renders the values as CSV.
    pub fn csv(&self) -> String {
        chart::csv(&self.panels)
    }

    /// Renders several charts in one SVG file, one below the other.
    pub fn svg_of_all(charts: &[ComparisonChart]) -> String {
        let panels: Vec<Chart> = charts
            .iter()
            .flat_map(|chart| chart.panels.clone())
            .collect();
        let described: Vec<&str> = charts
            .iter()
            .map(|chart| chart.described.as_str())
            .collect();
        chart::export(&panels, &described.join("; "), Theme::Light)
    }

    /// Renders the values of several charts as one CSV file.
    pub fn csv_of_all(charts: &[ComparisonChart]) -> String {
        let panels: Vec<Chart> = charts
            .iter()
            .flat_map(|chart| chart.panels.clone())
            .collect();
        chart::csv(&panels)
    }
}

/// Returns a chart of one value of every contender: a box over its seeds or repeats, or a dot.
fn side_by_side(
    spots: &[Spot],
    title: &str,
    section: &'static str,
    of: fn(&(f64, f64)) -> f64,
) -> ComparisonChart {
    let panels = plane::variation(spots, title, of);
    ComparisonChart {
        section,
        caption: "A box spans the middle half of a contender's seeds or repeats; a dot is a single \
                  run.",
        file: panels.first().map_or(String::new(), file_name),
        described: plane::description(spots).replace(plane::BOTH_VALUES, title),
        panels,
    }
}

/// Several finished runs.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Runs in the given order.
    pub runs: Vec<Run>,
}

impl Run {
    /// Reads a folder.
    pub fn read(folder: &Path) -> Result<Run, CompareError> {
        if !folder.is_dir() {
            return Err(CompareError::Absent(folder.to_owned()));
        }
        let path = folder.join(SUMMARY_FILE);
        let unreadable = |why: String| CompareError::Unreadable {
            path: path.clone(),
            why,
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(no_run(folder)),
            Err(why) => return Err(unreadable(why.to_string())),
        };
        let value: Value =
            serde_json::from_str(&text).map_err(|why| unreadable(why.to_string()))?;
        match value.get("schema") {
            Some(schema) if *schema == json!(SCHEMA_VERSION) => {}
            other => {
                return Err(CompareError::Schema {
                    folder: folder.to_owned(),
                    found: other.map_or("none".to_owned(), Value::to_string),
                });
            }
        }
        let each = each(&value);
        let result =
            serde_json::from_value(value.clone()).map_err(|why| unreadable(why.to_string()))?;
        Ok(Run {
            name: folder.display().to_string(),
            result,
            summary: value,
            each,
        })
    }
}

/// Returns delay and goodput of each run of each contender.
fn each(summary: &Value) -> Vec<Vec<(f64, f64)>> {
    let contenders = summary.get("contenders").and_then(Value::as_array);
    let of = |contender: &Value| {
        let runs = contender.get("runs").cloned().unwrap_or_default();
        let runs: Vec<EachRun> = serde_json::from_value(runs).unwrap_or_default();
        let point = |run: &EachRun| (run.metrics.delay_p95_ms, run.metrics.goodput_mbit);
        runs.iter().map(point).collect()
    };
    contenders.into_iter().flatten().map(of).collect()
}

fn no_run(folder: &Path) -> CompareError {
    let has = |file: &str| folder.join(file).exists();
    let is = if has("evaluation.json") {
        "; it is an evaluation, which compares within itself"
    } else if has("results.json") {
        "; it is a paper's, which compares within itself"
    } else {
        ""
    };
    CompareError::NoRun {
        folder: folder.to_owned(),
        is,
    }
}

impl Comparison {
    /// Reads several folders.
    pub fn read(folders: &[PathBuf]) -> Result<Comparison, CompareError> {
        for (at, folder) in folders.iter().enumerate() {
            let same = |other: &PathBuf| match (fs::canonicalize(folder), fs::canonicalize(other)) {
                (Ok(one), Ok(two)) => one == two,
                _ => folder == other,
            };
            if folders[..at].iter().any(same) {
                return Err(CompareError::Twice(folder.clone()));
            }
        }
        let runs = folders.iter().map(|folder| Run::read(folder));
        Ok(Comparison {
            runs: runs.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the parts of the setup with their values in every run.
    fn parts(&self) -> Vec<(&'static str, Vec<String>)> {
        let each: Vec<_> = self
            .runs
            .iter()
            .map(|run| set_up(&run.result.setup))
            .collect();
        let mut names: Vec<&'static str> = Vec::new();
        for (name, _) in each.iter().flatten() {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let of = |parts: &Vec<(&'static str, String)>, name: &str| {
            let found = parts.iter().find(|(part, _)| *part == name);
            found.map_or(Table::EMPTY_CELL.to_owned(), |(_, value)| value.clone())
        };
        let row = |name: &'static str| (name, each.iter().map(|parts| of(parts, name)).collect());
        names.into_iter().map(row).collect()
    }

    /// Returns the differences of the setups; `None` if there are none.
    pub fn differences(&self) -> Option<Table> {
        let differ = |row: &(&str, Vec<String>)| row.1.windows(2).any(|two| two[0] != two[1]);
        let rows: Vec<Vec<String>> = self
            .parts()
            .into_iter()
            .filter(differ)
            .map(|(name, values)| std::iter::once(name.to_owned()).chain(values).collect())
            .collect();
        let headings =
            std::iter::once("set-up").chain(self.runs.iter().map(|run| run.name.as_str()));
        (!rows.is_empty()).then(|| Table::new(headings, rows))
    }

    /// Returns the metrics of all contenders.
    pub fn table(&self) -> Table {
        table::of_runs(self.runs.iter().map(|run| (run.name.as_str(), &run.result)))
    }

    /// Returns the warnings of each run, which come before the metrics.
    fn complaints(&self) -> Vec<(String, &str)> {
        let of = |run| {
            let Run { name, result, .. }: &Run = run;
            let told = result.complaints();
            told.map(move |(who, what)| (format!("{name}, {who}"), what))
        };
        self.runs.iter().flat_map(of).collect()
    }

    /// Returns the contenders of all runs; one of the same label has one colour.
    fn spots(&self) -> Vec<Spot> {
        let mut known: Vec<&str> = Vec::new();
        let mut spots = Vec::new();
        for run in &self.runs {
            for (at, contender) in run.result.contenders.iter().enumerate() {
                let label = contender.label.as_str();
                if !known.contains(&label) {
                    known.push(label);
                }
                spots.push(Spot {
                    label: format!("{label}, {}", short(&run.name)),
                    colour: hue(known
                        .iter()
                        .position(|known| *known == label)
                        .unwrap_or_default()),
                    secondary: false,
                    position: (
                        contender.metrics.delay_p95_ms,
                        contender.metrics.goodput_mbit,
                    ),
                    runs: run.each.get(at).cloned().unwrap_or_default(),
                });
            }
        }
        spots
    }

    /// Charts of the page: name of the files, description, panels.
    pub fn charts(&self) -> Vec<ComparisonChart> {
        let spots = self.spots();
        let plane = plane::chart(&spots);
        vec![
            ComparisonChart {
                section: "Goodput and delay",
                caption: plane::PLANE_CAPTION,
                file: plane::name(&plane),
                described: plane::description(&spots),
                panels: vec![plane],
            },
            side_by_side(&spots, "goodput, Mbit/s", "Goodput", |run| run.1),
            side_by_side(
                &spots,
                "95th percentile of the queueing delay, ms",
                "Queueing delay",
                |run| run.0,
            ),
        ]
    }

    /// Compares each contender with the same one of the first run, or with the first run's first
    /// contender if only the contenders differ.
    fn sentences(&self) -> Vec<String> {
        let Some((first, others)) = self.runs.split_first() else {
            return Vec::new();
        };
        let candidate = |run: &Run, at: usize| {
            let c = run.result.contenders.get(at)?;
            let name = format!("{} in {}", c.label, short(&run.name));
            Some(Candidate::new(name, &run.result, c))
        };
        let same_set_up = self.differences().is_none();
        let mut out = Vec::new();
        for run in others {
            for (at, c) in run.result.contenders.iter().enumerate() {
                let mut contenders = first.result.contenders.iter();
                let same = contenders.position(|other| other.label == c.label);
                let reference = same.or(same_set_up.then_some(0));
                let reference = reference.and_then(|at| candidate(first, at));
                if let Some((own, reference)) = candidate(run, at).zip(reference) {
                    out.push(own.against(&reference));
                }
            }
        }
        let further = out.len().saturating_sub(COMPARED_MAX);
        out.truncate(COMPARED_MAX);
        match further {
            0 => {}
            1 => out.push("One more contender is in the table.".to_owned()),
            _ => out.push(format!("{further} more contenders are in the table.")),
        }
        out
    }

    /// Returns the page.
    pub fn page(&self, command: &str, provenance: &Provenance) -> String {
        let names: Vec<&str> = self.runs.iter().map(|run| short(&run.name)).collect();
        let mut page = Page::new(
            &names.join(", "),
            &format!("{} runs side by side", self.runs.len()),
        );
        page.enable_live();
        page.add(&verdict::html(&self.sentences(), SENTENCES_NOTE));
        page.add(&warning(
            "These results may be unreliable:",
            advice(self.runs.iter().map(|run| &run.result)),
            &self.complaints(),
            usize::MAX,
            "",
        ));
        match self.differences() {
            Some(table) => page.add_section("What differs", &table.to_html()),
            None => page.add_section(
                "What differs",
                &note("Nothing in the set-up: these are runs of the same experiment."),
            ),
        }
        page.add_section("Figures", &self.table().to_html());
        for ComparisonChart {
            section,
            caption,
            file,
            described,
            panels,
        } in self.charts()
        {
            page.add_section(
                section,
                &(note(caption) + &figure(&panels, &described, &file)),
            );
        }
        let same = self.parts().into_iter().filter_map(|(name, values)| {
            let first = values.first()?.clone();
            values
                .iter()
                .all(|value| *value == first)
                .then_some((name, first))
        });
        page.add_section("The same in all", &definitions(&same.collect::<Vec<_>>()));
        page.add_reproduce_section(
            command,
            "The figures are those of the runs' own folders; each has a page with its courses.",
        );
        page.set_provenance(&provenance.build().to_string());
        page.finish("")
    }

    /// Returns the folders with their setups and metrics, and the parts of the setups that differ,
    /// for programs.
    pub fn json(&self) -> Value {
        let differs: Vec<&str> = self
            .parts()
            .into_iter()
            .filter(|(_, values)| values.windows(2).any(|two| two[0] != two[1]))
            .map(|(name, _)| name)
            .collect();
        let runs: Vec<Value> = self
            .runs
            .iter()
            .map(|run| json!({ "folder": run.name, "result": run.summary }))
            .collect();
        json!({ "schema": SCHEMA_VERSION, "differs": differs, "runs": runs })
    }
}

/// Returns the last part of a folder's path.
fn short(name: &str) -> &str {
    let last = Path::new(name).file_name().and_then(|last| last.to_str());
    last.unwrap_or(name)
}
