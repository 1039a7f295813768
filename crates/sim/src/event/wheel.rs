//! A timing wheel: slots of time, sorted when their turn comes.
//!
//! The first ring has 4096 slots, each some nanoseconds wide (a power of two); the second has 4096 slots, each as long as
//! the first ring; what lies beyond waits in a heap. An event moves at most twice on its way. The width follows the
//! density of events, so that a slot holds a few: too wide and slots take long to sort, too narrow and most are empty.

use super::Event;
use super::heap::Heap;

const BITS: u32 = 12;
const SLOTS: usize = 1 << BITS;
const MASK: u64 = SLOTS as u64 - 1;
/// The width at first, as a power of two in ns: 64 ns is a packet at 200 Gbit/s.
const WIDTH: u32 = 6;
/// The width stays below 2^20 ns, so that the second ring stays below 5 hours.
const WIDEST: u32 = 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Width of a slot of the first ring: 2^`width` ns.
    width: u32,
    /// The slot, counted from time 0, whose events are in `open`.
    now: u64,
    /// Events of the slot `now`, the next one last.
    open: Vec<Event>,
    near: Ring,
    later: Ring,
    far: Heap,
    len: usize,
    /// Events, slots and turns since the width was last judged.
    taken: u32,
    opened: u32,
    turns: u32,
}

#[derive(Debug)]
struct Ring {
    slots: Vec<Vec<Event>>,
    /// Which slots hold anything, and which words of that do.
    full: [u64; SLOTS / 64],
    words: u64,
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel {
            width: WIDTH,
            now: 0,
            open: Vec::new(),
            near: Ring::default(),
            later: Ring::default(),
            far: Heap::default(),
            len: 0,
            taken: 0,
            opened: 0,
            turns: 0,
        }
    }
}

impl Wheel {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn memory(&self) -> usize {
        let open = self.open.capacity() * size_of::<Event>();
        size_of::<Wheel>() + open + self.near.memory() + self.later.memory() + self.far.memory()
    }

    /// Takes events in when it is empty.
    pub fn fill(&mut self, events: impl Iterator<Item = Event>) {
        let events: Vec<Event> = events.collect();
        self.now = events.iter().min().map_or(0, |first| first.nanos() >> self.width);
        self.len = 0;
        for event in events {
            self.push(event);
        }
    }

    /// Takes all, in no order.
    pub fn drain(&mut self) -> Vec<Event> {
        let mut all = std::mem::take(&mut self.open);
        for ring in [&mut self.near, &mut self.later] {
            while let Some(slot) = ring.next(0) {
                all.append(ring.take(slot));
            }
        }
        all.extend(self.far.drain());
        self.len = 0;
        all
    }

    #[inline]
    pub fn push(&mut self, event: Event) {
        self.len += 1;
        let slot = event.nanos() >> self.width;
        if slot <= self.now {
            self.push_open(event);
        } else if slot - self.now < SLOTS as u64 {
            self.near.push(slot, event);
        } else {
            self.push_later(slot, event);
        }
    }

    /// The first event, if its time is at most `until` ns.
    #[inline]
    pub fn pop(&mut self, until: u64) -> Option<Event> {
        if self.open.is_empty() {
            self.advance(until)?;
        }
        let first = self.open.pop_if(|first| first.nanos() <= until)?;
        self.len -= 1;
        Some(first)
    }

    /// An event of the slot that is being emptied takes its place among the others.
    fn push_open(&mut self, event: Event) {
        let at = self.open.partition_point(|other| *other > event);
        self.open.insert(at, event);
    }

    #[cold]
    fn push_later(&mut self, slot: u64, event: Event) {
        let (turn, now) = (slot >> BITS, self.now >> BITS);
        if turn - now < SLOTS as u64 {
            self.later.push(turn, event);
        } else {
            self.far.push(event);
        }
    }

    /// Opens the next slot that holds anything and begins by `until`.
    fn advance(&mut self, until: u64) -> Option<()> {
        if self.len == 0 {
            return None;
        }
        while self.open.is_empty() {
            // What is left of this turn of the first ring.
            let index = self.now & MASK;
            if let Some(slot) = self.near.next(index + 1) {
                let slot = (self.now & !MASK) | slot;
                if slot << self.width > until {
                    return None;
                }
                self.now = slot;
                self.opened += 1;
                std::mem::swap(&mut self.open, self.near.take(slot & MASK));
                self.taken += self.open.len() as u32;
                self.open.sort_unstable_by(|a, b| b.cmp(a));
                break;
            }
            let turn = self.next_turn()?;
            if (turn << BITS) << self.width > until {
                return None;
            }
            // Another width would make another turn of it.
            if !self.judge() {
                self.turn(turn);
            }
        }
        Some(())
    }

    /// The next turn of the first ring in which anything happens.
    fn next_turn(&mut self) -> Option<u64> {
        let now = self.now >> BITS;
        if self.near.words != 0 {
            // The ring reaches less than one turn ahead.
            return Some(now + 1);
        }
        let index = now & MASK;
        let later = match self.later.next(index + 1) {
            Some(slot) => Some((now & !MASK) | slot),
            None => self.later.next(0).map(|slot| ((now & !MASK) + SLOTS as u64) | slot),
        };
        let far = self.far.first().map(|first| first.nanos() >> (self.width + BITS));
        later.into_iter().chain(far).min()
    }

    /// Begins a turn of the first ring: events of the second ring and the heap that belong to it are put in their slots.
    fn turn(&mut self, turn: u64) {
        self.now = turn << BITS;
        let mut events = std::mem::take(self.later.take(turn & MASK));
        for event in events.drain(..) {
            self.place(event);
        }
        // The buffer is kept for the turns to come.
        *self.later.slot(turn & MASK) = events;
        let end = (turn + 1) << (BITS + self.width);
        while let Some(event) = self.far.pop(end - 1) {
            self.place(event);
        }
        // What the first slot held already.
        if self.near.holds(self.now & MASK) {
            self.open.append(self.near.take(self.now & MASK));
            self.open.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    /// Puts an event of this turn in its slot.
    fn place(&mut self, event: Event) {
        let slot = event.nanos() >> self.width;
        match slot <= self.now {
            true => self.push_open(event),
            false => self.near.push(slot, event),
        }
    }

    /// Changes the width where slots hold many events, or whole turns hold few; says whether it did.
    fn judge(&mut self) -> bool {
        self.turns += 1;
        // Enough to judge by: some turns, or a great many events.
        if self.turns < 16 && self.taken < 1 << 16 {
            return false;
        }
        let (a_slot, a_turn) = (self.taken / self.opened.max(1), self.taken / self.turns);
        (self.taken, self.opened, self.turns) = (0, 0, 0);
        let width = match a_slot {
            24.. if self.width >= 2 => self.width - 2,
            ..4 if a_turn < 256 && self.width + 2 <= WIDEST => self.width + 2,
            _ => return false,
        };
        let now = self.now << self.width;
        let events = self.drain();
        self.width = width;
        self.now = now >> width;
        for event in events {
            self.push(event);
        }
        true
    }
}

impl Default for Ring {
    fn default() -> Ring {
        Ring {
            slots: vec![Vec::new(); SLOTS],
            full: [0; SLOTS / 64],
            words: 0,
        }
    }
}

impl Ring {
    #[inline]
    fn push(&mut self, slot: u64, event: Event) {
        let index = (slot & MASK) as usize;
        self.slots[index].push(event);
        self.full[index / 64] |= 1 << (index % 64);
        self.words |= 1 << (index / 64);
    }

    fn holds(&self, index: u64) -> bool {
        self.full[index as usize / 64] & (1 << (index % 64)) != 0
    }

    /// The first slot that holds anything, from `index` on.
    #[inline]
    fn next(&self, index: u64) -> Option<u64> {
        let index = index as usize;
        let word = index / 64;
        let rest = self.full.get(word)? & (u64::MAX << (index % 64));
        if rest != 0 {
            return Some((word * 64) as u64 + u64::from(rest.trailing_zeros()));
        }
        let words = self.words & u64::MAX.checked_shl(word as u32 + 1).unwrap_or(0);
        if words == 0 {
            return None;
        }
        let word = words.trailing_zeros() as usize;
        Some((word * 64) as u64 + u64::from(self.full[word].trailing_zeros()))
    }

    /// The events of a slot, which is empty after they have been taken out of what this returns.
    #[inline]
    fn take(&mut self, index: u64) -> &mut Vec<Event> {
        let index = index as usize;
        let word = &mut self.full[index / 64];
        *word &= !(1 << (index % 64));
        if *word == 0 {
            self.words &= !(1 << (index / 64));
        }
        &mut self.slots[index]
    }

    fn slot(&mut self, index: u64) -> &mut Vec<Event> {
        &mut self.slots[index as usize]
    }

    fn memory(&self) -> usize {
        let slots: usize = self.slots.iter().map(|slot| slot.capacity() * size_of::<Event>()).sum();
        slots + SLOTS * size_of::<Vec<Event>>()
    }
}
