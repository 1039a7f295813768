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

    let rtt = bench::idle_rtt_error(timing, Duration::from_millis(20), 1000).map_err(fail)?;
    let ms = |d: Duration| d.as_nanos() as f64 / 1e6;
    figures.add(
        "idle_rtt_error_p50_ms",
        ms(rtt.p50),
        "ms",
        Some(Aim::AtMost(0.3)),
        "Mahimahi 0.71 on such a VM",
    );
    figures.add(
        "idle_rtt_error_p99_ms",
        ms(rtt.p99),
        "ms",
        Some(Aim::AtMost(0.6)),
        "Mahimahi 1.03 on such a VM",
    );
    late = late.max(rtt.audit.lateness_p99);
    figures.add("lateness_p99_us", late.as_nanos() as f64 / 1e3, "us", None, "");
    figures.note(if args.precise {
        "precise timing"
    } else {
        "balanced timing"
    });
    figures.note("throughput: median of 3 runs of 3 s; lateness: the worse of idle and 96 Mbit/s");
    Ok(figures)
}
