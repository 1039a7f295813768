//! Classes: strict levels, shares by weight within a level, and in each class a queue of its own
//! kind.
//!
//! [`Prio`](crate::Prio) has plain FIFOs in its bands and lets a low one starve. This is the
//! general form, as Linux' `ets` over other queues. Within a level turns go round by deficit
//! (Shreedhar and Varghese, Efficient Fair Queuing Using Deficit Round-Robin, SIGCOMM 1995). As in
//! SFQ, a class may overdraw its turn by a packet, and pays in the next.

use ccplane_units::{Duration, Rate, Time};

use crate::{AnyQdisc, Backlog, Drops, Packet, Qdisc, QueueSpec, QueueSpecError, Verdict};

/// While a level and one below it both have packets, those below get this many hundredths of the
/// bytes that leave: 5 %. Our choice; DualPI2 guards its classic queue with 10 % (RFC 9332, Linux'
/// `classic_protection`).
///
/// Too small, and what is below waits so long that its connections time out instead of going
/// slowly: at 5 % of 10 Mbit/s a full packet gets its turn every 24 ms, at 0.5 % every 240 ms,
/// which is beyond a TCP's least timeout of 200 ms. Too large, and the upper level is not served
/// first any more: it pays for every packet of the guard's with that packet's time.
const GUARD: i64 = 5;
/// The hundredths in a whole.
const WHOLE: i64 = 100;

/// As many as [`Packet::class`] can tell apart.
const MOST_CLASSES: usize = 256;

/// One class before its link is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSpec {
    /// 0 is served first.
    pub level: u8,
    /// Its share of what its level gets, against the weights of the level's other classes that have
    /// packets: from 1 to a million.
    pub weight: u32,
    /// The queue inside. A size in bandwidth-delay products is one of the whole link's.
    pub queue: QueueSpec,
}

impl ClassSpec {
    /// The largest weight: a packet's cost, its bytes times a weight, stays far from the end of a
    /// number.
    pub const MOST_WEIGHT: u32 = 1_000_000;
}

/// All classes, in the order of [`Packet::class`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassesSpec {
    /// At least one and at most 256, in any order of levels.
    pub classes: Vec<ClassSpec>,
}

impl From<QueueSpec> for ClassesSpec {
    /// One class, of all packets.
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
    /// The queue itself, for a link of `rate` with packets of at most `mtu` bytes on a path whose
    /// round trip takes `rtt` when nothing waits. Every class's queue draws its random numbers from
    /// a seed of its own, derived from `seed`.
    pub fn build<P: Packet>(
        &self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
        seed: u64,
    ) -> Result<Classes<P>, QueueSpecError> {
        if self.classes.is_empty() || self.classes.len() > MOST_CLASSES {
            let count = self.classes.len();
            return Err(QueueSpecError::Contradiction(format!(
                "there are {count} classes; give at least one and at most {MOST_CLASSES}"
            )));
        }
        let mut classes = Classes {
            levels: Vec::new(),
            places: Vec::new(),
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
            if !(1..=ClassSpec::MOST_WEIGHT).contains(&class.weight) {
                return Err(QueueSpecError::Contradiction(format!(
                    "class {index} has the weight {}; give it one from 1 to {}",
                    class.weight,
                    ClassSpec::MOST_WEIGHT
                )));
            }
            let queue = class
                .queue
                .build(rate, rtt, mtu, seed.wrapping_add(index))?;
            let level = levels.partition_point(|&level| level < class.level);
            let members = &mut classes.levels[level].classes;
            classes.places.push((level, members.len()));
            members.push(Class {
                queue,
                quantum: i64::from(class.weight) * i64::from(mtu.max(1)),
                allotment: 0,
            });
        }
        Ok(classes)
    }
}

/// Queues by class: a level is served while those above it have nothing that may leave, classes of
/// one level share by weight, and a guard of 5 % keeps the lower levels from starving.
/// [`Packet::class`] is the class; those beyond the last are in the last.
///
/// Work conserving: what a class cannot use, because it is empty, waits for a token or drops
/// everything, the next one gets, and nothing of it is saved up. A decision looks at every class:
/// made for some dozens, not for a class a flow.
#[derive(Clone, Debug)]
pub struct Classes<P> {
    /// From the highest.
    levels: Vec<Level<P>>,
    /// Of each class, its level and its place there.
    places: Vec<(usize, usize)>,
}

#[derive(Clone, Debug)]
struct Level<P> {
    classes: Vec<Class<P>>,
    /// Whose turn it is.
    turn: usize,
    /// What a byte costs a class: the largest weight, so that the heaviest class may send one
    /// largest packet in its turn. Less would only make more turns; more lets the others wait
    /// longer for theirs.
    heaviest: i64,
    /// What the guard owes the levels below, in hundredths of bytes; below zero what they have had
    /// too much.
    owed: i64,
    /// Something may leave now.
    ready: bool,
}

#[derive(Clone, Debug)]
struct Class<P> {
    queue: AnyQdisc<P>,
    /// What a turn adds to the allotment: largest packet × weight.
    quantum: i64,
    /// What it may still send in its turn: bytes × the level's largest weight.
    allotment: i64,
}

impl<P: Packet> Classes<P> {
    /// How many classes there are.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// The class that a packet is served in.
    #[inline]
    pub fn class_of(&self, packet: &P) -> usize {
        usize::from(packet.class()).min(self.places.len() - 1)
    }

    /// What waits in one class.
    pub fn class_backlog(&self, class: usize) -> Backlog {
        let place = self.places.get(class);
        place.map_or_else(Backlog::default, |&(level, place)| {
            self.levels[level].classes[place].queue.backlog()
        })
    }

    /// The level to serve at `now`: the highest with something to send, or one below it that is
    /// owed more than nothing. The guard holds between every level and all below it, so that the
    /// lowest of three gets its part of the guard's part.
    fn choose(&mut self, now: Time) -> Option<usize> {
        for level in &mut self.levels {
            level.ready = level.classes.iter().any(|class| class.may_send(now));
        }
        let mut chosen = self.next_ready_level(0)?;
        while self.levels[chosen].owed > 0
            && let Some(below) = self.next_ready_level(chosen + 1)
        {
            chosen = below;
        }
        Some(chosen)
    }

    fn next_ready_level(&self, from: usize) -> Option<usize> {
        (from..self.levels.len()).find(|&level| self.levels[level].ready)
    }

    /// A packet of this size has left from level `from`: keeps the guard's accounts. They run only
    /// where both sides could have sent; otherwise a time in which the lower levels had the line
    /// for themselves would be counted against them, or one in which they had nothing for them.
    fn account(&mut self, from: usize, bytes: u32) {
        for index in 0..=from {
            let below = self.next_ready_level(index + 1).is_some();
            let level = &mut self.levels[index];
            if !level.ready || !below {
                level.owed = level.owed.min(0);
                continue;
            }
            level.owed += GUARD * i64::from(bytes);
            if index < from {
                level.owed -= WHOLE * i64::from(bytes);
            }
        }
    }

    /// The queue of the only class: where there are no others there is nothing to decide.
    #[inline]
    fn only(&self) -> Option<&AnyQdisc<P>> {
        match self.levels.as_slice() {
            [level] if level.classes.len() == 1 => Some(&level.classes[0].queue),
            _ => None,
        }
    }

    #[inline]
    fn only_mut(&mut self) -> Option<&mut AnyQdisc<P>> {
        match self.levels.as_mut_slice() {
            [level] if level.classes.len() == 1 => Some(&mut level.classes[0].queue),
            _ => None,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Class<P>> {
        self.levels.iter().flat_map(|level| &level.classes)
    }
}

impl<P: Packet> Level<P> {
    fn new(heaviest: u32) -> Level<P> {
        Level {
            classes: Vec::new(),
            turn: 0,
            heaviest: i64::from(heaviest),
            owed: 0,
            ready: false,
        }
    }

    /// The next packet by deficit; `None` if the queues drop all that may leave.
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        // Each time nobody has anything left of his turn there is a new one, and after each
        // somebody sends or drops what he had.
        for _ in 0..=self.classes.len() {
            for _ in 0..self.classes.len() {
                let class = &mut self.classes[self.turn];
                if class.allotment > 0 && class.may_send(now) {
                    let packet = class.queue.dequeue(now, drops);
                    if let Some(packet) = &packet {
                        class.allotment -= i64::from(packet.bytes()) * self.heaviest;
                    }
                    if class.queue.backlog().packets == 0 {
                        // Nothing is saved up, and what was overdrawn is not forgiven.
                        class.allotment = class.allotment.min(0);
                    }
                    if packet.is_some() {
                        return packet;
                    }
                }
                self.turn = (self.turn + 1) % self.classes.len();
            }
            self.new_turns(now);
        }
        None
    }

    /// Gives every class that may send as many turns at once as it takes until one of them can.
    fn new_turns(&mut self, now: Time) {
        let waiting = || self.classes.iter().filter(|class| class.may_send(now));
        let missing = waiting().map(|class| (-class.allotment).max(0) / class.quantum + 1);
        let Some(turns) = missing.min() else { return };
        for class in self.classes.iter_mut().filter(|class| class.may_send(now)) {
            class.allotment += turns * class.quantum;
        }
        // In the same order every time, so that nobody has two turns in a row.
        self.turn = 0;
    }
}

impl<P: Packet> Class<P> {
    fn may_send(&self, now: Time) -> bool {
        self.queue.next_ready().is_some_and(|ready| ready <= now)
    }
}

impl<P: Packet> Qdisc<P> for Classes<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if let Some(only) = self.only_mut() {
            return only.enqueue(now, packet, drops);
        }
        let (level, place) = self.places[self.class_of(&packet)];
        self.levels[level].classes[place]
            .queue
            .enqueue(now, packet, drops)
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        if let Some(only) = self.only_mut() {
            return only.dequeue(now, drops);
        }
        // A level whose queues drop all that they have is done with, and the next one has its
        // chance.
        for _ in 0..=self.levels.len() {
            let level = self.choose(now)?;
            if let Some(packet) = self.levels[level].dequeue(now, drops) {
                self.account(level, packet.bytes());
                return Some(packet);
            }
        }
        None
    }

    #[inline]
    fn next_ready(&self) -> Option<Time> {
        if let Some(only) = self.only() {
            return only.next_ready();
        }
        self.all()
            .filter_map(|class| class.queue.next_ready())
            .min()
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        if let Some(only) = self.only() {
            return only.backlog();
        }
        let mut sum = Backlog::default();
        for class in self.all() {
            let Backlog { packets, bytes } = class.queue.backlog();
            sum.packets += packets;
            sum.bytes += bytes;
        }
        sum
    }
}
