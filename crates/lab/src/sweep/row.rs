//! Row of a run: what a store keeps, and what a worker on another machine returns.

use serde::{Deserialize, Serialize};

use super::columns::{Metrics, metrics};
use crate::result::ContenderResult;

/// Result of one run of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Identity of the run.
    pub id: String,
    /// Metrics by column, in the order of the columns.
    pub metrics: Metrics,
    /// Hash of everything that the simulation computed; empty on real packets and for failed runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Reason that the run has no metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Complaints of the datapath's audit, and exceptions of the algorithm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<String>,
    /// What the machine did to a run on real packets, such as CPU time of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbances: Vec<String>,
    /// Flows, if they are stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowRow>,
    /// Cost of the run, which depends on the machine.
    pub timing: RunTiming,
}

/// Cost of a run on its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunTiming {
    /// Wall time, s.
    pub wall_s: Option<f64>,
    /// CPU time of the thread, s.
    pub cpu_s: Option<f64>,
    /// Name of the machine.
    pub machine: String,
    /// Version of ccplane.
    pub version: String,
}

/// Flow of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Name of the workload, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Start, s; absent for flows without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_s: Option<f64>,
    /// Size of a finite flow, and bytes received of one without end.
    pub bytes: u64,
    /// Completion time, ms; absent for flows without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_ms: Option<f64>,
    /// Completion time divided by that on an idle path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<f64>,
    /// Goodput, Mbit/s; absent for finite flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_mbit: Option<f64>,
    /// Retransmitted segments; absent for finite flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
}

impl RunTiming {
    /// Creates the timing of a run by this version of ccplane.
    pub fn new(wall_s: Option<f64>, cpu_s: Option<f64>, machine: &str) -> RunTiming {
        RunTiming {
            wall_s,
            cpu_s,
            machine: machine.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl RunRow {
    /// Creates the row of a run. An agent in another process that disappeared makes it a failure:
    /// NewReno controlled the flows.
    pub fn new(id: &str, result: &ContenderResult, flows: bool, timing: RunTiming) -> RunRow {
        if let Some(name) = &result.agent_gone {
            return RunRow::failed(
                id,
                &format!("the agent of {name} was gone or silent"),
                timing,
            );
        }
        let audit = &result.audit;
        RunRow {
            id: id.to_owned(),
            metrics: metrics(result),
            digest: audit
                .simulation
                .as_ref()
                .map_or(String::new(), |simulation| simulation.digest.clone()),
            error: None,
            complaints: audit.complaints.iter().chain(&audit.own).cloned().collect(),
            disturbances: audit.disturbed.clone(),
            flows: if flows { flow_rows(result) } else { Vec::new() },
            timing,
        }
    }

    /// Creates the row of a run without metrics.
    pub fn failed(id: &str, reason: &str, timing: RunTiming) -> RunRow {
        RunRow {
            id: id.to_owned(),
            metrics: Vec::new(),
            digest: String::new(),
            error: Some(reason.to_owned()),
            complaints: Vec::new(),
            disturbances: Vec::new(),
            flows: Vec::new(),
            timing,
        }
    }
}

/// Returns the flows of a run: those without end, then the completed ones.
fn flow_rows(result: &ContenderResult) -> Vec<FlowRow> {
    let endless = |workload: Option<&str>, flow: &crate::result::FlowMetrics| FlowRow {
        workload: workload.map(str::to_owned),
        bytes: flow.received_bytes,
        goodput_mbit: Some(flow.goodput_mbit),
        retransmitted_segments: Some(flow.retransmissions),
        ..FlowRow::default()
    };
    let finite = |workload: Option<&str>, done: &crate::result::Completion| FlowRow {
        workload: workload.map(str::to_owned),
        start_s: Some(done.started_ns as f64 / 1e9),
        bytes: done.bytes,
        completion_ms: Some(done.took_ns as f64 / 1e6),
        slowdown: Some(done.slowdown()),
        ..FlowRow::default()
    };
    let mut rows = Vec::new();
    if result.workloads.is_empty() {
        rows.extend(result.metrics.flows.iter().map(|flow| endless(None, flow)));
        rows.extend(
            result
                .series
                .completed
                .iter()
                .map(|done| finite(None, done)),
        );
        return rows;
    }
    for (workload, series) in result.workloads.iter().zip(&result.series.workloads) {
        let name = Some(&*workload.name);
        rows.extend(workload.flows.iter().map(|flow| endless(name, flow)));
        rows.extend(series.completed.iter().map(|done| finite(name, done)));
    }
    rows
}
