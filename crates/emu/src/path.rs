//! Two links between two devices, and the thread that drives them: the core of every kind of
//! emulation.

use std::thread::{self, JoinHandle};

use ccplane_host::{
    FRAME_BYTES_MAX, Frame, InterfaceStats, Namespace, Offload, Store, interface_stats,
};
use ccplane_qdisc::Limit;
use ccplane_units::{Duration, Time};

use crate::audit::Lateness;
use crate::capture::{self, CaptureReport};
use crate::clock::EmuClock;
use crate::control::{EmuHandle, PathDirection};
use crate::device::EmuDevice;
use crate::direction::EmuDirection;
use crate::driver::Driver;
use crate::link::EmuLink;
use crate::wait::Waiter;
use crate::{Audit, Bounds, EmuConfig, Error, Gso, LinkConfig, LinkLog, Timing};

/// Results of an emulation.
#[derive(Debug)]
pub struct EmuReport {
    /// Accuracy of the emulation.
    pub audit: Audit,
    /// Log from sender to receiver.
    pub forward: LinkLog,
    /// Log from receiver to sender.
    pub reverse: LinkLog,
    /// Configured delivery of super-packets; the logs count joint deliveries.
    pub gso: Gso,
    /// Outcome of the packet log, if there was one.
    pub capture: Option<CaptureReport>,
    /// Configured method of waiting.
    pub timing: Timing,
    /// CPU time of the emulator's thread as a fraction of one CPU, including the kernel's delivery
    /// to the receivers.
    pub cpu_share: f64,
    /// CLOCK_MONOTONIC at the start, the origin of times in the logs.
    pub epoch: Duration,
}

/// A device and its namespace.
#[derive(Debug)]
pub(crate) struct DeviceEnd {
    /// `None` for the namespace in which the emulator was started.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) device: String,
}

/// A running emulation. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct EmulatedPath {
    ends: [DeviceEnd; 2],
    control: EmuHandle,
    clock: EmuClock,
    limits: [Limit; 2],
    bounds: Bounds,
    gso: Gso,
    timing: Timing,
    /// Counters of both devices before the first packet.
    stats_before: [InterfaceStats; 2],
    thread: Option<JoinHandle<Result<Driver, Error>>>,
}

impl EmulatedPath {
    /// Starts the thread; the forward direction is from the first device to the second.
    pub(crate) fn start(
        config: &EmuConfig,
        ends: [DeviceEnd; 2],
        devices: [impl Into<EmuDevice>; 2],
    ) -> Result<EmulatedPath, Error> {
        let limits = limits(config)?;
        let before = [ends[0].stats()?, ends[1].stats()?];
        let control = EmuHandle::new([&config.forward, &config.reverse])?;
        let clock = EmuClock::start();
        let driver = driver(config, clock, control.clone(), devices.map(Into::into))?;
        let thread = thread::Builder::new()
            .name("ccplane-emu".into())
            .spawn(move || driver.run())
            .map_err(|source| Error::System {
                what: "start a thread",
                source,
            })?;
        Ok(EmulatedPath {
            ends,
            control,
            clock,
            limits,
            bounds: config.bounds,
            gso: config.gso,
            timing: config.timing,
            stats_before: before,
            thread: Some(thread),
        })
    }

    pub(crate) fn control(&self) -> EmuHandle {
        self.control.clone()
    }

    pub(crate) fn epoch(&self) -> Duration {
        self.clock.epoch()
    }

    pub(crate) fn limit(&self, direction: PathDirection) -> Limit {
        self.limits[direction.index()]
    }

    /// Stops the emulation and returns its report.
    pub(crate) fn finish(mut self) -> Result<EmuReport, Error> {
        self.control.stop();
        let mut driver = self.join()?;
        let after = [self.ends[0].stats()?, self.ends[1].stats()?];
        let tun_drops: u64 = after
            .iter()
            .zip(&self.stats_before)
            .map(|(after, before)| {
                after.tx_dropped - before.tx_dropped + after.rx_dropped - before.rx_dropped
            })
            .sum();
        let ran = self
            .clock
            .now()
            .since(Time::ZERO)
            .max(Duration::from_nanos(1));
        let mut tap = driver.packet_log;
        if let Some(tap) = &mut tap {
            for seen in driver
                .links
                .iter_mut()
                .filter_map(EmuDirection::flush_log_entries)
            {
                tap.append(self.clock.now(), seen);
            }
        }
        let [forward, reverse] = driver.links;
        Ok(EmuReport {
            audit: driver
                .lateness
                .audit(driver.emulator_drops, tun_drops, &self.bounds),
            capture: tap.map(capture::Tap::finish),
            forward: forward.finish(),
            reverse: reverse.finish(),
            gso: self.gso,
            timing: self.timing,
            cpu_share: driver.cpu_time.as_secs_f64() / ran.as_secs_f64(),
            epoch: self.clock.epoch(),
        })
    }

    /// Waits until no packet is in flight in either direction, at most `most`.
    #[expect(clippy::disallowed_methods, reason = "packets arrive in real time")]
    pub(crate) fn drain(&self, timeout: Duration) {
        let empty = || {
            [PathDirection::Forward, PathDirection::Reverse]
                .into_iter()
                .all(|way| {
                    let done = self.control.stats(way);
                    done.arrived <= done.delivered + done.queue_drops + done.losses
                })
        };
        let (deadline, mut quiet) = (self.clock.now() + timeout, 0);
        while quiet < EMPTY_POLLS_MIN && self.clock.now() < deadline {
            thread::sleep(DRAIN_POLL_INTERVAL);
            quiet = if empty() { quiet + 1 } else { 0 };
        }
    }

    fn join(&mut self) -> Result<Driver, Error> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) | None => Err(Error::Panicked),
        }
    }
}

/// Interval at which [`EmulatedPath::drain`] checks, and the number of consecutive checks without
/// packets: a server may take 10 ms to answer the last packet with its own last one.
const DRAIN_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(2);
const EMPTY_POLLS_MIN: u32 = 5;

impl Drop for EmulatedPath {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.control.stop();
            // A caller that drops instead of finishing has no use for the result.
            let _ = self.join();
        }
    }
}

impl DeviceEnd {
    fn stats(&self) -> Result<InterfaceStats, Error> {
        let stats = || interface_stats(&self.device);
        Ok(match &self.namespace {
            Some(namespace) => namespace.run(stats)??,
            None => stats()?,
        })
    }
}

/// Returns the maximum contents of both queues; fails if a link is invalid.
pub(crate) fn limits(config: &EmuConfig) -> Result<[Limit; 2], Error> {
    let rtt = config.forward.delay + config.reverse.delay;
    let limit = |way, link: &LinkConfig| {
        link.check(way)?;
        // Checks the remaining parameters of the link.
        EmuLink::new(way, link, rtt, config.mtu)?;
        link.queue
            .limit(link.line.mean_rate(), rtt, config.mtu)
            .map_err(|source| Error::Queue { way, source })
    };
    Ok([
        limit(PathDirection::Forward, &config.forward)?,
        limit(PathDirection::Reverse, &config.reverse)?,
    ])
}

/// Returns the offload that the devices offer.
pub(crate) fn offload(config: &EmuConfig) -> Offload {
    match config.gso {
        Gso::Off => Offload::None,
        Gso::Auto | Gso::On => Offload::Segmentation,
    }
}

/// Creates the state of the thread.
fn driver(
    config: &EmuConfig,
    clock: EmuClock,
    control: EmuHandle,
    devices: [EmuDevice; 2],
) -> Result<Driver, Error> {
    let rtt = config.forward.delay + config.reverse.delay;
    let lead = devices[0].link_header_bytes();
    let direction = |way, link: &LinkConfig| {
        let store = Store::new(config.memory_bytes);
        let log = LinkLog::new(config.log_records);
        let window = config.gso.window();
        let queue = EmuLink::new(way, link, rtt, config.mtu)?;
        let direction = EmuDirection::new(link, queue, window, store, log).with_link_header(lead);
        Ok::<EmuDirection, Error>(match config.capture {
            Some(_) => direction.with_packet_log(way),
            None => direction,
        })
    };
    Ok(Driver {
        clock,
        waiter: Waiter::new(config.timing),
        frame_bytes_max: lead
            + match (offload(config), lead) {
                (Offload::None, 0) => Frame::frame_bytes(config.mtu),
                // Senders on a wire may use offloads in any case.
                (Offload::Segmentation, _) | (_, 1..) => FRAME_BYTES_MAX,
            },
        control,
        devices,
        links: [
            direction(PathDirection::Forward, &config.forward)?,
            direction(PathDirection::Reverse, &config.reverse)?,
        ],
        lateness: Lateness::new(),
        packet_log: capture::start_if_configured(config, clock.wall_clock_start(), lead)?,
        emulator_drops: 0,
        cpu_time: Duration::ZERO,
    })
}
