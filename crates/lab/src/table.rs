//! The tables of a run, for a terminal and its page.

use ccplane_report::Table;

use crate::result::{Completions, RunResult, Spread};

/// The columns of a run's table: heading, unit, and what they mean in one sentence (for the page's tooltips).
const COLUMNS: [(&str, &str, &str); 12] = [
    (
        "goodput",
        "Mbit/s",
        "Bytes that the receiving applications read, all flows together.",
    ),
    (
        "link use",
        "%",
        "What the link delivered of what it could have delivered, headers included.",
    ),
    (
        "delay",
        "mean ms",
        "Time in the bottleneck's queue over delivered packets, from the link's own log.",
    ),
    ("", "p50", "Median queueing delay."),
    ("", "p95", "95th percentile of the queueing delay."),
    ("", "p99", "99th percentile of the queueing delay."),
    ("retrans", "segments", "Segments sent again."),
    ("drops", "packets", "Packets that the full queue dropped."),
    (
        "Jain",
        "index",
        "Jain's fairness index of the flows' goodputs; 1 is equal.",
    ),
    ("reports", "1/s", "Reports that reached the algorithm."),
    (
        "agent",
        "CPU %",
        "CPU of the algorithm's thread, in percent of one CPU.",
    ),
    (
        "process",
        "CPU %",
        "CPU of the whole process, emulator and traffic included.",
    ),
];

/// A run's rows, one cell for each of [`COLUMNS`], after the contender's name.
fn rows(result: &RunResult) -> Vec<Vec<String>> {
    let optional = |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |v| format!("{v:.digits$}"));
    let row = |c: &crate::result::ContenderResult| {
        let f = &c.figures;
        let near = |value: f64, digits: usize, half: fn(&Spread) -> f64| match &c.spread {
            Some(spread) => format!("{value:.digits$} ±{:.digits$}", half(spread)),
            None => format!("{value:.digits$}"),
        };
        vec![
            c.label.clone(),
            near(f.goodput_mbit, 2, |s| s.goodput_mbit),
            near(f.utilisation * 100.0, 1, |s| s.utilisation * 100.0),
            near(f.delay_mean_ms, 2, |s| s.delay_mean_ms),
            near(f.delay_p50_ms, 2, |s| s.delay_p50_ms),
            near(f.delay_p95_ms, 2, |s| s.delay_p95_ms),
            near(f.delay_p99_ms, 2, |s| s.delay_p99_ms),
            near(f.retransmissions as f64, 0, |s| s.retransmissions),
            near(f.queue_drops as f64, 0, |s| s.queue_drops),
            f.jain.map_or("–".to_owned(), |jain| near(jain, 3, |s| s.jain)),
            optional(c.host.reports_per_s, 0),
            optional(c.host.agent_cpu_percent, 1),
            optional(c.host.process_cpu_percent, 1),
        ]
    };
    result.contenders.iter().map(row).collect()
}

/// The table that ends `ccplane run`. Columns that say nothing in this run (Jain's index with one flow) are left out.
pub fn of_run(result: &RunResult) -> Table {
    let columns = std::iter::once(("", "", "")).chain(COLUMNS);
    Table::new(columns, rows(result)).without_empty()
}

/// The columns of a table of completion times.
const COMPLETION_COLUMNS: [(&str, &str, &str); 8] = [
    ("size", "bytes", "Size of the flow."),
    ("flows", "finished", "Flows that ended in time."),
    ("time", "mean ms", "From the start to the last byte at the receiver."),
    ("", "p50", "Median time."),
    ("", "p99", "99th percentile of the time."),
    (
        "slowdown",
        "mean",
        "Time over what the flow would have taken alone: its bytes at the path's lowest rate, and one round trip.",
    ),
    ("", "p50", "Median slowdown."),
    ("", "p99", "99th percentile of the slowdown."),
];

/// The rows of a table of completion times, one cell for each of [`COMPLETION_COLUMNS`] after the contender's name.
fn completion_rows(result: &RunResult) -> Vec<Vec<String>> {
    let of = |label: &str, completions: &Completions| -> Vec<Vec<String>> {
        let classes = completions.classes.iter().filter(|class| class.flows > 0);
        let row = |(i, class): (usize, &crate::result::SizeClass)| {
            vec![
                if i == 0 { label.to_owned() } else { String::new() },
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
    };
    let contenders = result.contenders.iter();
    contenders
        .filter_map(|c| Some((c.label.as_str(), c.figures.completions.as_ref()?)))
        .flat_map(|(label, completions)| of(label, completions))
        .collect()
}

/// The table of completion times; nothing where no flow ends by itself.
pub fn of_completions(result: &RunResult) -> Option<Table> {
    let columns = std::iter::once(("", "", "")).chain(COMPLETION_COLUMNS);
    let rows = completion_rows(result);
    (!rows.is_empty()).then(|| Table::new(columns, rows))
}

/// What second loops did, a row for each contender that has one; nothing where the transport has none.
pub fn of_second_loops(result: &RunResult) -> Option<Table> {
    let rows = result.contenders.iter().filter_map(|c| {
        let f = c.figures.second_loop.as_ref()?;
        // Goodput is a mean over seeds, the second loop's bytes are of all of them.
        let seeds = c.spread.as_ref().map_or(1, |spread| spread.seeds);
        let received = c.figures.goodput_mbit * result.setup.duration_s / 8.0 * seeds as f64;
        let stopped: Vec<String> = f.stopped.iter().map(|(why, flows)| format!("{flows} {why}")).collect();
        Some(vec![
            c.label.clone(),
            format!("{:.2}", f.delivered_bytes as f64 / 1e6),
            if received > 0.0 {
                format!("{:.1}", f.delivered_bytes as f64 / 1e4 / received)
            } else {
                "–".to_owned()
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
        "brought\nMB",
        "of goodput\n%",
        "sent\nMB",
        "arrived twice\nsegments",
        "did not arrive\nsegments",
        "stopped\nflows, why",
    ];
    (!rows.is_empty()).then(|| Table::new(headings, rows))
}
