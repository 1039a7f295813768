//! Paced sources: constant bit rate, on-off, and datagrams without congestion control.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ccplane_units::{Duration, Rate, Time};
use rand_pcg::Pcg64;

use super::draw::{draw_below, draw_exponential};
use super::{Action, ActiveTime, Carrier, Duty, Pairs};

/// Paced sources, one per pair.
///
/// While a source is on, it writes the data of an interval, or sends a packet, at the start of the
/// interval. Interval n starts n interval lengths after the source was turned on, to the
/// nanosecond, so rounding errors do not accumulate. Each source has a random phase within the
/// first interval.
#[derive(Debug)]
pub(super) struct PacedWorkload {
    rate: Rate,
    duty: Duty,
    carrier: Carrier,
    span: ActiveTime,
    random: Pcg64,
    sources: Vec<PacedSource>,
    /// Due time and index of each source.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    opened: u32,
}

#[derive(Clone, Debug)]
struct PacedSource {
    /// Index of the pair.
    pair: u32,
    /// Slot of the connection, once open.
    slot: Option<u32>,
    /// Start and end of the current on period.
    on_start: Time,
    on_end: Time,
    /// Intervals since `on`.
    count: u64,
}

impl PacedWorkload {
    pub fn new(
        rate: Rate,
        duty: Duty,
        carrier: Carrier,
        pairs: &Pairs,
        span: ActiveTime,
        mut random: Pcg64,
    ) -> Result<PacedWorkload, &'static str> {
        if rate.bytes_per_sec() == 0 {
            return Err("its rate is 0; give a rate above 0");
        }
        if let Duty::OnOff { on, .. } = duty
            && on.mean_length() == Duration::ZERO
        {
            return Err("it is never on; give an on time above 0");
        }
        let (Carrier::Stream { write: bytes } | Carrier::Datagrams { bytes, .. }) = carrier;
        if bytes == 0 {
            return Err("it writes 0 bytes at a time; give the size of a segment or packet");
        }
        let interval = transmission_nanos(u64::from(bytes), rate);
        let mut sources = Vec::new();
        let mut due = BinaryHeap::new();
        for place in (0..pairs.position_count()).filter(|place| pairs.get(*place).is_some()) {
            let phase = Duration::from_nanos(draw_below(&mut random, interval as usize) as u64);
            let on = span.start + phase;
            due.push(Reverse((on, sources.len() as u32)));
            sources.push(PacedSource {
                pair: place as u32,
                slot: None,
                on_start: on,
                on_end: until(duty, on, &mut random),
                count: 0,
            });
        }
        Ok(PacedWorkload {
            rate,
            duty,
            carrier,
            span,
            random,
            sources,
            due,
            opened: 0,
        })
    }

    pub fn next_time(&self) -> Option<Time> {
        let Reverse((at, _)) = self.due.peek()?;
        // A source that is due only after the stop still has to end its stream at the stop.
        Some(self.span.stop.map_or(*at, |stop| stop.min(*at)))
    }

    pub fn poll(&mut self, now: Time, pairs: &Pairs) -> Option<Action> {
        let over = self.span.is_over(now);
        while let Some(Reverse((at, number))) = self
            .due
            .peek()
            .copied()
            .filter(|due| over || due.0.0 <= now)
        {
            self.due.pop();
            if self.span.is_over(at) {
                let ended = self
                    .sources
                    .get(number as usize)
                    .and_then(|source| source.slot);
                match ended {
                    Some(slot) => return Some(write(slot, 0, true)),
                    None => continue,
                }
            }
            let action = self.source_action(at, number, pairs);
            if action.is_some() {
                return action;
            }
        }
        None
    }

    /// Returns the action of a source that is due.
    fn source_action(&mut self, at: Time, number: u32, pairs: &Pairs) -> Option<Action> {
        let source = self.sources.get_mut(number as usize)?;
        let (from, to) = pairs.get(source.pair as usize)?;
        if at >= source.on_end {
            if let Duty::OnOff { off, .. } = self.duty {
                source.on_start = source.on_end + off.draw(&mut self.random);
                source.on_end = until(self.duty, source.on_start, &mut self.random);
                source.count = 0;
                self.due.push(Reverse((source.on_start, number)));
            }
            return None;
        }
        source.count += 1;
        let next = |bytes: u32| {
            source.on_start
                + Duration::from_nanos(transmission_nanos(
                    source.count.saturating_mul(bytes.into()),
                    self.rate,
                ))
        };
        let (action, next) = match self.carrier {
            Carrier::Datagrams {
                bytes,
                poisson: false,
            } => (Some(Action::Datagram { from, to, bytes }), next(bytes)),
            Carrier::Datagrams {
                bytes,
                poisson: true,
            } => {
                let mean = f64::from(bytes) * 1e9 / self.rate.bytes_per_sec() as f64;
                let gap = draw_exponential(&mut self.random, mean);
                (Some(Action::Datagram { from, to, bytes }), at + gap)
            }
            Carrier::Stream { write: bytes } => {
                let next = next(bytes);
                // The last interval is cut short when the source goes off or stops.
                let end = self
                    .span
                    .stop
                    .map_or(source.on_end, |stop| stop.min(source.on_end));
                let bytes = if next <= end {
                    u64::from(bytes)
                } else {
                    self.rate.bytes_in(end.since(at)).get()
                };
                let action = match source.slot {
                    Some(slot) => (bytes > 0).then(|| write(slot, bytes, false)),
                    None => {
                        source.slot = Some(self.opened);
                        self.opened += 1;
                        Some(Action::Open {
                            from,
                            to,
                            bytes: Some(bytes),
                            finish: false,
                            follow: true,
                        })
                    }
                };
                (action, next)
            }
        };
        self.due.push(Reverse((next.min(source.on_end), number)));
        action
    }
}

fn write(slot: u32, bytes: u64, finish: bool) -> Action {
    Action::Write {
        slot,
        backward: false,
        bytes,
        finish,
    }
}

/// Returns the end of the on period that starts at `on`.
fn until(duty: Duty, on: Time, random: &mut Pcg64) -> Time {
    match duty {
        Duty::Always => Time::MAX,
        Duty::OnOff { on: length, .. } => on + length.draw(random),
    }
}

/// Returns the time for `bytes` at this rate, in ns, rounded down.
fn transmission_nanos(bytes: u64, rate: Rate) -> u64 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.bytes_per_sec().max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
