//! Plan of a sweep: its runs, checked, each with its identity.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ccplane_algorithms::Registry;
use serde::{Deserialize, Serialize};

use super::columns::Cell;
use super::located;
use crate::error::Error;
use crate::resume::program_file;
use crate::run::Backend;
use crate::scenario::{AxisQuantity, Contender, GOLDEN_DIGESTS, Scenario, Sweep, SweepPoint};

/// Version of the identity of runs, and of the names in `sweep.json`.
pub const SWEEP_SCHEMA: u32 = 1;

/// Bytes of a run's identity: no two of a million runs have the same.
const RUN_ID_BYTES: usize = 16;

/// Plan of a sweep. Every scenario was checked.
pub struct SweepPlan {
    sweep: Sweep,
    points: Vec<SweepPoint>,
    /// Files that the runs need, besides the sweep's own.
    pub files: BTreeSet<PathBuf>,
    /// Axes, points and runs as plain data.
    pub planned: PlannedSweep,
}

/// Axes, points and runs of a sweep as plain data: `sweep.json` of the result folder, from which
/// the table is made without the sweep's files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedSweep {
    /// Version of these names.
    pub schema: u32,
    /// Version of the program's behaviour; see [`behaviour_version`].
    pub behaviour: String,
    /// Title of the page.
    pub title: String,
    /// Name of the backend.
    pub datapath: String,
    /// Columns of the axes, in the order of the file.
    pub axes: Vec<String>,
    /// Points in the order of the grid: a value per axis, in the unit of its column.
    pub points: Vec<Vec<Cell>>,
    /// Algorithm of each point with all parameters; `None` if every workload names its own.
    pub algorithms: Vec<Option<String>>,
    /// Seeds of every point.
    pub seeds: Vec<u64>,
    /// Identities of the runs: the points in their order, each with all seeds.
    pub ids: Vec<String>,
}

/// Run of a sweep.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// Identity.
    pub id: String,
    /// Index of the point.
    pub point: usize,
    /// Index of the seed.
    pub seed_index: usize,
    /// Seed.
    pub seed: u64,
}

impl PlannedSweep {
    /// Creates the plan of a fixed list of runs, each with its values of `axes`, its algorithm and
    /// its identity. All have this seed.
    pub(super) fn of_list(
        axes: &[&str],
        datapath: &str,
        seed: u64,
        runs: impl Iterator<Item = (Vec<String>, String, String)>,
    ) -> PlannedSweep {
        let mut planned = PlannedSweep {
            schema: SWEEP_SCHEMA,
            behaviour: behaviour_version().to_owned(),
            title: String::new(),
            datapath: datapath.to_owned(),
            axes: axes.iter().map(|axis| (*axis).to_owned()).collect(),
            points: Vec::new(),
            algorithms: Vec::new(),
            seeds: vec![seed],
            ids: Vec::new(),
        };
        for (point, algorithm, id) in runs {
            planned
                .points
                .push(point.into_iter().map(Cell::Text).collect());
            planned.algorithms.push(Some(algorithm));
            planned.ids.push(id);
        }
        planned
    }

    /// Returns all runs in the order of the table.
    pub fn runs(&self) -> Vec<PlannedRun> {
        (0..self.ids.len()).filter_map(|n| self.run(n)).collect()
    }

    /// Returns a run by its index in the table.
    pub fn run(&self, index: usize) -> Option<PlannedRun> {
        let seeds = self.seeds.len().max(1);
        Some(PlannedRun {
            id: self.ids.get(index)?.clone(),
            point: index / seeds,
            seed_index: index % seeds,
            seed: self.seeds.get(index % seeds).copied()?,
        })
    }
}

impl SweepPlan {
    /// Checks every scenario of the sweep for the backend, and computes the identity of every run.
    pub fn new(
        sweep: Sweep,
        backend: &dyn Backend,
        registry: &Registry,
    ) -> Result<SweepPlan, Error> {
        let points = sweep.points().map_err(Error::Scenario)?;
        let seeds = match backend.is_real() {
            true => sweep.real_seeds(),
            false => sweep.seeds,
        };
        let seeds: Vec<u64> = seeds.iter().collect();
        let (mut ids, mut algorithms) = (Vec::new(), Vec::new());
        let mut files: BTreeSet<PathBuf> = BTreeSet::new();
        files.extend(sweep.scenario_file().map(Path::to_owned));
        for point in &points {
            let scenario = sweep.scenario(point).map_err(Error::Scenario)?;
            if scenario.contenders.len() > 1 {
                return Err(crate::sim::broken(
                    "a point has several contenders".to_owned(),
                ));
            }
            let prepared = backend.prepare(&scenario, registry);
            drop(prepared.map_err(|error| located(&sweep, point, error))?);
            let base = point_hash(&scenario, backend.name());
            ids.extend(seeds.iter().map(|seed| run_id(&base, *seed)));
            algorithms.push(sweep.contender(point).map_err(Error::Scenario)?);
            files.extend(scenario.referenced_files.iter().cloned());
            files.extend(
                scenario
                    .controls()
                    .filter_map(Contender::file)
                    .map(Path::to_owned),
            );
        }
        let values = |point: &SweepPoint| -> Vec<Cell> {
            let axes = sweep.axes.iter().enumerate();
            let cell = |(index, axis): (usize, &crate::scenario::SweepAxis)| {
                let Some(value) = point.value(index, &sweep) else {
                    return Cell::Missing;
                };
                match axis.quantity {
                    AxisQuantity::Text => Cell::Text(value.text.clone()),
                    quantity => quantity
                        .number(&value.text)
                        .map_or(Cell::Missing, Cell::Number),
                }
            };
            axes.map(cell).collect()
        };
        let planned = PlannedSweep {
            schema: SWEEP_SCHEMA,
            behaviour: behaviour_version().to_owned(),
            // Without the folder, which differs between the machines of a sweep.
            title: sweep.title.clone().unwrap_or_else(|| file_stem(&sweep)),
            datapath: backend.name().to_owned(),
            axes: sweep.axes.iter().map(|axis| axis.column_name()).collect(),
            points: points.iter().map(values).collect(),
            algorithms,
            seeds,
            ids,
        };
        Ok(SweepPlan {
            sweep,
            points,
            planned,
            files,
        })
    }

    /// Returns the scenario of a point.
    pub fn scenario(&self, point: usize) -> Result<Scenario, Error> {
        let point = self
            .points
            .get(point)
            .ok_or_else(|| crate::sim::broken(format!("the sweep has no point {point}")))?;
        self.sweep.scenario(point).map_err(Error::Scenario)
    }

    /// Returns the values of a run's point in words, for progress.
    pub fn label(&self, index: usize) -> String {
        let seeds = self.planned.seeds.len().max(1);
        let cells = self.planned.points.get(index / seeds);
        let words = cells.into_iter().flatten().map(Cell::to_string);
        let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }

    /// Returns the sweep.
    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }
}

/// Returns the name of the sweep's file without its folder and extension.
fn file_stem(sweep: &Sweep) -> String {
    let stem = Path::new(sweep.file()).file_stem();
    stem.map_or(String::new(), |stem| stem.to_string_lossy().into_owned())
}

/// Version of what the program computes: a hash of the golden digests, which change with every
/// change of the simulator, of a transport or of an algorithm, and not with every build.
pub fn behaviour_version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let digests = GOLDEN_DIGESTS.lines().filter(|line| !line.starts_with('#'));
        let mut hasher = blake3::Hasher::new();
        hasher.update(&SWEEP_SCHEMA.to_le_bytes());
        for line in digests {
            hasher.update(line.as_bytes());
        }
        hasher.finalize().to_hex().chars().take(12).collect()
    })
}

/// Returns the hash of everything that the runs of a point depend on, except their seed.
fn point_hash(scenario: &Scenario, datapath: &str) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_derive_key("ccplane run identity");
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add(behaviour_version().as_bytes());
    add(datapath.as_bytes());
    // Includes the contender, which is part of the composed text.
    add(&scenario.content_hash);
    for control in scenario.controls() {
        add(&program_file(control).unwrap_or_default());
    }
    hasher
}

/// Returns the identity of a run that is no part of a sweep.
pub(crate) fn identity(scenario: &Scenario, datapath: &str, seed: u64) -> String {
    run_id(&point_hash(scenario, datapath), seed)
}

fn run_id(point: &blake3::Hasher, seed: u64) -> String {
    let mut hasher = point.clone();
    hasher.update(&seed.to_le_bytes());
    hasher
        .finalize()
        .to_hex()
        .chars()
        .take(2 * RUN_ID_BYTES)
        .collect()
}
