//! RC3, figures 16 and 17, on real packets: a flow of high priority and one of low priority, at a
//! host's own link and at a switch; the second begins half-way. The simulations are
//! `papers/rc3/priority.toml`.

mod packets;

use ccplane_algorithms::Registry;
use ccplane_qdisc::Size;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use super::page::{Findings, cell};
use super::rc3_theory::WIRE;
use super::{Datapath, Experiment, Options, Outcome, Run};
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::{self, Distribution};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rc3-priority-packets",
    title: "A flow of high priority and one of low priority share a link, on real packets",
    source: "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014, figures 16 and 17",
    takes: "90 seconds; 30 seconds with --quick",
    on: &[Datapath::Linux],
    repeats: None,
    run: Run::Code(real),
};

/// The published repetition had links of 100 Mbit/s and 2 ms.
const RATE: Rate = Rate::from_bits_per_sec(100_000_000);
const DELAY: Duration = Duration::from_millis(2);
/// Capacity of the bottleneck's queue over all bands.
const BUFFER: Size = Size::Packets(250);
/// Sample interval.
const LOOK: Duration = Duration::from_millis(200);
/// Samples after the start of a flow that do not count: the flow starts up, and packets of the
/// other one are still queued.
const SETTLING: usize = 2;
/// Bytes of payload in a packet of 1,500.
const PAYLOAD: u64 = 1_448;
/// Prefix of the results.
const KEY: &str = "priority_high_share_packets";

/// Point at which the two flows meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Both leave one host, over a direct link.
    Host,
    /// Two hosts send to a third through a switch.
    Switch,
}

/// Order of the two flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    HighJoinsLow,
    LowJoinsHigh,
}

/// Case of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    place: Place,
    order: Order,
}

impl Case {
    const ALL: [Case; 4] = [
        Case::of(Place::Host, Order::HighJoinsLow),
        Case::of(Place::Host, Order::LowJoinsHigh),
        Case::of(Place::Switch, Order::HighJoinsLow),
        Case::of(Place::Switch, Order::LowJoinsHigh),
    ];

    const fn of(place: Place, order: Order) -> Case {
        Case { place, order }
    }

    fn place(self) -> &'static str {
        match self.place {
            Place::Host => "host",
            Place::Switch => "switch",
        }
    }

    fn order(self) -> &'static str {
        match self.order {
            Order::HighJoinsLow => "high joins low",
            Order::LowJoinsHigh => "low joins high",
        }
    }

    /// Returns its name in results and files.
    fn key(self) -> String {
        let order = match self.order {
            Order::HighJoinsLow => "high_joins",
            Order::LowJoinsHigh => "low_joins",
        };
        format!("{}_{order}", self.place())
    }
}

/// Throughput of the flows of high and low priority in each sample, Mbit/s of payload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Rates {
    high: Vec<f64>,
    low: Vec<f64>,
    /// True if the emulator was on time and the machine did not disturb the run.
    sound: bool,
    /// Disturbances by the machine.
    disturbed: Vec<String>,
}

/// Returns the capacity of the link for payload, Mbit/s.
fn capacity() -> f64 {
    metrics::mbits(RATE.bytes_per_sec(), 1_000_000_000) * PAYLOAD as f64 / WIRE as f64
}

/// Returns the mean of the counted samples before the second flow starts.
fn alone(rates: &[f64]) -> Option<f64> {
    mean(rates.get(SETTLING..rates.len() / 2)?)
}

/// Returns the mean of the counted samples while both send.
fn both(rates: &[f64]) -> Option<f64> {
    mean(rates.get(rates.len() / 2 + SETTLING..)?)
}

/// Returns the share of the capacity of the high-priority flow while both send.
fn high_share(rates: &Rates) -> Option<f64> {
    Some(both(&rates.high)? / capacity())
}

fn mean(rates: &[f64]) -> Option<f64> {
    Distribution::new(rates.iter().copied()).mean()
}

fn real(
    options: &Options,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let mut findings = Findings::default();
    tell(&mut findings, &packets::meet(options, progress)?);
    findings.remark(packets::how());
    findings.finish(&EXPERIMENT, options)
}

fn tell(findings: &mut Findings, cases: &[(Case, Rates)]) {
    findings.compare(
        KEY,
        "what the flow of high priority has of the link beside the other, the least of all four cases, real packets",
        cases
            .iter()
            .filter_map(|(_, rates)| high_share(rates))
            .min_by(f64::total_cmp),
        "",
        TargetRange::AtLeast(0.95),
    );
    for (case, rates) in cases {
        findings.figure(format!("{KEY}_{}", case.key()), high_share(rates));
    }
    let unsound = cases.iter().filter(|(_, rates)| !rates.sound).count();
    findings.disturbed(unsound, cases.len());
    let rows = cases.iter().map(|(case, rates)| {
        vec![
            case.place().to_owned(),
            case.order().to_owned(),
            cell(alone(&rates.high), 1),
            cell(alone(&rates.low), 1),
            cell(both(&rates.high), 1),
            cell(both(&rates.low), 1),
        ]
    });
    findings.table(
        format!(
            "Mbit/s of payload, of {:.1}, real packets; without {} ms after a flow begins",
            capacity(),
            LOOK.as_millis() * SETTLING as u64
        ),
        &[
            "at a",
            "order",
            "alone\nhigh",
            "alone\nlow",
            "both\nhigh",
            "both\nlow",
        ],
        rows.collect(),
    );
    let charts: Vec<Chart> = cases
        .iter()
        .map(|(case, rates)| chart(*case, rates))
        .collect();
    findings.picture("Throughput over time, real packets", &charts);
}

fn chart(case: Case, rates: &Rates) -> Chart {
    let line = |name: &str, n: usize, rates: &[f64]| {
        let points = (1u32..)
            .zip(rates)
            .map(|(look, rate)| (f64::from(look) * LOOK.as_secs_f64(), *rate));
        ChartSeries::new(name, n, points.collect::<Vec<_>>())
    };
    Chart {
        title: format!("at a {}, {}: Mbit/s", case.place(), case.order()),
        x: Axis::linear("time, s"),
        // A sample may exceed the link's rate by packets that waited in the sample before.
        y: Axis::linear("").with_range(
            0.0,
            metrics::mbits(RATE.bytes_per_sec(), 1_000_000_000) * 1.05,
        ),
        lines: vec![
            line("high priority", 0, &rates.high),
            line("low priority", 1, &rates.low),
        ],
        guides: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second flow starts at the tenth sample, and counts from two samples later.
    #[test]
    fn the_least_share_of_all_cases_is_judged() {
        let half = |first: f64, second: f64| [vec![first; 10], vec![second; 10]].concat();
        let cases = Case::ALL.map(|case| {
            let least = case == Case::of(Place::Switch, Order::LowJoinsHigh);
            let mut rates = Rates {
                high: half(90.0, if least { 48.0 } else { capacity() }),
                low: half(0.0, 2.0),
                sound: !least,
                disturbed: Vec::new(),
            };
            (rates.high[10], rates.high[11]) = (0.0, 0.0);
            (case, rates)
        });
        let mut findings = Findings::default();
        tell(&mut findings, &cases);
        let figures = findings.figures();
        let share = |key: &str| figures[&format!("{KEY}{key}")].as_f64().unwrap();
        assert_eq!(share("_host_high_joins"), 1.0);
        assert!(
            (share("") - 48.0 / capacity()).abs() < 1e-4 && share("") == share("_switch_low_joins")
        );
        assert_eq!(figures[crate::page::UNSOUND], 1);
        assert_eq!(
            (alone(&cases[0].1.high), both(&cases[0].1.low)),
            (Some(90.0), Some(2.0))
        );
    }
}
