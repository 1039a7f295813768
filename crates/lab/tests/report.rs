//! Report page and result files from synthetic records: structure, escaping, self-containment.

use ccplane_lab::result::{
    Audit, Columns, ContenderMetrics, ContenderResult, EachRun, EmulatorAudit, FlowMetrics,
    HostMetrics, MeanInterval, RunResult, Sample, Series, Setup, Spread,
};
use ccplane_lab::{report, table};
use ccplane_report::Provenance;

/// Returns a sawtooth between `low` and `high` segments with a period of `period` s, and the
/// matching throughput and delay of a 96 Mbit/s link.
fn contender(algorithm: &str, native: bool, flows: usize, period: f64) -> ContenderResult {
    let label = if native {
        format!("native:{algorithm}")
    } else {
        algorithm.to_owned()
    };
    let saw = |t: f64| {
        let along = (t / period).fract();
        165.0
            + 155.0
                * if algorithm == "cubic" {
                    along * along
                } else {
                    along
                }
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
        metrics: ContenderMetrics {
            goodput_mbit: 91.9,
            utilisation: 0.998,
            delay_mean_ms: 9.4,
            delay_p50_ms: 9.1,
            delay_p95_ms: 18.8,
            delay_p99_ms: 19.7,
            retransmissions: 41,
            queue_drops: 41,
            jain: (flows > 1).then_some(0.993),
            flows: vec![FlowMetrics::default(); flows],
            ..ContenderMetrics::default()
        },
        host: HostMetrics {
            reports_per_s: (!native).then_some(98.4),
            agent_cpu_percent: (!native).then_some(0.4),
            process_cpu_percent: Some(31.5),
            ..HostMetrics::default()
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
            flows: (0..flows)
                .map(|f| (0..=1500).map(|i| sample(i, f)).collect())
                .collect(),
            ..Series::default()
        },
        label,
        algorithm: algorithm.to_owned(),
        native,
        ..ContenderResult::default()
    }
}

fn result(flows: usize) -> RunResult {
    RunResult {
        version: "0.1.0".into(),
        command: "ccplane run --alg reno,cubic --vs native:reno,native:cubic".into(),
        note: String::new(),
        stopped: None,
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

fn page(result: &RunResult) -> String {
    report::page(result, &Provenance::default())
}

#[test]
fn the_page_has_every_part_and_needs_nothing_else() {
    let page = page(&result(1));
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.html"), &page).unwrap();
    for part in [
        "<title>reno, cubic against native:reno, native:cubic · ccplane</title>",
        "Congestion window",
        "Throughput",
        "Queueing delay",
        "Distributions",
        "Self-check of the emulator",
        "data-along=\"time\"",
        "ccplane run --alg reno,cubic --vs native:reno,native:cubic",
        "droptail:1bdp (240.0 kB)",
        "Kolmogorov-Smirnov",
    ] {
        assert!(
            page.contains(part) || page.contains(&part.replace("&#39;", "'")),
            "no {part:?} in the page"
        );
    }
    assert!(!page.contains("{{"), "a mark was left unfilled");
    for outside in [
        "src=",
        "href=",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(
            !page.contains(outside),
            "{outside} would reach outside the page"
        );
    }
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert!(
        !page.contains("Jain"),
        "one flow is fair to itself: no column for it"
    );
}

/// Returns the lines of the charts whose title ends with `title`: the name of each line, and its
/// points.
fn lines(page: &str, title: &str) -> Vec<(String, Vec<(f64, f64)>)> {
    let between = |text: &str, before: &str, after: &str| -> String {
        let (_, rest) = text.split_once(before).unwrap();
        rest.split_once(after).unwrap().0.to_owned()
    };
    let numbers =
        |text: &str| -> Vec<f64> { text.split(' ').map(|word| word.parse().unwrap()).collect() };
    let titled = |picture: &&str| {
        between(picture, "<text class=\"title\"", "/text>").contains(&format!("{title}<"))
    };
    let pictures = page.split("<div class=\"live\"").skip(1).filter(titled);
    let mut found = Vec::new();
    for picture in pictures {
        let (x, y) = (
            numbers(&between(picture, "data-x=\"", "\"")),
            numbers(&between(picture, "data-y=\"", "\"")),
        );
        let plot = between(picture, "class=\"plot\"", ">");
        let view = numbers(&between(&plot, "viewBox=\"", "\""));
        let paths = picture.split("<path ").skip(1);
        // Triangles mark values beyond an edge and are no lines.
        for path in paths.filter(|path| !path.starts_with("class=\"beyond")) {
            let steps = between(path, " d=\"M", "\"");
            let mut at = (0.0, 0.0);
            let place = |step: &str| {
                let step = numbers(step);
                at = (at.0 + step[0], at.1 + step[1]);
                let along = x[0] + at.0 / view[2] * (x[1] - x[0]);
                (along, y[1] - at.1 / view[3] * (y[1] - y[0]))
            };
            found.push((
                between(path, "data-name=\"", "\""),
                steps.split('l').map(place).collect(),
            ));
        }
    }
    found
}

#[test]
fn charts_show_the_measurements() {
    let page = page(&result(1));
    let near = |(x, y): (f64, f64), at: f64, value: f64| {
        (x - at).abs() < 0.002 && (y - value).abs() < 0.02
    };
    let windows = lines(&page, "cwnd, segments");
    let names: Vec<&str> = windows.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["reno", "native:reno", "cubic", "native:cubic"]);
    assert!(near(windows[0].1[0], 0.0, 165.0), "{:?}", windows[0].1[0]);
    let throughput = &lines(&page, "throughput, Mbit/s")[0].1;
    assert_eq!(throughput.len(), 750);
    // The mean over five bins: 60, 95.2, 95, 94.8 and 96.
    assert!(near(throughput[5], 0.11, 88.2), "{:?}", throughput[5]);
    assert_eq!(lines(&page, "queueing delay, ms")[0].1.len(), 750);
    let shares = &lines(&page, "share of bins by throughput, %")[0].1;
    // The four bins of the start are beyond the left edge but counted.
    assert!(
        shares[0].0 > 90.0 && (shares[0].1 - 0.533).abs() < 0.02,
        "{:?}",
        shares[0]
    );
    let (largest, share) = *shares.last().unwrap();
    assert!(largest > 96.0 && share > 99.9, "{largest} {share}");
    assert!(page.contains(">full queue</text>") && page.contains(">BDP + queue</text>"));
}

#[test]
fn pages_of_several_contenders_begin_with_a_comparison() {
    let html = page(&result(1));
    let sentence = "reno: about the same goodput as native:reno at about the same queueing delay.";
    assert!(html.contains(sentence), "no sentence");
    assert!(html.find(sentence) < html.find("<table"));
    // Goodput over delay with a label per contender.
    assert!(html.contains("<h2>Goodput and delay</h2>"));
    assert!(html.contains("data-file=\"goodput-delay-reno-cubic-native-reno-native-cubic\""));
    let mut alone = result(1);
    alone.contenders.truncate(1);
    let html = page(&alone);
    assert!(!html.contains("Goodput and delay") && !html.contains("about the same"));
}

#[test]
fn charts_of_a_page_are_saved_under_different_names() {
    let html = page(&result(3));
    let mut names: Vec<&str> = html
        .split("data-file=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(
        names.contains(&"cwnd-reno") && names.contains(&"throughput-cubic"),
        "{names:?}"
    );
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_varying_rate_has_no_guides_of_a_constant_one() {
    let mut traced = result(3);
    for c in &mut traced.contenders {
        c.series.capacity_mbit = vec![96.0; 750];
    }
    for html in [page(&traced), {
        let mut named = result(3);
        named.setup.rate = "verizon.trace".into();
        page(&named)
    }] {
        for guide in [
            "full queue</text>",
            ">BDP + queue",
            ">BDP</text>",
            "fair share</text>",
            ">link</text>",
        ] {
            assert!(!html.contains(guide), "{guide}");
        }
    }
    assert!(page(&result(3)).contains(">fair share</text>"));
}

#[test]
fn several_flows_get_jain_and_their_own_table() {
    let page = page(&result(3));
    assert!(page.contains("Jain") && page.contains("0.993") && page.contains("<h2>Flows</h2>"));
    let goodput = lines(&page, "goodput, Mbit/s");
    assert!(
        lines(
            &report::page(&result(1), &Provenance::default()),
            "goodput, Mbit/s"
        )
        .is_empty()
    );
    // The samples have 11.4 MB/s: 91.2 Mbit/s in every bin of 100 ms.
    let (name, values) = &goodput[2];
    assert_eq!((name.as_str(), values.len()), ("reno 3", 150));
    assert!(
        values.iter().all(|(_, mbit)| (mbit - 91.2).abs() < 0.1),
        "{values:?}"
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
    let page = page(&result);
    assert!(!page.contains("<script>alert") && !page.contains("<img onerror"));
    assert_eq!(page.matches("</script>").count(), 1);
    assert!(page.contains("These results may be unreliable") && page.contains("{{css}}"));
}

#[test]
fn the_table_names_every_contender_and_omits_empty_columns() {
    let table = table::of_run(&result(1)).to_text();
    assert_eq!(table.lines().count(), 7);
    assert!(
        table.lines().next().unwrap().contains("goodput")
            && table.lines().nth(1).unwrap().contains("Mbit/s")
    );
    assert!(
        table.lines().all(|line| line.chars().count() <= 110),
        "too wide for a terminal:\n{table}"
    );
    assert!(!table.contains("Jain"));
    assert!(table.contains("native:cubic"));
    let widths: Vec<usize> = table.lines().skip(3).map(|l| l.chars().count()).collect();
    assert!(widths.iter().all(|w| *w == widths[0]), "{table}");
    assert!(table::of_run(&result(2)).to_text().contains("Jain"));
}

/// Returns the same result with five repeats.
fn repeated() -> RunResult {
    let mut result = result(1);
    result.setup.repeats = Some(5);
    for c in &mut result.contenders {
        let columns = |goodput: f64| Columns {
            goodput_mbit: goodput,
            delay_mean_ms: goodput / 10.0,
            ..Columns::default()
        };
        c.series.each = [91.0, 91.5, 92.0, 92.5, 80.0]
            .into_iter()
            .zip(1..)
            .map(|(goodput, seed)| EachRun {
                seed,
                metrics: columns(goodput),
            })
            .collect();
        c.spread = Some(Spread {
            seeds: 5,
            interval: MeanInterval::StudentT,
            half: columns(4.5),
            low: None,
            high: None,
        });
    }
    result
}

#[test]
fn repeats_on_real_packets_have_intervals() {
    let result = repeated();
    let text = table::of_run(&result).to_text();
    assert!(
        text.contains("mean of 5 repeats") && text.contains("± 95 %, Student's t"),
        "{text}"
    );
    assert!(text.contains("91.90 ±4.50"), "{text}");
    let mut alike = result.clone();
    for spread in alike
        .contenders
        .iter_mut()
        .filter_map(|c| c.spread.as_mut())
    {
        (spread.half.goodput_mbit, spread.half.delay_mean_ms) = (0.0, 0.004);
    }
    let text = table::of_run(&alike).to_text();
    assert!(text.contains("91.90 ") && !text.contains("±0.00"), "{text}");
    let page = page(&result);
    for part in [
        "<h2>Variation between runs</h2>",
        "All 5 repeats: boxes span",
        "± 95 %, Student",
        "· 5 repeats ·",
    ] {
        assert!(page.contains(part), "no {part:?} in the page");
    }
    // Two charts of four boxes, each with a run beyond its whiskers.
    assert_eq!(page.matches("style=\"stroke-width: 3\"").count(), 8);
    assert_eq!(page.matches("r=\"2.5\"").count(), 8);
    let json = serde_json::to_value(&result).unwrap();
    let spread = &json["contenders"][0]["spread"];
    assert_eq!(
        (&spread["interval"], &spread["goodput_mbit"]),
        (&"student_t".into(), &4.5.into())
    );
    assert_eq!((&spread["seeds"], spread.get("low")), (&5.into(), None));
}
