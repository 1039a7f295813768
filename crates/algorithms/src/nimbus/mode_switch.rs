//! Switch between delay control and competitive mode: smoothed η with hysteresis. Constants are the
//! reference's (ccp-project/nimbus, branch queue-control). The paper has a single threshold of 2.

use ccplane_units::{Duration, Time};

use super::elasticity::Reading;

/// η above which cross traffic is elastic.
const ELASTIC_ETA_MIN: f64 = 2.25;
/// η below which cross traffic is inelastic. The gap prevents noise from toggling the mode.
const INELASTIC_ETA_MAX: f64 = 2.0;
/// Minimum time in competitive mode. The pulse frequency changes with the mode, and the 5 s window
/// must fill with the new one before its spectrum is valid.
const COMPETITIVE_TIME_MIN: Duration = Duration::from_secs(5);
/// Minimum age before the first switch: until then the window includes slow start. (The reference
/// waits 15 s, of which 5 s for its fixed rate.)
const INITIAL_SWITCH_DELAY: Duration = Duration::from_secs(10);
/// Gain of the moving average of η per sample interval: a time constant of one second.
const ETA_GAIN: f64 = 0.01;
/// Cross traffic below this fraction of the capacity is treated as absent.
const CROSS_ABSENT: f64 = 0.1;
/// Cross traffic above this fraction means that the flow is starved, as if by elastic traffic ...
const CROSS_DOMINANT: f64 = 0.9;
/// ... with this η.
const CROSS_DOMINANT_ETA: f64 = 6.0;
/// Fraction of 5 s with a queue below which no other flow fills the queue, regardless of ẑ. Not in
/// the reference, which continues to compete with traffic that has ended until its own window fills
/// the link.
const QUEUE_TIME_SHARE_MIN: f64 = 0.1;
/// Readings with a queue in less than this fraction of the last half second do not count: after an
/// increase of the capacity, ẑ is large until the rate has grown.
const RECENT_QUEUE_SHARE_MIN: f64 = 0.5;
/// η assumed while the receive rate does not show the pulse: traffic that strong is best treated as
/// elastic.
const UNDETECTED_PULSE_ETA: f64 = 3.0;

/// Control mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NimbusMode {
    /// Keeps the queue short.
    Delay,
    /// Competes with buffer-filling flows for a fair share.
    Competitive,
}

/// Current mode and smoothed η.
#[derive(Clone, Copy, Debug)]
pub struct ModeSwitch {
    mode: NimbusMode,
    /// Smoothed η.
    eta: f64,
    /// Earliest time of the first switch.
    earliest_switch: Time,
    last_switch: Time,
}

impl ModeSwitch {
    /// Creates the switch of a new flow, in delay control.
    pub fn new(now: Time) -> ModeSwitch {
        ModeSwitch {
            mode: NimbusMode::Delay,
            eta: 0.0,
            earliest_switch: now + INITIAL_SWITCH_DELAY,
            last_switch: now,
        }
    }

    /// Returns the current mode.
    pub fn mode(&self) -> NimbusMode {
        self.mode
    }

    /// Sets the mode of a flow that starts in another mode, or that follows another flow's.
    pub fn set_mode(&mut self, now: Time, mode: NimbusMode) {
        if self.mode != mode {
            (self.mode, self.last_switch) = (mode, now);
        }
    }

    /// Returns the smoothed η.
    pub fn eta(&self) -> f64 {
        self.eta
    }

    /// Processes a reading, `intervals` samples after the last one. `capacity` is in bytes/s.
    /// Returns true if the mode changed.
    pub fn update(&mut self, now: Time, reading: &Reading, intervals: u32, capacity: f64) -> bool {
        let cross = reading.recent_z / capacity;
        if cross < CROSS_ABSENT || reading.busy_fraction < QUEUE_TIME_SHARE_MIN {
            self.eta = 0.0;
        } else if reading.recent_busy_fraction >= RECENT_QUEUE_SHARE_MIN {
            let gain = 1.0 - libm::pow(1.0 - ETA_GAIN, f64::from(intervals));
            let mut pull = |towards: f64| self.eta += gain * (towards - self.eta);
            if cross > CROSS_DOMINANT {
                pull(CROSS_DOMINANT_ETA);
            }
            pull(reading.eta);
            if !reading.has_pulse() {
                pull(UNDETECTED_PULSE_ETA);
            }
        }
        if now < self.earliest_switch {
            return false;
        }
        let next = match self.mode {
            NimbusMode::Delay if self.eta > ELASTIC_ETA_MIN => NimbusMode::Competitive,
            NimbusMode::Competitive
                if self.eta < INELASTIC_ETA_MAX
                    && now.since(self.last_switch) >= COMPETITIVE_TIME_MIN =>
            {
                NimbusMode::Delay
            }
            _ => return false,
        };
        (self.mode, self.last_switch) = (next, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::elasticity::Capacity;
    use super::*;

    const MU: f64 = 12e6;

    fn reading(eta: f64, cross: f64) -> Reading {
        Reading {
            eta,
            recent_z: cross * MU,
            mean_z: cross * MU,
            response: 1.0,
            prominence: 4.0,
            busy_fraction: 1.0,
            recent_busy_fraction: 1.0,
            capacity: Capacity::Unknown,
        }
    }

    /// Delivers readings every 100 ms for `seconds`, starting at `from`. Returns the time of the
    /// mode change, ms.
    fn run(switch: &mut ModeSwitch, from: u64, seconds: u64, reading: Reading) -> Option<u64> {
        (0..seconds * 10)
            .map(|i| from * 1000 + i * 100)
            .find(|ms| switch.update(Time::ZERO + Duration::from_millis(*ms), &reading, 10, MU))
    }

    #[test]
    fn elastic_traffic_switches_modes_within_seconds() {
        let mut switch = ModeSwitch::new(Time::ZERO);
        assert_eq!(run(&mut switch, 0, 20, reading(1.0, 0.5)), None);
        // With a time constant of 1 s, η from 1 towards 4 passes 2.25 after ln(3 / 1.75) = 0.54 s.
        assert_eq!(run(&mut switch, 20, 5, reading(4.0, 0.5)), Some(20_500));
        assert_eq!(switch.mode(), NimbusMode::Competitive);
        assert_eq!(run(&mut switch, 21, 20, reading(1.0, 0.5)), Some(25_500));
    }

    #[test]
    fn a_young_flow_does_not_switch() {
        let mut switch = ModeSwitch::new(Time::ZERO);
        assert_eq!(run(&mut switch, 0, 20, reading(9.0, 0.5)), Some(10_000));
    }

    #[test]
    fn the_gap_holds_either_mode() {
        let mut switch = ModeSwitch::new(Time::ZERO);
        assert_eq!(run(&mut switch, 0, 60, reading(2.1, 0.5)), None);
        run(&mut switch, 60, 5, reading(4.0, 0.5));
        assert_eq!(run(&mut switch, 65, 60, reading(2.1, 0.5)), None);
    }

    #[test]
    fn competition_is_detected_when_starved_but_not_alone() {
        let mut switch = ModeSwitch::new(Time::ZERO);
        assert_eq!(run(&mut switch, 0, 60, reading(100.0, 0.05)), None);
        assert!(run(&mut switch, 60, 20, reading(1.0, 0.95)).is_some());
        let mut unseen = ModeSwitch::new(Time::ZERO);
        let hidden = Reading {
            prominence: 1.0,
            ..reading(1.8, 0.5)
        };
        assert!(run(&mut unseen, 0, 20, hidden).is_some());
        let mut free = ModeSwitch::new(Time::ZERO);
        let grows = Reading {
            recent_busy_fraction: 0.4,
            ..reading(9.0, 0.5)
        };
        assert_eq!(run(&mut free, 0, 20, grows), None);
        let gone = Reading {
            busy_fraction: 0.05,
            ..reading(9.0, 0.5)
        };
        assert_eq!(
            run(&mut unseen, 20, 20, gone),
            Some(20_000),
            "the link is free"
        );
    }
}
