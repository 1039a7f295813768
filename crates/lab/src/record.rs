//! Raw record of a run, and the metrics and time series computed from it, the same for all
//! backends.
//!
//! A simulation, kernel TCP and the UDP transport each fill a [`RunRecord`];
//! [`RunRecord::into_metrics`] is the only way from there to what a person reads.

use ccplane_units::{Bytes, Duration};

use crate::contender::Contender;
use crate::metrics::{self, Distribution};
use crate::result::{
    AlgorithmMetrics, Completion, Completions, ContenderMetrics, FlowMetrics, Sample, Series,
    SizeClass, WorkloadMetrics, WorkloadSeries, WorkloadTotals,
};
use crate::scenario::size_classes;

/// Raw record of a run on any backend.
#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    /// Time during which bytes were counted.
    pub span: Duration,
    /// Warm-up, which goodput, utilisation and queueing delay exclude.
    pub warm_up: Duration,
    /// `CLOCK_MONOTONIC` at the first byte, ns; 0 in virtual time.
    pub started_ns: u64,
    /// Record of the drawn link.
    pub link: LinkRecord,
    /// Workloads in the scenario's order.
    pub workloads: Vec<WorkloadRecord>,
}

/// Record of the drawn link.
#[derive(Clone, Debug, Default)]
pub struct LinkRecord {
    /// Packets that departed during the run: departure since the start (ns), sojourn time (ns),
    /// bytes.
    pub departures: Vec<(u64, u64, u64)>,
    /// Bytes that the link could have carried.
    pub capacity: f64,
    /// Packets dropped by the queue.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub random_losses: u64,
}

/// Record of a workload.
#[derive(Clone, Debug, Default)]
pub struct WorkloadRecord {
    /// Name in the scenario.
    pub name: String,
    /// Congestion control; `None` for datagrams.
    pub contender: Option<Contender>,
    /// True if its algorithm is the run's contender, or if every workload names its own.
    pub compared: bool,
    /// Bytes read by the receiving applications, including responses; for datagrams, bytes that
    /// arrived.
    pub received: u64,
    /// Cumulative received bytes over time, with times in ns since the start. If empty, the samples
    /// of the flows provide them.
    pub course: Vec<(u64, u64)>,
    /// Retransmitted segments; `None` if unknown or not applicable.
    pub retransmitted: Option<u64>,
    /// Goodput of every flow without end, Mbit/s.
    pub goodputs: Vec<f64>,
    /// Rank of each of these flows by start time over all workloads; empty if only the order within
    /// the workload is known.
    pub start_ranks: Vec<u64>,
    /// Samples of the first of these flows.
    pub flows: Vec<Vec<Sample>>,
    /// Completed flows or responses.
    pub completed: Vec<Completion>,
    /// Flows that started and did not complete.
    pub unfinished: u64,
    /// Flows controlled by their datapath's fallback at the end.
    pub fell_back: u64,
    /// Aborted flows.
    pub failed: u64,
    /// Flows in `failed` whose receiver acknowledged data that it did not receive.
    pub false_receipts: u64,
}

/// Results computed from a record.
#[derive(Clone, Debug, Default)]
pub struct RunMetrics {
    /// Metrics of the compared workloads and of the link.
    pub metrics: ContenderMetrics,
    /// Metrics per workload, if there are several.
    pub workloads: Vec<WorkloadMetrics>,
    /// Metrics per algorithm.
    pub algorithms: Vec<AlgorithmMetrics>,
    /// Time series. The caller adds the log of reports.
    pub series: Series,
    /// Problems of the compared flows, one sentence each.
    pub complaints: Vec<String>,
}

impl RunRecord {
    /// Computes metrics and time series: throughput and delay in bins of this width, completion
    /// times in size classes with these upper bounds.
    pub fn into_metrics(mut self, bin: Duration, bounds: &[Bytes]) -> RunMetrics {
        let (span, several) = (self.span.as_nanos(), self.workloads.len() > 1);
        // The samples are moved out below.
        let courses: Vec<_> = match several {
            true => self.workloads.iter().map(WorkloadRecord::course).collect(),
            false => Vec::new(),
        };
        let places = places(&self.workloads);
        let mut flows = Vec::new();
        for (at, flow, _) in &places {
            let samples = self
                .workloads
                .get_mut(*at)
                .and_then(|w| w.flows.get_mut(*flow));
            flows.extend(samples.map(std::mem::take));
        }
        let each: Vec<FlowMetrics> = flows
            .iter()
            .map(|samples| flow_metrics(samples, span))
            .collect();
        let of = |workload: usize| {
            places
                .iter()
                .enumerate()
                .filter(move |(_, (at, ..))| *at == workload)
        };

        let (mut workloads, mut recorded) = (Vec::new(), Vec::new());
        for ((at, workload), course) in self.workloads.iter().enumerate().zip(courses) {
            workloads.push(WorkloadMetrics {
                name: workload.name.clone(),
                algorithm: workload.contender.as_ref().map(Contender::to_string),
                compared: workload.compared,
                totals: self.totals(|w| std::ptr::eq(w, workload)),
                flows: of(at)
                    .filter_map(|(place, _)| each.get(place).cloned())
                    .collect(),
                completions: workload.completions(bounds),
                fell_back: workload.fell_back,
                failed: workload.failed,
                false_receipts: workload.false_receipts,
            });
            recorded.push(WorkloadSeries {
                flows: of(at).map(|(place, _)| place).collect(),
                course,
                completed: workload.completed.clone(),
            });
        }
        let algorithms = self.algorithms(&workloads);

        let compared = || self.workloads.iter().filter(|w| w.compared);
        let count = places.iter().filter(|(_, _, compared)| *compared).count();
        let others = flows.split_off(count.min(flows.len()));
        let completed: Vec<Completion> = compared()
            .flat_map(|w| w.completed.iter().copied())
            .collect();
        let unfinished: u64 = compared().map(|w| w.unfinished).sum();
        let metrics = ContenderMetrics {
            goodput_mbit: metrics::mbits(compared().map(|w| w.received).sum(), self.measured_ns()),
            retransmissions: compared().filter_map(|w| w.retransmitted).sum(),
            jain: metrics::jain(&goodputs(compared())),
            completions: (!completed.is_empty() || unfinished > 0)
                .then(|| completions(&completed, unfinished, bounds)),
            flows: each.into_iter().take(count).collect(),
            ..self.link.metrics(self.warm_up)
        };
        RunMetrics {
            complaints: self.complaints(),
            series: Series {
                started_ns: self.started_ns,
                flows,
                others,
                workloads: recorded,
                completed,
                ..self.link.series(bin, span, self.warm_up)
            },
            metrics,
            workloads,
            algorithms,
        }
    }

    /// Returns the time over which goodput is measured, ns.
    fn measured_ns(&self) -> u64 {
        self.span.saturating_sub(self.warm_up).as_nanos()
    }

    /// Returns the totals of these workloads.
    fn totals(&self, of: impl Fn(&WorkloadRecord) -> bool) -> WorkloadTotals {
        let these = || self.workloads.iter().filter(|w| of(w));
        let all: u64 = self.workloads.iter().map(|w| w.received).sum();
        let received: u64 = these().map(|w| w.received).sum();
        let known: Vec<u64> = these().filter_map(|w| w.retransmitted).collect();
        WorkloadTotals {
            count: these().map(WorkloadRecord::count).sum(),
            goodput_mbit: metrics::mbits(received, self.measured_ns()),
            share: received as f64 / all.max(1) as f64,
            retransmissions: (!known.is_empty()).then(|| known.iter().sum()),
            jain: metrics::jain(&goodputs(these())),
            spread: None,
        }
    }

    /// Groups workloads by algorithm. `workloads` are their metrics, in the same order.
    fn algorithms(&self, workloads: &[WorkloadMetrics]) -> Vec<AlgorithmMetrics> {
        let mut all: Vec<AlgorithmMetrics> = Vec::new();
        for (record, metrics) in self.workloads.iter().zip(workloads) {
            match all
                .iter_mut()
                .find(|known| known.algorithm == metrics.algorithm)
            {
                Some(known) => known.workloads.push(metrics.name.clone()),
                None => all.push(AlgorithmMetrics {
                    algorithm: metrics.algorithm.clone(),
                    workloads: vec![metrics.name.clone()],
                    totals: self.totals(|w| w.contender == record.contender),
                }),
            }
        }
        all
    }

    fn complaints(&self) -> Vec<String> {
        let sum = |of: fn(&WorkloadRecord) -> u64| -> u64 {
            let compared = self.workloads.iter().filter(|w| w.compared);
            compared.map(of).sum()
        };
        let mut complaints = Vec::new();
        let (silent, false_receipts) = (sum(|w| w.fell_back), sum(|w| w.false_receipts));
        let failed = sum(|w| w.failed).saturating_sub(false_receipts);
        if silent > 0 {
            complaints.push(format!(
                "{silent} flows were on NewReno at the end because the algorithm sent nothing for \
                 too long"
            ));
        }
        if failed > 0 {
            complaints.push(format!(
                "{failed} flows were aborted after too many timeouts"
            ));
        }
        if false_receipts > 0 {
            complaints.push(format!(
                "{false_receipts} flows were aborted because their receiver acknowledged data \
                 that it did not receive"
            ));
        }
        complaints
    }
}

impl LinkRecord {
    /// Returns the packets that departed after the warm-up.
    pub fn departures_after(&self, warm: Duration) -> impl Iterator<Item = &(u64, u64, u64)> {
        let warm = warm.as_nanos();
        self.departures.iter().filter(move |(at, ..)| *at >= warm)
    }

    /// Returns the sojourn times of packets that departed after the warm-up, ms.
    fn delays(&self, warm: Duration) -> Distribution {
        Distribution::new(
            self.departures_after(warm)
                .map(|(_, in_queue, _)| *in_queue as f64 / 1e6),
        )
    }

    /// Computes the contender's metrics from the link's record.
    fn metrics(&self, warm: Duration) -> ContenderMetrics {
        let delays = self.delays(warm);
        let delivered: u64 = self
            .departures_after(warm)
            .map(|(_, _, bytes)| *bytes)
            .sum();
        let at = |p| delays.quantile(p).unwrap_or(0.0);
        ContenderMetrics {
            utilisation: if self.capacity > 0.0 {
                delivered as f64 / self.capacity
            } else {
                0.0
            },
            delay_mean_ms: delays.mean().unwrap_or(0.0),
            delay_p50_ms: at(0.5),
            delay_p95_ms: at(0.95),
            delay_p99_ms: at(0.99),
            queue_drops: self.queue_drops,
            random_losses: self.random_losses,
            ..ContenderMetrics::default()
        }
    }

    /// Returns throughput and delay over time.
    fn series(&self, bin: Duration, span: u64, warm: Duration) -> Series {
        let width = bin.as_nanos();
        let delays = self.delays(warm);
        let thousandth = |n: u32| delays.quantile(f64::from(n) / 1e3).unwrap_or(0.0);
        let left = self.departures.iter();
        let bytes = metrics::bin_bytes(
            left.clone().map(|(at, _, bytes)| (*at, *bytes)),
            width,
            span,
        );
        Series {
            bin_ns: width,
            delay_thousandths_ms: (0..=1_000).map(thousandth).collect(),
            throughput_mbit: bytes
                .into_iter()
                .map(|bytes| metrics::mbits(bytes, width))
                .collect(),
            delay_ms: metrics::bin_means(
                left.map(|(at, in_queue, _)| (*at, *in_queue as f64 / 1e6)),
                width,
                span,
            ),
            ..Series::default()
        }
    }
}

impl WorkloadRecord {
    /// Returns the number of flows and exchanges.
    fn count(&self) -> u64 {
        (self.goodputs.len() + self.completed.len()) as u64 + self.unfinished
    }

    fn completions(&self, bounds: &[Bytes]) -> Option<Completions> {
        let any = !self.completed.is_empty() || self.unfinished > 0;
        any.then(|| completions(&self.completed, self.unfinished, bounds))
    }

    /// Returns the cumulative received bytes over time.
    fn course(&self) -> Vec<(u64, u64)> {
        if !self.course.is_empty() {
            return self.course.clone();
        }
        let Some(longest) = self.flows.iter().max_by_key(|samples| samples.len()) else {
            return Vec::new();
        };
        // All flows are sampled at the same times; flows that started later have fewer samples.
        let mut flows: Vec<_> = self
            .flows
            .iter()
            .map(|samples| samples.iter().peekable())
            .collect();
        let mut received = vec![0; flows.len()];
        let sum = |at_ns: u64| {
            for (samples, received) in flows.iter_mut().zip(&mut received) {
                while let Some(sample) = samples.next_if(|sample| sample.at_ns <= at_ns) {
                    *received = sample.received;
                }
            }
            (at_ns, received.iter().sum::<u64>())
        };
        longest.iter().map(|sample| sample.at_ns).map(sum).collect()
    }
}

/// Returns the sampled flows in the order of the results, as (workload, index in the workload,
/// compared). Compared flows come first, ordered by start; the other workloads' flows follow,
/// workload by workload.
fn places(workloads: &[WorkloadRecord]) -> Vec<(usize, usize, bool)> {
    let mut all: Vec<(bool, u64, usize, usize)> = Vec::new();
    for (at, workload) in workloads.iter().enumerate() {
        for flow in 0..workload.flows.len() {
            let began = workload.start_ranks.get(flow).filter(|_| workload.compared);
            all.push((!workload.compared, began.copied().unwrap_or(0), at, flow));
        }
    }
    all.sort_by_key(|(other, began, ..)| (*other, *began));
    all.into_iter()
        .map(|(other, _, at, flow)| (at, flow, !other))
        .collect()
}

/// Returns the goodputs of flows without end, ordered by start if that is known.
fn goodputs<'r>(workloads: impl Iterator<Item = &'r WorkloadRecord>) -> Vec<f64> {
    let each = workloads.flat_map(|w| {
        let began = move |flow: usize| w.start_ranks.get(flow).copied().unwrap_or(0);
        w.goodputs
            .iter()
            .enumerate()
            .map(move |(flow, goodput)| (began(flow), *goodput))
    });
    let mut all: Vec<(u64, f64)> = each.collect();
    all.sort_by_key(|(began, _)| *began);
    all.into_iter().map(|(_, goodput)| goodput).collect()
}

/// Computes the metrics of a flow from its samples.
pub fn flow_metrics(samples: &[Sample], elapsed_ns: u64) -> FlowMetrics {
    let last = samples.last().copied().unwrap_or_default();
    let mean = |value: fn(&Sample) -> f64| {
        let measured = Distribution::new(samples.iter().skip(1).map(value));
        measured.mean().unwrap_or(0.0)
    };
    let share = |us: u64| us as f64 * 1e3 / elapsed_ns.max(1) as f64;
    FlowMetrics {
        received_bytes: last.received,
        goodput_mbit: metrics::mbits(last.received, elapsed_ns),
        retransmissions: u64::from(last.tcp.retrans),
        retransmitted_bytes: last.tcp.bytes_retrans,
        cwnd_mean: mean(|s| f64::from(s.tcp.cwnd)),
        srtt_mean_ms: mean(|s| f64::from(s.tcp.srtt_us) / 1e3),
        min_rtt_ms: f64::from(last.tcp.min_rtt_us) / 1e3,
        rwnd_limited: share(last.tcp.rwnd_limited_us),
        sndbuf_limited: share(last.tcp.sndbuf_limited_us),
    }
}

/// Computes the statistics of completed flows, in size classes with these upper bounds.
pub fn completions(completed: &[Completion], unfinished: u64, bounds: &[Bytes]) -> Completions {
    let classes = size_classes(bounds).into_iter().map(|(label, sizes)| {
        let members = completed.iter().filter(|c| sizes.contains(&c.bytes));
        class(label, members)
    });
    Completions {
        classes: classes.collect(),
        unfinished,
    }
}

fn class<'a>(label: String, members: impl Iterator<Item = &'a Completion> + Clone) -> SizeClass {
    let times = Distribution::new(members.clone().map(|c| c.took_ns as f64 / 1e6));
    let slowdowns = Distribution::new(members.map(Completion::slowdown));
    let at = |d: &Distribution, p| d.quantile(p).unwrap_or(0.0);
    SizeClass {
        label,
        flows: times.len() as u64,
        mean_ms: times.mean().unwrap_or(0.0),
        p50_ms: at(&times, 0.5),
        p99_ms: at(&times, 0.99),
        slowdown_mean: slowdowns.mean().unwrap_or(0.0),
        slowdown_p50: at(&slowdowns, 0.5),
        slowdown_p99: at(&slowdowns, 0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Returns the samples, two per second, of a flow that receives `rate` bytes/s.
    fn flow(from_s: u64, to_s: u64, rate: u64) -> Vec<Sample> {
        let looks = from_s * 2..=to_s * 2;
        let sample = |half: u64| {
            let mut sample = Sample {
                at_ns: half * SECOND_NS / 2,
                received: (half - from_s * 2) * rate / 2,
                ..Sample::default()
            };
            sample.tcp.cwnd = 10;
            sample.tcp.retrans = 3;
            sample
        };
        looks.map(sample).collect()
    }

    fn bulk(
        name: &str,
        contender: Contender,
        compared: bool,
        flows: Vec<Vec<Sample>>,
    ) -> WorkloadRecord {
        let received = |samples: &Vec<Sample>| samples.last().map_or(0, |s| s.received);
        WorkloadRecord {
            name: name.to_owned(),
            contender: Some(contender),
            compared,
            received: flows.iter().map(received).sum(),
            retransmitted: Some(3 * flows.len() as u64),
            goodputs: flows
                .iter()
                .map(|f| metrics::mbits(received(f), 4 * SECOND_NS))
                .collect(),
            flows,
            ..WorkloadRecord::default()
        }
    }

    fn ended(at_s: u64, bytes: u64, took_ms: u64) -> Completion {
        Completion {
            seed: 1,
            started_ns: at_s * SECOND_NS,
            bytes,
            took_ns: took_ms * 1_000_000,
            waited_ns: 0,
            alone_ns: 1_000_000,
        }
    }

    /// Workloads on a link of 10 MB/s for four seconds: Copa and requests of the contender, Cubic
    /// as another workload, and datagrams.
    fn mixed() -> RunRecord {
        let copa = || Contender::ccplane("copa");
        RunRecord {
            span: Duration::from_secs(4),
            warm_up: Duration::ZERO,
            started_ns: 77,
            link: LinkRecord {
                departures: (0..4_000)
                    .map(|n| (n * 1_000_000, 2_000_000, 7_500))
                    .collect(),
                capacity: 40e6,
                queue_drops: 5,
                random_losses: 1,
            },
            workloads: vec![
                bulk(
                    "long",
                    copa(),
                    true,
                    vec![flow(0, 4, 1_000_000), flow(2, 4, 1_000_000)],
                ),
                bulk(
                    "cross",
                    Contender::native("cubic"),
                    false,
                    vec![flow(0, 4, 3_000_000)],
                ),
                WorkloadRecord {
                    name: "requests".to_owned(),
                    contender: Some(copa()),
                    compared: true,
                    received: 2_000_000,
                    completed: vec![ended(0, 500_000, 20), ended(1, 1_500_000, 40)],
                    unfinished: 1,
                    fell_back: 2,
                    ..WorkloadRecord::default()
                },
                WorkloadRecord {
                    name: "noise".to_owned(),
                    received: 4_000_000,
                    course: vec![(0, 0), (4 * SECOND_NS, 4_000_000)],
                    failed: 9,
                    ..WorkloadRecord::default()
                },
            ],
        }
    }

    #[test]
    fn the_contenders_figures_are_of_what_is_compared() {
        let told = mixed().into_metrics(Duration::from_millis(100), &[Bytes::new(1_000_000)]);
        let f = &told.metrics;
        // 4 + 2 + 2 MB in four seconds.
        assert_eq!(
            (f.goodput_mbit, f.retransmissions, f.utilisation),
            (16.0, 6, 0.75)
        );
        assert_eq!(
            (
                f.delay_mean_ms,
                f.delay_p99_ms,
                f.queue_drops,
                f.random_losses
            ),
            (2.0, 2.0, 5, 1)
        );
        assert_eq!(f.jain, metrics::jain(&[8.0, 4.0]));
        assert_eq!(
            f.flows.iter().map(|f| f.received_bytes).collect::<Vec<_>>(),
            [4_000_000, 2_000_000]
        );
        let completions = f.completions.as_ref().unwrap();
        let counts: Vec<u64> = completions
            .classes
            .iter()
            .map(|class| class.flows)
            .collect();
        assert_eq!((counts, completions.unfinished), (vec![1, 1, 2], 1));
        assert_eq!(told.series.started_ns, 77);
        assert_eq!(
            (
                told.series.throughput_mbit.len(),
                told.series.throughput_mbit[7]
            ),
            (40, 60.0)
        );
        assert_eq!(told.series.delay_ms[39], Some(2.0));
        assert_eq!(
            told.complaints,
            ["2 flows were on NewReno at the end because the algorithm sent nothing for too long"]
        );
    }

    #[test]
    fn all_workloads_are_in_the_result() {
        let told = mixed().into_metrics(Duration::from_millis(100), &[]);
        let names: Vec<String> = told.workloads.iter().map(WorkloadMetrics::title).collect();
        assert_eq!(
            names,
            [
                "long: copa",
                "cross: native:cubic",
                "requests: copa",
                "noise: no control"
            ]
        );
        let totals = |of: fn(&WorkloadTotals) -> f64| {
            told.workloads
                .iter()
                .map(|w| of(&w.totals))
                .collect::<Vec<_>>()
        };
        assert_eq!(totals(|t| t.goodput_mbit), [12.0, 24.0, 4.0, 8.0]);
        assert_eq!(totals(|t| t.share), [0.25, 0.5, 2.0 / 24.0, 4.0 / 24.0]);
        assert_eq!(totals(|t| t.count as f64), [2.0, 1.0, 3.0, 0.0]);
        let retransmissions: Vec<_> = told
            .workloads
            .iter()
            .map(|w| w.totals.retransmissions)
            .collect();
        assert_eq!(retransmissions, [Some(6), Some(3), None, None]);
        assert_eq!(told.workloads[1].flows[0].received_bytes, 12_000_000);
        assert!(told.workloads[2].completions.is_some() && told.workloads[1].completions.is_none());
        assert_eq!(
            (told.workloads[2].fell_back, told.workloads[3].failed),
            (2, 9)
        );
        // Copa's two workloads are one row by algorithm.
        let algorithms: Vec<_> = told
            .algorithms
            .iter()
            .map(|a| a.algorithm.as_deref())
            .collect();
        assert_eq!(algorithms, [Some("copa"), Some("native:cubic"), None]);
        assert_eq!(told.algorithms[0].workloads, ["long", "requests"]);
        assert_eq!(
            (
                told.algorithms[0].totals.goodput_mbit,
                told.algorithms[0].totals.count
            ),
            (16.0, 5)
        );
    }

    #[test]
    fn courses_and_flows_are_found_by_workload() {
        let told = mixed().into_metrics(Duration::from_millis(100), &[]);
        let places: Vec<_> = told
            .series
            .workloads
            .iter()
            .map(|w| w.flows.clone())
            .collect();
        assert_eq!(places, [vec![0, 1], vec![2], vec![], vec![]]);
        assert_eq!((told.series.flows.len(), told.series.others.len()), (2, 1));
        assert_eq!(told.series.flow(2).last().unwrap().received, 12_000_000);
        assert!(told.series.flow(3).is_empty());
        // The second flow started after two seconds.
        let course = &told.series.workloads[0].course;
        assert_eq!(
            (course[4], course[8]),
            ((2 * SECOND_NS, 2_000_000), (4 * SECOND_NS, 6_000_000))
        );
        assert_eq!(told.series.workloads[3].course.len(), 2);
    }

    #[test]
    fn one_workload_is_the_contender_itself() {
        let mut record = mixed();
        record.workloads.truncate(1);
        let told = record.into_metrics(Duration::from_millis(100), &[]);
        assert!(
            told.workloads.is_empty()
                && told.algorithms.is_empty()
                && told.series.workloads.is_empty()
        );
        assert_eq!(
            (told.metrics.goodput_mbit, told.series.flows.len()),
            (12.0, 2)
        );
        assert!(told.metrics.completions.is_none());
    }

    #[test]
    fn flows_of_several_compared_workloads_stand_in_the_order_of_their_beginnings() {
        let copa = Contender::ccplane("copa");
        let mut first = bulk(
            "a",
            copa.clone(),
            true,
            vec![flow(0, 4, 100), flow(2, 4, 300)],
        );
        let mut second = bulk("b", copa, true, vec![flow(1, 4, 200)]);
        (first.start_ranks, second.start_ranks) = (vec![0, 2], vec![1]);
        let record = RunRecord {
            span: Duration::from_secs(4),
            warm_up: Duration::ZERO,
            workloads: vec![first, second],
            ..RunRecord::default()
        };
        let told = record.into_metrics(Duration::from_millis(100), &[]);
        let received: Vec<u64> = told
            .metrics
            .flows
            .iter()
            .map(|f| f.received_bytes)
            .collect();
        assert_eq!(received, [400, 600, 600]);
        assert_eq!(told.series.workloads[0].flows, [0, 2]);
        assert_eq!(told.series.workloads[1].flows, [1]);
    }

    #[test]
    fn a_flow_held_back_by_its_window_is_told_apart() {
        let mut samples = vec![Sample::default(); 3];
        for (i, s) in samples.iter_mut().enumerate() {
            s.at_ns = i as u64 * 500_000_000;
            s.received = i as u64 * 1_000_000;
            s.tcp.cwnd = 10 * i as u32;
            s.tcp.srtt_us = 20_000;
        }
        samples[2].tcp.rwnd_limited_us = 250_000;
        let f = flow_metrics(&samples, 1_000_000_000);
        assert_eq!(
            (f.received_bytes, f.goodput_mbit, f.rwnd_limited),
            (2_000_000, 16.0, 0.25)
        );
        // The first sample precedes the first transmission.
        assert_eq!((f.cwnd_mean, f.srtt_mean_ms), (15.0, 20.0));
    }

    #[test]
    fn flows_are_sorted_into_classes_by_size() {
        let flow = |bytes, ms| ended(0, bytes, ms);
        let flows = [flow(10, 1), flow(1_000, 2), flow(1_001, 4), flow(9_999, 8)];
        let c = completions(&flows, 3, &[Bytes::new(1_000), Bytes::new(5_000)]);
        let counts: Vec<u64> = c.classes.iter().map(|class| class.flows).collect();
        assert_eq!((counts, c.unfinished), (vec![2, 1, 1, 4], 3));
        let labels: Vec<&str> = c.classes.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(labels, ["<= 1kB", "<= 5kB", "> 5kB", "all"]);
        assert_eq!(
            (c.classes[0].mean_ms, c.classes[3].slowdown_p99),
            (1.5, 8.0)
        );
    }
}
