//! How a queue is read and printed.

use std::fmt;
use std::str::FromStr;

use ccplane_units::{Bytes, Packets};

use super::{QueueSpec, QueueSpecError, Size};
use crate::setting::{decimal, did_you_mean, excerpt, number, thousandths};

/// Names of all queues, with what to write as an example.
const QUEUES: &[(&str, &str)] = &[
    (
        "droptail",
        "`droptail:1bdp`, `droptail:160p`, `droptail:240kB` or `droptail:inf`",
    ),
    ("prio", "`prio:3:1bdp` or `prio:3:shared:1bdp`"),
    ("ecn", "`ecn:65p` or `ecn:65p:1bdp`"),
];

impl FromStr for QueueSpec {
    type Err = QueueSpecError;

    fn from_str(text: &str) -> Result<QueueSpec, QueueSpecError> {
        read(text).map_err(|reason| QueueSpecError::Syntax {
            text: excerpt(text),
            reason,
        })
    }
}

fn read(text: &str) -> Result<QueueSpec, String> {
    let (kind, settings) = text.split_once(':').unwrap_or((text, ""));
    let Some((_, example)) = QUEUES.iter().find(|(name, _)| *name == kind) else {
        let names: Vec<_> = QUEUES.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "there is no queue called `{}`{}",
            excerpt(kind),
            did_you_mean(kind, &names)
        ));
    };
    let parts: Vec<&str> = settings.split(':').collect();
    let spec = match (kind, parts.as_slice()) {
        ("droptail", [size]) => Ok(QueueSpec::DropTail(self::size(size)?)),
        ("prio", [bands, rest @ .., limit]) if rest.is_empty() || *rest == ["shared"] => Ok(QueueSpec::Prio {
            bands: number(bands, 1, 255)? as u8,
            shared: !rest.is_empty(),
            limit: size(limit)?,
        }),
        ("ecn", [threshold, limit @ ..]) if limit.len() <= 1 => Ok(QueueSpec::Ecn {
            threshold: size(threshold)?,
            limit: limit.first().map_or(Ok(Size::Unlimited), |limit| size(limit))?,
        }),
        _ => Err("its settings are not as they should be".to_string()),
    };
    spec.map_err(|reason| format!("{reason}; write {example}"))
}

impl fmt::Display for QueueSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueSpec::DropTail(size) => write!(f, "droptail:{size}"),
            QueueSpec::Prio { bands, shared, limit } => {
                write!(f, "prio:{bands}:{}{limit}", if *shared { "shared:" } else { "" })
            }
            QueueSpec::Ecn { threshold, limit } => {
                write!(f, "ecn:{threshold}")?;
                match limit {
                    Size::Unlimited => Ok(()),
                    limit => write!(f, ":{limit}"),
                }
            }
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Packets(packets) => write!(f, "{packets}p"),
            Size::Bytes(bytes) => write!(f, "{bytes}B"),
            Size::MilliBdp(milli) => write!(f, "{}bdp", decimal(*milli)),
            Size::Unlimited => f.write_str("inf"),
        }
    }
}

fn size(text: &str) -> Result<Size, String> {
    let text_shown = excerpt(text);
    if text.is_empty() {
        return Err("it has no size".into());
    }
    if text == "inf" {
        return Ok(Size::Unlimited);
    }
    if let Some(times) = text.strip_suffix("bdp") {
        return thousandths(times)
            .map(Size::MilliBdp)
            .ok_or_else(|| format!("`{text_shown}` is not a number of BDPs, to a thousandth, up to a million"));
    }
    // A bare number could be either.
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "`{text_shown}` needs a unit, `p` for packets or `B`, `kB`, `k` for bytes"
        ));
    }
    let packets = || text.parse::<Packets>().ok().map(|packets| Size::Packets(packets.get()));
    let bytes = || text.parse::<Bytes>().ok().map(|bytes| Size::Bytes(bytes.get()));
    packets()
        .or_else(bytes)
        .ok_or_else(|| format!("`{text_shown}` is not a size"))
}

#[cfg(test)]
mod tests {
    use ccplane_units::{Duration, Rate};
    use proptest::prelude::*;

    use super::*;
    use crate::Limit;

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
