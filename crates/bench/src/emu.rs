//! `ccplane bench emu`: the emulator's ceiling, rate, delay and lateness, on namespaces of its own,
//! in both modes of timing.

mod measured;

use ccplane_emu::{EmuReport, Gso, Timing};
use ccplane_units::{Duration, Rate};

use crate::rounds::medians;
use crate::{Error, Figures};

const SECONDS: Duration = Duration::from_secs(3);
const TEN_MS: Duration = Duration::from_millis(10);

/// Every figure is the median of so many runs: a stall of the machine, which is not the emulator's,
/// spoils the tail of one run; it does not spoil most of them.
const RUNS: usize = 5;

/// Runs the benchmark: some two and a half minutes.
pub fn run() -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let ceiling = |gso| {
        medians(RUNS, || {
            Ok::<_, Error>([measured::throughput(Timing::Balanced, gso, TEN_MS, SECONDS)?.gbps])
        })
    };
    let [gso] = ceiling(Gso::Auto)?;
    figures.add("gso_10ms_gbps", gso, "Gbit/s").at_least(10.0);
    let [packet] = ceiling(Gso::Off)?;
    figures
        .add("packet_10ms_gbps", packet, "Gbit/s")
        .at_least(1.7)
        .beside("Mahimahi 0.54 on such a VM");

    let mut worst: f64 = 0.0;
    for mbit in [12, 96, 960] {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        let error = || measured::rate_error_pct(Timing::Balanced, rate, SECONDS);
        let [error] = medians(RUNS, || Ok::<_, Error>([error()?]))?;
        figures
            .add(format!("rate_error_{mbit}mbit_pct"), error, "%")
            .at_most(0.2);
        worst = worst.max(error);
    }
    figures
        .add("rate_error_pct", worst, "%")
        .at_most(0.2)
        .beside("the worst of the three");

    let idle = |timing| {
        medians(RUNS, || {
            let rtt = measured::idle_rtt_error(timing, Duration::from_millis(20), 600)?;
            Ok::<_, Error>([ms(rtt.p50), ms(rtt.p99), late(&rtt.report)])
        })
    };
    let busy = |timing| {
        medians(RUNS, || {
            let report =
                measured::bottleneck(timing, Rate::from_bits_per_sec(96_000_000), SECONDS)?.report;
            Ok::<_, Error>([late(&report), report.cpu_share * 100.0])
        })
    };
    let [p50, p99, idle_late] = idle(Timing::Precise)?;
    let [busy_late, cpu] = busy(Timing::Precise)?;
    figures
        .add("idle_rtt_error_p50_ms", p50, "ms")
        .at_most(0.16)
        .beside("Mahimahi 0.71 on such a VM");
    figures
        .add("idle_rtt_error_p99_ms", p99, "ms")
        .at_most(0.3)
        .beside("Mahimahi 1.03 on such a VM");
    figures
        .add("lateness_idle_p99_us", idle_late, "us")
        .at_most(20.0);
    figures
        .add("lateness_96mbit_p99_us", busy_late, "us")
        .at_most(20.0);
    figures
        .add("lateness_p99_us", idle_late.max(busy_late), "us")
        .at_most(20.0)
        .beside("the worse of the two");
    figures
        .add("precise_cpu_96mbit_pct", cpu, "%")
        .at_most(100.0);

    let [p50, p99, idle_late] = idle(Timing::Balanced)?;
    let [busy_late, cpu] = busy(Timing::Balanced)?;
    figures
        .add("balanced_idle_rtt_error_p50_ms", p50, "ms")
        .beside("Mahimahi 0.71 on such a VM");
    figures
        .add("balanced_idle_rtt_error_p99_ms", p99, "ms")
        .beside("Mahimahi 1.03 on such a VM");
    figures
        .add("balanced_lateness_p99_us", idle_late.max(busy_late), "us")
        .at_most(200.0)
        .beside("the worse of idle and 96 Mbit/s");
    figures
        .add("balanced_cpu_96mbit_pct", cpu, "%")
        .at_most(35.0)
        .beside("Mahimahi 27 on such a VM");

    figures.note(
        "balanced timing: gso_10ms_gbps, packet_10ms_gbps (gso off), rate_error*, balanced_*; precise timing: idle_rtt_*, \
         lateness_*, precise_*; gso auto unless it says off",
    );
    figures.note(
        "medians of 5 runs of 3 s; 96 Mbit/s: one TCP connection, 20 ms, a drop-tail queue of 1 BDP; cpu: the emulator's \
         thread, the kernel's work on delivery and acknowledgements included",
    );
    Ok(figures)
}

fn ms(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

/// The 99th percentile of lateness, in microseconds.
fn late(report: &EmuReport) -> f64 {
    report.audit.lateness_p99.as_nanos() as f64 / 1e3
}
