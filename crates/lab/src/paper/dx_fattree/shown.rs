//! Completion times beside what the slides say.

use super::super::page::{Aim, Findings};
use super::super::who::{Who, marking_threshold};
use super::{Done, GBIT, LOAD, MIN_RTO};
use crate::metrics::Distribution;
use crate::svg::{Axis, Chart, Line};

/// Contenders, loads and what became of their flows.
pub(super) struct Results<'a>(pub Vec<(Who, u64, &'a Done)>);

/// Flows by size: the least that is no longer of the class, and its name. The first and the last are those of the slides.
const CLASSES: [(u64, &str); 5] = [
    (10_001, "0–10 KB"),
    (100_001, "10–100 KB"),
    (1_000_001, "100 KB–1 MB"),
    (10_000_000, "1–10 MB"),
    (u64::MAX, "10 MB–"),
];
const SMALL: usize = 0;
const LARGE: usize = CLASSES.len() - 1;

/// A statistic of completion times.
#[derive(Clone, Copy)]
enum Statistic {
    Mean,
    P99,
}

impl Statistic {
    const ALL: [Statistic; 2] = [Statistic::Mean, Statistic::P99];

    fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::P99 => "p99",
        }
    }

    fn of(self, times: &Distribution) -> Option<f64> {
        match self {
            Statistic::Mean => times.mean(),
            Statistic::P99 => times.quantile(0.99),
        }
    }
}

impl Results<'_> {
    fn done(&self, who: Who, load: u64) -> Option<&Done> {
        let found = self.0.iter().find(|(whose, at, _)| (*whose, *at) == (who, load));
        found.map(|(_, _, done)| *done)
    }

    /// Completion times of a class, µs.
    fn times(&self, who: Who, load: u64, class: usize) -> Distribution {
        let from = class
            .checked_sub(1)
            .and_then(|below| CLASSES.get(below))
            .map_or(0, |(end, _)| *end);
        let to = CLASSES.get(class).map_or(0, |(end, _)| *end);
        let flows = self.done(who, load).map_or(&[][..], |done| &done.flows);
        let own = flows.iter().filter(|(bytes, _)| (from..to).contains(bytes));
        Distribution::new(own.map(|(_, ns)| *ns as f64 / 1e3))
    }

    fn statistic(&self, who: Who, load: u64, class: usize, statistic: Statistic) -> Option<f64> {
        statistic.of(&self.times(who, load, class))
    }

    /// How many times as long flows of a class take under `slow` as under `fast`.
    fn times_slower(&self, slow: Who, fast: Who, load: u64, class: usize, statistic: Statistic) -> Option<f64> {
        Some(self.statistic(slow, load, class, statistic)? / self.statistic(fast, load, class, statistic)?)
    }
}

/// What came out.
pub(super) fn findings(results: &Results, loads: &[u64], contenders: &[Who], flows: u64) -> Findings {
    let mut findings = Findings::default();
    for statistic in Statistic::ALL {
        let name = statistic.name();
        findings.compare(
            &format!("small_fct_{name}_ratio"),
            &format!("0–10 KB, {name}, at {LOAD} %: how many times faster DX is than DCTCP"),
            results.times_slower(Who::Dctcp, Who::Dx, LOAD, SMALL, statistic),
            "slide 31: 2.6, 6.0",
            Aim::AtLeast(2.6),
        );
    }
    for statistic in Statistic::ALL {
        let name = statistic.name();
        findings.compare(
            &format!("large_fct_{name}_ratio"),
            &format!("10 MB and more, {name}, at {LOAD} %: how many times slower DX is than DCTCP"),
            results.times_slower(Who::Dx, Who::Dctcp, LOAD, LARGE, statistic),
            "slide 31: 1.2, 1.1",
            Aim::AtMost(1.2),
        );
    }
    for load in loads {
        for statistic in Statistic::ALL {
            let name = statistic.name();
            let small = results.times_slower(Who::Dctcp, Who::Dx, *load, SMALL, statistic);
            let large = results.times_slower(Who::Dx, Who::Dctcp, *load, LARGE, statistic);
            findings.figure(format!("small_fct_{name}_ratio_{load}"), small);
            findings.figure(format!("large_fct_{name}_ratio_{load}"), large);
        }
    }
    ratios(&mut findings, results, loads, contenders);
    for statistic in Statistic::ALL {
        table(&mut findings, results, loads, contenders, statistic);
    }
    let classes = [SMALL, LARGE];
    let charts = classes
        .iter()
        .flat_map(|class| Statistic::ALL.map(|statistic| (*class, statistic)));
    let charts: Vec<Chart> = charts
        .map(|(class, statistic)| panel(results, loads, contenders, class, statistic))
        .collect();
    findings.picture("Completion times by load", &charts);
    words(&mut findings, flows);
    findings
}

/// DX over everybody else, class by class.
fn ratios(findings: &mut Findings, results: &Results, loads: &[u64], contenders: &[Who]) {
    let others = contenders.iter().filter(|who| **who != Who::Dx);
    let rows = others.flat_map(|who| loads.iter().map(move |load| (*who, *load)));
    let rows = rows.map(|(who, load)| {
        let mut row = vec![who.label().to_owned(), load.to_string()];
        for statistic in Statistic::ALL {
            row.extend((0..CLASSES.len()).map(|class| {
                let ratio = results.times_slower(who, Who::Dx, load, class, statistic);
                ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"))
            }));
        }
        row
    });
    let mut headings = vec!["beside".to_owned(), "load\n%".to_owned()];
    for statistic in Statistic::ALL {
        headings.extend(
            CLASSES
                .iter()
                .map(|(_, class)| format!("{}\n{class}", statistic.name())),
        );
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    findings.table(
        "How many times as long flows take as under DX: above 1 DX is faster",
        &headings,
        rows.collect(),
    );
}

fn table(findings: &mut Findings, results: &Results, loads: &[u64], contenders: &[Who], statistic: Statistic) {
    let rows = loads.iter().flat_map(|load| contenders.iter().map(|who| (*load, *who)));
    let rows = rows.map(|(load, who)| {
        let mut row = vec![load.to_string(), who.label().to_owned()];
        row.extend((0..CLASSES.len()).map(|class| {
            let time = results.statistic(who, load, class, statistic);
            time.map_or("–".into(), |us| format!("{us:.0}"))
        }));
        let done = results.done(who, load);
        row.extend([
            done.map_or("–".into(), |done| done.drops.to_string()),
            done.map_or("–".into(), |done| done.timeouts.to_string()),
        ]);
        row
    });
    let mut headings = vec!["load\n%", "under"];
    headings.extend(CLASSES.iter().map(|(_, class)| *class));
    headings.extend(["drops", "timeouts"]);
    findings.table(
        format!("Completion time, {}, µs", statistic.name()),
        &headings,
        rows.collect(),
    );
}

fn panel(results: &Results, loads: &[u64], contenders: &[Who], class: usize, statistic: Statistic) -> Chart {
    // Small flows in µs, large ones in ms.
    let (unit, scale) = if class == SMALL { ("µs", 1.0) } else { ("ms", 1e3) };
    let line = |(n, who): (usize, &Who)| {
        let points = loads
            .iter()
            .filter_map(|load| Some((*load as f64, results.statistic(*who, *load, class, statistic)? / scale)));
        Line::new(who.label(), n, points).dots()
    };
    let name = CLASSES.get(class).map_or("", |(_, name)| name);
    Chart {
        title: format!("{name}, {}, {unit}", statistic.name()),
        x: Axis::linear("load, %"),
        y: Axis::linear(""),
        lines: contenders.iter().enumerate().map(line).collect(),
        guides: Vec::new(),
    }
}

fn words(findings: &mut Findings, flows: u64) {
    findings.remark(format!(
        "{flows} flows at each load, the same under every control; 15 % of them are small and 3 % large. A flow's time counts \
         from asking for its connection to its last byte: two half round trips and a third before the first byte arrives."
    ));
    findings.remark(
        "Slide 31 has two numbers for each of its two classes and does not say of which statistic and which load: they stand \
         beside ours without being matched. Loads, mean and 99th percentile are ours.",
    );
    findings.remark(
        "The load is the share of the racks' uplinks, 640 Gbit/s together, that flows between racks take on average, headers \
         included; hosts' own links carry 0.4 times as much.",
    );
    findings.deviation(
        "Of the tree the slides say 192 hosts, 56 switches and three tiers. How they are linked, 10 Gbit/s everywhere, 4 µs a \
         link and 1 µs a host, 250 packets of 1,538 bytes a port, paths by flow are those of the same group's later \
         simulations (ExpressPass, 2017), which have as many of both.",
    );
    findings.deviation(
        "Sizes are the web-search table of the same later scripts: of the three encodings in use the one nearest to the authors.",
    );
    findings.deviation(format!(
        "K = {} packets and g = 1/16 for DCTCP, the values in use; initial window 10, least timeout {} ms, each packet \
         acknowledged at once, for all. The simulator is ours, not ns-2, and stamps are exact.",
        marking_threshold(GBIT),
        MIN_RTO.as_millis()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_slides_and_ratios_have_their_direction() {
        let done = |scale: u64| Done {
            flows: [9_000, 10_000, 10_001, 9_999_999, 10_000_000, 30_000_000]
                .map(|bytes| (bytes, bytes * scale))
                .to_vec(),
            drops: 0,
            timeouts: 0,
        };
        let (dx, dctcp) = (done(1), done(3));
        let results = Results(vec![(Who::Dx, LOAD, &dx), (Who::Dctcp, LOAD, &dctcp)]);
        assert_eq!(results.times(Who::Dx, LOAD, SMALL).values(), [9.0, 10.0]);
        assert_eq!(results.times(Who::Dx, LOAD, LARGE).values(), [10_000.0, 30_000.0]);
        let findings = findings(&results, &[LOAD], &[Who::Dx, Who::Dctcp], 6);
        let figures = findings.figures();
        assert_eq!(figures["small_fct_mean_ratio"], 3.0);
        assert_eq!(figures["large_fct_p99_ratio"], 0.3333);
        assert_eq!(figures[&format!("small_fct_p99_ratio_{LOAD}")], 3.0);
    }
}
