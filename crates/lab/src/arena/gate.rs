//! Places where an algorithm must not fail. Bounds are far from what anybody aims at: they find
//! what is broken, stuck or ruthless.

use serde::Serialize;

use super::pool::Outcomes;
use super::standing::Standing;
use super::suspect::{Judged, Suspect};
use crate::contender::Contender;
use crate::evaluate::{Run, Sketch};

/// A check and how it went.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What it is called.
    pub name: &'static str,
    /// What was measured; absent where the run broke.
    pub value: Option<f64>,
    /// The least that passes.
    pub least: f64,
    /// Whether it did.
    pub passed: bool,
}

/// A place, what is read of its run, and the least that passes.
struct Place {
    name: &'static str,
    /// What is read, for the sentence on why it failed.
    what: &'static str,
    least: f64,
    /// The network and how long; the flows follow from what is read.
    sketch: fn() -> Sketch,
    reads: Reads,
}

enum Reads {
    /// Of the link, in the last part of the run from this share on.
    Utilisation(f64),
    /// Its goodput, of Reno's in the same place.
    OfReno,
    /// Goodput of a Cubic that was there before, of what it has beside another Cubic.
    CubicKeeps,
    /// Of two flows of its own, the lesser one's part of an equal share, in the last half.
    Lesser,
}

const PLACES: [Place; 8] = [
    Place {
        name: "loss",
        what: "of Reno's goodput, where 2 % of packets are lost at random",
        least: 0.5,
        sketch: || {
            Sketch::dumbbell("10mbit", "40ms", "droptail:1bdp")
                .with("loss = \"2%\"")
                .seconds(12.0)
        },
        reads: Reads::OfReno,
    },
    Place {
        name: "silence",
        what: "of the link, after two seconds without an ACK",
        least: 0.3,
        sketch: || {
            Sketch::dumbbell("10mbit", "40ms", "droptail:1bdp")
                .seconds(16.0)
                .event(4.0, "bottleneck", "up = false")
                .event(6.0, "bottleneck", "up = true")
        },
        reads: Reads::Utilisation(0.75),
    },
    Place {
        name: "slow",
        what: "of the link, at 200 kbit/s",
        least: 0.5,
        sketch: || Sketch::dumbbell("200kbit", "100ms", "droptail:20p").seconds(30.0),
        reads: Reads::Utilisation(0.5),
    },
    Place {
        name: "fast",
        what: "of the link, at 200 Mbit/s and 2 ms",
        least: 0.3,
        sketch: || Sketch::dumbbell("200mbit", "2ms", "droptail:1bdp").seconds(2.0),
        reads: Reads::Utilisation(0.5),
    },
    Place {
        name: "long",
        what: "of the link, at 600 ms",
        least: 0.3,
        sketch: || Sketch::dumbbell("5mbit", "600ms", "droptail:1bdp").seconds(60.0),
        reads: Reads::Utilisation(0.5),
    },
    Place {
        name: "longer",
        what: "of the link, at 2 s, above the initial RTO",
        least: 0.3,
        sketch: || Sketch::dumbbell("1mbit", "2s", "droptail:1bdp").seconds(160.0),
        reads: Reads::Utilisation(0.5),
    },
    Place {
        name: "starve",
        what: "of what another Cubic leaves to a Cubic",
        least: 0.25,
        sketch: || {
            Sketch::dumbbell("10mbit", "40ms", "droptail:2bdp")
                .with("jitter = \"200us\"")
                .seconds(24.0)
        },
        reads: Reads::CubicKeeps,
    },
    Place {
        name: "two",
        what: "of an equal share, for the lesser of two of its own",
        least: 0.1,
        sketch: || {
            Sketch::dumbbell("10mbit", "40ms", "droptail:1bdp")
                .with("jitter = \"200us\"")
                .seconds(24.0)
        },
        reads: Reads::Lesser,
    },
];

const CUBIC: &str = "native:cubic";
const RENO: &str = "native:reno";

fn key(place: &Place, who: &str) -> String {
    format!("{} {who}", place.name)
}

/// The run of a place for one algorithm.
fn run(place: &Place, who: &str) -> Run {
    let sketch = (place.sketch)();
    let (first, second) = (
        "from = \"left1\"\nto = \"right1\"",
        "from = \"left2\"\nto = \"right2\"\nstart = \"2s\"",
    );
    let sketch = match place.reads {
        Reads::Utilisation(_) | Reads::OfReno => sketch.flow(who, "bulk = {}", first),
        Reads::CubicKeeps => sketch
            .flow(CUBIC, "bulk = {}", first)
            .flow(who, "bulk = {}", second),
        Reads::Lesser => sketch
            .flow(who, "bulk = {}", first)
            .flow(who, "bulk = {}", second),
    };
    sketch.run(key(place, who))
}

/// All runs, those to compare with included.
pub(super) fn runs(candidates: &[Contender]) -> Vec<Run> {
    let mut names: Vec<String> = candidates.iter().map(Contender::to_string).collect();
    names.dedup();
    let mut runs = Vec::new();
    for place in &PLACES {
        let compared = match place.reads {
            Reads::OfReno => Some(RENO),
            Reads::CubicKeeps => Some(CUBIC),
            Reads::Utilisation(_) | Reads::Lesser => None,
        };
        runs.extend(compared.iter().map(|other| run(place, other)));
        let others = names.iter().filter(|name| compared != Some(name.as_str()));
        runs.extend(others.map(|name| run(place, name)));
    }
    runs
}

/// The check that was failed by most, for a closer look.
pub(super) fn suspect(
    candidate: &Contender,
    against: &[Contender],
    standing: &Standing,
) -> Option<Suspect> {
    let of = |check: &Check| check.value.map_or(-1.0, |value| value / check.least);
    let failed = standing.gate.iter().filter(|check| !check.passed);
    let worst = failed.min_by(|one, other| of(one).total_cmp(&of(other)))?;
    let place = PLACES.iter().find(|place| place.name == worst.name)?;
    let beginning = format!("{}:", worst.name);
    let figure = standing
        .reasons
        .iter()
        .find(|why| why.starts_with(&beginning))?;
    let (baseline, judged, from) = match place.reads {
        Reads::Utilisation(from) => (against.first()?.clone(), Judged::Goodput, from),
        Reads::OfReno => (RENO.parse().ok()?, Judged::Goodput, 0.0),
        Reads::CubicKeeps => (CUBIC.parse().ok()?, Judged::Other, 1.0 / 3.0),
        Reads::Lesser => (against.first()?.clone(), Judged::Share, 0.5),
    };
    Some(Suspect {
        place: format!("the gate, {}", place.name),
        figure: figure.clone(),
        run: run(place, &candidate.to_string()),
        beside: run(place, &baseline.to_string()),
        baseline,
        judged,
        from,
    })
}

/// Goes through the checks.
pub(super) fn judge(candidate: &Contender, outcomes: &Outcomes, standing: &mut Standing) {
    for place in &PLACES {
        let (value, why) = match value(place, &candidate.to_string(), outcomes) {
            Ok(value) => {
                let (has, least) = (value * 100.0, place.least * 100.0);
                (
                    Some(value),
                    format!(
                        "{}: {has:.1} % {}; at least {least:.0} %",
                        place.name, place.what
                    ),
                )
            }
            Err(why) => (None, format!("{}: it broke: {why}", place.name)),
        };
        let passed = value.is_some_and(|value| value >= place.least);
        standing.gate.push(Check {
            name: place.name,
            value,
            least: place.least,
            passed,
        });
        if !passed {
            standing.gate_passed = false;
            standing.reasons.push(why);
        }
    }
}

fn value(place: &Place, who: &str, outcomes: &Outcomes) -> Result<f64, String> {
    let measured = outcomes.of(&key(place, who))?;
    let part = |one: f64, of: f64| if of > 0.0 { one / of } else { 0.0 };
    Ok(match place.reads {
        Reads::Utilisation(from) => measured.utilisation(from, 1.0),
        Reads::OfReno => {
            let reno = outcomes.of(&key(place, RENO))?;
            part(measured.goodput(0, 0.0, 1.0), reno.goodput(0, 0.0, 1.0))
        }
        Reads::CubicKeeps => {
            let own_kind = outcomes.of(&key(place, CUBIC))?;
            part(
                measured.goodput(0, 1.0 / 3.0, 1.0),
                own_kind.goodput(0, 1.0 / 3.0, 1.0),
            )
        }
        Reads::Lesser => {
            let [one, other] = [0, 1].map(|flow| measured.goodput(flow, 0.5, 1.0));
            part(one.min(other), (one + other) / 2.0)
        }
    })
}
