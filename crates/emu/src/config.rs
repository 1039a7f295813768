//! What to emulate.

use std::fmt;
use std::path::PathBuf;

use ccplane_qdisc::{DelayModel, LineSpec, LinkSeeds, LossModel, QueueSpec, Shape};
use ccplane_units::Duration;

use crate::{Bounds, Error, Way};

/// Both directions of a path and how to emulate it.
#[derive(Clone, Debug)]
pub struct Config {
    /// From the sender to the receiver.
    pub forward: LinkConfig,
    /// From the receiver to the sender.
    pub reverse: LinkConfig,
    /// How hard to work at being on time.
    pub timing: Timing,
    /// Whether packets of one flow travel together.
    pub gso: Gso,
    /// Largest packet in bytes, IP header included.
    pub mtu: u32,
    /// Most packets per direction to keep in the log, 24 bytes each.
    pub log_records: usize,
    /// Where to write a packet log, a pcapng file; one that is there is replaced.
    pub capture: Option<PathBuf>,
    /// Most memory per direction for packets under way. Beyond it packets are dropped, and the
    /// audit says so.
    pub memory_bytes: u64,
    /// What the audit accepts.
    pub bounds: Bounds,
}

impl Default for Config {
    /// Two links without limits or delay.
    fn default() -> Config {
        Config {
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

/// One direction: random loss, then a queue and the line that serves it, then a delay, each packet
/// its own.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// What serves the queue.
    pub line: LineSpec,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// How far from it a packet's delay may be, evenly distributed; zero for a fixed delay.
    pub jitter: Duration,
    /// Whether packets of different delays may overtake each other; otherwise they wait for those
    /// before them.
    pub reorder: bool,
    /// The queue in front of the line. A size in BDP takes the round trip of both delays.
    pub queue: QueueSpec,
    /// Random loss, decided before the queue.
    pub loss: LossModel,
    /// Seeds of loss, jitter and queue. Give the two directions different ones, or they lose the
    /// same packets.
    pub seeds: LinkSeeds,
}

impl LinkConfig {
    /// Refuses jitter above the delay.
    pub(crate) fn check(&self, way: Way) -> Result<(), Error> {
        if self.jitter > self.delay {
            let (jitter, delay) = (self.jitter, self.delay);
            return Err(Error::Jitter { way, jitter, delay });
        }
        Ok(())
    }

    /// What becomes of a packet behind the line.
    pub(crate) fn delay_model(&self) -> DelayModel {
        if self.jitter == Duration::ZERO {
            return DelayModel::Fixed(self.delay);
        }
        DelayModel::Jitter {
            delay: self.delay,
            spread: self.jitter,
            shape: Shape::Uniform,
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
    /// No limit, no delay, no loss.
    fn default() -> LinkConfig {
        LinkConfig {
            line: LineSpec::Unlimited,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: false,
            queue: QueueSpec::UNLIMITED,
            loss: LossModel::NONE,
            seeds: LinkSeeds::all(0),
        }
    }
}

/// Whether senders may hand over super-packets, up to 64 KB of one flow at once, as to a network
/// card that segments.
///
/// Loss, queue, line and delay treat every packet of them by itself, whatever the mode. The modes
/// differ in what the receiver gets in one piece, as from a network card that merges what it
/// receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// A super-packet that takes the line at most 100 µs is handed over whole when its last packet
    /// is due; one that takes longer packet by packet, each at its time. Packets of one that are
    /// late together go together, as far as they were due within 100 µs.
    #[default]
    Auto,
    /// Super-packets are handed over whole, as late as that makes their first packets, if their
    /// last packets have left the queue by the time that the first are due. The fewest system
    /// calls, and bursts that no real line has.
    On,
    /// None: the sender's kernel cuts, and every packet is read and written by itself.
    Off,
}

impl Gso {
    /// How long the first packet of a super-packet may wait for the others.
    ///
    /// Less than 100 µs would cost several system calls for 64 KB at 10 Gbit/s, where a network
    /// card interrupts as rarely; more would show in the round-trip times of slower lines.
    pub(crate) fn window(self) -> Duration {
        match self {
            Gso::Auto => Duration::from_micros(100),
            Gso::On => Duration::MAX,
            Gso::Off => Duration::ZERO,
        }
    }
}

/// How the emulator waits for the next packet's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// Sleeps until then, and is late by what the kernel takes to wake it: a tenth of a millisecond
    /// or so.
    #[default]
    Balanced,
    /// Spins while packets are inside: within microseconds, for one core.
    Precise,
}
