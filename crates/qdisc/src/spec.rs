//! Which queue, before its link is known: what people write, [`QueueSpec::build`]s to a queue.

mod text;

use ccplane_units::{Duration, Rate};

use crate::prio::Buffer;
use crate::{AnyQdisc, DropTail, EcnStep, Limit, Packet, Prio};

/// A queue before its link is known. Written as `name:setting:setting`, names as `tc` has them:
///
/// | text | queue |
/// |---|---|
/// | `droptail:1bdp`, `droptail:160p`, `droptail:240kB`, `droptail:inf` | [`DropTail`] |
/// | `prio:3:1bdp`, `prio:5:shared:1bdp` | [`Prio`]: bands, a buffer each or one that all share |
/// | `ecn:65p`, `ecn:65p:1bdp` | [`EcnStep`]: threshold, limit |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueSpec {
    /// First in, first out, dropping what finds it full.
    DropTail(Size),
    /// Strict priority.
    Prio {
        /// How many bands, at least one.
        bands: u8,
        /// Whether the bands share the limit, with push-out; otherwise each has it for itself.
        shared: bool,
        /// How much waits, in all or in a band.
        limit: Size,
    },
    /// First in, first out, marking above a threshold.
    Ecn {
        /// Above this, arriving packets are marked.
        threshold: Size,
        /// At this, they are dropped.
        limit: Size,
    },
}

/// How long a queue may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// This many packets.
    Packets(u64),
    /// This many bytes.
    Bytes(u64),
    /// This many thousandths of the bandwidth-delay product, mean rate of the link × round-trip time of the path.
    MilliBdp(u64),
    /// As long as it likes.
    Unlimited,
}

/// A queue whose packets' departures are known when they come, so that a [`FifoLink`](crate::FifoLink) can be it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoLimit {
    /// What it holds.
    pub limit: Limit,
    /// Above which it marks; [`Limit::Unlimited`] for one that does not.
    pub mark_above: Limit,
}

/// Why a queue cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueSpecError {
    /// Not a queue.
    #[error("`{text}` is not a queue: {reason}")]
    Syntax {
        /// What was written.
        text: String,
        /// What is wrong with it, and what to write.
        reason: String,
    },
    /// The bandwidth-delay product of a link without a rate.
    #[error("the queue is given in BDP, but the link has no rate; give it one, or the queue in packets or bytes")]
    NoRate,
    /// No packet would fit.
    #[error("the queue holds {bytes} bytes, less than one packet of {mtu} bytes; make it larger{}", hint(.bdp))]
    TooSmall {
        /// What it would hold.
        bytes: u64,
        /// The largest packet.
        mtu: u32,
        /// Whether the size came from a bandwidth-delay product.
        bdp: bool,
    },
}

fn hint(bdp: &bool) -> &'static str {
    if *bdp {
        " (is the delay zero?), or give it in packets"
    } else {
        ""
    }
}

impl QueueSpec {
    /// One bandwidth-delay product: what a single Reno flow needs to keep the link busy.
    pub const ONE_BDP: QueueSpec = QueueSpec::DropTail(Size::MilliBdp(1_000));
    /// Never drops.
    pub const UNLIMITED: QueueSpec = QueueSpec::DropTail(Size::Unlimited);

    /// The queue itself, for a link of `rate` with packets of at most `mtu` bytes on a path whose round trip takes
    /// `rtt` when nothing waits. Queues that draw random numbers draw them from `seed`.
    pub fn build<P: Packet>(
        &self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
        _seed: u64,
    ) -> Result<AnyQdisc<P>, QueueSpecError> {
        let limit = self.limit(rate, rtt, mtu)?;
        Ok(match *self {
            QueueSpec::DropTail(_) => AnyQdisc::DropTail(DropTail::new(limit)),
            QueueSpec::Prio { bands, shared, .. } => {
                let buffer = if shared {
                    Buffer::Shared(limit)
                } else {
                    Buffer::PerBand(limit)
                };
                AnyQdisc::Prio(Prio::new(bands, buffer))
            }
            QueueSpec::Ecn { threshold, .. } => AnyQdisc::EcnStep(EcnStep::new(threshold.threshold(rate, rtt)?, limit)),
        })
    }

    /// What a [`FifoLink`](crate::FifoLink) needs to be this queue; `None` if it cannot be.
    pub fn fifo_limit(&self, rate: Option<Rate>, rtt: Duration, mtu: u32) -> Result<Option<FifoLimit>, QueueSpecError> {
        let mark_above = match *self {
            QueueSpec::DropTail(_) => Limit::Unlimited,
            QueueSpec::Ecn { threshold, .. } => threshold.threshold(rate, rtt)?,
            _ => return Ok(None),
        };
        let limit = self.limit(rate, rtt, mtu)?;
        Ok(Some(FifoLimit { limit, mark_above }))
    }

    /// The limit of this queue on a link of `rate` with packets of at most `mtu` bytes, for a path whose round trip
    /// takes `rtt` when nothing waits.
    pub fn limit(&self, rate: Option<Rate>, rtt: Duration, mtu: u32) -> Result<Limit, QueueSpecError> {
        let (QueueSpec::DropTail(size) | QueueSpec::Prio { limit: size, .. } | QueueSpec::Ecn { limit: size, .. }) =
            *self;
        size.limit(rate, rtt, mtu)
    }
}

impl Size {
    /// The limit that this is, at least one packet.
    fn limit(self, rate: Option<Rate>, rtt: Duration, mtu: u32) -> Result<Limit, QueueSpecError> {
        let limit = self.threshold(rate, rtt)?;
        let bytes = match limit {
            Limit::Packets(0) => 0,
            Limit::Bytes(bytes) if bytes < u64::from(mtu) => bytes,
            _ => return Ok(limit),
        };
        let bdp = matches!(self, Size::MilliBdp(_));
        Err(QueueSpecError::TooSmall { bytes, mtu, bdp })
    }

    /// The same for a threshold within a queue, which may be zero.
    fn threshold(self, rate: Option<Rate>, rtt: Duration) -> Result<Limit, QueueSpecError> {
        Ok(match self {
            Size::Unlimited => Limit::Unlimited,
            Size::Packets(packets) => Limit::Packets(packets),
            Size::Bytes(bytes) => Limit::Bytes(bytes),
            Size::MilliBdp(milli) => {
                let one = rate.ok_or(QueueSpecError::NoRate)?.bytes_in(rtt).get();
                let bytes = u128::from(one) * u128::from(milli) / 1_000;
                Limit::Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        })
    }
}
