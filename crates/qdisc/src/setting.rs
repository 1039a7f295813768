//! Settings of a queue or a loss model as people write them: `target=5ms:ecn`.

use std::fmt::Display;
use std::str::FromStr;

/// One setting: `name=value`, or a `name` alone.
pub(crate) struct Setting<'a> {
    pub(crate) name: &'a str,
    text: &'a str,
    value: Option<&'a str>,
}

impl<'a> Setting<'a> {
    /// All settings in a text, separated by colons; no name occurs twice.
    pub(crate) fn all(text: &'a str) -> Result<Vec<Setting<'a>>, String> {
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
                return Err(format!("`{}` is there twice", excerpt(name)));
            }
            settings.push(Setting { name, text, value });
        }
        Ok(settings)
    }

    /// The value, read as what the setting is.
    pub(crate) fn value<T: FromStr<Err: Display>>(&self) -> Result<T, String> {
        self.read(|value| value.parse().map_err(|error: T::Err| error.to_string()))
    }

    /// The value, read by a function of its own.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let value = self
            .value
            .ok_or_else(|| format!("`{0}` has no value; write `{0}=…`", excerpt(self.name)))?;
        read(value).map_err(|reason| format!("`{}`: {reason}", excerpt(self.text)))
    }

    /// That the setting stands without a value.
    pub(crate) fn flag(&self) -> Result<(), String> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(format!("`{}` takes no value", excerpt(self.name))),
        }
    }

    /// That there is no such setting.
    pub(crate) fn unknown(&self, names: &[&'static str]) -> String {
        format!(
            "there is no setting `{}`{}",
            excerpt(self.name),
            did_you_mean(self.name, names)
        )
    }
}

/// `; did you mean …`, if one of the names is close, otherwise all of them.
pub(crate) fn did_you_mean(text: &str, names: &[&'static str]) -> String {
    let text = excerpt(text);
    let distance = |name: &&'static str| (strsim::damerau_levenshtein(&text, name), *name);
    match names.iter().map(distance).min() {
        Some((1..=2, name)) if text.len() > 2 => format!("; did you mean `{name}`?"),
        _ => {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("; there are {}", names.join(", "))
        }
    }
}

/// A whole number within bounds.
pub(crate) fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("`{}` is not a number from {least} to {most}", excerpt(text)))
}

/// A decimal number with at most three places, up to a million, times a thousand.
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

/// [`thousandths`], printed.
pub(crate) fn decimal(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The beginning of a text, fit for a terminal.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}
