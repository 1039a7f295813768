//! Parameters of algorithms as people write them: `report=10ms,hystart=off`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// Names and values, not yet understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

/// What a parameter is, for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterDoc {
    /// Its name.
    pub name: &'static str,
    /// Its value when it is not given.
    pub default: &'static str,
    /// What it may be, with the unit.
    pub values: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// A parameter that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadParameter {
    /// Not of the form `name=value`.
    #[error("`{0}` is not of the form name=value")]
    Form(String),
    /// The algorithm has no such parameter.
    #[error("`{algorithm}` has no parameter `{name}`; it has {}", list(.known))]
    Unknown {
        /// The algorithm.
        algorithm: String,
        /// What was given.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The value cannot be used.
    #[error("`{value}` is no value for `{name}`: {expected}")]
    Value {
        /// The parameter.
        name: String,
        /// What was given.
        value: String,
        /// What it may be.
        expected: String,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

impl Parameters {
    /// None: every parameter has its default.
    pub fn new() -> Parameters {
        Parameters::default()
    }

    /// One more, or another value for the same.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Parameters {
        self.0.insert(name.into(), value.into());
        self
    }

    /// The value given for `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The names given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The value of `name`, read as a `T`; `default` where none is given.
    pub fn read<T>(&self, name: &str, default: T) -> Result<T, BadParameter>
    where
        T: FromStr,
        T::Err: Display,
    {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        value.parse().map_err(|why: T::Err| BadParameter::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: why.to_string(),
        })
    }
}

impl FromStr for Parameters {
    type Err = BadParameter;

    /// `name=value`, separated by `,` or `+`.
    fn from_str(text: &str) -> Result<Parameters, BadParameter> {
        let mut parameters = Parameters::new();
        for part in text.split([',', '+']).map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| BadParameter::Form(part.to_owned()))?;
            parameters = parameters.with(name.trim(), value.trim());
        }
        Ok(parameters)
    }
}
