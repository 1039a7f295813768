//! The incast's figures beside the paper's statements.

use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};

use super::super::page::Findings;
use super::{Point, RATES, ROUND_TRIPS, SIZES, SetUp, Who};
use ccplane_lab::metrics::Distribution;

/// Points and the tails of their seeds.
pub(super) struct Results(pub Vec<(Point, Vec<f64>)>);

impl Results {
    fn tails(&self, set_up: &SetUp, at: (u64, u64, u64), who: Who) -> Option<&Vec<f64>> {
        let found = self.0.iter().find(|(point, _)| {
            point.set_up == set_up
                && (point.gbit, point.rtt_us, point.packets) == at
                && point.who == who
        });
        found.map(|(_, tails)| tails)
    }

    /// The mean tail over that of the datapath.
    fn ratio(&self, set_up: &SetUp, at: (u64, u64, u64), who: Who) -> Option<f64> {
        let mean = |who| Distribution::new(self.tails(set_up, at, who)?.iter().copied()).mean();
        Some(mean(who)? / mean(Who::Datapath)?)
    }

    /// The worst ratio of the three sizes.
    fn worst(&self, set_up: &SetUp, gbit: u64, rtt_us: u64, who: Who) -> Option<f64> {
        let ratios = SIZES
            .iter()
            .filter_map(|packets| self.ratio(set_up, (gbit, rtt_us, *packets), who));
        ratios.reduce(f64::max)
    }
}

/// What came out, beside the paper's statements.
pub(super) fn findings(
    results: &Results,
    intervals: &[u64],
    set_ups: &'static [SetUp],
) -> Findings {
    let mut findings = Findings::default();
    let Some(first) = set_ups.first() else {
        return findings;
    };
    let longest = intervals.iter().copied().max().unwrap_or(0);
    for rtt in ROUND_TRIPS {
        let suffix = if rtt == ROUND_TRIPS[0] {
            String::new()
        } else {
            format!("_rtt{rtt}")
        };
        let named = |text: &str| format!("{text}, RTT {rtt} µs");
        findings.compare(
            &format!("incast_10g_500us_ratio{suffix}"),
            &named("10 Gbit/s, every 500 µs, worst size"),
            results.worst(first, 10, rtt, Who::Outside(500)),
            "within 1.15 (text), at most 1.20 (caption)",
            TargetRange::AtMost(1.2),
        );
        for (packets, aim) in SIZES.iter().zip([TargetRange::AtMost(1.1); 3]) {
            findings.compare(
                &format!("incast_40g_100us_{packets}{suffix}"),
                &named(&format!("40 Gbit/s, every 100 µs, {packets} packets")),
                results.ratio(first, (40, rtt, *packets), Who::Outside(100)),
                "within 1.10",
                aim,
            );
        }
        for packets in SIZES {
            findings.compare(
                &format!("incast_40g_500us_{packets}{suffix}"),
                &named(&format!("40 Gbit/s, every 500 µs, {packets} packets")),
                results.ratio(first, (40, rtt, packets), Who::Outside(500)),
                "",
                None,
            );
            findings.compare(
                &format!("incast_40g_1ms_{packets}{suffix}"),
                &named(&format!("40 Gbit/s, every 1 ms, {packets} packets")),
                results.ratio(first, (40, rtt, packets), Who::Outside(1_000)),
                "1 ms is enough to avoid degradation (caption)",
                TargetRange::AtMost(1.1),
            );
            let ccplane = intervals.iter().map(|us| Who::Ccplane(*us));
            let ratios = ccplane.filter_map(|who| results.ratio(first, (40, rtt, packets), who));
            findings.compare(
                &format!("incast_40g_ccplane_{packets}{suffix}"),
                &named(&format!(
                    "ccplane's Reno, 40 Gbit/s, worst interval, {packets} packets"
                )),
                ratios.reduce(f64::max),
                "",
                None,
            );
        }
        for (packets, paper, aim) in [
            (
                10,
                "does not slow with the interval",
                TargetRange::AtMost(1.1),
            ),
            (100, "over 2", TargetRange::AtLeast(2.0)),
            (
                1_000,
                "does not slow with the interval",
                TargetRange::AtMost(1.1),
            ),
        ] {
            findings.compare(
                &format!("incast_40g_longest_{packets}{suffix}"),
                &named(&format!(
                    "40 Gbit/s, every {} ms, {packets} packets",
                    longest as f64 / 1e3
                )),
                results.ratio(first, (40, rtt, packets), Who::Outside(longest)),
                paper,
                aim,
            );
        }
    }
    for gbit in RATES {
        let at_longest = ROUND_TRIPS
            .iter()
            .filter_map(|rtt| results.worst(first, gbit, *rtt, Who::Ccplane(longest)));
        findings.compare(
            &format!("incast_{gbit}g_ccplane_longest"),
            &format!(
                "ccplane's Reno, {gbit} Gbit/s, every {} ms, worst size",
                longest as f64 / 1e3
            ),
            at_longest.reduce(f64::max),
            "",
            TargetRange::AtMost(1.1),
        );
    }
    findings.picture(
        format!(
            "Mean tail completion over that of a window in the datapath, {}, by the reporting interval",
            first.name
        ),
        &pictures(results, intervals, first),
    );
    table(&mut findings, results, intervals, set_ups);
    findings.remark(
        "Ratios are of means over seeds, 50 for the figures beside the paper's and 20 for other set-ups (5 with --quick). In the \
         model of the paper the agent alone decides, in slow start and at losses \
         too; ccplane's Reno does both in its datapath program and leaves to the agent how fast the window grows, so that it \
         does not depend on the interval.",
    );
    findings.deviation(format!(
        "The paper names neither congestion control nor buffer, initial window or retransmission timeout: ours are Reno, \
         and {} for the figures beside the paper's: of the set-ups in the table it is nearest to its statements.",
        first.name
    ));
    findings.deviation(
        "The simulator is ours, not ns-2: every packet is acknowledged at once, SACK and RACK find losses, and connections \
         are open when the requests start.",
    );
    findings.deviation(
        "Figures of 10 µs round trips are beside those of 20: the paper's text has 20, and calls 100 µs ten of them.",
    );
    findings
}

/// A panel for each rate, at the round trip that the text has.
fn pictures(results: &Results, intervals: &[u64], set_up: &SetUp) -> Vec<Chart> {
    let panel = |gbit: u64| {
        let line = |n: usize, packets: u64, ours: bool| {
            let who = if ours { Who::Ccplane } else { Who::Outside };
            let at = (gbit, ROUND_TRIPS[0], packets);
            let points = intervals
                .iter()
                .filter_map(|us| Some((*us as f64, results.ratio(set_up, at, who(*us))?)));
            let label = if ours {
                format!("{packets}, ccplane")
            } else {
                format!("{packets} packets")
            };
            let line = ChartSeries::new(label, n, points).dots();
            if ours { line.dashed() } else { line }
        };
        let sizes = || SIZES.iter().enumerate();
        Chart {
            title: format!("{gbit} Gbit/s"),
            x: Axis::log("reporting interval, µs"),
            y: Axis::linear("").with_range(0.0, 3.0),
            lines: [false, true]
                .into_iter()
                .flat_map(|ours| sizes().map(move |(n, packets)| (n, *packets, ours)))
                .map(|(n, packets, ours)| line(n, packets, ours))
                .collect(),
            guides: vec![(1.0, "in the datapath".into())],
        }
    };
    RATES.map(panel).into()
}

fn table(findings: &mut Findings, results: &Results, intervals: &[u64], set_ups: &'static [SetUp]) {
    let mut headings = vec![
        "set-up".to_owned(),
        "Gbit/s".into(),
        "RTT\nµs".into(),
        "packets".into(),
        "datapath\nµs".into(),
    ];
    headings.extend(intervals.iter().map(|us| format!("{us} µs")));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut rows = Vec::new();
    for set_up in set_ups {
        for (gbit, rtt) in RATES
            .iter()
            .flat_map(|gbit| ROUND_TRIPS.map(|rtt| (*gbit, rtt)))
        {
            for packets in SIZES {
                let at = (gbit, rtt, packets);
                let base = results
                    .tails(set_up, at, Who::Datapath)
                    .map(|tails| Distribution::new(tails.iter().copied()));
                let base = base
                    .and_then(|tails| tails.mean())
                    .map_or("–".into(), |us| format!("{us:.0}"));
                let mut row = vec![
                    set_up.name.to_owned(),
                    gbit.to_string(),
                    rtt.to_string(),
                    packets.to_string(),
                    base,
                ];
                row.extend(intervals.iter().map(|us| {
                    let ratio = results.ratio(set_up, at, Who::Outside(*us));
                    ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"))
                }));
                rows.push(row);
            }
        }
    }
    findings.table(
        "Mean tail completion over that of a window in the datapath, the paper's model",
        &headings,
        rows,
    );
}
#[cfg(test)]
mod tests {
    use super::super::{QUICK_INTERVALS, SET_UPS};
    use super::*;

    fn point(gbit: u64, packets: u64, who: Who) -> Point {
        Point {
            set_up: &SET_UPS[0],
            gbit,
            rtt_us: 20,
            packets,
            who,
            seeds: 2,
        }
    }

    #[test]
    fn ratios_are_of_means_and_the_worst_size_counts() {
        let results = Results(vec![
            (point(10, 10, Who::Datapath), vec![10.0, 30.0]),
            (point(10, 10, Who::Outside(500)), vec![22.0, 22.0]),
            (point(10, 100, Who::Datapath), vec![100.0, 100.0]),
            (point(10, 100, Who::Outside(500)), vec![150.0, 90.0]),
        ]);
        assert_eq!(
            results.ratio(&SET_UPS[0], (10, 20, 10), Who::Outside(500)),
            Some(1.1)
        );
        assert_eq!(
            results.worst(&SET_UPS[0], 10, 20, Who::Outside(500)),
            Some(1.2)
        );
        assert_eq!(
            results.ratio(&SET_UPS[0], (40, 20, 10), Who::Outside(500)),
            None
        );
        let findings = findings(&results, &QUICK_INTERVALS, &SET_UPS[..1]);
        let figures = findings.figures();
        assert_eq!(figures["incast_10g_500us_ratio"], 1.2);
        for key in [
            "incast_40g_100us_10",
            "incast_40g_100us_100",
            "incast_40g_100us_1000",
            "incast_40g_1ms_100",
            "incast_40g_longest_100",
        ] {
            assert!(figures[key].is_null(), "{key}");
        }
    }
}
