//! RC3, figures 16 and 17: a flow of high priority and one of low priority, at a host's own link and at a switch; the second
//! begins half-way. Who has the link?

mod packets;
mod simulated;

use ccplane_algorithms::Registry;
use ccplane_qdisc::Size;
use ccplane_report::Aim;
use ccplane_report::chart::{Axis, Chart, Line};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use super::page::{Findings, cell};
use super::rc3_theory::WIRE;
use super::{Datapath, Experiment, Options, Outcome};
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::{self, Distribution};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rc3-priority",
    title: "A flow of high priority takes the link from one of low priority, at a host and at a switch",
    source: "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014, figures 16 and 17; rates as in Crognale and Wilson, CS244 2015",
    takes: "two minutes, half a minute with --quick; 10 seconds of it simulated, or 3",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
    run: super::Run::Code(priority),
};

/// Those who repeated it had links of 100 Mbit/s and 2 ms.
const RATE: Rate = Rate::from_bits_per_sec(100_000_000);
const DELAY: Duration = Duration::from_millis(2);
/// The queue in front of the link holds so much, over all bands.
const BUFFER: Size = Size::Packets(250);

/// Where the two meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Both leave one host, over a direct link.
    Host,
    /// Two hosts send to a third through a switch.
    Switch,
}

/// Which comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    HighJoinsLow,
    LowJoinsHigh,
}

/// What happens.
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

    /// As part of a figure's or a file's name.
    fn key(self) -> String {
        let order = match self.order {
            Order::HighJoinsLow => "high_joins",
            Order::LowJoinsHigh => "low_joins",
        };
        format!("{}_{order}", self.place())
    }
}

/// Throughput of the high and the low one between each two looks, Mbit/s of payload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Rates {
    high: Vec<f64>,
    low: Vec<f64>,
    /// What carried the packets was on time, and nothing disturbed it.
    sound: bool,
    /// What the machine did meanwhile, on real packets.
    disturbed: Vec<String>,
}

/// What was seen where the experiment ran.
struct Seen {
    /// Where, as a reader takes it, and what its keys end in.
    name: &'static str,
    suffix: &'static str,
    /// Between two looks.
    look: Duration,
    /// Looks after a flow has begun that do not count: it begins, and the other's packets are still in the queue.
    settling: usize,
    /// Bytes of payload in a packet of 1,500.
    payload: u64,
    cases: Vec<(Case, Rates)>,
}

impl Seen {
    /// What the link carries of payload, Mbit/s.
    fn capacity(&self) -> f64 {
        metrics::mbits(RATE.bytes_per_sec(), 1_000_000_000) * self.payload as f64 / WIRE as f64
    }

    /// Mean of the looks that count before the second flow begins.
    fn alone(&self, rates: &[f64]) -> Option<f64> {
        mean(rates.get(self.settling..rates.len() / 2)?)
    }

    /// Mean of the looks that count while both send.
    fn both(&self, rates: &[f64]) -> Option<f64> {
        mean(rates.get(rates.len() / 2 + self.settling..)?)
    }

    /// What the high one has of the link's payload while both send.
    fn high_share(&self, rates: &Rates) -> Option<f64> {
        Some(self.both(&rates.high)? / self.capacity())
    }
}

fn mean(rates: &[f64]) -> Option<f64> {
    Distribution::new(rates.iter().copied()).mean()
}

fn priority(options: &Options, _registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    let mut findings = Findings::default();
    if options.on(Datapath::Sim) {
        tell(&mut findings, &simulated::meet(options, progress)?);
        findings.remark(
            "Simulated: at a host its link takes what is of low priority only while nothing of high priority waits; at the switch \
             the port's queue has two bands that share 250 packets, and what is of high priority pushes the other's out.",
        );
    }
    if options.on(Datapath::Linux) {
        tell(&mut findings, &packets::meet(options, progress)?);
        findings.remark(packets::how());
    }
    findings.deviation(
        "Figures 16 and 17 are pictures without numbers. Rates and delays are those of the people who repeated them, whose flows \
         ran for a minute with a look every second; 0.95 is our aim.",
    );
    findings.finish(&EXPERIMENT, options)
}

fn tell(findings: &mut Findings, seen: &Seen) {
    let key = format!("priority_high_share{}", seen.suffix);
    let share = |rates: &Rates| seen.high_share(rates);
    findings.compare(
        &key,
        &format!(
            "what the flow of high priority has of the link beside the other, the least of all four cases, {}",
            seen.name
        ),
        seen.cases
            .iter()
            .filter_map(|(_, rates)| share(rates))
            .min_by(f64::total_cmp),
        "",
        Aim::AtLeast(0.95),
    );
    for (case, rates) in &seen.cases {
        findings.figure(format!("{key}_{}", case.key()), share(rates));
    }
    let unsound = seen.cases.iter().filter(|(_, rates)| !rates.sound).count();
    findings.disturbed(unsound, seen.cases.len());
    let rows = seen.cases.iter().map(|(case, rates)| {
        vec![
            case.place().to_owned(),
            case.order().to_owned(),
            cell(seen.alone(&rates.high), 1),
            cell(seen.alone(&rates.low), 1),
            cell(seen.both(&rates.high), 1),
            cell(seen.both(&rates.low), 1),
        ]
    });
    findings.table(
        format!(
            "Mbit/s of payload, of {:.1}, {}; without {} ms after a flow begins",
            seen.capacity(),
            seen.name,
            seen.look.as_millis() * seen.settling as u64
        ),
        &["at a", "order", "alone\nhigh", "alone\nlow", "both\nhigh", "both\nlow"],
        rows.collect(),
    );
    let charts: Vec<Chart> = seen
        .cases
        .iter()
        .map(|(case, rates)| chart(seen, *case, rates))
        .collect();
    findings.picture(format!("Throughput over time, {}", seen.name), &charts);
}

fn chart(seen: &Seen, case: Case, rates: &Rates) -> Chart {
    let line = |name: &str, n: usize, rates: &[f64]| {
        let points = (1u32..)
            .zip(rates)
            .map(|(look, rate)| (f64::from(look) * seen.look.as_secs_f64(), *rate));
        Line::new(name, n, points.collect::<Vec<_>>())
    };
    Chart {
        title: format!("at a {}, {}: Mbit/s", case.place(), case.order()),
        x: Axis::linear("time, s"),
        // A look may see a little more than the link's rate: what waited in the look before.
        y: Axis::linear("").from_to(0.0, metrics::mbits(RATE.bytes_per_sec(), 1_000_000_000) * 1.05),
        lines: vec![
            line("high priority", 0, &rates.high),
            line("low priority", 1, &rates.low),
        ],
        guides: Vec::new(),
    }
}
