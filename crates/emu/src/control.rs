//! Watching and changing an emulation while it runs.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_qdisc::{DelayModel, LineSpec, LossModel};
use ccplane_units::{Duration, Rate};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{Error, LinkConfig};

/// A direction of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the sender to the receiver.
    Forward,
    /// From the receiver to the sender.
    Reverse,
}

impl Way {
    pub(crate) const BOTH: [Way; 2] = [Way::Forward, Way::Reverse];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Forward => "forward",
            Way::Reverse => "reverse",
        })
    }
}

/// A handle to a running emulation; clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

/// What one direction has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets that came to the link.
    pub arrived: u64,
    /// Packets handed over.
    pub delivered: u64,
    /// Bytes handed over.
    pub delivered_bytes: u64,
    /// Packets that the queue dropped.
    pub queue_drops: u64,
    /// Packets lost at random, or while the link was down.
    pub losses: u64,
    /// Packets delivered with a mark of the queue.
    pub marks: u64,
    /// Bytes that have not left the queue.
    pub backlog_bytes: u64,
}

impl Progress {
    /// All of them, always in the same order.
    fn counters(&mut self) -> [&mut u64; 7] {
        [
            &mut self.arrived,
            &mut self.delivered,
            &mut self.delivered_bytes,
            &mut self.queue_drops,
            &mut self.losses,
            &mut self.marks,
            &mut self.backlog_bytes,
        ]
    }
}

impl Control {
    pub(crate) fn new(links: [&LinkConfig; 2]) -> Result<Control, Error> {
        let wake =
            EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map_err(|e| {
                Error::System {
                    what: "make an event descriptor",
                    source: e.into(),
                }
            })?;
        Ok(Control(Arc::new(Shared {
            wake,
            stop: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            settings: Mutex::new(Settings {
                links: links.map(LinkConfig::clone),
                changes: Vec::new(),
            }),
            progress: Default::default(),
        })))
    }

    /// A direction as it is now.
    pub fn link(&self, way: Way) -> LinkConfig {
        self.settings().links[way.index()].clone()
    }

    /// Changes the rate of a direction. Nothing is flushed: what waits is planned anew. The queue
    /// keeps its size, also one that was given in BDP.
    pub fn set_line(&self, way: Way, line: LineSpec) -> Result<(), Error> {
        if line == LineSpec::Constant(Rate::from_bytes_per_sec(0)) {
            return Err(Error::ZeroRate { way });
        }
        self.change(way, |link| {
            link.line = line;
            Change::Line(link.line.clone())
        });
        Ok(())
    }

    /// Changes the delay of a direction, for all that has not left its queue. Nothing overtakes,
    /// unless it is to.
    pub fn set_delay(&self, way: Way, delay: Duration) -> Result<(), Error> {
        let link = self.link(way);
        LinkConfig { delay, ..link }.check(way)?;
        self.change(way, |link| {
            link.delay = delay;
            Change::Delay(link.delay_model())
        });
        Ok(())
    }

    /// Changes how far a packet's delay may be from the mean, for all that has not left the queue.
    pub fn set_jitter(&self, way: Way, jitter: Duration) -> Result<(), Error> {
        let link = self.link(way);
        LinkConfig { jitter, ..link }.check(way)?;
        self.change(way, |link| {
            link.jitter = jitter;
            Change::Delay(link.delay_model())
        });
        Ok(())
    }

    /// Changes the random loss of a direction, for the packets to come.
    pub fn set_loss(&self, way: Way, loss: impl Into<LossModel>) -> Result<(), Error> {
        let loss = loss.into();
        self.change(way, |link| {
            link.loss = loss;
            Change::Loss(loss)
        });
        Ok(())
    }

    /// Takes a direction down, or up again. While it is down every new packet is lost, whatever the
    /// random loss. What waits or is in flight still arrives.
    pub fn set_up(&self, way: Way, up: bool) {
        let mut settings = self.settings();
        settings.changes.push((way, Change::Up(up)));
        self.announce(settings);
    }

    fn change(&self, way: Way, change: impl FnOnce(&mut LinkConfig) -> Change) {
        let mut settings = self.settings();
        let change = change(&mut settings.links[way.index()]);
        settings.changes.push((way, change));
        self.announce(settings);
    }

    /// There are changes to take.
    fn announce(&self, settings: MutexGuard<'_, Settings>) {
        self.0.pending.store(true, Ordering::Release);
        drop(settings);
        self.wake();
    }

    /// What a direction has done so far.
    pub fn progress(&self, way: Way) -> Progress {
        let mut progress = Progress::default();
        for (counter, published) in progress
            .counters()
            .into_iter()
            .zip(&self.0.progress[way.index()])
        {
            *counter = published.load(Ordering::Relaxed);
        }
        progress
    }

    /// Called for every batch of packets: it never waits for who reads, who may have lost the
    /// processor meanwhile.
    pub(crate) fn publish(&self, way: Way, mut progress: Progress) {
        for (published, counter) in self.0.progress[way.index()].iter().zip(progress.counters()) {
            published.store(*counter, Ordering::Relaxed);
        }
    }

    pub(crate) fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.0.stop.load(Ordering::Acquire)
    }

    /// Makes the descriptor unreadable until the next change.
    pub(crate) fn awake(&self) {
        // Not readable means that there is nothing to reset.
        let _ = self.0.wake.read();
    }

    /// Changes asked for since the last call, in order. Called for every packet: a load where there
    /// is none.
    pub(crate) fn take_changes(&self) -> Vec<(Way, Change)> {
        if !self.0.pending.load(Ordering::Acquire) || !self.0.pending.swap(false, Ordering::AcqRel)
        {
            return Vec::new();
        }
        std::mem::take(&mut self.settings().changes)
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        // Nothing panics while it holds the lock, and half a change would do no harm.
        self.0
            .settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only when the counter is full, and then the emulator is being woken already.
        let _ = self.0.wake.write(1);
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

/// What may change while packets fly.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Line(LineSpec),
    Delay(DelayModel),
    Loss(LossModel),
    Up(bool),
}

#[derive(Debug)]
struct Shared {
    /// Readable when there is something to do besides packets.
    wake: EventFd,
    stop: AtomicBool,
    pending: AtomicBool,
    settings: Mutex<Settings>,
    /// By [`Way`], in the order of [`Progress::counters`].
    progress: [[AtomicU64; 7]; 2],
}

#[derive(Debug)]
struct Settings {
    /// As they are, or will be once the changes are taken.
    links: [LinkConfig; 2],
    /// What the emulator has not taken yet.
    changes: Vec<(Way, Change)>,
}
