//! Loss recovery on real packets through an emulated link, compared with the kernel's Reno.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration as StdDuration, Instant};

use crate::common::*;
use ccplane_emu::qdisc::{LineSpec, LinkSeeds, QueueSpec};
use ccplane_emu::{EmuConfig, Emulator, LinkConfig};
use ccplane_linux::Kernel;
use ccplane_units::{Duration, Probability, Rate};

const RUN_SECONDS: u64 = 4;

fn link(loss: Probability) -> EmuConfig {
    let way = |seed| LinkConfig {
        line: LineSpec::Constant(Rate::from_bits_per_sec(40_000_000)),
        delay: Duration::from_millis(10),
        queue: QueueSpec::ONE_BDP,
        loss: if seed == 1 { loss } else { Probability::NEVER }.into(),
        seeds: LinkSeeds::from_seed(seed),
        ..LinkConfig::default()
    };
    EmuConfig {
        forward: way(1),
        reverse: way(2),
        ..EmuConfig::default()
    }
}

#[derive(Debug)]
struct Outcome {
    megabits: f64,
    retransmitted: u32,
    timeouts: u8,
    windows: Vec<u32>,
}

/// Pause of the host from which a run is repeated: half of TCP's minimum RTO (200 ms), which such a
/// pause may trigger under any congestion control.
const HOST_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Runs one bulk flow for a few seconds. Repeats up to five times if the host paused, since such a
/// run is inconclusive.
fn run(name: &str, loss: Probability) -> Outcome {
    let mut tries = 5;
    loop {
        let (outcome, latest) = once(name, loss);
        tries -= 1;
        if latest < HOST_PAUSE_MAX || tries == 0 {
            return outcome;
        }
        eprintln!("a packet was {latest} late; repeating");
    }
}

/// Returns the outcome of a run, and the emulator's largest delay.
fn once(name: &str, loss: Probability) -> (Outcome, Duration) {
    let emulator = Emulator::start(link(loss)).expect("it starts");
    let sink = Sink::behind(&emulator);
    let outcome = emulator.sender_ns().run(|| {
        let mut stream = TcpStream::connect(sink.address).expect("reachable");
        choose(&stream, name).expect("registered");
        stream.set_nonblocking(true).expect("a socket");
        let chunk = vec![0; 1 << 16];
        let started = Instant::now();
        let mut windows = Vec::new();
        let mut timeouts = 0;
        while started.elapsed() < StdDuration::from_secs(RUN_SECONDS) {
            while stream.write(&chunk).is_ok() {}
            let info = tcp_info(&stream);
            windows.push(info.tcpi_snd_cwnd);
            timeouts = timeouts.max(info.tcpi_backoff);
            std::thread::sleep(StdDuration::from_millis(2));
        }
        Outcome {
            megabits: sink.received() as f64 * 8e-6 / started.elapsed().as_secs_f64(),
            retransmitted: tcp_info(&stream).tcpi_total_retrans,
            timeouts,
            windows,
        }
    });
    let outcome = outcome.expect("inside");
    let report = emulator.finish().expect("it ends");
    eprintln!(
        "{name} loss {loss:?}: {:.1} Mbit/s, {} retransmitted, {} timeouts",
        outcome.megabits, outcome.retransmitted, outcome.timeouts
    );
    (outcome, report.audit.lateness_max)
}

/// Returns the largest relative drop of the window between two samples.
fn deepest_fall(windows: &[u32]) -> f64 {
    let falls = windows
        .windows(2)
        .map(|pair| 1.0 - f64::from(pair[1]) / f64::from(pair[0]));
    falls.fold(0.0, f64::max)
}

#[test]
fn the_fallback_and_an_agent_do_as_well_as_the_kernels_reno() {
    if can_run("the_fallback_and_an_agent_do_as_well_as_the_kernels_reno") {
        do_as_well_as_the_kernels_reno(Probability::NEVER);
    }
}

#[test]
#[ignore = "long: the same with random losses"]
fn the_same_holds_with_random_losses() {
    if can_run("the_same_holds_with_random_losses") {
        do_as_well_as_the_kernels_reno(Probability::from_parts((1 << 32) / 2000));
    }
}

fn do_as_well_as_the_kernels_reno(loss: Probability) {
    let _host = lock_host();
    let native = run("reno", loss);

    // No agent: NewReno in the datapath.
    let agent = agent_of("t_rec", 1000);
    let kernel: Kernel = load(&agent, &options(1));
    std::thread::sleep(StdDuration::from_millis(5));
    let fallback = run("ccp_t_rec", loss);
    let (_, _, counters) = kernel.counters().next().expect("one");
    assert!(counters.fallbacks >= 1, "{counters:?}");
    drop(kernel);

    let agent = agent_of("t_rec", 1000);
    let kernel = load(&agent, &patient());
    let running = RunningAgent::start(kernel, agent);
    let steered = run("ccp_t_rec", loss);
    let kernel = running.stop();
    let (_, _, counters) = kernel.counters().next().expect("one");
    eprintln!("{counters:?}");

    for (who, outcome) in [("fallback", fallback), ("agent", steered)] {
        assert!(
            emulated() || outcome.megabits > 0.9 * native.megabits,
            "{who}: {:.1} instead of {:.1} Mbit/s",
            outcome.megabits,
            native.megabits
        );
        assert_eq!(outcome.timeouts, 0, "{who} needed a timeout");
        eprintln!(
            "{who}: deepest fall {:.2}, native {:.2}",
            deepest_fall(&outcome.windows),
            deepest_fall(&native.windows)
        );
    }
}

#[test]
fn cubic_does_as_well_as_the_kernels() {
    if can_run("cubic_does_as_well_as_the_kernels") {
        does_as_well_as_the_kernels("cubic");
    }
}

#[test]
#[ignore = "long: the same with another algorithm"]
fn reno_does_as_well_as_the_kernels() {
    if can_run("reno_does_as_well_as_the_kernels") {
        does_as_well_as_the_kernels("reno");
    }
}

fn does_as_well_as_the_kernels(name: &str) {
    let _host = lock_host();
    let registry = ccplane_algorithms::Registry::builtin();
    let native = run(name, Probability::NEVER);
    let mut agent = ccplane_agent::Agent::default();
    let algorithm = registry
        .by_name(name, &Default::default())
        .expect("built in");
    agent.add_boxed(algorithm).expect("it compiles");
    // Unique names: the host may be using the algorithms' own.
    let kernel_name = format!("ccp_t_{name}");
    let mut specs = specs(&agent);
    specs[0].kernel_name.clone_from(&kernel_name);
    let kernel = Kernel::load(&specs, &patient()).unwrap_or_else(|error| panic!("{error}"));
    let running = RunningAgent::start(kernel, agent);
    let ours = run(&kernel_name, Probability::NEVER);
    let kernel = running.stop();
    let (_, _, counters) = kernel.counters().next().expect("one");
    eprintln!("{counters:?}");
    assert_eq!((counters.fallbacks, counters.faults), (0, 0));
    assert!(
        emulated() || ours.megabits > 0.9 * native.megabits,
        "{name}: {:.1} Mbit/s",
        ours.megabits
    );
    assert_eq!(ours.timeouts, 0);
    let show = |outcome: &Outcome| {
        let sampled: Vec<String> = outcome
            .windows
            .iter()
            .step_by(100)
            .map(u32::to_string)
            .collect();
        eprintln!("  windows {}", sampled.join(" "));
    };
    show(&native);
    show(&ours);
}
