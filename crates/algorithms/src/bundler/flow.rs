//! State of a bundle: measurements from the reports, and the rate of the delay mode.

use ccplane_agent::rng::SplitMix64;
use ccplane_units::Time;

use super::cross_traffic::CrossTrafficSigns;
use super::delay_law::{self, BundleLaw};
use super::election::{Election, Role};
use super::pass_through::PassThrough;
use super::path_estimate::{self, PathEstimate};
use super::{Bundler, Pulses};
use crate::nimbus::{
    CapacityEstimate, DelayInputs, DelayMode, Detector, ModeSwitch, NimbusMode, PULSE_SIZE, Pulse,
    SAMPLE_INTERVAL, Sample, WINDOW_SAMPLES,
};
use crate::rules::Rules;

/// Time without an acknowledged byte after which the RTT is outdated, seconds; at least two RTTs.
const RTT_EXPIRY_SECONDS: f64 = 0.25;
/// Cutoff of a watcher's low-pass filter. Not in the reference. Without it, the pulse, which
/// modulates the RTT, would reappear in the watcher's rate and look like elastic traffic. Two of
/// these filters in series pass 0.3 of 6 Hz and 0.4 of 5 Hz. A lower cutoff delays the control law.
const LOW_PASS_HZ: f64 = 4.0;
/// Averaging time of R for the capacity, as a multiple of the RTT noise: R over 100 ms is off by
/// the noise at either end, 6 % at 48 Mbit/s and ±20 ms. With less, the maximum over 30 s is too
/// large, which looks like cross traffic. With more, an increase of the capacity is recognized
/// later.
const CAPACITY_AVERAGING_NOISES: f64 = 60.0;
/// Age in intervals of the receive rate from which traffic-passing mode starts: before the new
/// cross traffic could show in the spectrum (reference: 5 s).
pub(super) const PASSING_RATE_AGE_SAMPLES: usize = 500;

/// State of a bundle: 6 KiB of samples and less than 1 KiB of other state.
pub struct BundlerFlow {
    pub(super) mss: f64,
    /// A transport's own flow, with loss recovery and without a gateway's queue.
    pub(super) is_transport_flow: bool,
    pub(super) last_report: Time,
    /// Time of the next sample.
    next_sample: Time,
    pub(super) unread_samples: u32,
    /// Time of the last delivery.
    pub(super) last_delivery: Time,
    pub(super) is_unlimited: bool,
    /// Pulses are disabled, so neither the cross traffic nor µ can be measured with them.
    pulses_disabled: bool,
    pub(super) path: PathEstimate,
    pub(super) detector: Detector,
    pub(super) capacity: CapacityEstimate,
    /// Configured µ, bytes/s; `None` if it is measured.
    pub(super) configured_capacity: Option<f64>,
    /// A pulse has shown µ since the limit began; time spent on it, seconds.
    pub(super) is_capacity_known: bool,
    pub(super) probe_seconds: f64,
    pub(super) cross_traffic: CrossTrafficSigns,
    pub(super) pass_through: PassThrough,
    /// Nimbus' decision by η, with the paper's rules.
    pub(super) eta_switch: Option<ModeSwitch>,
    pub(super) election: Election,
    law: BundleLaw,
    /// Rate of the delay mode without the pulse, bytes/s.
    rate: f64,
    /// Low-pass filters of a watcher, bytes/s.
    smooth: [f64; 2],
    /// R averaged over [`CAPACITY_AVERAGING_NOISES`], bytes/s.
    received: f64,
    /// Phase of the pulse, in periods.
    phase: f64,
    /// Initial rate of traffic-passing mode, bytes/s.
    pub(super) initial_rate: f64,
}

/// Report, in seconds and bytes.
pub(super) struct Tick {
    pub(super) now: Time,
    pub(super) elapsed: f64,
    pub(super) acked: f64,
    pub(super) lost: f64,
    pub(super) sent: f64,
    pub(super) received: f64,
    pub(super) rtt: f64,
    pub(super) limited: bool,
}

impl BundlerFlow {
    /// Creates a bundle without a limit or measurements.
    pub(super) fn new(
        now: Time,
        mss: f64,
        own: bool,
        election: Election,
        law: DelayMode,
    ) -> BundlerFlow {
        BundlerFlow {
            mss,
            is_transport_flow: own,
            last_report: now,
            next_sample: now,
            unread_samples: 0,
            last_delivery: now,
            is_unlimited: true,
            pulses_disabled: false,
            path: PathEstimate::default(),
            detector: Detector::new(),
            capacity: CapacityEstimate::default(),
            configured_capacity: None,
            is_capacity_known: false,
            probe_seconds: 0.0,
            cross_traffic: CrossTrafficSigns::new(now),
            pass_through: PassThrough::new(NimbusMode::Delay),
            eta_switch: None,
            election,
            law: BundleLaw::starting_at(law, 0.0, 1.0, 1.0),
            rate: 0.0,
            smooth: [0.0; 2],
            received: 0.0,
            phase: 0.0,
            initial_rate: 0.0,
        }
    }

    pub(super) fn capacity(&self, tick: &Tick) -> f64 {
        let capacity = self
            .configured_capacity
            .unwrap_or_else(|| self.capacity.get());
        capacity.max(self.mss / tick.rtt)
    }

    /// ẑ = µ·S/R − S, bytes/s.
    fn cross(&self, tick: &Tick, capacity: f64) -> f64 {
        capacity * tick.sent / tick.received - tick.sent
    }

    /// Returns true if nothing has been delivered recently, so that the RTT is outdated.
    pub(super) fn idle(&self, tick: &Tick) -> bool {
        tick.now.since(self.last_delivery).as_secs_f64() > RTT_EXPIRY_SECONDS.max(2.0 * tick.rtt)
    }

    /// Returns the queue in the network, seconds; 0 when idle.
    fn queueing(&self, tick: &Tick) -> f64 {
        if self.idle(tick) {
            0.0
        } else {
            (tick.rtt - self.path.base()).max(0.0)
        }
    }

    /// Starts a limit: there is a queue to move.
    pub(super) fn begin(&mut self, tick: &Tick, algorithm: &Bundler, dice: SplitMix64) {
        self.is_unlimited = false;
        self.pulses_disabled =
            self.is_transport_flow || !algorithm.switching || algorithm.pulses == Pulses::Off;
        self.rate = tick.received;
        self.smooth = [self.rate; 2];
        self.law =
            BundleLaw::starting_at(algorithm.delay_mode, self.rate, tick.rtt, self.path.base());
        self.is_capacity_known = self.configured_capacity.is_some();
        self.probe_seconds = 0.0;
        self.cross_traffic = CrossTrafficSigns::new(tick.now);
        self.election = Election::new(
            tick.now,
            dice,
            algorithm.election && !self.is_transport_flow,
        );
        let mode = if self.is_transport_flow {
            NimbusMode::Delay
        } else {
            algorithm.initial_mode
        };
        self.pass_through = PassThrough::new(mode);
        self.eta_switch = match algorithm.rules {
            Rules::Paper => {
                let mut switch = ModeSwitch::new(tick.now);
                switch.set_mode(tick.now, mode);
                Some(switch)
            }
            Rules::Extended => None,
        };
        self.initial_rate = tick.received;
    }

    /// Ends the limit: no mode applies, and the bundle does not pulse.
    pub(super) fn end(&mut self, now: Time) {
        self.is_unlimited = true;
        self.pass_through = PassThrough::new(NimbusMode::Delay);
        self.election.become_watcher(now);
    }

    /// Switches the mode.
    pub(super) fn switch_mode(&mut self, tick: &Tick, next: NimbusMode, law: DelayMode) {
        self.pass_through = PassThrough::new(next);
        if let Some(switch) = &mut self.eta_switch {
            switch.set_mode(tick.now, next);
        }
        self.election.retune(tick.now);
        match next {
            NimbusMode::Competitive => {
                self.initial_rate = f64::from(self.detector.sample_ago(PASSING_RATE_AGE_SAMPLES).r)
            }
            NimbusMode::Delay => {
                self.rate = tick.received;
                self.smooth = [self.rate; 2];
                self.law = BundleLaw::starting_at(law, self.rate, tick.rtt, self.path.base());
            }
        }
    }

    /// Stores the samples of this tick.
    pub(super) fn store_samples(&mut self, tick: &Tick) {
        let queueing = self.queueing(tick);
        let sample = Sample {
            s: tick.sent as f32,
            r: tick.received as f32,
            queueing: queueing as f32,
        };
        // After a long gap, the old samples are outdated.
        if tick.now.since(self.next_sample) > SAMPLE_INTERVAL * (WINDOW_SAMPLES as u64 / 4) {
            self.detector.clear();
            self.next_sample = tick.now;
        }
        // The capacity estimate expires only when R can reveal a lower capacity. Next to cross
        // traffic R is only a share. Without a pulse, however, cross traffic cannot be
        // distinguished from an excessive µ, which would then persist, so the estimate expires
        // regardless. Without a limit, R is the site's rate, and the estimate follows it. While the
        // site sends less than its limit, R is too low, and the estimate does not expire.
        let delays = self.pass_through.mode() == NimbusMode::Delay
            && !self.cross_traffic.has_cross_traffic();
        let ages = self.is_unlimited || (!tick.limited && (self.pulses_disabled || delays));
        let interval = SAMPLE_INTERVAL.as_secs_f64();
        let gain = interval / (interval + CAPACITY_AVERAGING_NOISES * self.path.noise());
        // `Time::MAX` has no next sample.
        while self.next_sample <= tick.now && self.next_sample < Time::MAX {
            self.next_sample += SAMPLE_INTERVAL;
            self.detector.push(sample);
            self.received += gain * (f64::from(sample.r) - self.received);
            self.capacity.push(tick.now, self.received, ages);
            self.unread_samples += 1;
        }
        let capacity = self.capacity(tick);
        let (cross, aim) = (
            self.cross(tick, capacity) / capacity,
            self.max_queue_target(capacity),
        );
        self.cross_traffic
            .update(tick.now, tick.elapsed, (cross, tick.rtt), queueing, aim);
    }

    /// Returns true without cross traffic, when no pulse needs a queue and Copa works with a
    /// shorter one. BasicDelay does not: in the tests' model, 3 ms cost it 2 % of the link. A
    /// transport's own flow keeps the regular target.
    fn is_alone(&self, now: Time) -> bool {
        let short = matches!(self.law, BundleLaw::Copa(_)) && !self.is_transport_flow;
        short && self.election.role() == Role::Watcher && !self.cross_traffic.needs_pulses(now)
    }

    /// Returns the current target queue, seconds.
    pub(super) fn queue_target(&self, now: Time, capacity: f64) -> f64 {
        let base = self.path.base();
        self.law.queue_target(
            base,
            BundleLaw::bounds(capacity, self.mss, base, self.is_alone(now)),
        )
    }

    /// Returns the maximum target queue, which defines an excessive queue, seconds.
    fn max_queue_target(&self, capacity: f64) -> f64 {
        let base = self.path.base();
        self.law
            .queue_target(base, BundleLaw::bounds(capacity, self.mss, base, false))
    }

    /// Computes the rate of the delay mode, bytes/s.
    pub(super) fn delay_mode_rate(&mut self, tick: &Tick, capacity: f64) -> f64 {
        if self.path.is_draining() {
            return (path_estimate::DRAIN_RATE_FACTOR * self.rate).max(delay_law::floor(capacity));
        }
        let seen = DelayInputs {
            s: tick.sent,
            z: self.cross(tick, capacity),
            mu: capacity,
            rtt: tick.rtt,
            base_rtt: self.path.base(),
            acked: tick.acked,
            mss: self.mss,
            target_bounds: BundleLaw::bounds(
                capacity,
                self.mss,
                self.path.base(),
                self.is_alone(tick.now),
            ),
        };
        let lost = tick.lost * self.mss;
        self.rate = self
            .law
            .rate(&seen, tick.elapsed, lost, tick.limited, self.rate);
        if self.pass_through.mode() == NimbusMode::Delay && self.eta_switch.is_none() {
            self.keep_rate_share(tick, capacity);
        }
        // Step of a first-order low-pass filter: x/(1 + x) for x = 2πf·t.
        let step = std::f64::consts::TAU * LOW_PASS_HZ * tick.elapsed;
        let gain = step / (1.0 + step);
        self.smooth[0] += gain * (self.rate - self.smooth[0]);
        self.smooth[1] += gain * (self.smooth[0] - self.smooth[1]);
        if self.election.follows_pulse() {
            self.smooth[1]
        } else {
            self.rate
        }
    }

    /// Keeps a part of the rate next to cross traffic until its elasticity is known.
    fn keep_rate_share(&mut self, tick: &Tick, capacity: f64) {
        let hinders = !self.pulses_disabled && self.cross_traffic.needs_pulses(tick.now);
        let least = match hinders {
            true => PassThrough::rate_to_keep(
                f64::from(self.detector.sample_ago(PASSING_RATE_AGE_SAMPLES).r),
                capacity,
            ),
            false => 0.0,
        };
        let wants_less = self.rate < least;
        if wants_less {
            self.rate = least;
            self.law.raise_to(least, tick.rtt);
        }
        let queue = if hinders { self.queueing(tick) } else { 0.0 };
        self.pass_through
            .update(tick.now, queue, self.max_queue_target(capacity), wants_less);
    }

    /// Returns the pulse to add to the rate, bytes/s.
    pub(super) fn pulse(&mut self, tick: &Tick, capacity: f64) -> f64 {
        if self.election.role() == Role::Watcher {
            self.phase = 0.0;
            return 0.0;
        }
        self.probe_seconds += tick.elapsed;
        self.phase += tick.elapsed * self.election.frequency(self.pass_through.mode());
        PULSE_SIZE * capacity * Pulse::at(self.phase)
    }
}
