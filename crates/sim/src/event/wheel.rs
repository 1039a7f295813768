//! Timing wheel: an array of time slots, each sorted when it is reached.
//!
//! The first ring has 4096 slots, whose width is a power of two in ns. The second ring has 4096
//! slots, each as long as the first ring. Later events wait in a heap. An event moves at most
//! twice. The slot width adapts to the event density so that a slot holds a few events: wide slots
//! take long to sort, and narrow slots are mostly empty.

use super::SimEvent;
use super::heap::Heap;

const SLOT_BITS: u32 = 12;
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_MASK: u64 = SLOTS as u64 - 1;
/// Initial width as a power of two in ns: 64 ns is half a packet at 100 Gbit/s.
const SLOT_WIDTH_INITIAL_LOG2_NS: u32 = 6;
/// Maximum width, 2^20 ns: the second ring then spans 5 hours.
const SLOT_WIDTH_MAX_LOG2_NS: u32 = 20;
const NO_NODE: u32 = u32::MAX;

/// Timing wheel; see the module.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Slot width of the first ring: 2^`width` ns.
    width: u32,
    /// Current slot, counted from time 0. Events scheduled into it go to `open`.
    now: u64,
    /// Events of the slot `now`, sorted with the next one last.
    current: Vec<SimEvent>,
    near: TimerWheel,
    nodes: Nodes,
    later: TimerWheel,
    far: Heap,
    /// Number of events removed so far.
    popped: u64,
    /// Statistics since the width was last adapted: `popped` at that time, turns of the ring,
    /// events in shared slots, and number of shared slots.
    popped_at_adaptation: u64,
    turns: u32,
    shared_slot_events: u32,
    shared_slots: u32,
}

/// Linked lists of events, newest first.
#[derive(Debug)]
struct Nodes {
    nodes: Vec<WheelNode>,
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct WheelNode {
    high: u64,
    low: u64,
    next: u32,
}

/// One list of events per slot.
#[derive(Debug)]
struct TimerWheel {
    heads: Box<[u32; SLOTS]>,
    /// Bitmap of the slots that are not empty.
    full: [u64; SLOTS / 64],
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel {
            width: SLOT_WIDTH_INITIAL_LOG2_NS,
            now: 0,
            current: Vec::new(),
            near: TimerWheel::default(),
            nodes: Nodes {
                nodes: Vec::new(),
                free: NO_NODE,
            },
            later: TimerWheel::default(),
            far: Heap::default(),
            popped: 0,
            popped_at_adaptation: 0,
            turns: 0,
            shared_slot_events: 0,
            shared_slots: 0,
        }
    }
}

impl Wheel {
    /// Returns the number of events removed so far.
    pub fn popped(&self) -> u64 {
        self.popped
    }

    pub fn memory(&self) -> usize {
        size_of::<Wheel>()
            + 2 * size_of::<[u32; SLOTS]>()
            + self.current.capacity() * size_of::<SimEvent>()
            + self.nodes.nodes.capacity() * size_of::<WheelNode>()
            + self.far.memory()
    }

    #[inline(always)]
    pub fn push(&mut self, event: SimEvent) {
        let slot = event.nanos() >> self.width;
        // Past and current slots wrap to large numbers.
        if slot.wrapping_sub(self.now).wrapping_sub(1) < SLOT_MASK {
            self.near.push(slot, event, &mut self.nodes);
        } else {
            self.push_slow_path(slot, event);
        }
    }

    /// Removes the first event if its time is at most `until` ns.
    #[inline(always)]
    pub fn pop(&mut self, until: u64) -> Option<SimEvent> {
        if self.current.is_empty() {
            if let Some((slot, event)) = self.next_single() {
                if event.nanos() > until {
                    return None;
                }
                self.now = slot;
                self.popped += 1;
                let id = self.near.clear(slot);
                self.nodes.release(id);
                return Some(event);
            }
            if !self.refill(until) {
                return None;
            }
        }
        let first = self.current.pop_if(|first| first.nanos() <= until)?;
        self.popped += 1;
        Some(first)
    }

    #[cold]
    #[inline(never)]
    fn push_slow_path(&mut self, slot: u64, event: SimEvent) {
        if slot <= self.now {
            return self.push_open(event);
        }
        let (turn, now) = (slot >> SLOT_BITS, self.now >> SLOT_BITS);
        if turn - now < SLOTS as u64 {
            self.later.push(turn, event, &mut self.nodes);
        } else {
            self.far.push(event);
        }
    }

    /// Inserts an event into the sorted current slot.
    fn push_open(&mut self, event: SimEvent) {
        let at = self.current.partition_point(|other| *other > event);
        self.current.insert(at, event);
    }

    /// Returns the next slot of this turn if it holds exactly one event, and the event.
    #[inline(always)]
    fn next_single(&self) -> Option<(u64, SimEvent)> {
        // Only the rest of the current turn of the first ring.
        let slot = self.near.next((self.now & SLOT_MASK) + 1)?;
        let node = &self.nodes.nodes[self.near.heads[slot as usize] as usize];
        (node.next == NO_NODE).then(|| ((self.now & !SLOT_MASK) | slot, node.event()))
    }

    /// Opens the next non-empty slot that begins by `until`.
    #[inline(never)]
    fn refill(&mut self, until: u64) -> bool {
        while self.current.is_empty() {
            if let Some(slot) = self.near.next((self.now & SLOT_MASK) + 1) {
                let slot = (self.now & !SLOT_MASK) | slot;
                if slot << self.width > until {
                    return false;
                }
                self.open_slot(slot);
                if self.current.len() > 1 {
                    self.shared_slots += 1;
                    self.shared_slot_events += self.current.len() as u32;
                }
            } else {
                let Some(turn) = self
                    .next_turn()
                    .filter(|turn| (turn << SLOT_BITS) << self.width <= until)
                else {
                    return false;
                };
                // A new width changes the slots, so look again.
                if !self.adapt_width() {
                    self.start_turn(turn);
                }
            }
        }
        true
    }

    fn open_slot(&mut self, slot: u64) {
        self.now = slot;
        self.near
            .drain_slot(slot, &mut self.nodes, &mut self.current);
        self.current.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn next_turn(&mut self) -> Option<u64> {
        let now = self.now >> SLOT_BITS;
        if self.near.next(0).is_some() {
            // The first ring reaches less than one turn ahead.
            return Some(now + 1);
        }
        let later = match self.later.next((now & SLOT_MASK) + 1) {
            Some(slot) => Some((now & !SLOT_MASK) | slot),
            None => self
                .later
                .next(0)
                .map(|slot| ((now & !SLOT_MASK) + SLOTS as u64) | slot),
        };
        let far = self
            .far
            .first()
            .map(|first| first.nanos() >> (self.width + SLOT_BITS));
        later.into_iter().chain(far).min()
    }

    /// Starts a turn of the first ring: distributes the events of this turn from the second ring
    /// and the heap over its slots.
    fn start_turn(&mut self, turn: u64) {
        // The first slot of the turn becomes the current one.
        self.open_slot(turn << SLOT_BITS);
        let mut events = Vec::new();
        self.later.drain_slot(turn, &mut self.nodes, &mut events);
        let end = (turn + 1) << (SLOT_BITS + self.width);
        while let Some(event) = self.far.pop(end - 1) {
            events.push(event);
        }
        for event in events {
            self.push(event);
        }
    }

    /// Adapts the width if slots hold many events or turns hold few. Returns true if it changed.
    fn adapt_width(&mut self) -> bool {
        self.turns += 1;
        let taken = self.popped - self.popped_at_adaptation;
        // Requires some turns, or very many events, for a decision.
        if self.turns < 16 && taken < 1 << 16 {
            return false;
        }
        let slots =
            taken.saturating_sub(u64::from(self.shared_slot_events)) + u64::from(self.shared_slots);
        let (a_slot, a_turn) = (taken / slots.max(1), taken / u64::from(self.turns));
        (
            self.popped_at_adaptation,
            self.turns,
            self.shared_slot_events,
            self.shared_slots,
        ) = (self.popped, 0, 0, 0);
        let width = match a_slot {
            8.. if self.width >= 2 => self.width - 2,
            ..2 if a_turn < 256 && self.width + 2 <= SLOT_WIDTH_MAX_LOG2_NS => self.width + 2,
            _ => return false,
        };
        let now = self.now << self.width;
        let mut events = std::mem::take(&mut self.current);
        for ring in [&mut self.near, &mut self.later] {
            while let Some(slot) = ring.next(0) {
                ring.drain_slot(slot, &mut self.nodes, &mut events);
            }
        }
        while let Some(event) = self.far.pop(u64::MAX) {
            events.push(event);
        }
        self.width = width;
        self.now = now >> width;
        for event in events {
            self.push(event);
        }
        true
    }
}

impl WheelNode {
    #[inline(always)]
    fn event(&self) -> SimEvent {
        SimEvent(u128::from(self.high) << 64 | u128::from(self.low))
    }
}

impl Nodes {
    #[inline(always)]
    fn add(&mut self, event: SimEvent, next: u32) -> u32 {
        let node = WheelNode {
            high: (event.0 >> 64) as u64,
            low: event.0 as u64,
            next,
        };
        let id = self.free;
        match self.nodes.get_mut(id as usize) {
            Some(place) => {
                self.free = place.next;
                *place = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    #[inline(always)]
    fn release(&mut self, id: u32) {
        self.nodes[id as usize].next = self.free;
        self.free = id;
    }
}

impl Default for TimerWheel {
    fn default() -> TimerWheel {
        TimerWheel {
            heads: Box::new([NO_NODE; SLOTS]),
            full: [0; SLOTS / 64],
        }
    }
}

impl TimerWheel {
    #[inline(always)]
    fn push(&mut self, slot: u64, event: SimEvent, nodes: &mut Nodes) {
        let index = (slot & SLOT_MASK) as usize;
        let head = &mut self.heads[index];
        *head = nodes.add(event, *head);
        self.full[index / 64] |= 1 << (index % 64);
    }

    /// Returns the first non-empty slot from `index` on.
    #[inline(always)]
    fn next(&self, index: u64) -> Option<u64> {
        let mut word = (index / 64) as usize;
        let mut rest = self.full.get(word)? & (u64::MAX << (index % 64));
        // The adapted width keeps the next non-empty slot close.
        while rest == 0 {
            word += 1;
            rest = *self.full.get(word)?;
        }
        Some(word as u64 * 64 + u64::from(rest.trailing_zeros()))
    }

    /// Moves the events of a slot to `to`.
    fn drain_slot(&mut self, slot: u64, nodes: &mut Nodes, to: &mut Vec<SimEvent>) {
        let mut at = self.clear(slot);
        while at != NO_NODE {
            let node = nodes.nodes[at as usize];
            to.push(node.event());
            nodes.release(at);
            at = node.next;
        }
    }

    /// Empties a slot and returns the head of its list.
    #[inline(always)]
    fn clear(&mut self, slot: u64) -> u32 {
        let index = (slot & SLOT_MASK) as usize;
        self.full[index / 64] &= !(1 << (index % 64));
        std::mem::replace(&mut self.heads[index], NO_NODE)
    }
}
