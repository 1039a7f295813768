//! Measurements that no scenario can express: code that makes the tables of an experiment's script.

use std::collections::BTreeMap;
use std::path::Path;

use ccplane::program::{Failure, failure, write_parquet, write_table};
use ccplane_algorithms::Registry;
use ccplane_lab::sweep::{ColumnValues, RunTable, TableColumn};
use ccplane_lab::{Error, Progress};
use serde::Serialize;
use serde_json::Value;

use crate::{Datapath, Options};

/// Code that makes the tables of a script, on one datapath or several.
#[derive(Debug)]
pub(crate) struct Program {
    /// The script's file in `papers`, without its suffix.
    pub script: &'static str,
    /// Datapaths on which it measures.
    pub on: &'static [Datapath],
    /// Number of runs of each point on kernel TCP in the full version; `None` if `Options::repeats`
    /// does not apply.
    pub repeats: Option<usize>,
    /// Makes the missing runs on a datapath, and returns the tables of all.
    pub measure: fn(&Options, Datapath, &Registry, &dyn Progress) -> Result<Tables, Error>,
}

/// Tables of a program, by name.
#[derive(Debug, Default)]
pub(crate) struct Tables(Vec<(&'static str, RunTable)>);

/// Name of the table with one row per run. All others are time series or distributions, whose rows
/// name their run in a column `run`.
const RUNS: &str = "runs";

/// Returns the cell of a run in the column `disturbances`.
pub(crate) fn disturbances_cell(disturbances: &[String]) -> Option<String> {
    (!disturbances.is_empty()).then(|| disturbances.join("; "))
}

impl Tables {
    /// Adds a table. Each row is an object of numbers, words, truth values (0 and 1 in the table)
    /// and missing values.
    pub fn add<R: Serialize>(&mut self, name: &'static str, rows: &[R]) -> Result<(), Error> {
        let table = table(rows).map_err(|why| Error::Part {
            path: name.into(),
            source: std::io::Error::other(why),
        })?;
        self.0.push((name, table));
        Ok(())
    }

    /// Writes the tables to the folder of a datapath, where a script finds them like those of a
    /// sweep.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        for (name, table) in &self.0 {
            let (path, written) = match *name {
                RUNS => {
                    let path = folder.join(name);
                    let written = write_table(&path, table);
                    (path, written)
                }
                // A series may have millions of rows.
                _ => {
                    let path = folder.join(name).join(name);
                    let written = write_parquet(&path, table);
                    (path, written)
                }
            };
            written.map_err(|source| failure(Error::Part { path, source }))?;
        }
        Ok(())
    }
}

/// Returns rows as columns, in the order in which the rows have them.
fn table<R: Serialize>(rows: &[R]) -> Result<RunTable, String> {
    let mut columns: Vec<(String, Vec<Value>)> = Vec::new();
    let mut index_of: BTreeMap<String, usize> = BTreeMap::new();
    for (row, fields) in rows.iter().enumerate() {
        let Value::Object(fields) = serde_json::to_value(fields).map_err(|why| why.to_string())?
        else {
            return Err(format!("row {row} is not an object"));
        };
        for (name, value) in fields {
            let index = *index_of.entry(name).or_insert_with_key(|name| {
                columns.push((name.clone(), vec![Value::Null; rows.len()]));
                columns.len() - 1
            });
            let cell = columns.get_mut(index).and_then(|(_, c)| c.get_mut(row));
            if let Some(cell) = cell {
                *cell = value;
            }
        }
    }
    let columns = columns.into_iter().map(|(name, values)| {
        let values = column(values).ok_or_else(|| {
            format!("column `{name}` has lists, or both words and numbers; make columns of them")
        })?;
        Ok(TableColumn { name, values })
    });
    Ok(RunTable {
        columns: columns.collect::<Result<_, String>>()?,
    })
}

/// Returns the values of a column in the narrowest type that holds all of them; `None` if there is
/// none.
fn column(values: Vec<Value>) -> Option<ColumnValues> {
    fn all<T>(values: &[Value], read: impl Fn(&Value) -> Option<T>) -> Option<Vec<Option<T>>> {
        let read = |value: &Value| match value.is_null() {
            true => Some(None),
            false => read(value).map(Some),
        };
        values.iter().map(read).collect()
    }
    let whole = |value: &Value| value.as_u64().or(value.as_bool().map(u64::from));
    all(&values, whole)
        .map(ColumnValues::Integer)
        .or_else(|| all(&values, Value::as_f64).map(ColumnValues::Number))
        .or_else(|| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            all(&values, text).map(ColumnValues::Text)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_become_typed_columns() {
        let rows = [
            json!({ "run": "a", "flows": 4, "met": true, "rate_gbit": 1 }),
            json!({ "run": "b", "flows": null, "rate_gbit": 2.5 }),
        ];
        let table = table(&rows).unwrap();
        let column = |name| table.column(name).cloned().unwrap();
        assert_eq!(
            column("run"),
            ColumnValues::Text(vec![Some("a".into()), Some("b".into())])
        );
        assert_eq!(column("flows"), ColumnValues::Integer(vec![Some(4), None]));
        assert_eq!(column("met"), ColumnValues::Integer(vec![Some(1), None]));
        assert_eq!(
            column("rate_gbit"),
            ColumnValues::Number(vec![Some(1.0), Some(2.5)])
        );
    }

    #[test]
    fn rows_that_are_no_table_are_refused() {
        for rows in [
            vec![json!(1)],
            vec![json!({ "a": [1] })],
            vec![json!({ "a": 1 }), json!({ "a": "x" })],
        ] {
            assert!(table(&rows).is_err(), "{rows:?}");
        }
    }
}
