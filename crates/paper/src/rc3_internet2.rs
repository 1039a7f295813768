//! Simulations of RC3, sections 4 and 5.2: a wide-area network of routers and hosts, and each run
//! compared with plain TCP under the same flows. `papers/rc3/internet2.py` evaluates them. A
//! scenario has neither networks scaled in this way nor flows with and without RC3 in one run.

mod net;
mod run;
mod start;

use std::collections::BTreeMap;

use ccplane_algorithms::Registry;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::{Error, Progress};
use ccplane_transport::Rc3;
use ccplane_units::Duration;
use serde::Serialize;

use self::net::{Backbone, Net};
use self::run::{Done, Flow, Run, Sizes};
use self::start::Start;
use super::program::{Program, Tables};
use super::simulations::{self, Job};
use super::{Datapath, Options};

pub(super) const PROGRAM: Program = Program {
    script: "rc3/internet2",
    on: &[Datapath::Sim],
    repeats: None,
    measure,
};

/// Row of the table of runs. `tcp_…` are results of the run with plain TCP.
#[derive(Serialize)]
struct RunRow {
    run: String,
    network: &'static str,
    access_mbit: u64,
    delay_percent: u64,
    loss_ppm: u64,
    strips: bool,
    sizes: &'static str,
    load: u64,
    share: u64,
    first: String,
    second: String,
    measured_s: f64,
    drops: u64,
    tcp_drops: u64,
    sent: u64,
    tcp_sent: u64,
    timeouts: u64,
    tcp_timeouts: u64,
    stopped: u64,
}

/// Row of the table of sizes: flows of a group and a size that ended in both runs. The group `both`
/// has all flows, and a row without a size has all sizes.
#[derive(Serialize)]
struct SizeRow {
    run: String,
    group: &'static str,
    bytes: Option<u64>,
    flows: usize,
    mean_ms: Option<f64>,
    tcp_mean_ms: Option<f64>,
    p99_ms: Option<f64>,
    tcp_p99_ms: Option<f64>,
}

fn measure(
    options: &Options,
    _: Datapath,
    _: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let runs = runs(options.quick);
    let mut jobs: Vec<Run> = Vec::new();
    for job in runs.iter().flat_map(|run| [*run, run.plain()]) {
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    }
    let done = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let find = |run: &Run| {
        let found = jobs.iter().zip(&done).find(|(job, _)| *job == run);
        found.map(|(_, done)| done)
    };
    let (mut rows, mut sizes) = (Vec::new(), Vec::new());
    for run in &runs {
        if let Some((done, tcp)) = find(run).zip(find(&run.plain())) {
            rows.push(row(run, done, tcp));
            sizes.extend(size_rows(&run.name(), done, tcp));
        }
    }
    let mut tables = Tables::default();
    tables.add("runs", &rows)?;
    tables.add("sizes", &sizes)?;
    Ok(tables)
}

/// Returns all runs other than those with plain TCP.
fn runs(quick: bool) -> Vec<Run> {
    let (long, short) = match quick {
        true => (Duration::from_millis(300), Duration::from_millis(100)),
        false => (Duration::from_secs(3), Duration::from_secs(1)),
    };
    let base = Run::new(Start::Rc3, long);
    let mixed = Run {
        share: 50,
        starts: (Start::Rc3, Start::Tcp),
        ..base
    };
    let stripped = [Start::Rc3, Start::Blind].map(|start| Run {
        net: Net {
            strips: true,
            ..Net::BASE
        },
        starts: (start, Start::Tcp),
        ..mixed
    });
    let eleven = Run {
        sizes: Sizes::Eleven,
        ..base
    };
    let mut runs = vec![base, eleven, mixed];
    runs.extend(stripped);
    if !quick {
        runs.extend(stripped.map(|run| Run {
            load: 70,
            measured: short,
            ..run
        }));
    }
    let base = Run::new(Start::Rc3, short);
    let with = |net: Net| Run { net, ..base };
    let pick = |full: &'static [u64], quick_one: &'static [u64]| match quick {
        true => quick_one,
        false => full,
    };
    let loads = pick(&[10, 20, 30, 40, 50, 60, 70, 80], &[60]);
    runs.extend(loads.iter().map(|load| Run {
        load: *load,
        ..base
    }));
    for access_mbit in pick(&[10, 100, 1_000, 10_000], &[100]).iter().copied() {
        runs.push(Run {
            // About the same number of packets for each rate.
            measured: match access_mbit {
                10_000 => Duration::from_nanos(short.as_nanos() / 8),
                _ => short * (1_000 / access_mbit).min(10),
            },
            ..with(Net {
                access_mbit,
                ..Net::BASE
            })
        });
    }
    let delays = pick(&[5, 25, 100, 200], &[25]).iter();
    runs.extend(delays.map(|delay_percent| {
        with(Net {
            delay_percent: *delay_percent,
            ..Net::BASE
        })
    }));
    let losses = pick(&[10, 100, 1_000, 10_000], &[1_000]).iter();
    runs.extend(losses.map(|loss_ppm| {
        with(Net {
            loss_ppm: *loss_ppm,
            ..Net::BASE
        })
    }));
    let backbones = match quick {
        true => &[Backbone::RedClara][..],
        false => &Backbone::ALL,
    };
    runs.extend(backbones.iter().map(|backbone| {
        with(Net {
            backbone: *backbone,
            ..Net::BASE
        })
    }));
    let mut starts = vec![
        Start::Levels(1),
        Start::Window(10),
        Start::Window(50),
        Start::Jump,
        Start::Rcp,
    ];
    if !quick {
        starts.extend((2..Rc3::LEVELS_MAX).map(Start::Levels));
        starts.extend([Start::Paced, Start::Blind]);
    }
    runs.extend(starts.iter().map(|start| Run::new(*start, short)));
    runs.push(Run {
        share: 10,
        starts: (Start::High, Start::Low),
        ..base
    });
    // The baseline is a point of several sweeps.
    let mut distinct: Vec<Run> = Vec::new();
    for run in runs {
        if !distinct.contains(&run) {
            distinct.push(run);
        }
    }
    distinct
}

fn row(run: &Run, done: &Done, tcp: &Done) -> RunRow {
    RunRow {
        run: run.name(),
        network: run.net.backbone.name(),
        access_mbit: run.net.access_mbit,
        delay_percent: run.net.delay_percent,
        loss_ppm: run.net.loss_ppm,
        strips: run.net.strips,
        sizes: run.sizes.name(),
        load: run.load,
        share: run.share,
        first: run.starts.0.name(),
        second: run.starts.1.name(),
        measured_s: run.measured.as_secs_f64(),
        drops: done.drops,
        tcp_drops: tcp.drops,
        sent: done.sent,
        tcp_sent: tcp.sent,
        timeouts: done.timeouts,
        tcp_timeouts: tcp.timeouts,
        stopped: done.stopped,
    }
}

/// Compares the flows of a run with the same flows under plain TCP.
fn size_rows(run: &str, done: &Done, tcp: &Done) -> Vec<SizeRow> {
    let groups = done.groups.iter().zip(&tcp.groups);
    let pairs: Vec<Vec<(u64, f64, f64)>> = groups.map(|(done, tcp)| pairs(done, tcp)).collect();
    let mut named = vec![("both", pairs.concat())];
    named.extend(["first", "second"].into_iter().zip(pairs));
    let mut rows = Vec::new();
    for (group, pairs) in named {
        let mut by_size: BTreeMap<Option<u64>, Vec<(f64, f64)>> = BTreeMap::new();
        for (bytes, ms, tcp_ms) in pairs {
            for size in [None, Some(bytes)] {
                by_size.entry(size).or_default().push((ms, tcp_ms));
            }
        }
        rows.extend(by_size.into_iter().map(|(bytes, times)| {
            let own = Distribution::new(times.iter().map(|times| times.0));
            let tcp = Distribution::new(times.iter().map(|times| times.1));
            SizeRow {
                run: run.to_owned(),
                group,
                bytes,
                flows: times.len(),
                mean_ms: own.mean(),
                tcp_mean_ms: tcp.mean(),
                p99_ms: own.quantile(0.99),
                tcp_p99_ms: tcp.quantile(0.99),
            }
        }));
    }
    rows
}

/// Returns size and times, ms, of the flows that ended in both runs.
fn pairs(done: &[Flow], tcp: &[Flow]) -> Vec<(u64, f64, f64)> {
    let ms = |ns: Option<u64>| Some(ns? as f64 / 1e6);
    let both = done.iter().zip(tcp);
    both.filter_map(|((bytes, own), (_, tcp))| Some((*bytes, ms(*own)?, ms(*tcp)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flows_that_ended_in_both_runs_are_compared() {
        let done = |times: &[Option<u64>]| Done {
            groups: vec![times.iter().map(|ns| (1_460, *ns)).collect()],
            ..Done::default()
        };
        let rows = size_rows(
            "a",
            &done(&[Some(1_000_000), None, Some(3_000_000)]),
            &done(&[Some(2_000_000), Some(1), Some(6_000_000)]),
        );
        let both = rows.iter().find(|row| row.bytes == Some(1_460)).unwrap();
        assert_eq!((both.group, both.flows), ("both", 2));
        assert_eq!((both.mean_ms, both.tcp_mean_ms), (Some(2.0), Some(4.0)));
    }

    #[test]
    fn runs_have_distinct_names() {
        for quick in [true, false] {
            let names: Vec<String> = runs(quick).iter().map(Run::name).collect();
            let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
            assert_eq!(distinct.len(), names.len());
        }
    }
}
