//! Converts the emulator's log to a run's record and decides if the measurement is valid.

use ccplane_emu::{EmuReport, Fate, Timing};
use ccplane_lab::record::LinkRecord;
use ccplane_lab::result::{Audit, ContenderMetrics, EmulatorAudit, Setup};
use ccplane_linux::AlgorithmCounters;
use ccplane_units::{Duration, Time};

use crate::machine::MachineState;

/// A flow limited by a window or a buffer for more than this share of its time was not limited by
/// congestion control alone.
const LIMITED_TIME_SHARE_MAX: f64 = 0.01;

/// A stall delays packets and releases them as a burst. At this share of a round-trip time the
/// burst fills the headroom that a queue of one BDP has on average.
const STALL_RTT_SHARE_MAX: f64 = 0.25;

/// Machines without real-time scheduling do not stay below this limit.
const STALL_TOLERANCE: Duration = Duration::from_millis(2);

/// Returns the longest stall of the machine that a run on a path of this round-trip time tolerates,
/// for any contender.
pub fn longest_stall(rtt_ms: f64) -> Duration {
    Duration::from_nanos((rtt_ms * 1e6 * STALL_RTT_SHARE_MAX) as u64).max(STALL_TOLERANCE)
}

/// Builds the record of the forward link from the emulator's log: packets that departed in the
/// `elapsed_ns` after the first byte (`started_ns`, `CLOCK_MONOTONIC`). `capacity`: bytes that the
/// link could have carried in this time.
pub(crate) fn link(
    report: &EmuReport,
    started_ns: u64,
    elapsed_ns: u64,
    capacity: f64,
) -> LinkRecord {
    // Both clocks are CLOCK_MONOTONIC; the log counts from the emulator's start.
    let begin = Duration::from_nanos(started_ns.saturating_sub(report.epoch.as_nanos()));
    let first = Time::ZERO + begin;
    let departed = report
        .forward
        .records()
        .filter_map(|record| match record.fate() {
            Fate::Departed(at) if at >= first && at.since(first).as_nanos() < elapsed_ns => Some((
                at.since(first).as_nanos(),
                record.sojourn()?.as_nanos(),
                u64::from(record.bytes),
            )),
            _ => None,
        });
    LinkRecord {
        departures: departed.collect(),
        capacity,
        queue_drops: report.forward.queue_drops,
        random_losses: report.forward.losses,
    }
}

/// Combines the emulator's own audit with disturbances of the machine and with limits other than
/// congestion control.
pub(crate) fn audit(
    report: &EmuReport,
    metrics: &ContenderMetrics,
    setup: &Setup,
    machine: &MachineState,
    counters: Option<AlgorithmCounters>,
) -> Audit {
    let a = &report.audit;
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    let disturbed = machine.disturbances(longest_stall(setup.rtt_ms));
    let mut complaints = disturbed.clone();
    if !a.passed && a.emulator_drops + a.tun_drops > 0 {
        complaints.push(format!(
            "the emulator or its devices lost {} packets that a real link would not have lost",
            a.emulator_drops + a.tun_drops
        ));
    }
    if !a.passed && a.late_fraction > 0.01 {
        complaints.push(format!(
            "1 % of the packets left more than {:.1} ms late: this machine was too busy to \
             emulate {}; free some CPUs, or use a lower rate",
            us(a.lateness_p99) / 1e3,
            setup.rate
        ));
    }
    if !a.passed && complaints.is_empty() {
        complaints.push("the emulator's self-check failed".to_owned());
    }
    if report.forward.records_dropped > 0 {
        complaints.push(format!(
            "the packet log was full: delay and throughput do not include {} packets; use a \
             shorter duration",
            report.forward.records_dropped
        ));
    }
    for (i, flow) in metrics.flows.iter().enumerate() {
        let limits = [
            ("the receiver's window", flow.rwnd_limited),
            ("the sender's buffer", flow.sndbuf_limited),
        ];
        for (what, share) in limits
            .into_iter()
            .filter(|(_, share)| *share > LIMITED_TIME_SHARE_MAX)
        {
            complaints.push(format!(
                "flow {} was limited by {what} for {:.0} % of its time",
                i + 1,
                share * 100.0
            ));
        }
        if flow.received_bytes == 0 {
            complaints.push(format!("flow {} delivered nothing", i + 1));
        }
    }
    Audit {
        emulator: Some(EmulatorAudit {
            timing: match report.timing {
                Timing::Balanced => "balanced",
                Timing::Precise => "precise",
            }
            .to_owned(),
            lateness_p50_us: us(a.lateness_p50),
            lateness_p99_us: us(a.lateness_p99),
            lateness_max_us: us(a.lateness_max),
            own_drops: a.emulator_drops + a.tun_drops,
        }),
        simulation: None,
        sound: complaints.is_empty(),
        complaints,
        disturbed,
        own: mishaps(&counters.unwrap_or_default()),
    }
}

/// Describes failures of the contender, a sentence each. They are part of its result and never a
/// reason to repeat the run.
pub(crate) fn mishaps(counters: &AlgorithmCounters) -> Vec<String> {
    let mishaps = [
        (
            counters.fallbacks,
            "flows fell back to NewReno because the algorithm's thread did not respond in time",
        ),
        (
            counters.table_full,
            "flows ran NewReno because the datapath's table was full",
        ),
        (
            counters.faults,
            "times, the algorithm's program divided by zero or overflowed",
        ),
    ];
    let happened = mishaps.iter().filter(|(n, _)| *n > 0);
    happened.map(|(n, what)| format!("{n} {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_contender_are_reported_but_not_repeated() {
        let counters = AlgorithmCounters {
            fallbacks: 3,
            faults: 2,
            ..AlgorithmCounters::default()
        };
        let own = mishaps(&counters);
        assert!(
            own.len() == 2 && own[0].starts_with("3 flows fell back"),
            "{own:?}"
        );
        let ours = Audit {
            own,
            sound: true,
            ..Default::default()
        };
        assert!(ours.disturbed.is_empty() && ours.complaints.is_empty());
    }
}
