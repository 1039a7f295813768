//! A queue and the line that serves it: packets in, packets out with their departure times.

use std::collections::VecDeque;

use ccplane_host::FramePacket;
use ccplane_qdisc::{AnyQdisc, Drops, FifoLink, LineSpec, Packet as _, Qdisc, ShapedLink};
use ccplane_units::{Duration, Time};

use crate::{Error, LinkConfig, PathDirection};

/// A queue of [`ccplane_qdisc`] with its line.
#[derive(Debug)]
pub(crate) enum EmuLink {
    /// FIFO: the departure time is known on arrival.
    Fifo {
        link: FifoLink,
        /// Packets in `link`, in the same order.
        waiting: VecDeque<FramePacket>,
    },
    /// Any other queue: the packet is chosen when the line is ready.
    Any(Box<ShapedLink<FramePacket, AnyQdisc<FramePacket>>>),
}

impl EmuLink {
    /// Creates an empty link on a path of this round-trip time; a trace starts at time zero.
    ///
    /// # Errors
    /// The rate or the queue is invalid.
    pub(crate) fn new(
        direction: PathDirection,
        config: &LinkConfig,
        rtt: Duration,
        mtu: u32,
    ) -> Result<EmuLink, Error> {
        let rate = config.line.mean_rate();
        if rate.is_some_and(|rate| rate.bytes_per_sec() == 0) {
            return Err(Error::ZeroRate { way: direction });
        }
        let failed = |source| Error::Queue {
            way: direction,
            source,
        };
        let fifo = config.queue.fifo_limit(rate, rtt, mtu).map_err(failed)?;
        Ok(match fifo {
            Some(fifo) => EmuLink::Fifo {
                link: FifoLink::with_marking(&config.line, fifo.limit, fifo.mark_above, Time::ZERO),
                waiting: VecDeque::new(),
            },
            None => {
                let queue = config
                    .queue
                    .build(rate, rtt, mtu, config.seeds.queue)
                    .map_err(failed)?;
                EmuLink::Any(Box::new(ShapedLink::new(queue, &config.line, Time::ZERO)))
            }
        })
    }

    /// Enqueues a packet, or drops it or another.
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        mut packet: FramePacket,
        drops: &mut impl Drops<FramePacket>,
    ) {
        match self {
            EmuLink::Fifo { link, waiting } => match link.admit(now, packet.bytes(), 0) {
                Ok(admitted) => {
                    if admitted.mark && packet.ecn().is_capable() {
                        packet.mark_ce();
                    }
                    waiting.push_back(packet);
                }
                Err(reason) => drops.dropped(packet, reason),
            },
            EmuLink::Any(shaped) => {
                shaped.enqueue(now, packet, drops);
            }
        }
    }

    /// Returns the time to call [`take`](EmuLink::take) next, no later than the next departure.
    pub(crate) fn next_ready(&self) -> Option<Time> {
        match self {
            EmuLink::Fifo { link, .. } => link.head().map(|(departs, _)| departs),
            EmuLink::Any(shaped) => shaped.next_ready(),
        }
    }

    /// Returns the next packet that has left by `now`, with its departure time; `None` if there is
    /// none yet.
    pub(crate) fn take_departed(
        &mut self,
        now: Time,
        drops: &mut impl Drops<FramePacket>,
    ) -> Option<(FramePacket, Time)> {
        match self {
            EmuLink::Fifo { link, waiting } => {
                link.head().filter(|(departs, _)| *departs <= now)?;
                let (departed, _) = link.take()?;
                Some((waiting.pop_front()?, departed))
            }
            EmuLink::Any(shaped) => {
                while let Some(at) = shaped.next_ready().filter(|at| *at <= now) {
                    if let Some(packet) = shaped.dequeue(at, drops) {
                        return Some((packet, at));
                    }
                }
                None
            }
        }
    }

    /// Changes the line and reschedules waiting packets. Packets that have left by `now` must have
    /// been taken.
    pub(crate) fn set_line(
        &mut self,
        now: Time,
        line: &LineSpec,
        drops: &mut impl Drops<FramePacket>,
    ) {
        match self {
            EmuLink::Fifo { link, .. } => link.set_line(now, line),
            EmuLink::Any(shaped) => shaped.set_line(now, line, drops),
        }
    }

    /// Returns packets and bytes that have not been taken.
    pub(crate) fn backlog(&self) -> (u64, u64) {
        let backlog = match self {
            EmuLink::Fifo { link, .. } => link.backlog(),
            EmuLink::Any(shaped) => shaped.backlog(),
        };
        (backlog.packets, backlog.bytes)
    }
}
