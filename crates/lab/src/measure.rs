//! What the delay meter's stamps say: queueing delay each way, the noise of both stacks, clocks, and what headroom DX needs here.
//!
//! A packet's queueing delay is its distance above the line of the empty path ([`envelope`]), from the kernel's stamps. The same
//! from user space's own times shows what user space adds. On an otherwise idle path the first is the noise of stamping itself.

pub mod envelope;
mod page;

use ccplane_meter::{Exchange, Measured, Tally};
use ccplane_report::{Table, wrap};
use serde_json::{Value, json};

use envelope::{Clocks, Envelope, Point};
pub use page::page;

/// What was measured, for who reads it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The responder, as it was named.
    pub to: String,
    /// Bytes of a probe.
    pub size: usize,
    /// Probes a second.
    pub rate: f64,
    /// Both ends have one clock: nothing drifts.
    pub one_clock: bool,
    /// What this host's interface can stamp, in words.
    pub interface: String,
    /// The command.
    pub command: String,
}

/// How a quantity is distributed, µs.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Ascending.
    sorted: Vec<f64>,
    /// Mean difference of one packet to the next (RFC 3393).
    pub jitter: f64,
}

/// One way.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Queueing delay by the kernel's stamps; by user space's where the kernel gave none.
    pub queue: Distribution,
    /// By user space's own times.
    pub user: Distribution,
    /// When each packet was sent, s from the first, and its queueing delay.
    pub series: Vec<(f64, f64)>,
    /// Packets lost, of how many.
    pub lost: (u32, u32),
    /// The kernel's stamps were to be had.
    pub stamped: bool,
}

/// What a stack adds between user space and the kernel's stamp, µs.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// Until what is sent leaves.
    pub send: Distribution,
    /// Until what came is in hand.
    pub receive: Distribution,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The circumstances.
    pub setup: Setup,
    /// Counts.
    pub tally: Tally,
    /// From this host to the other.
    pub there: Way,
    /// And back.
    pub back: Way,
    /// This host's stack.
    pub here: Stack,
    /// The other's.
    pub other: Stack,
    /// The clocks; `None` where they are one, or nothing was answered.
    pub clocks: Option<Clocks>,
    /// How far real time there is ahead of real time here, µs, as their owners had set it.
    pub real_offset: Option<f64>,
    /// Least round trip without what the other host took, µs.
    pub min_rtt: Option<f64>,
    /// Whose stamps: here, there.
    pub stamps: (&'static str, &'static str),
    /// From first probe to last, s.
    pub seconds: f64,
    /// It was ended early.
    pub interrupted: bool,
}

impl Distribution {
    /// Of these values, ns, in the order of sending.
    fn of(ns: impl IntoIterator<Item = f64>) -> Distribution {
        let mut values: Vec<f64> = ns.into_iter().map(|ns| ns / 1e3).collect();
        let steps: f64 = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
        let jitter = steps / values.len().saturating_sub(1).max(1) as f64;
        values.sort_by(f64::total_cmp);
        Distribution { sorted: values, jitter }
    }

    /// How many values.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The value that this share does not exceed; `None` without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (self.sorted.len() as f64 * share).ceil() as usize;
        self.sorted.get(rank.clamp(1, self.sorted.len().max(1)) - 1).copied()
    }

    /// Mean and standard deviation of the lowest `share` of them.
    pub fn mean_and_deviation(&self, share: f64) -> (f64, f64) {
        let kept = &self.sorted[..(self.sorted.len() as f64 * share).ceil() as usize];
        let count = kept.len().max(1) as f64;
        let mean = kept.iter().sum::<f64>() / count;
        let squares: f64 = kept.iter().map(|value| (value - mean) * (value - mean)).sum();
        (mean, (squares / count).sqrt())
    }

    fn json(&self) -> Value {
        let of = |share| round(self.quantile(share));
        let (mean, deviation) = self.mean_and_deviation(1.0);
        json!({
            "samples": self.count(), "min_us": of(0.0), "p50_us": of(0.5), "p90_us": of(0.9), "p99_us": of(0.99), "p999_us": of(0.999),
            "max_us": of(1.0), "mean_us": round(Some(mean)), "sd_us": round(Some(deviation)), "jitter_us": round(Some(self.jitter)),
        })
    }

    fn row(&self, what: &str) -> Vec<String> {
        let shares = [0.5, 0.9, 0.99, 0.999, 1.0];
        let mut row = vec![what.to_owned(), self.count().to_string()];
        row.extend(shares.map(|share| show(self.quantile(share))));
        row.push(show((self.count() > 1).then_some(self.jitter)));
        row
    }
}

/// The nanosecond is the last digit that means anything.
fn round(us: Option<f64>) -> Value {
    us.map_or(Value::Null, |us| json!((us * 1e3).round() / 1e3))
}

fn show(us: Option<f64>) -> String {
    us.map_or_else(|| "–".to_owned(), |us| format!("{us:.1}"))
}

/// What the exchanges say.
pub fn evaluate(measured: &Measured, setup: Setup, interrupted: bool) -> Findings {
    let answered: Vec<&Exchange> = measured.exchanges.iter().filter(|e| e.is_answered()).collect();
    let drifts = !setup.one_clock;
    let point = |at: u64, from: u64, to: u64| {
        (from != 0 && to != 0).then(|| Point {
            at: at as i64,
            delay: (to as i64).wrapping_sub(from as i64),
        })
    };
    let pick =
        |take: &dyn Fn(&Exchange) -> Option<Point>| -> Vec<Point> { answered.iter().filter_map(|e| take(e)).collect() };
    // Of what both ends hold, the sender's clock counts the time, in both directions.
    let there = Points {
        kernel: pick(&|e| point(e.left, e.left, e.came)),
        user: pick(&|e| point(e.sent, e.sent, e.taken)),
    };
    let back = Points {
        kernel: pick(&|e| point(e.arrived, e.answer_left, e.arrived)),
        user: pick(&|e| point(e.read, e.made, e.read)),
    };
    let begun = measured.exchanges.first().map_or(0, |e| e.sent as i64);
    let ended = measured.exchanges.last().map_or(begun, |e| e.sent as i64);
    let tally = measured.tally;
    let (forward, line_there) = there.way(begun, drifts, (tally.lost_there(), tally.judged));
    let (backward, line_back) = back.way(begun, drifts, (tally.lost_back(), tally.replies));
    let clocks = line_there
        .zip(line_back)
        .map(|(a, b)| Clocks::of((there.best(), &a), (back.best(), &b)));
    let rtts = answered.iter().filter_map(|e| {
        let known = [e.left, e.came, e.answer_left, e.arrived].iter().all(|ns| *ns != 0);
        let way = |from: u64, to: u64| to.wrapping_sub(from) as i64 as f64;
        known.then(|| (way(e.left, e.came) + way(e.answer_left, e.arrived)) / 1e3)
    });
    let between = |take: &dyn Fn(&Exchange) -> (u64, u64)| {
        let pairs = answered.iter().map(|e| take(e)).filter(|(a, b)| *a != 0 && *b != 0);
        Distribution::of(pairs.map(|(a, b)| b as f64 - a as f64))
    };
    let whose = |stamped: bool, interface: bool| match (stamped, interface) {
        (false, _) => "user space",
        (true, false) => "kernel",
        (true, true) => "interface",
    };
    let stamped = forward.stamped && backward.stamped;
    let real = measured.real.1 as f64 - measured.real.0 as f64;
    Findings {
        stamps: (
            whose(stamped, measured.interface.0),
            whose(stamped, measured.interface.1),
        ),
        tally,
        there: forward,
        back: backward,
        here: Stack {
            send: between(&|e| (e.sent, e.left)),
            receive: between(&|e| (e.arrived, e.read)),
        },
        other: Stack {
            send: between(&|e| (e.made, e.answer_left)),
            receive: between(&|e| (e.came, e.taken)),
        },
        real_offset: clocks.map(|clocks| (clocks.offset + real) / 1e3),
        clocks: clocks.filter(|_| drifts),
        min_rtt: rtts.min_by(f64::total_cmp),
        seconds: (ended - begun) as f64 / 1e9,
        interrupted,
        setup,
    }
}

/// Of one direction.
struct Points {
    kernel: Vec<Point>,
    user: Vec<Point>,
}

impl Points {
    /// The kernel stamped most of them.
    fn stamped(&self) -> bool {
        !self.kernel.is_empty() && self.kernel.len() * 2 >= self.user.len()
    }

    fn best(&self) -> &[Point] {
        if self.stamped() { &self.kernel } else { &self.user }
    }

    fn way(&self, begun: i64, drifts: bool, lost: (u32, u32)) -> (Way, Option<Envelope>) {
        let line = Envelope::fit(self.best(), drifts);
        let queue = |points: &[Point], line: &Option<Envelope>| -> Vec<f64> {
            let above = |point: &Point| line.map_or(0.0, |line| line.above(*point).max(0.0));
            points.iter().map(above).collect()
        };
        let best = queue(self.best(), &line);
        let times = self.best().iter().map(|point| (point.at - begun) as f64 / 1e9);
        let way = Way {
            series: times.zip(best.iter().map(|ns| ns / 1e3)).collect(),
            user: Distribution::of(queue(&self.user, &Envelope::fit(&self.user, drifts))),
            queue: Distribution::of(best),
            lost,
            stamped: self.stamped(),
        };
        (way, line)
    }
}

impl Findings {
    /// What DX should take for an empty queue on this path, µs: mean plus one standard deviation of the noise, without the worst
    /// hundredth. Delays count from the least that was seen, so noise shows as a mean above zero that no averaging removes. With
    /// less than this DX gives way to its own stack. With far more, DX lets that much of a queue stand. One packet's time on the
    /// narrowest link is added. It holds where the path was idle meanwhile.
    pub fn headroom(&self) -> Option<f64> {
        let (mean, deviation) = self.there.queue.mean_and_deviation(0.99);
        (self.there.queue.count() > 0).then(|| (mean + deviation).ceil().max(1.0))
    }

    /// All of it, for scripts.
    pub fn json(&self) -> Value {
        let way = |way: &Way| {
            let mut object = way.queue.json();
            object["lost"] = json!(way.lost.0);
            object["of"] = json!(way.lost.1);
            object["user"] = way.user.json();
            object
        };
        let stack = |stack: &Stack| json!({ "send": stack.send.json(), "receive": stack.receive.json() });
        let clocks = self.clocks.map(|clocks| {
            let bounds = clocks
                .drift_bounds
                .map(|(a, b)| [round(Some(a / 1e3)), round(Some(b / 1e3))]);
            json!({
                "drift_ppm": round(Some(clocks.drift / 1e3)), "drift_error_ppm": round(Some(clocks.drift_error / 1e3)),
                "drift_bounds_ppm": bounds, "queue_error_us": round(Some(clocks.queue_error / 1e3)),
                "offset_us": round(self.real_offset), "offset_error_us": round(Some(clocks.offset_error / 1e3)),
            })
        });
        json!({
            "to": self.setup.to, "size": self.setup.size, "rate": self.setup.rate, "duration_s": (self.seconds * 1e3).round() / 1e3,
            "interrupted": self.interrupted, "stamps": { "here": self.stamps.0, "there": self.stamps.1 },
            "interface": self.setup.interface, "one_clock": self.setup.one_clock,
            "sent": self.tally.sent, "unsent": self.tally.unsent, "answered": self.tally.answered, "unanswered_at_end": self.tally.sent - self.tally.judged,
            "refused": self.tally.refused, "reordered": self.tally.reordered, "repeated": self.tally.repeated, "foreign": self.tally.foreign,
            "min_rtt_us": round(self.min_rtt), "there": way(&self.there), "back": way(&self.back),
            "stack_here": stack(&self.here), "stack_there": stack(&self.other), "clock": clocks, "headroom_us": round(self.headroom()),
        })
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = self.table().text();
        for line in self.remarks() {
            out += "\n";
            out += wrap(&line, 100).trim_end();
        }
        out + "\n"
    }

    /// The figures.
    fn table(&self) -> Table {
        let (there, back) = (&self.there, &self.back);
        let mut rows = vec![there.queue.row("queue there"), back.queue.row("queue back")];
        if there.stamped {
            rows.push(there.user.row("  there, by user space's times"));
        }
        if back.stamped {
            rows.push(back.user.row("  back, by user space's times"));
        }
        if there.stamped && back.stamped {
            rows.push(self.here.send.row("this stack, sending"));
            rows.push(self.here.receive.row("this stack, receiving"));
            rows.push(self.other.receive.row("the other's, receiving"));
            rows.push(self.other.send.row("the other's, sending"));
        }
        Table::new(HEADINGS, rows)
    }

    /// Everything that is no row.
    fn remarks(&self) -> Vec<String> {
        let tally = &self.tally;
        let mut lines = Vec::new();
        let share = |(lost, of): (u32, u32)| match of {
            0 => "none judged".to_owned(),
            of => format!("{lost} of {of} ({:.2} %)", f64::from(lost) * 100.0 / f64::from(of)),
        };
        let mut lost = format!(
            "Lost there: {}; back: {}.",
            share(self.there.lost),
            share(self.back.lost)
        );
        let others = [
            (tally.refused, "left without a reply by the responder's limit"),
            (tally.sent - tally.judged, "not answered at the end"),
            (tally.unsent, "not sent, because this host had no room or no way"),
            (tally.reordered, "overtaken"),
            (tally.repeated, "came twice"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            lost += &format!(" {count} {what}.");
        }
        lines.push(lost);
        let whose = match self.stamps {
            ("user space", _) => {
                "The kernel gave no stamps: these are user space's own times, with the noise of both stacks.".to_owned()
            }
            (here, there) if here == there => format!("Stamps: the {here}'s at both ends; {}.", self.setup.interface),
            (here, there) => format!(
                "Stamps: the {here}'s here, the {there}'s there; {}.",
                self.setup.interface
            ),
        };
        lines.push(whose);
        if let Some(rtt) = self.min_rtt {
            lines.push(format!("Least round trip between the stamps: {rtt:.1} µs."));
        }
        match (&self.clocks, self.setup.one_clock) {
            (Some(clocks), _) => lines.push(format!(
                "The clock there drifts by {:+.3} ± {:.3} ppm against this one{}; real time there is {:+.1} ± {:.1} µs ahead. For the drift a \
                 queueing delay may be off by {:.1} µs.",
                clocks.drift / 1e3,
                clocks.drift_error / 1e3,
                clocks.drift_bounds.map_or(String::new(), |(a, b)| format!(" (surely {:+.1} to {:+.1})", a / 1e3, b / 1e3)),
                self.real_offset.unwrap_or_default(),
                clocks.offset_error / 1e3,
                clocks.queue_error / 1e3,
            )),
            (None, true) => lines.push("Both ends have one clock: nothing drifts.".to_owned()),
            (None, false) => {}
        }
        if let Some(headroom) = self.headroom() {
            lines.push(format!(
                "Headroom for DX on this path, if it was idle meanwhile: {headroom} µs, and one packet's time on the narrowest link \
                 (--alg dx:headroom=…)."
            ));
        }
        lines
    }
}

const HEADINGS: [&str; 8] = ["µs", "packets", "median", "p90", "p99", "p99.9", "max", "jitter"];

#[cfg(test)]
mod tests {
    use ccplane_report::Provenance;

    use super::*;

    fn setup(one_clock: bool) -> Setup {
        Setup {
            to: "192.0.2.1:4791".into(),
            size: 128,
            rate: 1000.0,
            one_clock,
            interface: "the interface stamps nothing".into(),
            command: "ccplane measure 192.0.2.1".into(),
        }
    }

    /// Probes every millisecond over 50 µs each way, of which the n-th waits n % 10 times 100 µs there, and 7 µs back every
    /// third time; the clock there is 5 s ahead and 20 ppm fast. Stacks add 2 and 3 µs, and 500 each hundredth time.
    fn measured(count: u64, stamped: bool) -> Measured {
        let there = |t: u64| t + 5_000_000_000 + t / 50_000;
        let exchanges = (0..count).map(|n| {
            let late = if n % 100 == 9 { 500_000 } else { 0 };
            let left = 1_000_000_000 + n * 1_000_000;
            let came = left + 50_000 + n % 10 * 100_000;
            let answer_left = came + 9_000;
            let arrived = answer_left + 50_000 + if n % 3 == 0 { 7_000 } else { 0 };
            let kernel = |ns: u64| if stamped { ns } else { 0 };
            Exchange {
                sent: left - 2_000 - late,
                left: kernel(left),
                came: kernel(there(came)),
                taken: there(came + 3_000),
                made: there(came + 4_000),
                answer_left: kernel(there(answer_left)),
                arrived: kernel(arrived),
                read: arrived + 3_000,
            }
        });
        let tally = Tally {
            sent: count as u32 + 5,
            judged: count as u32,
            received: count as u32,
            replies: count as u32,
            answered: count as u32,
            ..Tally::default()
        };
        Measured {
            exchanges: exchanges.collect(),
            tally,
            real: (100, -4_999_000_000 + 100),
            interface: (false, false),
            error_ns: 30,
        }
    }

    /// Whatever a responder says of its times, there are findings, in text and as JSON: one extreme after the other, so that
    /// delays lie as far apart as they can, each way and beside those of honest exchanges.
    #[test]
    fn any_times_of_the_other_end_are_taken() {
        const EXTREMES: [u64; 5] = [1, i64::MAX as u64, 1 << 63, (1 << 63) + (1 << 40), u64::MAX];
        for (one, honest) in (0..EXTREMES.len()).flat_map(|one| [(one, 3), (one, usize::MAX)]) {
            let mut measured = measured(50, true);
            measured.real.1 = EXTREMES[one] as i64;
            for (number, exchange) in measured.exchanges.iter_mut().enumerate() {
                if number % honest == 2 {
                    continue;
                }
                let extreme = EXTREMES[(one + number) % EXTREMES.len()];
                let other = EXTREMES[(one + number / EXTREMES.len()) % EXTREMES.len()];
                (exchange.came, exchange.answer_left) = (extreme, other);
                (exchange.taken, exchange.made) = (extreme, other);
            }
            for one_clock in [true, false] {
                let found = evaluate(&measured, setup(one_clock), false);
                assert!(found.text().contains("queue there") && found.json().is_object());
            }
        }
    }

    #[test]
    fn queues_clocks_and_stacks_are_told_apart() {
        let found = evaluate(&measured(5_000, true), setup(false), false);
        let queue = &found.there.queue;
        for (share, us) in [(0.5, 400.0), (0.9, 800.0), (1.0, 900.0)] {
            assert!(
                (queue.quantile(share).unwrap() - us).abs() < 0.1,
                "{share}: {:?}",
                queue.quantile(share)
            );
        }
        assert!((queue.jitter - 180.0).abs() < 1.0, "{}", queue.jitter);
        assert!((found.back.queue.quantile(0.5).unwrap()).abs() < 0.1);
        assert!((found.back.queue.quantile(0.9).unwrap() - 7.0).abs() < 0.1);
        // User space adds its own noise there, which the kernel's stamps do not have.
        assert!((found.there.user.quantile(1.0).unwrap() - 1_400.0).abs() < 101.0);
        assert!((found.here.send.quantile(0.5).unwrap() - 2.0).abs() < 0.01);
        assert!((found.here.send.quantile(1.0).unwrap() - 502.0).abs() < 0.01);
        assert!((found.other.receive.quantile(0.5).unwrap() - 3.0).abs() < 0.01);
        let clocks = found.clocks.unwrap();
        assert!((clocks.drift - 20_000.0).abs() < 1.0 + clocks.drift_error, "{clocks:?}");
        // 5 s ahead by clocks of which one began 4.999 s after the other; half way 20 ppm have made 70 µs.
        let real = found.real_offset.unwrap();
        assert!((real - 1_070.0).abs() < 2.0, "{real}");
        assert!((found.min_rtt.unwrap() - 100.0).abs() < 0.1);
        assert_eq!(found.there.lost, (0, 5_000));
        assert_eq!(found.json()["unanswered_at_end"], 5);
    }

    #[test]
    fn without_stamps_user_space_serves_and_is_named() {
        let found = evaluate(&measured(300, false), setup(true), true);
        assert_eq!(found.stamps.0, "user space");
        assert!(found.clocks.is_none() && found.there.queue.count() == 300 && found.here.send.count() == 0);
        assert!(found.text().contains("The kernel gave no stamps"), "{}", found.text());
        let nothing = Measured {
            exchanges: vec![Exchange::default(); 3],
            tally: Tally::default(),
            ..measured(0, true)
        };
        let found = evaluate(&nothing, setup(false), false);
        assert_eq!((found.headroom(), found.clocks, found.min_rtt), (None, None, None));
        assert!(found.json()["there"]["p50_us"].is_null());
        assert!(page(&found, &Provenance::default()).contains("<svg"));
        assert!(!found.text().is_empty());
    }

    #[test]
    fn the_table_reads_as_it_did() {
        let found = evaluate(&measured(1_000, true), setup(false), false);
        insta::assert_snapshot!(found.text());
    }
}
