//! Losses that are not the algorithm's doing.

use ccplane_report::chart::Axis;

use super::measured::Measured;
use super::question::{Plan, Question, Setting, Verdict};
use super::sketch::{RATE, RTT, Sketch, word};
use super::sweep::{self, CUBIC, Case, RENO, Sweep, least, ratio};

/// Random loss from 0 to 10 %.
pub(super) const RANDOM: Question = Question {
    name: "loss",
    title: "Random loss",
    about: "One flow on the standard link (96 Mbit/s, 20 ms, 1 BDP) that loses packets at random, \
            independently of each other; Reno beside it in runs of its own. Counted are the last \
            two thirds.",
    source: "RFC 9743, 6.4 (Wireless Paths) and 5.1.3 (Protection Against High Packet Loss)",
    criterion: "Pass: at least 75 % of Reno's goodput at every rate of loss (at 10 % a few \
                timeouts decide), and less than 80 % of the link at 10 % loss. Caution: at least \
                50 % of Reno's; or it does not slow down at 10 % loss, where RFC 9743, 5.1.3, \
                expects that it does. Fail: less than that.",
    plan: |setting| {
        let seconds = setting.pick(30.0, 15.0);
        let cases = rates(setting);
        Plan::Runs(sweep::runs(setting, RENO, &cases, "bulk = {}", |case| {
            let link = Sketch::link(RATE, RTT, "droptail:1bdp").seconds(seconds);
            if case.x > 0.0 {
                link.with(format!("loss = \"{}%\"", case.x))
            } else {
                link
            }
        }))
    },
    judge: |setting, outcomes| {
        let cases = rates(setting);
        let goodput = |_: &Case, m: &Measured| m.goodput(0, 1.0 / 3.0, 1.0);
        let insists =
            |case: &Case, m: &Measured| case.x >= 10.0 && goodput(case, m) >= 0.8 * m.rate_mbit;
        let sweep = Sweep {
            reference: RENO,
            cases: &cases,
            figure: (
                ["goodput_mbit", "reference_goodput_mbit"],
                "goodput\nMbit/s",
                &goodput,
            ),
            beside: &[],
            axis: Some(Axis::linear("loss, %")),
            judge: &|case, pair| {
                let share = ratio(goodput(case, pair.own), goodput(case, pair.reference));
                let insists = if insists(case, pair.own) {
                    Verdict::Caution
                } else {
                    Verdict::Pass
                };
                Verdict::at_least(share, 0.75, 0.5).max(insists)
            },
        };
        sweep.answer(setting, outcomes, |places| {
            let at = |percent: f64| places.iter().find(|place| place.0.x == percent);
            let [one, ten] =
                [at(1.0), at(10.0)].map(|place| place.map_or((0.0, 0.0), |p| (p.1, p.2)));
            format!(
                "At 1 % loss it gets {:.1} Mbit/s (Reno {:.1}), at 10 % {:.1} (Reno {:.1}).",
                one.0, one.1, ten.0, ten.1
            )
        })
    },
};

fn rates(setting: &Setting) -> Vec<Case> {
    let rates: &[f64] = setting.pick(
        &[0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0],
        &[0.0, 0.1, 1.0, 10.0],
    );
    rates
        .iter()
        .map(|p| Case::new(word(p), format!("{p} %"), *p))
        .collect()
}

/// Losses in bursts, and no answer at all for a while.
pub(super) const BURSTS: Question = Question {
    name: "bursts",
    title: "Bursts of loss, and outages",
    about: "One flow on the standard link: with losses in bursts of 5 and of 50 packets (Gilbert's \
            model; in both one packet in a thousand is lost), and with the link down for half a \
            second and for five. Cubic beside it in runs of its own. Counted is all after the \
            first third; the link is down from there on.",
    source: "RFC 9743, 5.2 (backoff at a loss of all feedback) and section 7 (Transient Events)",
    criterion: "Pass: at least 85 % of Cubic's goodput in every place. Caution: at least 50 %. \
                Fail: less.",
    plan: |setting| {
        let seconds = setting.pick(60.0, 30.0);
        Plan::Runs(sweep::runs(
            setting,
            CUBIC,
            &bursts(),
            "bulk = {}",
            |case| {
                let link = Sketch::link(RATE, RTT, "droptail:1bdp").seconds(seconds);
                let down = |link: Sketch, length: f64| {
                    let from = seconds / 3.0;
                    link.event(from, "bottleneck", "up = false").event(
                        from + length,
                        "bottleneck",
                        "up = true",
                    )
                };
                match case.key.as_str() {
                    // Mean length of a burst 1/r, share of time in it p/(p+r).
                    "burst-5" => link.with("loss = \"gilbert:p=0.02%:r=20%\""),
                    "burst-50" => link.with("loss = \"gilbert:p=0.002%:r=2%\""),
                    "down-0.5s" => down(link, 0.5),
                    _ => down(link, 5.0),
                }
            },
        ))
    },
    judge: |setting, outcomes| {
        let cases = bursts();
        let goodput = |_: &Case, m: &Measured| m.goodput(0, 1.0 / 3.0, 1.0);
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
            axis: None,
            judge: &|case, pair| {
                Verdict::at_least(
                    ratio(goodput(case, pair.own), goodput(case, pair.reference)),
                    0.85,
                    0.5,
                )
            },
        };
        sweep.answer(setting, outcomes, |places| {
            least(places, |place, own, cubic| {
                format!("with {place}: {own:.1} Mbit/s, Cubic {cubic:.1}")
            })
        })
    },
};

fn bursts() -> Vec<Case> {
    vec![
        Case::new("burst-5", "bursts of 5 packets", 0.0),
        Case::new("burst-50", "bursts of 50 packets", 1.0),
        Case::new("down-0.5s", "0.5 s without a link", 2.0),
        Case::new("down-5s", "5 s without a link", 3.0),
    ]
}
