//! Completion times beside the model and beside what the paper says.

use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};

use super::super::page::{Findings, cell};
use super::super::rc3_theory::{AUTHORS, ELEVEN, PAYLOAD, Path, continuous, expected};
use super::points::Point;
use super::run::{Both, Done, Results, Run};

/// What there is to show.
pub(super) struct Plan {
    pub base: Run,
    pub eleven: Run,
    pub mixed: Run,
    /// Where a router strips, with and without watching.
    pub stripped: [Run; 2],
    /// The same at 70 % load, where that was simulated.
    pub crowded: Option<[Run; 2]>,
    pub sweeps: Vec<Point>,
}

/// The medium and large flows that the abstract speaks of, bytes.
const MEDIUM: (u64, u64) = (100_000, 3_000_001);
/// Sizes of the continuous distribution as they are drawn: the least of each class, packets, and
/// the first that is none.
const CLASSES: [u64; 13] = [1, 2, 3, 4, 5, 7, 12, 24, 48, 96, 267, 1_000, 2_108];

/// What came out.
pub(super) fn findings(results: &Results, plan: &Plan) -> Findings {
    let mut findings = Findings::default();
    means(&mut findings, results, plan);
    harm(&mut findings, results, plan);
    by_size(&mut findings, results, plan);
    sweeps(&mut findings, results, plan);
    words(&mut findings, results, plan);
    findings
}

fn means(findings: &mut Findings, results: &Results, plan: &Plan) {
    let near = |model: Option<f64>| {
        model.map(|model| TargetRange::Within(tenth(model - 3.0), tenth(model + 3.0)))
    };
    let cases = [
        (
            "",
            "every size",
            plan.base,
            expected(Path::WAN, continuous()),
        ),
        (
            "_eleven",
            "the authors' eleven sizes",
            plan.eleven,
            expected(Path::WAN, ELEVEN.into_iter()),
        ),
    ];
    for (suffix, sizes, run, (flows, bytes)) in cases {
        let both = results.both(run);
        let model = |value: Option<f64>| format!("% (model: {})", cell(value, 1));
        findings.compare(
            &format!("fct_reduction_flows{suffix}_pct"),
            &format!(
                "mean completion time over flows, {sizes}, lower by {}",
                model(flows)
            ),
            both.saved(),
            if suffix.is_empty() {
                ""
            } else {
                "abstract: over 40"
            },
            near(flows),
        );
        findings.compare(
            &format!("fct_reduction_bytes{suffix}_pct"),
            &format!("the same over bytes, {sizes}, {}", model(bytes)),
            both.saved_of_bytes(),
            "",
            near(bytes),
        );
        findings.compare(
            &format!("reduction_100k_3m{suffix}_pct"),
            &format!("flows of 100 KB to 3 MB, {sizes}, %"),
            both.between(MEDIUM.0, MEDIUM.1).saved(),
            "abstract: over 70",
            TargetRange::AtLeast(70.0),
        );
        findings.fact(format!("flows{suffix}"), both.len());
    }
}

/// To a tenth, for an aim that is read.
fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// What plain flows suffer from the others' second loop, also where a router strips the marking.
fn harm(findings: &mut Findings, results: &Results, plan: &Plan) {
    let change =
        |pair: Option<(f64, f64)>| pair.map(|(before, after)| 100.0 * (after / before - 1.0));
    let plain = results.both_of(plan.mixed, 1);
    findings.compare(
        "harm_plain_p99_pct",
        "plain flows beside as many with the second loop, p99 longer by %",
        change(plain.quantile(0.99)),
        "",
        TargetRange::AtMost(1.0),
    );
    findings.compare(
        "harm_plain_mean_pct",
        "the same, mean, %",
        change(plain.over_flows()),
        "",
        TargetRange::AtMost(1.0),
    );
    let [watched, blind] = plan.stripped;
    let mut cases = vec![
        ("mixed", "kept", plan.mixed),
        ("stripped", "stripped, watched for", watched),
        ("stripped_blind", "stripped, not watched for", blind),
    ];
    if let Some([watched, blind]) = plan.crowded {
        cases.push(("stripped_70", "stripped, watched for, load 70 %", watched));
        cases.push((
            "stripped_blind_70",
            "stripped, not watched for, load 70 %",
            blind,
        ));
    }
    let rows = cases.into_iter().map(|(key, what, run)| {
        let (rc3, plain) = (results.both_of(run, 0), results.both_of(run, 1));
        let (mean, tail) = (change(plain.over_flows()), change(plain.quantile(0.99)));
        findings.figure(format!("{key}_rc3_saved_pct"), rc3.saved());
        if key != "mixed" {
            findings.figure(format!("{key}_harm_plain_mean_pct"), mean);
            findings.figure(format!("{key}_harm_plain_p99_pct"), tail);
        }
        let done = results.done(run);
        let count = |of: fn(&Done) -> u64| done.map_or("–".into(), |done| of(done).to_string());
        vec![
            what.to_owned(),
            cell(rc3.saved(), 1),
            cell(rc3.saved_of_bytes(), 1),
            cell(mean, 2),
            cell(tail, 2),
            count(|done| done.drops),
            count(|done| done.timeouts),
            count(|done| done.stopped),
        ]
    });
    let rows = rows.collect();
    findings.table(
        "Half of the flows with a second loop: what they save, and by how much the others take longer",
        &[
            "marking",
            "saved\nflows, %",
            "saved\nbytes, %",
            "others\nmean, %",
            "others\np99, %",
            "drops",
            "timeouts",
            "second loops\nstopped",
        ],
        rows,
    );
}

fn by_size(findings: &mut Findings, results: &Results, plan: &Plan) {
    let eleven = results.both(plan.eleven);
    let sizes = eleven.by_size();
    let rows = AUTHORS.iter().map(|(packets, theirs)| {
        let bytes = packets * PAYLOAD;
        let found = sizes.iter().find(|(size, ..)| *size == bytes);
        let of = eleven.between(bytes, bytes + 1);
        let ms = |pair: Option<(f64, f64)>| {
            [pair.map(|pair| pair.0), pair.map(|pair| pair.1)]
                .map(|seconds| cell(seconds.map(|s| s * 1e3), 1))
        };
        let (means, tails) = (ms(of.over_flows()), ms(of.quantile(0.99)));
        let mut row = vec![bytes.to_string(), packets.to_string()];
        row.push(found.map_or("0".into(), |(_, count, _)| count.to_string()));
        row.extend(means);
        row.extend(tails);
        row.push(cell(found.and_then(|(.., saved)| *saved), 1));
        row.push(format!("{theirs:.1}"));
        row
    });
    findings.table(
        "The authors' eleven sizes: completion times, ms, and percent saved",
        &[
            "bytes",
            "packets",
            "flows",
            "TCP\nmean",
            "RC3\nmean",
            "TCP\np99",
            "RC3\np99",
            "saved\n%",
            "authors'\nmodel",
        ],
        rows.collect(),
    );
    let kb = |bytes: u64| bytes as f64 / 1e3;
    let points = sizes
        .iter()
        .filter_map(|(bytes, _, saved)| Some((kb(*bytes), (*saved)?)));
    let theirs = AUTHORS
        .iter()
        .map(|(packets, percent)| (kb(packets * PAYLOAD), *percent));
    let all = results.both(plan.base);
    let classes = CLASSES
        .iter()
        .zip(CLASSES.iter().skip(1))
        .filter_map(|(from, to)| {
            let of = all.between(from * PAYLOAD, to * PAYLOAD);
            Some((kb((from + to - 1) * PAYLOAD / 2), of.saved()?))
        });
    findings.picture(
        "Percent of TCP's mean completion time that is saved, by size",
        &[Chart {
            title: "time saved, %".to_owned(),
            x: Axis::log("size, KB"),
            y: Axis::linear(""),
            lines: vec![
                ChartSeries::new("eleven sizes", 0, points).dots(),
                ChartSeries::new("every size, in classes", 1, classes).dots(),
                ChartSeries::new("the authors' model", 2, theirs).dashed(),
            ],
            guides: Vec::new(),
        }],
    );
}

fn sweeps(findings: &mut Findings, results: &Results, plan: &Plan) {
    let mut about: Vec<&str> = plan.sweeps.iter().map(|point| point.about).collect();
    about.dedup();
    for about in about {
        let rows = plan
            .sweeps
            .iter()
            .filter(|point| point.about == about)
            .map(|point| {
                let both = results.both(point.run);
                findings.figure(format!("saved_{}_pct", point.key), both.saved());
                findings.figure(
                    format!("saved_bytes_{}_pct", point.key),
                    both.saved_of_bytes(),
                );
                row(&point.label, &both, results, point.run)
            });
        let rows = rows.collect();
        findings.table(
            format!("By {about}"),
            &[
                about,
                "flows",
                "TCP\nms",
                "then\nms",
                "saved\nflows, %",
                "saved\nbytes, %",
                "100 KB–3 MB\n%",
                "p99\n%",
                "dropped\nTCP, %",
                "dropped\nthen, %",
                "timeouts\nTCP",
                "timeouts\nthen",
            ],
            rows,
        );
    }
}

fn row(label: &str, both: &Both, results: &Results, run: Run) -> Vec<String> {
    let (before, after) = both.over_flows().unzip();
    let tail = both
        .quantile(0.99)
        .map(|(before, after)| 100.0 * (1.0 - after / before));
    let mut row = vec![label.to_owned(), both.len().to_string()];
    row.extend([before, after].map(|seconds| cell(seconds.map(|s| s * 1e3), 1)));
    row.extend(
        [
            both.saved(),
            both.saved_of_bytes(),
            both.between(MEDIUM.0, MEDIUM.1).saved(),
            tail,
        ]
        .map(|v| cell(v, 1)),
    );
    let runs = [results.done(run.plain()), results.done(run)];
    row.extend(runs.map(|done| {
        cell(
            done.map(|done| 100.0 * done.drops as f64 / done.sent.max(1) as f64),
            2,
        )
    }));
    row.extend(runs.map(|done| done.map_or("–".into(), |done| done.timeouts.to_string())));
    row
}

fn words(findings: &mut Findings, results: &Results, plan: &Plan) {
    let eleven = results.both(plan.eleven).saved();
    let (model, _) = expected(Path::WAN, ELEVEN.into_iter());
    findings.remark(format!(
        "The abstract's \"over 40 % on average\" is of a distribution of sizes that is not published; the eleven sizes are read \
         off the authors' files. With every size of the data-mining table up to 2,107 packets the model has {} % over flows: \
         there 53 % of the flows are a single packet and 76 % at most four, which nothing makes faster. With the \
         eleven sizes as such, the table's shares on each, the model has {} % and the simulation {} %.",
        cell(expected(Path::WAN, continuous()).0, 1),
        cell(model, 1),
        cell(eleven, 1),
    ));
    findings.remark(
        "Set-up: 10 routers, 16 core links of 10 ms with the authors' rates, ten hosts a router at 1 Gbit/s and 1 ms, flows between \
         hosts of different routers as a Poisson process, 30 % of every link; 5 MB a router's port, shared by five bands with \
         push-out; initial window 4, NewReno, every packet acknowledged. The authors' rates are whole multiples of 1111 Mbit/s, \
         which is what the ten hosts of a router send to another's at full load; exactly one choice of shortest paths \
         gives every link so many pairs of routers, and those are the routes here.",
    );
    findings.remark(
        "Stripped: router 3, which most traffic passes, removes the marking of all it passes on, and what was sent below other \
         traffic stands beside it from there on. A second loop that watches stops where its packets come with another marking than \
         they were sent with; what is on its way by then has been sent. Nobody has published this case.",
    );
    findings.remark(
        "Sweeps other than the load are at 30 %. Core capacities scale with the access rate; the buffer is 1 Gbit/s times 40 ms and \
         scales with rate and delays. Other networks have the paper's delays and fanout, and capacities by the same rule; their \
         files name their sources.",
    );
    findings.deviation(
        "Sizes: the shares of the eleven sizes are inferred (knots and midpoints of the data-mining table). Arrivals are drawn by \
         our generator, not the authors' list.",
    );
    findings.deviation(format!(
        "Flows that begin in {} s, after the network has filled, count, if they ended in both simulations: the authors have 3 s \
         after 2 s, and count those that RC3 ended in time. Hosts hand packets to their link as it takes them, instead of \
         a queue of 2 GB: the same order.",
        plan.base.measured.as_secs_f64()
    ));
    findings.deviation("The simulator is ours, not ns-3, and its NewReno has RACK and PRR.");
}
