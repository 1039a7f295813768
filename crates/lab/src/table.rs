//! Tables for a terminal: columns as wide as their widest cell, numbers to the right.

use crate::result::{Completions, RunResult, Spread};

/// Renders rows under their headings; the first column is text, the others are numbers. A heading may have two lines.
pub fn render(headings: &[&str], rows: &[Vec<String>]) -> String {
    let split: Vec<(&str, &str)> = headings.iter().map(|h| h.split_once('\n').unwrap_or((h, ""))).collect();
    let letters = |text: &str| text.chars().count();
    let width = |column: usize, (upper, lower): &(&str, &str)| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| letters(cell));
        cells.fold(letters(upper).max(letters(lower)), usize::max)
    };
    let widths: Vec<usize> = split
        .iter()
        .enumerate()
        .map(|(column, heading)| width(column, heading))
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (column, (cell, width)) in cells.zip(&widths).enumerate() {
            match column {
                0 => out += &format!("{cell:<width$}"),
                _ => out += &format!("  {cell:>width$}"),
            }
        }
        out.trim_end().to_owned() + "\n"
    };
    let mut out = line(&mut split.iter().map(|(upper, _)| *upper));
    if split.iter().any(|(_, lower)| !lower.is_empty()) {
        out += &line(&mut split.iter().map(|(_, lower)| *lower));
    }
    let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    out += &format!("{}\n", "─".repeat(total));
    for row in rows {
        out += &line(&mut row.iter().map(String::as_str));
    }
    out
}

/// Breaks each line of `text` between words so that none is wider than `width`, for paragraphs beside tables.
pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 40);
    for line in text.lines() {
        let mut column = 0;
        for word in line.split_whitespace() {
            let letters = word.chars().count();
            if column > 0 && column + 1 + letters > width {
                out.push('\n');
                column = 0;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out += word;
            column += letters;
        }
        out.push('\n');
    }
    out
}

/// The columns of a run's table: heading, unit, and what they mean in one sentence (for the page's tooltips).
pub(crate) const COLUMNS: [(&str, &str, &str); 12] = [
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
pub(crate) fn rows(result: &RunResult) -> Vec<Vec<String>> {
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
pub fn of_run(result: &RunResult) -> String {
    let rows = rows(result);
    let shown: Vec<usize> = (0..=COLUMNS.len())
        .filter(|column| rows.iter().any(|row| row.get(*column).is_some_and(|cell| cell != "–")))
        .collect();
    let pick = |row: &[String]| shown.iter().filter_map(|c| row.get(*c).cloned()).collect::<Vec<_>>();
    let name = |(heading, unit, _): &(&str, &str, &str)| format!("{heading}\n{unit}");
    let headings: Vec<String> = std::iter::once(String::new()).chain(COLUMNS.iter().map(name)).collect();
    let headings = pick(&headings);
    render(
        &headings.iter().map(String::as_str).collect::<Vec<_>>(),
        &rows.iter().map(|row| pick(row)).collect::<Vec<_>>(),
    )
}

/// The columns of a table of completion times.
pub(crate) const COMPLETION_COLUMNS: [(&str, &str, &str); 8] = [
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
pub(crate) fn completion_rows(result: &RunResult) -> Vec<Vec<String>> {
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
pub fn of_completions(result: &RunResult) -> Option<String> {
    let rows = completion_rows(result);
    let headings =
        std::iter::once(String::new()).chain(COMPLETION_COLUMNS.iter().map(|(h, unit, _)| format!("{h}\n{unit}")));
    let headings: Vec<String> = headings.collect();
    (!rows.is_empty()).then(|| render(&headings.iter().map(String::as_str).collect::<Vec<_>>(), &rows))
}

/// What second loops did: headings, and a row for each contender that has one.
pub(crate) fn second_loops(result: &RunResult) -> Option<([&'static str; 7], Vec<Vec<String>>)> {
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
    (!rows.is_empty()).then_some((headings, rows))
}

/// The table of what second loops did; nothing where the transport has none.
pub fn of_second_loops(result: &RunResult) -> Option<String> {
    second_loops(result).map(|(headings, rows)| render(&headings, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_may_have_two_lines() {
        let table = render(
            &["", "goodput\nMbit/s", "p50"],
            &[vec!["reno".into(), "9.5".into(), "10.25".into()]],
        );
        assert_eq!(
            table,
            "      goodput    p50\n       Mbit/s\n────────────────────\nreno      9.5  10.25\n"
        );
    }

    #[test]
    fn paragraphs_keep_their_words_and_their_breaks() {
        assert_eq!(wrap("one two three\n\nfour", 7), "one two\nthree\n\nfour\n");
        assert_eq!(wrap("incomprehensible it is", 5), "incomprehensible\nit is\n");
    }

    #[test]
    fn columns_line_up_and_numbers_stand_to_the_right() {
        let rows = vec![
            vec!["reno".into(), "95.1".into()],
            vec!["native:reno".into(), "5.0".into()],
        ];
        let table = render(&["", "goodput"], &rows);
        assert_eq!(
            table,
            "             goodput\n────────────────────\nreno            95.1\nnative:reno      5.0\n"
        );
    }
}
