//! Time series of the runs of a sweep: a folder for each kind, with one file per run.

use std::io;
use std::path::Path;

use ccplane_lab::Error;
use ccplane_lab::result::RunResult;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::sweep::{KeepSeries, RunSeries, RunTable};

use super::KeptData;
#[cfg(not(feature = "host"))]
use super::folder::write_whole;

/// Folder of the files of `ccplane run`.
const SERIES_FOLDER: &str = "series";

/// Returns the function that writes the time series of a run to `out`; `None` if nothing is kept.
pub(super) fn keep(out: &Path, kept: &[KeptData]) -> Option<Box<KeepSeries>> {
    let of_kind = |kept: &KeptData| match kept {
        KeptData::Samples => vec![RunSeries::Samples],
        KeptData::Bundles => vec![RunSeries::Bundles, RunSeries::BundleChanges],
        KeptData::Delays => vec![RunSeries::Delays],
        KeptData::Bins => vec![RunSeries::Bins],
        KeptData::Flows | KeptData::Series => Vec::new(),
    };
    let series: Vec<RunSeries> = kept.iter().flat_map(of_kind).collect();
    let all_files = kept.contains(&KeptData::Series);
    if series.is_empty() && !all_files {
        return None;
    }
    let out = out.to_owned();
    let keep = move |run: &str, scenario: &Scenario, result: &RunResult| {
        if all_files {
            let folder = out.join(SERIES_FOLDER).join(run);
            ccplane_lab::files::write_metrics(result, &folder).map_err(Error::Results)?;
        }
        for contender in &result.contenders {
            let tables = series
                .iter()
                .filter_map(|kind| Some((kind, kind.table(run, scenario, contender)?)));
            for (kind, table) in tables {
                let path = out.join(kind.name()).join(run);
                write(&path, &table).map_err(|source| Error::Part { path, source })?;
            }
        }
        Ok(())
    };
    Some(Box::new(keep))
}

#[cfg(feature = "host")]
fn write(path: &Path, table: &RunTable) -> io::Result<()> {
    super::folder::write_parquet(path, table)
}

#[cfg(not(feature = "host"))]
fn write(path: &Path, table: &RunTable) -> io::Result<()> {
    write_whole(&path.with_extension("csv"), table.to_csv().as_bytes())
}
