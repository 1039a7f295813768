//! Quantities in a file: any type with `FromStr`, from a TOML string or a bare number.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use toml::Spanned;

/// Parsed value with its span in the file.
pub type SpannedValue<T> = Spanned<ParsedValue<T>>;

/// Value parsed with the `FromStr` of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedValue<T>(pub T);

impl<'de, T> Deserialize<'de> for ParsedValue<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ParsedValue<T>, D::Error> {
        deserializer
            .deserialize_any(AsText(PhantomData))
            .map(ParsedValue)
    }
}

struct AsText<T>(PhantomData<T>);

impl<T> Visitor<'_> for AsText<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|why| {
            let why: String = T::Err::to_string(&why);
            // Errors that begin with the quoted input need no second quotation.
            if why.starts_with('`') {
                E::custom(why)
            } else {
                E::custom(format_args!("`{}`: {why}", text.escape_debug()))
            }
        })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
