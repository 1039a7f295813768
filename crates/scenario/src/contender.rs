//! Who is compared: ccplane's algorithms with their parameters, and the datapath's own.

use std::fmt;
use std::str::FromStr;

/// Which congestion control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// One of ccplane's: its name, then its parameters as the user wrote them.
    Ccplane {
        /// As the registry knows it.
        name: String,
        /// `key=value` pairs.
        parameters: Vec<(String, String)>,
    },
    /// The kernel's own.
    Native {
        /// As `TCP_CONGESTION` takes it.
        name: String,
    },
}

impl Contender {
    /// The kernel's own of this name.
    pub fn native(name: &str) -> Contender {
        Contender::Native {
            name: name.to_owned(),
        }
    }

    /// ccplane's of this name, as it comes.
    pub fn ccplane(name: &str) -> Contender {
        Contender::Ccplane {
            name: name.to_owned(),
            parameters: Vec::new(),
        }
    }

    /// ccplane's of this name, with this parameter.
    pub fn ccplane_with(name: &str, parameter: &str, value: &str) -> Contender {
        Contender::Ccplane {
            name: name.to_owned(),
            parameters: vec![(parameter.to_owned(), value.to_owned())],
        }
    }

    /// The algorithm without its parameters.
    pub fn algorithm(&self) -> &str {
        match self {
            Contender::Ccplane { name, .. } | Contender::Native { name } => name,
        }
    }

    /// Name by which an agent in another process has it: with its parameters. The agent of a Python
    /// file has the name of the file, and was started with the parameters.
    pub fn agent_name(&self) -> String {
        match self {
            Contender::Ccplane { name, .. } if name.ends_with(".py") => name.clone(),
            other => other.to_string(),
        }
    }

    /// Whether it is the kernel's own.
    pub fn is_native(&self) -> bool {
        matches!(self, Contender::Native { .. })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Native { name } => write!(f, "native:{name}"),
            Contender::Ccplane { name, parameters } => {
                f.write_str(name)?;
                parameters
                    .iter()
                    .try_for_each(|(key, value)| write!(f, ":{key}={value}"))
            }
        }
    }
}

/// Text that names no contender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no contender; write an algorithm (`reno`), one with parameters (`reno:report=acks`), or the kernel's own (`native:reno`)"
)]
pub struct BadContender(String);

impl FromStr for Contender {
    type Err = BadContender;

    /// `reno`, `reno:report=acks:start=agent`, `./mine.ccp:back=0.7`, `native:cubic`.
    fn from_str(text: &str) -> Result<Contender, BadContender> {
        let bad = || BadContender(text.to_owned());
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c))
        };
        // The path of an algorithm that is a text or a Python file. Lists of contenders are divided
        // by commas, parameters by colons.
        let is_path = |name: &str| {
            let is_file = name.ends_with(".ccp") || name.ends_with(".py");
            is_file && !name.contains([',', ':']) && !name.contains(char::is_control)
        };
        let (name, rest) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        if name == "native" {
            return is_name(rest)
                .then(|| Contender::Native {
                    name: rest.to_owned(),
                })
                .ok_or_else(bad);
        }
        let pair = |part: &str| {
            part.split_once('=')
                .map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned()))
        };
        // An IPv6 address has colons of its own, and stands in brackets:
        // `group:prefix=[2001:db8::]/32:as=2`.
        let mut inside = false;
        let divides = |c: char| {
            inside = if inside { c != ']' } else { c == '[' };
            c == ':' && !inside
        };
        let parameters: Option<Vec<_>> = rest
            .split(divides)
            .filter(|part| !part.is_empty())
            .map(pair)
            .collect();
        match parameters {
            Some(parameters) if is_name(name) || is_path(name) => Ok(Contender::Ccplane {
                name: name.to_owned(),
                parameters,
            }),
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn contenders_are_read_and_printed_the_same_way() {
        for text in [
            "reno",
            "native:cubic",
            "reno:report=acks:start=agent",
            "group:prefix=[2001:db8::]/32;10.1.0.0/16:weights=[::1]=2:as=3",
            "../my files/mine.ccp:back=0.7",
            "./mine.py:back=0.7",
        ] {
            assert_eq!(text.parse::<Contender>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "native:",
            "native",
            "re no",
            "reno:acks",
            ":x=1",
            "native:a b",
        ] {
            assert!(bad.parse::<Contender>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_can_panic(text in ".{0,40}") {
            let _ = text.parse::<Contender>();
        }
    }
}
