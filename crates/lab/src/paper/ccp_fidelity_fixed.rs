//! CCP, SIGCOMM 2018, section 7.1, "fixed": do Reno and Cubic outside the datapath behave as they do in the kernel?
//!
//! For each of the two algorithms n runs of ccplane's and 2n of the kernel's own, interleaved so that a disturbance of
//! the machine meets all alike. Throughput and queueing delay are binned by the round-trip time, as the paper does, and
//! pooled over runs. The distance between ccplane and native is the mean of the Kolmogorov-Smirnov distances between
//! ccplane's n runs and every choice of n of the 2n native runs; native against native is the mean over every split of
//! the 2n native runs into two halves. So both compare n runs with n runs, and neither hangs on one lucky choice.

use std::fmt::Write;

use ccplane_algorithms::Registry;
use ccplane_emu::Timing;
use ccplane_qdisc::{LineSpec, LossModel, QueueSpec, Size};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Experiment, Options, Outcome, keep, kept};
use crate::error::Error;
use crate::metrics::{self, Distribution};
use crate::result::{ContenderResult, RunResult, Series, Setup};
use crate::run::Progress;
use crate::{Contender, files, run, table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp-fidelity-fixed",
    title: "Reno and Cubic outside the datapath against the kernel's own, on a fixed-rate link",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.1, figures 8 to 10",
    takes: "16 minutes; 2 minutes with --quick",
    run: fidelity,
};

const ALGORITHMS: [&str; 2] = ["reno", "cubic"];

/// What a run leaves.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    setup: Setup,
    result: ContenderResult,
    /// The result leaves it out where it is written for people.
    series: Series,
}

fn fidelity(options: &Options, registry: &Registry, progress: &mut dyn Progress) -> Result<Outcome, Error> {
    // In a hurry: 2 × (2 + 4) runs of 8 s.
    let (runs, duration) = if options.quick {
        (2, Duration::from_secs(8))
    } else {
        (5, Duration::from_secs(30))
    };
    let schedule = schedule(runs);
    let mut parts: Vec<(Contender, Part)> = Vec::new();
    let mut steps = Steps {
        inner: progress,
        index: 0,
        of: schedule.len(),
    };
    for (contender, n) in &schedule {
        let experiment = experiment(contender, duration, options);
        let name = format!("{}-{n}.json", contender.to_string().replace(':', "-"));
        let key = format!(
            "{} {} {contender} {duration}",
            env!("CARGO_PKG_VERSION"),
            experiment.line_name
        );
        let directory = options.directory.join("parts");
        let part = match kept::<Part>(&directory, &name, &key) {
            // A disturbed one is worth another try.
            Some(part) if part.result.audit.sound => part,
            _ => {
                let RunResult { setup, contenders, .. } = run(&experiment, registry, &mut steps)?;
                let result = contenders.into_iter().next().ok_or(Error::NoContender)?;
                let part = Part {
                    setup,
                    series: result.series.clone(),
                    result,
                };
                keep(&directory, &name, &key, &part)?;
                part
            }
        };
        steps.index += 1;
        parts.push((contender.clone(), part));
    }

    let mut figures = serde_json::Map::new();
    for algorithm in ALGORITHMS {
        let of = |native: bool| {
            parts
                .iter()
                .filter(move |(c, _)| c.algorithm() == algorithm && c.is_native() == native)
        };
        let collect = |native, values: fn(&Part) -> Vec<f64>| of(native).map(|(_, p)| values(p)).collect::<Vec<_>>();
        for (what, values) in [("throughput", throughput as fn(&Part) -> Vec<f64>), ("delay", delay)] {
            let (ours, native) = (collect(false, values), collect(true, values));
            let (distance, floor) = (against(&ours, &native), within(&native));
            figures.insert(format!("ks_{what}_{algorithm}"), rounded(distance));
            figures.insert(format!("ks_{what}_{algorithm}_native"), rounded(floor));
        }
    }
    let unsound = parts.iter().filter(|(_, p)| !p.result.audit.sound).count();
    figures.insert("runs".into(), json!(runs));
    figures.insert("run_s".into(), json!(duration.as_secs_f64()));
    figures.insert("unsound_runs".into(), json!(unsound));

    let result = RunResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        note: format!(
            "{runs} runs of each of ccplane's and {} of each native one. The distributions are of all of them; windows, \
             throughput and delay over time and the table are of the first of each.",
            2 * runs
        ),
        title: None,
        digest: None,
        setup: parts.first().map(|(_, part)| part.setup.clone()).unwrap_or_default(),
        contenders: shown(&parts),
    };
    let page = files::write(&result, &options.directory).map_err(Error::Write)?;
    let text = text(&figures, &parts, runs, duration, unsound);
    Ok(Outcome { figures, text, page })
}

/// One of each for the page: the first run's course, the distributions of all.
fn shown(parts: &[(Contender, Part)]) -> Vec<ContenderResult> {
    let one = |algorithm: &'static str, native: bool| {
        let mut same = parts
            .iter()
            .filter(move |(c, _)| c.algorithm() == algorithm && c.is_native() == native);
        let all = same.clone().map(|(_, part)| part);
        let pooled = (
            all.clone().flat_map(throughput).collect(),
            all.flat_map(delay).collect(),
        );
        let (_, first) = same.next()?;
        let series = Series {
            pooled: Some(pooled),
            ..first.series.clone()
        };
        Some(ContenderResult {
            series,
            ..first.result.clone()
        })
    };
    [false, true]
        .iter()
        .flat_map(|native| ALGORITHMS.iter().filter_map(move |a| one(a, *native)))
        .collect()
}

/// Who runs when: of each algorithm native, ccplane, native, in rounds.
fn schedule(runs: usize) -> Vec<(Contender, usize)> {
    let native = |name: &str| Contender::Native { name: name.to_owned() };
    let ours = |name: &str| Contender::Ccplane {
        name: name.to_owned(),
        parameters: Vec::new(),
    };
    (0..runs)
        .flat_map(|n| {
            ALGORITHMS
                .iter()
                .flat_map(move |a| [(native(a), 2 * n), (ours(a), n), (native(a), 2 * n + 1)])
        })
        .collect()
}

fn experiment(contender: &Contender, duration: Duration, options: &Options) -> crate::Experiment {
    crate::Experiment {
        contenders: vec![contender.clone()],
        line: LineSpec::Constant(Rate::from_bytes_per_sec(96_000_000 / 8)),
        line_name: "96mbit".to_owned(),
        rtt: Duration::from_millis(20),
        queue: QueueSpec::DropTail(Size::MilliBdp(1000)),
        queue_name: "droptail:1bdp".to_owned(),
        loss: LossModel::NONE,
        jitter: Duration::ZERO,
        reorder: false,
        timing: Timing::Precise,
        seed: 1,
        flows: 1,
        duration,
        sample_every: Duration::from_millis(10),
        command: options.command.clone(),
    }
}

fn throughput(part: &Part) -> Vec<f64> {
    part.series.throughputs()
}

fn delay(part: &Part) -> Vec<f64> {
    part.series.delays()
}

fn pool<'a>(runs: impl IntoIterator<Item = &'a Vec<f64>>) -> Distribution {
    Distribution::new(runs.into_iter().flatten().copied())
}

/// The mean distance between `ours` and as many of `native`, over every choice of them.
fn against(ours: &[Vec<f64>], native: &[Vec<f64>]) -> Option<f64> {
    let all = pool(ours);
    mean(choices(native.len(), ours.len()).map(|chosen| all.ks(&pool(chosen.iter().filter_map(|i| native.get(*i))))))
}

/// The mean distance between the two halves, over every split of `native` into halves.
fn within(native: &[Vec<f64>]) -> Option<f64> {
    mean(choices(native.len(), native.len() / 2).map(|chosen| {
        let half = |inside: bool| {
            pool(
                native
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| chosen.contains(i) == inside)
                    .map(|(_, run)| run),
            )
        };
        half(true).ks(&half(false))
    }))
}

/// To four digits: more is noise.
fn rounded(value: Option<f64>) -> serde_json::Value {
    value.map_or(serde_json::Value::Null, |v| json!((v * 1e4).round() / 1e4))
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    Distribution::new(values.flatten()).mean()
}

/// Every way to choose `k` of `0..n`; n is at most a dozen here.
fn choices(n: usize, k: usize) -> impl Iterator<Item = Vec<usize>> {
    (0u32..1 << n.min(20))
        .filter(move |set| set.count_ones() as usize == k)
        .map(move |set| (0..n).filter(|i| set >> i & 1 == 1).collect())
}

fn text(
    figures: &serde_json::Map<String, serde_json::Value>,
    parts: &[(Contender, Part)],
    runs: usize,
    duration: Duration,
    unsound: usize,
) -> String {
    let figure = |key: &str| figures.get(key).and_then(serde_json::Value::as_f64);
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.3}"));
    let mut rows = Vec::new();
    for algorithm in ALGORITHMS {
        for what in ["throughput", "delay"] {
            let key = format!("ks_{what}_{algorithm}");
            let (distance, floor) = (figure(&key), figure(&format!("{key}_native")));
            let verdict = match (distance, floor) {
                (Some(d), Some(f)) if d <= (1.5 * f).max(0.05) => "met",
                (Some(_), Some(_)) => "missed",
                _ => "–",
            };
            rows.push(vec![
                format!("{algorithm} {what}"),
                shown(distance),
                shown(floor),
                verdict.to_owned(),
            ]);
        }
    }
    let headings = [
        "Kolmogorov-\nSmirnov distance",
        "ccplane\nto native",
        "native\nto native",
        "aim",
    ];
    let mut text = table::render(&headings, &rows);
    text += "\n";
    let mut rows = Vec::new();
    for algorithm in ALGORITHMS {
        for native in [false, true] {
            let of = || {
                parts
                    .iter()
                    .filter(|(c, _)| c.algorithm() == algorithm && c.is_native() == native)
            };
            let median = |value: fn(&ContenderResult) -> f64| {
                metrics::median(&of().map(|(_, p)| value(&p.result)).collect::<Vec<_>>()).unwrap_or(0.0)
            };
            rows.push(vec![
                of().next().map(|(c, _)| c.to_string()).unwrap_or_default(),
                of().count().to_string(),
                format!("{:.2}", median(|r| r.figures.goodput_mbit)),
                format!("{:.1}", median(|r| r.figures.utilisation * 100.0)),
                format!("{:.2}", median(|r| r.figures.delay_mean_ms)),
                format!("{:.2}", median(|r| r.figures.delay_p95_ms)),
                format!("{:.0}", median(|r| r.figures.retransmissions as f64)),
            ]);
        }
    }
    text += &table::render(
        &[
            "medians",
            "runs",
            "goodput\nMbit/s",
            "link use\n%",
            "delay\nmean ms",
            "\np95",
            "retrans\nsegments",
        ],
        &rows,
    );
    let mut words = format!(
        "The paper (its statement, not ours): \"Overall, both distributions are close, suggesting that CCP's \
         implementations make the same congestion control decisions as the kernel\" (section 7.1.1); it gives no number \
         for the distance. Our aim: at most 1.5 times native against native, or 0.05.\n\
         Where this deviates from the paper: {runs} runs of {} s for ccplane and twice as many for native (paper: twenty \
         of one minute); ccplane's emulator instead of Mahimahi, with the ACK path delayed but not rate-limited; this \
         host's kernel instead of Linux 4.14; throughput counted at the link's exit, slow start included.\n",
        duration.as_secs_f64()
    );
    if unsound > 0 {
        let _ = writeln!(
            words,
            "{unsound} of {} runs are not sound by the emulator's own audit (this machine was busy), and the distances \
             say less than they could. The same command again repeats only those.",
            parts.len()
        );
    }
    text + "\n" + &table::wrap(&words, 100)
}

/// Places each run of the schedule among all, for a progress bar.
struct Steps<'a> {
    inner: &'a mut dyn Progress,
    index: usize,
    of: usize,
}

impl Progress for Steps<'_> {
    fn begin(&mut self, contender: &str, _index: usize, _of: usize) {
        self.inner.begin(contender, self.index, self.of);
    }
    fn step(&mut self, share: f64, goodput_mbit: f64) {
        self.inner.step(share, goodput_mbit);
    }
    fn end(&mut self, result: &ContenderResult) {
        self.inner.end(result);
    }
    fn cancelled(&self) -> bool {
        self.inner.cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_all_and_each_once() {
        let of_four: Vec<_> = choices(4, 2).collect();
        assert_eq!(of_four, [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]]);
        assert_eq!(choices(10, 5).count(), 252);
    }

    #[test]
    fn the_same_runs_are_at_no_distance_and_disjoint_ones_at_one() {
        let low = vec![vec![1.0, 2.0], vec![1.0, 2.0]];
        let high = vec![vec![8.0, 9.0]; 4];
        assert_eq!(against(&low, &high), Some(1.0));
        assert_eq!(within(&high), Some(0.0));
        // Of two native runs that share nothing every split is disjoint; ours is half like either.
        let native = vec![vec![1.0], vec![5.0]];
        assert_eq!(within(&native), Some(1.0));
        assert_eq!(against(&[vec![1.0, 5.0]], &native), Some(0.5));
    }

    #[test]
    fn native_runs_twice_as_often_and_is_spread_over_the_time() {
        let schedule = schedule(5);
        assert_eq!(schedule.len(), 30);
        for algorithm in ALGORITHMS {
            let native: Vec<usize> = schedule
                .iter()
                .filter(|(c, _)| c.is_native() && c.algorithm() == algorithm)
                .map(|(_, n)| *n)
                .collect();
            assert_eq!(native, (0..10).collect::<Vec<_>>());
        }
    }
}
