//! Specification of a queue, independent of its link; [`QueueSpec::build`] creates the queue.

mod syntax;

use ccplane_units::{Bytes, Duration, Probability, Rate};

use crate::prio::Buffer;
use crate::{
    AnyQdisc, Codel, CodelConfig, DropTail, DualPi2, DualPi2Config, EcnStep, FqCodel,
    FqCodelConfig, Limit, Packet, Policer, Prio, Rcp, RcpConfig, Red, RedConfig, Sfq, SfqConfig,
    Tbf,
};

/// Specification of a queue, independent of its link. Written as `name:setting:setting`, with the
/// names of `tc`:
///
/// * `droptail:1bdp`, `droptail:160p`, `droptail:240kB`, `droptail:inf`: [`DropTail`].
/// * `prio:3:1bdp`, `prio:5:shared:1bdp`: [`Prio`] with the number of bands, then the limit per
///   band or of a shared buffer.
/// * `ecn:65p`, `ecn:65p:1bdp`: [`EcnStep`] with its threshold and limit.
/// * `sfq`, `sfq:limit=1000p:depth=127:flows=127:divisor=1024:quantum=1514`,
///   `sfq:limit=1.875MB:depth=1000`: [`Sfq`].
/// * `codel`, `codel:target=5ms:interval=100ms:limit=1000p:ecn`: [`Codel`]. The interval may be
///   below the target.
/// * `fq_codel`, `fq_codel:target=5ms:interval=100ms:limit=10240p:flows=1024:quantum=1514:noecn`:
///   [`FqCodel`].
/// * `red:min=30p:max=90p:limit=1bdp:probability=2%:weight=0.2%:ecn`: [`Red`].
/// * `dualpi2`, `dualpi2:target=15ms:tupdate=16ms:alpha=0.16:beta=3.2:limit=10000p`: [`DualPi2`],
///   also with `coupling_factor=2`, `step_thresh=1ms`, `range=0ms` and `classic_protection=10`.
/// * `tbf:rate=96mbit:burst=32kB:limit=1bdp`: [`Tbf`] in front of a drop-tail queue.
/// * `policer:rate=50mbit:burst=250kB`, `policer:rate=50mbit:burst=250kB:limit=1bdp`: [`Policer`]
///   in front of a drop-tail queue.
/// * `rcp`, `rcp:limit=1bdp:alpha=0.4:beta=0.4:init=5`: [`Rcp`].
///
/// Omitted settings take the defaults of the queue's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueSpec {
    /// FIFO with tail drop.
    DropTail(Size),
    /// Strict priority over FIFO bands.
    Prio {
        /// Number of bands, at least one.
        bands: u8,
        /// Bands share one buffer, with push-out; otherwise each has its own.
        shared: bool,
        /// Limit of the shared buffer, or of each band.
        limit: Size,
    },
    /// FIFO with a marking threshold.
    Ecn {
        /// Backlog above which arriving packets are marked.
        threshold: Size,
        /// Backlog at which they are dropped.
        limit: Size,
    },
    /// Stochastic fairness queueing.
    Sfq {
        /// All settings except the limit.
        config: SfqConfig,
        /// Limit on all flows together; 127 packets by default.
        limit: Size,
    },
    /// Controlled delay.
    Codel {
        /// All settings except the limit.
        config: CodelConfig,
        /// Hard limit; 1000 packets by default.
        limit: Size,
    },
    /// CoDel per flow, with deficit round robin.
    FqCodel {
        /// All settings except the limit.
        config: FqCodelConfig,
        /// Limit on all flows together; 10,240 packets by default.
        limit: Size,
    },
    /// Random early detection.
    Red(RedSpec),
    /// Coupled queues for L4S and classic traffic.
    DualPi2 {
        /// All settings except the limit.
        config: DualPi2Config,
        /// Limit on both queues together; 10,000 packets by default.
        limit: Size,
    },
    /// Token bucket in front of a drop-tail queue.
    Tbf {
        /// Token rate.
        rate: Rate,
        /// Bucket size.
        burst: Bytes,
        /// Limit of the drop-tail queue.
        limit: Size,
    },
    /// Token bucket that drops packets without tokens, in front of a drop-tail queue.
    Policer {
        /// Token rate.
        rate: Rate,
        /// Bucket size.
        burst: Bytes,
        /// Limit of the drop-tail queue; 1000 packets by default.
        limit: Size,
    },
    /// RCP: stamps the flows' fair rate on packets.
    Rcp {
        /// All settings except the limit.
        config: RcpConfig,
        /// Limit; one bandwidth-delay product by default.
        limit: Size,
    },
}

/// Specification of RED, independent of its link; see [`RedConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedSpec {
    /// Average queue below which nothing is dropped.
    pub min: Size,
    /// Average queue at which the probability is `probability`, in the same unit as `min`.
    pub max: Size,
    /// Hard limit. Unlimited by default, since RED drops everything above an average of twice
    /// `max`.
    pub limit: Size,
    /// Probability at `max`; 2 % by default.
    pub probability: Probability,
    /// Weight of the current queue in the average; 0.2 % by default.
    pub weight: Probability,
    /// Marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

/// Size of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Number of packets.
    Packets(u64),
    /// Number of bytes.
    Bytes(u64),
    /// Thousandths of the bandwidth-delay product: mean rate of the link × base RTT of the path.
    MilliBdp(u64),
    /// No limit.
    Unlimited,
}

/// Parameters of a queue that a [`FifoLink`](crate::FifoLink) can implement, because its departure
/// times are known on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoLimit {
    /// Queue limit.
    pub limit: Limit,
    /// Marking threshold; [`Limit::Unlimited`] if the queue does not mark.
    pub mark_above: Limit,
}

/// Invalid queue specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueSpecError {
    /// The text is not a queue.
    #[error("`{text}` is not a queue: {reason}")]
    Syntax {
        /// Excerpt of the input.
        text: String,
        /// Reason, with a correct example.
        reason: String,
    },
    /// The queue needs a link rate (for a bandwidth-delay product, or for RCP), but the link has
    /// none.
    #[error(
        "the queue needs the link's rate, but the link has none; set a rate, or give the queue \
         size in packets or bytes"
    )]
    NoRate,
    /// Contradictory settings.
    #[error("{0}")]
    Contradiction(String),
    /// The limit is below one packet.
    #[error("the queue holds {bytes} bytes, less than one packet of {mtu} bytes{}", hint(*.bdp))]
    TooSmall {
        /// Size of the queue.
        bytes: u64,
        /// Size of the largest packet.
        mtu: u32,
        /// Link rate, if the size was given in bandwidth-delay products.
        bdp: Option<Rate>,
    },
}

fn hint(bdp: Option<Rate>) -> String {
    let Some(rate) = bdp else {
        return "; make the queue larger".to_owned();
    };
    let rate = match rate.bytes_per_sec() {
        0 => "below 8bit/s".to_owned(),
        _ => format!("of {rate}"),
    };
    format!(
        ", at a mean rate {rate}; check the rate and the delay, make the queue larger, or give its \
         size in packets"
    )
}

impl QueueSpec {
    /// Drop-tail queue of one bandwidth-delay product, which a single Reno flow needs to keep the
    /// link busy.
    pub const ONE_BDP: QueueSpec = QueueSpec::DropTail(Size::MilliBdp(1_000));
    /// Drop-tail queue without a limit.
    pub const UNLIMITED: QueueSpec = QueueSpec::DropTail(Size::Unlimited);

    /// Builds the queue for a link of `rate` whose packets have at most `mtu` bytes, on a path with
    /// the base RTT `rtt`. `seed` drives queues with random decisions.
    pub fn build<P: Packet>(
        &self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
        seed: u64,
    ) -> Result<AnyQdisc<P>, QueueSpecError> {
        self.check(rate, rtt, mtu)?;
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
            QueueSpec::Tbf { rate, burst, .. } => {
                AnyQdisc::Tbf(Tbf::new(DropTail::new(limit), rate, burst))
            }
            QueueSpec::Policer { rate, burst, .. } => {
                AnyQdisc::Policer(Policer::new(rate, burst, limit))
            }
            QueueSpec::Rcp { config, .. } => {
                AnyQdisc::Rcp(Rcp::new(config, rate.ok_or(QueueSpecError::NoRate)?, limit))
            }
        })
    }

    /// Returns the error that [`build`](Self::build) would return, without a queue.
    pub fn check(&self, rate: Option<Rate>, rtt: Duration, mtu: u32) -> Result<(), QueueSpecError> {
        let limit = self.limit(rate, rtt, mtu)?;
        match *self {
            QueueSpec::Ecn { threshold, .. } => threshold.threshold(rate, rtt).map(drop),
            QueueSpec::Red(spec) => spec.config(limit, rate, rtt, mtu).map(drop),
            QueueSpec::Rcp { .. } => rate.ok_or(QueueSpecError::NoRate).map(drop),
            QueueSpec::Tbf { burst, .. } | QueueSpec::Policer { burst, .. }
                if burst.get() < u64::from(mtu) =>
            {
                Err(QueueSpecError::Contradiction(format!(
                    "the burst of {burst} is smaller than a packet of {mtu} bytes; make the burst \
                     larger"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the parameters of an equivalent [`FifoLink`](crate::FifoLink), or `None` if the
    /// queue is not a FIFO.
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

    /// Returns the limit of this queue on a link of `rate` whose packets have at most `mtu` bytes,
    /// on a path with the base RTT `rtt`.
    pub fn limit(
        &self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u32,
    ) -> Result<Limit, QueueSpecError> {
        self.limit_size().limit(rate, rtt, mtu)
    }

    /// Returns this queue with another limit.
    #[must_use]
    pub fn with_limit(mut self, limit: Size) -> QueueSpec {
        *self.limit_mut() = limit;
        self
    }

    /// Returns the limit as it is specified.
    fn limit_size(mut self) -> Size {
        *self.limit_mut()
    }

    fn limit_mut(&mut self) -> &mut Size {
        match self {
            QueueSpec::DropTail(limit)
            | QueueSpec::Prio { limit, .. }
            | QueueSpec::Ecn { limit, .. }
            | QueueSpec::Sfq { limit, .. }
            | QueueSpec::Codel { limit, .. }
            | QueueSpec::FqCodel { limit, .. }
            | QueueSpec::Red(RedSpec { limit, .. })
            | QueueSpec::DualPi2 { limit, .. }
            | QueueSpec::Tbf { limit, .. }
            | QueueSpec::Policer { limit, .. }
            | QueueSpec::Rcp { limit, .. } => limit,
        }
    }

    /// Returns true if the queue has a rate of its own or, as RCP, divides the rate that the link
    /// had at [`build`](Self::build). Such a queue does not suit a link whose rate changes
    /// continuously.
    pub fn has_fixed_rate(&self) -> bool {
        match self {
            QueueSpec::Tbf { .. } | QueueSpec::Policer { .. } | QueueSpec::Rcp { .. } => true,
            QueueSpec::DropTail(_)
            | QueueSpec::Prio { .. }
            | QueueSpec::Ecn { .. }
            | QueueSpec::Sfq { .. }
            | QueueSpec::Codel { .. }
            | QueueSpec::FqCodel { .. }
            | QueueSpec::Red(_)
            | QueueSpec::DualPi2 { .. } => false,
        }
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
                let reason = "RED's min and max are in different units; give both in packets, or \
                              both in bytes or BDP";
                return Err(QueueSpecError::Contradiction(reason.into()));
            }
        };
        if min >= max {
            let reason = format!(
                "RED's min, {min}, is not below its max, {max}; make min smaller or max larger"
            );
            return Err(QueueSpecError::Contradiction(reason));
        }
        Ok(RedConfig {
            min,
            max,
            in_bytes,
            probability: self.probability,
            weight: self.weight,
            packet_time: rate.map_or(Duration::ZERO, |rate| {
                rate.transmission_time(Bytes::new(mtu.into()))
            }),
            ecn: self.ecn,
            limit,
        })
    }
}

impl Size {
    /// Resolves the size to a limit and checks that it holds at least one packet.
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

    /// Resolves the size of a threshold, which may be zero.
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
