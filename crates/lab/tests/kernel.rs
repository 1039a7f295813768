//! The simulator against the kernel: the same scenario in virtual time and, through the emulator, on Linux' own TCP.
//! Needs root, and says so loudly where it has none.

use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_emu::Timing;
use ccplane_lab::result::{ContenderResult, RunResult};
use ccplane_lab::scenario::Scenario;
use ccplane_lab::sim::{self, Options};
use ccplane_lab::{Experiment, Quiet, run};
use ccplane_qdisc::{LineSpec, LossModel, QueueSpec, Size};
use ccplane_units::{Duration, Rate};

/// One link, one flow of a native control.
#[derive(Clone, Copy)]
struct Setting {
    mbit: u64,
    rtt_ms: u64,
    seconds: u64,
    timing: Timing,
}

fn on_the_kernel(setting: Setting, control: &str) -> ContenderResult {
    let experiment = Experiment {
        contenders: vec![format!("native:{control}").parse().unwrap()],
        line: LineSpec::Constant(Rate::from_bits_per_sec(setting.mbit * 1_000_000)),
        line_name: format!("{}mbit", setting.mbit),
        rtt: Duration::from_millis(setting.rtt_ms),
        queue: QueueSpec::DropTail(Size::MilliBdp(1000)),
        queue_name: "droptail:1bdp".into(),
        loss: LossModel::NONE,
        jitter: Duration::ZERO,
        reorder: false,
        timing: setting.timing,
        seed: 1,
        flows: 1,
        duration: Duration::from_secs(setting.seconds),
        sample_every: Duration::from_millis(10),
        command: "ccplane run".into(),
    };
    only(run(&experiment, &Registry::builtin(), &mut Quiet).unwrap())
}

fn in_the_simulator(setting: Setting, control: &str) -> ContenderResult {
    let Setting {
        mbit, rtt_ms, seconds, ..
    } = setting;
    let text = format!(
        "contenders = [\"native:{control}\"]\nduration = \"{seconds}s\"\n\
         [topology.dumbbell]\nrate = \"{mbit}mbit\"\nrtt = \"{rtt_ms}ms\"\nqueue = \"droptail:1bdp\"\n\
         [[workload]]\nbulk = {{ flows = 1 }}\n"
    );
    let scenario = Scenario::parse("kernel.toml", &text, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let options = Options {
        seeds: "1".parse().unwrap(),
        threads: 1,
        command: "ccplane run kernel.toml".into(),
        repeat: "ccplane run kernel.toml".into(),
        packet_logs: None,
    };
    only(sim::run(&scenario, &Registry::builtin(), &options, &Quiet).unwrap())
}

fn only(result: RunResult) -> ContenderResult {
    let [one] = <[ContenderResult; 1]>::try_from(result.contenders).unwrap_or_else(|_| panic!("one contender"));
    one
}

/// Runs on the kernel until one counts. A machine that stands still for some milliseconds adds losses and delay of its own, which only
/// drive the two apart: a run that agrees with the simulator counts even where the emulator was not precise, and one that disagrees
/// counts against it only where the emulator was.
const RUNS: usize = 8;

/// `goodput` and `delay`: bounds, per cent.
fn compare(setting: Setting, control: &str, goodput: f64, delay: f64) {
    let simulated = in_the_simulator(setting, control).figures;
    for _ in 0..RUNS {
        let real = on_the_kernel(setting, control);
        let within = |what: &str, simulated: f64, real: f64, bound: f64| {
            let error = (simulated / real - 1.0) * 100.0;
            println!("{control}, {what}: simulator {simulated:.3}, kernel {real:.3}: {error:+.2} %, bound {bound} %");
            error.abs() <= bound
        };
        println!(
            "{control}, drops: simulator {}, kernel {}",
            simulated.queue_drops, real.figures.queue_drops
        );
        let agrees = [
            within(
                "goodput, Mbit/s",
                simulated.goodput_mbit,
                real.figures.goodput_mbit,
                goodput,
            ),
            within(
                "mean queueing delay, ms",
                simulated.delay_mean_ms,
                real.figures.delay_mean_ms,
                delay,
            ),
        ];
        if agrees == [true; 2] {
            return;
        }
        assert!(
            !real.audit.sound,
            "{control}: the emulator was precise, and the two differ"
        );
        println!("not counted: {}", real.audit.complaints.join("; "));
    }
    panic!("{control}: the emulator was not precise in any of {RUNS} runs, and none agreed with the simulator");
}

fn privileged(test: &str) -> bool {
    let there = nix::unistd::geteuid().is_root() && Path::new("/dev/net/tun").exists();
    if !there {
        println!("SKIPPED: {test}: needs root and /dev/net/tun");
        assert!(
            std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|v| v != "1"),
            "{test} may not be skipped: needs root and /dev/net/tun"
        );
    }
    there
}

/// 24 Mbit/s, which any machine emulates while other tests run.
#[test]
fn short_runs_are_those_of_the_kernel() {
    if privileged("short_runs_are_those_of_the_kernel") {
        let setting = Setting {
            mbit: 24,
            rtt_ms: 20,
            seconds: 10,
            timing: Timing::Balanced,
        };
        compare(setting, "reno", 3.0, 10.0);
        compare(setting, "cubic", 3.0, 10.0);
    }
}

/// The figures of `docs/validation.md`: on an idle machine,
/// `cargo test --release -p ccplane-lab --test kernel -- --ignored --nocapture`.
#[test]
#[ignore = "takes four minutes of an idle machine"]
fn long_runs_are_those_of_the_kernel() {
    if privileged("long_runs_are_those_of_the_kernel") {
        let setting = Setting {
            mbit: 96,
            rtt_ms: 20,
            seconds: 60,
            timing: Timing::Precise,
        };
        compare(setting, "reno", 3.0, 10.0);
        compare(setting, "cubic", 3.0, 10.0);
    }
}
