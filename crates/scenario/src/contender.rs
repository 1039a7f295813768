//! Contenders: ccplane's algorithms with their parameters, and the datapath's native congestion
//! controls.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Returns true for the path of a program file or of a Python file.
fn is_file(name: &str) -> bool {
    name.ends_with(".ccp") || name.ends_with(".py")
}

/// Congestion control that a run compares with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Algorithm of ccplane.
    Ccplane {
        /// Name in the algorithm registry.
        name: String,
        /// Parameters as `key=value` pairs, in the order and spelling of the user.
        parameters: Vec<(String, String)>,
    },
    /// Congestion control of the datapath itself, such as the kernel's.
    Native {
        /// Name for `TCP_CONGESTION`.
        name: String,
    },
}

impl Contender {
    /// Returns the datapath's congestion control of this name.
    pub fn native(name: &str) -> Contender {
        Contender::Native {
            name: name.to_owned(),
        }
    }

    /// Returns ccplane's algorithm of this name with default parameters.
    pub fn ccplane(name: &str) -> Contender {
        Contender::Ccplane {
            name: name.to_owned(),
            parameters: Vec::new(),
        }
    }

    /// Returns ccplane's algorithm of this name with one parameter set.
    pub fn ccplane_with(name: &str, parameter: &str, value: &str) -> Contender {
        Contender::Ccplane {
            name: name.to_owned(),
            parameters: vec![(parameter.to_owned(), value.to_owned())],
        }
    }

    /// Returns the path of an algorithm's file; `None` for an algorithm of the registry.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Contender::Ccplane { name, .. } if is_file(name) => Some(Path::new(name)),
            _ => None,
        }
    }

    /// Makes the path of an algorithm's file relative to `folder`, unless it is absolute.
    pub fn resolve_file(&mut self, folder: &Path) {
        if let Contender::Ccplane { name, .. } = self
            && is_file(name)
            && let Some(path) = folder.join(&*name).to_str()
        {
            path.clone_into(name);
        }
    }

    /// Returns the name of the algorithm without its parameters.
    pub fn algorithm(&self) -> &str {
        match self {
            Contender::Ccplane { name, .. } | Contender::Native { name } => name,
        }
    }

    /// Returns the name under which an agent in another process registers the algorithm, including
    /// its parameters. The agent of a Python file registers the file name only, since it was
    /// started with the parameters.
    pub fn agent_name(&self) -> String {
        match self {
            Contender::Ccplane { name, .. } if name.ends_with(".py") => name.clone(),
            other => other.to_string(),
        }
    }

    /// Returns true for a congestion control of the datapath itself.
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

/// Error for a text that is not a valid contender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid contender; write an algorithm (`reno`), an algorithm with parameters \
     (`reno:report=acks`), or a native one (`native:reno`)"
)]
pub struct BadContender(String);

impl FromStr for Contender {
    type Err = BadContender;

    /// Parses `reno`, `reno:report=acks:start=agent`, `./mine.ccp:back=0.7` or `native:cubic`.
    fn from_str(text: &str) -> Result<Contender, BadContender> {
        let bad = || BadContender(text.to_owned());
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c))
        };
        // Path of a program file or a Python file. Commas separate contenders and colons separate
        // parameters, so a path contains neither.
        let is_path = |name: &str| {
            is_file(name) && !name.contains([',', ':']) && !name.contains(char::is_control)
        };
        let (name, rest) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        if name == "native" {
            return is_name(rest)
                .then(|| Contender::Native {
                    name: rest.to_owned(),
                })
                .ok_or_else(bad);
        }
        let parse_parameter = |part: &str| {
            part.split_once('=')
                .map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned()))
        };
        // Colons inside brackets belong to an IPv6 address: `group:prefix=[2001:db8::]/32:as=2`.
        let mut inside = false;
        let divides = |c: char| {
            inside = if inside { c != ']' } else { c == '[' };
            c == ':' && !inside
        };
        let parameters: Option<Vec<_>> = rest
            .split(divides)
            .filter(|part| !part.is_empty())
            .map(parse_parameter)
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
    fn contenders_round_trip_through_text() {
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
