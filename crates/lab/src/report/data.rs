//! What the page's script draws: series on common grids, rounded to what a picture can show.

use serde_json::{Value, json};

use super::MAX_FLOWS;
use crate::metrics;
use crate::result::{ContenderResult, RunResult, Setup};

/// Bins that the throughput's line averages over on either side; the CDF takes the bins as they are.
pub(super) const SMOOTH_REACH: usize = 2;

/// Points along a line; beyond that a page of 1,200 pixels shows no more, and a long run would make a page of many MB.
const MAX_POINTS: usize = 3_000;

/// Shares at which a distribution is drawn: a pixel is a fifth of a percent.
const ECDF_POINTS: usize = 1_001;

/// The segment size that guides in segments assume: an Ethernet MTU without IPv4 and TCP headers and time stamps.
const SEGMENT: f64 = 1448.0;

/// All of it.
pub(super) fn data(result: &RunResult) -> Value {
    let setup = &result.setup;
    let bins = result
        .contenders
        .iter()
        .map(|c| c.series.throughput_mbit.len())
        .max()
        .unwrap_or(0);
    let bin_step = bins.div_ceil(MAX_POINTS).max(1);
    let grid = (setup.duration_s * 1e3 / setup.sample_ms.max(1.0)).ceil().max(1.0) as usize;
    let sample_step = grid.div_ceil(MAX_POINTS).max(1) as f64 * setup.sample_ms.max(1.0) / 1e3;
    let samples = (setup.duration_s / sample_step).ceil() as usize + 1;
    let bytes_per_ms = setup.rate_mbit * 125.0;
    let segments = |bytes: u64| bytes as f64 / (SEGMENT + 52.0);
    let flow_bin = flow_bin_s(setup);
    let flow_bins = if setup.flows > 1 {
        (setup.duration_s / flow_bin) as usize
    } else {
        0
    };
    let contender = |c: &ContenderResult| {
        let flows = c.series.flows.get(..MAX_FLOWS).unwrap_or(&c.series.flows);
        let smoothed = metrics::smooth(&c.series.throughput_mbit, SMOOTH_REACH);
        let thin = |values: Vec<Value>| -> Vec<Value> { values.into_iter().step_by(bin_step).collect() };
        json!({
            "label": c.label,
            "algorithm": c.algorithm,
            "native": c.native,
            "cwnd": flows.iter().map(|f| on_grid(f, sample_step, samples)).collect::<Vec<_>>(),
            "goodput": flows.iter().map(|f| goodputs(f, flow_bin, flow_bins)).collect::<Vec<_>>(),
            "smoothed": thin(smoothed.iter().map(|v| round(*v, 3)).collect()),
            "throughput_ecdf": ecdf(&throughput(c)),
            "delay_ecdf": ecdf(&delay(c)),
            "fct_ecdf": ecdf(&metrics::Distribution::new(c.series.completed.iter().map(|f| f.took_ns as f64 / 1e6))),
            "slowdown_ecdf": ecdf(&metrics::Distribution::new(c.series.completed.iter().map(|f| f.slowdown()))),
            "stamped": stamped(c),
            "delay": thin(c.series.delay_ms.iter().map(|v| v.map_or(Value::Null, |v| round(v, 4))).collect()),
        })
    };
    json!({
        "setup": {
            "flows": setup.flows,
            "rate_mbit": setup.rate_mbit,
            "bdp_segments": round(segments(setup.bdp_bytes), 1),
            "full_segments": setup.queue_bytes.map(|q| round(segments(setup.bdp_bytes + q), 1)),
            "full_delay_ms": setup.queue_bytes.filter(|_| bytes_per_ms > 0.0).map(|q| round(q as f64 / bytes_per_ms, 3)),
        },
        "sample_s": (0..samples).map(|i| round(i as f64 * sample_step, 4)).collect::<Vec<_>>(),
        "flow_s": (0..flow_bins).map(|i| round((i as f64 + 0.5) * flow_bin, 4)).collect::<Vec<_>>(),
        "bin_s": (0..bins).step_by(bin_step).map(|i| round((i as f64 + 0.5) * setup.bin_ms / 1e3, 4)).collect::<Vec<_>>(),
        "contenders": result.contenders.iter().map(contender).collect::<Vec<_>>(),
    })
}

/// The empirical distribution function as its values at up to [`ECDF_POINTS`] evenly spaced shares, the smallest and
/// the largest value included.
fn ecdf(distribution: &metrics::Distribution) -> Vec<Value> {
    let n = distribution.len().min(ECDF_POINTS);
    let share = |i: usize| if n > 1 { i as f64 / (n - 1) as f64 } else { 1.0 };
    (0..n)
        .filter_map(|i| distribution.quantile(share(i)))
        .map(|v| round(v, 4))
        .collect()
}

/// Bins of the flows' goodput: wide enough that each flow has some packets in each.
pub(super) fn flow_bin_s(setup: &Setup) -> f64 {
    (setup.bin_ms.max(100.0) / 1e3).max(setup.duration_s / MAX_POINTS as f64)
}

/// A flow's goodput, Mbit/s, in `bins` of `width` seconds.
fn goodputs(flow: &[crate::result::Sample], width: f64, bins: usize) -> Vec<Value> {
    let mut at = 0;
    let mut last = (0, 0);
    (1..=bins)
        .map(|bin| {
            let until = (bin as f64 * width * 1e9) as u64;
            while flow.get(at + 1).is_some_and(|s| s.at_ns <= until) {
                at += 1;
            }
            let now = flow.get(at).map_or(last, |s| (s.at_ns, s.received));
            let rate = metrics::mbits(now.1.saturating_sub(last.1), now.0.saturating_sub(last.0));
            last = now;
            round(rate, 3)
        })
        .collect()
}

/// The windows on a grid of `step` seconds: the latest sample at or before each point, nothing before the first.
fn on_grid(flow: &[crate::result::Sample], step: f64, points: usize) -> Vec<Option<u32>> {
    let mut at = 0;
    (0..points)
        .map(|i| {
            let until = ((i as f64 + 0.5) * step * 1e9) as u64;
            while flow.get(at).is_some_and(|s| s.at_ns <= until) {
                at += 1;
            }
            at.checked_sub(1).and_then(|last| flow.get(last)).map(|s| s.tcp.cwnd)
        })
        .collect()
}

pub(super) fn throughput(c: &ContenderResult) -> metrics::Distribution {
    metrics::Distribution::new(c.series.throughputs())
}

pub(super) fn delay(c: &ContenderResult) -> metrics::Distribution {
    metrics::Distribution::new(c.series.delays())
}

/// Of the packets with time stamps as many as a picture can show: time, and both delays in ms.
fn stamped(c: &ContenderResult) -> Value {
    let packets = &c.series.stamped;
    let step = packets.len().div_ceil(MAX_POINTS).max(1);
    let of = |what: fn(&crate::result::StampedPacket) -> f64, digits: u32| -> Vec<Value> {
        packets.iter().step_by(step).map(|p| round(what(p), digits)).collect()
    };
    json!({
        "s": of(|p| p.at_ns as f64 / 1e9, 6),
        "stamps": of(|p| p.measured_ns as f64 / 1e6, 4),
        "link": of(|p| p.link_ns as f64 / 1e6, 4),
    })
}

/// For a file of figures or a picture; null for what is no number.
pub(crate) fn round(value: f64, digits: u32) -> Value {
    let scale = f64::from(10u32.pow(digits));
    json!((value * scale).round() / scale)
}
