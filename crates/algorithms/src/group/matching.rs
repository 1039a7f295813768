//! Membership and weights of flows.

use std::borrow::Cow;
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use ccplane_agent::FlowInfo;
use ccplane_units::{Prefix, PrefixError};
use ccplane_wire::Tag;

/// Valid weights: with a larger ratio, the lighter of two members has less than a packet of any
/// window.
const WEIGHT_BOUNDS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Parses `10.1.0.0/16`, `[2001:db8::]/32` or a single address. IPv6 needs brackets because colons
/// separate an algorithm's parameters.
fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = |why: &dyn Display| {
        format!("`{text}` is not a prefix such as `10.1.0.0/16` or `[2001:db8::]/32`: {why}")
    };
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let bare = match bracketed.filter(|(_, bits)| bits.is_empty() || bits.starts_with('/')) {
        Some((address, bits)) => Cow::Owned([address, bits].concat()),
        None => Cow::Borrowed(text),
    };
    let prefix: Prefix = bare.parse().map_err(|why: PrefixError| wrong(&why))?;
    match prefix.network() == prefix.network().to_canonical() {
        true => Ok(prefix),
        false => Err(wrong(&"an IPv4-mapped address matches as IPv4")),
    }
}

/// Prefixes separated by `;`; empty matches every address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefixes(Vec<Prefix>);

impl Prefixes {
    /// Returns true if the address is in one of the prefixes, or if there are none. An IPv4-mapped
    /// IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.is_empty()
            || self
                .0
                .iter()
                .any(|prefix| prefix.contains(address.to_canonical()))
    }
}

impl FromStr for Prefixes {
    type Err = String;
    fn from_str(text: &str) -> Result<Prefixes, String> {
        match text {
            "any" => Ok(Prefixes::default()),
            _ => text
                .split(';')
                .map(|one| prefix(one.trim()))
                .collect::<Result<_, _>>()
                .map(Prefixes),
        }
    }
}

/// Tags separated by `;`, of which a flow must have one; empty matches every flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TagPattern(Vec<Tag>);

impl TagPattern {
    /// Returns true if the flow has one of the tags, or if there are none.
    pub fn matches(&self, info: &FlowInfo) -> bool {
        self.0.is_empty() || self.0.iter().any(|tag| info.tags.as_slice().contains(tag))
    }
}

impl FromStr for TagPattern {
    type Err = String;
    fn from_str(text: &str) -> Result<TagPattern, String> {
        let tag = |one: &str| one.trim().parse().map_err(|why| format!("{why}"));
        match text {
            "any" => Ok(TagPattern::default()),
            _ => text
                .split(';')
                .map(tag)
                .collect::<Result<_, String>>()
                .map(TagPattern),
        }
    }
}

/// Subject of a weight rule.
#[derive(Clone, Debug, PartialEq)]
enum RuleSubject {
    Senders(Prefix),
    Tag(Tag),
    Key(String),
}

/// Weight rules; the first match applies.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Weights(Vec<(RuleSubject, f64)>);

impl Weights {
    /// Returns the weight of a flow; 1 without a matching rule.
    pub fn weight_of(&self, info: &FlowInfo) -> f64 {
        let names = |who: &RuleSubject| match who {
            RuleSubject::Senders(prefix) => prefix.contains(info.local.ip().to_canonical()),
            RuleSubject::Tag(tag) => info.tags.as_slice().contains(tag),
            RuleSubject::Key(_) => false,
        };
        let rule = self.0.iter().find(|(who, _)| names(who));
        rule.map_or(1.0, |(_, weight)| *weight)
    }

    /// Returns the weight of a TLS key relative to other keys and to datapaths without one; 1
    /// without a matching rule.
    pub fn weight_of_key(&self, name: Option<&str>) -> f64 {
        let names =
            |who: &RuleSubject| matches!(who, RuleSubject::Key(key) if Some(&**key) == name);
        let rule = self.0.iter().find(|(who, _)| names(who));
        rule.map_or(1.0, |(_, weight)| *weight)
    }
}

impl FromStr for Weights {
    type Err = String;

    /// Parses `10.1.0.0/16=3;site=paris=2;@web1=4`: weights of senders by prefix, of flows by tag,
    /// and of TLS keys by name.
    fn from_str(text: &str) -> Result<Weights, String> {
        if text == "equal" {
            return Ok(Weights::default());
        }
        let rule = |one: &str| -> Result<(RuleSubject, f64), String> {
            let (who, weight) = one.trim().rsplit_once('=').ok_or_else(|| {
                format!(
                    "`{one}` is not a rule; write `equal`, or members and their weights, such \
                    as `10.1.0.0/16=3;site=paris=2`"
                )
            })?;
            let weight = match weight.trim().parse::<f64>() {
                Ok(weight) if WEIGHT_BOUNDS.contains(&weight) => weight,
                _ => {
                    return Err(format!(
                        "`{one}` has no weight from {} to {}; a member of weight 0 would starve, \
                         so leave it out of the group instead",
                        WEIGHT_BOUNDS.start(),
                        WEIGHT_BOUNDS.end()
                    ));
                }
            };
            let who = who.trim();
            let who = match who.strip_prefix('@') {
                Some("") => {
                    return Err(format!(
                        "`{one}` names no key; write the name that `ccplane keys` gave the key, \
                         such as `@web1=3`"
                    ));
                }
                Some(key) => RuleSubject::Key(key.to_owned()),
                // A tag contains `=`, a prefix does not.
                None if who.contains('=') => {
                    RuleSubject::Tag(who.parse().map_err(|why| format!("{why}"))?)
                }
                None => RuleSubject::Senders(prefix(who)?),
            };
            Ok((who, weight))
        };
        text.split(';')
            .map(rule)
            .collect::<Result<_, _>>()
            .map(Weights)
    }
}

#[cfg(test)]
mod tests {
    use ccplane_wire::Tags;
    use proptest::prelude::*;

    use super::*;

    fn prefixes(text: &str) -> Prefixes {
        text.parse().unwrap_or_else(|why| panic!("{why}"))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn prefixes_have_the_addresses_that_begin_with_them() {
        for (text, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.3", "10.2.0.1"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("[2001:db8::]/32", "2001:db8:1::1", "2001:db9::1"),
            ("[2001:db8::7]", "2001:db8::7", "2001:db8::8"),
            ("::/0", "2001:db8::1", "1.2.3.4"),
            ("10.1.0.0/16", "::ffff:10.1.0.9", "::ffff:10.2.0.9"),
            ("10.1.0.0/16;10.3.0.0/16", "10.3.0.1", "10.2.0.1"),
        ] {
            assert!(prefixes(text).contains(address(inside)), "{text} {inside}");
            assert!(
                !prefixes(text).contains(address(outside)),
                "{text} {outside}"
            );
        }
        assert!(prefixes("any").contains(address("10.2.0.1")));
    }

    #[test]
    fn invalid_prefixes_are_reported() {
        for (text, why) in [
            ("10.1.0/16", "not an IP address"),
            ("10.1.0.0/33", "0 to 32"),
            ("[2001:db8::]/129", "0 to 128"),
            ("[10.1.0.]1/32", "not an IP address"),
            ("10.1.0.1/16", "write 10.1.0.0/16"),
            ("[::ffff:10.1.0.0]/112", "matches as IPv4"),
            ("", "not an IP address"),
        ] {
            let said = text.parse::<Prefixes>().expect_err(text);
            assert!(
                said.contains(why) && said.contains(&format!("`{text}` is not a prefix such as")),
                "{said}"
            );
        }
        assert!("10.0.0.0/8;nowhere".parse::<Prefixes>().is_err());
    }

    #[test]
    fn the_first_rule_decides_the_weight() {
        let weights: Weights = "10.1.2.0/24=5;10.1.0.0/16=0.5"
            .parse()
            .expect("valid rules");
        let of = |local: &str| {
            weights.weight_of(&FlowInfo {
                local: (address(local), 80).into(),
                ..FlowInfo::default()
            })
        };
        assert_eq!(
            (of("10.1.2.9"), of("10.1.3.9"), of("10.9.9.9")),
            (5.0, 0.5, 1.0)
        );
    }

    #[test]
    fn flows_are_named_by_their_tags_too() {
        let flow = |tag: &str| FlowInfo {
            tags: Tags::new([tag.parse::<Tag>().expect("a valid tag")]).expect("one tag fits"),
            ..FlowInfo::default()
        };
        let tagged: TagPattern = "site=paris;role=batch".parse().expect("valid tags");
        assert!(tagged.matches(&flow("site=paris")) && tagged.matches(&flow("role=batch")));
        assert!(!tagged.matches(&flow("site=rome")) && !tagged.matches(&FlowInfo::default()));
        assert!(TagPattern::default().matches(&FlowInfo::default()));
        let weights: Weights = "site=paris=2;0.0.0.0/0=3".parse().expect("valid rules");
        assert_eq!(
            (
                weights.weight_of(&flow("site=paris")),
                weights.weight_of(&flow("site=rome"))
            ),
            (2.0, 3.0)
        );
        assert!(
            "site"
                .parse::<TagPattern>()
                .expect_err("no value")
                .contains("KEY=VALUE")
        );
        assert!(
            "a b=c=2"
                .parse::<Weights>()
                .expect_err("no key")
                .contains("letters")
        );
    }

    #[test]
    fn a_key_has_a_weight_of_its_own() {
        let weights: Weights = "@web1=4;10.0.0.0/8=3".parse().expect("valid rules");
        assert_eq!(
            (
                weights.weight_of_key(Some("web1")),
                weights.weight_of_key(Some("web2")),
                weights.weight_of_key(None)
            ),
            (4.0, 1.0, 1.0)
        );
        assert!(
            "@=4"
                .parse::<Weights>()
                .expect_err("no name")
                .contains("names no key")
        );
    }

    #[test]
    fn a_weight_of_nothing_is_refused() {
        for weight in ["0", "-1", "nan", "inf", "much", ""] {
            let why = format!("10.0.0.0/8={weight}")
                .parse::<Weights>()
                .expect_err(weight);
            assert!(why.contains("would starve"), "{why}");
        }
        let why = "10.0.0.0/8".parse::<Weights>().expect_err("no weight");
        assert!(why.contains("members and their weights"), "{why}");
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in "\\PC{0,40}") {
            let _ = (text.parse::<Prefixes>(), text.parse::<Weights>(), text.parse::<TagPattern>());
        }
    }
}
