//! The thread that moves packets between the devices and the links, in real time.

use std::os::fd::AsFd;

use ccplane_tun::Tun;
use ccplane_units::{Duration, Time};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::audit::Lateness;
use crate::clock::Clock;
use crate::control::{Change, Control, Progress, Way};
use crate::direction::Direction;
use crate::log::Summary;
use crate::{Error, Timing};

/// Packets read from one device before the other gets its turn, and due packets are delivered.
const BATCH: usize = 32;

/// How long before a packet is due `Timing::Precise` ends a long sleep: a processor that has been idle for
/// milliseconds wakes up to 0.3 ms late on a virtual machine.
const WAKE: Duration = Duration::from_micros(300);
/// And how long before it ends a short one, to spin for the rest: shorter, and late wake-ups show; longer, and at
/// 96 Mbit/s (a packet every 125 µs) it would never sleep, so that the kernel would stop this thread now and then to let
/// others run.
const SPIN: Duration = Duration::from_micros(75);
/// What makes a sleep a long one.
const LONG: Duration = Duration::from_millis(1);

/// Both directions and the devices at their ends.
pub(crate) struct Driver {
    pub(crate) clock: Clock,
    pub(crate) timing: Timing,
    pub(crate) mtu: usize,
    pub(crate) control: Control,
    /// By [`Way`]: the device at the end where the direction begins.
    pub(crate) devices: [Tun; 2],
    /// By [`Way`].
    pub(crate) links: [Direction; 2],
    pub(crate) lateness: Lateness,
    /// Packets dropped for want of memory or because a device refused them.
    pub(crate) own_drops: u64,
}

impl Driver {
    /// Works until it is told to stop.
    pub(crate) fn run(mut self) -> Result<Driver, Error> {
        // Without the privilege the emulator still works, only later; the audit tells.
        let _ = ccplane_tun::raise_priority();
        // Timers of a normal thread may fire 50 µs late by default.
        let _ = nix::sys::prctl::set_timerslack(1);
        while !self.control.stopped() {
            self.apply_changes();
            for way in Way::BOTH {
                self.deliver(way);
            }
            for way in self.wait()? {
                self.collect(way)?;
            }
        }
        Ok(self)
    }

    fn apply_changes(&mut self) {
        for (way, change) in self.control.take_changes() {
            let now = self.clock.now();
            let link = &mut self.links[way.index()];
            match change {
                Change::Line(line) => link.set_line(now, &line),
                Change::Delay(delay) => link.set_delay(now, delay),
                Change::Loss(probability) => link.set_loss(probability),
            }
        }
    }

    /// Hands over what is due.
    fn deliver(&mut self, way: Way) {
        let link = &mut self.links[way.index()];
        let device = &self.devices[1 - way.index()];
        let mut now = self.clock.now();
        let mut count = 0;
        while let Some(due) = link.next_due()
            && due <= now
            && count < BATCH
        {
            let Some(packet) = link.oldest() else { break };
            if device.write(packet).is_err() {
                self.own_drops += 1;
            }
            link.delivered();
            self.lateness.record(now.since(due));
            now = self.clock.now();
            count += 1;
        }
        if count > 0 {
            self.publish(way);
        }
    }

    /// Takes in what its sender has sent.
    fn collect(&mut self, way: Way) -> Result<(), Error> {
        let device = &self.devices[way.index()];
        let link = &mut self.links[way.index()];
        for _ in 0..BATCH {
            let failed = |source| Error::System {
                what: "read from a TUN device",
                source,
            };
            let Some(room) = link.room(self.mtu) else {
                let mut nowhere = [0];
                if device.read(&mut nowhere).map_err(failed)?.is_none() {
                    break;
                }
                self.own_drops += 1;
                continue;
            };
            let Some(length) = device.read(room).map_err(failed)? else {
                break;
            };
            let packet = room.get(..length).unwrap_or_default();
            // What the kernel says to its neighbours on a link of its own would only disturb the count of packets.
            if is_multicast_v6(packet) {
                continue;
            }
            let summary = Summary::of(packet);
            link.arrive(self.clock.now(), summary);
        }
        self.publish(way);
        Ok(())
    }

    fn publish(&self, way: Way) {
        let link = &self.links[way.index()];
        let log = link.log();
        self.control.publish(
            way,
            Progress {
                arrived: log.arrived,
                delivered: log.delivered,
                delivered_bytes: log.delivered_bytes,
                queue_drops: log.queue_drops,
                losses: log.losses,
                backlog_bytes: link.backlog_bytes(),
            },
        );
    }

    /// Sleeps until a packet comes or is due; says which devices have packets.
    fn wait(&mut self) -> Result<impl Iterator<Item = Way> + use<>, Error> {
        let due = self.links.iter().filter_map(Direction::next_due).min();
        let timeout = due.map(|due| self.sleep_before(due));
        let mut polled = [
            PollFd::new(self.devices[0].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.devices[1].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
        ];
        match ppoll(&mut polled, timeout, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => {
                return Err(Error::System {
                    what: "wait for packets",
                    source: e.into(),
                });
            }
        }
        let [forward, reverse, changed] = polled.map(|fd| fd.any().unwrap_or(false));
        if changed {
            self.control.awake();
        }
        let readable = [forward, reverse];
        Ok(Way::BOTH.into_iter().filter(move |way| readable[way.index()]))
    }

    /// How long to sleep when the next packet is due then.
    fn sleep_before(&self, due: Time) -> TimeSpec {
        let until_due = due.since(self.clock.now());
        let sleep = match self.timing {
            Timing::Balanced => until_due,
            Timing::Precise if until_due > LONG => until_due.saturating_sub(WAKE),
            Timing::Precise => until_due.saturating_sub(SPIN),
        };
        TimeSpec::from_duration(sleep.to_std())
    }
}

/// Neighbour discovery and multicast reports: an IPv6 destination in ff00::/8.
fn is_multicast_v6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6) && packet.get(24) == Some(&0xff)
}
