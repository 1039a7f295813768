//! Time series of a run as tables with a column `run`, so that the files of all runs are one
//! dataset.

use crate::result::{ContenderResult, Sample, TcpInfo, WorkloadSeries};
use crate::scenario::Scenario;
use ccplane_units::Duration;

use super::table::{ColumnValues, RunTable};

/// Time series of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSeries {
    /// Samples of every flow without end, and the bytes received by every workload.
    Samples,
    /// Samples of every bundle.
    Bundles,
    /// Changes of the mode of every bundle.
    BundleChanges,
    /// Distribution of the delay in the bottleneck's queue.
    Delays,
    /// Throughput and mean delay of the bottleneck in every bin.
    Bins,
}

impl RunSeries {
    /// All series.
    pub const ALL: [RunSeries; 5] = [
        RunSeries::Samples,
        RunSeries::Bundles,
        RunSeries::BundleChanges,
        RunSeries::Delays,
        RunSeries::Bins,
    ];

    /// Returns the name of its folder.
    pub fn name(self) -> &'static str {
        match self {
            RunSeries::Samples => "samples",
            RunSeries::Bundles => "bundles",
            RunSeries::BundleChanges => "bundle_changes",
            RunSeries::Delays => "delays",
            RunSeries::Bins => "bins",
        }
    }

    /// Returns the table of a run, `None` if the run has no such series.
    pub fn table(
        self,
        run: &str,
        scenario: &Scenario,
        result: &ContenderResult,
    ) -> Option<RunTable> {
        let mut table = match self {
            RunSeries::Samples => samples(scenario, result),
            RunSeries::Bundles => bundles(result),
            RunSeries::BundleChanges => bundle_changes(result),
            RunSeries::Delays => delays(result),
            RunSeries::Bins => bins(result),
        };
        let rows = table.rows();
        let runs = vec![Some(run.to_owned()); rows];
        table.push("run", ColumnValues::Text(runs));
        table.columns.rotate_right(1);
        (rows > 0).then_some(table)
    }
}

fn numbers(values: impl Iterator<Item = f64>) -> ColumnValues {
    ColumnValues::Number(values.map(Some).collect())
}

fn counts(values: impl Iterator<Item = u64>) -> ColumnValues {
    ColumnValues::Integer(values.map(Some).collect())
}

/// Row of [`RunSeries::Samples`].
struct SampleRow<'a> {
    workload: &'a str,
    /// Number of the flow in its workload, from 1; `None` for the whole workload.
    flow: Option<u64>,
    /// Scheduled start and end of the flow.
    planned: Option<(Duration, Option<Duration>)>,
    at_ns: u64,
    bytes: u64,
    /// State of the sender's socket; `None` for a whole workload.
    tcp: Option<&'a TcpInfo>,
}

/// Returns the samples of all flows without end, and of the workloads if there are several.
fn samples(scenario: &Scenario, result: &ContenderResult) -> RunTable {
    let series = &result.series;
    let everything = WorkloadSeries {
        flows: (0..series.flows.len()).collect(),
        ..WorkloadSeries::default()
    };
    let mut rows = Vec::new();
    for (index, workload) in scenario.workloads.iter().enumerate() {
        let own = match series.workloads.get(index) {
            Some(own) => own,
            None if index == 0 => &everything,
            None => continue,
        };
        let name = workload.name.as_str();
        for (number, flow) in (0..).zip(&own.flows) {
            let samples: &[Sample] = series.flow(*flow);
            let planned = workload.planned_times(number);
            rows.extend(samples.iter().map(|sample| SampleRow {
                workload: name,
                flow: Some(number + 1),
                planned,
                at_ns: sample.at_ns,
                bytes: sample.received,
                tcp: Some(&sample.tcp),
            }));
        }
        rows.extend(own.course.iter().map(|(at_ns, bytes)| SampleRow {
            workload: name,
            flow: None,
            planned: None,
            at_ns: *at_ns,
            bytes: *bytes,
            tcp: None,
        }));
    }
    let seconds = |time: Duration| time.as_nanos() as f64 / 1e9;
    let mut table = RunTable::default();
    let names = rows.iter().map(|row| Some(row.workload.to_owned()));
    table.push("workload", ColumnValues::Text(names.collect()));
    let flows = rows.iter().map(|row| row.flow);
    table.push("flow", ColumnValues::Integer(flows.collect()));
    let starts = rows
        .iter()
        .map(|row| row.planned.map(|(start, _)| seconds(start)));
    table.push("start_s", ColumnValues::Number(starts.collect()));
    let ends = rows.iter().map(|row| row.planned?.1.map(seconds));
    table.push("end_s", ColumnValues::Number(ends.collect()));
    table.push("time_ns", counts(rows.iter().map(|row| row.at_ns)));
    table.push("received_bytes", counts(rows.iter().map(|row| row.bytes)));
    let of_socket = |value: fn(&TcpInfo) -> u64| {
        ColumnValues::Integer(rows.iter().map(|row| row.tcp.map(value)).collect())
    };
    table.push("cwnd_segments", of_socket(|tcp| tcp.cwnd.into()));
    table.push("srtt_us", of_socket(|tcp| tcp.srtt_us.into()));
    table
}

fn bundles(result: &ContenderResult) -> RunTable {
    let bundles = result.metrics.bundles.iter().zip(&result.series.bundles);
    let rows: Vec<_> = bundles
        .flat_map(|(bundle, samples)| samples.iter().map(move |sample| (&bundle.name, sample)))
        .collect();
    let mut table = RunTable::default();
    let names = rows.iter().map(|(name, _)| Some((*name).clone()));
    table.push("bundle", ColumnValues::Text(names.collect()));
    let samples = || rows.iter().map(|(_, sample)| **sample);
    table.push("time_ns", counts(samples().map(|s| s.at_ns)));
    table.push("mode", counts(samples().map(|s| s.mode.into())));
    table.push("limit_mbit", numbers(samples().map(|s| s.limit_mbit)));
    table.push("received_mbit", numbers(samples().map(|s| s.received_mbit)));
    table.push("waiting_bytes", counts(samples().map(|s| s.waiting_bytes)));
    table.push("rtt_ms", numbers(samples().map(|s| s.rtt_ms)));
    table.push("min_rtt_ms", numbers(samples().map(|s| s.min_rtt_ms)));
    table.push("capacity_mbit", numbers(samples().map(|s| s.capacity_mbit)));
    table.push("actual_rtt_ms", numbers(samples().map(|s| s.actual_rtt_ms)));
    let actual = samples().map(|s| s.actual_received_mbit);
    table.push("actual_received_mbit", numbers(actual));
    table
}

fn bundle_changes(result: &ContenderResult) -> RunTable {
    let bundles = result.metrics.bundles.iter();
    let rows: Vec<_> = bundles
        .flat_map(|bundle| {
            bundle
                .changes
                .iter()
                .map(move |change| (&bundle.name, change))
        })
        .collect();
    let mut table = RunTable::default();
    let text = |value: &dyn Fn(&(&String, &crate::result::BundleChange)) -> String| {
        ColumnValues::Text(rows.iter().map(|row| Some(value(row))).collect())
    };
    table.push("bundle", text(&|(name, _)| (*name).clone()));
    table.push(
        "time_s",
        numbers(rows.iter().map(|(_, change)| change.at_s)),
    );
    table.push("mode", text(&|(_, change)| change.to.clone()));
    table.push("reason", text(&|(_, change)| change.why.clone()));
    table
}

fn delays(result: &ContenderResult) -> RunTable {
    let delays = &result.series.delay_thousandths_ms;
    let last = delays.len().saturating_sub(1).max(1) as f64;
    let mut table = RunTable::default();
    let shares = (0..delays.len()).map(|index| index as f64 / last);
    table.push("share", numbers(shares));
    table.push("delay_ms", numbers(delays.iter().copied()));
    table
}

fn bins(result: &ContenderResult) -> RunTable {
    let series = &result.series;
    let mut table = RunTable::default();
    let starts = (0..series.throughput_mbit.len() as u64).map(|index| index * series.bin_ns);
    table.push("time_ns", counts(starts));
    let throughput = series.throughput_mbit.iter().copied();
    table.push("throughput_mbit", numbers(throughput));
    // Empty bins have no delay.
    let delays = series.delay_ms.iter().copied();
    table.push("delay_ms", ColumnValues::Number(delays.collect()));
    table
}
