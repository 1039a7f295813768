//! Results of a run for its judge: metrics, and time series of a few hundred points.

use ccplane_report::chart::Axis;
use ccplane_units::stats;
use serde::{Deserialize, Serialize};

/// Samples of each flow, and bins of a link. Fewer lose peaks in a chart; more only take memory.
pub(super) const SAMPLES: u64 = 300;
use crate::metrics;
use crate::result::{ContenderMetrics, ContenderResult, RunResult, Sample};
use crate::sweep::{RunRow, RunTiming};

/// Metrics and time series of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Metrics of the whole run.
    pub figures: ContenderMetrics,
    /// Duration, s.
    pub duration_s: f64,
    /// Rate of the bottleneck, or its mean, Mbit/s.
    pub rate_mbit: f64,
    /// RTT without a queue, ms.
    pub rtt_ms: f64,
    /// Payload of the bottleneck in packets of full size.
    pub delivered: f64,
    /// Throughput of the link in bins of equal length over the run, Mbit/s.
    pub throughput: Vec<f64>,
    /// Mean queueing delay in the same bins, ms.
    pub delay: Vec<Option<f64>>,
    /// Goodput of every flow without end in bins of equal length, Mbit/s, in the order of starts.
    pub flows: Vec<Vec<f64>>,
    /// Complaints of the datapath.
    pub complaints: Vec<String>,
    /// Complaints that are failures of an algorithm.
    #[serde(default)]
    pub own: Vec<String>,
    /// Row of the run in a table, without its identity.
    #[serde(default)]
    pub row: RunRow,
}

impl Measured {
    /// Returns the results of the first contender.
    pub(crate) fn of(result: RunResult) -> Measured {
        let setup = result.setup;
        let Some(contender) = result.contenders.into_iter().next() else {
            return Measured::default();
        };
        let row = RunRow::new("", &contender, false, RunTiming::default());
        let span = setup.duration_s * 1e9;
        let flows = |c: &ContenderResult| {
            c.series
                .flows
                .iter()
                .map(|flow| goodputs(flow, span))
                .collect()
        };
        let delivered: f64 = contender.series.throughput_mbit.iter().sum();
        Measured {
            duration_s: setup.duration_s,
            rate_mbit: setup.rate_mbit,
            rtt_ms: setup.rtt_ms,
            delivered: delivered * 1e6 / 8.0 * contender.series.bin_ns as f64 / 1e9 / 1_500.0,
            flows: flows(&contender),
            throughput: thin(&contender.series.throughput_mbit, mean),
            delay: thin(&contender.series.delay_ms, |bins| {
                stats::mean(bins.iter().flatten().copied())
            }),
            complaints: [&contender.audit.complaints[..], &contender.audit.own].concat(),
            own: contender.audit.own,
            row,
            figures: contender.metrics,
        }
    }

    /// Returns the results as they are read from a file. The last bit of a number may differ from
    /// the written one, and an interrupted evaluation must give the same results as any other.
    pub(super) fn kept(self) -> Measured {
        let text = serde_json::to_string(&self);
        text.ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or(self)
    }

    /// Returns the goodput of a flow between two fractions of the run, Mbit/s.
    pub(crate) fn goodput(&self, flow: usize, from: f64, to: f64) -> f64 {
        self.flows
            .get(flow)
            .map_or(0.0, |bins| mean(window(bins, from, to)))
    }

    /// Returns the utilisation of the link between two fractions of the run.
    pub(crate) fn utilisation(&self, from: f64, to: f64) -> f64 {
        if self.rate_mbit > 0.0 {
            mean(window(&self.throughput, from, to)) / self.rate_mbit
        } else {
            0.0
        }
    }

    /// Returns the mean queueing delay between two fractions of the run, ms.
    pub(super) fn delay(&self, from: f64, to: f64) -> f64 {
        let known: Vec<f64> = window(&self.delay, from, to)
            .iter()
            .flatten()
            .copied()
            .collect();
        mean(&known)
    }

    /// Returns the share of packets that the queue dropped.
    pub(crate) fn dropped(&self) -> f64 {
        let drops = self.figures.queue_drops as f64;
        if drops > 0.0 {
            drops / (drops + self.delivered)
        } else {
            0.0
        }
    }

    /// Returns the 99th percentile of the slowdowns of completed flows, of all sizes or of the
    /// smallest class.
    pub(super) fn slowdown_p99(&self, smallest: bool) -> f64 {
        let classes = self
            .figures
            .completions
            .as_ref()
            .map(|c| c.classes.as_slice())
            .unwrap_or_default();
        let class = if smallest {
            classes.first()
        } else {
            classes.last()
        };
        class.map_or(0.0, |class| class.slowdown_p99)
    }

    /// Returns the first fraction of the run, from `after` on, at which `width` bins have a mean of
    /// at least `level`.
    pub(crate) fn reached(bins: &[f64], level: f64, width: usize, after: f64) -> Option<f64> {
        let first = (after * bins.len() as f64) as usize;
        bins.windows(width.max(1))
            .enumerate()
            .skip(first)
            .find(|(_, window)| mean(window) >= level)
            .map(|(i, _)| i as f64 / bins.len() as f64)
    }

    /// Returns the axis of a chart over time.
    pub(super) fn time(&self) -> Axis {
        Axis::linear("time, s").with_range(0.0, self.duration_s.max(f64::MIN_POSITIVE))
    }

    /// Returns the throughput of the link over time, for a chart.
    pub(super) fn course(&self) -> Vec<(f64, f64)> {
        points(&self.throughput, self.duration_s)
    }

    /// Returns the goodput of a flow over time, smoothed over five bins, for a chart.
    pub(super) fn flow_course(&self, flow: usize) -> Vec<(f64, f64)> {
        let bins = self.flows.get(flow).map_or(&[][..], Vec::as_slice);
        points(&metrics::smooth(bins, 2), self.duration_s)
    }

    /// Returns the queueing delay over time, for a chart.
    pub(super) fn delay_course(&self) -> Vec<(f64, Option<f64>)> {
        let step = self.duration_s / self.delay.len().max(1) as f64;
        (0..)
            .zip(&self.delay)
            .map(|(i, ms)| ((f64::from(i) + 0.5) * step, *ms))
            .collect()
    }
}

fn points(bins: &[f64], duration_s: f64) -> Vec<(f64, f64)> {
    let step = duration_s / bins.len().max(1) as f64;
    (0..)
        .zip(bins)
        .map(|(i, y)| ((f64::from(i) + 0.5) * step, *y))
        .collect()
}

/// Returns the bins between two fractions of the run.
fn window<T>(bins: &[T], from: f64, to: f64) -> &[T] {
    let at = |share: f64| (share * bins.len() as f64).round() as usize;
    bins.get(at(from)..at(to).min(bins.len()))
        .unwrap_or_default()
}

/// Returns the mean, 0 without values.
pub(super) fn mean(values: &[f64]) -> f64 {
    stats::mean(values.iter().copied()).unwrap_or(0.0)
}

/// Combines neighbouring bins to at most [`SAMPLES`].
fn thin<T, U>(bins: &[T], together: impl Fn(&[T]) -> U) -> Vec<U> {
    let each = bins.len().div_ceil(SAMPLES as usize).max(1);
    bins.chunks(each).map(together).collect()
}

/// Returns the goodput of a flow in bins of equal length over the run, Mbit/s.
fn goodputs(samples: &[Sample], span_ns: f64) -> Vec<f64> {
    let width = span_ns / SAMPLES as f64;
    let mut at = 0;
    let mut had = 0;
    (1..=SAMPLES)
        .map(|bin| {
            let until = bin as f64 * width + 0.5;
            while samples.get(at).is_some_and(|s| s.at_ns as f64 <= until) {
                at += 1;
            }
            let now = at
                .checked_sub(1)
                .and_then(|i| samples.get(i))
                .map_or(0, |s| s.received);
            let mbit = (now - had) as f64 * 8e3 / width;
            had = now;
            mbit
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_counts_from_when_it_begins() {
        let sample = |s: u64, received| Sample {
            at_ns: s * 1_000_000_000,
            received,
            ..Sample::default()
        };
        // 300 s in bins of 1 s: 1 MB a second from 100 s on.
        let samples: Vec<Sample> = (100..=300)
            .map(|s| sample(s, (s - 100) * 1_000_000))
            .collect();
        let measured = Measured {
            flows: vec![goodputs(&samples, 300e9)],
            duration_s: 300.0,
            ..Measured::default()
        };
        assert_eq!(measured.flows[0].len(), 300);
        assert_eq!(measured.goodput(0, 0.0, 1.0 / 3.0), 0.0);
        assert_eq!(measured.goodput(0, 0.5, 1.0), 8.0);
        assert_eq!(measured.goodput(1, 0.0, 1.0), 0.0);
        assert_eq!(
            Measured::reached(&measured.flows[0], 7.9, 5, 0.0),
            Some(1.0 / 3.0)
        );
        assert_eq!(Measured::reached(&measured.flows[0], 9.0, 5, 0.0), None);
    }

    #[test]
    fn bins_are_put_together() {
        let bins: Vec<f64> = (0..600).map(f64::from).collect();
        let thinned = thin(&bins, mean);
        assert_eq!((thinned.len(), thinned[0], thinned[299]), (300, 0.5, 598.5));
        assert_eq!(thin(&[1.0, 2.0], mean), [1.0, 2.0]);
    }
}
