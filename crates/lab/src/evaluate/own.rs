//! Among themselves: fairness, unequal round-trip times, and far too many.

use ccplane_report::Table;
use ccplane_report::chart::{Axis, Chart, ChartSeries};

use super::measured::Measured;
use super::measured::mean;
use super::question::{Answer, Outcomes, Place, Plan, Question, Setting, Verdict};
use super::sketch::{RATE, RTT, Sketch};
use super::sweep::{self, Case, RENO, Sweep, ratio};
use crate::metrics;

/// Many flows of itself.
pub(super) const FAIRNESS: Question = Question {
    name: "fairness",
    title: "Many flows of itself",
    about: "Two, eight and thirty-two flows on the standard link (96 Mbit/s, 20 ms, 1 BDP, 0.2 ms \
            of jitter), starting a tenth of a second apart; Jain's index of their goodputs in the \
            second half. And a flow that joins another after a quarter of the time: how long until \
            it has 80 % of its share, over five bins of a 300th of the run.",
    source: "RFC 9743, 5.1.4 (Fairness within the Proposed Congestion Control Algorithm); RFC \
             5166, 2.3 (Fairness and Convergence); Jain, Chiu, Hawe 1984",
    criterion: "Pass: an index of at least 0.9 each time, and the newcomer has its share within 30 \
                s. Caution: at least 0.7; or the newcomer does not get there in time. Fail: below \
                0.7: with two flows, one has more than four fifths.",
    plan: |setting| {
        let name = setting.name();
        let seconds = setting.pick(60.0, 20.0);
        let link = || Sketch::link(RATE, RTT, "droptail:1bdp").with("jitter = \"200us\"");
        let mut runs: Vec<_> = counts(setting)
            .iter()
            .map(|n| {
                let bulk = format!("bulk = {{ flows = {n}, stagger = \"100ms\" }}");
                link()
                    .seconds(seconds)
                    .compared(&name, &bulk, "")
                    .run(format!("flows-{n}"))
            })
            .collect();
        let seconds = setting.pick(80.0, 40.0);
        let late = format!("start = \"{}s\"", seconds / 4.0);
        let joining =
            link()
                .seconds(seconds)
                .flow(&name, "bulk = {}", "")
                .flow(&name, "bulk = {}", &late);
        runs.push(joining.run("joining"));
        Plan::Runs(runs)
    },
    judge: judge_fairness,
};

fn counts(setting: &Setting) -> &'static [u32] {
    setting.pick(&[2, 8, 32], &[2, 8])
}

fn judge_fairness(setting: &Setting, outcomes: &Outcomes) -> Answer {
    let run = |n: u32| outcomes.of(&format!("flows-{n}"));
    let jain = |n: u32| {
        let shares: Vec<f64> = (0..n as usize)
            .map(|flow| run(n).goodput(flow, 0.5, 1.0))
            .collect();
        metrics::jain(&shares).unwrap_or(0.0)
    };
    let joining = outcomes.of("joining");
    let half = (joining.goodput(0, 0.25, 1.0) + joining.goodput(1, 0.25, 1.0)) / 2.0;
    let newcomer = joining.flows.get(1).map_or(&[][..], Vec::as_slice);
    let took = Measured::reached(newcomer, 0.8 * half, 5, 0.25)
        .map(|share| (share - 0.25) * joining.duration_s);
    let counts = counts(setting);
    let least = counts
        .iter()
        .map(|n| jain(*n))
        .fold(f64::INFINITY, f64::min);
    let speed = Verdict::at_most(took.unwrap_or(f64::INFINITY), 30.0, 30.0).no_worse_than_caution();
    let told = took.map_or("does not get there in time".to_owned(), |s| {
        format!("takes {s:.1} s")
    });
    Answer {
        verdict: Verdict::at_least(least, 0.9, 0.7).max(speed),
        finding: format!(
            "Jain's index is {least:.3} at least; a newcomer {told} to 80 % of its share."
        ),
        figures: vec![("convergence_s", took.unwrap_or(f64::INFINITY))],
        places: counts
            .iter()
            .map(|n| Place::new(format!("{n}-flows"), [("jain", jain(*n))]))
            .collect(),
        reference: None,
        table: Table::new(
            vec![
                "flows",
                "Jain\nindex",
                "least\nMbit/s",
                "most\nMbit/s",
                "dropped\n%",
                "delay\nmean ms",
            ],
            counts
                .iter()
                .map(|n| {
                    let each: Vec<f64> = (0..*n as usize)
                        .map(|flow| run(*n).goodput(flow, 0.5, 1.0))
                        .collect();
                    vec![
                        n.to_string(),
                        format!("{:.3}", jain(*n)),
                        format!("{:.2}", each.iter().copied().fold(f64::INFINITY, f64::min)),
                        format!("{:.2}", each.iter().copied().fold(0.0, f64::max)),
                        format!("{:.2}", run(*n).dropped() * 100.0),
                        format!("{:.2}", run(*n).delay(0.5, 1.0)),
                    ]
                })
                .collect(),
        ),
        relative: Vec::new(),
        charts: vec![Chart {
            title: "goodput, Mbit/s, when one joins another".to_owned(),
            x: joining.time(),
            y: Axis::linear(""),
            lines: vec![
                ChartSeries::new("first", 5, joining.flow_course(0)),
                ChartSeries::new("newcomer", 0, joining.flow_course(1)),
            ],
            guides: vec![(half, "an equal share".to_owned())],
        }],
    }
}

/// Near and far.
pub(super) const RTT_FAIRNESS: Question = Question {
    name: "rtt-fairness",
    title: "Unequal round-trip times",
    about: "Two flows over one link of 96 Mbit/s (a buffer of 40 ms), one with 20 ms of round \
            trip, the other with 40, 80 and 160; the same with Reno. Counted are the last two \
            thirds.",
    source: "RFC 9743, 5.1.4; RFC 5166, 2.3.2 (fairness and different RTTs). Reno's shares go as \
             the inverse of the round-trip times or their square (Lakshman, Madhow, ToN 1997), \
             Cubic's as the inverse where it is not Reno-friendly (RFC 9438, 5.3), BBRv1 turns the \
             advantage round (Hock et al., ICNP 2017)",
    criterion: "The ratio is of the larger to the smaller goodput. Pass: at most Reno's in the \
                same place, or 2. Caution: at most three times that. Fail: more: the other one \
                starves.",
    plan: |setting| {
        let name = setting.name();
        let mut runs = Vec::new();
        for far in far(setting) {
            for (who, algorithm) in [("own", name.as_str()), ("reno", "native:reno")] {
                let network = format!(
                    r#"
node = [
    {{ name = "a" }},
    {{ name = "b" }},
    {{ name = "left", switch = true }},
    {{ name = "right", switch = true }},
    {{ name = "c" }},
    {{ name = "d" }},
]
link = [
    {{ from = "a", to = "left", rate = "10gbit", delay = "5ms" }},
    {{ from = "b", to = "left", rate = "10gbit", delay = "{}ms" }},
    {{ name = "shared", from = "left", to = "right", rate = "{RATE}", delay = "5ms", jitter = "200us", queue = "droptail:320p" }},
    {{ from = "right", to = "c", rate = "10gbit" }},
    {{ from = "right", to = "d", rate = "10gbit" }},
]
"#,
                    far / 2 - 5
                );
                let sketch = Sketch::network(network)
                    .seconds(setting.pick(90.0, 40.0))
                    .flow(algorithm, "bulk = {}", "from = \"a\"\nto = \"c\"")
                    .flow(algorithm, "bulk = {}", "from = \"b\"\nto = \"d\"")
                    .look_at("shared");
                runs.push(sketch.run(format!("{who}-{far}ms")));
            }
        }
        Plan::Runs(runs)
    },
    judge: judge_rtt,
};

fn far(setting: &Setting) -> &'static [u32] {
    setting.pick(&[40, 80, 160], &[80])
}

fn judge_rtt(setting: &Setting, outcomes: &Outcomes) -> Answer {
    let near_and_far = |who: &str, far: u32| {
        let run = outcomes.of(&format!("{who}-{far}ms"));
        [0, 1].map(|flow| run.goodput(flow, 1.0 / 3.0, 1.0))
    };
    let unequal = |who: &str, far: u32| {
        let [a, b] = near_and_far(who, far);
        ratio(a.max(b), a.min(b)).min(1e6)
    };
    let one = |far: u32| {
        let bar = unequal("reno", far).max(2.0);
        Verdict::at_most(unequal("own", far), bar, 3.0 * bar)
    };
    let fars = far(setting);
    let worst = fars
        .iter()
        .copied()
        .max_by(|a, b| unequal("own", *a).total_cmp(&unequal("own", *b)));
    let worst = worst.unwrap_or(80);
    let [near, away] = near_and_far("own", worst);
    Answer {
        verdict: fars
            .iter()
            .map(|far| one(*far))
            .max()
            .unwrap_or(Verdict::Unanswered),
        finding: format!(
            "At 20 ms it gets {near:.1} Mbit/s, beside it at {worst} ms {away:.1}: a ratio of \
             {:.1}, Reno's is {:.1}.",
            unequal("own", worst),
            unequal("reno", worst)
        ),
        figures: Vec::new(),
        places: fars
            .iter()
            .map(|far| {
                let [near, away] = near_and_far("own", *far);
                let numbers = [
                    ("near_goodput_mbit", near),
                    ("far_goodput_mbit", away),
                    ("ratio", unequal("own", *far)),
                    ("reference_ratio", unequal("reno", *far)),
                ];
                Place::new(format!("{far}ms"), numbers)
            })
            .collect(),
        reference: Some("Reno"),
        table: Table::new(
            vec![
                "round trips",
                "at 20 ms\nMbit/s",
                "the other\nMbit/s",
                "ratio",
                "of Reno",
            ],
            fars.iter()
                .map(|far| {
                    let [near, away] = near_and_far("own", *far);
                    vec![
                        format!("20 and {far} ms"),
                        format!("{near:.2}"),
                        format!("{away:.2}"),
                        format!("{:.2}", unequal("own", *far)),
                        format!("{:.2}", unequal("reno", *far)),
                    ]
                })
                .collect(),
        ),
        relative: Vec::new(),
        charts: vec![Chart {
            title: format!("goodput, Mbit/s, 20 and {worst} ms"),
            x: outcomes.of(&format!("own-{worst}ms")).time(),
            y: Axis::linear(""),
            lines: [("20 ms", 0), ("the other", 1)]
                .into_iter()
                .map(|(label, flow)| {
                    ChartSeries::new(
                        label,
                        flow,
                        outcomes.of(&format!("own-{worst}ms")).flow_course(flow),
                    )
                })
                .collect(),
            guides: Vec::new(),
        }],
    }
}

/// More flows than packets.
pub(super) const OVERLOAD: Question = Question {
    name: "overload",
    title: "Far too many flows",
    about: "64 flows on 1 Mbit/s and 100 ms, where each one's share is a fifth of a packet a round \
            trip, with 20 packets of buffer; and 256 on 10 Mbit/s, half a packet each; the same \
            with Reno.",
    source: "RFC 9743, 5.1.1 (Protection Against Congestion Collapse): full back-off, down to less \
             than a packet a round trip; RFC 2914; RFC 8961",
    criterion: "Useful is what applications get of what the link carries. Pass: at least 90 % as \
                much as Reno gets, and at most 1.5 times its losses. Caution: at least 70 %, and \
                at most 2.5 times (at most 60 %). Fail: beyond: more load would mean less work \
                done.",
    plan: |setting| {
        let seconds = setting.pick(60.0, 30.0);
        let mut runs = Vec::new();
        for case in crowds() {
            let few = case.x < 100.0;
            let (rate, queue) = if few {
                ("1mbit", "droptail:20p")
            } else {
                ("10mbit", "droptail:1bdp")
            };
            let bulk = format!("bulk = {{ flows = {}, stagger = \"10ms\" }}", case.x);
            let link = |_: &Case| Sketch::link(rate, "100ms", queue).seconds(seconds);
            runs.extend(sweep::runs(
                setting,
                RENO,
                std::slice::from_ref(&case),
                &bulk,
                link,
            ));
        }
        Plan::Runs(runs)
    },
    judge: |setting, outcomes| {
        let cases = crowds();
        let useful = |_: &Case, m: &Measured| ratio(m.figures.goodput_mbit, m.rate_mbit) * 100.0;
        let sweep = Sweep {
            reference: RENO,
            cases: &cases,
            figure: (
                ["useful_percent", "reference_useful_percent"],
                "useful\n% of the link",
                &useful,
            ),
            beside: &[
                ("dropped_percent", "dropped\n%", &|m: &Measured| {
                    m.dropped() * 100.0
                }),
                ("jain", "Jain\nindex", &|m: &Measured| {
                    m.figures.jain.unwrap_or(0.0)
                }),
            ],
            axis: None,
            judge: &|case, pair| {
                let share = ratio(useful(case, pair.own), useful(case, pair.reference));
                let (own, reno) = (pair.own.dropped(), pair.reference.dropped());
                Verdict::at_least(share, 0.9, 0.7).max(Verdict::at_most(
                    own,
                    1.5 * reno,
                    (2.5 * reno).min(0.6),
                ))
            },
        };
        let lost = |who: &str| {
            mean(
                &cases
                    .iter()
                    .map(|c| outcomes.of(&format!("{who}-{}", c.key)).dropped())
                    .collect::<Vec<_>>(),
            )
        };
        let (own, reno) = (lost("own"), lost("reference"));
        sweep.answer(setting, outcomes, |places| {
            let least = places
                .iter()
                .map(|place| place.1)
                .fold(f64::INFINITY, f64::min);
            format!(
                "Applications get {least:.0} % of the link at least; {:.0} % of the packets are \
                 dropped on average, {:.0} % with Reno.",
                own * 100.0,
                reno * 100.0
            )
        })
    },
};

fn crowds() -> Vec<Case> {
    vec![
        Case::new("64", "64 flows, 1 Mbit/s", 64.0),
        Case::new("256", "256 flows, 10 Mbit/s", 256.0),
    ]
}
