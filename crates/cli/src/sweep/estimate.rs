//! Estimate for `sweep --dry-run`: some runs are made, spread over the grid, and their cost is
//! extrapolated. Nothing is written.

use std::time::{Duration, Instant};

use ccplane_lab::sweep::{RunStore, SweepOptions, SweepPlan};
use ccplane_lab::{Backend, NoProgress};
use ccplane_report::html::milliseconds;
use serde_json::json;

use crate::Registry;
use crate::exit::Failure;
use crate::run::failure;

/// Maximum number of sample runs. More make the estimate hardly better.
const SAMPLES_MAX: usize = 24;
/// Time after which no further sample run starts: a dry run answers at once.
const SAMPLE_TIME: Duration = Duration::from_secs(3);

/// Estimated cost of the runs that are missing.
pub struct Estimate {
    points: usize,
    seeds: usize,
    finished: usize,
    missing: usize,
    threads: usize,
    samples: usize,
    /// Mean wall time of a sample run, s.
    run_s: f64,
    /// Mean size of a run's row, bytes.
    row_bytes: f64,
}

/// Makes sample runs of a plan.
#[expect(clippy::disallowed_methods, reason = "the estimate is of real time")]
pub fn estimate(
    plan: &SweepPlan,
    backend: &dyn Backend,
    registry: &Registry,
    options: &SweepOptions,
    store: &RunStore,
) -> Result<Estimate, Failure> {
    let runs = plan.planned.runs();
    let missing: Vec<usize> = (0..runs.len())
        .filter(|n| runs.get(*n).is_some_and(|run| !store.contains(&run.id)))
        .collect();
    let options = SweepOptions {
        keep: None,
        machine: options.machine.clone(),
        ..*options
    };
    let stride = missing.len().div_ceil(SAMPLES_MAX).max(1);
    let (begun, mut samples, mut bytes) = (Instant::now(), 0, 0);
    for index in missing.iter().step_by(stride) {
        if begun.elapsed() > SAMPLE_TIME {
            break;
        }
        let row = plan
            .run_one(*index, backend, registry, &options, &NoProgress)
            .map_err(failure)?;
        bytes += serde_json::to_string(&row).unwrap_or_default().len();
        samples += 1;
    }
    let count = samples.max(1) as f64;
    Ok(Estimate {
        points: plan.planned.points.len(),
        seeds: plan.planned.seeds.len(),
        finished: runs.len() - missing.len(),
        missing: missing.len(),
        threads: options.threads,
        samples,
        run_s: begun.elapsed().as_secs_f64() / count,
        row_bytes: bytes as f64 / count,
    })
}

impl Estimate {
    /// Prints the estimate.
    pub fn print(&self, json: bool) {
        let runs = self.missing as f64;
        let time_s = self.run_s * runs / self.threads.max(1) as f64;
        // Rows are stored in three forms: finished.jsonl, runs.csv and runs.parquet.
        let bytes = 2.0 * self.row_bytes * runs;
        if json {
            let object = json!({
                "points": self.points, "seeds": self.seeds,
                "runs": self.missing + self.finished, "finished": self.finished,
                "threads": self.threads, "samples": self.samples,
                "time_s": time_s, "bytes": bytes.round(),
            });
            println!("{object}");
            return;
        }
        println!(
            "{} runs: {} points × {} seeds, {} of them finished",
            self.missing + self.finished,
            self.points,
            self.seeds,
            self.finished
        );
        if self.missing == 0 {
            return;
        }
        println!(
            "about {} on {} threads and {:.1} MB, estimated from {} runs of {} on average",
            long_time(time_s),
            self.threads,
            bytes / 1e6,
            self.samples,
            milliseconds(self.run_s * 1e3)
        );
    }
}

/// Formats a time of up to days.
fn long_time(seconds: f64) -> String {
    match seconds {
        s if s >= 2.0 * 86_400.0 => format!("{:.1} days", s / 86_400.0),
        s if s >= 2.0 * 3_600.0 => format!("{:.1} hours", s / 3_600.0),
        s if s >= 120.0 => format!("{:.0} minutes", s / 60.0),
        s if s >= 1.0 => format!("{s:.0} s"),
        s => milliseconds(s * 1e3),
    }
}
