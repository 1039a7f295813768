//! Cubic: RFC 9438, with fast convergence and the Reno-friendly region. The slope of the
//! Reno-friendly estimate stays α_cubic, as in Linux (section 4.3 raises it to 1 once the estimate
//! exceeds the window before the loss).
//!
//! The cubic function is evaluated when the window changes, and at least 32 times a second. It
//! yields `every`, the number of acknowledged packets per increase of the window by one (Linux's
//! `cnt`); other ACKs only count. The cube root is computed once per congestion-avoidance stage.

use ccplane_datapath::Outcome;
use ccplane_units::{Duration, Time};

use super::hystart::HyStart;
use super::{Growth, in_slow_start, threshold_outcome, window_outcome};
use crate::control::{CongestionControl, ControlEvent};

/// C, segments/s³ (RFC 9438 section 5.1). A larger value probes sooner after a loss and is less
/// fair to Reno.
const SCALING_FACTOR: f64 = 0.4;
/// β_cubic (RFC 9438 section 4.6): fraction of the window that remains after a loss.
const BETA: f64 = 0.7;
/// α_cubic (RFC 9438 section 4.3, equation 4): growth of the Reno-friendly estimate. With β_cubic
/// it gives Reno's mean window.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Maximum growth per RTT as a fraction of the window (RFC 9438 section 4.2: target ≤ 1.5 cwnd).
const RTT_GROWTH_MAX: f64 = 0.5;
/// Maximum `cnt` before the first loss, as in Linux.
const CNT_BEFORE_LOSS_MAX: u32 = 20;
/// Maximum interval between evaluations of the cubic function: Linux's HZ/32. A shorter one costs
/// CPU time; a longer one lets the window lag behind.
const UPDATE_INTERVAL_MAX: Duration = Duration::from_nanos(1_000_000_000 / 32);

/// Cubic congestion control.
#[derive(Clone, Debug)]
pub struct Cubic {
    growth: Growth,
    /// Acknowledged packets per increase of the window by one.
    cnt: u32,
    /// Packets acknowledged since the last evaluation.
    acked: u32,
    /// Window at the last evaluation, packets.
    last_cwnd: u32,
    /// Time of the next evaluation at the latest.
    next_update: Time,
    /// Time of the last ACK, which gives the length of an application-limited period.
    last_ack: Time,
    epoch: CubicEpoch,
    /// State before the last reduction, in case it was spurious (RFC 9438 section 4.9).
    prior_epoch: Option<Box<CubicEpoch>>,
    /// Present while slow start may still end by HyStart.
    hystart: Option<Box<HyStart>>,
    uses_hystart: bool,
}

/// State that a spurious reduction restores. Windows are in packets.
#[derive(Clone, Copy, Debug, Default)]
struct CubicEpoch {
    /// W_max; 0 before the first loss.
    w_max: f64,
    /// Start of the stage; `Time::ZERO` if none has started. It is postponed while the application
    /// limits sending (section 5.8).
    start: Time,
    /// The plateau: W_max, or the window at the start of the stage if that was larger.
    origin_point: f64,
    /// K: time from the start of the stage to the plateau, seconds.
    k: f64,
    /// W_est: the window that Reno would have.
    w_est: f64,
}

impl CubicEpoch {
    /// Starts a stage. Equation 2: K is the time that the cubic needs to grow from the window at
    /// the start to the plateau.
    fn start_epoch(&mut self, now: Time, packets: f64) {
        self.start = now.max(Time::from_nanos(1));
        self.origin_point = self.w_max.max(packets);
        self.k = libm::cbrt((self.origin_point - packets) * (1.0 / SCALING_FACTOR));
        self.w_est = packets;
    }

    /// Equation 1.
    fn w_cubic(&self, t: f64) -> f64 {
        let x = t - self.k;
        SCALING_FACTOR * x * x * x + self.origin_point
    }
}

impl Cubic {
    /// Creates Cubic with or without Linux's HyStart.
    pub fn new(hystart: bool) -> Cubic {
        Cubic {
            growth: Growth::default(),
            cnt: 1,
            acked: 0,
            last_cwnd: 0,
            next_update: Time::ZERO,
            last_ack: Time::ZERO,
            epoch: CubicEpoch::default(),
            prior_epoch: None,
            hystart: None,
            uses_hystart: hystart,
        }
    }

    #[cold]
    #[inline(never)]
    fn reduce(&mut self, window: u32, timeout: bool) -> u64 {
        let before = f64::from(window);
        match &mut self.prior_epoch {
            Some(memory) => **memory = self.epoch,
            None => self.prior_epoch = Some(Box::new(self.epoch)),
        }
        // Section 4.7, fast convergence: a window below the last plateau releases bandwidth to new
        // flows.
        let w_max = match before < self.epoch.w_max {
            true => before * (1.0 + BETA) / 2.0,
            false => before,
        };
        self.epoch = CubicEpoch {
            // Section 4.8: after a timeout the plateau is the window at which the next stage
            // starts.
            w_max: if timeout { 0.0 } else { w_max },
            ..CubicEpoch::default()
        };
        self.hystart = None;
        self.growth.reset();
        self.invalidate_cnt();
        (before * BETA) as u64
    }

    /// Forces an evaluation at the next ACK.
    fn invalidate_cnt(&mut self) {
        self.last_cwnd = 0;
        self.acked = 0;
    }

    /// Updates the state after a repeated timeout or an undo.
    #[cold]
    fn on_timeout_or_undo(&mut self, timeout: bool, undone: bool) {
        if timeout {
            self.epoch.w_max = 0.0;
            self.epoch.start = Time::ZERO;
        }
        if undone && let Some(before) = self.prior_epoch.as_deref() {
            self.epoch = *before;
        }
        self.invalidate_cnt();
    }

    /// Evaluates the cubic function: sets `every` from the time since the start of the stage.
    #[inline(never)]
    fn update_cnt(&mut self, now: Time, srtt: Duration, packets: u32) {
        let window = f64::from(packets);
        let memory = &mut self.epoch;
        if memory.start == Time::ZERO {
            memory.start_epoch(now, window);
        }
        memory.w_est += ALPHA * f64::from(self.acked) / window;

        let t = seconds(now.since(memory.start));
        let target = if memory.w_cubic(t) < memory.w_est {
            // The estimate is not ahead of the window: the window follows its slope.
            memory.w_est.max(window + ALPHA)
        } else {
            memory.w_cubic(t + seconds(srtt))
        };
        let growth = (target - window).min(RTT_GROWTH_MAX * window);
        // Linux: below the target the window grows by a hundredth of a packet per RTT.
        let every = if growth > 0.01 {
            window / growth
        } else {
            window * 100.0
        };
        self.cnt = (every as u32).max(2);
        if memory.w_max == 0.0 {
            self.cnt = self.cnt.min(CNT_BEFORE_LOSS_MAX);
        }
        self.acked = 0;
        self.last_cwnd = packets;
        self.next_update = now + UPDATE_INTERVAL_MAX;
    }
}

impl CongestionControl for Cubic {
    #[inline(always)]
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        if event.ack.starts_reduction {
            let connection = event.connection();
            return threshold_outcome(event, self.reduce(connection.window(), event.ack.timeout));
        }
        if event.ack.timeout | event.ack.undone {
            self.on_timeout_or_undo(event.ack.timeout, event.ack.undone);
        }
        let idle = event.now.since(self.last_ack);
        self.last_ack = event.now;
        if !Growth::can_grow(event) {
            if self.epoch.start != Time::ZERO && event.ack.bytes > 0 {
                self.epoch.start += idle; // section 5.8
            }
            return Outcome::default();
        }
        let connection = event.connection();
        let (mut packets, mut acked) = (connection.window(), event.ack.delivered());
        if in_slow_start(event) {
            if self.uses_hystart
                && self.hystart.get_or_insert_default().should_exit_slow_start(
                    connection,
                    event.now,
                    event.ack.rtt,
                )
            {
                self.hystart = None;
                return threshold_outcome(event, u64::from(packets));
            }
            (packets, acked) = Growth::slow_start(event);
            if acked == 0 {
                return window_outcome(event, packets);
            }
        }
        self.acked += acked;
        if packets != self.last_cwnd || event.now >= self.next_update {
            self.update_cnt(event.now, connection.srtt(), packets);
        }
        window_outcome(
            event,
            self.growth.congestion_avoidance(packets, self.cnt, acked),
        )
    }
}

/// Uses only correctly rounded products, so that the result is the same on every machine.
fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 * 1e-9
}
