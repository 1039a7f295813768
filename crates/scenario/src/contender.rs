//! Contenders: ccplane's algorithms with their parameters, algorithms of agents in other processes,
//! and the datapath's native congestion controls.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Returns true for the path of a program file or of a Python file.
fn is_file(name: &str) -> bool {
    name.ends_with(".ccp") || name.ends_with(".py")
}

/// Starts of an agent's address in a contender. Paths are absolute, because the folder to which a
/// relative one refers would depend on where the contender is written.
pub const AGENT_ADDRESS_STARTS: [&str; 3] = ["unix:/", "ccp:/", "tls://"];

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
    /// Algorithm of an agent in another process, for real packets.
    Remote {
        /// Name under which the agent registers the algorithm.
        name: String,
        /// Parameters with which the agent registers it. Empty for a CCP agent.
        parameters: Vec<(String, String)>,
        /// Address: `unix:/PATH`, `ccp:/PATH` or `tls://HOST:PORT`, with options after a `?`. Only
        /// its start is checked here.
        agent: String,
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
            Contender::Ccplane { name, .. }
            | Contender::Remote { name, .. }
            | Contender::Native { name } => name,
        }
    }

    /// Returns the address of the agent in another process that the contender names.
    pub fn agent(&self) -> Option<&str> {
        match self {
            Contender::Remote { agent, .. } => Some(agent),
            Contender::Ccplane { .. } | Contender::Native { .. } => None,
        }
    }

    /// Returns the name under which an agent in another process registers the algorithm, including
    /// its parameters. The agent of a Python file registers the file name only, since it was
    /// started with the parameters.
    pub fn agent_name(&self) -> String {
        match self {
            Contender::Ccplane { name, .. } | Contender::Remote { name, .. }
                if name.ends_with(".py") =>
            {
                name.clone()
            }
            Contender::Remote {
                name, parameters, ..
            } => WithParameters(name, parameters).to_string(),
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
            Contender::Ccplane { name, parameters } => WithParameters(name, parameters).fmt(f),
            Contender::Remote {
                name,
                parameters,
                agent,
            } => write!(f, "{}@{agent}", WithParameters(name, parameters)),
        }
    }
}

/// `NAME:key=value:key=value`.
struct WithParameters<'c>(&'c str, &'c [(String, String)]);

impl fmt::Display for WithParameters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        self.1
            .iter()
            .try_for_each(|(key, value)| write!(f, ":{key}={value}"))
    }
}

/// Error for a text that is not a valid contender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadContender {
    /// None of the forms of a contender.
    #[error(
        "`{0}` is not a valid contender; write an algorithm (`reno`), an algorithm with parameters \
         (`reno:report=acks`), a native one (`native:reno`), or one of an agent in another \
         process (`reno@ccp:/tmp/ccp/portus`)"
    )]
    Syntax(String),
    /// Not the address of an agent after `@`.
    #[error(
        "`{0}` does not name an agent; write NAME@unix:/PATH, NAME@ccp:/PATH or \
         NAME@tls://HOST:PORT, with an absolute path and without commas"
    )]
    Address(String),
    /// An algorithm of the datapath with the address of an agent.
    #[error(
        "`{0}` names an agent, but a native algorithm runs in the datapath; remove the part from \
         `@`, or `native:`"
    )]
    NativeAtAgent(String),
    /// Parameters for a CCP agent.
    #[error(
        "`{text}`: a CCP agent does not accept parameters; write `{fix}`, and set the parameters \
         where the agent is started"
    )]
    ParametersAtCcpAgent {
        /// Text of the contender.
        text: String,
        /// Contender without parameters.
        fix: String,
    },
}

/// Splits `ALGORITHM@ADDRESS`, and returns `None` for a contender without an address. An `@` in a
/// parameter or a path does not begin one.
pub(crate) fn split_agent(text: &str) -> Option<(&str, &str)> {
    let splits = || {
        let all = text.match_indices('@');
        all.filter_map(|(at, _)| Some((text.get(..at)?, text.get(at + 1..)?)))
    };
    let is_address = |address: &str| {
        let mut starts = AGENT_ADDRESS_STARTS.iter();
        starts.any(|start| address.starts_with(start))
    };
    // A misspelt address, such as one with a relative path. Without its address the contender is
    // plain, so that nothing else can be meant.
    let is_misspelt = |(name, address): &(&str, &str)| {
        let schemes = AGENT_ADDRESS_STARTS.iter();
        let mut schemes = schemes.filter_map(|start| start.split_inclusive(':').next());
        !name.contains(['/', '=']) && schemes.any(|scheme| address.starts_with(scheme))
    };
    splits()
        .find(|(_, address)| is_address(address))
        .or_else(|| splits().find(is_misspelt))
}

/// Parses `ALGORITHM@ADDRESS`, split at the `@`.
fn remote(text: &str, algorithm: &str, address: &str) -> Result<Contender, BadContender> {
    let mut starts = AGENT_ADDRESS_STARTS.iter();
    let rest = starts.find_map(|start| address.strip_prefix(start));
    let is_plain = !address.contains(',') && !address.contains(char::is_control);
    if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('?')) || !is_plain {
        return Err(BadContender::Address(text.to_owned()));
    }
    match algorithm.parse::<Contender>() {
        Ok(Contender::Ccplane { parameters, name })
            if !parameters.is_empty() && address.starts_with("ccp:") =>
        {
            Err(BadContender::ParametersAtCcpAgent {
                text: text.to_owned(),
                fix: format!("{name}@{address}"),
            })
        }
        Ok(Contender::Ccplane { name, parameters }) => Ok(Contender::Remote {
            name,
            parameters,
            agent: address.to_owned(),
        }),
        Ok(Contender::Native { .. }) => Err(BadContender::NativeAtAgent(text.to_owned())),
        Ok(Contender::Remote { .. }) => Err(BadContender::Address(text.to_owned())),
        Err(_) => Err(BadContender::Syntax(text.to_owned())),
    }
}

impl FromStr for Contender {
    type Err = BadContender;

    /// Parses `reno`, `reno:report=acks:start=agent`, `./mine.ccp:back=0.7`, `native:cubic` or
    /// `reno@ccp:/tmp/ccp/portus`.
    fn from_str(text: &str) -> Result<Contender, BadContender> {
        if let Some((algorithm, address)) = split_agent(text.trim()) {
            return remote(text.trim(), algorithm, address);
        }
        let bad = || BadContender::Syntax(text.to_owned());
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
            "./a@b.ccp:back=0.7",
            "reno@ccp:/tmp/ccp/portus",
            "reno@ccp:/tmp/ccp/portus?timeout=2s",
            "cubic:report=10ms:hystart=off@unix:/run/agent.sock",
            "./mine.py:back=0.7@unix:/run/agent.sock",
            "cubic@tls://[2001:db8::1]:4700?keys=/etc/ccplane/keys",
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
            "@ccp:/tmp/ccp/portus",
            "re no@ccp:/tmp/ccp/portus",
            "reno@",
            "reno@/run/agent.sock",
            "reno@ccp",
        ] {
            let error = bad.parse::<Contender>().unwrap_err();
            assert_eq!(error, BadContender::Syntax(bad.to_owned()));
        }
    }

    #[test]
    fn the_agent_of_a_contender_is_known_by_its_address() {
        let parse = |text: &str| text.parse::<Contender>().unwrap();
        let remote = parse("cubic:report=10ms@unix:/run/agent.sock");
        assert_eq!(remote.agent(), Some("unix:/run/agent.sock"));
        assert_eq!(remote.algorithm(), "cubic");
        assert_eq!(remote.agent_name(), "cubic:report=10ms");
        assert!(!remote.is_native() && remote.file().is_none());
        let python = parse("./mine.py:back=0.7@unix:/run/agent.sock");
        assert_eq!(python.agent_name(), "./mine.py");
        assert!(python.file().is_none());
        assert_eq!(parse("cubic:report=10ms").agent(), None);
    }

    #[test]
    fn a_wrong_agent_has_a_reason_and_a_fix() {
        for (bad, says) in [
            ("reno@ccp:relative", "absolute path"),
            ("reno@unix:agent.sock", "absolute path"),
            ("reno@tls:host:1", "NAME@tls://HOST:PORT"),
            ("reno@ccp:/", "does not name an agent"),
            ("reno@tls://", "does not name an agent"),
            ("reno@ccp:/?timeout=2s", "does not name an agent"),
            ("reno@ccp:/a,b", "without commas"),
            ("reno@unix:/a\nb", "does not name an agent"),
            ("native:reno@ccp:/a", "runs in the datapath"),
            ("reno:report=10ms@ccp:/a", "write `reno@ccp:/a`"),
        ] {
            let error = bad.parse::<Contender>().unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_can_panic(text in ".{0,40}") {
            let _ = text.parse::<Contender>();
        }

        #[test]
        fn what_parses_is_written_as_it_was_read(
            text in "[a-z]{0,3}(:[a-z]=[0-9@]{0,2}){0,2}@?(unix|ccp|tls)?:?/{0,2}[a-z@:?=]{0,6}"
        ) {
            if let Ok(contender) = text.parse::<Contender>() {
                prop_assert_eq!(contender.to_string().parse::<Contender>().unwrap(), contender);
            }
        }
    }
}
