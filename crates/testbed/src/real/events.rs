//! What changes on the bottleneck while a run goes on, at its time.

use std::collections::VecDeque;

use ccplane_emu::{EmuHandle, PathDirection};
use ccplane_lab::Error;
use ccplane_lab::capacity::{self, Carrying};
use ccplane_qdisc::{LineSpec, LossModel};
use ccplane_units::{Duration, Time};

use crate::error::BackendError;

/// A change of a direction.
#[derive(Clone, Debug)]
pub(crate) struct LinkEvent {
    /// Since the run began.
    pub at: Time,
    pub way: PathDirection,
    pub change: LinkChange,
}

/// What changes.
#[derive(Clone, Debug)]
pub(crate) enum LinkChange {
    /// Another line serves the queue; one that follows a course begins it.
    Line(LineSpec),
    /// Another delay, the same for every packet.
    Delay(Duration),
    /// Other random loss.
    Loss(LossModel),
    /// Whether it takes packets.
    Up(bool),
}

/// Changes to come.
#[derive(Debug)]
pub(super) struct PendingChanges {
    control: EmuHandle,
    waiting: VecDeque<LinkEvent>,
}

impl PendingChanges {
    /// These, in the order of their times; of one time, in the order given.
    ///
    /// A line that follows a course (a trace, pieces) begins it with the emulator, which is there
    /// before the run is: it begins again with the run.
    pub fn new(control: EmuHandle, events: &[LinkEvent]) -> PendingChanges {
        let mut waiting: Vec<LinkEvent> = [PathDirection::Forward, PathDirection::Reverse]
            .into_iter()
            .filter_map(|way| {
                let line = control.link(way).line;
                let course = matches!(line, LineSpec::Trace(_) | LineSpec::Piecewise(_));
                course.then_some(LinkEvent {
                    at: Time::ZERO,
                    way,
                    change: LinkChange::Line(line),
                })
            })
            .collect();
        waiting.extend(events.iter().cloned());
        waiting.sort_by_key(|event| event.at);
        PendingChanges {
            control,
            waiting: waiting.into(),
        }
    }

    /// When the next one is.
    pub fn next_time(&self) -> Option<Time> {
        self.waiting.front().map(|event| event.at)
    }

    /// Makes all changes whose time has come.
    pub fn apply(&mut self, now: Time) -> Result<(), Error> {
        while self.next_time().is_some_and(|at| at <= now) {
            let Some(LinkEvent { way, change, .. }) = self.waiting.pop_front() else {
                break;
            };
            match change {
                LinkChange::Line(line) => self.control.set_line(way, line),
                LinkChange::Delay(delay) => self
                    .control
                    .set_jitter(way, Duration::ZERO)
                    .and_then(|()| self.control.set_delay(way, delay)),
                LinkChange::Loss(loss) => self.control.set_loss(way, loss),
                LinkChange::Up(up) => {
                    self.control.set_up(way, up);
                    Ok(())
                }
            }
            .map_err(BackendError::Emulator)?;
        }
        Ok(())
    }
}

/// Bytes that a direction could carry between two times of a run. A line that follows a course
/// begins it with the run.
pub(crate) fn could_carry(
    line: &LineSpec,
    way: PathDirection,
    events: &[LinkEvent],
    from: Duration,
    to: Duration,
) -> f64 {
    let changes = events
        .iter()
        .filter(|event| event.way == way)
        .filter_map(|event| {
            let change = match &event.change {
                LinkChange::Line(next) => Carrying::Line(next),
                LinkChange::Up(up) => Carrying::Up(*up),
                LinkChange::Delay(_) | LinkChange::Loss(_) => return None,
            };
            Some((event.at.since(Time::ZERO), change))
        });
    capacity::could_carry(line, changes, from, to)
}

#[cfg(test)]
mod tests {
    use ccplane_units::Rate;

    use super::*;

    fn line(bytes_per_sec: u64) -> LineSpec {
        LineSpec::Constant(Rate::from_bytes_per_sec(bytes_per_sec))
    }

    fn event(ms: u64, way: PathDirection, change: LinkChange) -> LinkEvent {
        LinkEvent {
            at: Time::ZERO + Duration::from_millis(ms),
            way,
            change,
        }
    }

    #[test]
    fn what_could_be_carried_follows_rate_and_outage() {
        let second = Duration::from_secs(1);
        let carried = |events: &[LinkEvent]| {
            could_carry(
                &line(1_000_000),
                PathDirection::Forward,
                events,
                Duration::ZERO,
                second,
            )
        };
        assert_eq!(carried(&[]), 1e6);
        let half = event(500, PathDirection::Forward, LinkChange::Line(line(500_000)));
        assert_eq!(carried(std::slice::from_ref(&half)), 750_000.0);
        // Out of order, and another direction's.
        let events = [
            event(400, PathDirection::Forward, LinkChange::Up(true)),
            event(200, PathDirection::Forward, LinkChange::Up(false)),
            event(100, PathDirection::Reverse, LinkChange::Up(false)),
            event(300, PathDirection::Forward, LinkChange::Delay(second)),
            half,
        ];
        assert_eq!(carried(&events), 200_000.0 + 100_000.0 + 250_000.0);
        // A change behind the end changes nothing.
        assert_eq!(
            carried(&[event(2_000, PathDirection::Forward, LinkChange::Up(false))]),
            1e6
        );
    }
}
