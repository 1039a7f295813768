//! Deep buffers and shallow ones: how long a queue it keeps, and what it can do without one.

use ccplane_report::Table;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_report::html::milliseconds;

use super::question::{Answer, Outcomes, Place, Plan, Question, Setting, Verdict};
use super::relative::RelativeResult;
use super::sketch::{RATE, RTT, Sketch, word};

/// One flow and up to ten BDP of buffer.
pub(super) const BUFFERBLOAT: Question = Question {
    name: "bufferbloat",
    title: "Deep buffers",
    about: "One flow on the standard link (96 Mbit/s, 20 ms), its buffer one to ten BDP; Cubic \
            beside it in figures of its own runs. Counted is the second half.",
    source: "RFC 9743, 5.1.2 (Protection Against Bufferbloat) and 6.1 (drop-tail queues); RFC 8961",
    criterion: "Pass: at ten BDP packets wait one RTT at most on average, which is what a buffer \
                of the classic size holds, and the link is at least 80 % used everywhere. Caution: \
                not longer than under Cubic, which fills any buffer (RFC 9743 says of Reno and \
                Cubic that they do not address the problem), within 10 %. Fail: longer than that, \
                or less than 50 % used.",
    plan: |setting| {
        let seconds = setting.pick(60.0, 20.0);
        let name = setting.name();
        let run = |who: &str, algorithm: &str, buffer: &f64| {
            Sketch::link(RATE, RTT, format!("droptail:{buffer}bdp"))
                .seconds(seconds)
                .compared(algorithm, "bulk = {}", "")
                .run(format!("{who}-{}", word(buffer)))
        };
        let each = deep(setting).iter();
        Plan::Runs(
            each.flat_map(|buffer| {
                [
                    run("own", &name, buffer),
                    run("cubic", "native:cubic", buffer),
                ]
            })
            .collect(),
        )
    },
    judge: judge_deep,
};

fn deep(setting: &Setting) -> &'static [f64] {
    setting.pick(&[1.0, 2.0, 5.0, 10.0], &[1.0, 10.0])
}

fn judge_deep(setting: &Setting, outcomes: &Outcomes) -> Answer {
    let at = |who: &str, buffer: &f64| outcomes.of(&format!("{who}-{}", word(buffer)));
    let delay = |who: &str, buffer: &f64| at(who, buffer).delay(0.5, 1.0);
    let used = |buffer: &f64| at("own", buffer).utilisation(0.5, 1.0);
    let buffers = deep(setting);
    let (ours, cubic) = (delay("own", &10.0), delay("cubic", &10.0));
    let rtt = at("own", &10.0).rtt_ms;
    let least = buffers.iter().map(used).fold(f64::INFINITY, f64::min);
    let verdict = Verdict::at_most(ours, rtt, cubic * 1.1).max(Verdict::at_least(least, 0.8, 0.5));
    let name = setting.algorithm.algorithm();
    Answer {
        verdict,
        finding: format!(
            "With ten BDP of buffer packets wait {} on average, {} under Cubic; the link is \
             {:.0} % used, at least.",
            milliseconds(ours),
            milliseconds(cubic),
            least * 100.0
        ),
        figures: Vec::new(),
        places: buffers
            .iter()
            .map(|b| {
                let figures = [
                    ("delay_mean_ms", delay("own", b)),
                    ("reference_delay_mean_ms", delay("cubic", b)),
                    ("utilisation", used(b)),
                ];
                Place::new(format!("{b}bdp"), figures)
            })
            .collect(),
        reference: Some("Cubic"),
        table: Table::new(
            vec![
                "buffer",
                "delay\nmean ms",
                "of Cubic\nmean ms",
                "delay\np95 ms",
                "link use\n%",
            ],
            buffers
                .iter()
                .map(|b| {
                    vec![
                        format!("{b} BDP"),
                        format!("{:.2}", delay("own", b)),
                        format!("{:.2}", delay("cubic", b)),
                        format!("{:.2}", at("own", b).figures.delay_p95_ms),
                        format!("{:.1}", used(b) * 100.0),
                    ]
                })
                .collect(),
        ),
        charts: vec![
            Chart {
                title: "queueing delay by buffer, mean ms".to_owned(),
                x: Axis::log("buffer, BDP"),
                y: Axis::linear(""),
                lines: vec![
                    ChartSeries::new("Cubic", 1, buffers.iter().map(|b| (*b, delay("cubic", b))))
                        .dots()
                        .dashed(),
                    ChartSeries::new(name, 0, buffers.iter().map(|b| (*b, delay("own", b)))).dots(),
                ],
                guides: vec![(rtt, "one RTT".to_owned())],
            },
            Chart {
                title: "queueing delay with ten BDP, ms".to_owned(),
                x: at("own", &10.0).time(),
                y: Axis::linear(""),
                lines: vec![
                    ChartSeries {
                        dashed: true,
                        points: at("cubic", &10.0).delay_course(),
                        ..ChartSeries::new("Cubic", 1, [])
                    },
                    ChartSeries {
                        points: at("own", &10.0).delay_course(),
                        ..ChartSeries::new(name, 0, [])
                    },
                ],
                guides: Vec::new(),
            },
        ],
        relative: buffers
            .iter()
            .filter_map(|b| {
                RelativeResult::new(format!("{b} BDP"), "Cubic", at("own", b), at("cubic", b))
            })
            .collect(),
    }
}

/// One flow and four in a tenth of a BDP to one.
pub(super) const SHALLOW: Question = Question {
    name: "shallow-buffer",
    title: "Shallow buffers",
    about: "One flow, and four of the same, on the standard link with buffers from a tenth of a \
            BDP to one; the same with Cubic. Used is counted in the second half with one flow; \
            lost is the share of packets that the queue dropped with four.",
    source: "RFC 9743, 5.1.3 (Protection Against High Packet Loss), which names BBRv1 as having \
             failed: several of its flows in less than 1.5 BDP of buffer cause lasting loss (Hock, \
             Bless, Zitterbart, ICNP 2017)",
    criterion: "Pass: at least 90 % as much of the link used as Cubic does, and four flows lose at \
                most 1 % or twice as much as Cubic's. Caution: at least 60 % as much, and at most \
                5 % lost or four times as much. Fail: beyond.",
    plan: |setting| {
        let seconds = setting.pick(30.0, 15.0);
        let name = setting.name();
        let mut runs = Vec::new();
        for buffer in SHALLOW_BUFFERS {
            for (who, algorithm) in [("own", name.as_str()), ("cubic", "native:cubic")] {
                for flows in [1, 4] {
                    let sketch = Sketch::link(RATE, RTT, format!("droptail:{buffer}bdp"))
                        .seconds(seconds)
                        .compared(algorithm, &format!("bulk = {{ flows = {flows} }}"), "");
                    runs.push(sketch.run(format!("{who}-{}-{flows}", word(buffer))));
                }
            }
        }
        Plan::Runs(runs)
    },
    judge: judge_shallow,
};

const SHALLOW_BUFFERS: [f64; 4] = [0.1, 0.25, 0.5, 1.0];

fn judge_shallow(setting: &Setting, outcomes: &Outcomes) -> Answer {
    let at = |who: &str, buffer: f64, flows: u32| {
        outcomes.of(&format!("{who}-{}-{flows}", word(buffer)))
    };
    let used = |who: &str, buffer: f64| at(who, buffer, 1).utilisation(0.5, 1.0);
    let lost = |who: &str, buffer: f64| at(who, buffer, 4).dropped();
    let one = |buffer: f64| {
        let share = used("own", buffer) / used("cubic", buffer).max(f64::MIN_POSITIVE);
        let (ours, cubic) = (lost("own", buffer), lost("cubic", buffer));
        Verdict::at_least(share, 0.9, 0.6).max(Verdict::at_most(
            ours,
            (2.0 * cubic).max(0.01),
            (4.0 * cubic).max(0.05),
        ))
    };
    let worst = |value: &dyn Fn(f64) -> f64| {
        SHALLOW_BUFFERS
            .map(value)
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    };
    let least = worst(&|b| used("own", b));
    let most = -worst(&|b| -lost("own", b));
    let most_cubic = -worst(&|b| -lost("cubic", b));
    let name = setting.algorithm.algorithm();
    let line = |label: &str, colour, value: &dyn Fn(f64) -> f64| {
        ChartSeries::new(
            label,
            colour,
            SHALLOW_BUFFERS.map(|b| (b, value(b) * 100.0)),
        )
        .dots()
    };
    Answer {
        verdict: SHALLOW_BUFFERS
            .map(one)
            .into_iter()
            .max()
            .unwrap_or(Verdict::Unanswered),
        finding: format!(
            "One flow uses {:.0} % of the link at least; four lose up to {:.2} % of their packets, \
             four of Cubic {:.2} %.",
            least * 100.0,
            most * 100.0,
            most_cubic * 100.0
        ),
        figures: Vec::new(),
        places: SHALLOW_BUFFERS
            .into_iter()
            .map(|b| {
                let figures = [
                    ("utilisation", used("own", b)),
                    ("reference_utilisation", used("cubic", b)),
                    ("dropped_share", lost("own", b)),
                    ("reference_dropped_share", lost("cubic", b)),
                ];
                Place::new(format!("{b}bdp"), figures)
            })
            .collect(),
        reference: Some("Cubic"),
        table: Table::new(
            vec![
                "buffer",
                "link use\n%",
                "of Cubic\n%",
                "lost, 4 flows\n%",
                "of Cubic\n%",
            ],
            SHALLOW_BUFFERS
                .into_iter()
                .map(|b| {
                    vec![
                        format!("{b} BDP"),
                        format!("{:.1}", used("own", b) * 100.0),
                        format!("{:.1}", used("cubic", b) * 100.0),
                        format!("{:.3}", lost("own", b) * 100.0),
                        format!("{:.3}", lost("cubic", b) * 100.0),
                    ]
                })
                .collect(),
        ),
        charts: vec![
            Chart {
                title: "link use of one flow, %".to_owned(),
                x: Axis::log("buffer, BDP"),
                y: Axis::linear("").with_range(0.0, 105.0),
                lines: vec![
                    line("Cubic", 1, &|b| used("cubic", b)).dashed(),
                    line(name, 0, &|b| used("own", b)),
                ],
                guides: Vec::new(),
            },
            Chart {
                title: "lost by four flows, %".to_owned(),
                x: Axis::log("buffer, BDP"),
                y: Axis::linear(""),
                lines: vec![
                    line("Cubic", 1, &|b| lost("cubic", b)).dashed(),
                    line(name, 0, &|b| lost("own", b)),
                ],
                guides: Vec::new(),
            },
        ],
        relative: SHALLOW_BUFFERS
            .into_iter()
            .filter_map(|b| {
                let (own, cubic) = (at("own", b, 1), at("cubic", b, 1));
                RelativeResult::new(format!("{b} BDP"), "Cubic", own, cubic)
            })
            .collect(),
    }
}
