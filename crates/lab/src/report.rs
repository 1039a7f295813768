//! `report.html`: one page with the run's pictures, figures, parameters, audit and command line, everything inside.
//!
//! Text and tables are written here, so that they are there without JavaScript and in a search; the pictures are
//! drawn in the browser by uPlot, kept in `assets/` with its licence, from JSON in the page.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::metrics;
use crate::result::{ContenderResult, RunResult, Setup};
use crate::table;

/// Bins that the throughput's line averages over on either side; the CDF takes the bins as they are.
const SMOOTH_REACH: usize = 2;

/// Points along a line; beyond that a page of 1,200 pixels shows no more, and a long run would make a page of many MB.
const MAX_POINTS: usize = 3_000;

/// Shares at which a distribution is drawn: a pixel is a fifth of a percent.
const ECDF_POINTS: usize = 1_001;

/// Flows that are drawn one by one; of more, the first ones (all are in `series.csv`).
const MAX_FLOWS: usize = 16;

/// The segment size that guides in segments assume: an Ethernet MTU without IPv4 and TCP headers and time stamps.
const SEGMENT: f64 = 1448.0;

/// The page.
pub fn page(result: &RunResult) -> String {
    let setup = &result.setup;
    let mut page = String::new();
    // One pass over the template: what is put in is never searched for further marks.
    let mut rest = include_str!("../assets/report.html");
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
        "css" => include_str!("../assets/report.css").into(),
        "js" => include_str!("../assets/report.js").into(),
        "uplot_css" => include_str!("../assets/uPlot-1.6.32.min.css").into(),
        "uplot_js" => include_str!("../assets/uPlot-1.6.32.iife.min.js").into(),
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
    for (i, (heading, unit, meaning)) in table::COLUMNS.iter().enumerate().filter(|(i, _)| shown(i + 1)) {
        let _ = i;
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

fn throughput(c: &ContenderResult) -> metrics::Distribution {
    metrics::Distribution::new(c.series.throughputs())
}

fn delay(c: &ContenderResult) -> metrics::Distribution {
    metrics::Distribution::new(c.series.delays())
}

fn flows_table(result: &RunResult) -> String {
    if result.setup.flows < 2 {
        return String::new();
    }
    let mut out = String::from(
        "<section><h2>Flows</h2><div class=\"scroll\"><table><thead><tr><th scope=\"col\"></th><th>flow</th>\
         <th>goodput<small>Mbit/s</small></th><th>retrans<small>segments</small></th><th>cwnd<small>mean segments</small></th>\
         <th>srtt<small>mean ms</small></th></tr></thead><tbody>",
    );
    for c in &result.contenders {
        for (i, f) in c.figures.flows.iter().enumerate().take(MAX_FLOWS) {
            let name = if i == 0 { escape(&c.label) } else { String::new() };
            let _ = write!(
                out,
                "<tr><td>{name}</td><td>{}</td><td>{:.2}</td><td>{}</td><td>{:.1}</td><td>{:.2}</td></tr>",
                i + 1,
                f.goodput_mbit,
                f.retransmissions,
                f.cwnd_mean,
                f.srtt_mean_ms
            );
        }
    }
    out += "</tbody></table></div>";
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

fn links_table(result: &RunResult) -> String {
    if result.contenders.iter().all(|c| c.figures.links.is_empty()) {
        return String::new();
    }
    let mut out = String::from(
        "<section><h2>Links</h2><div class=\"scroll\"><table><thead><tr><th scope=\"col\"></th><th>link</th><th>use\
         <small>%</small></th><th>delivered<small>MB</small></th><th>drops<small>packets</small></th><th>marks\
         <small>packets</small></th><th>delay<small>mean ms</small></th></tr></thead><tbody>",
    );
    for c in &result.contenders {
        for (i, link) in c.figures.links.iter().enumerate() {
            let name = if i == 0 { escape(&c.label) } else { String::new() };
            let used = link
                .utilisation
                .map_or("–".to_owned(), |used| format!("{:.1}", used * 100.0));
            let _ = write!(
                out,
                "<tr><td>{name}</td><td>{}</td><td>{used}</td><td>{:.2}</td><td>{}</td><td>{}</td><td>{:.3}</td></tr>",
                escape(&link.name),
                link.delivered_bytes as f64 / 1e6,
                link.drops,
                link.marks,
                link.delay_mean_ms
            );
        }
    }
    out + "</tbody></table></div></section>"
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

fn definitions(rows: &[(&str, String)]) -> String {
    let mut out = String::from("<dl>");
    for (name, value) in rows {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    out + "</dl>"
}

/// What the script draws: series on common grids, rounded to what a picture can show.
fn data(result: &RunResult) -> String {
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
    let value = json!({
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
    });
    // Inside a script element only this could end it early.
    value.to_string().replace('<', "\\u003c")
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
fn flow_bin_s(setup: &Setup) -> f64 {
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

/// For a file of figures or a picture; null for what is no number.
pub(crate) fn round(value: f64, digits: u32) -> Value {
    let scale = f64::from(10u32.pow(digits));
    json!((value * scale).round() / scale)
}

/// Without needless zeros: 20, 0.5.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A table of figures for a page. Headings of two lines have a line break, the second in small print.
pub(crate) fn table_html<H: AsRef<str>>(headings: &[H], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"scroll\"><table class=\"figures\"><thead><tr>");
    for heading in headings.iter().map(AsRef::as_ref) {
        let (name, unit) = heading.split_once('\n').unwrap_or((heading, ""));
        let _ = write!(
            out,
            "<th scope=\"col\">{}<small>{}</small></th>",
            escape(name),
            escape(unit)
        );
    }
    out += "</tr></thead><tbody>";
    out += &table_rows(rows);
    out + "</tbody></table></div>"
}

fn table_rows(rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| -> String { row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect() };
    rows.iter().map(|row| format!("<tr>{}</tr>", cells(row))).collect()
}

pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}
