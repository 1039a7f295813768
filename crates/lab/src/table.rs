//! Tables of a run, for a terminal and the report page.

use ccplane_report::{Column, Table, plus_minus};

use crate::result::{
    Columns, Completions, ContenderResult, MeanInterval, RunResult, Spread, TotalsColumns,
    WorkloadMetrics,
};

/// Columns of a run's table: heading, unit, and description for the page's tooltips.
const RUN_COLUMNS: [(&str, &str, &str); 14] = [
    (
        "goodput",
        "Mbit/s",
        "Bytes read by the receiving applications, over all flows.",
    ),
    (
        "share",
        "%",
        "Share of all bytes read by receiving applications in the run, of any sender.",
    ),
    (
        "link use",
        "%",
        "Share of the link's capacity that was used, including headers.",
    ),
    (
        "delay",
        "mean ms",
        "Mean time of delivered packets in the bottleneck's queue, from the link's log.",
    ),
    ("", "p50", "Median queueing delay."),
    ("", "p95", "95th percentile of the queueing delay."),
    ("", "p99", "99th percentile of the queueing delay."),
    ("retrans", "segments", "Retransmitted segments."),
    ("drops", "packets", "Packets dropped by the full queue."),
    (
        "Jain",
        "index",
        "Jain's fairness index of the flows' goodputs; 1 means equal shares.",
    ),
    (
        "flows",
        "or replies",
        "Long flows, and flows or exchanges that completed or were still running.",
    ),
    ("reports", "1/s", "Reports received by the algorithm."),
    (
        "agent",
        "CPU %",
        "CPU time of the algorithm's thread, in percent of one CPU.",
    ),
    (
        "process",
        "CPU %",
        "CPU time of the whole process, including emulator and traffic.",
    ),
];

/// Returns every table of a run, in reading order.
pub fn all(result: &RunResult) -> Vec<Table> {
    let further = [
        of_completions(result),
        of_workload_completions(result),
        of_second_loops(result),
        of_bundles(result),
    ];
    std::iter::once(of_run(result))
        .chain(further.into_iter().flatten())
        .collect()
}

/// Returns the table that ends `ccplane run`: a row per contender, followed by a row per workload
/// if there are several. Columns without values in this run (such as Jain's index with one flow)
/// are left out.
pub fn of_run(result: &RunResult) -> Table {
    let columns = std::iter::once(heading(result)).chain(RUN_COLUMNS.into_iter().map(Column::from));
    let rows = result.contenders.iter().flat_map(|c| {
        let workloads = c.workloads.iter().map(workload_row);
        std::iter::once(contender_row(c)).chain(workloads)
    });
    Table::new(columns, rows.collect()).without_empty_columns()
}

/// Returns the combined table of several runs; each row begins with the run's name.
pub fn of_runs<'r>(runs: impl IntoIterator<Item = (&'r str, &'r RunResult)>) -> Table {
    let first = [Column::from("run"), Column::default()];
    let columns = first
        .into_iter()
        .chain(RUN_COLUMNS.into_iter().map(Column::from));
    let mut rows = Vec::new();
    for (name, result) in runs {
        for (at, c) in result.contenders.iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            rows.push(
                std::iter::once(name.to_owned())
                    .chain(contender_row(c))
                    .collect(),
            );
        }
    }
    Table::new(columns, rows).without_empty_columns()
}

/// Returns the heading of the first column, which names the kind of means over several runs.
fn heading(result: &RunResult) -> Column {
    let spreads = || result.contenders.iter().filter_map(|c| c.spread.as_ref());
    let said = spreads().find(|spread| spread.interval != MeanInterval::Same);
    let Some(spread) = said.or(spreads().next()) else {
        return Column::default();
    };
    let (runs, word) = (
        spread.seeds,
        if result.simulated() {
            "seeds"
        } else {
            "repeats"
        },
    );
    let mean = format!("mean of {runs} {word}");
    let (name, unit, meaning) = match spread.interval {
        MeanInterval::StudentT => (
            mean,
            "± 95 %, Student's t",
            "± is half the 95 % confidence interval of the mean, by Student's t.",
        ),
        MeanInterval::Range => (
            mean,
            "(range of the two)",
            "The values of both runs are in brackets.",
        ),
        MeanInterval::Same => (
            format!("all {runs} {word} identical"),
            "",
            "All runs gave the same results.",
        ),
    };
    (name.as_str(), unit, meaning).into()
}

/// Formats a mean with its interval.
fn near<C>(
    value: f64,
    digits: usize,
    times: f64,
    spread: Option<&Spread<C>>,
    of: fn(&C) -> f64,
) -> String {
    let text = |value: f64| format!("{:.digits$}", value * times);
    let Some(spread) = spread else {
        return text(value);
    };
    match (spread.interval, &spread.low, &spread.high) {
        (MeanInterval::Same, ..) => text(value),
        (MeanInterval::Range, Some(low), Some(high)) => match (text(of(low)), text(of(high))) {
            (low, high) if low == high => text(value),
            (low, high) => format!("{} ({low}–{high})", text(value)),
        },
        _ => plus_minus(value * times, of(&spread.half) * times, digits),
    }
}

/// Returns one cell per column of [`RUN_COLUMNS`], after the contender's name.
fn contender_row(c: &ContenderResult) -> Vec<String> {
    let optional = |value: Option<f64>, digits: usize| {
        value.map_or(Table::EMPTY_CELL.to_owned(), |v| format!("{v:.digits$}"))
    };
    let f = &c.metrics;
    let near = |value: f64, digits: usize, times: f64, of: fn(&Columns) -> f64| {
        near(value, digits, times, c.spread.as_ref(), of)
    };
    let compared = || c.workloads.iter().filter(|w| w.compared).map(|w| &w.totals);
    let several = !c.workloads.is_empty();
    let share = several.then(|| compared().map(|totals| totals.share).sum::<f64>() * 100.0);
    let count = several.then(|| compared().map(|totals| totals.count).sum::<u64>() as f64);
    vec![
        c.label.clone(),
        near(f.goodput_mbit, 2, 1.0, |s| s.goodput_mbit),
        optional(share, 1),
        near(f.utilisation, 1, 100.0, |s| s.utilisation),
        near(f.delay_mean_ms, 2, 1.0, |s| s.delay_mean_ms),
        near(f.delay_p50_ms, 2, 1.0, |s| s.delay_p50_ms),
        near(f.delay_p95_ms, 2, 1.0, |s| s.delay_p95_ms),
        near(f.delay_p99_ms, 2, 1.0, |s| s.delay_p99_ms),
        near(f.retransmissions as f64, 0, 1.0, |s| s.retransmissions),
        near(f.queue_drops as f64, 0, 1.0, |s| s.queue_drops),
        f.jain.map_or(Table::EMPTY_CELL.to_owned(), |jain| {
            near(jain, 3, 1.0, |s| s.jain)
        }),
        optional(count, 0),
        optional(c.host.reports_per_s, 0),
        optional(c.host.agent_cpu_percent, 1),
        optional(c.host.process_cpu_percent, 1),
    ]
}

/// Returns the cells of a workload; cells without a value are empty.
fn workload_row(w: &WorkloadMetrics) -> Vec<String> {
    let t = &w.totals;
    let near = |value: f64, digits: usize, times: f64, of: fn(&TotalsColumns) -> f64| {
        near(value, digits, times, t.spread.as_ref(), of)
    };
    let mut row = vec![String::new(); RUN_COLUMNS.len() + 1];
    let cells = [
        (0, format!("  {}", w.title())),
        (1, near(t.goodput_mbit, 2, 1.0, |s| s.goodput_mbit)),
        (2, near(t.share, 1, 100.0, |s| s.share)),
        (
            8,
            t.retransmissions.map_or(String::new(), |n| {
                near(n as f64, 0, 1.0, |s| s.retransmissions)
            }),
        ),
        (
            10,
            t.jain
                .map_or(String::new(), |jain| near(jain, 3, 1.0, |s| s.jain)),
        ),
        (
            11,
            if t.count > 0 {
                near(t.count as f64, 0, 1.0, |s| s.count)
            } else {
                String::new()
            },
        ),
    ];
    for (at, cell) in cells {
        if let Some(place) = row.get_mut(at) {
            *place = cell;
        }
    }
    row
}

/// Columns of a table of completion times.
const COMPLETION_COLUMNS: [(&str, &str, &str); 8] = [
    ("size", "bytes", "Size of the flow."),
    (
        "flows",
        "finished",
        "Flows that completed before the end of the run.",
    ),
    (
        "time",
        "mean ms",
        "Time from the start to the last byte at the receiver.",
    ),
    ("", "p50", "Median time."),
    ("", "p99", "99th percentile of the time."),
    (
        "slowdown",
        "mean",
        "Completion time relative to the flow alone on the path: its bytes at the path's lowest \
         rate, plus one round trip.",
    ),
    ("", "p50", "Median slowdown."),
    ("", "p99", "99th percentile of the slowdown."),
];

/// Returns the rows of a table of completion times, one cell per column of [`COMPLETION_COLUMNS`]
/// after the label.
fn completion_rows(label: &str, completions: &Completions) -> Vec<Vec<String>> {
    let classes = completions.classes.iter().filter(|class| class.flows > 0);
    let row = |(i, class): (usize, &crate::result::SizeClass)| {
        vec![
            if i == 0 {
                label.to_owned()
            } else {
                String::new()
            },
            class.label.clone(),
            class.flows.to_string(),
            format!("{:.3}", class.mean_ms),
            format!("{:.3}", class.p50_ms),
            format!("{:.3}", class.p99_ms),
            format!("{:.2}", class.slowdown_mean),
            format!("{:.2}", class.slowdown_p50),
            format!("{:.2}", class.slowdown_p99),
        ]
    };
    classes.enumerate().map(row).collect()
}

fn completion_table(first: &str, rows: Vec<Vec<String>>) -> Option<Table> {
    let columns = std::iter::once((first, "", "")).chain(COMPLETION_COLUMNS);
    (!rows.is_empty()).then(|| Table::new(columns, rows))
}

/// Returns the table of the contenders' completion times; `None` if no flow is finite.
pub fn of_completions(result: &RunResult) -> Option<Table> {
    let contenders = result.contenders.iter();
    let rows = contenders
        .filter_map(|c| Some((c.label.as_str(), c.metrics.completions.as_ref()?)))
        .flat_map(|(label, completions)| completion_rows(label, completions));
    completion_table("", rows.collect())
}

/// Returns completion times by workload; `None` if [`of_completions`] already contains all of them.
pub fn of_workload_completions(result: &RunResult) -> Option<Table> {
    let mut rows = Vec::new();
    for c in &result.contenders {
        let ended: Vec<_> = c
            .workloads
            .iter()
            .filter_map(|w| Some((w, w.completions.as_ref()?)))
            .collect();
        if let [(only, _)] = ended.as_slice()
            && only.compared
        {
            continue;
        }
        for (w, completions) in ended {
            rows.extend(completion_rows(
                &format!("{}, {}", c.label, w.title()),
                completions,
            ));
        }
    }
    completion_table("by workload", rows)
}

/// Returns the table of bundles, a row each; `None` if the scenario has none.
pub fn of_bundles(result: &RunResult) -> Option<Table> {
    let share = |share: f64| format!("{:.1}", share * 100.0);
    let known = |ms: Option<f64>| ms.map_or(Table::EMPTY_CELL.to_owned(), |ms| format!("{ms:.1}"));
    let mut rows = Vec::new();
    for c in &result.contenders {
        for b in &c.metrics.bundles {
            rows.push(vec![
                format!("{}, {}", c.label, b.name),
                share(b.open_share),
                share(b.delay_share),
                share(b.passing_share),
                known(b.box_queue_ms),
                known(b.passing_queue_ms),
                format!("{:.1}", b.network_queue_p50_ms),
                format!("{:.1}", b.network_queue_p95_ms),
                b.dropped.to_string(),
                b.missing.to_string(),
                share(b.out_of_order_share),
            ]);
        }
    }
    let headings = [
        "bundle",
        "open\n% of time",
        "delay\n% of time",
        "passing\n% of time",
        "queue in the box\nmean, ms",
        "passing\nmean, ms",
        "in the network\nmedian, ms",
        "in the network\np95, ms",
        "dropped in the box\npackets",
        "lost\npackets",
        "out of order\n%",
    ];
    (!rows.is_empty()).then(|| Table::new(headings, rows))
}

/// Returns the table of second loops, a row for each contender that has one; `None` if the
/// transport has none.
pub fn of_second_loops(result: &RunResult) -> Option<Table> {
    let rows = result.contenders.iter().filter_map(|c| {
        let f = c.metrics.second_loop.as_ref()?;
        // Goodput is a mean over seeds; the second loop's bytes are sums over seeds.
        let seeds = c.spread.as_ref().map_or(1, |spread| spread.seeds);
        let received = c.metrics.goodput_mbit * result.setup.duration_s / 8.0 * seeds as f64;
        let stopped: Vec<String> = f
            .stopped
            .iter()
            .map(|(why, flows)| format!("{flows} {why}"))
            .collect();
        Some(vec![
            c.label.clone(),
            format!("{:.2}", f.delivered_bytes as f64 / 1e6),
            if received > 0.0 {
                format!("{:.1}", f.delivered_bytes as f64 / 1e4 / received)
            } else {
                Table::EMPTY_CELL.to_owned()
            },
            format!("{:.2}", f.sent_bytes as f64 / 1e6),
            f.duplicates.to_string(),
            f.missing.to_string(),
            if stopped.is_empty() {
                "no".to_owned()
            } else {
                stopped.join(", ")
            },
        ])
    });
    let rows: Vec<_> = rows.collect();
    let headings = [
        "second loop",
        "delivered\nMB",
        "of goodput\n%",
        "sent\nMB",
        "arrived twice\nsegments",
        "did not arrive\nsegments",
        "stopped\nflows, why",
    ];
    (!rows.is_empty()).then(|| Table::new(headings, rows))
}
