//! What to emulate.

use ccplane_qdisc::{LineSpec, QueueSpec};
use ccplane_units::{Duration, Probability};

use crate::Bounds;

/// Both directions of a path and how to emulate it.
#[derive(Clone, Debug)]
pub struct Config {
    /// From the sender to the receiver.
    pub forward: LinkConfig,
    /// From the receiver to the sender.
    pub reverse: LinkConfig,
    /// How hard to work at being on time.
    pub timing: Timing,
    /// Largest packet in bytes, IP header included.
    pub mtu: u32,
    /// Most packets per direction to keep in the log, 24 bytes each.
    pub log_records: usize,
    /// Most memory per direction for packets under way. Beyond it packets are dropped, and the audit says so.
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
            mtu: 1_500,
            log_records: 4_000_000,
            memory_bytes: 1 << 30,
            bounds: Bounds::default(),
        }
    }
}

/// One direction: random loss, then a queue and the line that serves it, then a delay.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// What serves the queue.
    pub line: LineSpec,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// The queue in front of the line. A size in BDP takes the round trip of both delays.
    pub queue: QueueSpec,
    /// Random loss, decided before the queue.
    pub loss: Probability,
    /// Where the random numbers for the loss begin: the same seed loses the same packets, counted from the first.
    /// Give the two directions different ones, or they lose the same packets.
    pub seed: u64,
}

impl Default for LinkConfig {
    /// No limit, no delay, no loss.
    fn default() -> LinkConfig {
        LinkConfig {
            line: LineSpec::Unlimited,
            delay: Duration::ZERO,
            queue: QueueSpec::UNLIMITED,
            loss: Probability::NEVER,
            seed: 0,
        }
    }
}

/// How the emulator waits for the next packet's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// Sleeps until then, and is late by what the kernel takes to wake it: a tenth of a millisecond or so.
    #[default]
    Balanced,
    /// Sleeps until shortly before, then spins: within microseconds, for up to one core.
    Precise,
}
