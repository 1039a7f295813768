//! Which simulations there are: the baseline, and what is varied about it.

use ccplane_transport::Rc3;
use ccplane_units::Duration;

use super::super::rc3_who::Start;
use super::net::{Net, Shape};
use super::run::{Run, Sizes};

/// A simulation that is compared with plain TCP under the same conditions.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// What is varied, with its unit.
    pub about: &'static str,
    /// The value here.
    pub label: String,
    /// For names of figures.
    pub key: String,
    pub run: Run,
}

/// The baseline.
pub(super) fn base(measured: Duration) -> Run {
    Run::new(Start::Rc3, measured)
}

/// The baseline with the authors' eleven sizes.
pub(super) fn eleven(measured: Duration) -> Run {
    Run {
        sizes: Sizes::Eleven,
        ..base(measured)
    }
}

/// Half of the flows with the second loop, the others without.
pub(super) fn mixed(measured: Duration) -> Run {
    Run {
        share: 50,
        starts: (Start::Rc3, Start::Tcp),
        ..base(measured)
    }
}

/// The same at a load, percent, where a router removes the marking, with or without the sender's
/// watching for it.
pub(super) fn stripped(measured: Duration, start: Start, load: u64) -> Run {
    let mixed = mixed(measured);
    Run {
        net: Net {
            strips: true,
            ..mixed.net
        },
        starts: (start, Start::Tcp),
        load,
        ..mixed
    }
}

/// Everything else, in the order of its tables.
pub(super) fn sweeps(quick: bool, measured: Duration) -> Vec<Point> {
    let base = base(measured);
    let pick = |all: &[u64], few: &[u64]| if quick { few.to_vec() } else { all.to_vec() };
    let mut points = Vec::new();
    let mut add = |about: &'static str, label: String, key: String, run: Run| {
        points.push(Point {
            about,
            label,
            key,
            run,
        });
    };
    for load in pick(&[10, 20, 30, 40, 50, 60, 70, 80], &[60]) {
        add(
            "load of every link, %",
            load.to_string(),
            format!("load_{load}"),
            Run { load, ..base },
        );
    }
    for access_mbit in pick(&[10, 100, 1_000, 10_000], &[100]) {
        let net = Net {
            access_mbit,
            ..base.net
        };
        // The same number of packets to simulate, within reason.
        let measured = match access_mbit {
            10_000 => Duration::from_nanos(measured.as_nanos() / 8),
            _ => measured * (1_000 / access_mbit.min(1_000)).min(10),
        };
        let run = Run {
            net,
            measured,
            ..base
        };
        add(
            "access rate, Mbit/s",
            access_mbit.to_string(),
            format!("access_{access_mbit}m"),
            run,
        );
    }
    for delays in pick(&[5, 25, 100, 200], &[25]) {
        let run = Run {
            net: Net { delays, ..base.net },
            ..base
        };
        add(
            "delays, % of the paper's",
            delays.to_string(),
            format!("delays_{delays}"),
            run,
        );
    }
    for loss in pick(&[10, 100, 1_000, 10_000], &[1_000]) {
        let run = Run {
            net: Net { loss, ..base.net },
            ..base
        };
        let percent = loss as f64 / 1e4;
        add(
            "random loss at every link, %",
            percent.to_string(),
            format!("loss_{loss}ppm"),
            run,
        );
    }
    for shape in [
        Shape::Internet2,
        Shape::RedClara,
        Shape::Nsfnet,
        Shape::Geant,
    ] {
        if quick && shape != Shape::RedClara {
            continue;
        }
        let run = Run {
            net: Net { shape, ..base.net },
            ..base
        };
        add(
            "network",
            shape.label().to_owned(),
            shape.key().to_owned(),
            run,
        );
    }
    let of = |start| Run {
        starts: (start, start),
        ..base
    };
    let kinds = [1, 2, 3].map(Start::Levels);
    for start in if quick { &kinds[..1] } else { &kinds[..] } {
        add("second loop", start.label(), start.key(), of(*start));
    }
    if !quick {
        // The baseline itself: it is simulated once.
        let all = Start::Levels(Rc3::LEVELS_MAX);
        add("second loop", all.label(), all.key(), base);
        for start in [Start::Paced, Start::Blind] {
            add("second loop", start.label(), start.key(), of(start));
        }
    }
    for start in [
        Start::Window(10),
        Start::Window(50),
        Start::Jump,
        Start::Rcp,
    ] {
        add("instead of RC3", start.label(), start.key(), of(start));
    }
    let sold = Run {
        share: 10,
        starts: (Start::High, Start::Low),
        ..base
    };
    add(
        "instead of RC3",
        "high priority for a tenth of the flows".to_owned(),
        "qos".to_owned(),
        sold,
    );
    points
}
