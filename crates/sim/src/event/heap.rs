//! 4-ary heap: half as deep as a binary heap, and four siblings share a cache line.

use super::SimEvent;

/// Min-heap of events. [`pop`](Heap::pop) leaves the root open for the next [`push`](Heap::push),
/// which follows most events and then skips moving the last leaf to the root and down again.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    events: Vec<SimEvent>,
    open: bool,
}

impl Heap {
    pub fn memory(&self) -> usize {
        self.events.capacity() * size_of::<SimEvent>()
    }

    #[inline]
    pub fn push(&mut self, event: SimEvent) {
        if self.open {
            self.open = false;
            self.sift_down(event);
        } else {
            self.events.push(event);
            self.sift_up(event);
        }
    }

    /// Removes the first event if its time is at most `until` ns.
    #[inline]
    pub fn pop(&mut self, until: u64) -> Option<SimEvent> {
        let first = self.first().filter(|first| first.nanos() <= until)?;
        self.open = true;
        Some(first)
    }

    /// Returns the first event without removing it.
    #[inline]
    pub fn first(&mut self) -> Option<SimEvent> {
        if self.open {
            self.open = false;
            let last = self.events.pop()?;
            if !self.events.is_empty() {
                self.sift_down(last);
            }
        }
        self.events.first().copied()
    }

    #[inline]
    fn sift_down(&mut self, event: SimEvent) {
        let events = &mut self.events[..];
        let mut at = 0;
        loop {
            let child = 4 * at + 1;
            let (least, which) = match events.get(child..child + 4) {
                Some(&[a, b, c, d]) => {
                    let (ab, x) = if b < a { (b, child + 1) } else { (a, child) };
                    let (cd, y) = if d < c {
                        (d, child + 3)
                    } else {
                        (c, child + 2)
                    };
                    if cd < ab { (cd, y) } else { (ab, x) }
                }
                _ => match events
                    .get(child..)
                    .unwrap_or_default()
                    .iter()
                    .zip(child..)
                    .min()
                {
                    Some((least, which)) => (*least, which),
                    None => break,
                },
            };
            if event <= least {
                break;
            }
            events[at] = least;
            at = which;
        }
        events[at] = event;
    }

    #[inline]
    fn sift_up(&mut self, event: SimEvent) {
        let events = &mut self.events[..];
        let mut at = events.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 4;
            if events[parent] <= event {
                break;
            }
            events[at] = events[parent];
            at = parent;
        }
        events[at] = event;
    }
}
