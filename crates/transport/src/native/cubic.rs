//! Cubic: RFC 9438, with fast convergence and the Reno-friendly region, whose slope stays α_cubic,
//! as Linux has it (section 4.3 makes it 1 from the window before the loss on).
//!
//! The law is worked out once for every change of the window, or 32 times a second, and gives how
//! many packets acknowledged grow the window by one (`every`, Linux' `cnt`); an ACK only counts.
//! The cube root is taken once for a stage.

use ccplane_datapath::Outcome;
use ccplane_units::{Duration, Time};

use super::hystart::HyStart;
use super::{Growth, in_slow_start, threshold, window};
use crate::control::{Control, Event};

/// C, segments/s³ (RFC 9438, 5.1). Larger probes sooner after a loss and is less fair to Reno.
const C: f64 = 0.4;
/// β_cubic (RFC 9438, 4.6): what is kept at a loss.
const BETA: f64 = 0.7;
/// α_cubic (RFC 9438, 4.3, equation 4): growth of the Reno-friendly estimate that, with β_cubic,
/// has Reno's mean window.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Most that the window grows in an RTT (RFC 9438, 4.2: target is at most 1.5 cwnd).
const MOST_GROWTH: f64 = 0.5;
/// Linux, while no loss has shown the capacity: `cnt` at most 20.
const EVERY_BEFORE_LOSS: u32 = 20;
/// Longest time for which the law's last answer holds: Linux' HZ/32. Shorter costs time, longer
/// lets the window lag behind.
const UPDATE: Duration = Duration::from_nanos(1_000_000_000 / 32);

/// Cubic.
#[derive(Clone, Debug)]
pub struct Cubic {
    growth: Growth,
    /// Packets acknowledged for each that the window grows by.
    every: u32,
    /// Packets acknowledged since the law was last worked out.
    acked: u32,
    /// The window then.
    known: u32,
    /// When it is to be worked out again, at the latest.
    update_at: Time,
    /// The last ACK, to know how long the application limited sending.
    last: Time,
    now: Memory,
    /// As it was before the last reduction, in case that was spurious (RFC 9438, 4.9).
    before: Option<Box<Memory>>,
    /// While it looks for the end of slow start.
    hystart: Option<Box<HyStart>>,
    uses_hystart: bool,
}

/// Windows in packets.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// W_max; 0 when no loss has shown one.
    w_max: f64,
    /// When the stage began; `Time::ZERO` when none has. It moves on while the application limits
    /// sending (5.8).
    start: Time,
    /// The plateau: W_max, or the window at the start where it was above that already.
    origin: f64,
    /// When the plateau is reached, seconds from the start.
    k: f64,
    /// W_est: the window that Reno would have.
    friendly: f64,
}

impl Memory {
    /// Equation 2: K is the time that the cubic needs from the window at the start to the plateau.
    fn begin(&mut self, now: Time, packets: f64) {
        self.start = now.max(Time::from_nanos(1));
        self.origin = self.w_max.max(packets);
        self.k = libm::cbrt((self.origin - packets) * (1.0 / C));
        self.friendly = packets;
    }

    /// Equation 1.
    fn w_cubic(&self, t: f64) -> f64 {
        let x = t - self.k;
        C * x * x * x + self.origin
    }
}

impl Cubic {
    /// Cubic, with Linux' HyStart or without.
    pub fn new(hystart: bool) -> Cubic {
        Cubic {
            growth: Growth::default(),
            every: 1,
            acked: 0,
            known: 0,
            update_at: Time::ZERO,
            last: Time::ZERO,
            now: Memory::default(),
            before: None,
            hystart: None,
            uses_hystart: hystart,
        }
    }

    #[cold]
    #[inline(never)]
    fn reduce(&mut self, window: u32, timeout: bool) -> u64 {
        let before = f64::from(window);
        match &mut self.before {
            Some(memory) => **memory = self.now,
            None => self.before = Some(Box::new(self.now)),
        }
        // 4.7, fast convergence: a window that was smaller than the last plateau gives way to new
        // flows.
        let w_max = match before < self.now.w_max {
            true => before * (1.0 + BETA) / 2.0,
            false => before,
        };
        self.now = Memory {
            // 4.8: after a timeout the plateau is where the next stage begins.
            w_max: if timeout { 0.0 } else { w_max },
            ..Memory::default()
        };
        self.hystart = None;
        self.growth.reset();
        self.forget();
        (before * BETA) as u64
    }

    /// What the law said does not hold any more.
    fn forget(&mut self) {
        self.known = 0;
        self.acked = 0;
    }

    /// A repeated timeout, or an undo.
    #[cold]
    fn revise(&mut self, timeout: bool, undone: bool) {
        if timeout {
            self.now.w_max = 0.0;
            self.now.start = Time::ZERO;
        }
        if undone && let Some(before) = self.before.as_deref() {
            self.now = *before;
        }
        self.forget();
    }

    /// The law: `every`, from the time since the stage began.
    #[inline(never)]
    fn work_out(&mut self, now: Time, srtt: Duration, packets: u32) {
        let window = f64::from(packets);
        let memory = &mut self.now;
        if memory.start == Time::ZERO {
            memory.begin(now, window);
        }
        memory.friendly += ALPHA * f64::from(self.acked) / window;

        let t = seconds(now.since(memory.start));
        let target = if memory.w_cubic(t) < memory.friendly {
            // Where the estimate is not ahead, the window follows its slope.
            memory.friendly.max(window + ALPHA)
        } else {
            memory.w_cubic(t + seconds(srtt))
        };
        let growth = (target - window).min(MOST_GROWTH * window);
        // Linux: below the target a hundredth of a packet an RTT.
        let every = if growth > 0.01 {
            window / growth
        } else {
            window * 100.0
        };
        self.every = (every as u32).max(2);
        if memory.w_max == 0.0 {
            self.every = self.every.min(EVERY_BEFORE_LOSS);
        }
        self.acked = 0;
        self.known = packets;
        self.update_at = now + UPDATE;
    }
}

impl Control for Cubic {
    #[inline(always)]
    fn on_event(&mut self, event: &Event<'_>) -> Outcome {
        if event.ack.reduces {
            let connection = event.connection();
            return threshold(event, self.reduce(connection.window(), event.ack.timeout));
        }
        if event.ack.timeout | event.ack.undone {
            self.revise(event.ack.timeout, event.ack.undone);
        }
        let idle = event.now.since(self.last);
        self.last = event.now;
        if !Growth::allowed(event) {
            if self.now.start != Time::ZERO && event.ack.bytes > 0 {
                self.now.start += idle; // 5.8
            }
            return Outcome::default();
        }
        let connection = event.connection();
        let (mut packets, mut acked) = (connection.window(), event.ack.delivered());
        if in_slow_start(event) {
            if self.uses_hystart
                && self.hystart.get_or_insert_default().is_over(
                    connection,
                    event.now,
                    event.ack.rtt,
                )
            {
                self.hystart = None;
                return threshold(event, u64::from(packets));
            }
            (packets, acked) = Growth::slow_start(event);
            if acked == 0 {
                return window(event, packets);
            }
        }
        self.acked += acked;
        if packets != self.known || event.now >= self.update_at {
            self.work_out(event.now, connection.srtt(), packets);
        }
        window(event, self.growth.avoid(packets, self.every, acked))
    }
}

/// Exactly rounded products only, so that every machine has the same.
fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 * 1e-9
}
