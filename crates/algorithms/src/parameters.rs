//! Algorithm parameters as users write them: `report=10ms,hystart=off`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use ccplane_units::{Duration, Rate};

/// Names and unparsed values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

/// Documentation of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterDoc {
    /// Name.
    pub name: &'static str,
    /// Default value.
    pub default: &'static str,
    /// Accepted values, with their unit.
    pub values: &'static str,
    /// Effect, in one line.
    pub doc: &'static str,
}

/// Rejected parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadParameter {
    /// Not of the form `name=value`.
    #[error("`{0}` does not have the form name=value")]
    Malformed(String),
    /// Unknown to the algorithm.
    #[error("`{algorithm}` has no parameter `{name}`; it has {}", list(.known))]
    Unknown {
        /// Name of the algorithm.
        algorithm: String,
        /// Parameter given.
        name: String,
        /// Parameters of the algorithm.
        known: Vec<String>,
    },
    /// Invalid value.
    #[error("invalid value `{value}` for `{name}`: {expected}")]
    Value {
        /// Name of the parameter.
        name: String,
        /// Value given.
        value: String,
        /// Description of the accepted values.
        expected: String,
    },
}

impl BadParameter {
    /// Creates the error for an invalid value; `expected` describes the accepted ones.
    pub fn value(
        name: &str,
        value: impl Into<String>,
        expected: impl Into<String>,
    ) -> BadParameter {
        BadParameter::Value {
            name: name.to_owned(),
            value: value.into(),
            expected: expected.into(),
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

impl Parameters {
    /// Creates an empty set: every parameter has its default.
    pub fn new() -> Parameters {
        Parameters::default()
    }

    /// Returns names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Sets a parameter, replacing an earlier value.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Parameters {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Returns the value given for `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the names given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Parses the value of `name`; `default` if not given.
    pub fn read<T>(&self, name: &str, default: T) -> Result<T, BadParameter>
    where
        T: FromStr,
        T::Err: Display,
    {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        value
            .parse()
            .map_err(|why: T::Err| BadParameter::value(name, value, why.to_string()))
    }

    /// Maps the value of `name` to the choice listed for that word.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        default: T,
        words: &[(&str, T)],
    ) -> Result<T, BadParameter> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        let known = words.iter().find(|(word, _)| *word == value);
        known.map(|(_, choice)| *choice).ok_or_else(|| {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            BadParameter::value(name, value, format!("expected {}", words.join(" or ")))
        })
    }

    /// Parses a number in (`least`, `most`].
    pub(crate) fn in_range(
        &self,
        name: &str,
        default: f64,
        least: f64,
        most: f64,
    ) -> Result<f64, BadParameter> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        match value.parse() {
            Ok(number) if number > least && number <= most => Ok(number),
            _ => Err(BadParameter::value(
                name,
                value,
                format!("must be above {least} and at most {most}"),
            )),
        }
    }

    /// Parses a duration, µs; `None` for `auto` or if not given.
    pub(crate) fn micros_or_auto(&self, name: &str) -> Result<Option<f64>, BadParameter> {
        let Some(value) = self.get(name).filter(|value| *value != "auto") else {
            return Ok(None);
        };
        match value.parse::<Duration>() {
            Ok(time) if time.as_micros() > 0 => Ok(Some(time.as_secs_f64() * 1e6)),
            _ => Err(BadParameter::value(
                name,
                value,
                "expected `auto` or a duration of at least 1us",
            )),
        }
    }

    /// Parses a rate; `None` for `word` or if not given.
    pub(crate) fn rate_or(&self, name: &str, word: &str) -> Result<Option<Rate>, BadParameter> {
        let Some(value) = self.get(name).filter(|value| *value != word) else {
            return Ok(None);
        };
        let rate = value.parse::<Rate>();
        rate.map(Some)
            .map_err(|why| BadParameter::value(name, value, format!("{why}; or `{word}`")))
    }
}

impl FromStr for Parameters {
    type Err = BadParameter;

    /// Parses `name=value` pairs separated by `,` or `+`.
    fn from_str(text: &str) -> Result<Parameters, BadParameter> {
        let mut parameters = Parameters::new();
        for part in text
            .split([',', '+'])
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| BadParameter::Malformed(part.to_owned()))?;
            parameters = parameters.with(name.trim(), value.trim());
        }
        Ok(parameters)
    }
}
