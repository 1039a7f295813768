//! Scheduled changes of the bottleneck during a run.

use std::collections::VecDeque;

use ccplane_emu::{EmuHandle, PathDirection};
use ccplane_lab::Error;
use ccplane_lab::capacity::{self, Carrying};
use ccplane_qdisc::{LineSpec, LossModel};
use ccplane_units::{Duration, Time};

use crate::error::BackendError;

/// A scheduled change of one direction.
#[derive(Clone, Debug)]
pub(crate) struct LinkEvent {
    /// Time since the start of the run.
    pub at: Time,
    pub direction: PathDirection,
    pub change: LinkChange,
}

/// A change of the link.
#[derive(Clone, Debug)]
pub(crate) enum LinkChange {
    /// Replaces the line. A line with a course (a trace, pieces) starts at its beginning.
    Line(LineSpec),
    /// Replaces the delay with a constant one.
    Delay(Duration),
    /// Replaces the random loss.
    Loss(LossModel),
    /// Takes the link up or down.
    Up(bool),
}

/// Changes that have not been applied yet.
#[derive(Debug)]
pub(super) struct PendingChanges {
    /// `None` if the link cannot be changed; there are no changes then.
    emulator: Option<EmuHandle>,
    pending: VecDeque<LinkEvent>,
}

impl PendingChanges {
    /// Sorts the changes by time; changes at the same time keep their order.
    ///
    /// A line with a course (a trace, pieces) starts when the emulator starts, which is before the
    /// run: it is restarted with the run.
    pub fn new(control: Option<EmuHandle>, events: &[LinkEvent]) -> PendingChanges {
        let mut waiting: Vec<LinkEvent> = [PathDirection::Forward, PathDirection::Reverse]
            .into_iter()
            .filter_map(|way| {
                let line = control.as_ref()?.link_config(way).line;
                let course = matches!(line, LineSpec::Trace(_) | LineSpec::Piecewise(_));
                course.then_some(LinkEvent {
                    at: Time::ZERO,
                    direction: way,
                    change: LinkChange::Line(line),
                })
            })
            .collect();
        waiting.extend(events.iter().cloned());
        waiting.sort_by_key(|event| event.at);
        PendingChanges {
            emulator: control,
            pending: waiting.into(),
        }
    }

    /// Returns the time of the next change.
    pub fn next_time(&self) -> Option<Time> {
        self.pending.front().map(|event| event.at)
    }

    /// Applies all changes that are due.
    pub fn apply(&mut self, now: Time) -> Result<(), Error> {
        while self.next_time().is_some_and(|at| at <= now) {
            let Some(LinkEvent {
                direction: way,
                change,
                ..
            }) = self.pending.pop_front()
            else {
                break;
            };
            let Some(emulator) = &self.emulator else {
                continue;
            };
            match change {
                LinkChange::Line(line) => emulator.set_line(way, line),
                LinkChange::Delay(delay) => emulator
                    .set_jitter(way, Duration::ZERO)
                    .and_then(|()| emulator.set_delay(way, delay)),
                LinkChange::Loss(loss) => emulator.set_loss(way, loss),
                LinkChange::Up(up) => {
                    emulator.set_up(way, up);
                    Ok(())
                }
            }
            .map_err(BackendError::Emulator)?;
        }
        Ok(())
    }
}

/// Returns the bytes that a direction could carry between two times of a run. A line with a course
/// starts with the run.
pub(crate) fn could_carry(
    line: &LineSpec,
    way: PathDirection,
    events: &[LinkEvent],
    from: Duration,
    to: Duration,
) -> f64 {
    let changes = events
        .iter()
        .filter(|event| event.direction == way)
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
            direction: way,
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
        // Not in order of time, and one of the other direction.
        let events = [
            event(400, PathDirection::Forward, LinkChange::Up(true)),
            event(200, PathDirection::Forward, LinkChange::Up(false)),
            event(100, PathDirection::Reverse, LinkChange::Up(false)),
            event(300, PathDirection::Forward, LinkChange::Delay(second)),
            half,
        ];
        assert_eq!(carried(&events), 200_000.0 + 100_000.0 + 250_000.0);
        // A change after the end has no effect.
        assert_eq!(
            carried(&[event(2_000, PathDirection::Forward, LinkChange::Up(false))]),
            1e6
        );
    }
}
