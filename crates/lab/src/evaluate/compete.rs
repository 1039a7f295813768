//! Beside the algorithms that are in use: what they keep, and what is left for ours.
//!
//! Harm is measured as Ware, Mukerjee, Seshan and Sherry propose (Beyond Jain's Fairness Index,
//! HotNets 2019): what the other one loses to the newcomer, compared with what it loses to another
//! one of its own kind in the same place. An algorithm that takes no more than that changes nothing
//! for those who are there already.

use ccplane_report::Table;
use ccplane_report::chart::{Axis, Chart, ChartSeries};

use super::measured::mean;
use super::question::{Answer, Outcomes, Place, Plan, Question, Setting, Verdict};
use super::sketch::{RATE, RTT, Sketch, word};

/// Beside Cubic.
pub(super) const CUBIC: Question = Question {
    name: "cubic",
    title: "Beside Cubic",
    about: ABOUT,
    source: "RFC 9743, 5.2 and 5.2.1; Cubic is RFC 9438",
    criterion: CRITERION,
    plan: |setting| plan(setting, "native:cubic"),
    judge: |setting, outcomes| judge(setting, outcomes, "Cubic"),
};

/// Beside Reno.
pub(super) const RENO: Question = Question {
    name: "reno",
    title: "Beside Reno",
    about: ABOUT,
    source: "RFC 9743, 5.2 and 5.2.1; Reno is RFC 5681 with RFC 6582",
    criterion: CRITERION,
    plan: |setting| plan(setting, "native:reno"),
    judge: |setting, outcomes| judge(setting, outcomes, "Reno"),
};

/// Beside BBR, once there is one.
pub(super) const BBR: Question = Question {
    name: "bbr",
    title: "Beside BBR",
    about: ABOUT,
    source: "RFC 9743, 5.2.1: other algorithms that are known to be widely deployed",
    criterion: CRITERION,
    plan: |setting| match &setting.bbr {
        Some(bbr) => plan(setting, &bbr.to_string()),
        None => Plan::Cannot(
            "there is no BBR among the algorithms of this program to compare with".to_owned(),
        ),
    },
    judge: |setting, outcomes| judge(setting, outcomes, "BBR"),
};

const ABOUT: &str = "One flow of each on the standard link (96 Mbit/s, 20 ms), with buffers from \
                     half a BDP to five; once ours begins and the other joins after a tenth of the \
                     time, once the other way round; for comparison the other one beside itself. \
                     Counted are the last two thirds. Up to 0.2 ms of jitter keeps the flows from \
                     marching in step.";
const CRITERION: &str = "Kept is what the other one gets beside ours, of what it gets beside its \
                         own kind, at the buffer where it is least: harm in the sense of Ware et \
                         al. (HotNets 2019), whose bar is to do no more than the other does to \
                         itself. Pass: at least 75 %, and ours has at least a quarter of the link \
                         itself, half of an equal share. Caution: at least 50 %, or ours has less \
                         than that quarter. Fail: less than 50 %. The bounds are ours.";

/// Where the counting begins: both are there since a tenth of the time.
const COUNTED_FROM: f64 = 1.0 / 3.0;
/// The later one joins here.
const JOINS_AT: f64 = 0.1;

fn buffers(setting: &Setting) -> &'static [f64] {
    setting.pick(&[0.5, 1.0, 2.0, 5.0], &[0.5, 2.0])
}

fn plan(setting: &Setting, other: &str) -> Plan {
    let seconds = setting.pick(60.0, 20.0);
    let (early, late) = (
        String::new(),
        format!("start = \"{}ms\"", seconds * JOINS_AT * 1e3),
    );
    let ours = setting.name();
    let mut runs = Vec::new();
    for buffer in buffers(setting) {
        // The first flow is always that which begins.
        for (order, first, second) in [
            ("first", &*ours, other),
            ("second", other, &*ours),
            ("other", other, other),
        ] {
            let sketch = Sketch::dumbbell(RATE, RTT, format!("droptail:{buffer}bdp"))
                .with("jitter = \"200us\"")
                .seconds(seconds)
                .flow(
                    first,
                    "bulk = {}",
                    &format!("from = \"left1\"\nto = \"right1\"\n{early}"),
                )
                .flow(
                    second,
                    "bulk = {}",
                    &format!("from = \"left2\"\nto = \"right2\"\n{late}"),
                );
            runs.push(sketch.run(key(order, *buffer)));
        }
    }
    Plan::Runs(runs)
}

fn key(order: &str, buffer: f64) -> String {
    format!("{order}-{}", word(buffer))
}

/// At one buffer.
struct Point {
    buffer: f64,
    /// Of the link's goodput, what ours had, in the mean of both orders.
    share: f64,
    /// What the other one had, of what it has beside itself.
    kept: f64,
    delay_ms: f64,
    delay_own_kind_ms: f64,
}

fn judge(setting: &Setting, outcomes: &Outcomes, other: &str) -> Answer {
    let point = |buffer: &f64| {
        let counted = |run: &str, flow: usize| {
            outcomes
                .of(&key(run, *buffer))
                .goodput(flow, COUNTED_FROM, 1.0)
        };
        let ours = mean(&[counted("first", 0), counted("second", 1)]);
        let theirs = mean(&[counted("first", 1), counted("second", 0)]);
        let alone = mean(&[counted("other", 0), counted("other", 1)]);
        let delay = |run: &str| outcomes.of(&key(run, *buffer)).delay(COUNTED_FROM, 1.0);
        Point {
            buffer: *buffer,
            share: ours / (ours + theirs).max(f64::MIN_POSITIVE),
            kept: theirs / alone.max(f64::MIN_POSITIVE),
            delay_ms: mean(&[delay("first"), delay("second")]),
            delay_own_kind_ms: delay("other"),
        }
    };
    let points: Vec<Point> = buffers(setting).iter().map(point).collect();
    let least = |value: fn(&Point) -> f64| {
        points
            .iter()
            .min_by(|a, b| value(a).total_cmp(&value(b)))
            .map_or((0.0, 0.0), |point| (value(point), point.buffer))
    };
    let ((kept, kept_at), (share, share_at)) = (least(|p| p.kept), least(|p| p.share));
    let harm = Verdict::at_least(kept, 0.75, 0.5);
    let own = Verdict::at_least(share, 0.25, 0.25).no_worse_than_caution();
    let mut finding = format!(
        "Beside {}, {other} keeps {:.0} % of what it has beside itself, at worst ({kept_at} BDP of \
         buffer); {0} has {:.0} % of the link, at least ({share_at} BDP).",
        setting.algorithm.algorithm(),
        kept * 100.0,
        share * 100.0
    );
    if share < 0.1 {
        finding += " It starves there.";
    }
    if kept < 0.5 {
        finding += &format!(" It takes more than its share from {other}.");
    }
    let place = |point: &Point| {
        let numbers = [
            ("kept_share", point.kept),
            ("share", point.share),
            ("delay_mean_ms", point.delay_ms),
        ];
        Place::new(format!("{}bdp", point.buffer), numbers)
    };
    let row = |point: &Point| {
        vec![
            format!("{} BDP", point.buffer),
            format!("{:.0}", point.share * 100.0),
            format!("{:.0}", point.kept * 100.0),
            format!("{:.2}", point.delay_ms),
            format!("{:.2}", point.delay_own_kind_ms),
        ]
    };
    // 1 BDP, or what comes next.
    let shown = points
        .iter()
        .map(|point| point.buffer)
        .find(|buffer| *buffer >= 1.0);
    let shown = shown.unwrap_or_else(|| points.last().map_or(0.0, |point| point.buffer));
    Answer {
        verdict: harm.max(own),
        finding,
        figures: vec![("least_kept_share", kept), ("least_share", share)],
        places: points.iter().map(place).collect(),
        reference: None,
        table: Table::new(
            vec![
                "buffer",
                "share of ours\n%",
                "the other keeps\n%",
                "delay\nms",
                "without ours\nms",
            ],
            points.iter().map(row).collect(),
        ),
        relative: Vec::new(),
        charts: vec![
            Chart {
                title: "by buffer, %".to_owned(),
                x: Axis::log("buffer, BDP"),
                y: Axis::linear("").with_range(0.0, 160.0),
                lines: vec![
                    ChartSeries::new(
                        "share of ours",
                        0,
                        points.iter().map(|p| (p.buffer, p.share * 100.0)),
                    )
                    .dots(),
                    ChartSeries::new(
                        "the other keeps",
                        1,
                        points
                            .iter()
                            .map(|p| (p.buffer, (p.kept * 100.0).min(160.0))),
                    )
                    .dots(),
                ],
                guides: vec![
                    (50.0, "an equal share".to_owned()),
                    (100.0, "no harm".to_owned()),
                ],
            },
            course(
                outcomes,
                &key("second", shown),
                (other, setting.algorithm.algorithm()),
                shown,
            ),
        ],
    }
}

/// The run in which ours joined later.
fn course(outcomes: &Outcomes, key: &str, (first, second): (&str, &str), buffer: f64) -> Chart {
    let run = outcomes.of(key);
    Chart {
        title: format!("goodput, Mbit/s ({buffer} BDP of buffer)"),
        x: run.time(),
        y: Axis::linear(""),
        lines: vec![
            ChartSeries::new(first, 1, run.flow_course(0)),
            ChartSeries::new(second, 0, run.flow_course(1)),
        ],
        guides: vec![(run.rate_mbit / 2.0, "half".to_owned())],
    }
}
