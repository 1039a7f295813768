//! Any queue and the line that serves it: packets in, packets out with their departures.

use std::collections::VecDeque;

use ccplane_host::Packet;
use ccplane_qdisc::{AnyQdisc, Drops, FifoLink, LineSpec, Packet as _, Qdisc, Shaped};
use ccplane_units::{Duration, Time};

use crate::{Error, LinkConfig, Way};

/// A queue of [`ccplane_qdisc`] with its line.
#[derive(Debug)]
pub(crate) enum Link {
    /// First in, first out: departures are known on arrival.
    Fifo {
        link: FifoLink,
        /// What is in `link`, in its order.
        waiting: VecDeque<Packet>,
    },
    /// Everything else decides when the line asks for a packet.
    Any(Box<Shaped<Packet, AnyQdisc<Packet>>>),
}

impl Link {
    /// An empty link on a path of this round-trip time; a trace begins at time zero. The error is
    /// what makes it impossible.
    pub(crate) fn new(
        way: Way,
        config: &LinkConfig,
        rtt: Duration,
        mtu: u32,
    ) -> Result<Link, Error> {
        let rate = config.line.mean_rate();
        if rate.is_some_and(|rate| rate.bytes_per_sec() == 0) {
            return Err(Error::ZeroRate { way });
        }
        let failed = |source| Error::Queue { way, source };
        let fifo = config.queue.fifo_limit(rate, rtt, mtu).map_err(failed)?;
        Ok(match fifo {
            Some(fifo) => Link::Fifo {
                link: FifoLink::marking(&config.line, fifo.limit, fifo.mark_above, Time::ZERO),
                waiting: VecDeque::new(),
            },
            None => {
                let queue = config
                    .queue
                    .build(rate, rtt, mtu, config.seeds.queue)
                    .map_err(failed)?;
                Link::Any(Box::new(Shaped::new(queue, &config.line, Time::ZERO)))
            }
        })
    }

    /// Takes a packet in, or drops it or another.
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        mut packet: Packet,
        drops: &mut impl Drops<Packet>,
    ) {
        match self {
            Link::Fifo { link, waiting } => match link.admit(now, packet.bytes(), 0) {
                Ok(admitted) => {
                    if admitted.mark && packet.ecn().is_capable() {
                        packet.mark_ce();
                    }
                    waiting.push_back(packet);
                }
                Err(reason) => drops.dropped(packet, reason),
            },
            Link::Any(shaped) => {
                shaped.enqueue(now, packet, drops);
            }
        }
    }

    /// When to call [`take`](Link::take) next: no later than the next departure.
    pub(crate) fn next_ready(&self) -> Option<Time> {
        match self {
            Link::Fifo { link, .. } => link.head().map(|(departs, _)| departs),
            Link::Any(shaped) => shaped.next_ready(),
        }
    }

    /// The next packet that has left by `now` and when it did. `None` says that there is none so
    /// far.
    pub(crate) fn take(
        &mut self,
        now: Time,
        drops: &mut impl Drops<Packet>,
    ) -> Option<(Packet, Time)> {
        match self {
            Link::Fifo { link, waiting } => {
                link.head().filter(|(departs, _)| *departs <= now)?;
                let (departed, _) = link.take()?;
                Some((waiting.pop_front()?, departed))
            }
            Link::Any(shaped) => {
                while let Some(at) = shaped.next_ready().filter(|at| *at <= now) {
                    if let Some(packet) = shaped.dequeue(at, drops) {
                        return Some((packet, at));
                    }
                }
                None
            }
        }
    }

    /// Changes the line. What waits is planned anew; call it when all that has left by `now` is
    /// taken.
    pub(crate) fn set_line(&mut self, now: Time, line: &LineSpec, drops: &mut impl Drops<Packet>) {
        match self {
            Link::Fifo { link, .. } => link.set_line(now, line),
            Link::Any(shaped) => shaped.set_line(now, line, drops),
        }
    }

    /// Packets and bytes that have not been taken.
    pub(crate) fn inside(&self) -> (u64, u64) {
        let backlog = match self {
            Link::Fifo { link, .. } => link.backlog(),
            Link::Any(shaped) => shaped.backlog(),
        };
        (backlog.packets, backlog.bytes)
    }
}
