//! Completion times beside what the slides say.

use ccplane_report::Aim;
use ccplane_report::chart::{Axis, Chart, Line};

use super::super::page::Findings;
use super::super::who::{Who, marking_threshold};
use super::{CONTENDERS, Cell, Done, FIXED, GBIT, MIN_RTO};
use ccplane_lab::metrics::Distribution;

/// Contenders, cells and what became of the flows of each seed.
pub(super) struct Results<'a>(pub Vec<(Who, Cell, &'a Done)>);

/// Slide 31, small flows faster and large ones slower: which of mean and 99th percentile the numbers are, it does not say.
const SLIDE_SMALL: [f64; 2] = [2.6, 6.0];
const SLIDE_LARGE: [f64; 2] = [1.2, 1.1];

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
    /// Of each seed.
    fn done(&self, who: Who, cell: Cell) -> impl Iterator<Item = &Done> {
        let meant = self.0.iter().filter(move |(whose, at, _)| (*whose, *at) == (who, cell));
        meant.map(|(_, _, done)| *done)
    }

    /// Completion times of a class, all seeds together, µs.
    fn times(&self, who: Who, cell: Cell, class: usize) -> Distribution {
        let from = class
            .checked_sub(1)
            .and_then(|below| CLASSES.get(below))
            .map_or(0, |(end, _)| *end);
        let to = CLASSES.get(class).map_or(0, |(end, _)| *end);
        let flows = self.done(who, cell).flat_map(|done| &done.flows);
        let own = flows.filter(|(bytes, _)| (from..to).contains(bytes));
        Distribution::new(own.map(|(_, ns)| *ns as f64 / 1e3))
    }

    fn statistic(&self, who: Who, cell: Cell, class: usize, statistic: Statistic) -> Option<f64> {
        statistic.of(&self.times(who, cell, class))
    }

    /// How many times as long flows of a class take under `slow` as under `fast`.
    fn times_slower(&self, slow: Who, fast: Who, cell: Cell, class: usize, statistic: Statistic) -> Option<f64> {
        Some(self.statistic(slow, cell, class, statistic)? / self.statistic(fast, cell, class, statistic)?)
    }

    /// How many times faster small flows are under DX than under DCTCP.
    fn small(&self, cell: Cell, statistic: Statistic) -> Option<f64> {
        self.times_slower(Who::Dctcp, Who::Dx, cell, SMALL, statistic)
    }

    /// How many times slower large flows are.
    fn large(&self, cell: Cell, statistic: Statistic) -> Option<f64> {
        self.times_slower(Who::Dx, Who::Dctcp, cell, LARGE, statistic)
    }
}

/// What came out.
pub(super) fn findings(results: &Results, cells: &[Cell], seeds: u64, flows: u64) -> Findings {
    let mut findings = Findings::default();
    let beside = format!("at {} and {} %", FIXED.delay.label(), FIXED.load);
    for (statistic, slide) in Statistic::ALL.into_iter().zip(SLIDE_SMALL) {
        let name = statistic.name();
        findings.compare(
            &format!("small_fct_{name}_ratio"),
            &format!("0–10 KB, {name}, {beside}: how many times faster DX is than DCTCP"),
            results.small(FIXED, statistic),
            &format!("{slide} (slide 31; that it is the {name} is our reading)"),
            Aim::AtLeast(slide),
        );
    }
    for (statistic, slide) in Statistic::ALL.into_iter().zip(SLIDE_LARGE) {
        let name = statistic.name();
        findings.compare(
            &format!("large_fct_{name}_ratio"),
            &format!("10 MB and more, {name}, {beside}: how many times slower DX is than DCTCP"),
            results.large(FIXED, statistic),
            &format!("{slide} (slide 31; that it is the {name} is our reading)"),
            Aim::AtMost(slide),
        );
    }
    for cell in cells {
        for statistic in Statistic::ALL {
            let (name, key) = (statistic.name(), cell.key());
            findings.figure(format!("small_fct_{name}_ratio_{key}"), results.small(*cell, statistic));
            findings.figure(format!("large_fct_{name}_ratio_{key}"), results.large(*cell, statistic));
            // What growth of a packet a round trip would be worth.
            if cell.contenders().contains(&Who::DxFreshest) {
                for (size, class) in [("small", SMALL), ("large", LARGE)] {
                    findings.figure(
                        format!("{size}_fct_{name}_freshest_over_after_{key}"),
                        results.times_slower(Who::DxFreshest, Who::Dx, *cell, class, statistic),
                    );
                }
            }
        }
    }
    ratios(&mut findings, results, cells);
    for statistic in Statistic::ALL {
        table(&mut findings, results, cells, statistic);
    }
    let charts: Vec<Chart> = [SMALL, LARGE]
        .iter()
        .flat_map(|class| Statistic::ALL.map(|statistic| panel(results, cells, *class, statistic)))
        .collect();
    findings.picture("Completion times by load, delays of the reconstruction", &charts);
    pairs(&mut findings, results, cells);
    words(&mut findings, seeds, flows);
    findings
}

/// DCTCP's times over DX's, class by class.
fn ratios(findings: &mut Findings, results: &Results, cells: &[Cell]) {
    let rows = cells.iter().map(|cell| {
        let mut row = vec![cell.delay.label().to_owned(), cell.load.to_string()];
        for statistic in Statistic::ALL {
            row.extend((0..CLASSES.len()).map(|class| {
                let ratio = results.times_slower(Who::Dctcp, Who::Dx, *cell, class, statistic);
                ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"))
            }));
        }
        row
    });
    let mut headings = vec!["links".to_owned(), "load\n%".to_owned()];
    for statistic in Statistic::ALL {
        headings.extend(
            CLASSES
                .iter()
                .map(|(_, class)| format!("{}\n{class}", statistic.name())),
        );
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    findings.table(
        "How many times as long flows take under DCTCP as under DX: above 1 DX is faster",
        &headings,
        rows.collect(),
    );
}

/// Where the slides' pairs lie: the cells in which mean and 99th percentile are both at least as good, read as this order.
fn pairs(findings: &mut Findings, results: &Results, cells: &[Cell]) {
    let within = |good: &dyn Fn(Cell, Statistic, usize) -> Option<bool>| {
        let met = cells.iter().filter(|cell| {
            let mut each = Statistic::ALL.into_iter().enumerate();
            each.all(|(n, statistic)| good(**cell, statistic, n).unwrap_or(false))
        });
        let names: Vec<String> = met
            .map(|cell| format!("{} at {} %", cell.delay.label(), cell.load))
            .collect();
        match names.is_empty() {
            true => "in no cell".to_owned(),
            false => names.join(", "),
        }
    };
    let small = within(&|cell, statistic, n| Some(results.small(cell, statistic)? >= *SLIDE_SMALL.get(n)?));
    let large = within(&|cell, statistic, n| Some(results.large(cell, statistic)? <= *SLIDE_LARGE.get(n)?));
    let both = within(&|cell, statistic, n| {
        let small = results.small(cell, statistic)? >= *SLIDE_SMALL.get(n)?;
        Some(small && results.large(cell, statistic)? <= *SLIDE_LARGE.get(n)?)
    });
    findings.remark(format!(
        "Small flows are 2.6 times faster in the mean and 6.0 in the 99th percentile, or more: {small}. Large flows are 1.2 and 1.1 \
         times slower, or less: {large}. Both: {both}."
    ));
}

fn table(findings: &mut Findings, results: &Results, cells: &[Cell], statistic: Statistic) {
    let rows = cells
        .iter()
        .flat_map(|cell| cell.contenders().iter().map(|who| (*cell, *who)));
    let rows = rows.map(|(cell, who)| {
        let label = cell.delay.label().to_owned();
        let mut row = vec![label, cell.load.to_string(), who.label().to_owned()];
        row.extend((0..CLASSES.len()).map(|class| {
            let time = results.statistic(who, cell, class, statistic);
            time.map_or("–".into(), |us| format!("{us:.0}"))
        }));
        let sum = |of: fn(&Done) -> u64| results.done(who, cell).map(of).sum::<u64>().to_string();
        row.extend([sum(|done| done.drops), sum(|done| done.timeouts)]);
        row
    });
    let mut headings = vec!["links", "load\n%", "under"];
    headings.extend(CLASSES.iter().map(|(_, class)| *class));
    headings.extend(["drops", "timeouts"]);
    findings.table(
        format!("Completion time, {}, µs", statistic.name()),
        &headings,
        rows.collect(),
    );
}

fn panel(results: &Results, cells: &[Cell], class: usize, statistic: Statistic) -> Chart {
    // Small flows in µs, large ones in ms.
    let (unit, scale) = if class == SMALL { ("µs", 1.0) } else { ("ms", 1e3) };
    let line = |(n, who): (usize, &Who)| {
        let cells = cells.iter().filter(|cell| cell.delay == FIXED.delay);
        let points = cells
            .filter_map(|cell| {
                Some((
                    cell.load as f64,
                    results.statistic(*who, *cell, class, statistic)? / scale,
                ))
            })
            .collect::<Vec<_>>();
        Line::new(who.label(), n, points).dots()
    };
    let name = CLASSES.get(class).map_or("", |(_, name)| name);
    Chart {
        title: format!("{name}, {}, {unit}", statistic.name()),
        x: Axis::linear("load, %"),
        y: Axis::linear(""),
        lines: CONTENDERS.iter().enumerate().map(line).collect(),
        guides: Vec::new(),
    }
}

fn words(findings: &mut Findings, seeds: u64, flows: u64) {
    findings.remark(format!(
        "{seeds} simulations of {flows} flows in each cell, taken together; the same flows under every control; 15 % of them are small and 3 % large. A flow's time counts \
         from asking for its connection to its last byte: two half round trips and a third before the first byte arrives."
    ));
    findings.remark(
        "Slide 31 has two numbers for each of its two classes and does not say of which statistic, load and delays. That the first is the \
         mean, and the cell beside them, the reconstruction's delays at 60 %, were chosen before anything was measured.",
    );
    findings.remark(
        "The load is the share of the racks' uplinks, 640 Gbit/s together, that flows between racks take on average, headers \
         included; hosts' own links carry 0.4 times as much.",
    );
    findings.deviation(
        "Of the tree the slides say 192 hosts, 56 switches and three tiers. How they are linked, 10 Gbit/s everywhere, in the cell \
         beside the slides 4 µs a link and 1 µs a host, 250 packets of 1,538 bytes a port, paths by flow are those of the same group's later \
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
        let other = Cell { load: 20, ..FIXED };
        let results = Results(vec![
            (Who::Dx, FIXED, &dx),
            (Who::Dctcp, FIXED, &dctcp),
            (Who::Dx, other, &dx),
            (Who::Dctcp, other, &dx),
            (Who::Dctcp, other, &dx),
        ]);
        assert_eq!(results.times(Who::Dx, FIXED, SMALL).values(), [9.0, 10.0]);
        assert_eq!(results.times(Who::Dx, FIXED, LARGE).values(), [10_000.0, 30_000.0]);
        assert_eq!(
            results.times(Who::Dctcp, other, SMALL).values().len(),
            4,
            "seeds are taken together"
        );
        let findings = findings(&results, &[other, FIXED], 1, 6);
        let figures = findings.figures();
        assert_eq!(
            figures["small_fct_mean_ratio"], 3.0,
            "of the cell that was fixed, not the best or last"
        );
        assert_eq!(figures["large_fct_p99_ratio"], 0.3333);
        assert_eq!(figures["small_fct_p99_ratio_4us_1us_60"], 3.0);
        assert_eq!(figures["small_fct_mean_ratio_4us_1us_20"], 1.0);
    }
}
