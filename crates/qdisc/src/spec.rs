//! Which queue, before its link is known: what people write, [`QueueSpec::build`]s to a queue.

mod text;

use ccplane_units::{Bytes, Duration, Probability, Rate};

use crate::prio::Buffer;
use crate::{
    AnyQdisc, Codel, CodelConfig, DropTail, DualPi2, DualPi2Config, EcnStep, FqCodel,
    FqCodelConfig, Limit, Packet, Policer, Prio, Rcp, RcpConfig, Red, RedConfig, Sfq, SfqConfig,
    Tbf,
};

/// A queue before its link is known. Written as `name:setting:setting`, names as `tc` has them:
///
/// | text | queue |
/// |---|---|
/// | `droptail:1bdp`, `droptail:160p`, `droptail:240kB`, `droptail:inf` | [`DropTail`] |
/// | `prio:3:1bdp`, `prio:5:shared:1bdp` | [`Prio`]: bands, a buffer each or one that all share |
/// | `ecn:65p`, `ecn:65p:1bdp` | [`EcnStep`]: threshold, limit |
/// | `sfq`, `sfq:limit=1000p:depth=127:flows=127:divisor=1024:quantum=1514`, `sfq:limit=1.875MB:depth=1000` | [`Sfq`] |
/// | `codel`, `codel:target=5ms:interval=100ms:limit=1000p:ecn` | [`Codel`]; the interval may be below the target |
/// | `fq_codel`, `fq_codel:target=5ms:interval=100ms:limit=10240p:flows=1024:quantum=1514:noecn` | [`FqCodel`] |
/// | `red:min=30p:max=90p:limit=1bdp:probability=2%:weight=0.2%:ecn` | [`Red`] |
/// | `dualpi2`, `dualpi2:target=15ms:tupdate=16ms:alpha=0.16:beta=3.2:limit=10000p:…` | [`DualPi2`], also `coupling_factor=2`, `step_thresh=1ms`, `range=0ms`, `classic_protection=10` |
/// | `tbf:rate=96mbit:burst=32kB:limit=1bdp` | [`Tbf`] before a drop-tail queue |
/// | `policer:rate=50mbit:burst=250kB`, `policer:rate=50mbit:burst=250kB:limit=1bdp` | [`Policer`] before a drop-tail queue |
/// | `rcp`, `rcp:limit=1bdp:alpha=0.4:beta=0.4:init=5` | [`Rcp`] |
///
/// What is not given has the default of the queue's configuration.
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
    /// Stochastic fairness.
    Sfq {
        /// Everything but the limit.
        config: SfqConfig,
        /// 127 packets, in all flows together.
        limit: Size,
    },
    /// Controlled delay.
    Codel {
        /// Everything but the limit.
        config: CodelConfig,
        /// 1000 packets.
        limit: Size,
    },
    /// Controlled delay for every flow.
    FqCodel {
        /// Everything but the limit.
        config: FqCodelConfig,
        /// 10 240 packets, in all flows together.
        limit: Size,
    },
    /// Random early detection.
    Red(RedSpec),
    /// Coupled queues for L4S and the rest.
    DualPi2 {
        /// Everything but the limit.
        config: DualPi2Config,
        /// 10 000 packets, in both queues together.
        limit: Size,
    },
    /// A token bucket before a drop-tail queue.
    Tbf {
        /// Of the tokens.
        rate: Rate,
        /// What the bucket holds.
        burst: Bytes,
        /// What waits.
        limit: Size,
    },
    /// A token bucket that drops what finds no tokens, before a drop-tail queue.
    Policer {
        /// Of the tokens.
        rate: Rate,
        /// What the bucket holds.
        burst: Bytes,
        /// 1000 packets.
        limit: Size,
    },
    /// Rates stamped on packets.
    Rcp {
        /// Everything but the limit.
        config: RcpConfig,
        /// One bandwidth-delay product.
        limit: Size,
    },
}

/// RED before its link is known; see [`RedConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedSpec {
    /// Below this average nothing is dropped.
    pub min: Size,
    /// At this average the probability is `probability`; in the same unit.
    pub max: Size,
    /// What waits at most; unlimited if not given: at twice `max` RED drops everything anyway.
    pub limit: Size,
    /// 2 %.
    pub probability: Probability,
    /// 0.2 %.
    pub weight: Probability,
    /// Whether to mark.
    pub ecn: bool,
}

/// How long a queue may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// This many packets.
    Packets(u64),
    /// This many bytes.
    Bytes(u64),
    /// This many thousandths of the bandwidth-delay product, mean rate of the link × round-trip
    /// time of the path.
    MilliBdp(u64),
    /// As long as it likes.
    Unlimited,
}

/// A queue whose packets' departures are known when they come, so that a
/// [`FifoLink`](crate::FifoLink) can be it.
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
    /// The bandwidth-delay product, or RCP, of a link without a rate.
    #[error(
        "the queue needs the link's rate, but the link has none; give it one, or a queue in packets or bytes"
    )]
    NoRate,
    /// Settings that cannot all be meant.
    #[error("{0}")]
    Contradiction(String),
    /// No packet would fit.
    #[error("the queue holds {bytes} bytes, less than one packet of {mtu} bytes{}", hint(*.bdp))]
    TooSmall {
        /// What it would hold.
        bytes: u64,
        /// The largest packet.
        mtu: u32,
        /// The rate whose bandwidth-delay product gave the size, if one did.
        bdp: Option<Rate>,
    },
}

fn hint(bdp: Option<Rate>) -> String {
    let Some(rate) = bdp else {
        return "; make it larger".to_owned();
    };
    let rate = match rate.bytes_per_sec() {
        0 => "below 8bit/s".to_owned(),
        _ => format!("of {rate}"),
    };
    format!(
        ", at a mean rate {rate}; check the rate and the delay, make it larger, or give it in packets"
    )
}

impl QueueSpec {
    /// One bandwidth-delay product: what a single Reno flow needs to keep the link busy.
    pub const ONE_BDP: QueueSpec = QueueSpec::DropTail(Size::MilliBdp(1_000));
    /// Never drops.
    pub const UNLIMITED: QueueSpec = QueueSpec::DropTail(Size::Unlimited);

    /// The queue itself, for a link of `rate` with packets of at most `mtu` bytes on a path whose
    /// round trip takes `rtt` when nothing waits. Queues that draw random numbers draw them from
    /// `seed`.
    pub fn build<P: Packet>(
        &self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
        seed: u64,
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
            QueueSpec::Ecn { threshold, .. } => {
                AnyQdisc::EcnStep(EcnStep::new(threshold.threshold(rate, rtt)?, limit))
            }
            QueueSpec::Sfq { config, .. } => AnyQdisc::Sfq(Sfq::new(config, limit, mtu, seed)),
            QueueSpec::Codel { config, .. } => AnyQdisc::Codel(Codel::new(config, limit, mtu)),
            QueueSpec::FqCodel { config, .. } => {
                AnyQdisc::FqCodel(FqCodel::new(config, limit, mtu, seed))
            }
            QueueSpec::Red(spec) => {
                AnyQdisc::Red(Red::new(spec.config(limit, rate, rtt, mtu)?, seed))
            }
            QueueSpec::DualPi2 { config, .. } => {
                AnyQdisc::DualPi2(DualPi2::new(config, limit, mtu))
            }
            QueueSpec::Tbf { rate, burst, .. } | QueueSpec::Policer { rate, burst, .. } => {
                if burst.get() < u64::from(mtu) {
                    return Err(QueueSpecError::Contradiction(format!(
                        "no packet of {mtu} bytes ever gets through a bucket of {burst}; make the burst larger"
                    )));
                }
                match self {
                    QueueSpec::Tbf { .. } => {
                        AnyQdisc::Tbf(Tbf::new(DropTail::new(limit), rate, burst))
                    }
                    _ => AnyQdisc::Policer(Policer::new(rate, burst, limit)),
                }
            }
            QueueSpec::Rcp { config, .. } => {
                AnyQdisc::Rcp(Rcp::new(config, rate.ok_or(QueueSpecError::NoRate)?, limit))
            }
        })
    }

    /// What a [`FifoLink`](crate::FifoLink) needs to be this queue; `None` if it cannot be.
    pub fn fifo_limit(
        &self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
    ) -> Result<Option<FifoLimit>, QueueSpecError> {
        let mark_above = match *self {
            QueueSpec::DropTail(_) => Limit::Unlimited,
            QueueSpec::Ecn { threshold, .. } => threshold.threshold(rate, rtt)?,
            _ => return Ok(None),
        };
        let limit = self.limit(rate, rtt, mtu)?;
        Ok(Some(FifoLimit { limit, mark_above }))
    }

    /// The limit of this queue on a link of `rate` with packets of at most `mtu` bytes, for a path
    /// whose round trip takes `rtt` when nothing waits.
    pub fn limit(
        &self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
    ) -> Result<Limit, QueueSpecError> {
        let size = match *self {
            QueueSpec::DropTail(limit)
            | QueueSpec::Prio { limit, .. }
            | QueueSpec::Ecn { limit, .. } => limit,
            QueueSpec::Sfq { limit, .. }
            | QueueSpec::Codel { limit, .. }
            | QueueSpec::FqCodel { limit, .. } => limit,
            QueueSpec::DualPi2 { limit, .. } | QueueSpec::Tbf { limit, .. } => limit,
            QueueSpec::Policer { limit, .. } | QueueSpec::Rcp { limit, .. } => limit,
            QueueSpec::Red(spec) => spec.limit,
        };
        size.limit(rate, rtt, mtu)
    }
}

impl RedSpec {
    fn config(
        &self,
        limit: Limit,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
    ) -> Result<RedConfig, QueueSpecError> {
        let (min, max, in_bytes) = match (
            self.min.threshold(rate, rtt)?,
            self.max.threshold(rate, rtt)?,
        ) {
            (Limit::Packets(min), Limit::Packets(max)) => (min, max, false),
            (Limit::Bytes(min), Limit::Bytes(max)) => (min, max, true),
            _ => {
                let reason = "RED's min and max are in different units; give both in packets, or both in bytes or BDP";
                return Err(QueueSpecError::Contradiction(reason.into()));
            }
        };
        if min >= max {
            let reason = format!("RED's min, {min}, is not below its max, {max}");
            return Err(QueueSpecError::Contradiction(reason));
        }
        Ok(RedConfig {
            min,
            max,
            in_bytes,
            probability: self.probability,
            weight: self.weight,
            packet_time: rate.map_or(Duration::ZERO, |rate| rate.time_for(Bytes::new(mtu.into()))),
            ecn: self.ecn,
            limit,
        })
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
        let bdp = rate.filter(|_| matches!(self, Size::MilliBdp(_)));
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
