//! Two namespaces joined by an emulated path.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use ccplane_qdisc::{Limit, LineSpec};
use ccplane_tun::{InterfaceStats, Namespace, Tun, interface_stats};
use ccplane_units::{Duration, Rate};

use crate::audit::Lateness;
use crate::clock::Clock;
use crate::control::{Control, Way};
use crate::direction::Direction;
use crate::driver::Driver;
use crate::store::Store;
use crate::{Audit, Config, Error, LinkConfig, LinkLog};

/// The name of the device inside each namespace.
const DEVICE: &str = "link0";
const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const RECEIVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
const PREFIX: u8 = 30;

/// A running emulation between two namespaces, `ccplane-…-snd` and `ccplane-…-rcv`.
///
/// Dropping it stops it and removes everything, as [`finish`](Emulator::finish) does.
#[derive(Debug)]
pub struct Emulator {
    sender: Namespace,
    receiver: Namespace,
    control: Control,
    clock: Clock,
    limits: [Limit; 2],
    bounds: crate::Bounds,
    /// Counters of both devices before the first packet.
    before: [InterfaceStats; 2],
    thread: Option<JoinHandle<Result<Driver, Error>>>,
}

/// What an emulation did.
#[derive(Debug)]
pub struct EmuReport {
    /// Whether the emulator did what it was asked to.
    pub audit: Audit,
    /// From the sender to the receiver.
    pub forward: LinkLog,
    /// From the receiver to the sender.
    pub reverse: LinkLog,
    /// CLOCK_MONOTONIC at the start; times in the logs count from there.
    pub epoch: Duration,
}

impl Emulator {
    /// Makes the namespaces, the devices and the thread. Names that killed emulators left behind are removed first.
    pub fn start(config: Config) -> Result<Emulator, Error> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let limits = limits(&config)?;
        ccplane_tun::sweep();
        let id = format!("{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let sender = Namespace::create(&format!("ccplane-{id}-snd"))?;
        let receiver = Namespace::create(&format!("ccplane-{id}-rcv"))?;
        let devices = [
            sender.run(|| Tun::create(DEVICE, config.mtu, &[(SENDER, PREFIX)]))??,
            receiver.run(|| Tun::create(DEVICE, config.mtu, &[(RECEIVER, PREFIX)]))??,
        ];
        let before = [stats(&sender)?, stats(&receiver)?];
        let control = Control::new()?;
        let clock = Clock::start();
        let driver = driver(&config, limits, clock, control.clone(), devices);
        let thread = thread::Builder::new()
            .name("ccplane-emu".into())
            .spawn(move || driver.run())
            .map_err(|source| Error::System {
                what: "start a thread",
                source,
            })?;
        Ok(Emulator {
            sender,
            receiver,
            control,
            clock,
            limits,
            bounds: config.bounds,
            before,
            thread: Some(thread),
        })
    }

    /// The namespace where the forward direction begins.
    pub fn sender_ns(&self) -> &Namespace {
        &self.sender
    }

    /// The namespace where the forward direction ends.
    pub fn receiver_ns(&self) -> &Namespace {
        &self.receiver
    }

    /// The sender's address.
    pub fn sender_addr(&self) -> IpAddr {
        SENDER
    }

    /// The receiver's address.
    pub fn receiver_addr(&self) -> IpAddr {
        RECEIVER
    }

    /// What a direction's queue holds, after a size in BDP has been worked out.
    pub fn limit(&self, way: Way) -> Limit {
        self.limits[way.index()]
    }

    /// A handle to watch and change the emulation.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// CLOCK_MONOTONIC at the start.
    pub fn epoch(&self) -> Duration {
        self.clock.epoch()
    }

    /// Stops, removes everything, and says what happened.
    pub fn finish(mut self) -> Result<EmuReport, Error> {
        let driver = self.join()?;
        let after = [stats(&self.sender)?, stats(&self.receiver)?];
        let tun_drops: u64 = after
            .iter()
            .zip(&self.before)
            .map(|(after, before)| after.tx_dropped - before.tx_dropped + after.rx_dropped - before.rx_dropped)
            .sum();
        let [forward, reverse] = driver.links;
        Ok(EmuReport {
            audit: driver.lateness.audit(driver.own_drops, tun_drops, &self.bounds),
            forward: forward.finish(),
            reverse: reverse.finish(),
            epoch: self.clock.epoch(),
        })
    }

    fn join(&mut self) -> Result<Driver, Error> {
        self.control.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) | None => Err(Error::Panicked),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Whoever drops instead of finishing does not ask what happened.
            let _ = self.join();
        }
    }
}

/// The limits of both queues.
fn limits(config: &Config) -> Result<[Limit; 2], Error> {
    let rtt = config.forward.delay + config.reverse.delay;
    let limit = |way, link: &LinkConfig| {
        if link.line == LineSpec::Constant(Rate::from_bytes_per_sec(0)) {
            return Err(Error::ZeroRate { way });
        }
        link.queue
            .limit(link.line.mean_rate(), rtt, config.mtu)
            .map_err(|source| Error::Queue { way, source })
    };
    Ok([
        limit(Way::Forward, &config.forward)?,
        limit(Way::Reverse, &config.reverse)?,
    ])
}

/// The thread's state before it starts.
fn driver(config: &Config, limits: [Limit; 2], clock: Clock, control: Control, devices: [Tun; 2]) -> Driver {
    let now = clock.now();
    let link = |link: &LinkConfig, limit| {
        let store = Store::new(config.memory_bytes);
        let log = LinkLog::new(config.log_records);
        Direction::new(link, limit, store, log, now)
    };
    Driver {
        clock,
        timing: config.timing,
        mtu: config.mtu as usize,
        control,
        devices,
        links: [link(&config.forward, limits[0]), link(&config.reverse, limits[1])],
        lateness: Lateness::new(),
        own_drops: 0,
    }
}

fn stats(namespace: &Namespace) -> Result<InterfaceStats, Error> {
    Ok(namespace.run(|| interface_stats(DEVICE))??)
}
