//! Beginnings, short flows, and applications that do not always have data.

use ccplane_report::Table;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_report::html::milliseconds;

use super::measured::Measured;
use super::question::{Answer, Outcomes, Place, Plan, Question, Setting, Verdict};
use super::sketch::{RATE, RTT, Sketch};
use super::sweep::{self, CUBIC, Case, Pair, Sweep, both, ratio};

/// The first seconds.
pub(super) const START_UP: Question = Question {
    name: "start-up",
    title: "Start-up",
    about: "The first 150 round trips of one flow on three links with a buffer of 1 BDP (0.25 BDP \
            on the last): until the link delivers 80 % of its rate over three round trips, and \
            what is dropped meanwhile and after.",
    source: "RFC 9743, 5.1.3: to avoid excessive increases in sending rate; slow start is RFC \
             5681, 3.1, HyStart++ RFC 9406",
    criterion: "Pass: at most 1.5 times as long as Cubic takes and a second more, and at most \
                twice its drops or 2 % of the packets. Caution: at most 5 times and three seconds, \
                or more drops than that. Fail: longer.",
    plan: |setting| {
        Plan::Runs(sweep::runs(
            setting,
            CUBIC,
            &starts(),
            "bulk = {}",
            |case| {
                let (rate, rtt, queue) = start(case);
                Sketch::link(rate, rtt, queue).seconds(case.x)
            },
        ))
    },
    judge: judge_start,
};

fn starts() -> Vec<Case> {
    vec![
        Case::new("96mbit-20ms", "96 Mbit/s, 20 ms", 3.0),
        Case::new("10mbit-40ms", "10 Mbit/s, 40 ms", 6.0),
        Case::new("96mbit-100ms", "96 Mbit/s, 100 ms", 15.0),
        Case::new("shallow", "96 Mbit/s, 20 ms, 0.25 BDP", 3.0),
    ]
}

fn start(case: &Case) -> (&'static str, &'static str, &'static str) {
    match case.key.as_str() {
        "96mbit-20ms" => (RATE, RTT, "droptail:1bdp"),
        "10mbit-40ms" => ("10mbit", "40ms", "droptail:1bdp"),
        "96mbit-100ms" => (RATE, "100ms", "droptail:1bdp"),
        _ => (RATE, RTT, "droptail:0.25bdp"),
    }
}

fn judge_start(setting: &Setting, outcomes: &Outcomes) -> Answer {
    let cases = starts();
    // One that does not get there has taken all of the time.
    let took = |_: &Case, m: &Measured| {
        Measured::reached(&m.throughput, 0.8 * m.rate_mbit, 3, 0.0).unwrap_or(1.0)
            * m.duration_s
            * 1e3
    };
    let sweep = Sweep {
        reference: CUBIC,
        cases: &cases,
        figure: (
            ["to_80_percent_ms", "reference_to_80_percent_ms"],
            "to 80 %\nms",
            &took,
        ),
        beside: &[("dropped_percent", "dropped\n%", &|m: &Measured| {
            m.dropped() * 100.0
        })],
        axis: None,
        judge: &|case, pair: Pair| {
            let (own, cubic) = (took(case, pair.own), took(case, pair.reference));
            let drops = Verdict::at_most(
                pair.own.dropped(),
                (2.0 * pair.reference.dropped()).max(0.02),
                1.0,
            );
            Verdict::at_most(own, 1.5 * cubic + 1_000.0, 5.0 * cubic + 3_000.0)
                .max(drops.no_worse_than_caution())
        },
    };
    let mut answer = sweep.answer(setting, outcomes, |places| {
        let text = |place: &(&Case, f64, f64, Verdict)| {
            format!(
                "{} in {} (Cubic {})",
                place.0.label,
                milliseconds(place.1),
                milliseconds(place.2)
            )
        };
        format!(
            "80 % of {}.",
            places.iter().map(text).collect::<Vec<_>>().join(", ")
        )
    });
    let pair = Pair {
        own: outcomes.of("own-96mbit-20ms"),
        reference: outcomes.of("reference-96mbit-20ms"),
    };
    answer.charts = both(
        setting.algorithm.algorithm(),
        CUBIC.name,
        "96 Mbit/s, 20 ms",
        pair,
    );
    answer
}

/// Web pages.
pub(super) const SHORT_FLOWS: Question = Question {
    name: "short-flows",
    title: "Short flows, and long ones beside them",
    about: "Requests as Bundler's authors took them from a backbone (97.6 % at most 10 kB, half of \
            the bytes in flows above 5 MB) at half of 96 Mbit/s, 50 ms, 1 BDP; alone, and beside \
            one long flow: everything ours, everything Cubic, ours short and Cubic long, and the \
            other way round. Slowdown is a flow's time over what it would take alone on the link.",
    source: "RFC 9743, 5.1.5 (Short Flows) and 5.2.3 (Short and Long Flows)",
    criterion: "By the 99th percentile of the slowdown of all short flows, against everything \
                under Cubic. Pass: at most 1.25 times; beside a long flow of ours at most 1.25 \
                times, too. Caution: at most twice. Fail: more, for ours or for Cubic's short \
                flows beside a long one of ours.",
    plan: |setting| {
        let name = setting.name();
        let seconds = setting.pick(60.0, 20.0);
        let web = "name = \"web\"";
        let poisson = "poisson = { rate = \"48mbit\", sizes = { table = \"caida\" } }";
        let link = || Sketch::dumbbell(RATE, "50ms", "droptail:1bdp").seconds(seconds);
        let mut runs = Vec::new();
        for (key, short, long) in mixtures(&name) {
            let mut sketch = link().flow(short, poisson, web);
            if let Some(long) = long {
                sketch = sketch.flow(
                    long,
                    "bulk = {}",
                    "name = \"long\"\nfrom = \"left1\"\nto = \"right1\"",
                );
            }
            runs.push(sketch.run(key));
        }
        Plan::Runs(runs)
    },
    judge: judge_short,
};

/// Key, algorithm of the short flows, and of the long one.
fn mixtures(ours: &str) -> [(&'static str, &str, Option<&str>); 6] {
    const CUBIC: &str = "native:cubic";
    [
        ("own-alone", ours, None),
        ("cubic-alone", CUBIC, None),
        ("own-own", ours, Some(ours)),
        ("cubic-cubic", CUBIC, Some(CUBIC)),
        ("own-cubic", ours, Some(CUBIC)),
        ("cubic-own", CUBIC, Some(ours)),
    ]
}

fn judge_short(setting: &Setting, outcomes: &Outcomes) -> Answer {
    let name = setting.algorithm.algorithm();
    let slow = |key: &str| outcomes.of(key).slowdown_p99(false);
    let alone = ratio(slow("own-alone"), slow("cubic-alone"));
    let among = ratio(slow("own-own"), slow("cubic-cubic"));
    let guests = ratio(slow("cubic-own"), slow("cubic-cubic"));
    let worst = alone.max(among).max(guests);
    let rows = mixtures(name).map(|(key, short, long)| {
        let run = outcomes.of(key);
        let of = |algorithm: &str| {
            if algorithm == name {
                name.to_owned()
            } else {
                "Cubic".to_owned()
            }
        };
        vec![
            format!(
                "{}{}",
                of(short),
                long.map_or(String::new(), |long| format!(" beside a long {}", of(long)))
            ),
            format!("{:.2}", run.slowdown_p99(true)),
            format!("{:.2}", run.slowdown_p99(false)),
            run.figures
                .completions
                .as_ref()
                .and_then(|c| c.classes.last())
                .map_or("–".to_owned(), |all| format!("{:.2}", all.slowdown_p50)),
            long.map_or("–".to_owned(), |_| {
                format!("{:.1}", run.goodput(0, 0.2, 1.0))
            }),
            format!("{:.2}", run.figures.delay_mean_ms),
        ]
    });
    Answer {
        verdict: Verdict::at_most(worst, 1.25, 2.0),
        finding: format!(
            "The slowest hundredth takes {:.2} times as long as under Cubic where flows are alone, \
             {among:.2} times where all are {name}'s beside a long one, and Cubic's take \
             {guests:.2} times as long beside a long one of {name}.",
            alone
        ),
        figures: vec![(
            "long_goodput_mbit",
            outcomes.of("own-own").goodput(0, 0.2, 1.0),
        )],
        places: mixtures(name)
            .into_iter()
            .map(|(key, _, _)| {
                let small = outcomes.of(key).slowdown_p99(true);
                Place::new(
                    key,
                    [("slowdown_p99", slow(key)), ("small_slowdown_p99", small)],
                )
            })
            .collect(),
        reference: None,
        table: Table::new(
            vec![
                "short flows",
                "slowdown to 10 kB\np99",
                "of all\np99",
                "of all\np50",
                "long flow\nMbit/s",
                "delay\nmean ms",
            ],
            rows.to_vec(),
        ),
        relative: Vec::new(),
        charts: vec![Chart {
            title: "queueing delay with a long flow, ms".to_owned(),
            x: outcomes.of("own-own").time(),
            y: Axis::linear(""),
            lines: vec![
                ChartSeries {
                    points: outcomes.of("cubic-cubic").delay_course(),
                    ..ChartSeries::new("all Cubic", 1, []).dashed()
                },
                ChartSeries {
                    points: outcomes.of("own-own").delay_course(),
                    ..ChartSeries::new(format!("all {name}"), 0, [])
                },
            ],
            guides: Vec::new(),
        }],
    }
}

/// Not always data to send.
pub(super) const APPLICATION: Question = Question {
    name: "application",
    title: "Limited by the application",
    about: "An application that writes 20 Mbit/s on the standard link (96 Mbit/s, 20 ms, 1 BDP); \
            one that writes 80 Mbit/s for a second and nothing for another, by turns; and one that \
            does so for 50 ms in 200.",
    source: "RFC 9743, 5 (a well-rounded evaluation); RFC 7661 (rate-limited senders), RFC 9438, \
             5.8, RFC 8961",
    criterion: "Pass: at least 95 % of what Cubic carries in every place, and at most 1 % dropped. \
                Caution: at least 70 %, and at most 5 %. Fail: beyond: what it learnt while there \
                was little to send misleads it when there is much.",
    plan: |setting| {
        let seconds = setting.pick(40.0, 20.0);
        let runs = applications().into_iter().flat_map(|case| {
            let kind = match case.key.as_str() {
                "steady" => "paced = { rate = \"20mbit\" }",
                "seconds" => "paced = { rate = \"80mbit\", on = \"1s\", off = \"1s\" }",
                _ => "paced = { rate = \"80mbit\", on = \"50ms\", off = \"150ms\" }",
            };
            let link = |_: &Case| Sketch::link(RATE, RTT, "droptail:1bdp").seconds(seconds);
            sweep::runs(setting, CUBIC, &[case], kind, link)
        });
        Plan::Runs(runs.collect())
    },
    judge: |setting, outcomes| {
        let cases = applications();
        let goodput = |_: &Case, m: &Measured| m.figures.goodput_mbit;
        let sweep = Sweep {
            reference: CUBIC,
            cases: &cases,
            figure: (
                ["goodput_mbit", "reference_goodput_mbit"],
                "goodput\nMbit/s",
                &goodput,
            ),
            beside: &[
                ("delay_p95_ms", "delay\np95 ms", &|m: &Measured| {
                    m.figures.delay_p95_ms
                }),
                ("dropped_percent", "dropped\n%", &|m: &Measured| {
                    m.dropped() * 100.0
                }),
            ],
            axis: None,
            judge: &|case, pair| {
                let share = ratio(goodput(case, pair.own), goodput(case, pair.reference));
                Verdict::at_least(share, 0.95, 0.7).max(Verdict::at_most(
                    pair.own.dropped(),
                    0.01,
                    0.05,
                ))
            },
        };
        sweep.answer(setting, outcomes, |places| {
            let text = |place: &(&Case, f64, f64, Verdict)| {
                format!(
                    "{}: {:.1} Mbit/s (Cubic {:.1})",
                    place.0.label, place.1, place.2
                )
            };
            places.iter().map(text).collect::<Vec<_>>().join(", ") + "."
        })
    },
};

fn applications() -> Vec<Case> {
    vec![
        Case::new("steady", "20 Mbit/s all the time", 0.0),
        Case::new("seconds", "80 Mbit/s every other second", 1.0),
        Case::new("bursts", "80 Mbit/s for 50 ms in 200", 2.0),
    ]
}
