//! Which queue, as people write it: `droptail:1bdp`, `droptail:160p`, `droptail:240kB`, `droptail:inf`.

use ccplane_units::{Duration, Rate};

use crate::Limit;

/// A queue before its link is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueSpec {
    /// First in, first out, dropping what finds it full.
    DropTail(Size),
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

/// Why a queue cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueSpecError {
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
    /// The limit of this queue on a link of `rate` with packets of at most `mtu` bytes, for a path whose round trip
    /// takes `rtt` when nothing waits.
    pub fn limit(&self, rate: Option<Rate>, rtt: Duration, mtu: u32) -> Result<Limit, QueueSpecError> {
        let QueueSpec::DropTail(size) = *self;
        let (bytes, bdp) = match size {
            Size::Unlimited => return Ok(Limit::Unlimited),
            Size::Packets(0) => (0, false),
            Size::Packets(packets) => return Ok(Limit::Packets(packets)),
            Size::Bytes(bytes) => (bytes, false),
            Size::MilliBdp(milli) => {
                let one = rate.ok_or(QueueSpecError::NoRate)?.bytes_in(rtt).get();
                let bytes = u128::from(one) * u128::from(milli) / 1_000;
                (u64::try_from(bytes).unwrap_or(u64::MAX), true)
            }
        };
        if bytes < u64::from(mtu) {
            return Err(QueueSpecError::TooSmall { bytes, mtu, bdp });
        }
        Ok(Limit::Bytes(bytes))
    }
}
