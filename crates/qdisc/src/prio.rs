//! Strict priority: a band is served only while all higher bands are empty. Each band is a FIFO.

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::{Backlog, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// Buffer sharing between the bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Each band has a buffer of this size, as in Linux' `prio` with its default inner queues: a
    /// full high band drops packets while a low band has room.
    PerBand(Limit),
    /// All bands share a buffer of this size. A packet that finds it full pushes packets out of the
    /// tail of the lowest backlogged band, provided it is lower than its own, until the packet
    /// fits; otherwise the packet is dropped. RC3's routers work this way: low-priority packets
    /// never cost a normal packet its buffer space.
    Shared(Limit),
}

/// Strict-priority queue. [`Packet::class`] is the band; larger classes go to the last band.
#[derive(Clone, Debug)]
pub struct Prio<P> {
    buffer: Buffer,
    bands: Vec<Band<P>>,
    backlog: Backlog,
}

#[derive(Clone, Debug)]
struct Band<P> {
    waiting: VecDeque<P>,
    backlog: Backlog,
}

impl<P: Packet> Prio<P> {
    /// Creates an empty queue with `bands` bands, at least one.
    pub fn new(bands: u8, buffer: Buffer) -> Prio<P> {
        let empty = || Band {
            waiting: VecDeque::new(),
            backlog: Backlog::default(),
        };
        Prio {
            buffer,
            bands: (0..bands.max(1)).map(|_| empty()).collect(),
            backlog: Backlog::default(),
        }
    }

    /// Pushes out lower-priority packets as needed. Returns true if the arriving packet fits.
    fn make_room(&mut self, band: usize, bytes: u32, drops: &mut impl Drops<P>) -> bool {
        let limit = match self.buffer {
            Buffer::PerBand(limit) => return limit.admits(self.bands[band].backlog, bytes),
            Buffer::Shared(limit) => limit,
        };
        let mut lowest = self.bands.len() - 1;
        while !limit.admits(self.backlog, bytes) {
            while lowest > band && self.bands[lowest].waiting.is_empty() {
                lowest -= 1;
            }
            if lowest == band {
                return false;
            }
            if let Some(victim) = self.bands[lowest].waiting.pop_back() {
                self.bands[lowest].backlog.remove(victim.bytes());
                self.backlog.remove(victim.bytes());
                drops.dropped(victim, DropReason::PushedOut);
            }
        }
        true
    }
}

impl<P: Packet> Qdisc<P> for Prio<P> {
    fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        let band = usize::from(packet.class()).min(self.bands.len() - 1);
        if !self.make_room(band, packet.bytes(), drops) {
            drops.dropped(packet, DropReason::Full);
            return Verdict::Dropped(DropReason::Full);
        }
        self.backlog.add(packet.bytes());
        self.bands[band].backlog.add(packet.bytes());
        self.bands[band].waiting.push_back(packet);
        Verdict::Queued
    }

    fn dequeue(&mut self, _now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        let band = self
            .bands
            .iter_mut()
            .find(|band| !band.waiting.is_empty())?;
        let packet = band.waiting.pop_front()?;
        band.backlog.remove(packet.bytes());
        self.backlog.remove(packet.bytes());
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        (self.backlog.packets > 0).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct ClassPacket {
        id: u32,
        bytes: u32,
        class: u8,
    }

    impl Packet for ClassPacket {
        fn bytes(&self) -> u32 {
            self.bytes
        }

        fn class(&self) -> u8 {
            self.class
        }
    }

    fn packet(id: u32, class: u8) -> ClassPacket {
        ClassPacket {
            id,
            bytes: 1_000,
            class,
        }
    }

    #[test]
    fn a_normal_packet_pushes_out_the_last_of_the_lowest() {
        let mut queue = Prio::new(4, Buffer::Shared(Limit::Bytes(3_000)));
        let mut dropped = Vec::new();
        let mut enqueue = |packet: ClassPacket| {
            queue.enqueue(Time::ZERO, packet, &mut |p: ClassPacket, why| {
                dropped.push((p.id, why))
            })
        };
        for (id, class) in [(0, 1), (1, 2), (2, 2)] {
            assert_eq!(enqueue(packet(id, class)), Verdict::Queued);
        }
        assert_eq!(
            enqueue(packet(3, 3)),
            Verdict::Dropped(DropReason::Full),
            "nothing is below it"
        );
        assert_eq!(
            enqueue(packet(4, 2)),
            Verdict::Dropped(DropReason::Full),
            "a band does not push out its own packets"
        );
        assert_eq!(enqueue(packet(5, 0)), Verdict::Queued);
        assert_eq!(
            enqueue(ClassPacket {
                bytes: 1_800,
                ..packet(6, 0)
            }),
            Verdict::Queued
        );
        assert_eq!(
            enqueue(ClassPacket {
                bytes: 1_500,
                ..packet(7, 0)
            }),
            Verdict::Dropped(DropReason::Full)
        );
        let full = DropReason::Full;
        let out = DropReason::PushedOut;
        assert_eq!(
            dropped,
            [
                (3, full),
                (4, full),
                (2, out),
                (1, out),
                (0, out),
                (7, full)
            ]
        );
        let mut left = std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut |_, _| {}))
            .map(|packet| packet.id);
        assert_eq!(left.by_ref().collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn bands_of_their_own_do_not_push_out() {
        let mut queue = Prio::new(2, Buffer::PerBand(Limit::Packets(2)));
        let mut full = 0;
        for id in 0..6 {
            queue.enqueue(Time::ZERO, packet(id, (id % 3) as u8), &mut |_, _| {
                full += 1
            });
        }
        // There are only bands 0 and 1, so class 2 goes to band 1.
        let packets: Vec<u64> = queue
            .bands
            .iter()
            .map(|band| band.backlog.packets)
            .collect();
        assert_eq!((full, &packets[..]), (2, &[2, 2][..]));
    }

    proptest! {
        /// Reference model: RC3's router, in the simplest form.
        #[test]
        fn push_out_is_that_of_rc3(
            steps in proptest::collection::vec(
                prop_oneof![(0_u8..5, 40_u32..1_501).prop_map(Some), Just(None)],
                1..200,
            ),
            limit in 1_500_u64..9_000,
        ) {
            let mut queue = Prio::new(5, Buffer::Shared(Limit::Bytes(limit)));
            let mut bands: [Vec<ClassPacket>; 5] = Default::default();
            let (mut dropped, mut expected) = (Vec::new(), Vec::new());
            for (id, step) in steps.into_iter().enumerate() {
                let Some((class, bytes)) = step else {
                    let first = bands
                        .iter_mut()
                        .find(|band| !band.is_empty())
                        .map(|band| band.remove(0));
                    prop_assert_eq!(queue.dequeue(Time::ZERO, &mut |_, _| {}), first);
                    continue;
                };
                let arrival = ClassPacket {
                    id: id as u32,
                    bytes,
                    class,
                };
                queue.enqueue(Time::ZERO, arrival, &mut |p: ClassPacket, _| {
                    dropped.push(p)
                });
                let total = |bands: &[Vec<ClassPacket>; 5]| {
                    bands
                        .iter()
                        .flatten()
                        .map(|p| u64::from(p.bytes))
                        .sum::<u64>()
                };
                loop {
                    if total(&bands) + u64::from(bytes) <= limit {
                        bands[class as usize].push(arrival);
                        break;
                    }
                    let below = (class as usize + 1..5)
                        .rev()
                        .find(|&band| !bands[band].is_empty());
                    match below.and_then(|band| bands[band].pop()) {
                        Some(victim) => expected.push(victim),
                        None => {
                            expected.push(arrival);
                            break;
                        }
                    }
                }
                prop_assert_eq!(&dropped, &expected);
            }
        }
    }
}
