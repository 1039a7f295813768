//! Configuration of an emulation.

use std::fmt;
use std::path::PathBuf;

use ccplane_qdisc::{DelayDistribution, DelayModel, LineSpec, LinkSeeds, LossModel, QueueSpec};
use ccplane_units::Duration;

use crate::{Bounds, Error, PathDirection};

/// Both directions of a path, and options of the emulation.
#[derive(Clone, Debug)]
pub struct EmuConfig {
    /// Link from sender to receiver.
    pub forward: LinkConfig,
    /// Link from receiver to sender.
    pub reverse: LinkConfig,
    /// Precision of delivery times.
    pub timing: Timing,
    /// Delivery of super-packets in one piece.
    pub gso: Gso,
    /// MTU in bytes, including the IP header.
    pub mtu: u32,
    /// Maximum log records per direction, 24 bytes each.
    pub log_records: usize,
    /// Path of the packet log, a pcapng file; an existing file is replaced.
    pub capture: Option<PathBuf>,
    /// Maximum memory per direction for packets in flight. Packets beyond it are dropped and
    /// counted in the audit.
    pub memory_bytes: u64,
    /// Bounds of the audit.
    pub bounds: Bounds,
}

impl Default for EmuConfig {
    /// Two links without limits or delay.
    fn default() -> EmuConfig {
        EmuConfig {
            forward: LinkConfig::default(),
            reverse: LinkConfig::default(),
            timing: Timing::Balanced,
            gso: Gso::Auto,
            mtu: 1_500,
            log_records: 4_000_000,
            capture: None,
            memory_bytes: 1 << 30,
            bounds: Bounds::default(),
        }
    }
}

/// One direction: random loss, then a queue served by a line, then a delay per packet.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Line that serves the queue.
    pub line: LineSpec,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// Maximum deviation of a packet's delay, uniformly distributed; zero for a fixed delay.
    pub jitter: Duration,
    /// Packets with different delays may overtake each other; otherwise they wait for the packets
    /// before them.
    pub reorder: bool,
    /// Queue in front of the line. A size in BDP uses the sum of both delays as the round trip.
    pub queue: QueueSpec,
    /// Random loss, decided before the queue.
    pub loss: LossModel,
    /// Seeds of loss, jitter and queue. With equal seeds the two directions lose the same packets.
    pub seeds: LinkSeeds,
}

impl LinkConfig {
    /// Rejects jitter above the delay.
    pub(crate) fn check(&self, direction: PathDirection) -> Result<(), Error> {
        if self.jitter > self.delay {
            let (jitter, delay) = (self.jitter, self.delay);
            return Err(Error::Jitter {
                way: direction,
                jitter,
                delay,
            });
        }
        Ok(())
    }

    /// Returns the delay model after the line.
    pub(crate) fn delay_model(&self) -> DelayModel {
        if self.jitter == Duration::ZERO {
            return DelayModel::Fixed(self.delay);
        }
        DelayModel::Jitter {
            delay: self.delay,
            spread: self.jitter,
            shape: DelayDistribution::Uniform,
            reorder: self.reorder,
        }
    }
}

impl fmt::Display for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            LineSpec::Constant(rate) => write!(f, "rate {rate}"),
            LineSpec::Trace(trace) => write!(f, "trace of {} on average", trace.mean_rate()),
            LineSpec::Piecewise(line) => {
                write!(f, "rate in pieces of at most {}", line.mean_rate())
            }
            LineSpec::Unlimited => f.write_str("rate unlimited"),
        }?;
        let reorder = if self.reorder { " reorder" } else { "" };
        let LinkConfig {
            delay,
            jitter,
            queue,
            loss,
            ..
        } = self;
        write!(
            f,
            " delay {delay} jitter {jitter}{reorder} queue {queue} loss {loss}"
        )
    }
}

impl Default for LinkConfig {
    /// A link without limit, delay or loss.
    fn default() -> LinkConfig {
        LinkConfig {
            line: LineSpec::Unlimited,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: false,
            queue: QueueSpec::UNLIMITED,
            loss: LossModel::NONE,
            seeds: LinkSeeds::from_seed(0),
        }
    }
}

/// Super-packets: up to 64 KB of one flow at once, as to a network card that segments.
///
/// In every mode, loss, queue, line and delay treat each packet separately. The modes differ in the
/// packets that the receiver gets in one piece, as from a network card that merges received
/// packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// Delivers a super-packet whole when its last packet is due, if it occupies the line for at
    /// most 100 µs, otherwise packet by packet. Late packets of one super-packet are delivered
    /// together if they were due within 100 µs.
    #[default]
    Auto,
    /// Delivers super-packets whole, which delays their first packets, if their last packets have
    /// left the queue by the time that the first are due. Needs the fewest system calls, but
    /// produces bursts that no real line has.
    On,
    /// Disables super-packets: the sender's kernel segments, and every packet is read and written
    /// separately.
    Off,
}

impl Gso {
    /// Returns the longest time that the first packet of a super-packet may wait for the others.
    ///
    /// Less than 100 µs would cost several system calls per 64 KB at 10 Gbit/s, where network cards
    /// moderate interrupts at this scale; more would be visible in the round-trip times of slower
    /// lines.
    pub(crate) fn window(self) -> Duration {
        match self {
            Gso::Auto => Duration::from_micros(100),
            Gso::On => Duration::MAX,
            Gso::Off => Duration::ZERO,
        }
    }
}

/// Method of waiting for the next packet's due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// Sleeps, and is late by the kernel's wake-up latency, about 0.1 ms.
    #[default]
    Balanced,
    /// Busy-waits while packets are inside: accurate to microseconds, at the cost of one core.
    Precise,
}
