//! Observing and changing a running emulation.

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
pub enum PathDirection {
    /// From sender to receiver.
    Forward,
    /// From receiver to sender.
    Reverse,
}

impl PathDirection {
    pub(crate) const ALL: [PathDirection; 2] = [PathDirection::Forward, PathDirection::Reverse];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for PathDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathDirection::Forward => "forward",
            PathDirection::Reverse => "reverse",
        })
    }
}

/// A handle to a running emulation; clones refer to the same one.
#[derive(Clone, Debug)]
pub struct EmuHandle(Arc<SharedControl>);

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Packets that arrived at the link.
    pub arrived: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Packets dropped by the queue.
    pub queue_drops: u64,
    /// Packets lost at random, or while the link was down.
    pub losses: u64,
    /// Packets delivered that the queue marked CE.
    pub marks: u64,
    /// Bytes in the queue.
    pub backlog_bytes: u64,
}

impl DirectionStats {
    /// Returns all counters in a fixed order.
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

impl EmuHandle {
    pub(crate) fn new(links: [&LinkConfig; 2]) -> Result<EmuHandle, Error> {
        let wake =
            EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map_err(|e| {
                Error::System {
                    what: "create an eventfd",
                    source: e.into(),
                }
            })?;
        Ok(EmuHandle(Arc::new(SharedControl {
            wake,
            stop: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            settings: Mutex::new(Settings {
                links: links.map(LinkConfig::clone),
                changes: Vec::new(),
            }),
            stats: Default::default(),
        })))
    }

    /// Returns the current configuration of a direction.
    pub fn link_config(&self, direction: PathDirection) -> LinkConfig {
        self.settings().links[direction.index()].clone()
    }

    /// Changes the line of a direction. Nothing is flushed: waiting packets are rescheduled. The
    /// queue keeps its size, even if it was given in BDP.
    pub fn set_line(&self, direction: PathDirection, line: LineSpec) -> Result<(), Error> {
        if line == LineSpec::Constant(Rate::from_bytes_per_sec(0)) {
            return Err(Error::ZeroRate { way: direction });
        }
        self.change(direction, |link| {
            link.line = line;
            LinkChange::Line(link.line.clone())
        });
        Ok(())
    }

    /// Changes the delay of a direction, for packets that have not left its queue. No packet
    /// overtakes another unless reordering is enabled.
    pub fn set_delay(&self, direction: PathDirection, delay: Duration) -> Result<(), Error> {
        let link = self.link_config(direction);
        LinkConfig { delay, ..link }.check(direction)?;
        self.change(direction, |link| {
            link.delay = delay;
            LinkChange::Delay(link.delay_model())
        });
        Ok(())
    }

    /// Changes the jitter of a direction, for packets that have not left its queue.
    pub fn set_jitter(&self, direction: PathDirection, jitter: Duration) -> Result<(), Error> {
        let link = self.link_config(direction);
        LinkConfig { jitter, ..link }.check(direction)?;
        self.change(direction, |link| {
            link.jitter = jitter;
            LinkChange::Delay(link.delay_model())
        });
        Ok(())
    }

    /// Changes the random loss of a direction, for future packets.
    pub fn set_loss(
        &self,
        direction: PathDirection,
        loss: impl Into<LossModel>,
    ) -> Result<(), Error> {
        let loss = loss.into();
        self.change(direction, |link| {
            link.loss = loss;
            LinkChange::Loss(loss)
        });
        Ok(())
    }

    /// Takes a direction down or up. While it is down, every new packet is lost, whatever the
    /// random loss. Packets waiting or in flight are still delivered.
    pub fn set_up(&self, direction: PathDirection, up: bool) {
        let mut settings = self.settings();
        settings.changes.push((direction, LinkChange::Up(up)));
        self.notify_changes(settings);
    }

    fn change(&self, direction: PathDirection, change: impl FnOnce(&mut LinkConfig) -> LinkChange) {
        let mut settings = self.settings();
        let change = change(&mut settings.links[direction.index()]);
        settings.changes.push((direction, change));
        self.notify_changes(settings);
    }

    /// Notifies the emulator of pending changes.
    fn notify_changes(&self, settings: MutexGuard<'_, Settings>) {
        self.0.pending.store(true, Ordering::Release);
        drop(settings);
        self.wake();
    }

    /// Returns the counters of a direction.
    pub fn stats(&self, direction: PathDirection) -> DirectionStats {
        let mut progress = DirectionStats::default();
        for (counter, published) in progress
            .counters()
            .into_iter()
            .zip(&self.0.stats[direction.index()])
        {
            *counter = published.load(Ordering::Relaxed);
        }
        progress
    }

    /// Publishes the counters, for every batch of packets. Never blocks on a reader, which may have
    /// been descheduled.
    pub(crate) fn publish(&self, direction: PathDirection, mut stats: DirectionStats) {
        for (published, counter) in self.0.stats[direction.index()].iter().zip(stats.counters()) {
            published.store(*counter, Ordering::Relaxed);
        }
    }

    pub(crate) fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Acquire)
    }

    /// Resets the wake-up descriptor until the next change.
    pub(crate) fn clear_wakeup(&self) {
        // If it is not readable there is nothing to reset.
        let _ = self.0.wake.read();
    }

    /// Returns the changes since the last call, in order. Called for every packet: a single load if
    /// there are none.
    pub(crate) fn take_changes(&self) -> Vec<(PathDirection, LinkChange)> {
        if !self.0.pending.load(Ordering::Acquire) || !self.0.pending.swap(false, Ordering::AcqRel)
        {
            return Vec::new();
        }
        std::mem::take(&mut self.settings().changes)
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        // Nothing panics while holding the lock, and a partial change would be harmless.
        self.0
            .settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only if the counter is full, when a wake-up is pending already.
        let _ = self.0.wake.write(1);
    }
}

impl AsFd for EmuHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

/// A change of a running link.
#[derive(Clone, Debug)]
pub(crate) enum LinkChange {
    Line(LineSpec),
    Delay(DelayModel),
    Loss(LossModel),
    Up(bool),
}

#[derive(Debug)]
struct SharedControl {
    /// Readable if there are changes or a stop request.
    wake: EventFd,
    stop: AtomicBool,
    pending: AtomicBool,
    settings: Mutex<Settings>,
    /// By [`PathDirection`], in the order of [`DirectionStats::counters`].
    stats: [[AtomicU64; 7]; 2],
}

#[derive(Debug)]
struct Settings {
    /// Configuration including pending changes.
    links: [LinkConfig; 2],
    /// Changes not yet taken by the emulator.
    changes: Vec<(PathDirection, LinkChange)>,
}
