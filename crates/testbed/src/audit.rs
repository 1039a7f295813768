//! Decides if the measurement of a run is valid.

use ccplane_emu::{EmuReport, Timing};
use ccplane_lab::result::{Audit, ContenderMetrics, EmulatorAudit, Setup};
use ccplane_linux::AlgorithmCounters;
use ccplane_units::Duration;

use crate::link_report::LinkReport;
use crate::machine::MachineState;

/// A flow limited by a window or a buffer for more than this share of its time was not limited by
/// congestion control alone.
const LIMITED_TIME_SHARE_MAX: f64 = 0.01;

/// A stall delays packets and releases them as a burst. At this share of a round-trip time the
/// burst fills the headroom that a queue of one BDP has on average.
const STALL_RTT_SHARE_MAX: f64 = 0.25;

/// Larger share of packets without a complete record that makes a run invalid.
const UNMATCHED_SHARE_MAX: f64 = 0.001;

/// Machines without real-time scheduling do not stay below this limit.
const STALL_TOLERANCE: Duration = Duration::from_millis(2);

/// Returns the longest stall of the machine that a run on a path of this round-trip time tolerates,
/// for any contender.
pub fn longest_stall(rtt_ms: f64) -> Duration {
    Duration::from_nanos((rtt_ms * 1e6 * STALL_RTT_SHARE_MAX) as u64).max(STALL_TOLERANCE)
}

/// Combines the emulator's own audit with disturbances of the machine and with limits other than
/// congestion control.
pub(crate) fn audit(
    report: &LinkReport,
    metrics: &ContenderMetrics,
    setup: &Setup,
    machine: &MachineState,
    counters: Option<AlgorithmCounters>,
) -> Audit {
    let disturbed = machine.disturbances(longest_stall(setup.rtt_ms));
    let mut complaints = disturbed.clone();
    let emulator = match report {
        LinkReport::Emulated(report) => {
            complain_of_emulator(report, setup, &mut complaints);
            Some(emulator_audit(report))
        }
        LinkReport::TokenBucket(report) => {
            let departed = report.packets.len() as u64 + report.unmatched;
            if report.unmatched as f64 > departed as f64 * UNMATCHED_SHARE_MAX {
                complaints.push(format!(
                    "the record of the link is incomplete: it lacks {} of {departed} packets; free \
                     some CPUs, or use a lower rate",
                    report.unmatched
                ));
            }
            None
        }
    };
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
        emulator,
        simulation: None,
        sound: complaints.is_empty(),
        complaints,
        disturbed,
        own: mishaps(&counters.unwrap_or_default()),
    }
}

fn complain_of_emulator(report: &EmuReport, setup: &Setup, complaints: &mut Vec<String>) {
    let a = &report.audit;
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
}

fn emulator_audit(report: &EmuReport) -> EmulatorAudit {
    let a = &report.audit;
    EmulatorAudit {
        timing: match report.timing {
            Timing::Balanced => "balanced",
            Timing::Precise => "precise",
        }
        .to_owned(),
        lateness_p50_us: us(a.lateness_p50),
        lateness_p99_us: us(a.lateness_p99),
        lateness_max_us: us(a.lateness_max),
        own_drops: a.emulator_drops + a.tun_drops,
    }
}

fn us(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
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
