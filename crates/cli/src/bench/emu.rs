//! `ccplane bench emu`: the emulator's ceiling, rate, delay and lateness, on namespaces of its own.

use ccplane_emu::{Timing, bench};
use ccplane_units::{Duration, Rate};
use clap::Args;

use super::{Aim, Figures};
use crate::doctor;
use crate::exit::{Failure, Kind};

/// Which emulator.
#[derive(Args)]
pub struct EmuArgs {
    /// The timing that spins before each packet's time, up to a core, instead of the balanced one.
    #[arg(long)]
    precise: bool,
}

/// Runs the benchmark: some 25 s.
pub fn run(args: &EmuArgs) -> Result<Figures, Failure> {
    let timing = if args.precise {
        Timing::Precise
    } else {
        Timing::Balanced
    };
    doctor::require(&[doctor::Need::Emulator])?;
    let fail = |e| Failure::new(Kind::Failed, e);
    let mut figures = Figures::default();
    let mut late = Duration::ZERO;

    let mut runs = Vec::new();
    for _ in 0..3 {
        let run = bench::throughput(timing, Duration::from_millis(10), Duration::from_secs(3)).map_err(fail)?;
        runs.push(run.gbps);
    }
    runs.sort_by(f64::total_cmp);
    let reference = "Mahimahi 0.54 on such a VM";
    figures.add(
        "packet_10ms_gbps",
        runs[1],
        "Gbit/s",
        Some(Aim::AtLeast(1.7)),
        reference,
    );

    let rate = bench::rate_error(timing, Rate::from_bits_per_sec(96_000_000), Duration::from_secs(5)).map_err(fail)?;
    figures.add("rate_error_pct", rate.error_pct, "%", Some(Aim::AtMost(0.5)), "");
    late = late.max(rate.audit.lateness_p99);

    // A stall of the machine, which is not the emulator's, spoils the tail of a run; it does not spoil most of them.
    let (mut p50, mut p99, mut lateness) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        let rtt = bench::idle_rtt_error(timing, Duration::from_millis(20), 600).map_err(fail)?;
        p50.push(rtt.p50);
        p99.push(rtt.p99);
        lateness.push(rtt.audit.lateness_p99);
    }
    let middle = |mut values: Vec<Duration>| {
        values.sort();
        values[values.len() / 2]
    };
    let ms = |d: Duration| d.as_nanos() as f64 / 1e6;
    let (aim50, aim99) = (Some(Aim::AtMost(0.3)), Some(Aim::AtMost(0.6)));
    figures.add(
        "idle_rtt_error_p50_ms",
        ms(middle(p50)),
        "ms",
        aim50,
        "Mahimahi 0.71 on such a VM",
    );
    figures.add(
        "idle_rtt_error_p99_ms",
        ms(middle(p99)),
        "ms",
        aim99,
        "Mahimahi 1.03 on such a VM",
    );
    late = late.max(middle(lateness));
    figures.add("lateness_p99_us", late.as_nanos() as f64 / 1e3, "us", None, "");
    figures.note(if args.precise {
        "precise timing"
    } else {
        "balanced timing"
    });
    figures.note("throughput: median of 3 runs of 3 s; round trips: medians of 5 runs of 3 s; lateness: the worse of idle and 96 Mbit/s");
    Ok(figures)
}
