//! The agent beside other waiting and other loads than `ccplane bench agent` and `control-loop`
//! have, for work on it.

use std::time::Duration;

use ccplane_bench::agent::{Load, throughput};
use ccplane_bench::control_loop::percentiles_us;
use ccplane_link::WaitStrategy;
use ccplane_testbed::control_loop::{self, ControlLoop};

fn main() {
    let quiet = WaitStrategy {
        spin: ccplane_units::Duration::ZERO,
    };
    for (name, hogs, waiting) in [
        ("idle, sleeping", 0, quiet),
        ("idle, looking", 0, WaitStrategy::default()),
        ("2 hogs, sleeping", 2, quiet),
        ("2 hogs, looking", 2, WaitStrategy::default()),
    ] {
        let times = control_loop::times(&ControlLoop {
            exchanges: 5_000,
            busy_threads: hogs,
            wait_strategy: waiting,
        });
        let times = times.map(|times| percentiles_us(&times));
        println!("{name}: 50, 95 and 99 of 100 within {times:?} us");
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
