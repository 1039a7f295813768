//! Class-based scheduling: strict priority between levels, weighted sharing within a level, and any
//! queue in each class.
//!
//! [`Prio`](crate::Prio) has plain FIFO bands and lets the low ones starve. [`Classes`] is the
//! general form, like Linux' `ets` over other queues. Classes of one level share by deficit round
//! robin (Shreedhar and Varghese, Efficient Fair Queuing Using Deficit Round-Robin, SIGCOMM 1995).
//! As in SFQ, a class may overdraw its deficit by one packet and pays for it in the next round.

use ccplane_units::{Duration, Rate, Time};

use crate::{AnyQdisc, Backlog, Drops, Packet, Qdisc, QueueSpec, QueueSpecError, Verdict};

/// Share of the bytes, in per cent, that goes to the levels below a level while both have packets.
/// 5 % is our choice; DualPI2 reserves 10 % for its classic queue (RFC 9332, Linux'
/// `classic_protection`).
///
/// A smaller share makes connections of the lower levels time out instead of slowing down: at 5 %
/// of 10 Mbit/s a full-sized packet is sent every 24 ms, at 0.5 % every 240 ms, above TCP's minimum
/// RTO of 200 ms. A larger share weakens the priority: the upper level waits one transmission time
/// for every packet of the guard.
const GUARD_SHARE_PERCENT: i64 = 5;
/// Denominator of the guard's share.
const PERCENT: i64 = 100;

/// [`Packet::class`] is a `u8`.
const CLASSES_MAX: usize = 256;

/// Description of one class, independent of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSpec {
    /// Priority level; 0 is served first.
    pub level: u8,
    /// Weight relative to the other backlogged classes of the level, from 1 to 1,000,000.
    pub weight: u32,
    /// Queue of the class. A size in bandwidth-delay products refers to the rate of the whole link.
    pub queue: QueueSpec,
}

impl ClassSpec {
    /// Largest weight. It keeps deficits, which are bytes times weights, far from overflow.
    pub const WEIGHT_MAX: u32 = 1_000_000;
}

/// Descriptions of all classes, in the order of [`Packet::class`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassesSpec {
    /// Between 1 and 256 classes; levels may be in any order.
    pub classes: Vec<ClassSpec>,
}

impl From<QueueSpec> for ClassesSpec {
    /// Puts all packets into one class.
    fn from(queue: QueueSpec) -> ClassesSpec {
        let all = ClassSpec {
            level: 0,
            weight: 1,
            queue,
        };
        ClassesSpec { classes: vec![all] }
    }
}

impl ClassesSpec {
    /// Builds the scheduler for a link of `rate` whose packets have at most `mtu` bytes, on a path
    /// with the base RTT `rtt`. Each class's queue gets its own seed, derived from `seed`.
    pub fn build<P: Packet>(
        &self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
        seed: u64,
    ) -> Result<Classes<P>, QueueSpecError> {
        if self.classes.is_empty() || self.classes.len() > CLASSES_MAX {
            let count = self.classes.len();
            return Err(QueueSpecError::Contradiction(format!(
                "there are {count} classes; give at least one and at most {CLASSES_MAX}"
            )));
        }
        let mut classes = Classes {
            levels: Vec::new(),
            positions: Vec::new(),
        };
        let mut levels: Vec<u8> = self.classes.iter().map(|class| class.level).collect();
        levels.sort_unstable();
        levels.dedup();
        for &level in &levels {
            let weights = self.classes.iter().filter(|class| class.level == level);
            let heaviest = weights.map(|class| class.weight).max().unwrap_or(1);
            classes.levels.push(Level::new(heaviest));
        }
        for (index, class) in (0_u64..).zip(&self.classes) {
            if !(1..=ClassSpec::WEIGHT_MAX).contains(&class.weight) {
                return Err(QueueSpecError::Contradiction(format!(
                    "class {index} has the weight {}; use a weight from 1 to {}",
                    class.weight,
                    ClassSpec::WEIGHT_MAX
                )));
            }
            let queue = class
                .queue
                .build(rate, rtt, mtu, seed.wrapping_add(index))?;
            let level = levels.partition_point(|&level| level < class.level);
            let members = &mut classes.levels[level].classes;
            classes.positions.push((level, members.len()));
            members.push(ClassQueue {
                queue,
                quantum: i64::from(class.weight) * i64::from(mtu.max(1)),
                allotment: 0,
            });
        }
        Ok(classes)
    }
}

/// Class scheduler. A level is served while no higher level has a packet ready, classes of one
/// level share by weight, and a guard of 5 % keeps the lower levels from starving.
/// [`Packet::class`] selects the class; packets with a larger number go to the last one.
///
/// Work conserving: what a class cannot use, because it is empty, waits for tokens or drops all its
/// packets, goes to the next class, and the unused share does not accumulate. Every dequeue visits
/// all classes, so this suits some dozens of classes, not one per flow.
#[derive(Clone, Debug)]
pub struct Classes<P> {
    /// Ordered by priority, highest first.
    levels: Vec<Level<P>>,
    /// Per class: index of its level and index within the level.
    positions: Vec<(usize, usize)>,
}

#[derive(Clone, Debug)]
struct Level<P> {
    classes: Vec<ClassQueue<P>>,
    /// Class whose turn it is.
    next_class: usize,
    /// Cost of a byte in deficit units: the largest weight of the level, so that the heaviest class
    /// can send one MTU per round. A lower cost would only add rounds; a higher one makes the other
    /// classes wait longer.
    weight_max: i64,
    /// Debt of the guard to the levels below, in hundredths of bytes. Negative if they got more
    /// than their share.
    guard_debt: i64,
    /// Set by `choose_level`: the level has a packet that may be sent now.
    ready: bool,
}

#[derive(Clone, Debug)]
struct ClassQueue<P> {
    queue: AnyQdisc<P>,
    /// Deficit added per round: MTU × weight.
    quantum: i64,
    /// Remaining deficit: bytes × the level's largest weight.
    allotment: i64,
}

impl<P: Packet> Classes<P> {
    /// Returns the number of classes.
    pub fn count(&self) -> usize {
        self.positions.len()
    }

    /// Returns the class that a packet is queued in.
    #[inline]
    pub fn class_of(&self, packet: &P) -> usize {
        usize::from(packet.class()).min(self.positions.len() - 1)
    }

    /// Returns the backlog of one class.
    pub fn class_backlog(&self, class: usize) -> Backlog {
        let place = self.positions.get(class);
        place.map_or_else(Backlog::default, |&(level, place)| {
            self.levels[level].classes[place].queue.backlog()
        })
    }

    /// Chooses the level to serve at `now`: the highest with a packet ready, or a lower one to
    /// which the guard owes bytes. The guard applies between each level and all levels below it, so
    /// the lowest of three levels gets 5 % of 5 %.
    fn choose_level(&mut self, now: Time) -> Option<usize> {
        for level in &mut self.levels {
            level.ready = level.classes.iter().any(|class| class.is_ready(now));
        }
        let mut chosen = self.next_ready_level(0)?;
        while self.levels[chosen].guard_debt > 0
            && let Some(below) = self.next_ready_level(chosen + 1)
        {
            chosen = below;
        }
        Some(chosen)
    }

    fn next_ready_level(&self, from: usize) -> Option<usize> {
        (from..self.levels.len()).find(|&level| self.levels[level].ready)
    }

    /// Updates the guard's accounts after level `from` sent a packet. An account runs only while
    /// both sides have packets ready: a lower level neither pays for the time in which it had the
    /// link to itself nor earns credit while it was empty.
    fn update_guard(&mut self, from: usize, bytes: u32) {
        for index in 0..=from {
            let below = self.next_ready_level(index + 1).is_some();
            let level = &mut self.levels[index];
            if !level.ready || !below {
                level.guard_debt = level.guard_debt.min(0);
                continue;
            }
            level.guard_debt += GUARD_SHARE_PERCENT * i64::from(bytes);
            if index < from {
                level.guard_debt -= PERCENT * i64::from(bytes);
            }
        }
    }

    /// Returns the queue if there is one class only, in which case no scheduling is needed.
    #[inline]
    fn single_queue(&self) -> Option<&AnyQdisc<P>> {
        match self.levels.as_slice() {
            [level] if level.classes.len() == 1 => Some(&level.classes[0].queue),
            _ => None,
        }
    }

    #[inline]
    fn single_queue_mut(&mut self) -> Option<&mut AnyQdisc<P>> {
        match self.levels.as_mut_slice() {
            [level] if level.classes.len() == 1 => Some(&mut level.classes[0].queue),
            _ => None,
        }
    }

    fn all_classes(&self) -> impl Iterator<Item = &ClassQueue<P>> {
        self.levels.iter().flat_map(|level| &level.classes)
    }
}

impl<P: Packet> Level<P> {
    fn new(heaviest: u32) -> Level<P> {
        Level {
            classes: Vec::new(),
            next_class: 0,
            weight_max: i64::from(heaviest),
            guard_debt: 0,
            ready: false,
        }
    }

    /// Returns the next packet by deficit round robin, or `None` if the queues dropped everything
    /// that was ready.
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        // A pass without a packet ends with a new round, and each round sends or drops packets of
        // at least one class, so one round per class is enough.
        for _ in 0..=self.classes.len() {
            for _ in 0..self.classes.len() {
                let class = &mut self.classes[self.next_class];
                if class.allotment > 0 && class.is_ready(now) {
                    let packet = class.queue.dequeue(now, drops);
                    if let Some(packet) = &packet {
                        class.allotment -= i64::from(packet.bytes()) * self.weight_max;
                    }
                    if class.queue.backlog().packets == 0 {
                        // An idle class keeps no deficit, but it still has to pay back an
                        // overdraft.
                        class.allotment = class.allotment.min(0);
                    }
                    if packet.is_some() {
                        return packet;
                    }
                }
                self.next_class = (self.next_class + 1) % self.classes.len();
            }
            self.start_round(now);
        }
        None
    }

    /// Adds as many quanta to every ready class as the first of them needs to send again.
    fn start_round(&mut self, now: Time) {
        let waiting = || self.classes.iter().filter(|class| class.is_ready(now));
        let missing = waiting().map(|class| (-class.allotment).max(0) / class.quantum + 1);
        let Some(turns) = missing.min() else { return };
        for class in self.classes.iter_mut().filter(|class| class.is_ready(now)) {
            class.allotment += turns * class.quantum;
        }
        // Restarting at 0 keeps the order of the classes, so none has two turns in a row.
        self.next_class = 0;
    }
}

impl<P: Packet> ClassQueue<P> {
    fn is_ready(&self, now: Time) -> bool {
        self.queue.next_ready().is_some_and(|ready| ready <= now)
    }
}

impl<P: Packet> Qdisc<P> for Classes<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if let Some(only) = self.single_queue_mut() {
            return only.enqueue(now, packet, drops);
        }
        let (level, place) = self.positions[self.class_of(&packet)];
        self.levels[level].classes[place]
            .queue
            .enqueue(now, packet, drops)
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        if let Some(only) = self.single_queue_mut() {
            return only.dequeue(now, drops);
        }
        // If the queues of a level drop all their packets, the next level is tried.
        for _ in 0..=self.levels.len() {
            let level = self.choose_level(now)?;
            if let Some(packet) = self.levels[level].dequeue(now, drops) {
                self.update_guard(level, packet.bytes());
                return Some(packet);
            }
        }
        None
    }

    #[inline]
    fn next_ready(&self) -> Option<Time> {
        if let Some(only) = self.single_queue() {
            return only.next_ready();
        }
        self.all_classes()
            .filter_map(|class| class.queue.next_ready())
            .min()
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        if let Some(only) = self.single_queue() {
            return only.backlog();
        }
        let mut sum = Backlog::default();
        for class in self.all_classes() {
            let Backlog { packets, bytes } = class.queue.backlog();
            sum.packets += packets;
            sum.bytes += bytes;
        }
        sum
    }
}
