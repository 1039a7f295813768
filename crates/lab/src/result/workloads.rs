//! What each workload of a run got, where there are several: everybody who shared the network,
//! compared or not.

use serde::{Deserialize, Serialize};

use super::spread::{Spread, TotalsColumns};
use super::{Completion, Completions, ContenderResult, FlowFigures, Sample};

/// What a workload achieved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadFigures {
    /// Its name in the scenario.
    pub name: String,
    /// Who controlled it, as the scenario writes it; absent for datagrams, which heed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Whether it is part of the contender's own figures.
    pub compared: bool,
    /// All of it together.
    #[serde(flatten)]
    pub totals: WorkloadTotals,
    /// Each flow that lasts and was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowFigures>,
    /// How long flows of a given size, or exchanges, took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<Completions>,
    /// Flows that ended on their datapath's fallback.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fell_back: u64,
    /// Flows that were given up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Flows in `failed` whose receiver acknowledged data that it did not get.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub false_receipts: u64,
}

/// All workloads that an algorithm controlled, together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AlgorithmFigures {
    /// As the scenario writes it; absent for datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Its workloads' names.
    pub workloads: Vec<String>,
    /// All of them together.
    #[serde(flatten)]
    pub totals: WorkloadTotals,
}

/// What one or several workloads got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadTotals {
    /// Flows that last, and flows or exchanges that ended or began and did not end.
    pub count: u64,
    /// Bytes that receiving applications read; of datagrams all that arrived, headers included.
    pub goodput_mbit: f64,
    /// Of the goodput of all workloads together, 0 to 1.
    pub share: f64,
    /// Segments sent again; absent where nobody does that, or where it is not known.
    #[serde(
        rename = "retransmitted_segments",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub retransmissions: Option<u64>,
    /// Jain's fairness index of the goodputs of flows that last; absent where there are not two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain: Option<f64>,
    /// How far these may be from those of all runs, where they are means over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread<TotalsColumns>>,
}

/// A workload's records over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkloadSeries {
    /// Its flows' places in the contender's list of flows: see
    /// [`Series::flow`](super::Series::flow).
    pub flows: Vec<usize>,
    /// At each look: nanoseconds since the run began, and bytes received by then.
    pub course: Vec<(u64, u64)>,
    /// Flows or exchanges that ended.
    pub completed: Vec<Completion>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl WorkloadFigures {
    /// Its name and who controlled it.
    pub fn title(&self) -> String {
        format!("{}: {}", self.name, self.control())
    }

    /// Who controlled it, for people.
    pub fn control(&self) -> &str {
        self.algorithm.as_deref().unwrap_or("no control")
    }
}

/// A flow of a contender's list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedFlow<'a, T: ?Sized> {
    /// Whose it is, where there are several workloads.
    pub workload: Option<&'a WorkloadFigures>,
    /// Its number, from 1.
    pub number: usize,
    /// What is known of it.
    pub what: &'a T,
}

impl ContenderResult {
    /// The figures of every flow that lasts, of all workloads.
    pub(crate) fn flow_figures(&self) -> Vec<ListedFlow<'_, FlowFigures>> {
        let Some(places) = self.places() else {
            return plain(self.figures.flows.iter());
        };
        let figures = self.workloads.iter().flat_map(|w| &w.flows);
        ordered(
            places
                .zip(figures)
                .map(|((workload, place), what)| (workload, place, what)),
        )
    }

    /// The samples of every flow that lasts, of all workloads.
    pub(crate) fn flow_samples(&self) -> Vec<ListedFlow<'_, [Sample]>> {
        let Some(places) = self.places() else {
            return plain(self.series.flows.iter().map(Vec::as_slice));
        };
        ordered(places.map(|(workload, place)| (workload, place, self.series.flow(place))))
    }

    /// The place of each flow in the list of all, with its workload, in the order of workloads;
    /// nothing where there is one.
    fn places(&self) -> Option<impl Iterator<Item = (&WorkloadFigures, usize)>> {
        let all = self.workloads.iter().zip(&self.series.workloads);
        let each = all.flat_map(|(workload, series)| {
            series.flows.iter().map(move |place| (workload, *place))
        });
        (!self.workloads.is_empty()).then_some(each)
    }
}

/// Flows of the only workload.
fn plain<'a, T: ?Sized>(all: impl Iterator<Item = &'a T>) -> Vec<ListedFlow<'a, T>> {
    let listed = all.enumerate().map(|(place, what)| ListedFlow {
        workload: None,
        number: place + 1,
        what,
    });
    listed.collect()
}

/// Flows of several workloads by their numbers.
fn ordered<'a, T: ?Sized>(
    all: impl Iterator<Item = (&'a WorkloadFigures, usize, &'a T)>,
) -> Vec<ListedFlow<'a, T>> {
    let listed = all.map(|(workload, place, what)| ListedFlow {
        workload: Some(workload),
        number: place + 1,
        what,
    });
    let mut listed: Vec<_> = listed.collect();
    listed.sort_by_key(|flow| flow.number);
    listed
}
