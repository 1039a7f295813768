//! The page and the files from made-up records: structure, safety of what is put in, self-containment.

use ccplane_lab::result::{
    Audit, ContenderResult, EmulatorAudit, Figures, FlowFigures, HostFigures, RunResult, Sample, Series, Setup,
};
use ccplane_lab::{report, table};

/// A sawtooth between `low` and `high` segments with a period of `period` s, and what it does to a 96 Mbit/s link.
fn contender(algorithm: &str, native: bool, flows: usize, period: f64) -> ContenderResult {
    let label = if native {
        format!("native:{algorithm}")
    } else {
        algorithm.to_owned()
    };
    let saw = |t: f64| {
        let along = (t / period).fract();
        165.0 + 155.0 * if algorithm == "cubic" { along * along } else { along }
    };
    let sample = |i: u64, flow: usize| {
        let t = i as f64 / 100.0;
        let cwnd = saw(t + flow as f64 * 0.7) / flows as f64;
        let mut s = Sample {
            at_ns: i * 10_000_000,
            received: (t * 11.4e6) as u64,
            ..Sample::default()
        };
        s.tcp.cwnd = cwnd as u32;
        s.tcp.ssthresh = 160;
        s.tcp.mss = 1448;
        s.tcp.srtt_us = 20_000 + (cwnd * 60.0) as u32;
        s
    };
    let bins = 0..750u32;
    ContenderResult {
        kernel_name: if native {
            algorithm.to_owned()
        } else {
            format!("ccp_{algorithm}")
        },
        figures: Figures {
            goodput_mbit: 91.9,
            utilisation: 0.998,
            delay_mean_ms: 9.4,
            delay_p50_ms: 9.1,
            delay_p95_ms: 18.8,
            delay_p99_ms: 19.7,
            retransmissions: 41,
            queue_drops: 41,
            jain: (flows > 1).then_some(0.993),
            flows: vec![FlowFigures::default(); flows],
            ..Figures::default()
        },
        host: HostFigures {
            reports_per_s: (!native).then_some(98.4),
            agent_cpu_percent: (!native).then_some(0.4),
            process_cpu_percent: Some(31.5),
            ..HostFigures::default()
        },
        audit: Audit {
            emulator: Some(EmulatorAudit {
                timing: "balanced".into(),
                lateness_p50_us: 11.0,
                lateness_p99_us: 80.0,
                lateness_max_us: 900.0,
                own_drops: 0,
            }),
            sound: true,
            ..Audit::default()
        },
        series: Series {
            bin_ns: 20_000_000,
            throughput_mbit: bins
                .clone()
                .map(|i| {
                    if i < 4 {
                        20.0 * f64::from(i)
                    } else {
                        96.0 - f64::from(i % 7) * 0.2
                    }
                })
                .collect(),
            delay_ms: bins
                .map(|i| Some((saw(f64::from(i) / 50.0) - 160.0).max(0.0) * 0.124))
                .collect(),
            flows: (0..flows).map(|f| (0..=1500).map(|i| sample(i, f)).collect()).collect(),
            ..Series::default()
        },
        label,
        algorithm: algorithm.to_owned(),
        native,
        spread: None,
    }
}

fn result(flows: usize) -> RunResult {
    RunResult {
        version: "0.1.0".into(),
        command: "ccplane run --alg reno,cubic --vs native:reno,native:cubic".into(),
        note: String::new(),
        title: None,
        digest: None,
        setup: Setup {
            datapath: "Linux TCP".into(),
            rate: "96mbit".into(),
            rate_mbit: 96.0,
            rtt_ms: 20.0,
            queue: "droptail:1bdp".into(),
            queue_bytes: Some(240_000),
            bdp_bytes: 240_000,
            loss: "0%".into(),
            flows,
            duration_s: 15.0,
            seed: 7,
            bin_ms: 20.0,
            sample_ms: 10.0,
            socket_buffer_bytes: Some(4 << 20),
            ..Setup::default()
        },
        contenders: vec![
            contender("reno", false, flows, 3.1),
            contender("cubic", false, flows, 2.2),
            contender("reno", true, flows, 3.0),
            contender("cubic", true, flows, 2.3),
        ],
    }
}

#[test]
fn the_page_has_every_part_and_needs_nothing_else() {
    let page = report::page(&result(1));
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.html"), &page).unwrap();
    for part in [
        "<title>reno, cubic against native:reno, native:cubic · ccplane</title>",
        "Congestion window",
        "Throughput",
        "Queueing delay",
        "Distributions",
        "The emulator&#39;s audit",
        "data-chart=\"cwnd\"",
        "ccplane run --alg reno,cubic --vs native:reno,native:cubic",
        "var uPlot=",
        "droptail:1bdp, which is 240.0 kB",
        "Kolmogorov-Smirnov",
    ] {
        assert!(
            page.contains(part) || page.contains(&part.replace("&#39;", "'")),
            "no {part:?} in the page"
        );
    }
    assert!(!page.contains("{{"), "a mark was left unfilled");
    for outside in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(outside), "{outside} would reach outside the page");
    }
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert!(!page.contains("Jain"), "one flow is fair to itself: no column for it");
}

#[test]
fn the_data_in_the_page_is_what_was_measured() {
    let page = report::page(&result(1));
    let (_, rest) = page
        .split_once("<script id=\"data\" type=\"application/json\">")
        .unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(json).unwrap();
    let first = &data["contenders"][0];
    assert_eq!(first["label"], "reno");
    assert_eq!(first["cwnd"][0][0], 165);
    assert_eq!(first["smoothed"].as_array().unwrap().len(), 750);
    assert_eq!(first["throughput_ecdf"].as_array().unwrap().len(), 750);
    assert_eq!(
        (&first["throughput_ecdf"][0], &first["throughput_ecdf"][749]),
        (&0.0.into(), &96.0.into())
    );
    assert_eq!(data["bin_s"][1], 0.03);
    assert_eq!(
        data["bin_s"].as_array().unwrap().len(),
        first["delay"].as_array().unwrap().len()
    );
    assert_eq!(
        data["sample_s"].as_array().unwrap().len(),
        first["cwnd"][0].as_array().unwrap().len()
    );
    assert_eq!(data["setup"]["full_delay_ms"], 20.0);
}

#[test]
fn several_flows_get_jain_and_their_own_table() {
    let page = report::page(&result(3));
    assert!(page.contains("Jain") && page.contains("0.993") && page.contains("<h2>Flows</h2>"));
    assert!(page.contains("data-chart=\"flows\"") && !report::page(&result(1)).contains("data-chart=\"flows\""));
    // 11.4 MB/s, as the samples say: 91.2 Mbit/s in every bin of 100 ms.
    let (_, rest) = page
        .split_once("<script id=\"data\" type=\"application/json\">")
        .unwrap();
    let data: serde_json::Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let goodput = data["contenders"][0]["goodput"][2].as_array().unwrap();
    assert_eq!(goodput.len(), 150);
    assert!(
        goodput.iter().all(|v| (v.as_f64().unwrap() - 91.2).abs() < 0.1),
        "{goodput:?}"
    );
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let mut result = result(1);
    result.command = "</pre><script>alert(1)</script>".into();
    result.contenders[0].label = "</script><script>alert(2)</script>".into();
    result.contenders[1]
        .audit
        .complaints
        .push("<img onerror=alert(3)>{{css}}".into());
    let page = report::page(&result);
    assert!(!page.contains("<script>alert") && !page.contains("<img onerror"));
    assert_eq!(page.matches("</script>").count(), 3);
    assert!(page.contains("Read these figures with care") && page.contains("{{css}}"));
}

#[test]
fn the_table_names_every_contender_and_leaves_out_what_says_nothing() {
    let table = table::of_run(&result(1)).text();
    assert_eq!(table.lines().count(), 7);
    assert!(table.lines().next().unwrap().contains("goodput") && table.lines().nth(1).unwrap().contains("Mbit/s"));
    assert!(
        table.lines().all(|line| line.chars().count() <= 110),
        "too wide for a terminal:\n{table}"
    );
    assert!(!table.contains("Jain"));
    assert!(table.contains("native:cubic"));
    let widths: Vec<usize> = table.lines().skip(3).map(|l| l.chars().count()).collect();
    assert!(widths.iter().all(|w| *w == widths[0]), "{table}");
    assert!(table::of_run(&result(2)).text().contains("Jain"));
}
