//! Parser for the settings of queues and loss models, such as `target=5ms:ecn`.

use std::fmt::Display;
use std::str::FromStr;

/// One setting: `name=value`, or a bare `name`.
pub(crate) struct Setting<'a> {
    pub(crate) name: &'a str,
    text: &'a str,
    value: Option<&'a str>,
}

impl<'a> Setting<'a> {
    /// Parses settings separated by colons and rejects duplicate names.
    pub(crate) fn parse_all(text: &'a str) -> Result<Vec<Setting<'a>>, String> {
        let mut settings: Vec<Setting<'a>> = Vec::new();
        if text.is_empty() {
            return Ok(settings);
        }
        for text in text.split(':') {
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (text, None),
            };
            if settings.iter().any(|setting| setting.name == name) {
                return Err(format!("`{}` is given twice", excerpt(name)));
            }
            settings.push(Setting { name, text, value });
        }
        Ok(settings)
    }

    pub(crate) fn value<T: FromStr<Err: Display>>(&self) -> Result<T, String> {
        self.parse_with(|value| value.parse().map_err(|error: T::Err| error.to_string()))
    }

    /// Parses the value with the given function.
    pub(crate) fn parse_with<T>(
        &self,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let value = self
            .value
            .ok_or_else(|| format!("`{0}` has no value; write `{0}=…`", excerpt(self.name)))?;
        read(value).map_err(|reason| format!("`{}`: {reason}", excerpt(self.text)))
    }

    /// Checks that the setting has no value.
    pub(crate) fn expect_flag(&self) -> Result<(), String> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(format!("`{}` takes no value", excerpt(self.name))),
        }
    }

    /// Formats the error for an unknown setting.
    pub(crate) fn unknown_setting_error(&self, names: &[&'static str]) -> String {
        format!(
            "unknown setting `{}`{}",
            excerpt(self.name),
            did_you_mean(self.name, names)
        )
    }
}

/// Suggests the closest name, as in `; did you mean …`, or lists all names.
pub(crate) fn did_you_mean(text: &str, names: &[&'static str]) -> String {
    let text = excerpt(text);
    let distance = |name: &&'static str| (strsim::damerau_levenshtein(&text, name), *name);
    match names.iter().map(distance).min() {
        Some((1..=2, name)) if text.len() > 2 => format!("; did you mean `{name}`?"),
        _ => {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("; choose one of {}", names.join(", "))
        }
    }
}

/// Parses an integer within bounds.
pub(crate) fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("`{}` is not a number from {min} to {max}", excerpt(text)))
}

/// Parses a decimal number of at most a million with at most three decimals, in thousandths.
pub(crate) fn thousandths(text: &str) -> Option<u64> {
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

/// Formats [`thousandths`] as a decimal number.
pub(crate) fn decimal(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Returns the first 60 characters, escaped for a terminal.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}
