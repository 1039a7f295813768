//! Tables of a sweep: one row per run (`runs`), the cost of each run (`timing`), and one row per
//! flow (`flows`).

use std::collections::BTreeMap;

use ccplane_report::csv_cell;

use super::columns::{Cell, is_count};
use super::plan::{PlannedRun, PlannedSweep};
use super::row::RunRow;
use super::store::{RunStore, StoreError, StoredRow};

/// Table with typed columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunTable {
    /// Columns in their order.
    pub columns: Vec<TableColumn>,
}

/// Column of a [`RunTable`].
#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn {
    /// Name, with the unit.
    pub name: String,
    /// Values, one per row.
    pub values: ColumnValues,
}

/// Values of a column; `None` is a missing value.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    /// Words.
    Text(Vec<Option<String>>),
    /// Whole numbers.
    Integer(Vec<Option<u64>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
}

impl ColumnValues {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        match self {
            ColumnValues::Text(values) => values.len(),
            ColumnValues::Integer(values) => values.len(),
            ColumnValues::Number(values) => values.len(),
        }
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a value as a number; `None` for a word or a missing value.
    pub fn number(&self, row: usize) -> Option<f64> {
        match self {
            ColumnValues::Text(_) => None,
            ColumnValues::Integer(values) => {
                values.get(row).copied().flatten().map(|value| value as f64)
            }
            ColumnValues::Number(values) => values.get(row).copied().flatten(),
        }
    }

    /// Returns a value as text; empty for a missing one.
    pub fn text(&self, row: usize) -> String {
        let word = match self {
            ColumnValues::Text(values) => values.get(row).cloned().flatten(),
            ColumnValues::Integer(values) => {
                values.get(row).copied().flatten().map(|v| v.to_string())
            }
            // The shortest text that reads as the same number.
            ColumnValues::Number(values) => {
                values.get(row).copied().flatten().map(|v| v.to_string())
            }
        };
        word.unwrap_or_default()
    }
}

/// Run of a fixed list, such as those of an evaluation.
pub(crate) struct ListedRun {
    /// Value of each axis.
    pub point: Vec<String>,
    pub algorithm: String,
    pub row: RunRow,
}

impl RunTable {
    /// Returns a fixed list of runs with the columns of a sweep's table. All have this seed. Runs of
    /// the same identity have the row of the first.
    pub(crate) fn of_list(
        axes: &[&str],
        datapath: &str,
        seed: u64,
        runs: Vec<ListedRun>,
    ) -> Result<RunTable, StoreError> {
        let mut store = RunStore::in_memory();
        for run in &runs {
            // Two untrusted processes may return different results of one run.
            if !store.contains(&run.row.id) {
                store.add(run.row.clone())?;
            }
        }
        let listed = runs.into_iter();
        let listed = listed.map(|run| (run.point, run.algorithm, run.row.id));
        let planned = PlannedSweep::of_list(axes, datapath, seed, listed);
        Ok(RunTable::of_runs(&planned, &store))
    }

    /// Returns the finished runs of a sweep in the order of its grid: identity, axes, algorithm,
    /// seed, metrics, digest, complaints and error. Only the seed and the scenario determine it.
    pub fn of_runs(planned: &PlannedSweep, store: &RunStore) -> RunTable {
        let rows = finished(planned, store);
        let mut table = RunTable::identities(planned, &rows);
        // Columns in the order of the first run that has them.
        let mut columns: Vec<(u32, Vec<Option<f64>>)> = Vec::new();
        let mut index_of: BTreeMap<u32, usize> = BTreeMap::new();
        for (row, (_, stored)) in rows.iter().enumerate() {
            for (number, value) in &stored.metrics {
                let index = *index_of.entry(*number).or_insert_with(|| {
                    columns.push((*number, vec![None; rows.len()]));
                    columns.len() - 1
                });
                let cell = columns.get_mut(index).and_then(|(_, c)| c.get_mut(row));
                if let Some(cell) = cell {
                    *cell = Some(*value);
                }
            }
        }
        for (number, values) in columns {
            let name = store.name(number);
            let values = match is_count(name) {
                true => {
                    ColumnValues::Integer(values.into_iter().map(|v| v.map(|v| v as u64)).collect())
                }
                false => ColumnValues::Number(values),
            };
            table.push(name, values);
        }
        let text = |value: &dyn Fn(&StoredRow) -> Option<String>| {
            ColumnValues::Text(rows.iter().map(|(_, row)| value(row)).collect())
        };
        let not_empty = |text: String| (!text.is_empty()).then_some(text);
        table.push("digest", text(&|row| not_empty(row.digest.clone())));
        table.push(
            "complaints",
            text(&|row| not_empty(row.complaints.join("; "))),
        );
        // Only runs on real packets are disturbed.
        if rows.iter().any(|(_, row)| !row.disturbances.is_empty()) {
            table.push(
                "disturbances",
                text(&|row| not_empty(row.disturbances.join("; "))),
            );
        }
        table.push("error", text(&|row| row.error.clone()));
        table
    }

    /// Returns the cost of every finished run: wall and CPU time, machine and version.
    pub fn of_timing(planned: &PlannedSweep, store: &RunStore) -> RunTable {
        let rows = finished(planned, store);
        let mut table = RunTable::default();
        let ids = rows.iter().map(|(run, _)| Some(run.id.clone()));
        table.push("run", ColumnValues::Text(ids.collect()));
        let number = |value: fn(&StoredRow) -> Option<f64>| {
            ColumnValues::Number(rows.iter().map(|(_, row)| value(row)).collect())
        };
        table.push("wall_s", number(|row| row.timing.wall_s));
        table.push("cpu_s", number(|row| row.timing.cpu_s));
        let text = |value: fn(&StoredRow) -> String| {
            ColumnValues::Text(rows.iter().map(|(_, row)| Some(value(row))).collect())
        };
        table.push("machine", text(|row| row.timing.machine.clone()));
        table.push("version", text(|row| row.timing.version.clone()));
        table
    }

    /// Returns the flows of every finished run, if the runs stored them.
    pub fn of_flows(planned: &PlannedSweep, store: &RunStore) -> RunTable {
        let rows = finished(planned, store);
        let flows: Vec<_> = rows
            .iter()
            .flat_map(|(run, row)| row.flows.iter().map(|flow| (&run.id, flow)))
            .collect();
        let mut table = RunTable::default();
        let ids = flows.iter().map(|(id, _)| Some((*id).clone()));
        table.push("run", ColumnValues::Text(ids.collect()));
        let workloads = flows.iter().map(|(_, flow)| flow.workload.clone());
        table.push("workload", ColumnValues::Text(workloads.collect()));
        let bytes = flows.iter().map(|(_, flow)| Some(flow.bytes));
        table.push("bytes", ColumnValues::Integer(bytes.collect()));
        let number = |value: fn(&super::row::FlowRow) -> Option<f64>| {
            ColumnValues::Number(flows.iter().map(|(_, flow)| value(flow)).collect())
        };
        table.push("start_s", number(|flow| flow.start_s));
        table.push("completion_ms", number(|flow| flow.completion_ms));
        table.push("slowdown", number(|flow| flow.slowdown));
        table.push("goodput_mbit", number(|flow| flow.goodput_mbit));
        let segments = flows.iter().map(|(_, flow)| flow.retransmitted_segments);
        table.push(
            "retransmitted_segments",
            ColumnValues::Integer(segments.collect()),
        );
        table
    }

    /// Starts a table with the columns that identify a run.
    fn identities(planned: &PlannedSweep, rows: &[(PlannedRun, &StoredRow)]) -> RunTable {
        let mut table = RunTable::default();
        let ids = rows.iter().map(|(run, _)| Some(run.id.clone()));
        table.push("run", ColumnValues::Text(ids.collect()));
        for (axis, name) in planned.axes.iter().enumerate() {
            let cells = rows.iter().map(|(run, _)| {
                let point = planned.points.get(run.point);
                point
                    .and_then(|cells| cells.get(axis))
                    .unwrap_or(&Cell::Missing)
            });
            let cells: Vec<&Cell> = cells.collect();
            let has_text = cells.iter().any(|cell| matches!(cell, Cell::Text(_)));
            let values = match has_text {
                true => ColumnValues::Text(
                    cells
                        .iter()
                        .map(|cell| (**cell != Cell::Missing).then(|| cell.to_string()))
                        .collect(),
                ),
                false => ColumnValues::Number(
                    cells
                        .iter()
                        .map(|cell| match cell {
                            Cell::Number(number) => Some(*number),
                            _ => None,
                        })
                        .collect(),
                ),
            };
            table.push(name, values);
        }
        let algorithms = rows
            .iter()
            .map(|(run, _)| planned.algorithms.get(run.point).cloned().flatten());
        table.push("algorithm", ColumnValues::Text(algorithms.collect()));
        let seeds = rows.iter().map(|(run, _)| Some(run.seed));
        table.push("seed", ColumnValues::Integer(seeds.collect()));
        table
    }

    pub(super) fn push(&mut self, name: &str, values: ColumnValues) {
        self.columns.push(TableColumn {
            name: name.to_owned(),
            values,
        });
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// Returns a column by name.
    pub fn column(&self, name: &str) -> Option<&ColumnValues> {
        let column = self.columns.iter().find(|column| column.name == name)?;
        Some(&column.values)
    }

    /// Prints the table as CSV with a line of names.
    pub fn to_csv(&self) -> String {
        let line = |cells: Vec<String>| cells.join(",") + "\n";
        let names = self
            .columns
            .iter()
            .map(|column| csv_cell(&column.name).to_string());
        let mut csv = line(names.collect());
        for row in 0..self.rows() {
            let cells = self.columns.iter();
            csv += &line(
                cells
                    .map(|column| csv_cell(&column.values.text(row)).to_string())
                    .collect(),
            );
        }
        csv
    }
}

/// Returns the finished runs of a plan in the order of the grid.
fn finished<'s>(planned: &PlannedSweep, store: &'s RunStore) -> Vec<(PlannedRun, &'s StoredRow)> {
    let runs = planned.runs().into_iter();
    runs.filter_map(|run| {
        let row = store.row(&run.id)?;
        Some((run, row))
    })
    .collect()
}
