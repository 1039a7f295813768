//! Result directory of a run: metrics, time series and report page.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ccplane_report::{Provenance, csv_cell};
use serde_json::json;

use crate::report;
use crate::report_log;
use crate::result::{Completion, ContenderResult, RunResult, WorkloadMetrics};

/// Error for a file or directory that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}; choose another folder with --out")]
pub struct WriteError {
    path: PathBuf,
    source: io::Error,
}

/// Writes the result files ([`write_metrics`]) and `report.html` into `directory`. Returns the path
/// of the page.
pub fn write(
    result: &RunResult,
    directory: &Path,
    provenance: &Provenance,
) -> Result<PathBuf, WriteError> {
    write_metrics(result, directory)?;
    put(directory, PAGE_FILE, &report::page(result, provenance))
}

/// Writes the result files into `directory`, which is created if needed: `summary.json`,
/// `host.json`, `series.csv`, `bins.csv`, `flows.csv` and `reports.csv`; if there is data for them,
/// also `workloads.csv`, `runs.csv`, `completions.csv`, `links.csv`, `bundles.csv` and
/// `stamps.csv`. With several workloads, files with a row per flow contain the flows of all
/// workloads, with their workload and algorithm in two additional columns at the end.
pub fn write_metrics(result: &RunResult, directory: &Path) -> Result<(), WriteError> {
    fs::create_dir_all(directory).map_err(|source| WriteError {
        path: directory.to_owned(),
        source,
    })?;
    put(directory, SUMMARY_FILE, &pretty(&summary(result)))?;
    put(directory, "host.json", &pretty(&host(result)))?;
    put(directory, "series.csv", &series_csv(result))?;
    put(directory, "bins.csv", &bins_csv(result))?;
    put(directory, "flows.csv", &flows_csv(result))?;
    put(directory, "reports.csv", &reports_csv(result))?;
    if result.several_workloads() {
        put(directory, "workloads.csv", &workloads_csv(result))?;
    }
    if result.contenders.iter().any(|c| c.series.each.len() > 1) {
        put(directory, "runs.csv", &runs_csv(result))?;
    }
    if result.contenders.iter().any(|c| !completed(c).is_empty()) {
        put(directory, "completions.csv", &completions_csv(result))?;
    }
    if result
        .contenders
        .iter()
        .any(|c| !c.metrics.links.is_empty())
    {
        put(directory, "links.csv", &links_csv(result))?;
    }
    if result
        .contenders
        .iter()
        .any(|c| !c.series.stamped.is_empty())
    {
        put(directory, "stamps.csv", &stamps_csv(result))?;
    }
    if result
        .contenders
        .iter()
        .any(|c| !c.series.bundles.is_empty())
    {
        put(directory, "bundles.csv", &bundles_csv(result))?;
    }
    Ok(())
}

/// Writes the scenario of a result as `scenario.toml` into the result's directory.
pub fn write_scenario(text: &str, directory: &Path) -> Result<PathBuf, WriteError> {
    put(directory, "scenario.toml", text)
}

fn put(directory: &Path, name: &str, text: &str) -> Result<PathBuf, WriteError> {
    let path = directory.join(name);
    match fs::write(&path, text) {
        Ok(()) => Ok(path),
        Err(source) => Err(WriteError { path, source }),
    }
}

/// Version of the names in `summary.json` and the CSV files. Programs check it before they read
/// other names. Removing a name or changing its meaning increases it; adding a name does not.
pub const SCHEMA_VERSION: u32 = 1;
/// File name of the report page.
pub const PAGE_FILE: &str = "report.html";
/// File name of [`summary`].
pub const SUMMARY_FILE: &str = "summary.json";

/// Returns set-up and metrics as JSON, without values that depend on the speed of this host.
/// Contenders with several seeds or repeats also have the metrics of each run.
pub fn summary(result: &RunResult) -> serde_json::Value {
    let mut value = json!(result);
    value["schema"] = json!(SCHEMA_VERSION);
    if let Some(contenders) = value.get_mut("contenders").and_then(|c| c.as_array_mut()) {
        for (of, contender) in result.contenders.iter().zip(contenders) {
            let Some(contender) = contender.as_object_mut() else {
                continue;
            };
            contender.remove("host");
            if of.series.each.len() > 1 {
                contender.insert("runs".to_owned(), json!(of.series.each));
            }
        }
    }
    value
}

/// Returns the host, and the cost of the run on it, as JSON.
fn host(result: &RunResult) -> serde_json::Value {
    let read = |path: &str| {
        fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| {
        line.strip_prefix("model name")?
            .split_once(": ")
            .map(|(_, m)| m)
    });
    let contenders = (result.contenders.iter())
        .map(|c| json!({ "label": c.label, "host": c.host }))
        .collect::<Vec<_>>();
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpu": model.unwrap_or("unknown"),
        "cpus": std::thread::available_parallelism().map_or(0, |n| n.get()),
        "load_average": read("/proc/loadavg"),
        "contenders": contenders,
    })
}

fn pretty(value: &serde_json::Value) -> String {
    // Serialisation cannot fail: the value consists of strings, numbers and lists.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Returns every sample of every socket. Windows in segments; times in the unit of their column
/// name; rates in bytes/s.
fn series_csv(result: &RunResult) -> String {
    let mut csv = headed(
        result,
        "contender,flow,time_s,cwnd_segments,cwnd_bytes,ssthresh_segments,mss_bytes,srtt_us,\
         rttvar_us,min_rtt_us,\
         delivery_rate_bytes_per_s,pacing_rate_bytes_per_s,unacked_segments,lost_segments,\
         retransmitted_segments,bytes_acked,\
         received_bytes,ca_state,app_limited",
    );
    for c in &result.contenders {
        for flow in c.flow_samples() {
            let whose = whose(flow.workload);
            for s in flow.data {
                let t = &s.tcp;
                // `tcp_info` has special values for "no loss yet" and "not paced".
                let ssthresh = if t.ssthresh >= 0x7fff_ffff {
                    String::new()
                } else {
                    t.ssthresh.to_string()
                };
                let pacing = if t.pacing_rate == u64::MAX {
                    String::new()
                } else {
                    t.pacing_rate.to_string()
                };
                let _ = writeln!(
                    csv,
                    "{},{},{:.6},{},{},{ssthresh},{},{},{},{},{},{pacing},{},{},{},{},{},{},{}\
                     {whose}",
                    csv_cell(&c.label),
                    flow.number,
                    s.at_ns as f64 / 1e9,
                    t.cwnd,
                    u64::from(t.cwnd) * u64::from(t.mss),
                    t.mss,
                    t.srtt_us,
                    t.rttvar_us,
                    t.min_rtt_us,
                    t.delivery_rate,
                    t.unacked,
                    t.lost,
                    t.retrans,
                    t.bytes_acked,
                    s.received,
                    t.ca_state,
                    u8::from(t.app_limited)
                );
            }
        }
    }
    csv
}

/// Returns every sample of every bundle. Modes: 0 open, 1 delay control, 2 pass-through. Unknown
/// values are 0.
fn bundles_csv(result: &RunResult) -> String {
    let mut csv = String::from(
        "contender,bundle,time_s,mode,limit_mbit,received_mbit,waiting_bytes,rtt_ms,min_rtt_ms,eta,\
         capacity_mbit,cross_mbit,actual_rtt_ms,actual_received_mbit\n",
    );
    for c in &result.contenders {
        for (bundle, samples) in c.metrics.bundles.iter().zip(&c.series.bundles) {
            for s in samples {
                let _ = writeln!(
                    csv,
                    "{},{},{:.6},{},{:.6},{:.6},{},{:.6},{:.6},{:.4},{:.6},{:.6},{:.6},{:.6}",
                    csv_cell(&c.label),
                    csv_cell(&bundle.name),
                    s.at_ns as f64 / 1e9,
                    s.mode,
                    s.limit_mbit,
                    s.received_mbit,
                    s.waiting_bytes,
                    s.rtt_ms,
                    s.min_rtt_ms,
                    s.eta,
                    s.capacity_mbit,
                    s.cross_mbit,
                    s.actual_rtt_ms,
                    s.actual_received_mbit
                );
            }
        }
    }
    csv
}

/// Returns the bins of the link's throughput and delay.
fn bins_csv(result: &RunResult) -> String {
    let mut csv = String::from("contender,time_s,throughput_mbit,delay_ms\n");
    for c in &result.contenders {
        for (i, (throughput, delay)) in c
            .series
            .throughput_mbit
            .iter()
            .zip(&c.series.delay_ms)
            .enumerate()
        {
            let at = (i as u64 * c.series.bin_ns) as f64 / 1e9;
            let delay = delay.map_or(String::new(), |d| format!("{d:.6}"));
            let _ = writeln!(
                csv,
                "{},{at:.6},{throughput:.6},{delay}",
                csv_cell(&c.label)
            );
        }
    }
    csv
}

fn flows_csv(result: &RunResult) -> String {
    let mut csv = headed(
        result,
        "contender,flow,goodput_mbit,received_bytes,retransmitted_segments,retransmitted_bytes,\
         cwnd_mean_segments,srtt_mean_ms,\
         min_rtt_ms,rwnd_limited,sndbuf_limited",
    );
    for c in &result.contenders {
        for flow in c.listed_flows() {
            let f = flow.data;
            let _ = writeln!(
                csv,
                "{},{},{:.6},{},{},{},{:.3},{:.4},{:.4},{:.4},{:.4}{}",
                csv_cell(&c.label),
                flow.number,
                f.goodput_mbit,
                f.received_bytes,
                f.retransmissions,
                f.retransmitted_bytes,
                f.cwnd_mean,
                f.srtt_mean_ms,
                f.min_rtt_ms,
                f.rwnd_limited,
                f.sndbuf_limited,
                whose(flow.workload)
            );
        }
    }
    csv
}

/// Returns the heading; with several workloads, two columns name a flow's workload and algorithm.
fn headed(result: &RunResult, columns: &str) -> String {
    let more = if result.several_workloads() {
        ",workload,algorithm"
    } else {
        ""
    };
    format!("{columns}{more}\n")
}

/// Returns the cells of these two columns.
fn whose(workload: Option<&WorkloadMetrics>) -> String {
    let algorithm = |w: &WorkloadMetrics| csv_cell(w.algorithm.as_deref().unwrap_or_default());
    workload.map_or(String::new(), |w| {
        format!(",{},{}", csv_cell(&w.name), algorithm(w))
    })
}

/// Returns one row per workload.
fn workloads_csv(result: &RunResult) -> String {
    let mut csv = String::from(
        "contender,workload,algorithm,compared,count,goodput_mbit,share,retransmitted_segments,\
         jain,fell_back,failed\n",
    );
    for c in &result.contenders {
        for w in &c.workloads {
            let t = &w.totals;
            let _ = writeln!(
                csv,
                "{}{},{},{},{:.6},{:.6},{},{},{},{}",
                csv_cell(&c.label),
                whose(Some(w)),
                u8::from(w.compared),
                t.count,
                t.goodput_mbit,
                t.share,
                t.retransmissions.map_or(String::new(), |n| n.to_string()),
                t.jain.map_or(String::new(), |jain| format!("{jain:.6}")),
                w.fell_back,
                w.failed
            );
        }
    }
    csv
}

/// Returns one row per seed or repeat.
fn runs_csv(result: &RunResult) -> String {
    let mut csv = String::from(
        "contender,run,goodput_mbit,utilisation,delay_mean_ms,delay_p50_ms,delay_p95_ms,\
         delay_p99_ms,retransmitted_segments,\
         queue_drops,jain\n",
    );
    for c in &result.contenders {
        for run in &c.series.each {
            let f = &run.metrics;
            let jain = c
                .metrics
                .jain
                .map_or(String::new(), |_| format!("{:.6}", f.jain));
            let _ = writeln!(
                csv,
                "{},{},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{},{},{jain}",
                csv_cell(&c.label),
                run.seed,
                f.goodput_mbit,
                f.utilisation,
                f.delay_mean_ms,
                f.delay_p50_ms,
                f.delay_p95_ms,
                f.delay_p99_ms,
                f.retransmissions,
                f.queue_drops
            );
        }
    }
    csv
}

/// Returns the completed flows and exchanges of a contender with their workloads.
fn completed(c: &ContenderResult) -> Vec<(Option<&WorkloadMetrics>, &Completion)> {
    if c.workloads.is_empty() {
        return c.series.completed.iter().map(|flow| (None, flow)).collect();
    }
    let workloads = c.workloads.iter().zip(&c.series.workloads);
    workloads
        .flat_map(|(w, series)| series.completed.iter().map(move |flow| (Some(w), flow)))
        .collect()
}

/// Returns one row per completed flow.
fn completions_csv(result: &RunResult) -> String {
    let mut csv = headed(
        result,
        "contender,seed,started_s,bytes,took_ms,slowdown,waited_ms",
    );
    for c in &result.contenders {
        for (workload, f) in completed(c) {
            let _ = writeln!(
                csv,
                "{},{},{:.9},{},{:.6},{:.6},{:.6}{}",
                csv_cell(&c.label),
                f.seed,
                f.started_ns as f64 / 1e9,
                f.bytes,
                f.took_ns as f64 / 1e6,
                f.slowdown(),
                f.waited_ns as f64 / 1e6,
                whose(workload)
            );
        }
    }
    csv
}

fn links_csv(result: &RunResult) -> String {
    let mut csv =
        String::from("contender,link,utilisation,delivered_bytes,drops,marks,delay_mean_ms\n");
    for c in &result.contenders {
        for l in &c.metrics.links {
            let used = l
                .utilisation
                .map_or(String::new(), |used| format!("{used:.6}"));
            let _ = writeln!(
                csv,
                "{},{},{used},{},{},{},{:.6}",
                csv_cell(&c.label),
                csv_cell(&l.name),
                l.delivered_bytes,
                l.drops,
                l.marks,
                l.delay_mean_ms
            );
        }
    }
    csv
}

/// Returns the queueing delay of every full packet, from its time stamps and from the link's log.
fn stamps_csv(result: &RunResult) -> String {
    let mut csv = String::from("contender,time_s,stamps_us,link_us\n");
    for c in &result.contenders {
        for p in &c.series.stamped {
            let [at, stamps, link] = [
                p.at_ns as f64 / 1e9,
                p.measured_ns as f64 / 1e3,
                p.link_ns as f64 / 1e3,
            ];
            let _ = writeln!(csv, "{},{at:.9},{stamps:.3},{link:.3}", csv_cell(&c.label));
        }
    }
    csv
}

/// Returns the reports that ccplane's algorithms received.
fn reports_csv(result: &RunResult) -> String {
    let mut csv = report_log::CSV_HEADING.to_owned();
    for c in &result.contenders {
        c.series
            .heard
            .write_csv(&csv_cell(&c.label), c.series.started_ns, &mut csv);
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_csv_cell() {
        assert_eq!(csv_cell("reno"), "reno");
        assert_eq!(csv_cell("cubic(a=1,b=\"x\")"), "\"cubic(a=1,b=\"\"x\"\")\"");
    }
}
