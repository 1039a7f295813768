//! Several workloads in one run: all of them are in the table, the files and the page.

use std::fs;
use std::path::{Path, PathBuf};

use ccplane_lab::result::{MeanInterval, RunResult};
use ccplane_lab::{files, report, table};
use ccplane_report::Provenance;

use crate::common::simulate;

/// Two flows of the contender, native Cubic, a late flow of Reno, requests of the contender that
/// share the bottleneck, finite flows of Cubic, and datagrams.
const MIXED: &str = r#"
title = "Everyone"
contenders = ["copa", "native:cubic"]
duration = "6s"

[topology.dumbbell]
pairs = 6
rate = "48mbit"
rtt = "20ms"
queue = "droptail:2bdp"

[[workload]]
name = "bulk"
from = "left1"
to = "right1"
bulk = { flows = 2 }

[[workload]]
name = "cross"
algorithm = "native:cubic"
from = "left2"
to = "right2"
bulk = {}

[[workload]]
name = "late"
algorithm = "reno"
from = "left3"
to = "right3"
start = "3s"
bulk = {}

[[workload]]
name = "requests"
from = "right4"
to = "left4"
requests = { connections = 2, response = { fixed = "30kB" }, think = "20ms" }

[[workload]]
name = "web"
algorithm = "native:cubic"
from = "left5"
to = "right5"
bursts = { sizes = { fixed = "40kB" }, every = "500ms" }

[[workload]]
name = "noise"
from = "left6"
to = "right6"
datagrams = { rate = "4mbit", bytes = 1000 }

[report]
size_classes = ["35kB"]
"#;

const NAMES: [&str; 6] = ["bulk", "cross", "late", "requests", "web", "noise"];

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    path
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn page(result: &RunResult) -> String {
    report::page(result, &Provenance::default())
}

#[test]
fn all_workloads_are_in_the_metrics() {
    let result = simulate(MIXED);
    for c in &result.contenders {
        let names: Vec<&str> = c.workloads.iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, NAMES);
        let [bulk, cross, late, requests, web, noise] = c.workloads.as_slice() else {
            panic!("six workloads")
        };
        let own = Some(c.label.as_str());
        let controls: Vec<_> = c.workloads.iter().map(|w| w.algorithm.as_deref()).collect();
        let cubic = Some("native:cubic");
        assert_eq!(controls, [own, cubic, Some("reno"), own, cubic, None]);
        let compared: Vec<bool> = c.workloads.iter().map(|w| w.compared).collect();
        assert_eq!(compared, [true, false, false, true, false, false]);

        // The contender's goodput is the sum over its workloads; shares are relative to all
        // workloads.
        let sum = bulk.totals.goodput_mbit + requests.totals.goodput_mbit;
        assert!(
            near(c.metrics.goodput_mbit, sum),
            "{} {sum}",
            c.metrics.goodput_mbit
        );
        let shares: f64 = c.workloads.iter().map(|w| w.totals.share).sum();
        assert!(near(shares, 1.0), "{shares}");
        let all: f64 = c.workloads.iter().map(|w| w.totals.goodput_mbit).sum();
        // 48 Mbit/s minus headers.
        assert!((35.0..48.0).contains(&all), "{all}");

        assert_eq!(
            (bulk.flows.len(), bulk.totals.count, bulk.totals.jain),
            (2, 2, c.metrics.jain)
        );
        assert_eq!(bulk.totals.retransmissions, Some(c.metrics.retransmissions));
        assert_eq!((cross.flows.len(), late.flows.len()), (1, 1));
        // The late flow is active for half of the time.
        assert!(
            late.totals.goodput_mbit > 0.2 && late.totals.goodput_mbit < 24.0,
            "{late:?}"
        );
        // Two connections, each with a reply of 30 kB every 40 ms or more.
        let replies = requests
            .completions
            .as_ref()
            .unwrap()
            .classes
            .last()
            .unwrap()
            .flows;
        assert!(
            (50..300).contains(&replies) && requests.totals.retransmissions.is_none(),
            "{requests:?}"
        );
        assert_eq!(requests.completions, c.metrics.completions);
        // Twelve bursts of one flow.
        let web_flows = web.completions.as_ref().unwrap();
        assert_eq!(web.totals.count, 12, "{web_flows:?}");
        assert_eq!(
            web_flows.classes.last().unwrap().flows + web_flows.unfinished,
            12
        );
        assert!(
            (3.0..4.01).contains(&noise.totals.goodput_mbit),
            "{noise:?}"
        );
        assert!(
            noise.totals.count == 0
                && noise.totals.retransmissions.is_none()
                && noise.completions.is_none()
        );

        // Totals by algorithm.
        let algorithm = |name: Option<&str>| {
            c.algorithms
                .iter()
                .find(|a| a.algorithm.as_deref() == name)
                .unwrap()
        };
        let shared = algorithm(cubic);
        let expected: Vec<&str> = match c.label.as_str() {
            "copa" => vec!["cross", "web"],
            _ => vec!["bulk", "cross", "requests", "web"],
        };
        assert_eq!(shared.workloads, expected);
        let of_algorithms: f64 = c.algorithms.iter().map(|a| a.totals.goodput_mbit).sum();
        assert!(near(of_algorithms, all) && algorithm(None).workloads == ["noise"]);

        // In combined lists, flows of other workloads follow the contender's. Time series end with
        // the received bytes.
        assert_eq!((c.series.flows.len(), c.series.others.len()), (2, 2));
        for (w, series) in c.workloads.iter().zip(&c.series.workloads) {
            let (at, bytes) = *series.course.last().unwrap();
            assert!(
                at == 6_000_000_000 && near(bytes as f64 * 8e-6 / 6.0, w.totals.goodput_mbit),
                "{}",
                w.name
            );
            assert!(
                series.course.windows(2).all(|pair| pair[0].1 <= pair[1].1),
                "{}",
                w.name
            );
        }
        assert_eq!(
            (c.series.flow(2).len(), c.series.flow(3).len()),
            (1001, 501)
        );
    }
}

/// A single workload has no rows and no members of its own: the contender's metrics are its
/// metrics.
#[test]
fn a_single_workload_has_no_table_by_workload() {
    let lone = MIXED
        .split("[[workload]]")
        .take(2)
        .collect::<Vec<_>>()
        .join("[[workload]]");
    let result = simulate(&lone);
    let summary = files::summary(&result);
    for c in summary["contenders"].as_array().unwrap() {
        assert!(
            c.get("workloads").is_none() && c.get("algorithms").is_none(),
            "{c}"
        );
    }
    assert_eq!(table::all(&result).len(), 1);
    let text = table::of_run(&result).to_text();
    assert!(
        !text.contains("share") && text.lines().count() == 5,
        "{text}"
    );
    let out = folder("lone-workload");
    files::write(&result, &out, &Provenance::default()).unwrap();
    assert!(!out.join("workloads.csv").exists() && !out.join("runs.csv").exists());
    let flows = fs::read_to_string(out.join("flows.csv")).unwrap();
    assert!(
        flows.lines().next().unwrap().ends_with("sndbuf_limited") && flows.lines().count() == 5,
        "{flows}"
    );
    assert!(!page(&result).contains("By algorithm and workload"));
}

#[test]
fn the_tables_have_a_row_for_everybody() {
    let result = simulate(MIXED);
    let text: String = table::all(&result)
        .iter()
        .map(|table| table.to_text() + "\n")
        .collect();
    insta::assert_snapshot!(text);
}

#[test]
fn the_files_contain_all_workloads() {
    let result = simulate(MIXED);
    let out = folder("mixed-workloads");
    files::write(&result, &out, &Provenance::default()).unwrap();
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    let copa = &summary["contenders"][0];
    assert_eq!(copa["workloads"][1]["algorithm"], "native:cubic");
    assert!(
        copa["workloads"][1]["goodput_mbit"].as_f64() > Some(1.0)
            && copa["workloads"][5].get("algorithm").is_none()
    );
    assert_eq!(copa["algorithms"][1]["workloads"][1], "web");
    // The written file can be read again.
    let again: RunResult = {
        let mut whole = serde_json::to_value(&result).unwrap();
        whole["contenders"][0]["workloads"][0]["name"] = "other".into();
        serde_json::from_value(whole).unwrap()
    };
    assert_eq!(again.contenders[0].workloads[0].name, "other");
    assert_eq!(
        again.contenders[0].workloads[1..],
        result.contenders[0].workloads[1..]
    );

    let rows = read("workloads.csv");
    assert_eq!(rows.lines().count(), 1 + 2 * NAMES.len());
    assert!(
        rows.contains("\ncopa,cross,native:cubic,0,1,") && rows.contains("\ncopa,noise,,0,0,"),
        "{rows}"
    );
    let flows = read("flows.csv");
    assert!(
        flows
            .lines()
            .next()
            .unwrap()
            .ends_with(",workload,algorithm")
    );
    let whose: Vec<&str> = flows
        .lines()
        .filter(|line| line.starts_with("copa,"))
        .collect();
    assert!(
        whose.len() == 4 && whose[1].ends_with(",bulk,copa") && whose[3].ends_with(",late,reno"),
        "{flows}"
    );
    assert!(whose[3].starts_with("copa,4,"), "{flows}");
    let series = read("series.csv");
    assert!(
        series
            .lines()
            .any(|line| line.starts_with("copa,3,") && line.ends_with(",cross,native:cubic"))
    );
    let ended = read("completions.csv");
    assert!(ended.contains(",requests,copa\n") && ended.contains(",web,native:cubic\n"));
}

#[test]
fn the_page_draws_all_workloads() {
    let result = simulate(MIXED);
    let page = page(&result);
    fs::write(
        concat!(env!("CARGO_TARGET_TMPDIR"), "/workloads.html"),
        &page,
    )
    .unwrap();
    for part in [
        "<h2>By algorithm and workload</h2>",
        "<td>&nbsp;&nbsp;cross: native:cubic</td>",
        "copa: goodput, Mbit/s",
        "native:cubic: goodput, Mbit/s",
        "data-name=\"cross: native:cubic\"",
        "data-name=\"noise: no control\"",
        "data-name=\"bulk: copa 2\"",
        "color-mix(in srgb, var(--c0) 55%, var(--ink))",
        "data-name=\"copa, web: native:cubic\"",
        "<th scope=\"col\">by workload",
    ] {
        assert!(page.contains(part), "no {part:?} in the page");
    }
    // The legend has a key for every row of the first table, in the same order.
    let keys: Vec<&str> = page
        .split("</svg>")
        .filter_map(|part| part.split("</button>").next())
        .collect();
    let place = |name: &str| keys.iter().position(|key| *key == name);
    assert!(
        place("copa") < place("bulk: copa") && place("bulk: copa") < place("noise: no control")
    );
    assert_eq!(
        page.matches("aria-pressed=\"true\"><svg").count(),
        2 + 2 * NAMES.len()
    );
    assert!(
        !page.contains("NaN") && page.len() < 2_000_000,
        "{} bytes",
        page.len()
    );
}

#[test]
fn means_over_seeds_are_of_workloads_too() {
    let random = MIXED
        .replace("duration =", "seeds = \"1..4\"\nduration =")
        .replace("\"6s\"", "\"4s\"")
        .replace("rtt =", "loss = \"0.1%\"\nrtt =");
    let result = simulate(&random);
    for c in &result.contenders {
        let spread = c.spread.unwrap();
        assert_eq!((spread.interval, spread.seeds), (MeanInterval::StudentT, 4));
        for w in &c.workloads {
            let spread = w.totals.spread.unwrap();
            assert!(
                spread.seeds == 4 && spread.half.share > 0.0,
                "{}: {spread:?}",
                w.name
            );
        }
        let own: f64 = c
            .workloads
            .iter()
            .filter(|w| w.compared)
            .map(|w| w.totals.goodput_mbit)
            .sum();
        assert!(
            near(own, c.metrics.goodput_mbit),
            "{own} {}",
            c.metrics.goodput_mbit
        );
        // Completed flows include all seeds.
        let requests = &c.workloads[3];
        let seeds = |seed: u64| {
            c.series.workloads[3]
                .completed
                .iter()
                .any(|flow| flow.seed == seed)
        };
        assert!(requests.completions.is_some() && seeds(1) && seeds(4));
        assert_eq!(
            c.series.each.iter().map(|run| run.seed).collect::<Vec<_>>(),
            [1, 2, 3, 4]
        );
    }
    let text = table::of_run(&result).to_text();
    assert!(
        text.contains("mean of 4 seeds")
            && text.contains("± 95 %, Student's t")
            && text.contains(" ±"),
        "{text}"
    );
    assert!(
        result.note.contains("confidence intervals (Student's t)"),
        "{}",
        result.note
    );
    let page = page(&result);
    assert!(page.contains("<h2>Variation between runs</h2>") && page.contains("stroke-width: 3"));
    let out = folder("mixed-seeds");
    files::write_metrics(&result, &out).unwrap();
    let runs = fs::read_to_string(out.join("runs.csv")).unwrap();
    assert!(
        runs.lines().count() == 9 && runs.contains("\nnative:cubic,4,"),
        "{runs}"
    );
}

const UNLOADED_SCENARIO: &str = r#"
contenders = ["native:cubic", "reno"]
duration = "2s"
[topology.dumbbell]
rate = "48mbit"
rtt = "20ms"
[[workload]]
bulk = {}
"#;

#[test]
fn a_scenario_without_randomness_says_so() {
    let result = simulate(&UNLOADED_SCENARIO.replace("duration", "seeds = \"1..5\"\nduration"));
    assert_eq!(
        result.note,
        "The scenario has no randomness: all 5 seeds gave the same results."
    );
    let text = table::of_run(&result).to_text();
    assert!(
        text.contains("all 5 seeds identical") && !text.contains('±'),
        "{text}"
    );
    let page = page(&result);
    assert!(
        page.contains("The scenario has no randomness")
            && !page.contains("±0")
            && !page.contains("Variation between runs")
    );
    assert_eq!(
        result.contenders[0].spread.unwrap().interval,
        MeanInterval::Same
    );
}

#[test]
fn two_seeds_have_a_range_and_no_interval() {
    let two = UNLOADED_SCENARIO
        .replace("duration", "seeds = \"1..2\"\nduration")
        .replace("rtt", "loss = \"0.5%\"\nrtt");
    let result = simulate(&two);
    let text = table::of_run(&result).to_text();
    assert!(
        text.contains("mean of 2 seeds")
            && text.contains("(range of the two)")
            && !text.contains('±'),
        "{text}"
    );
    let c = &result.contenders[0];
    let spread = c.spread.unwrap();
    let (low, high) = (
        spread.low.unwrap().goodput_mbit,
        spread.high.unwrap().goodput_mbit,
    );
    assert!(
        low < high && near((low + high) / 2.0, c.metrics.goodput_mbit),
        "{spread:?}"
    );
    assert!(
        text.contains(&format!(
            "{:.2} ({low:.2}–{high:.2})",
            c.metrics.goodput_mbit
        )),
        "{text}"
    );
    assert!(
        result.note.contains("two runs are too few for an interval"),
        "{}",
        result.note
    );
    assert!(!page(&result).contains("Variation between runs"));
}

/// A completed flow remains for a while to answer late retransmissions. Its program measures
/// nothing then, and its timers do not run.
#[test]
fn completed_flows_send_no_reports() {
    let short = "duration = \"4s\"\n[topology.dumbbell]\nrate = \"48mbit\"\nrtt = \"20ms\"\n\
                 [[workload]]\nbulk = { flows = 1, bytes = \"100kB\" }";
    let cubic = crate::common::simulate_one("cubic", short);
    // The flow takes 80 ms, and Cubic reports every 10 ms.
    let reports = cubic
        .host
        .reports_per_s
        .expect("the algorithm controls flows")
        * 4.0;
    assert!((1.0..40.0).contains(&reports), "{reports} reports");
}
