//! Results per workload, compared or not, if a run has several.

use serde::{Deserialize, Serialize};

use super::spread::{Spread, TotalsColumns};
use super::{Completion, Completions, ContenderResult, FlowMetrics, Sample};

/// Results of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadMetrics {
    /// Name in the scenario.
    pub name: String,
    /// Congestion control, as written in the scenario; absent for datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// True if it counts towards the contender's metrics.
    pub compared: bool,
    /// Totals of the workload.
    #[serde(flatten)]
    pub totals: WorkloadTotals,
    /// Sampled flows without end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowMetrics>,
    /// Completion times of flows or exchanges by size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<Completions>,
    /// Flows controlled by their datapath's fallback at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fell_back: u64,
    /// Aborted flows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Flows in `failed` whose receiver acknowledged data that it did not receive.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub false_receipts: u64,
}

/// Totals of all workloads with the same algorithm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AlgorithmMetrics {
    /// Algorithm as written in the scenario; absent for datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Names of its workloads.
    pub workloads: Vec<String>,
    /// Totals over these workloads.
    #[serde(flatten)]
    pub totals: WorkloadTotals,
}

/// Totals of one or several workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadTotals {
    /// Number of flows without end, and of finite flows or exchanges that started.
    pub count: u64,
    /// Goodput, Mbit/s: bytes read by the receiving applications; for datagrams, all that arrived,
    /// including headers.
    pub goodput_mbit: f64,
    /// Share of the goodput of all workloads, 0 to 1.
    pub share: f64,
    /// Retransmitted segments; absent if unknown or not applicable.
    #[serde(
        rename = "retransmitted_segments",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub retransmissions: Option<u64>,
    /// Jain's fairness index of the goodputs of flows without end; absent for fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain: Option<f64>,
    /// Intervals, if the totals are means over several runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread<TotalsColumns>>,
}

/// Time series of a workload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkloadSeries {
    /// Indices of its flows in the contender's list of flows; see
    /// [`Series::flow`](super::Series::flow).
    pub flows: Vec<usize>,
    /// Samples of time (ns since the start of the run) and cumulative received bytes.
    pub course: Vec<(u64, u64)>,
    /// Completed flows or exchanges.
    pub completed: Vec<Completion>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl WorkloadMetrics {
    /// Returns the name and the congestion control.
    pub fn title(&self) -> String {
        format!("{}: {}", self.name, self.control())
    }

    /// Returns the congestion control as text for the reader.
    pub fn control(&self) -> &str {
        self.algorithm.as_deref().unwrap_or("no control")
    }
}

/// Flow in a list of a contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedFlow<'a, T: ?Sized> {
    /// Workload of the flow, if there are several.
    pub workload: Option<&'a WorkloadMetrics>,
    /// Number of the flow, counted from 1.
    pub number: usize,
    /// Data of the flow.
    pub data: &'a T,
}

impl ContenderResult {
    /// Returns the metrics of every flow without end, of all workloads.
    pub(crate) fn listed_flows(&self) -> Vec<ListedFlow<'_, FlowMetrics>> {
        let Some(places) = self.flow_positions() else {
            return plain(self.metrics.flows.iter());
        };
        let metrics = self.workloads.iter().flat_map(|w| &w.flows);
        ordered(
            places
                .zip(metrics)
                .map(|((workload, place), what)| (workload, place, what)),
        )
    }

    /// Returns the samples of every flow without end, of all workloads.
    pub(crate) fn flow_samples(&self) -> Vec<ListedFlow<'_, [Sample]>> {
        let Some(places) = self.flow_positions() else {
            return plain(self.series.flows.iter().map(Vec::as_slice));
        };
        ordered(places.map(|(workload, place)| (workload, place, self.series.flow(place))))
    }

    /// Returns the index of each flow in the combined list, with its workload, in the order of
    /// workloads; `None` if there is only one workload.
    fn flow_positions(&self) -> Option<impl Iterator<Item = (&WorkloadMetrics, usize)>> {
        let all = self.workloads.iter().zip(&self.series.workloads);
        let each = all.flat_map(|(workload, series)| {
            series.flows.iter().map(move |place| (workload, *place))
        });
        (!self.workloads.is_empty()).then_some(each)
    }
}

/// Lists the flows of the only workload.
fn plain<'a, T: ?Sized>(all: impl Iterator<Item = &'a T>) -> Vec<ListedFlow<'a, T>> {
    let listed = all.enumerate().map(|(place, what)| ListedFlow {
        workload: None,
        number: place + 1,
        data: what,
    });
    listed.collect()
}

/// Lists the flows of several workloads, ordered by number.
fn ordered<'a, T: ?Sized>(
    all: impl Iterator<Item = (&'a WorkloadMetrics, usize, &'a T)>,
) -> Vec<ListedFlow<'a, T>> {
    let listed = all.map(|(workload, place, what)| ListedFlow {
        workload: Some(workload),
        number: place + 1,
        data: what,
    });
    let mut listed: Vec<_> = listed.collect();
    listed.sort_by_key(|flow| flow.number);
    listed
}
