//! From the emulator's log to a run's record, and the judgement whether its figures can be trusted.

use ccplane_emu::{EmuReport, Fate, Timing};
use ccplane_linux::Counters;
use ccplane_qdisc::{Line, LineSpec};
use ccplane_units::{Duration, Time};

use crate::machine::Machine;
use crate::over::MTU;
use crate::record::LinkRecord;
use crate::result::{Audit, EmulatorAudit, Figures, Setup};

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

/// What the emulator's log says of the forward link, for so long from the first byte on (`CLOCK_MONOTONIC`); it could have
/// carried `capacity` bytes.
pub(crate) fn link(report: &EmuReport, started_ns: u64, elapsed_ns: u64, capacity: f64) -> LinkRecord {
    // Both clocks are CLOCK_MONOTONIC; the log counts from the emulator's start.
    let begin = Duration::from_nanos(started_ns.saturating_sub(report.epoch.as_nanos()));
    let first = Time::ZERO + begin;
    let departed = report.forward.records().filter_map(|record| match record.fate() {
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

/// What changes of a link's capacity.
pub(crate) enum Carrying<'l> {
    /// It follows this line from now on, which begins now.
    Line(&'l LineSpec),
    /// Whether it carries anything.
    Up(bool),
}

/// Bytes that a link could carry in `[from, to)` of a run: at each time with the line that it then had, nothing while it was down.
/// `changes` are in any order.
pub(crate) fn could_carry<'l>(
    line: &'l LineSpec,
    changes: impl Iterator<Item = (Duration, Carrying<'l>)>,
    from: Duration,
    to: Duration,
) -> f64 {
    let mut changes: Vec<_> = changes.filter(|(at, _)| *at < to).collect();
    changes.sort_by_key(|(at, _)| *at);
    changes.push((to, Carrying::Up(false)));
    // Since when the line follows its course, and since when the link is as it is.
    let (mut line, mut began, mut up, mut since, mut bytes) = (line, Duration::ZERO, true, from, 0.0);
    for (at, change) in changes {
        if up && at > since {
            bytes += capacity(line, since.saturating_sub(began), at.saturating_sub(since));
        }
        match change {
            Carrying::Line(next) => (line, began) = (next, at),
            Carrying::Up(next) => up = next,
        }
        since = since.max(at);
    }
    bytes
}

/// What a link could carry over a run, Mbit/s in each bin, where `could` says how many bytes between two times; empty where that
/// is the same in all.
pub(crate) fn capacity_course(bin: Duration, span: Duration, could: impl Fn(Duration, Duration) -> f64) -> Vec<f64> {
    let (width, bins) = (bin.as_nanos().max(1), span.as_nanos() / bin.as_nanos().max(1));
    let at = |bin: u64| Duration::from_nanos(bin * width);
    let mbit = |n: u64| could(at(n), at(n + 1)) * 8e3 / width as f64;
    let course: Vec<f64> = (0..bins).map(mbit).collect();
    let (low, high) = course.iter().fold((f64::MAX, 0.0_f64), |(low, high), mbit| {
        (low.min(*mbit), high.max(*mbit))
    });
    // Sums of parts of a packet are not exact.
    if high - low > high * 1e-6 { course } else { Vec::new() }
}

/// Bytes that the line could carry in `[begin, begin + span)` of its course.
fn capacity(line: &LineSpec, begin: Duration, span: Duration) -> f64 {
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
    use ccplane_qdisc::{Piecewise, Trace};
    use ccplane_units::Rate;

    #[test]
    fn what_counts_from_a_time_on_is_what_the_line_then_had() {
        let [slow, fast] = [1_000_000, 4_000_000].map(|rate| LineSpec::Constant(Rate::from_bytes_per_sec(rate)));
        let ms = Duration::from_millis;
        let changes = || {
            [
                (ms(700), Carrying::Up(true)),
                (ms(200), Carrying::Line(&fast)),
                (ms(500), Carrying::Up(false)),
            ]
            .into_iter()
        };
        assert_eq!(
            could_carry(&slow, changes(), Duration::ZERO, ms(1_000)),
            200e3 + 1_200e3 + 1_200e3
        );
        assert_eq!(could_carry(&slow, changes(), ms(400), ms(600)), 400e3);
        assert_eq!(could_carry(&slow, changes(), ms(500), ms(700)), 0.0);
        // A course begins with the run, whenever bytes count from.
        let pieces = [
            (Duration::ZERO, Rate::from_bytes_per_sec(1_500_000)),
            (ms(500), Rate::from_bytes_per_sec(3_000_000)),
        ];
        let pieces = LineSpec::Piecewise(Piecewise::new(&pieces, None).unwrap().into());
        let late = could_carry(&pieces, std::iter::empty(), ms(500), ms(1_000));
        assert!((late - 1.5e6).abs() < 3_000.0, "{late}");
        let course = capacity_course(ms(100), ms(1_000), |from, to| could_carry(&slow, changes(), from, to));
        let (low, high) = (8.0, 32.0);
        assert_eq!(course, [low, low, high, high, high, 0.0, 0.0, high, high, high]);
        let steady = capacity_course(ms(100), ms(1_000), |from, to| {
            could_carry(&slow, std::iter::empty(), from, to)
        });
        assert!(steady.is_empty(), "a line of one rate needs no course");
    }

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
}
