//! Prints what `ccplane_agent::bench` measures.

use std::time::Duration;

use ccplane_agent::bench::{ControlLoop, Load, control_loop, throughput};
use ccplane_agent::link::Waiting;

fn main() {
    let quiet = Waiting {
        spin: ccplane_units::Duration::ZERO,
    };
    for (name, hogs, waiting) in [
        ("idle, sleeping", 0, quiet),
        ("idle, looking", 0, Waiting::default()),
        ("2 hogs, sleeping", 2, quiet),
        ("2 hogs, looking", 2, Waiting::default()),
    ] {
        let times = control_loop(&ControlLoop {
            exchanges: 5_000,
            hogs,
            waiting,
        });
        println!("{name}: {times:?}");
    }
    for (flows, updates, reports_per_datagram) in [
        (1, false, 1),
        (1, false, 32),
        (1000, false, 32),
        (1, true, 1),
        (1, true, 32),
        (1000, true, 32),
    ] {
        let load = Load {
            flows,
            updates,
            reports_per_datagram,
            duration: Duration::from_secs(1),
        };
        println!("{load:?}: {:?}", throughput(&load));
    }
}
