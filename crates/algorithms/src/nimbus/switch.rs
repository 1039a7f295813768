//! When to control delay and when to compete: η over time, with hysteresis. Constants are the
//! reference's (ccp-project/nimbus, branch queue-control); the paper's text has one threshold, 2.

use ccplane_units::{Duration, Time};

use super::elasticity::Reading;

/// Above this, cross traffic is elastic.
const ELASTIC: f64 = 2.25;
/// Below this it is not. The gap keeps noise from switching to and fro.
const INELASTIC: f64 = 2.0;
/// How long a competitor stays one at least: the pulse's frequency changes with the mode, and a
/// window of 5 s has to fill with the new one before its spectrum means anything.
const STAYS: Duration = Duration::from_secs(5);
/// No switch before this age: the window still has slow start in it (the reference waits 15 s, of
/// which 5 s for its fixed rate).
const YOUNG: Duration = Duration::from_secs(10);
/// Weight of a new η for each sample interval: one second's average.
const GAIN: f64 = 0.01;
/// Cross traffic of less than this part of the link cannot matter: there is none.
const NOBODY: f64 = 0.1;
/// Of more than this part: we are starved, as beside a competitor ...
const STARVED: f64 = 0.9;
/// ... of this η.
const STARVED_ETA: f64 = 6.0;
/// Where there was a queue in less than this part of 5 s, nobody fills it, whatever ẑ seems to be
/// (ours: the reference competes on with what has gone until its own window has filled the link).
const IDLE: f64 = 0.1;
/// And while there is one in less than this part of half a second, readings do not count: when the
/// link has become faster, ẑ is large until the rate has grown.
const BUSY: f64 = 0.5;
/// η where our pulse does not arrive: other traffic is so strong that it is best taken for elastic.
const UNSEEN_ETA: f64 = 3.0;

/// What a flow does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Keeps the queue short.
    Delay,
    /// Takes its part beside others who fill the queue.
    Competitive,
}

/// The mode and what led to it.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    mode: Mode,
    /// η, averaged.
    eta: f64,
    /// No switch before.
    ripe: Time,
    switched: Time,
}

impl Switch {
    /// A flow that begins now controls delay.
    pub fn new(now: Time) -> Switch {
        Switch {
            mode: Mode::Delay,
            eta: 0.0,
            ripe: now + YOUNG,
            switched: now,
        }
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// η, averaged.
    pub fn eta(&self) -> f64 {
        self.eta
    }

    /// A reading, `intervals` samples after the last, given the capacity in bytes/s. Whether the
    /// mode changed.
    pub fn judge(&mut self, now: Time, reading: &Reading, intervals: u32, capacity: f64) -> bool {
        let cross = reading.cross / capacity;
        if cross < NOBODY || reading.busy < IDLE {
            self.eta = 0.0;
        } else if reading.busy_now >= BUSY {
            let gain = 1.0 - libm::pow(1.0 - GAIN, f64::from(intervals));
            let mut pull = |towards: f64| self.eta += gain * (towards - self.eta);
            if cross > STARVED {
                pull(STARVED_ETA);
            }
            pull(reading.eta);
            if !reading.pulse_arrives() {
                pull(UNSEEN_ETA);
            }
        }
        if now < self.ripe {
            return false;
        }
        let next = match self.mode {
            Mode::Delay if self.eta > ELASTIC => Mode::Competitive,
            Mode::Competitive if self.eta < INELASTIC && now.since(self.switched) >= STAYS => {
                Mode::Delay
            }
            _ => return false,
        };
        (self.mode, self.switched) = (next, now);
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
            cross: cross * MU,
            standing: cross * MU,
            answer: 1.0,
            prominence: 4.0,
            busy: 1.0,
            busy_now: 1.0,
            capacity: Capacity::Unknown,
        }
    }

    /// Readings each 100 ms for so long from `from`; when the mode changed, in ms.
    fn run(switch: &mut Switch, from: u64, seconds: u64, reading: Reading) -> Option<u64> {
        (0..seconds * 10)
            .map(|i| from * 1000 + i * 100)
            .find(|ms| switch.judge(Time::ZERO + Duration::from_millis(*ms), &reading, 10, MU))
    }

    #[test]
    fn elastic_traffic_is_met_within_seconds_and_left_after_five_at_least() {
        let mut switch = Switch::new(Time::ZERO);
        assert_eq!(run(&mut switch, 0, 20, reading(1.0, 0.5)), None);
        // One second's average from 1 towards 4 passes 2.25 after ln(3 / 1.75) = 0.54 s.
        assert_eq!(run(&mut switch, 20, 5, reading(4.0, 0.5)), Some(20_500));
        assert_eq!(switch.mode(), Mode::Competitive);
        assert_eq!(run(&mut switch, 21, 20, reading(1.0, 0.5)), Some(25_500));
    }

    #[test]
    fn a_young_flow_does_not_switch() {
        let mut switch = Switch::new(Time::ZERO);
        assert_eq!(run(&mut switch, 0, 20, reading(9.0, 0.5)), Some(10_000));
    }

    #[test]
    fn the_gap_holds_either_mode() {
        let mut switch = Switch::new(Time::ZERO);
        assert_eq!(run(&mut switch, 0, 60, reading(2.1, 0.5)), None);
        run(&mut switch, 60, 5, reading(4.0, 0.5));
        assert_eq!(run(&mut switch, 65, 60, reading(2.1, 0.5)), None);
    }

    #[test]
    fn alone_there_is_nobody_to_compete_with_and_starved_there_is() {
        let mut switch = Switch::new(Time::ZERO);
        assert_eq!(run(&mut switch, 0, 60, reading(100.0, 0.05)), None);
        assert!(run(&mut switch, 60, 20, reading(1.0, 0.95)).is_some());
        let mut unseen = Switch::new(Time::ZERO);
        let hidden = Reading {
            prominence: 1.0,
            ..reading(1.8, 0.5)
        };
        assert!(run(&mut unseen, 0, 20, hidden).is_some());
        let mut free = Switch::new(Time::ZERO);
        let grows = Reading {
            busy_now: 0.4,
            ..reading(9.0, 0.5)
        };
        assert_eq!(run(&mut free, 0, 20, grows), None);
        let gone = Reading {
            busy: 0.05,
            ..reading(9.0, 0.5)
        };
        assert_eq!(
            run(&mut unseen, 20, 20, gone),
            Some(20_000),
            "the link is free"
        );
    }
}
