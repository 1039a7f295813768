//! From 50 µs to 2 s, from 100 kbit/s to 100 Gbit/s.

use ccplane_report::chart::Axis;

use super::measured::Measured;
use super::question::{Answer, Outcomes, Plan, Question, Setting, Verdict};
use super::sketch::Sketch;
use super::sweep::{self, CUBIC, Case, Sweep, least, ratio};

/// Round-trip times.
pub(super) const DELAYS: Question = Question {
    name: "rtt-range",
    title: "Round-trip times from 50 µs to 2 s",
    about: "One flow, a buffer of one BDP (20 packets at least), rates as they go with such paths: \
            10 Gbit/s at 50 and 500 µs, 1 Gbit/s at 5 ms, 96 Mbit/s to 100 ms, 48 at 300 and 24 at \
            600 ms, 4 at 2 s; 200 round trips or more. Counted is the second half.",
    source: "RFC 9743, 6 (a representative range of delays) and section 7 (Paths with High Delay, \
             Data Centers)",
    criterion: CRITERION,
    plan: |setting| plan(setting, &delays(setting)),
    judge: |setting, outcomes| {
        judge(
            setting,
            outcomes,
            &delays(setting),
            Axis::log("round-trip time, ms"),
            &delay_of,
        )
    },
};

/// Rates.
pub(super) const RATES: Question = Question {
    name: "rate-range",
    title: "Rates from 100 kbit/s to 100 Gbit/s",
    about: "One flow over 20 ms (100 ms below 1 Mbit/s, 100 µs at 100 Gbit/s, as in a data \
            centre), a buffer of one BDP (20 packets at least). Counted is the second half.",
    source: "RFC 9743, 6 (a representative range of bandwidths)",
    criterion: CRITERION,
    plan: |setting| plan(setting, &rates(setting)),
    judge: |setting, outcomes| {
        judge(
            setting,
            outcomes,
            &rates(setting),
            Axis::log("rate, Mbit/s"),
            &rate_of,
        )
    },
};

const CRITERION: &str = "Pass: 80 % of the link in every place, or 90 % of what Cubic uses there. \
                         Caution: at least 50 % of the link or of Cubic. Fail: less.";

/// A path: rate in Mbit/s, round-trip time in µs, length of the run in s.
type Path = (f64, f64, f64);

fn delays(setting: &Setting) -> Vec<Path> {
    let full = [
        (10_000.0, 50.0, 0.3),
        (10_000.0, 500.0, 0.6),
        (1_000.0, 5_000.0, 4.0),
        (96.0, 20_000.0, 30.0),
        (96.0, 100_000.0, 60.0),
        (48.0, 300_000.0, 120.0),
        (24.0, 600_000.0, 240.0),
        (4.0, 2_000_000.0, 400.0),
    ];
    let few = |path: &Path| [50.0, 5_000.0, 100_000.0, 600_000.0, 2_000_000.0].contains(&path.1);
    full.into_iter()
        .filter(|path| !setting.quick || few(path))
        .collect()
}

fn rates(setting: &Setting) -> Vec<Path> {
    let full = [
        (0.1, 100_000.0, 120.0),
        (1.0, 20_000.0, 60.0),
        (10.0, 20_000.0, 30.0),
        (100.0, 20_000.0, 30.0),
        (1_000.0, 20_000.0, 20.0),
        (10_000.0, 20_000.0, 6.0),
        (100_000.0, 100.0, 0.25),
    ];
    // Still 500 and 1,000 round trips where packets are many.
    let few = [
        (0.1, 100_000.0, 120.0),
        (10.0, 20_000.0, 30.0),
        (1_000.0, 20_000.0, 10.0),
        (100_000.0, 100.0, 0.1),
    ];
    setting.pick(full.to_vec(), few.to_vec())
}

fn delay_of(path: &Path) -> f64 {
    path.1 / 1e3
}

fn rate_of(path: &Path) -> f64 {
    path.0
}

fn cases(paths: &[Path], x: &dyn Fn(&Path) -> f64) -> Vec<Case> {
    let rate = |mbit: f64| match mbit {
        m if m >= 1_000.0 => format!("{}gbit", m / 1e3),
        m if m >= 1.0 => format!("{m}mbit"),
        m => format!("{}kbit", m * 1e3),
    };
    let time = |us: f64| {
        if us >= 1_000.0 {
            format!("{}ms", us / 1e3)
        } else {
            format!("{us}us")
        }
    };
    let case = |path: &Path| {
        let (rate, time) = (rate(path.0), time(path.1));
        Case::new(format!("{rate}-{time}"), format!("{rate}, {time}"), x(path))
    };
    paths.iter().map(case).collect()
}

fn plan(setting: &Setting, paths: &[Path]) -> Plan {
    let cases = cases(paths, &delay_of);
    Plan::Runs(sweep::runs(setting, CUBIC, &cases, "bulk = {}", |case| {
        let (rate, rtt) = case.key.split_once('-').unwrap_or_default();
        let path = cases
            .iter()
            .position(|other| other.key == case.key)
            .and_then(|i| paths.get(i));
        let (mbit, us, seconds) = path.copied().unwrap_or((96.0, 20_000.0, 30.0));
        // Fewer than so many packets are not a buffer that anybody sells.
        let queue = if mbit * us / 8.0 < 20.0 * 1_500.0 {
            "droptail:20p"
        } else {
            "droptail:1bdp"
        };
        Sketch::link(rate, rtt, queue).seconds(seconds)
    }))
}

fn judge(
    setting: &Setting,
    outcomes: &Outcomes,
    paths: &[Path],
    axis: Axis,
    x: &dyn Fn(&Path) -> f64,
) -> Answer {
    let cases = cases(paths, x);
    let used = |_: &Case, m: &Measured| m.utilisation(0.5, 1.0) * 100.0;
    let sweep = Sweep {
        reference: CUBIC,
        cases: &cases,
        figure: (
            ["used_percent", "reference_used_percent"],
            "link use\n%",
            &used,
        ),
        beside: &[
            ("delay_mean_ms", "delay\nmean ms", &|m: &Measured| {
                m.delay(0.5, 1.0)
            }),
            ("dropped_percent", "dropped\n%", &|m: &Measured| {
                m.dropped() * 100.0
            }),
        ],
        axis: Some(axis),
        judge: &|case, pair| {
            let (own, cubic) = (used(case, pair.own), used(case, pair.reference));
            Verdict::at_least(own, 80.0, 50.0).min(Verdict::at_least(ratio(own, cubic), 0.9, 0.5))
        },
    };
    sweep.answer(setting, outcomes, |places| {
        least(places, |place, own, cubic| {
            format!("at {place}: {own:.0} % of the link, Cubic {cubic:.0} %")
        })
    })
}
