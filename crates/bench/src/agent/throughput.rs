//! What an agent gets through when a datapath of this process reports as fast as it can.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::{Duration, Instant};

use ccplane_link::WaitStrategy;
use ccplane_testbed::control_loop::{IdleDatapath, LoopError, with_agent};

/// How to measure throughput.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Flows that report in turn.
    pub flows: u32,
    /// Answer each report with an update.
    pub updates: bool,
    /// Reports in a datagram. CCP's messages allow it; the reference's datapaths send one.
    pub reports_per_datagram: usize,
    /// For how long.
    pub duration: Duration,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// Reports that the algorithm got, a second.
    pub reports_per_s: f64,
    /// Updates that the datapath got, a second.
    pub updates_per_s: f64,
    /// CPU time of the agent's thread for each report, µs: what a core of its own could do follows
    /// from it, also on a machine that is busy with other things.
    pub cpu_us_per_report: f64,
}

/// Measures.
pub fn throughput(load: &Load) -> Result<Throughput, LoopError> {
    let ((elapsed, updates), served) =
        with_agent(load.updates, WaitStrategy::default(), |agent| {
            let mut datapath = IdleDatapath::new(agent, load.flows)?;
            let start = Instant::now();
            let (mut next, mut updates) = (0, 0);
            while start.elapsed() < load.duration {
                for _ in 0..load.reports_per_datagram.max(1) {
                    next = next % load.flows + 1;
                    datapath.add_report(next);
                }
                updates += datapath.send_all()? + datapath.take_updates()?;
            }
            Ok((start.elapsed().as_secs_f64(), updates))
        })?;
    let reports = served.stats.reports;
    Ok(Throughput {
        reports_per_s: reports as f64 / elapsed,
        updates_per_s: updates as f64 / elapsed,
        cpu_us_per_report: served.cpu.as_secs_f64() * 1e6 / reports.max(1) as f64,
    })
}
