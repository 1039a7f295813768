//! From a run's records to its figures, and the judgement whether they can be trusted.

use ccplane_emu::{EmuReport, Fate, LinkLog, Timing};
use ccplane_linux::Counters;
use ccplane_qdisc::{Line, LineSpec};
use ccplane_units::{Duration, Time};

use crate::heard::Heard;
use crate::machine::Machine;
use crate::metrics::{self, Distribution};
use crate::result::{Audit, EmulatorAudit, Figures, FlowFigures, Sample, Series, Setup};
use crate::packets::MTU;
use crate::traffic::Transfer;

/// A flow held back by a window or buffer for more than this share of its time was not congestion-controlled alone.
const MOST_LIMITED: f64 = 0.01;

/// A stall of the machine holds packets back and lets them go at once. When it is longer than this share of a
/// round-trip time, the burst is of the size of the reserve that a queue of one BDP has on average.
const LONGEST_STALL: f64 = 0.25;

/// No machine without real-time scheduling keeps below this.
const SHORTEST_STALL: Duration = Duration::from_millis(2);

/// The longest stall of the machine that a run on a path of this round-trip time can bear, whoever runs.
pub fn longest_stall(rtt_ms: f64) -> Duration {
    Duration::from_nanos((rtt_ms * 1e6 * LONGEST_STALL) as u64).max(SHORTEST_STALL)
}

/// Packets that left the link while bytes were counted: time since the transfer began, time in the queue, size.
fn departures<'a>(
    log: &'a LinkLog,
    report: &EmuReport,
    transfer: &Transfer,
) -> impl Iterator<Item = (u64, u64, u64)> + 'a {
    // Both clocks are CLOCK_MONOTONIC; the log counts from the emulator's start.
    let begin = Time::from_nanos(transfer.started_ns.saturating_sub(report.epoch.as_nanos()));
    let elapsed = transfer.elapsed_ns;
    log.records().filter_map(move |record| match record.fate() {
        Fate::Departed(at) if at >= begin && at.since(begin).as_nanos() < elapsed => Some((
            at.since(begin).as_nanos(),
            record.sojourn()?.as_nanos(),
            u64::from(record.bytes),
        )),
        _ => None,
    })
}

/// The link's and the sockets' records over time.
pub(crate) fn series(transfer: &Transfer, report: &EmuReport, bin: Duration, heard: Option<Heard>) -> Series {
    let width = bin.as_nanos();
    let link = || departures(&report.forward, report, transfer);
    Series {
        bin_ns: width,
        throughput_mbit: metrics::bin_bytes(link().map(|(at, _, bytes)| (at, bytes)), width, transfer.elapsed_ns)
            .into_iter()
            .map(|bytes| metrics::mbits(bytes, width))
            .collect(),
        delay_ms: metrics::bin_means(
            link().map(|(at, in_queue, _)| (at, in_queue as f64 / 1e6)),
            width,
            transfer.elapsed_ns,
        ),
        flows: transfer.flows.clone(),
        started_ns: transfer.started_ns,
        heard: heard.unwrap_or_default().in_order_of(&transfer.senders),
        ..Series::default()
    }
}

/// What the records say.
pub(crate) fn figures(line: &LineSpec, transfer: &Transfer, report: &EmuReport) -> Figures {
    let flows: Vec<FlowFigures> = transfer
        .flows
        .iter()
        .map(|samples| flow_figures(samples, transfer.elapsed_ns))
        .collect();
    let goodputs: Vec<f64> = flows.iter().map(|f| f.goodput_mbit).collect();
    let link = || departures(&report.forward, report, transfer);
    let delays = Distribution::new(link().map(|(_, in_queue, _)| in_queue as f64 / 1e6));
    let delivered: u64 = link().map(|(_, _, bytes)| bytes).sum();
    let begin = Duration::from_nanos(transfer.started_ns.saturating_sub(report.epoch.as_nanos()));
    let capacity = capacity(line, begin, Duration::from_nanos(transfer.elapsed_ns));
    let at = |p| delays.quantile(p).unwrap_or(0.0);
    Figures {
        goodput_mbit: goodputs.iter().sum(),
        utilisation: if capacity > 0.0 {
            delivered as f64 / capacity
        } else {
            0.0
        },
        delay_mean_ms: delays.mean().unwrap_or(0.0),
        delay_p50_ms: at(0.5),
        delay_p95_ms: at(0.95),
        delay_p99_ms: at(0.99),
        retransmissions: flows.iter().map(|f| f.retransmissions).sum(),
        queue_drops: report.forward.queue_drops,
        random_losses: report.forward.losses,
        jain: metrics::jain(&goodputs),
        flows,
        ..Figures::default()
    }
}

/// Bytes that the line could carry in `[begin, begin + span)` of the emulation.
pub(crate) fn capacity(line: &LineSpec, begin: Duration, span: Duration) -> f64 {
    match line {
        LineSpec::Constant(rate) => rate.bytes_per_sec() as f64 * span.as_secs_f64(),
        LineSpec::Unlimited => 0.0,
        LineSpec::Trace(_) | LineSpec::Piecewise(_) => {
            // A saturated line of its own, counted.
            let mut saturated = Line::new(line, Time::ZERO);
            let (mut now, mut bytes) = (Time::ZERO + begin, 0.0);
            let end = now + span;
            loop {
                now = saturated.send(saturated.next_start(now), MTU);
                if now >= end {
                    return bytes;
                }
                bytes += f64::from(MTU);
            }
        }
    }
}

pub(crate) fn flow_figures(samples: &[Sample], elapsed_ns: u64) -> FlowFigures {
    let last = samples.last().copied().unwrap_or_default();
    let mean = |value: fn(&Sample) -> f64| {
        let measured = Distribution::new(samples.iter().skip(1).map(value));
        measured.mean().unwrap_or(0.0)
    };
    let share = |us: u64| us as f64 * 1e3 / elapsed_ns.max(1) as f64;
    FlowFigures {
        received_bytes: last.received,
        goodput_mbit: metrics::mbits(last.received, elapsed_ns),
        retransmissions: u64::from(last.tcp.retrans),
        retransmitted_bytes: last.tcp.bytes_retrans,
        cwnd_mean: mean(|s| f64::from(s.tcp.cwnd)),
        srtt_mean_ms: mean(|s| f64::from(s.tcp.srtt_us) / 1e3),
        min_rtt_ms: f64::from(last.tcp.min_rtt_us) / 1e3,
        rwnd_limited: share(last.tcp.rwnd_limited_us),
        sndbuf_limited: share(last.tcp.sndbuf_limited_us),
    }
}

/// The emulator's own judgement, and whether anything but congestion control held the flows back.
pub(crate) fn audit(
    report: &EmuReport,
    figures: &Figures,
    setup: &Setup,
    machine: &Machine,
    counters: Option<Counters>,
) -> Audit {
    let a = &report.audit;
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    let disturbed = machine.disturbed(longest_stall(setup.rtt_ms));
    let mut complaints = disturbed.clone();
    if !a.ok && a.own_drops + a.tun_drops > 0 {
        complaints.push(format!(
            "the emulator or its devices lost {} packets that no real link would have",
            a.own_drops + a.tun_drops
        ));
    }
    if !a.ok && a.late_fraction > 0.01 {
        complaints.push(format!(
            "one packet in a hundred left more than {:.1} ms late: this machine was too busy to emulate {}; give it idle \
             CPUs or a lower rate",
            us(a.lateness_p99) / 1e3,
            setup.rate
        ));
    }
    if !a.ok && complaints.is_empty() {
        complaints.push("the emulator's audit did not pass".to_owned());
    }
    if report.forward.not_kept > 0 {
        complaints.push(format!(
            "the packet log was full: delay and throughput lack {} packets; run for a shorter time",
            report.forward.not_kept
        ));
    }
    for (i, flow) in figures.flows.iter().enumerate() {
        let limits = [
            ("the receiver's window", flow.rwnd_limited),
            ("the sender's buffer", flow.sndbuf_limited),
        ];
        for (what, share) in limits.into_iter().filter(|(_, share)| *share > MOST_LIMITED) {
            complaints.push(format!(
                "flow {} was held back by {what} for {:.0} % of its time",
                i + 1,
                share * 100.0
            ));
        }
        if flow.received_bytes == 0 {
            complaints.push(format!("flow {} got nothing through", i + 1));
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
            own_drops: a.own_drops + a.tun_drops,
        }),
        simulation: None,
        sound: complaints.is_empty(),
        complaints,
        disturbed,
        own: mishaps(&counters.unwrap_or_default()),
    }
}

/// What went wrong with the contender, a sentence each: results of its own, and no reason to run it again.
pub(crate) fn mishaps(counters: &Counters) -> Vec<String> {
    let mishaps = [
        (
            counters.fallbacks,
            "flows fell back to NewReno, because the algorithm's thread was silent for too long",
        ),
        (
            counters.table_full,
            "flows found no place in the datapath's table and ran NewReno",
        ),
        (
            counters.faults,
            "times the algorithm's program divided by zero or overflowed",
        ),
    ];
    let happened = mishaps.iter().filter(|(n, _)| *n > 0);
    happened.map(|(n, what)| format!("{n} {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccplane_qdisc::Trace;
    use ccplane_units::Rate;

    #[test]
    fn a_line_can_carry_its_rate_and_a_trace_its_opportunities() {
        let (begin, span) = (Duration::from_millis(7), Duration::from_millis(100));
        let constant = LineSpec::Constant(Rate::from_bytes_per_sec(12_000_000));
        assert_eq!(capacity(&constant, begin, span), 1_200_000.0);
        // Two packets every 5 ms: 20 times in 100 ms.
        let trace = Trace::parse("5\n5\n").unwrap();
        let carried = capacity(&LineSpec::Trace(trace.into()), begin, span);
        assert!((carried - 40.0 * 1500.0).abs() <= 1500.0, "{carried}");
    }

    #[test]
    fn what_a_contender_did_to_itself_is_said_and_is_no_reason_to_run_again() {
        let counters = Counters {
            fallbacks: 3,
            faults: 2,
            ..Counters::default()
        };
        let own = mishaps(&counters);
        assert!(own.len() == 2 && own[0].starts_with("3 flows fell back"), "{own:?}");
        let ours = crate::result::Audit {
            own,
            sound: true,
            ..Default::default()
        };
        assert!(ours.disturbed.is_empty() && ours.complaints.is_empty());
    }

    #[test]
    fn a_flow_held_back_by_its_window_is_told_apart() {
        let mut samples = vec![Sample::default(); 3];
        for (i, s) in samples.iter_mut().enumerate() {
            s.at_ns = i as u64 * 500_000_000;
            s.received = i as u64 * 1_000_000;
            s.tcp.cwnd = 10 * i as u32;
            s.tcp.srtt_us = 20_000;
        }
        samples[2].tcp.rwnd_limited_us = 250_000;
        let f = flow_figures(&samples, 1_000_000_000);
        assert_eq!(
            (f.received_bytes, f.goodput_mbit, f.rwnd_limited),
            (2_000_000, 16.0, 0.25)
        );
        // The first look is before anything was sent.
        assert_eq!((f.cwnd_mean, f.srtt_mean_ms), (15.0, 20.0));
    }
}
