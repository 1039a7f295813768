//! `report.html`: one page with the run's pictures, figures, parameters, audit and command line, everything inside.
//!
//! Text and tables are written here, so that they are there without JavaScript and in a search; the pictures are
//! drawn in the browser by uPlot, kept in `assets/` with its licence, from JSON in the page.

mod data;
pub(crate) mod html;

use std::fmt::Write;

pub(crate) use self::data::round;
use self::data::{SMOOTH_REACH, data, delay, flow_bin_s, throughput};
use self::html::{definitions, escape, number, table_html, table_rows};
use crate::metrics;
use crate::result::{ContenderResult, RunResult, Setup};
use crate::table;

/// Flows that are drawn one by one; of more, the first ones (all are in `series.csv`).
const MAX_FLOWS: usize = 16;

/// The page.
pub fn page(result: &RunResult) -> String {
    let setup = &result.setup;
    let mut page = String::new();
    // One pass over the template: what is put in is never searched for further marks.
    let mut rest = include_str!("../../assets/report.html");
    while let Some((text, (mark, after))) = rest
        .split_once("{{")
        .and_then(|(text, tail)| Some((text, tail.split_once("}}")?)))
    {
        page += text;
        page += &fill(mark, result, setup);
        rest = after;
    }
    page + rest
}

fn fill(mark: &str, result: &RunResult, setup: &Setup) -> String {
    match mark {
        "title" => escape(&title(result)),
        "subtitle" => escape(&subtitle(setup)),
        "note" if result.note.is_empty() => String::new(),
        "note" => format!("<p>{}</p>", escape(&result.note)),
        "warnings" => warnings(result),
        "table" => figures_table(result),
        "table_note" => table_note(result),
        "flow_charts" if setup.flows < 2 => String::new(),
        "flow_charts" => format!(
            "<section><h2>Goodput of each flow</h2><p class=\"note\">Bytes that each receiving application read, in bins of \
             {} ms. Guide: an equal share of the link.</p><div class=\"row\" data-chart=\"flows\"></div></section>",
            number(flow_bin_s(setup) * 1e3)
        ),
        "flows" => flows_table(result),
        "completions" => completions(result),
        "one_way" => one_way(result),
        "second_loops" => second_loops(result),
        "links" => links_table(result),
        "audit_title" if simulated(result) => "The simulation's audit of itself".into(),
        "audit_title" => "The emulator's audit of itself".into(),
        "again" => again(result),
        "parameters" => parameters(setup),
        "audit" => audit(result),
        "command" => escape(&result.command),
        "version" => escape(&result.version),
        "sample_ms" => number(setup.sample_ms),
        "bin_ms" => number(setup.bin_ms),
        "smooth_bins" => (2 * SMOOTH_REACH + 1).to_string(),
        "data" => data(result),
        "css" => include_str!("../../assets/report.css").into(),
        "js" => include_str!("../../assets/report.js").into(),
        "uplot_css" => include_str!("../../assets/uPlot-1.6.32.min.css").into(),
        "uplot_js" => include_str!("../../assets/uPlot-1.6.32.iife.min.js").into(),
        unknown => format!("{{{{{unknown}}}}}"),
    }
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
    match (names(false).join(", "), names(true).join(", ")) {
        (ours, native) if ours.is_empty() => native,
        (ours, native) if native.is_empty() => ours,
        (ours, native) => format!("{ours} against {native}"),
    }
}

fn subtitle(setup: &Setup) -> String {
    let flows = match setup.flows {
        // They come and go.
        0 => String::new(),
        1 => " · 1 flow".to_owned(),
        n => format!(" · {n} flows"),
    };
    let network = setup
        .network
        .as_ref()
        .map_or(String::new(), |network| format!("{network} · "));
    let seeds = setup
        .seeds
        .as_ref()
        .map_or(String::new(), |seeds| format!(" · seeds {seeds}"));
    format!(
        "{network}{} · {} ms round trip · {}{flows} · {} s{seeds} · {}",
        setup.rate,
        number(setup.rtt_ms),
        setup.queue,
        number(setup.duration_s),
        setup.datapath
    )
}

fn warnings(result: &RunResult) -> String {
    let mut items = String::new();
    for (label, text) in result.complaints() {
        let _ = write!(items, "<li><b>{}</b>: {}</li>", escape(label), escape(text));
    }
    if items.is_empty() {
        return items;
    }
    format!("<div class=\"warning\" role=\"alert\">Read these figures with care:<ul>{items}</ul></div>")
}

fn figures_table(result: &RunResult) -> String {
    let rows = table::rows(result);
    let shown = |column: usize| rows.iter().any(|row| row.get(column).is_some_and(|cell| cell != "–"));
    let mut out = String::from("<table class=\"figures\"><thead><tr><th scope=\"col\"></th>");
    for (_, (heading, unit, meaning)) in table::COLUMNS.iter().enumerate().filter(|(i, _)| shown(i + 1)) {
        let _ = write!(
            out,
            "<th scope=\"col\" title=\"{}\">{heading}<small>{unit}</small></th>",
            escape(meaning)
        );
    }
    out += "</tr></thead><tbody>";
    for (i, row) in rows.iter().enumerate() {
        out += "<tr>";
        for (column, cell) in row.iter().enumerate().filter(|(c, _)| *c == 0 || shown(*c)) {
            let mark = if column == 0 {
                format!(" data-contender=\"{i}\"")
            } else {
                String::new()
            };
            let _ = write!(out, "<td{mark}>{}</td>", escape(cell));
        }
        out += "</tr>";
    }
    out + "</tbody></table>"
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
        "Kolmogorov-Smirnov distance (0 the same, 1 disjoint) between the distributions below: {}. Two runs of native \
         are not at 0 from each other either.",
        distances.join("; ")
    )
}

/// Each of ccplane's with the native contender of the same algorithm.
fn pairs(result: &RunResult) -> impl Iterator<Item = (&ContenderResult, &ContenderResult)> {
    result.contenders.iter().filter(|c| !c.native).filter_map(|ours| {
        result
            .contenders
            .iter()
            .find(|c| c.native && c.algorithm == ours.algorithm)
            .map(|native| (ours, native))
    })
}

fn flows_table(result: &RunResult) -> String {
    if result.setup.flows < 2 {
        return String::new();
    }
    let mut rows = Vec::new();
    for c in &result.contenders {
        for (i, f) in c.figures.flows.iter().enumerate().take(MAX_FLOWS) {
            rows.push(vec![
                if i == 0 { c.label.clone() } else { String::new() },
                (i + 1).to_string(),
                format!("{:.2}", f.goodput_mbit),
                f.retransmissions.to_string(),
                format!("{:.1}", f.cwnd_mean),
                format!("{:.2}", f.srtt_mean_ms),
            ]);
        }
    }
    let headings = [
        "",
        "flow",
        "goodput\nMbit/s",
        "retrans\nsegments",
        "cwnd\nmean segments",
        "srtt\nmean ms",
    ];
    let mut out = format!("<section><h2>Flows</h2>{}", table_html(&headings, &rows));
    if result.setup.flows > MAX_FLOWS {
        let _ = write!(
            out,
            "<p class=\"note\">The first {MAX_FLOWS} of each; all are in flows.csv.</p>"
        );
    }
    out + "</section>"
}

fn parameters(s: &Setup) -> String {
    let queue = match s.queue_bytes {
        Some(bytes) => format!("{}, which is {:.1} kB", s.queue, bytes as f64 / 1e3),
        None => format!("{}, without limit", s.queue),
    };
    let optional = |name: &'static str, value: Option<String>| value.map(|value| (name, value));
    let flows = match s.flows {
        0 => "come and go".to_owned(),
        n => n.to_string(),
    };
    let rows = [
        Some(("datapath", s.datapath.clone())),
        optional("network", s.network.clone()),
        optional("the link shown", s.link.clone()),
        Some(("link", format!("{} ({} Mbit/s)", s.rate, number(s.rate_mbit)))),
        Some(("round-trip time", format!("{} ms", number(s.rtt_ms)))),
        Some(("BDP", format!("{:.1} kB", s.bdp_bytes as f64 / 1e3))),
        Some(("queue", queue)),
        Some(("random loss", s.loss.clone())),
        Some(("seed", s.seeds.clone().unwrap_or_else(|| s.seed.to_string()))),
        Some(("flows", flows)),
        Some(("duration", format!("{} s for each contender", number(s.duration_s)))),
        Some(("bins", format!("{} ms", number(s.bin_ms)))),
        Some(("flow samples", format!("every {} ms", number(s.sample_ms)))),
        optional(
            "socket buffers",
            s.socket_buffer_bytes
                .map(|bytes| format!("{:.1} MB, fixed", bytes as f64 / 1e6)),
        ),
    ];
    definitions(&rows.into_iter().flatten().collect::<Vec<_>>())
}

/// How often a run gives the same again.
fn again(result: &RunResult) -> String {
    match &result.digest {
        Some(digest) => format!(
            "Virtual time: the same scenario and seed give the same figures on every machine, to the last bit. Digest of this \
             result: <code>{}</code>.",
            escape(digest)
        ),
        None => "Real packets and a real clock: two runs agree in their distributions, not in every packet. The random loss \
                 follows the seed."
            .to_owned(),
    }
}

fn simulated(result: &RunResult) -> bool {
    result.contenders.iter().any(|c| c.audit.simulation.is_some())
}

/// Completion times: the table, and where the script draws their distributions.
fn completions(result: &RunResult) -> String {
    let rows = table::completion_rows(result);
    if rows.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section><h2>Completion times</h2><div class=\"scroll\"><table class=\"figures\"><thead><tr><th scope=\"col\"></th>",
    );
    for (heading, unit, meaning) in table::COMPLETION_COLUMNS {
        let _ = write!(
            out,
            "<th scope=\"col\" title=\"{}\">{heading}<small>{unit}</small></th>",
            escape(meaning)
        );
    }
    out += "</tr></thead><tbody>";
    out += &table_rows(&rows);
    out += "</tbody></table></div><p class=\"note\">Flows that ended in time, from their start to their last byte at the \
            receiver. Slowdown: over what the flow would have taken alone (its bytes at the path's lowest rate, and one round \
            trip).</p><div class=\"row\" data-chart=\"fct\" style=\"--columns: 2\"></div>";
    for c in &result.contenders {
        let unfinished = c
            .figures
            .completions
            .as_ref()
            .map_or(0, |completions| completions.unfinished);
        if unfinished > 0 {
            let _ = write!(
                out,
                "<p class=\"note\">{}: {unfinished} flows did not end in time.</p>",
                escape(&c.label)
            );
        }
    }
    out + "</section>"
}

/// Queueing delay from time stamps beside the link's own: the table, and where the script draws the packets.
fn one_way(result: &RunResult) -> String {
    let rows: Vec<Vec<String>> = result
        .contenders
        .iter()
        .filter_map(|c| Some((c, c.figures.one_way.as_ref()?)))
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
        return String::new();
    }
    let headings = [
        "",
        "stamps, median\nµs",
        "stamps, p99\nµs",
        "link, median\nµs",
        "link, p99\nµs",
        "apart, median\nµs",
        "apart, p99\nµs",
        "packets",
        "samples at senders",
        "no room",
        "malformed",
    ];
    format!(
        "<section><h2>One-way queueing delay</h2>{}<p class=\"note\">Queueing delay of each full packet, from the time stamps \
         of both its ends and from the link's own log, each above its least. All of them are in stamps.csv.</p>\
         <div class=\"row\" data-chart=\"stamps\"></div></section>",
        table_html(&headings, &rows)
    )
}

fn second_loops(result: &RunResult) -> String {
    let Some((headings, rows)) = table::second_loops(result) else {
        return String::new();
    };
    format!(
        "<section><h2>Second loop</h2>{}<p class=\"note\">RC3: what flows sent from their ends backwards, in classes behind \
         all other traffic.</p></section>",
        table_html(&headings, &rows)
    )
}

fn links_table(result: &RunResult) -> String {
    if result.contenders.iter().all(|c| c.figures.links.is_empty()) {
        return String::new();
    }
    let mut rows = Vec::new();
    for c in &result.contenders {
        for (i, link) in c.figures.links.iter().enumerate() {
            let used = link.utilisation;
            rows.push(vec![
                if i == 0 { c.label.clone() } else { String::new() },
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
    format!("<section><h2>Links</h2>{}</section>", table_html(&headings, &rows))
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
                    ": {} timing, packets left {:.0} µs late in the median, {:.0} µs at the 99th percentile, {:.0} µs at \
                     worst; {} dropped by the emulator itself",
                    a.timing, a.lateness_p50_us, a.lateness_p99_us, a.lateness_max_us, a.own_drops
                );
            }
            if let Some(a) = &c.audit.simulation {
                let _ = write!(
                    text,
                    ": packets conserved at every queue; {} packets over a link in {} events",
                    a.hops, a.events
                );
            }
            (c.label.as_str(), text)
        })
        .collect();
    definitions(&rows)
}
