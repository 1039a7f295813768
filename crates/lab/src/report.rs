//! `report.html`: a self-contained page with the run's charts, metrics, parameters, audit and
//! command line.
//!
//! The page is complete without its script, which adds zoom, tooltips and selection.

mod charts;
pub(crate) mod plane;
mod points;
mod styles;
pub(crate) mod verdict;

use std::fmt::Write;

use ccplane_report::html::{definitions, escape, note, number, warning};
use ccplane_report::{Page, Provenance, Table};

use self::charts::{Charts, SMOOTHING_BINS_PER_SIDE};
use self::points::{delay, flow_bin_s, throughput};
use crate::metrics;
use crate::result::{Audit, Completions, ContenderResult, MeanInterval, RunResult, Setup};
use crate::table;

/// Maximum number of ccplane's and of native contenders in the title.
const TITLE_NAMES_MAX: usize = 6;

/// Maximum number of flows drawn individually: the first ones. `series.csv` has all of them.
const DRAWN_FLOWS_MAX: usize = 16;

/// Footer of the page, which lists the result files.
const FILES_FOOTER: &str = "Next to this page, the metrics are in <code>summary.json</code> and \
    <code>host.json</code>, the time series in <code>series.csv</code>, <code>bins.csv</code> and \
    <code>flows.csv</code>, and the algorithms' reports in <code>reports.csv</code>.";

/// Returns the page.
pub fn page(result: &RunResult, provenance: &Provenance) -> String {
    let mut page = Page::new(&title(result), &result.setup.line());
    let charts = Charts::new(result);
    page.enable_live();
    if !result.note.is_empty() {
        page.add(&format!("<p>{}</p>", escape(&result.note)));
    }
    page.add(&verdict::html(
        &verdict::of_run(result),
        verdict::note(result),
    ));
    page.add(&warnings(result));
    page.add(&charts.keys());
    page.add(&format!(
        "<section class=\"keyed\">{}<p class=\"note\">{}</p></section>",
        table::of_run(result).to_html(),
        table_note(result)
    ));
    plane(&mut page, result, &charts);
    workloads(&mut page, result, &charts);
    courses(&mut page, result, &charts);
    boxes(&mut page, result, &charts);
    one_way(&mut page, result, &charts);
    second_loops(&mut page, result);
    bundles(&mut page, result);
    completions(&mut page, result, &charts);
    flows(&mut page, result);
    links(&mut page, result);
    measured(&mut page, result);
    page.add_reproduce_section(&result.command, &again(result));
    page.set_provenance(&match result.simulated() {
        true => provenance.build().to_string(),
        false => provenance.describe_environment(),
    });
    page.finish(FILES_FOOTER)
}

/// Adds the section of the workloads.
fn workloads(page: &mut Page, result: &RunResult, charts: &Charts<'_>) {
    if !result.several_workloads() {
        return;
    }
    let mut rows = Vec::new();
    for c in &result.contenders {
        for (i, a) in c.algorithms.iter().enumerate() {
            rows.push(vec![
                if i == 0 {
                    c.label.clone()
                } else {
                    String::new()
                },
                a.algorithm
                    .clone()
                    .unwrap_or_else(|| "no control".to_owned()),
                a.workloads.join(", "),
                format!("{:.2}", a.totals.goodput_mbit),
                format!("{:.1}", a.totals.share * 100.0),
                a.totals
                    .retransmissions
                    .map_or(String::new(), |n| n.to_string()),
                a.totals
                    .jain
                    .map_or(String::new(), |jain| format!("{jain:.3}")),
            ]);
        }
    }
    let headings = [
        "",
        "algorithm",
        "workloads",
        "goodput\nMbit/s",
        "share\n%",
        "retrans\nsegments",
        "Jain\nindex",
    ];
    let about = format!(
        "Bytes read by the receiving applications of each workload, in bins of {} ms; for \
         datagrams, bytes received. Thin lines in shades of a workload's colour are its flows.",
        number(flow_bin_s(&result.setup) * 1e3)
    );
    let table = Table::new(headings, rows).to_html();
    page.add_section(
        "By algorithm and workload",
        &(table + &note(&about) + &charts.workloads()),
    );
}

/// Adds box plots over all seeds or repeats.
fn boxes(page: &mut Page, result: &RunResult, charts: &Charts<'_>) {
    let kinds = || result.contenders.iter().filter_map(|c| c.spread.as_ref());
    if kinds().all(|spread| matches!(spread.interval, MeanInterval::Same | MeanInterval::Range)) {
        return;
    }
    let word = if result.simulated() {
        "seeds"
    } else {
        "repeats"
    };
    let runs = kinds().map(|spread| spread.seeds).max().unwrap_or(0);
    let about = format!(
        "All {runs} {word}: boxes span the middle half, thick lines are medians, whiskers extend \
         to the last run within 1.5 box heights, and dots are outliers. All runs are in runs.csv."
    );
    page.add_section("Variation between runs", &(note(&about) + &charts.boxes()));
}

/// Adds the chart of goodput over delay.
fn plane(page: &mut Page, result: &RunResult, charts: &Charts<'_>) {
    if result.contenders.len() >= 2 {
        page.add_section(
            "Goodput and delay",
            &(note(plane::PLANE_CAPTION) + &plane::picture(&charts.spots())),
        );
    }
}

/// Adds the charts over time and the distributions.
fn courses(page: &mut Page, result: &RunResult, charts: &Charts<'_>) {
    let setup = &result.setup;
    let bin = number(setup.bin_ms);
    // Sockets of finite flows are not sampled.
    let looked_at = |c: &ContenderResult| {
        c.series
            .flows
            .iter()
            .chain(&c.series.others)
            .any(|flow| !flow.is_empty())
    };
    if result.contenders.iter().any(looked_at) {
        page.add_section(
            "Congestion window",
            &format!(
                "<p class=\"note\">Congestion window per flow, sampled every {} ms.{}<span \
                 class=\"interactive\"> Drag to zoom, double-click to reset. Keyboard: arrows move \
                 the cursor, + and - zoom, Esc resets.</span></p>{}",
                number(setup.sample_ms),
                match result.has_varying_rate() {
                    true => "",
                    false => {
                        " Guides: capacity of the path without a queue (BDP) and with a full one."
                    }
                },
                charts.windows()
            ),
        );
        page.add_section(
            "Round-trip time",
            &(note(
                "Smoothed round-trip time per flow, from its socket. Strokes at the bottom: the \
                 flow retransmitted, or received ECN marks, between two samples. Guide: the path \
                 without a queue.",
            ) + &charts.round_trips()),
        );
    }
    // With several workloads, the goodputs of the flows are drawn there.
    if setup.flows >= 2 && !result.several_workloads() {
        let about = format!(
            "Bytes read by each receiving application, in bins of {} ms.{}",
            number(flow_bin_s(setup) * 1e3),
            match result.has_varying_rate() {
                true => "",
                false => " Guide: an equal share of the link.",
            }
        );
        page.add_section("Goodput of each flow", &(note(&about) + &charts.goodputs()));
    }
    let about = format!(
        "Bytes delivered by the link, including headers, in bins of {bin} ms; drawn as a moving \
         average over {} bins. {}",
        2 * SMOOTHING_BINS_PER_SIDE + 1,
        match result
            .contenders
            .first()
            .is_some_and(|c| !c.series.capacity_mbit.is_empty())
        {
            true => "Shaded: the link's capacity.",
            false => "Guide: the link's rate.",
        }
    );
    page.add_section("Throughput", &(note(&about) + &charts.throughputs()));
    let about = format!(
        "Mean time at the bottleneck (queueing and transmission) of the packets that left it in \
         each bin of {bin} ms, from the link's log.{}",
        match (result.has_varying_rate(), setup.queue_bytes) {
            (false, Some(_)) => " Guide: a full queue.",
            _ => "",
        }
    );
    page.add_section("Queueing delay", &(note(&about) + &charts.delays()));
    let about = format!(
        "Cumulative distribution of the {bin} ms bins: throughput (not smoothed) and mean \
         queueing delay; includes slow start. Triangles mark values beyond an edge."
    );
    page.add_section("Distributions", &(note(&about) + &charts.distributions()));
}

/// Adds the parameters, and the audit of the datapath.
fn measured(page: &mut Page, result: &RunResult) {
    let who = if result.simulated() {
        "simulation"
    } else {
        "emulator"
    };
    page.add_section(
        "Measurement",
        &format!(
            "<div class=\"columns\"><div><h3>Parameters</h3>{}</div><div><h3>Self-check of the \
             {who}</h3>{}</div></div>",
            definitions(&set_up(&result.setup)),
            audit(result)
        ),
    );
}

fn title(result: &RunResult) -> String {
    if let Some(title) = &result.title {
        return title.clone();
    }
    let names = |native: bool| -> Vec<&str> {
        result
            .contenders
            .iter()
            .filter(|c| c.native == native)
            .map(|c| c.label.as_str())
            .collect()
    };
    let joined = |native| verdict::first_names(&names(native), TITLE_NAMES_MAX);
    match (joined(false), joined(true)) {
        (ours, native) if ours.is_empty() => native,
        (ours, native) if native.is_empty() => ours,
        (ours, native) => format!("{ours} against {native}"),
    }
}

fn warnings(result: &RunResult) -> String {
    let complaints: Vec<(&str, &str)> = result.complaints().collect();
    warning(
        "These results may be unreliable:",
        advice(std::iter::once(result)),
        &complaints,
        usize::MAX,
        "",
    )
}

/// Returns what to do about the complaints of a run.
pub(crate) fn advice<'r>(results: impl Iterator<Item = &'r RunResult>) -> &'static str {
    let results: Vec<&RunResult> = results.collect();
    let any = |of: fn(&Audit) -> &Vec<String>| {
        let mut audits = results.iter().flat_map(|result| &result.contenders);
        audits.any(|c| !of(&c.audit).is_empty())
    };
    match (
        any(|audit| &audit.disturbed),
        any(|audit| &audit.complaints),
    ) {
        (true, _) => "Run again on an idle machine, or at a lower rate.",
        (false, true) => "Change the set-up as the problems say, and run again.",
        (false, false) => "These are failures of the contenders; the metrics include them.",
    }
}

fn table_note(result: &RunResult) -> String {
    let distances: Vec<String> = pairs(result)
        .map(|(ours, native)| {
            let ks = |a: metrics::Distribution, b: metrics::Distribution| {
                a.ks(&b).map_or("–".to_owned(), |d| format!("{d:.3}"))
            };
            format!(
                "{} and {}: {} in throughput, {} in queueing delay",
                escape(&ours.label),
                escape(&native.label),
                ks(throughput(ours), throughput(native)),
                ks(delay(ours), delay(native))
            )
        })
        .collect();
    if distances.is_empty() {
        return String::new();
    }
    format!(
        "Kolmogorov-Smirnov distance (0 identical, 1 disjoint) between the distributions below: \
         {}. Two native runs differ by more than 0 as well.",
        distances.join("; ")
    )
}

/// Returns each contender of ccplane with the native contender of the same algorithm.
fn pairs(result: &RunResult) -> impl Iterator<Item = (&ContenderResult, &ContenderResult)> {
    result
        .contenders
        .iter()
        .filter(|c| !c.native)
        .filter_map(|ours| {
            result
                .contenders
                .iter()
                .find(|c| c.native && c.algorithm == ours.algorithm)
                .map(|native| (ours, native))
        })
}

fn flows(page: &mut Page, result: &RunResult) {
    let several = result.several_workloads();
    if result.setup.flows < 2 && !several {
        return;
    }
    let (mut rows, mut more) = (Vec::new(), false);
    for c in &result.contenders {
        let flows = c.listed_flows();
        more |= flows.len() > DRAWN_FLOWS_MAX;
        for (i, flow) in flows.iter().enumerate().take(DRAWN_FLOWS_MAX) {
            let f = flow.data;
            rows.push(vec![
                if i == 0 {
                    c.label.clone()
                } else {
                    String::new()
                },
                flow.workload
                    .map_or(Table::EMPTY_CELL.to_owned(), |w| w.title()),
                flow.number.to_string(),
                format!("{:.2}", f.goodput_mbit),
                f.retransmissions.to_string(),
                format!("{:.1}", f.cwnd_mean),
                format!("{:.2}", f.srtt_mean_ms),
            ]);
        }
    }
    if rows.is_empty() {
        return;
    }
    let headings = [
        "",
        "workload",
        "flow",
        "goodput\nMbit/s",
        "retrans\nsegments",
        "cwnd\nmean segments",
        "srtt\nmean ms",
    ];
    let mut out = Table::new(headings, rows).without_empty_columns().to_html();
    if more || result.setup.flows > DRAWN_FLOWS_MAX {
        out += &note(&format!(
            "The first {DRAWN_FLOWS_MAX} flows of each; all flows are in flows.csv."
        ));
    }
    page.add_section("Flows", &out);
}

/// Returns the parts of the set-up as text.
pub(crate) fn set_up(s: &Setup) -> Vec<(&'static str, String)> {
    let queue = match s.queue_bytes {
        Some(bytes) => format!("{} ({:.1} kB)", s.queue, bytes as f64 / 1e3),
        None => format!("{} (unlimited)", s.queue),
    };
    let optional = |name: &'static str, value: Option<String>| value.map(|value| (name, value));
    let flows = match s.flows {
        0 => "varying".to_owned(),
        n => n.to_string(),
    };
    let rows = [
        Some(("datapath", s.datapath.clone())),
        optional("network", s.network.clone()),
        optional("observed link", s.link.clone()),
        Some((
            "link",
            format!("{} ({} Mbit/s)", s.rate, number(s.rate_mbit)),
        )),
        Some(("round-trip time", format!("{} ms", number(s.rtt_ms)))),
        Some(("BDP", format!("{:.1} kB", s.bdp_bytes as f64 / 1e3))),
        Some(("queue", queue)),
        Some(("random loss", s.loss.clone())),
        Some((
            "seed",
            s.seeds.clone().unwrap_or_else(|| s.seed.to_string()),
        )),
        optional("repeats", s.repeats.map(|repeats| repeats.to_string())),
        Some(("flows", flows)),
        Some((
            "duration",
            format!("{} s per contender", number(s.duration_s)),
        )),
        Some(("bins", format!("{} ms", number(s.bin_ms)))),
        Some(("flow samples", format!("every {} ms", number(s.sample_ms)))),
        optional(
            "socket buffers",
            s.socket_buffer_bytes
                .map(|bytes| format!("{:.1} MB, fixed", bytes as f64 / 1e6)),
        ),
    ];
    rows.into_iter().flatten().collect()
}

/// Describes the reproducibility of the run.
fn again(result: &RunResult) -> String {
    match &result.digest {
        Some(digest) => format!(
            "Virtual time: the same scenario and seed give bit-identical results on every \
             machine. Digest of this result: <code>{}</code>.",
            escape(digest)
        ),
        None => "Real packets and a real clock: two runs agree in their distributions, not in \
                 every packet. The random loss follows the seed."
            .to_owned(),
    }
}

/// Adds completion times: the table and their distributions.
fn completions(page: &mut Page, result: &RunResult, charts: &Charts<'_>) {
    let tables = [
        table::of_completions(result),
        table::of_workload_completions(result),
    ];
    let mut out: String = tables
        .into_iter()
        .flatten()
        .map(|table| table.to_html())
        .collect();
    if out.is_empty() {
        return;
    }
    out += &note(
        "Flows that completed before the end of the run, from their start to their last byte at \
         the receiver. Slowdown: relative to the flow alone on the path (its bytes at the path's \
         lowest rate, plus one round trip).",
    );
    out += &charts.completions();
    let unfinished =
        |completions: &Option<Completions>| completions.as_ref().map_or(0, |all| all.unfinished);
    for c in &result.contenders {
        let beside = c.workloads.iter().filter(|w| !w.compared);
        let beside = beside.map(|w| {
            (
                format!("{}, {}", c.label, w.title()),
                unfinished(&w.completions),
            )
        });
        let own = (c.label.clone(), unfinished(&c.metrics.completions));
        for (who, flows) in std::iter::once(own)
            .chain(beside)
            .filter(|(_, flows)| *flows > 0)
        {
            out += &note(&format!(
                "{who}: {flows} flows did not complete before the end of the run."
            ));
        }
    }
    page.add_section("Completion times", &out);
}

/// Adds queueing delays from time stamps and from the link's log: the table and the packets.
fn one_way(page: &mut Page, result: &RunResult, charts: &Charts<'_>) {
    let rows: Vec<Vec<String>> = result
        .contenders
        .iter()
        .filter_map(|c| Some((c, c.metrics.one_way.as_ref()?)))
        .map(|(c, f)| {
            let delays = [
                f.queue_p50_us,
                f.queue_p99_us,
                f.link_p50_us,
                f.link_p99_us,
                f.queue_error_p50_us,
                f.queue_error_p99_us,
            ];
            let counts = [f.packets, f.samples, f.no_room, f.malformed];
            let cells = delays
                .iter()
                .map(|us| format!("{us:.1}"))
                .chain(counts.map(|n| n.to_string()));
            std::iter::once(c.label.clone()).chain(cells).collect()
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let headings = [
        "",
        "stamps, median\nµs",
        "stamps, p99\nµs",
        "link, median\nµs",
        "link, p99\nµs",
        "difference, median\nµs",
        "difference, p99\nµs",
        "packets",
        "samples at senders",
        "not recorded",
        "malformed",
    ];
    let about = "Queueing delay of each full packet, from the time stamps of both ends and from \
        the link's log, each above its minimum. All samples are in stamps.csv.";
    let table = Table::new(headings, rows).to_html();
    page.add_section(
        "One-way queueing delay",
        &(table + &note(about) + &charts.stamps()),
    );
}

fn bundles(page: &mut Page, result: &RunResult) {
    if let Some(table) = table::of_bundles(result) {
        let about = "A site's box limits outgoing traffic, so that the queue builds up in the box \
            and not in the network. Modes: open has no limit, delay keeps the network's queue \
            short, passing lets traffic through while others fill the network's queue. All \
            samples of a bundle are in bundles.csv.";
        page.add_section("Bundles", &(table.to_html() + &note(about)));
    }
}

fn second_loops(page: &mut Page, result: &RunResult) {
    if let Some(table) = table::of_second_loops(result) {
        let about = "RC3: data that flows sent from their ends backwards, in classes of lower \
            priority than all other traffic.";
        page.add_section("Second loop", &(table.to_html() + &note(about)));
    }
}

fn links(page: &mut Page, result: &RunResult) {
    if result.contenders.iter().all(|c| c.metrics.links.is_empty()) {
        return;
    }
    let mut rows = Vec::new();
    for c in &result.contenders {
        for (i, link) in c.metrics.links.iter().enumerate() {
            let used = link.utilisation;
            rows.push(vec![
                if i == 0 {
                    c.label.clone()
                } else {
                    String::new()
                },
                link.name.clone(),
                used.map_or("–".to_owned(), |used| format!("{:.1}", used * 100.0)),
                format!("{:.2}", link.delivered_bytes as f64 / 1e6),
                link.drops.to_string(),
                link.marks.to_string(),
                format!("{:.3}", link.delay_mean_ms),
            ]);
        }
    }
    let headings = [
        "",
        "link",
        "use\n%",
        "delivered\nMB",
        "drops\npackets",
        "marks\npackets",
        "delay\nmean ms",
    ];
    page.add_section("Links", &Table::new(headings, rows).to_html());
}

fn audit(result: &RunResult) -> String {
    let rows: Vec<(&str, String)> = result
        .contenders
        .iter()
        .map(|c| {
            let sound = if c.audit.sound { "sound" } else { "not sound" };
            let mut text = sound.to_owned();
            if let Some(a) = &c.audit.emulator {
                let _ = write!(
                    text,
                    ": {} timing; packets left {:.0} µs late in the median, {:.0} µs at the 99th \
                     percentile, {:.0} µs at most; {} dropped by the emulator itself",
                    a.timing, a.lateness_p50_us, a.lateness_p99_us, a.lateness_max_us, a.own_drops
                );
            }
            if let Some(a) = &c.audit.simulation {
                let _ = write!(
                    text,
                    ": packets conserved at every queue; {} link transmissions in {} events",
                    a.hops, a.events
                );
            }
            (c.label.as_str(), text)
        })
        .collect();
    definitions(&rows)
}
