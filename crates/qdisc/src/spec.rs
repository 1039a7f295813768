//! Which queue, as people write it: `droptail:1bdp`, `droptail:160p`, `droptail:240kB`, `droptail:inf`.

use std::fmt;
use std::str::FromStr;

use ccplane_units::{Bytes, Duration, Packets, Rate};

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

impl QueueSpec {
    /// One bandwidth-delay product: what a single Reno flow needs to keep the link busy.
    pub const ONE_BDP: QueueSpec = QueueSpec::DropTail(Size::MilliBdp(1_000));
    /// Never drops.
    pub const UNLIMITED: QueueSpec = QueueSpec::DropTail(Size::Unlimited);
}

/// Why a queue cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueSpecError {
    /// Not a queue.
    #[error(
        "`{text}` is not a queue: {reason}; write `droptail:` and a size, as in `droptail:1bdp`, `droptail:160p`, \
         `droptail:240kB` or `droptail:inf`"
    )]
    Syntax {
        /// What was written.
        text: String,
        /// What is wrong with it.
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

impl FromStr for QueueSpec {
    type Err = QueueSpecError;

    fn from_str(text: &str) -> Result<QueueSpec, QueueSpecError> {
        let fail = |reason: String| QueueSpecError::Syntax {
            text: text.chars().take(60).flat_map(char::escape_debug).collect(),
            reason,
        };
        let (kind, size) = text.split_once(':').ok_or_else(|| fail("it has no size".into()))?;
        if kind != "droptail" {
            return Err(fail(format!("there is no queue called `{kind}`")));
        }
        let packets = || size.parse::<Packets>().ok().map(|packets| Size::Packets(packets.get()));
        let bytes = || size.parse::<Bytes>().ok().map(|bytes| Size::Bytes(bytes.get()));
        let size = match size.strip_suffix("bdp") {
            Some(times) => Size::MilliBdp(thousandths(times).ok_or_else(|| {
                fail(format!(
                    "`{times}` is not a number of BDPs, to a thousandth, up to a million"
                ))
            })?),
            None if size == "inf" => Size::Unlimited,
            // A bare number could be either.
            None if size.bytes().all(|b| b.is_ascii_digit()) => {
                return Err(fail(format!(
                    "`{size}` needs a unit, `p` for packets or `B`, `kB`, `k` for bytes"
                )));
            }
            None => packets()
                .or_else(bytes)
                .ok_or_else(|| fail(format!("`{size}` is not a size")))?,
        };
        Ok(QueueSpec::DropTail(size))
    }
}

impl fmt::Display for QueueSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueueSpec::DropTail(size) = self;
        match size {
            Size::Packets(packets) => write!(f, "droptail:{packets}p"),
            Size::Bytes(bytes) => write!(f, "droptail:{bytes}B"),
            Size::MilliBdp(milli) if milli % 1_000 == 0 => write!(f, "droptail:{}bdp", milli / 1_000),
            Size::MilliBdp(milli) => {
                let (whole, rest) = (milli / 1_000, format!("{:03}", milli % 1_000));
                write!(f, "droptail:{whole}.{}bdp", rest.trim_end_matches('0'))
            }
            Size::Unlimited => f.write_str("droptail:inf"),
        }
    }
}

/// A decimal number with at most three places, times a thousand.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(places) || whole.len() > 7 || places.len() > 3 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let places: u64 = format!("{places:0<3}").parse().ok()?;
    let number = whole * 1_000 + places;
    (number <= 1_000_000_000).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(text: &str, mbit: u64, ms: u64) -> Result<Limit, QueueSpecError> {
        let rate = (mbit > 0).then_some(Rate::from_bits_per_sec(mbit * 1_000_000));
        text.parse::<QueueSpec>()?.limit(rate, Duration::from_millis(ms), 1_500)
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        // 96 Mbit/s, 20 ms: 160 packets of 1500 bytes.
        assert_eq!(limit("droptail:1bdp", 96, 20), Ok(Limit::Bytes(240_000)));
        assert_eq!(limit("droptail:0.5bdp", 96, 20), Ok(Limit::Bytes(120_000)));
        assert_eq!(limit("droptail:1.125bdp", 96, 20), Ok(Limit::Bytes(270_000)));
        assert_eq!(limit("droptail:160p", 0, 0), Ok(Limit::Packets(160)));
        assert_eq!(limit("droptail:240kB", 0, 0), Ok(Limit::Bytes(240_000)));
        assert_eq!(limit("droptail:64k", 0, 0), Ok(Limit::Bytes(65_536)));
        assert_eq!(limit("droptail:inf", 0, 0), Ok(Limit::Unlimited));
    }

    #[test]
    fn a_limit_is_told_in_packets_and_bytes() {
        let told = |text| limit(text, 96, 20).expect("large enough").describe(1_500);
        assert_eq!(told("droptail:1bdp"), "240000 bytes (160 packets of 1500)");
        assert_eq!(told("droptail:10p"), "10 packets (15000 bytes)");
        assert_eq!(told("droptail:inf"), "no limit");
    }

    #[test]
    fn a_queue_that_holds_no_packet_is_refused() {
        let too_small = |bytes, bdp| Err(QueueSpecError::TooSmall { bytes, mtu: 1_500, bdp });
        assert_eq!(limit("droptail:1bdp", 96, 0), too_small(0, true));
        assert_eq!(limit("droptail:0p", 96, 20), too_small(0, false));
        assert_eq!(limit("droptail:1499B", 96, 20), too_small(1_499, false));
        assert_eq!(limit("droptail:1bdp", 0, 20), Err(QueueSpecError::NoRate));
        let text = limit("droptail:1bdp", 96, 0).expect_err("0 bytes").to_string();
        assert!(text.contains("less than one packet of 1500 bytes") && text.contains("is the delay zero?"));
    }

    #[test]
    fn what_is_not_a_queue_is_refused() {
        for text in [
            "",
            "droptail",
            "droptail:",
            "droptail:160",
            "droptail:bdp",
            "droptail:-1bdp",
            "droptail:1.bdp",
            "droptail:1.0001bdp",
            "droptail:1e9bdp",
            "droptail:9999999999999bdp",
            "droptail:1xp",
            "droptail:infinite",
            "fq_codle:1bdp",
            "1bdp",
            "droptail:1bdp:2",
            "droptail: 1bdp",
        ] {
            let error = text.parse::<QueueSpec>();
            assert!(matches!(error, Err(QueueSpecError::Syntax { .. })), "{text}: {error:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(size in prop_oneof![
            any::<u32>().prop_map(|n| Size::Packets(n.into())),
            any::<u32>().prop_map(|n| Size::Bytes(n.into())),
            (0_u64..=1_000_000_000).prop_map(Size::MilliBdp),
            Just(Size::Unlimited),
        ]) {
            let spec = QueueSpec::DropTail(size);
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }
}
