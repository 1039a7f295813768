//! Queues that manage themselves, and marks.

use super::measured::Measured;
use super::question::{Plan, Question, Verdict};
use super::sketch::{RATE, RTT, Sketch};
use super::sweep::{self, CUBIC, Case, Sweep, least, ratio};

/// Queue disciplines with and without ECN.
pub(super) const AQM: Question = Question {
    name: "aqm",
    title: "Active queue management and ECN",
    about: "One flow on the standard link (96 Mbit/s, 20 ms) behind CoDel, FQ-CoDel, RED and \
            DualPI2 that drop, and behind CoDel, DualPI2 and a threshold of 27 packets that mark; \
            Cubic beside it in runs of its own, with ECN where ours has it. Counted is the second \
            half.",
    source: "RFC 9743, section 7 (Active Queue Management): a variety of queue disciplines, and a \
             reaction to marks as the ECT codepoint demands (RFC 3168, RFC 9332); CoDel RFC 8289, \
             FQ-CoDel RFC 8290",
    criterion: "Pass: at least 85 % of Cubic's goodput in every place, and packets wait at most \
                twice as long as under Cubic, or 5 ms (what CoDel allows). Caution: at least 50 %, \
                and at most five times as long. Fail: beyond. Where the queue marks, waiting \
                longer means that marks are not heeded.",
    plan: |setting| {
        let seconds = setting.pick(30.0, 15.0);
        Plan::Runs(sweep::runs(
            setting,
            CUBIC,
            &queues(),
            "bulk = {}",
            |case| {
                let sketch = |queue| Sketch::link(RATE, RTT, queue).seconds(seconds);
                match case.key.as_str() {
                    "codel" => sketch("codel"),
                    "fq-codel" => sketch("fq_codel:noecn"),
                    "red" => sketch("red:min=30p:max=90p:limit=2bdp:probability=10%"),
                    "dualpi2" => sketch("dualpi2"),
                    "codel-ecn" => sketch("codel:ecn").ecn(),
                    "dualpi2-ecn" => sketch("dualpi2").ecn(),
                    _ => sketch("ecn:27p:2bdp").ecn(),
                }
            },
        ))
    },
    judge: |setting, outcomes| {
        let cases = queues();
        let goodput = |_: &Case, m: &Measured| m.goodput(0, 0.5, 1.0);
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
                    m.delay(0.5, 1.0)
                }),
                ("dropped_percent", "dropped\n%", &|m: &Measured| {
                    m.dropped() * 100.0
                }),
            ],
            axis: None,
            judge: &|case, pair| {
                let share = ratio(goodput(case, pair.own), goodput(case, pair.reference));
                let (own, cubic) = (pair.own.delay(0.5, 1.0), pair.reference.delay(0.5, 1.0));
                Verdict::at_least(share, 0.85, 0.5).max(Verdict::at_most(
                    own,
                    (2.0 * cubic).max(5.0),
                    (5.0 * cubic).max(10.0),
                ))
            },
        };
        let longest = cases
            .iter()
            .map(|case| {
                (
                    outcomes.of(&format!("own-{}", case.key)).delay(0.5, 1.0),
                    case,
                )
            })
            .max_by(|a, b| a.0.total_cmp(&b.0));
        sweep.answer(setting, outcomes, |places| {
            let least = least(places, |place, own, cubic| {
                format!("behind {place}: {own:.1} Mbit/s, Cubic {cubic:.1}")
            });
            let longest = longest.iter();
            let longest = longest.map(|(ms, at)| {
                format!(
                    " Packets wait longest behind {}: {ms:.1} ms on average.",
                    at.label
                )
            });
            least + &longest.collect::<String>()
        })
    },
};

fn queues() -> Vec<Case> {
    vec![
        Case::new("codel", "CoDel", 0.0),
        Case::new("fq-codel", "FQ-CoDel", 1.0),
        Case::new("red", "RED", 2.0),
        Case::new("dualpi2", "DualPI2", 3.0),
        Case::new("codel-ecn", "CoDel that marks", 4.0),
        Case::new("dualpi2-ecn", "DualPI2 that marks", 5.0),
        Case::new("threshold", "a threshold of 27 packets that marks", 6.0),
    ]
}
