//! Paths that are not a plain link.

use ccplane_report::chart::Axis;

use super::measured::Measured;
use super::question::{Plan, Question, Verdict};
use super::sketch::{RATE, RTT, Sketch};
use super::sweep::{self, CUBIC, Case, Pair, Sweep, least, ratio};

/// Packets that overtake each other.
pub(super) const REORDERING: Question = Question {
    name: "reordering",
    title: "Reordering",
    about: "One flow on the standard link (96 Mbit/s, 20 ms, 1 BDP), on which every packet's delay \
            is drawn on its own from up to so much less or more than usual, so that packets \
            overtake each other by up to hundreds. Counted is the second half.",
    source: "RFC 9743, section 7 (Extreme Packet Reordering); RFC 4653",
    criterion: "Pass: at least 90 % of Cubic's goodput on the same transport in every place, or 80 \
                % of the link. Caution: at least 60 %. Fail: less. Recovery (RACK-TLP, RFC 8985) \
                is the transport's; what differs is what is made of losses that were none, and of \
                an RTT that jumps.",
    plan: |setting| {
        let seconds = setting.pick(30.0, 15.0);
        Plan::Runs(sweep::runs(
            setting,
            CUBIC,
            &reordering(),
            "bulk = {}",
            |case| {
                let link = Sketch::link(RATE, RTT, "droptail:1bdp").seconds(seconds);
                if case.x > 0.0 {
                    link.with(format!("jitter = \"{}us\"\nreorder = true", case.x * 1e3))
                } else {
                    link
                }
            },
        ))
    },
    judge: |setting, outcomes| {
        let cases = reordering();
        let goodput = |_: &Case, m: &Measured| m.goodput(0, 0.5, 1.0);
        let sweep = Sweep {
            reference: CUBIC,
            cases: &cases,
            figure: (
                ["goodput_mbit", "reference_goodput_mbit"],
                "goodput\nMbit/s",
                &goodput,
            ),
            beside: &[(
                "retransmitted_segments",
                "sent again\nsegments",
                &|m: &Measured| m.figures.retransmissions as f64,
            )],
            axis: Some(Axis::linear("less or more delay, up to ms")),
            judge: &|case, pair| {
                let own = goodput(case, pair.own);
                let beside = Verdict::at_least(ratio(own, goodput(case, pair.reference)), 0.9, 0.6);
                beside.min(Verdict::at_least(
                    own,
                    0.8 * pair.own.rate_mbit,
                    f64::INFINITY,
                ))
            },
        };
        sweep.answer(setting, outcomes, |places| match places.last() {
            Some((case, own, cubic, _)) => {
                format!("With {}: {own:.1} Mbit/s, Cubic {cubic:.1}.", case.label)
            }
            None => "Nothing was measured.".to_owned(),
        })
    },
};

fn reordering() -> Vec<Case> {
    [0.0, 0.2, 1.0, 5.0]
        .map(|ms| Case::new(ms.to_string(), format!("±{ms} ms"), ms))
        .to_vec()
}

/// A token bucket that drops.
pub(super) const POLICER: Question = Question {
    name: "policer",
    title: "A policed link",
    about: "One flow on the standard link behind a token bucket of 24 Mbit/s that drops what has \
            no token (two packets wait at most), with a bucket of 30 kB and of 300 kB. Counted is \
            the second half.",
    source: "RFC 9743, 5.1.3 and section 7 (Network Circuit Breakers); policers as Flach et al. \
             found them (An Internet-Wide Analysis of Traffic Policing, SIGCOMM 2016)",
    criterion: "Pass: at least 80 % of Cubic's goodput, and at most twice Cubic's losses or 2 %. \
                Caution: at least 50 % of the goodput, and at most 10 % lost. Fail: beyond: to \
                send on against a policer wastes what the others behind it could use.",
    plan: |setting| {
        let seconds = setting.pick(30.0, 15.0);
        Plan::Runs(sweep::runs(
            setting,
            CUBIC,
            &buckets(),
            "bulk = {}",
            |case| {
                Sketch::link(
                    RATE,
                    RTT,
                    format!("tbf:rate=24mbit:burst={}:limit=2p", case.key),
                )
                .seconds(seconds)
            },
        ))
    },
    judge: |setting, outcomes| {
        let cases = buckets();
        let goodput = |_: &Case, m: &Measured| m.goodput(0, 0.5, 1.0);
        let sweep = Sweep {
            reference: CUBIC,
            cases: &cases,
            figure: (
                ["goodput_mbit", "reference_goodput_mbit"],
                "goodput\nMbit/s",
                &goodput,
            ),
            beside: &[("dropped_percent", "dropped\n%", &|m: &Measured| {
                m.dropped() * 100.0
            })],
            axis: None,
            judge: &|case, pair| {
                let share = ratio(goodput(case, pair.own), goodput(case, pair.reference));
                let (own, cubic) = (pair.own.dropped(), pair.reference.dropped());
                Verdict::at_least(share, 0.8, 0.5).max(Verdict::at_most(
                    own,
                    (2.0 * cubic).max(0.02),
                    0.1,
                ))
            },
        };
        sweep.answer(setting, outcomes, |places| {
            least(places, |place, own, cubic| {
                format!("with {place}: {own:.1} of 24 Mbit/s, Cubic {cubic:.1}")
            })
        })
    },
};

fn buckets() -> Vec<Case> {
    vec![
        Case::new("30kB", "a bucket of 30 kB", 30.0),
        Case::new("300kB", "a bucket of 300 kB", 300.0),
    ]
}

/// A rate that wanders.
pub(super) const CELLULAR: Question = Question {
    name: "cellular",
    title: "A cellular link",
    about: "One flow over a link whose rate wanders as a phone's does (a generated trace, 5 and 20 \
            Mbit/s on average, its statistics in docs/evaluate.md), 40 ms, with a buffer of 100 \
            packets and of a thousand. Counted are the last two thirds.",
    source: "RFC 9743, 6.4 (Wireless Paths) and section 7 (Paths with Varying Delay); CCP's cell \
             scenario has 100 packets",
    criterion: "Judged by goodput over mean delay (power), as more of one is had by more of the \
                other on such a link. Pass: at least 80 % of Cubic's power and of its goodput. \
                Caution: at least 50 % of its goodput. Fail: less.",
    plan: |setting| {
        let seconds = setting.pick(120.0, 40.0);
        Plan::Runs(sweep::runs(setting, CUBIC, &cells(), "bulk = {}", |case| {
            let (mean, queue) = case.key.split_once('-').unwrap_or_default();
            Sketch::cellular(mean, "40ms", format!("droptail:{queue}")).seconds(seconds)
        }))
    },
    judge: |setting, outcomes| {
        let cases = cells();
        let goodput = |_: &Case, m: &Measured| m.goodput(0, 1.0 / 3.0, 1.0);
        let power = |case: &Case, m: &Measured| {
            goodput(case, m) / (m.rtt_ms + m.delay(1.0 / 3.0, 1.0)).max(f64::MIN_POSITIVE)
        };
        let sweep = Sweep {
            reference: CUBIC,
            cases: &cases,
            figure: (
                ["goodput_mbit", "reference_goodput_mbit"],
                "goodput\nMbit/s",
                &goodput,
            ),
            beside: &[
                ("delay_mean_ms", "delay\nmean ms", &|m: &Measured| {
                    m.delay(1.0 / 3.0, 1.0)
                }),
                ("delay_p95_ms", "delay\np95 ms", &|m: &Measured| {
                    m.figures.delay_p95_ms
                }),
            ],
            axis: None,
            judge: &|case, pair| {
                let share = ratio(goodput(case, pair.own), goodput(case, pair.reference));
                let power = ratio(power(case, pair.own), power(case, pair.reference));
                Verdict::at_least(share, 0.8, 0.5)
                    .max(Verdict::at_least(power, 0.8, 0.8).no_worse_than_caution())
            },
        };
        sweep.answer(setting, outcomes, |places| {
            least(places, |place, own, cubic| {
                format!("with {place}: {own:.2} Mbit/s, Cubic {cubic:.2}")
            })
        })
    },
};

fn cells() -> Vec<Case> {
    vec![
        Case::new("5mbit-100p", "5 Mbit/s, 100 packets", 5.0),
        Case::new("5mbit-1000p", "5 Mbit/s, 1,000 packets", 5.0),
        Case::new("20mbit-100p", "20 Mbit/s, 100 packets", 20.0),
        Case::new("20mbit-1000p", "20 Mbit/s, 1,000 packets", 20.0),
    ]
}

/// What becomes of acknowledgements.
pub(super) const ACKS: Question = Question {
    name: "ack-path",
    title: "Acknowledgements thinned and late",
    about: "One flow on the standard link; on the way back a link of 1 Mbit/s, less than the \
            acknowledgements need; half of the acknowledgements lost at random; or a Cubic flow in \
            the other direction that fills a link of 10 Mbit/s with 100 packets of buffer. Counted \
            is the second half.",
    source: "RFC 9743, 6 (properties of paths) and 5.3.2 (equipment in the current Internet); RFC \
             3449 (Asymmetric Paths)",
    criterion: "Pass: at least 85 % of Cubic's goodput in every place, or 80 % of the link. \
                Caution: at least 50 %. Fail: less.",
    plan: |setting| {
        let seconds = setting.pick(30.0, 15.0);
        let bulk = "from = \"a\"\nto = \"b\"\nbulk = {}";
        Plan::Runs(sweep::runs(setting, CUBIC, &acks(), bulk, |case| {
            let (rate, loss, queue) = match case.key.as_str() {
                "clean" => ("96mbit", "0%", "droptail:1000p"),
                "slow" => ("1mbit", "0%", "droptail:50p"),
                "thinned" => ("96mbit", "50%", "droptail:1000p"),
                _ => ("10mbit", "0%", "droptail:100p"),
            };
            let network = format!(
                r#"
node = [
    {{ name = "a" }},
    {{ name = "left", switch = true }},
    {{ name = "right", switch = true }},
    {{ name = "b" }},
    {{ name = "c" }},
    {{ name = "d" }},
]
link = [
    {{ from = "a", to = "left", rate = "10gbit" }},
    {{ from = "d", to = "left", rate = "10gbit" }},
    {{ name = "there", from = "left", to = "right", rate = "{RATE}", delay = "10ms", queue = "droptail:160p", one_way = true }},
    {{ name = "back", from = "right", to = "left", rate = "{rate}", delay = "10ms", queue = "{queue}", loss = "{loss}", one_way = true }},
    {{ from = "right", to = "b", rate = "10gbit" }},
    {{ from = "right", to = "c", rate = "10gbit" }},
]
"#
            );
            let sketch = Sketch::network(network).seconds(seconds).look_at("there");
            if case.key == "congested" {
                sketch.flow("native:cubic", "bulk = {}", "from = \"c\"\nto = \"d\"")
            } else {
                sketch
            }
        }))
    },
    judge: |setting, outcomes| {
        let cases = acks();
        let goodput = |_: &Case, m: &Measured| m.goodput(0, 0.5, 1.0);
        let sweep = Sweep {
            reference: CUBIC,
            cases: &cases,
            figure: (
                ["goodput_mbit", "reference_goodput_mbit"],
                "goodput\nMbit/s",
                &goodput,
            ),
            beside: &[("delay_mean_ms", "delay there\nmean ms", &|m: &Measured| {
                m.delay(0.5, 1.0)
            })],
            axis: None,
            judge: &|case, pair| {
                let own = goodput(case, pair.own);
                let beside =
                    Verdict::at_least(ratio(own, goodput(case, pair.reference)), 0.85, 0.5);
                beside.min(Verdict::at_least(
                    own,
                    0.8 * pair.own.rate_mbit,
                    f64::INFINITY,
                ))
            },
        };
        sweep.answer(setting, outcomes, |places| {
            least(places, |place, own, cubic| {
                format!("with {place}: {own:.1} Mbit/s, Cubic {cubic:.1}")
            })
        })
    },
};

fn acks() -> Vec<Case> {
    vec![
        Case::new("clean", "nothing amiss", 0.0),
        Case::new("slow", "1 Mbit/s on the way back", 1.0),
        Case::new("thinned", "half of the acknowledgements lost", 2.0),
        Case::new("congested", "a flow the other way", 3.0),
    ]
}

/// Another route in the middle.
pub(super) const CHANGES: Question = Question {
    name: "changes",
    title: "A route that changes",
    about: "One flow on the standard link, which changes after a third of the time and back after \
            two: 20 ms of round trip to 60; 60 ms to 35; 96 Mbit/s to 24; 24 to 96. The buffer \
            stays. Counted are the second and the last third, each but for its first three \
            seconds.",
    source: "RFC 9743, section 7 (Sudden Changes in the Path; Paths with Varying Delay)",
    criterion: "Pass: at least 85 % of Cubic's goodput in both thirds, or 80 % of the link. \
                Caution: at least 50 %. Fail: less: it does not find out that the path is another \
                one.",
    plan: |setting| {
        let seconds = setting.pick(90.0, 45.0);
        Plan::Runs(sweep::runs(
            setting,
            CUBIC,
            &changes(),
            "bulk = {}",
            |case| {
                let (rate, rtt, change, back) = match case.key.as_str() {
                    "longer" => (RATE, RTT, "delay = \"50ms\"", "delay = \"10ms\""),
                    "shorter" => (RATE, "60ms", "delay = \"5ms\"", "delay = \"30ms\""),
                    "slower" => (RATE, RTT, "rate = \"24mbit\"", "rate = \"96mbit\""),
                    _ => ("24mbit", RTT, "rate = \"96mbit\"", "rate = \"24mbit\""),
                };
                Sketch::link(rate, rtt, "droptail:240kB")
                    .seconds(seconds)
                    .event(seconds / 3.0, "bottleneck", change)
                    .event(seconds * 2.0 / 3.0, "bottleneck", back)
            },
        ))
    },
    judge: |setting, outcomes| {
        let cases = changes();
        let settled = |m: &Measured| 3.0 / m.duration_s.max(9.0);
        // The lesser of both thirds, in parts of what the link could carry then.
        let used = |case: &Case, m: &Measured| {
            let (second, last) = match case.key.as_str() {
                "slower" => (24.0, 96.0),
                "faster" => (96.0, 24.0),
                _ => (96.0, 96.0),
            };
            let one = m.goodput(0, 1.0 / 3.0 + settled(m), 2.0 / 3.0) / second;
            let two = m.goodput(0, 2.0 / 3.0 + settled(m), 1.0) / last;
            one.min(two) * 100.0
        };
        let sweep = Sweep {
            reference: CUBIC,
            cases: &cases,
            figure: (
                ["least_percent", "reference_least_percent"],
                "least use\n%",
                &used,
            ),
            beside: &[("delay_p95_ms", "delay\np95 ms", &|m: &Measured| {
                m.figures.delay_p95_ms
            })],
            axis: None,
            judge: &|case, pair: Pair| {
                let own = used(case, pair.own);
                let beside = Verdict::at_least(ratio(own, used(case, pair.reference)), 0.85, 0.5);
                beside.min(Verdict::at_least(own, 80.0, f64::INFINITY))
            },
        };
        sweep.answer(setting, outcomes, |places| {
            least(places, |place, own, cubic| {
                format!("when {place}: {own:.0} % of the link, Cubic {cubic:.0} %")
            })
        })
    },
};

fn changes() -> Vec<Case> {
    vec![
        Case::new("longer", "the path gets longer, 20 to 60 ms", 0.0),
        Case::new("shorter", "the path gets shorter, 60 to 35 ms", 1.0),
        Case::new("slower", "the link gets slower, 96 to 24 Mbit/s", 2.0),
        Case::new("faster", "the link gets faster, 24 to 96 Mbit/s", 3.0),
    ]
}
