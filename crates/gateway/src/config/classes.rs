//! Traffic classes: which packets belong to each class, decided from the packet headers, and how
//! each class is served.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ccplane_qdisc::QueueSpec;
use ccplane_units::Prefix;

/// A class of every peer's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Name for status and metrics.
    pub name: String,
    /// Packets that belong to the class; `None` matches every packet that no earlier class matched.
    pub matches: Option<Match>,
    /// Priority: lower levels are served first.
    pub level: u8,
    /// Weight relative to the other classes of the same level.
    pub weight: u32,
    /// Queue of the class; `None` uses the peer's.
    pub queue: Option<QueueSpec>,
}

/// Conditions on a packet. For each non-empty list, at least one entry must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Accepted DSCPs.
    pub dscp: Vec<Dscp>,
    /// Prefixes that contain the source or the destination address.
    pub prefixes: Vec<Prefix>,
    /// Accepted source or destination ports, TCP and UDP only.
    pub ports: Vec<Ports>,
    /// Accepted IP protocols.
    pub protocols: Vec<Protocol>,
}

/// Header fields of a packet that the classifier uses.
#[derive(Clone, Copy, Debug)]
pub struct ClassifierInput {
    /// Differentiated Services codepoint, six bits.
    pub dscp: u8,
    /// IPv4 protocol, or next header of IPv6.
    pub protocol: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source and destination port; 0 if the protocol has none.
    pub ports: [u16; 2],
}

impl Match {
    /// Returns whether a packet satisfies the conditions.
    pub fn matches(&self, packet: &ClassifierInput) -> bool {
        let one = |empty: bool, found: bool| empty || found;
        let within =
            |prefix: &Prefix| prefix.contains(packet.source) || prefix.contains(packet.destination);
        let among = |ports: &Ports| {
            packet
                .ports
                .iter()
                .any(|port| *port != 0 && ports.0.contains(port))
        };
        one(self.dscp.is_empty(), self.dscp.contains(&Dscp(packet.dscp)))
            && one(
                self.protocols.is_empty(),
                self.protocols.contains(&Protocol(packet.protocol)),
            )
            && one(self.prefixes.is_empty(), self.prefixes.iter().any(within))
            && one(self.ports.is_empty(), self.ports.iter().any(among))
    }

    /// Returns whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        *self == Match::default()
    }
}

/// Returns the index of the first class that matches a packet, or of the last class if none does.
pub fn classify(classes: &[ClassConfig], packet: &ClassifierInput) -> u8 {
    let belongs = |class: &ClassConfig| {
        class
            .matches
            .as_ref()
            .is_none_or(|matches| matches.matches(packet))
    };
    let place = classes
        .iter()
        .position(belongs)
        .unwrap_or(classes.len().saturating_sub(1));
    u8::try_from(place).unwrap_or(u8::MAX)
}

/// A Differentiated Services codepoint (RFC 2474), 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(pub u8);

/// An IP protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

/// A port or an inclusive range of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

/// Error of parsing a DSCP, port or protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {fix}")]
pub struct MatchParseError {
    reason: &'static str,
    fix: &'static str,
}

const DSCP_HINT: &str =
    "write a codepoint as a number, 0 to 63, or by name: EF, VA, LE, CS0 to CS7, AF11 to AF43";
const PORTS_HINT: &str = "write a port, as 443, or a range, as 5000-5199";
const PROTOCOL_HINT: &str = "write tcp, udp, icmp, icmpv6, sctp, gre, esp, or a protocol number";

/// Protocol names (IANA, Assigned Internet Protocol Numbers).
const PROTOCOL_NUMBERS: [(&str, u8); 7] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("icmpv6", 58),
    ("sctp", 132),
];

impl FromStr for Dscp {
    type Err = MatchParseError;

    /// Names are the ones IANA registers: EF from RFC 3246, VA from RFC 5865, AF from RFC 2597, LE
    /// from RFC 8622.
    fn from_str(text: &str) -> Result<Dscp, MatchParseError> {
        let bad = MatchParseError {
            reason: "no codepoint",
            fix: DSCP_HINT,
        };
        let text = text.trim().to_ascii_lowercase();
        if let Ok(number) = text.parse::<u8>() {
            return if number < 64 {
                Ok(Dscp(number))
            } else {
                Err(bad)
            };
        }
        let digits = |from: usize| -> Option<Vec<u8>> {
            let digit = |c: char| c.to_digit(10).map(|d| d as u8);
            text.get(from..)?.chars().map(digit).collect()
        };
        let number = match text.as_str() {
            "ef" => 46,
            "va" => 44,
            "le" => 1,
            "df" | "be" => 0,
            _ => match (text.get(..2), digits(2).as_deref()) {
                (Some("cs"), Some(&[class @ 0..=7])) => class * 8,
                (Some("af"), Some(&[class @ 1..=4, precedence @ 1..=3])) => {
                    class * 8 + precedence * 2
                }
                _ => return Err(bad),
            },
        };
        Ok(Dscp(number))
    }
}

impl FromStr for Protocol {
    type Err = MatchParseError;

    fn from_str(text: &str) -> Result<Protocol, MatchParseError> {
        let text = text.trim().to_ascii_lowercase();
        let named = PROTOCOL_NUMBERS
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, number)| *number);
        named
            .or_else(|| text.parse().ok())
            .map(Protocol)
            .ok_or(MatchParseError {
                reason: "no protocol",
                fix: PROTOCOL_HINT,
            })
    }
}

impl FromStr for Ports {
    type Err = MatchParseError;

    fn from_str(text: &str) -> Result<Ports, MatchParseError> {
        let bad = |reason| MatchParseError {
            reason,
            fix: PORTS_HINT,
        };
        let port = |text: &str| match text.trim().parse::<u16>() {
            Ok(0) | Err(_) => Err(bad("the port is not a number from 1 to 65535")),
            Ok(port) => Ok(port),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if last < first {
            return Err(bad("the range ends before it starts"));
        }
        Ok(Ports(first..=last))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PROTOCOL_NUMBERS
            .iter()
            .find(|(_, number)| *number == self.0)
        {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.start() == self.0.end() {
            self.0.start().fmt(f)
        } else {
            write!(f, "{}-{}", self.0.start(), self.0.end())
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: fmt::Display>(name: &str, values: &[T]) -> Option<String> {
            let words: Vec<String> = values.iter().map(T::to_string).collect();
            (!values.is_empty()).then(|| format!("{name} {}", words.join(" or ")))
        }
        let parts = [
            list("DSCP", &self.dscp),
            list("protocol", &self.protocols),
            list("from or to", &self.prefixes),
            list("port", &self.ports),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(dscp: u8, protocol: u8, ports: [u16; 2]) -> ClassifierInput {
        ClassifierInput {
            dscp,
            protocol,
            source: "10.7.0.9".parse().unwrap(),
            destination: "10.8.1.2".parse().unwrap(),
            ports,
        }
    }

    #[test]
    fn codepoints_have_names() {
        for (name, number) in [
            ("EF", 46),
            ("cs1", 8),
            ("CS7", 56),
            ("AF11", 10),
            ("af43", 38),
            ("LE", 1),
            ("0", 0),
            ("63", 63),
        ] {
            assert_eq!(name.parse(), Ok(Dscp(number)), "{name}");
        }
        for bad in ["64", "cs8", "af44", "af51", "af1", "", "e", "-1", "ä"] {
            assert!(bad.parse::<Dscp>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_and_protocols_are_read_as_they_are_printed() {
        for text in ["443", "5000-5199"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        for text in ["tcp", "icmpv6", "99"] {
            assert_eq!(text.parse::<Protocol>().unwrap().to_string(), text);
        }
        for bad in ["0", "2-1", "x", "70000", "1-", "-"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_packet_is_of_the_first_class_that_it_matches() {
        let class = |matches: Option<Match>| ClassConfig {
            name: "any".into(),
            matches,
            level: 0,
            weight: 1,
            queue: None,
        };
        let voice = Match {
            dscp: vec![Dscp(46)],
            ..Match::default()
        };
        let backup = Match {
            prefixes: vec!["10.8.1.0/24".parse().unwrap()],
            ports: vec!["873".parse().unwrap()],
            protocols: vec![Protocol(6)],
            ..Match::default()
        };
        let classes = [class(Some(voice)), class(Some(backup)), class(None)];
        assert_eq!(classify(&classes, &seen(46, 6, [1, 873])), 0);
        assert_eq!(classify(&classes, &seen(0, 6, [40_000, 873])), 1);
        assert_eq!(
            classify(&classes, &seen(0, 6, [873, 40_000])),
            1,
            "the way back"
        );
        assert_eq!(
            classify(&classes, &seen(0, 17, [40_000, 873])),
            2,
            "another protocol"
        );
        assert_eq!(classify(&classes, &seen(0, 6, [40_000, 443])), 2);
        assert_eq!(classify(&[], &seen(0, 6, [1, 1])), 0);
    }
}
