//! Capacity of a link over time, including outages and rate changes.

use ccplane_qdisc::{Line, LineSpec};
use ccplane_units::{Duration, Rate, Time};

/// Largest packet on a path, bytes, including the IP header.
pub const MTU: u32 = 1500;

/// Returns the queueing delay in µs of a full packet with this sojourn time on a link of this rate:
/// the sojourn time minus the transmission time.
pub fn waited_us(sojourn_ms: f64, rate: Rate) -> f64 {
    let wire_us = f64::from(MTU) * 1e6 / rate.bytes_per_sec() as f64;
    (sojourn_ms * 1e3 - wire_us).max(0.0)
}

/// Change of a link's capacity.
pub enum Carrying<'l> {
    /// The link follows this line from now on, and the line's time starts at zero.
    Line(&'l LineSpec),
    /// True if the link is up.
    Up(bool),
}

/// Returns the bytes that a link could carry in `[from, to)` of a run. Its line changes with the
/// run, and it carries nothing while it is down. `changes` may be in any order.
pub fn could_carry<'l>(
    line: &'l LineSpec,
    changes: impl Iterator<Item = (Duration, Carrying<'l>)>,
    from: Duration,
    to: Duration,
) -> f64 {
    let mut changes: Vec<_> = changes.filter(|(at, _)| *at < to).collect();
    changes.sort_by_key(|(at, _)| *at);
    changes.push((to, Carrying::Up(false)));
    // `began`: start of the current line's time. `since`: time of the last change.
    let (mut line, mut began, mut up, mut since, mut bytes) =
        (line, Duration::ZERO, true, from, 0.0);
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

/// Returns the capacity of a link over a run, Mbit/s per bin; empty if all bins are equal. `could`
/// returns the bytes that the link could carry between two times.
pub fn capacity_course(
    bin: Duration,
    span: Duration,
    could: impl Fn(Duration, Duration) -> f64,
) -> Vec<f64> {
    let (width, bins) = (
        bin.as_nanos().max(1),
        span.as_nanos() / bin.as_nanos().max(1),
    );
    let at = |bin: u64| Duration::from_nanos(bin * width);
    let mbit = |n: u64| could(at(n), at(n + 1)) * 8e3 / width as f64;
    let course: Vec<f64> = (0..bins).map(mbit).collect();
    let (low, high) = course
        .iter()
        .fold((f64::MAX, 0.0_f64), |(low, high), mbit| {
            (low.min(*mbit), high.max(*mbit))
        });
    // Sums of fractional packets have rounding errors.
    if high - low > high * 1e-6 {
        course
    } else {
        Vec::new()
    }
}

/// Returns the bytes that the line could carry in `[begin, begin + span)` of its own time.
fn capacity(line: &LineSpec, begin: Duration, span: Duration) -> f64 {
    match line {
        LineSpec::Constant(rate) => rate.bytes_per_sec() as f64 * span.as_secs_f64(),
        LineSpec::Unlimited => 0.0,
        LineSpec::Trace(_) | LineSpec::Piecewise(_) => {
            // Counts the bytes of a saturated copy of the line.
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

#[cfg(test)]
mod tests {
    use ccplane_qdisc::{Piecewise, Trace};

    use super::*;

    #[test]
    fn capacity_after_the_warm_up_is_counted() {
        let [slow, fast] =
            [1_000_000, 4_000_000].map(|rate| LineSpec::Constant(Rate::from_bytes_per_sec(rate)));
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
        // A line starts with the run, whichever part of the run counts.
        let pieces = [
            (Duration::ZERO, Rate::from_bytes_per_sec(1_500_000)),
            (ms(500), Rate::from_bytes_per_sec(3_000_000)),
        ];
        let pieces = LineSpec::Piecewise(Piecewise::new(&pieces, None).unwrap().into());
        let late = could_carry(&pieces, std::iter::empty(), ms(500), ms(1_000));
        assert!((late - 1.5e6).abs() < 3_000.0, "{late}");
        let course = capacity_course(ms(100), ms(1_000), |from, to| {
            could_carry(&slow, changes(), from, to)
        });
        let (low, high) = (8.0, 32.0);
        assert_eq!(
            course,
            [low, low, high, high, high, 0.0, 0.0, high, high, high]
        );
        let steady = capacity_course(ms(100), ms(1_000), |from, to| {
            could_carry(&slow, std::iter::empty(), from, to)
        });
        assert!(
            steady.is_empty(),
            "a link with a constant rate has no schedule"
        );
    }

    #[test]
    fn a_line_can_carry_its_rate_and_a_trace_its_opportunities() {
        let (begin, span) = (Duration::from_millis(7), Duration::from_millis(100));
        let constant = LineSpec::Constant(Rate::from_bytes_per_sec(12_000_000));
        assert_eq!(capacity(&constant, begin, span), 1_200_000.0);
        // Two packets every 5 ms, 20 times in 100 ms.
        let trace = Trace::parse("5\n5\n").unwrap();
        let carried = capacity(&LineSpec::Trace(trace.into()), begin, span);
        assert!((carried - 40.0 * 1500.0).abs() <= 1500.0, "{carried}");
    }
}
