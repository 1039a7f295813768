//! Validation of the simulator: the same scenario in virtual time and, through the emulator, on
//! Linux TCP. Needs root; without it the tests report that they are skipped.

use crate::common::simulate;
use crate::host::{privileged, registers, steers};
use ccplane_algorithms::Registry;
use ccplane_emu::Timing;
use ccplane_lab::result::ContenderResult;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{NoProgress, RunOptions, run};
use ccplane_qdisc::QueueSpec;
use ccplane_testbed::{RealPackets, TransportKind};
use ccplane_units::{Duration, Rate};

/// One link, one flow.
#[derive(Clone, Copy)]
struct Setting {
    mbit: u64,
    rtt_ms: u64,
    seconds: u64,
    timing: Timing,
}

fn on_the_kernel(setting: Setting, contender: &str) -> ContenderResult {
    let contenders = vec![contender.parse().unwrap()];
    let (rate, rtt) = (
        Rate::from_bits_per_sec(setting.mbit * 1_000_000),
        Duration::from_millis(setting.rtt_ms),
    );
    let length = Duration::from_secs(setting.seconds);
    let scenario = Scenario::dumbbell(contenders, rate, rtt, QueueSpec::ONE_BDP, length)
        .with_sample_interval(Duration::from_millis(10));
    let place = RealPackets {
        timing: setting.timing,
        ..RealPackets::new(TransportKind::Tcp)
    };
    let options = RunOptions::single(1, "ccplane run");
    run(
        &place,
        &scenario,
        &Registry::builtin(),
        &options,
        &NoProgress,
    )
    .unwrap()
    .contenders
    .remove(0)
}

fn in_the_simulator(setting: Setting, contender: &str) -> ContenderResult {
    let Setting {
        mbit,
        rtt_ms,
        seconds,
        ..
    } = setting;
    let text = format!(
        "contenders = [{contender:?}]\nduration = \"{seconds}s\"\n\
         [topology.dumbbell]\nrate = \"{mbit}mbit\"\nrtt = \"{rtt_ms}ms\"\n\
         queue = \"droptail:1bdp\"\n\
         [[workload]]\nbulk = {{ flows = 1 }}\n"
    );
    simulate(&text).contenders.remove(0)
}

/// Attempts on the kernel. A stall of the machine adds losses and delay of its own, which can only
/// increase the difference: agreement with the simulator counts even if the emulator was imprecise,
/// and disagreement is a failure only if it was precise.
const RUNS: usize = 8;

/// Largest accepted differences.
#[derive(Clone, Copy)]
struct Bounds {
    goodput_percent: f64,
    delay_percent: f64,
    /// Ratio of the larger number of drops to the smaller.
    loss_factor: f64,
}

fn compare(setting: Setting, contender: &str, bounds: Bounds) {
    let simulated = in_the_simulator(setting, contender).metrics;
    for _ in 0..RUNS {
        let real = on_the_kernel(setting, contender);
        let within = |what: &str, simulated: f64, real: f64, percent: f64| {
            let error = (simulated / real - 1.0) * 100.0;
            println!(
                "{contender}, {what}: simulator {simulated:.3}, kernel {real:.3}: {error:+.2} %, \
                 bound {percent} %"
            );
            error.abs() <= percent
        };
        let metrics = &real.metrics;
        let drops = [simulated.queue_drops as f64, metrics.queue_drops as f64];
        let factor = drops[0].max(drops[1]) / drops[0].min(drops[1]).max(1.0);
        let most = bounds.loss_factor;
        println!(
            "{contender}, drops: simulator, kernel {drops:?}: a factor of {factor:.2}, bound {most}"
        );
        let (goodput, delay) = (bounds.goodput_percent, bounds.delay_percent);
        let agrees = [
            within(
                "goodput, Mbit/s",
                simulated.goodput_mbit,
                metrics.goodput_mbit,
                goodput,
            ),
            within(
                "mean queue, ms",
                simulated.delay_mean_ms,
                metrics.delay_mean_ms,
                delay,
            ),
            factor <= most,
        ];
        if agrees == [true; 3] {
            return;
        }
        assert!(
            !real.audit.sound,
            "{contender}: the emulator was precise, and the two differ"
        );
        println!("not counted: {}", real.audit.complaints.join("; "));
    }
    panic!(
        "{contender}: the emulator was not precise in any of {RUNS} runs, and none agreed with the \
         simulator"
    );
}

/// Runs at 24 Mbit/s, which any machine emulates while other tests run. The run is too short to
/// compare drops.
fn short(contender: &str) {
    let _turn = registers();
    let setting = Setting {
        mbit: 24,
        rtt_ms: 20,
        seconds: 10,
        timing: Timing::Balanced,
    };
    let bounds = Bounds {
        goodput_percent: 3.0,
        delay_percent: 10.0,
        loss_factor: f64::INFINITY,
    };
    compare(setting, contender, bounds);
}

#[test]
fn a_short_run_is_that_of_the_kernel() {
    if privileged("a_short_run_is_that_of_the_kernel") {
        short("native:reno");
    }
}

#[test]
#[ignore = "long: the same with another algorithm"]
fn a_short_run_of_cubic_is_that_of_the_kernel() {
    if privileged("a_short_run_of_cubic_is_that_of_the_kernel") {
        short("native:cubic");
    }
}

/// Results for `docs/validation.md`. On an idle machine: `cargo test --release -p ccplane-testbed
/// --test serial long_runs -- --ignored --nocapture`.
#[test]
#[ignore = "measures: five minutes of an idle machine"]
fn long_runs_are_those_of_the_kernel() {
    if privileged("long_runs_are_those_of_the_kernel") {
        let _turn = registers();
        let setting = Setting {
            mbit: 96,
            rtt_ms: 20,
            seconds: 60,
            timing: Timing::Precise,
        };
        let bounds = Bounds {
            goodput_percent: 3.0,
            delay_percent: 10.0,
            loss_factor: 1.5,
        };
        for contender in ["native:reno", "native:cubic", "bbr"] {
            compare(setting, contender, bounds);
        }
    }
}

/// Kernel TCP negotiates ECN and sends ECT, the emulated queue marks, and each mark is echoed once.
/// The queue stays near the threshold of 20 packets, 2.5 ms at 96 Mbit/s.
#[test]
fn kernel_tcp_under_dctcp_is_marked_and_loses_nothing() {
    if !steers("kernel_tcp_under_dctcp_is_marked_and_loses_nothing") {
        return;
    }
    let _host = registers();
    let (rate, rtt) = (
        Rate::from_bits_per_sec(96_000_000),
        Duration::from_millis(5),
    );
    let queue = "ecn:20p:200p".parse().unwrap();
    let scenario = Scenario::dumbbell(
        vec!["dctcp".parse().unwrap()],
        rate,
        rtt,
        queue,
        Duration::from_secs(4),
    )
    .with_flows(2)
    .with_sample_interval(Duration::from_millis(10));
    let options = RunOptions::single(1, "ccplane run");
    let result = run(
        &RealPackets::new(TransportKind::Tcp),
        &scenario,
        &Registry::builtin(),
        &options,
        &NoProgress,
    )
    .unwrap();
    let c = &result.contenders[0];
    let f = &c.metrics;
    println!(
        "{:.1} Mbit/s, {:.2} ms, {} drops",
        f.goodput_mbit, f.delay_mean_ms, f.queue_drops
    );
    for samples in &c.series.flows {
        let last = samples.last().unwrap().tcp;
        println!(
            "ecn {}, {} of {} packets marked",
            last.ecn,
            last.delivered_ce,
            last.bytes_acked / u64::from(last.mss)
        );
        assert!(last.ecn && last.delivered_ce > 10, "{last:?}");
        let share = f64::from(last.delivered_ce) * f64::from(last.mss) / last.bytes_acked as f64;
        assert!(
            share < 0.5,
            "marks are echoed one by one, not until answered: {share}"
        );
    }
    assert_eq!(
        f.queue_drops, 0,
        "a queue of 200 packets that marks from 20 on does not fill"
    );
    // A stall of the machine causes bursts.
    assert!(
        f.goodput_mbit > 75.0 && (0.8..6.0).contains(&f.delay_mean_ms),
        "{f:?}"
    );
}
