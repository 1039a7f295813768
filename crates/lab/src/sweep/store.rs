//! Finished runs of a sweep in a file, `finished.jsonl`: one line per run, appended as soon as the
//! run ends. A line that a crash left incomplete is dropped, and its run is repeated.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::row::{FlowRow, RunRow, RunTiming};

/// File of the finished runs in a result folder.
pub const FINISHED_FILE: &str = "finished.jsonl";

/// Error of the file of finished runs.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be read or written.
    #[error("{}: {source}; free some space, or choose another folder with --out", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another process appends to the file.
    #[error(
        "{} is in use by another sweep; wait until it ends, or choose another folder with --out",
        .path.display()
    )]
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
    /// A complete line is not a row.
    #[error(
        "{}:{line}: this line is not a finished run: {reason}; remove the line, and its run is \
         repeated",
        .path.display()
    )]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
        /// Reason.
        reason: String,
    },
    /// Two folders have different results of the same run.
    #[error(
        "run {id} has two results ({first} and {second}); the folders were written by versions of \
         ccplane with different behaviour, or on real packets"
    )]
    Conflict {
        /// Identity of the run.
        id: String,
        /// Digest of the first result.
        first: String,
        /// Digest of the second result.
        second: String,
    },
}

/// Row in memory: columns are numbers, because a sweep has many rows and few columns.
#[derive(Clone, Debug)]
pub(super) struct StoredRow {
    pub(super) metrics: Vec<(u32, f64)>,
    pub(super) digest: String,
    pub(super) error: Option<String>,
    pub(super) complaints: Vec<String>,
    pub(super) disturbances: Vec<String>,
    pub(super) flows: Vec<FlowRow>,
    pub(super) timing: RunTiming,
}

/// Finished runs of a sweep.
#[derive(Debug, Default)]
pub struct RunStore {
    rows: BTreeMap<String, StoredRow>,
    /// Names of metrics, in the order of their first use.
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
    file: Option<(PathBuf, File)>,
}

impl RunStore {
    /// Creates a store in memory.
    pub fn in_memory() -> RunStore {
        RunStore::default()
    }

    /// Opens the store of a result folder, which is created if needed, and locks it.
    pub fn open(folder: &Path) -> Result<RunStore, StoreError> {
        let path = folder.join(FINISHED_FILE);
        let fail = |source| StoreError::File {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(folder).map_err(fail)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::InUse { path }),
            // The file system has no locks.
            Err(fs::TryLockError::Error(_)) => {}
        }
        let mut store = RunStore::default();
        let complete = store.read_lines(&path, &file)?;
        // Removes the line that a crash left incomplete.
        file.set_len(complete).map_err(fail)?;
        file.seek(SeekFrom::Start(complete)).map_err(fail)?;
        store.file = Some((path, file));
        Ok(store)
    }

    /// Adds the finished runs of another folder.
    pub fn read(&mut self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(FINISHED_FILE);
        let file = File::open(&path).map_err(|source| StoreError::File {
            path: path.clone(),
            source,
        })?;
        self.read_lines(&path, &file).map(drop)
    }

    /// Reads all complete lines. Returns their length in bytes.
    fn read_lines(&mut self, path: &Path, file: &File) -> Result<u64, StoreError> {
        let mut reader = BufReader::new(file);
        let (mut text, mut complete, mut line) = (Vec::new(), 0, 0);
        loop {
            text.clear();
            let length =
                reader
                    .read_until(b'\n', &mut text)
                    .map_err(|source| StoreError::File {
                        path: path.to_owned(),
                        source,
                    })?;
            if text.last() != Some(&b'\n') {
                return Ok(complete);
            }
            line += 1;
            let row = serde_json::from_slice(&text).map_err(|error| StoreError::Invalid {
                path: path.to_owned(),
                line,
                reason: error.to_string(),
            })?;
            self.insert(row)?;
            complete += length as u64;
        }
    }

    /// Stores a row. It is part of the file when the function returns.
    pub fn add(&mut self, row: RunRow) -> Result<(), StoreError> {
        if let Some((path, file)) = &mut self.file {
            let fail = |source| StoreError::File {
                path: path.clone(),
                source,
            };
            let mut line = serde_json::to_vec(&row).map_err(|error| fail(error.into()))?;
            line.push(b'\n');
            // One system call, so a killed process leaves at most one incomplete line.
            file.write_all(&line).map_err(fail)?;
        }
        self.insert(row)
    }

    /// Adds all rows of another store.
    pub fn append(&mut self, other: RunStore) -> Result<(), StoreError> {
        let RunStore { rows, names, .. } = other;
        for (id, row) in rows {
            if self
                .rows
                .get(&id)
                .is_some_and(|known| known.error.is_none())
            {
                continue;
            }
            let name = |number: u32| names.get(number as usize).cloned().unwrap_or_default();
            let metrics = row.metrics.into_iter();
            self.add(RunRow {
                id,
                metrics: metrics
                    .map(|(number, value)| (name(number), value))
                    .collect(),
                digest: row.digest,
                error: row.error,
                complaints: row.complaints,
                disturbances: row.disturbances,
                flows: row.flows,
                timing: row.timing,
            })?;
        }
        Ok(())
    }

    fn insert(&mut self, row: RunRow) -> Result<(), StoreError> {
        if let Some(known) = self.rows.get(&row.id) {
            let is_conflict =
                !row.digest.is_empty() && !known.digest.is_empty() && row.digest != known.digest;
            if is_conflict {
                return Err(StoreError::Conflict {
                    id: row.id,
                    first: known.digest.clone(),
                    second: row.digest,
                });
            }
            // A result replaces a failure, and a run on real packets one that was disturbed more.
            let is_better = known.error.is_some()
                || (row.error.is_none() && row.disturbances.len() < known.disturbances.len());
            if !is_better {
                return Ok(());
            }
        }
        let metrics = row.metrics.into_iter();
        let metrics = metrics
            .map(|(name, value)| (self.number(name), value))
            .collect();
        let stored = StoredRow {
            metrics,
            digest: row.digest,
            error: row.error,
            complaints: row.complaints,
            disturbances: row.disturbances,
            flows: row.flows,
            timing: row.timing,
        };
        self.rows.insert(row.id, stored);
        Ok(())
    }

    fn number(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// Returns true if the run is finished. A run that failed counts: it fails again.
    pub fn contains(&self, id: &str) -> bool {
        self.rows.contains_key(id)
    }

    /// Returns true if the machine disturbed the run, which was on real packets.
    pub fn is_disturbed(&self, id: &str) -> bool {
        self.rows
            .get(id)
            .is_some_and(|row| !row.disturbances.is_empty())
    }

    /// Returns the number of finished runs, including those of other grids in the same folder.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if no run is finished.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the row of a run.
    pub(super) fn row(&self, id: &str) -> Option<&StoredRow> {
        self.rows.get(id)
    }

    /// Returns the name of a metric.
    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }
}
