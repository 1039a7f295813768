//! The thread that moves packets between devices and links in real time.

use std::os::fd::AsFd;

use ccplane_host::Head;
use ccplane_units::Duration;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::Error;
use crate::audit::Lateness;
use crate::capture::Tap;
use crate::clock::{EmuClock, thread_time};
use crate::control::{DirectionStats, EmuHandle, LinkChange, PathDirection};
use crate::device::EmuDevice;
use crate::direction::{DepartureRun, EmuDirection};
use crate::wait::Waiter;

/// Frames read from one device before the other is served and due packets are delivered.
const BATCH_FRAMES: usize = 32;
/// The same limit in bytes: with super-packets, these take about as long as 32 packets.
const BATCH_BYTES: usize = 256 * 1024;

/// Both directions, and the devices at their ends.
pub(crate) struct Driver {
    pub(crate) clock: EmuClock,
    pub(crate) waiter: Waiter,
    /// Longest frame that a device yields, bytes.
    pub(crate) frame_bytes_max: usize,
    pub(crate) control: EmuHandle,
    /// By [`PathDirection`]: the device where the direction starts.
    pub(crate) devices: [EmuDevice; 2],
    /// Links by [`PathDirection`].
    pub(crate) links: [EmuDirection; 2],
    pub(crate) lateness: Lateness,
    /// Packet log, if there is one.
    pub(crate) packet_log: Option<Tap>,
    /// Packets dropped for lack of memory, or refused by a device.
    pub(crate) emulator_drops: u64,
    /// CPU time of the thread, set at its end.
    pub(crate) cpu_time: Duration,
}

impl Driver {
    /// Runs until stopped.
    pub(crate) fn run(mut self) -> Result<Driver, Error> {
        // Without the privilege the emulator still works, but is later; the audit shows it.
        let _ = self.waiter.raise_priority();
        // The default slack of a normal thread's timers is 50 µs.
        let _ = nix::sys::prctl::set_timerslack(1);
        while !self.control.is_stopped() {
            self.apply_changes();
            for way in PathDirection::ALL {
                self.deliver(way);
            }
            self.log_packets();
            for way in self.wait()? {
                self.read_frames(way)?;
            }
        }
        self.log_packets();
        self.cpu_time = thread_time();
        Ok(self)
    }

    fn apply_changes(&mut self) {
        for (way, change) in self.control.take_changes() {
            let now = self.clock.now();
            let link = &mut self.links[way.index()];
            match change {
                LinkChange::Line(line) => link.set_line(now, &line),
                LinkChange::Delay(delay) => link.set_delay(now, delay),
                LinkChange::Loss(loss) => link.set_loss(loss),
                LinkChange::Up(up) => link.set_up(up),
            }
        }
    }

    /// Delivers due packets.
    fn deliver(&mut self, direction: PathDirection) {
        let link = &mut self.links[direction.index()];
        let device = &self.devices[1 - direction.index()];
        let mut head = Head::default();
        let mut now = self.clock.now();
        let (mut handovers, drops) = (0, link.log().queue_drops);
        link.advance(now);
        while handovers < BATCH_FRAMES
            && let Some(DepartureRun {
                link_header: lead,
                pieces,
                count,
            }) = link.next_run(now, &mut head)
        {
            if device.write(lead, pieces).is_err() {
                self.emulator_drops += u64::from(count);
            }
            link.on_delivered(now, count, |late| self.lateness.record(late));
            now = self.clock.now();
            handovers += 1;
        }
        if handovers > 0 || link.log().queue_drops > drops {
            self.publish(direction);
        }
    }

    /// Reads the packets sent at one end. Changes made before a packet was sent apply to it.
    fn read_frames(&mut self, direction: PathDirection) -> Result<(), Error> {
        let failed = |source| Error::System {
            what: "read from a device",
            source,
        };
        let mut bytes = 0;
        for _ in 0..BATCH_FRAMES {
            let device = &self.devices[direction.index()];
            let Some(room) = self.links[direction.index()].frame_buffer(self.frame_bytes_max)
            else {
                let mut nowhere = [0];
                if device.read(&mut nowhere).map_err(failed)?.is_none() {
                    break;
                }
                self.emulator_drops += 1;
                continue;
            };
            let Some(length) = device.read(room).map_err(failed)? else {
                break;
            };
            self.apply_changes();
            let now = self.clock.now();
            if self.links[direction.index()].on_frame(now, length).is_err() {
                // No kernel sends such a frame; it is counted in the audit.
                self.emulator_drops += 1;
            }
            bytes += length;
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        self.publish(direction);
        Ok(())
    }

    /// Passes new entries on to the packet log.
    fn log_packets(&mut self) {
        if let Some(tap) = &mut self.packet_log {
            let now = self.clock.now();
            for link in &mut self.links {
                if let Some(seen) = link.log_entries() {
                    tap.append(now, seen);
                }
            }
            tap.flush_if_due(now);
        }
    }

    fn publish(&self, direction: PathDirection) {
        let link = &self.links[direction.index()];
        let log = link.log();
        self.control.publish(
            direction,
            DirectionStats {
                arrived: log.arrived,
                delivered: log.delivered,
                delivered_bytes: log.delivered_bytes,
                queue_drops: log.queue_drops,
                losses: log.losses,
                marks: log.marks,
                backlog_bytes: link.backlog_bytes(),
            },
        );
    }

    /// Sleeps until a packet arrives or is due. Returns the directions whose devices are readable.
    fn wait(&mut self) -> Result<impl Iterator<Item = PathDirection> + use<>, Error> {
        let due = self.links.iter().filter_map(EmuDirection::next_due).min();
        let now = self.clock.now();
        let timeout = due.map(|due| self.waiter.sleep(now, due));
        let mut polled = [
            PollFd::new(self.devices[0].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.devices[1].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
        ];
        match ppoll(
            &mut polled,
            timeout.map(|timeout| TimeSpec::from_duration(timeout.to_std())),
            None,
        ) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => {
                return Err(Error::System {
                    what: "wait for packets",
                    source: e.into(),
                });
            }
        }
        if timeout.is_none_or(|timeout| timeout > Duration::ZERO) {
            self.waiter.on_wakeup(self.clock.now());
        }
        let [forward, reverse, changed] = polled.map(|fd| fd.any().unwrap_or(false));
        if changed {
            self.control.clear_wakeup();
        }
        let readable = [forward, reverse];
        Ok(PathDirection::ALL
            .into_iter()
            .filter(move |way| readable[way.index()]))
    }
}
